//! A virtual NAND device in a file: `docs/formats/flash-image.md`.
//!
//! The image is sparse (an erased block takes no space), can be reopened, and is locked while it is open. Synced data
//! survives a crash of the machine. Data that is not synced survives the death of the process only as far as the
//! format's document says.
//!
//! ```
//! use vellum_base::{BlockAddr, Flash, Geometry, IoClass, Source};
//! use vellum_media::image::{Image, ImageParams};
//!
//! let dir = tempfile::tempdir().unwrap();
//! let path = dir.path().join("d.flash");
//! let geometry = Geometry { channels: 2, dies_per_channel: 1, blocks_per_die: 4, pages_per_block: 8,
//!                           page_bytes: 4096, oob_bytes: 60 };
//! let nand = Image::create(&path, &ImageParams::new(geometry)).unwrap();
//! nand.program(IoClass::Foreground, BlockAddr(5).page(0), &[Source::Bytes(&[7; 4096])], b"tag").unwrap();
//! nand.close().unwrap();
//!
//! let nand = Image::open(&path, true).unwrap();
//! let mut data = [0; 4096];
//! nand.read(IoClass::Foreground, BlockAddr(5).page(0), 0, &mut data, &mut []).unwrap();
//! assert!(data == [7; 4096]);
//! ```

mod file;
mod format;
mod host;
mod journal;
mod mark;
mod mend;
mod nvram;
#[cfg(test)]
mod power_loss;
mod store;

pub use format::ImageInfo;
pub use mend::Mended;

use crate::coded::{Coded, Coding};
use crate::nand::{Block, Die, Nand, NandParams, Parts, Wear, new_block};
use crate::reason;
use file::{FileBacking, FileNvram, ImageFile};
use format::{COUNTERS_OFFSETS, CountersSlot, ENTRY_BYTES, HEADER_COPY_OFFSET, Layout, UNIT};
use host::HostFile;
use nvram::{place_nvram, read_nvram};
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use store::FileStore;
use vellum_base::{BlockAddr, Env, Error, Geometry, Kind, RealEnv, Result};

/// Parameters of a new image.
#[derive(Clone, Debug)]
pub struct ImageParams {
    /// Its geometry, with the out-of-band bytes available to its user.
    pub geometry: Geometry,
    /// How its pages are coded; `None` for uncoded pages.
    pub coding: Option<Coding>,
    /// Rated erases of a block.
    pub endurance: u32,
    /// Bytes of NVRAM; 0 for none.
    pub nvram_bytes: usize,
    /// Share of blocks that are bad from the factory.
    pub factory_bad_share: f64,
    /// Seed of random events.
    pub seed: u64,
    /// Its unique identifier; `None` for a random one.
    pub id: Option<u128>,
    /// Its label, at most 32 bytes; usually the name of a preset.
    pub label: String,
    /// Random faults while it is open. Not stored in the image.
    pub wear: Wear,
}

impl ImageParams {
    /// A faultless device rated for 3000 erases, without NVRAM and with uncoded pages.
    pub fn new(geometry: Geometry) -> ImageParams {
        ImageParams {
            geometry,
            coding: None,
            endurance: 3000,
            nvram_bytes: 0,
            factory_bad_share: 0.0,
            seed: 0,
            id: None,
            label: String::new(),
            wear: Wear::default(),
        }
    }
}

/// Creates and opens flash images.
pub struct Image;

impl Image {
    /// Creates an image at an unused path, and opens it.
    pub fn create(path: &Path, params: &ImageParams) -> Result<Coded<Nand>> {
        let layout = layout_of(params)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(|e| Error::io(format!("create {}", path.display()), e))?;
        let made = write_new(&file, params, &layout).and_then(|()| sync_directory(path));
        if let Err(e) = made {
            let _ = std::fs::remove_file(path); // the error that matters is the first
            return Err(Error::io(format!("create {}", path.display()), e));
        }
        Image::open_file(file, false, params.wear.clone()).map_err(|e| e.context(path.display()))
    }

    /// Makes an empty file an image, and opens it.
    pub fn create_in(file: File, params: &ImageParams) -> Result<Coded<Nand>> {
        let layout = layout_of(params)?;
        write_new(&file, params, &layout).map_err(|e| Error::io("create the image", e))?;
        Image::open_file(file, false, params.wear.clone())
    }

    /// Opens an image. A writer excludes all others.
    pub fn open(path: &Path, read_only: bool) -> Result<Coded<Nand>> {
        Image::open_with(path, read_only, Wear::default())
    }

    /// Opens an image with random faults.
    pub fn open_with(path: &Path, read_only: bool, wear: Wear) -> Result<Coded<Nand>> {
        let file = open_path(path, read_only)?;
        Image::open_file(file, read_only, wear).map_err(|e| e.context(path.display()))
    }

    /// The same for a file that is already open.
    pub fn open_file(file: File, read_only: bool, wear: Wear) -> Result<Coded<Nand>> {
        Image::open_whole(file, read_only, wear).map(|(nand, _)| nand)
    }

    fn open_whole(file: File, read_only: bool, wear: Wear) -> Result<(Coded<Nand>, Arc<ImageFile>)> {
        lock(&file, read_only)?;
        let (mut info, mut layout) = read_header(&file)?;
        check_length(&file, &info, &layout)?;
        if !read_only {
            add_journal(&file, &mut info, &mut layout)?;
        }
        Image::assemble(HostFile::new(file), info, layout, (read_only, wear), None)
    }

    /// Opens an image whose file may be truncated, too long, without one of its headers or counters slots, or with a
    /// damaged journal, and reports these problems. They are fixed unless `read_only`: then missing bytes read as
    /// zeros, which are never a valid page.
    pub fn open_to_repair(path: &Path, read_only: bool) -> Result<(Coded<Nand>, Mended)> {
        let file = open_path(path, read_only)?;
        let here = |e: Error| e.context(path.display());
        lock(&file, read_only).map_err(here)?;
        let (mut info, mut layout) = read_header(&file).map_err(here)?;
        let mut mended = mend::mend(&file, &info, &layout, read_only).map_err(here)?;
        if !read_only {
            add_journal(&file, &mut info, &mut layout).map_err(here)?;
        }
        let file = HostFile::new(file).with_zeros_behind_end();
        let how = (read_only, Wear::default());
        let (nand, _) = Image::assemble(file, info, layout, how, Some(&mut mended)).map_err(here)?;
        Ok((nand, mended))
    }

    /// What [`Image::open_to_repair`] would fix. The image may be in use by readers; a writer could be in the middle of
    /// writing its counters.
    pub fn problems(path: &Path) -> Result<Mended> {
        let file = open_path(path, true)?;
        let look = || {
            let (info, layout) = read_header(&file)?;
            let mut mended = mend::mend(&file, &info, &layout, true)?;
            let file = file.try_clone().map_err(|e| Error::io("look at the image", e))?;
            let file = HostFile::new(file).with_zeros_behind_end();
            let (slot, is_newest) = read_counters(&file)?;
            let mut judge = || {
                let (_, end) = read_nvram(&file, &layout, &slot)?;
                mended.judge_journal(&file, &layout, (&slot, is_newest), end)
            };
            judge().map_err(|e| Error::io("read the NVRAM", e))?;
            Ok(mended)
        };
        look().map_err(|e: Error| e.context(path.display()))
    }

    /// Opens a locked image. Losses of its journal are an error, unless they are reported in `mended`.
    fn assemble(
        file: HostFile,
        info: ImageInfo,
        layout: Layout,
        (read_only, wear): (bool, Wear),
        mended: Option<&mut Mended>,
    ) -> Result<(Coded<Nand>, Arc<ImageFile>)> {
        // Everything that determines which pages count.
        file.forget_read(0, layout.stripes_offset);
        file.forget_read(layout.journal.offset, layout.journal.bytes);
        let (mut slot, is_newest) = read_counters(&file)?;
        let nvram_error = |e| Error::io("read the NVRAM", e);
        let (nvram, end) = read_nvram(&file, &layout, &slot).map_err(nvram_error)?;
        match (mended, mend::lost_from_journal(&slot, end)) {
            (Some(mended), _) => {
                mended.judge_journal(&file, &layout, (&slot, is_newest), end).map_err(nvram_error)?;
            }
            (None, Some(lost)) => return Err(Error::corrupt(lost)),
            (None, None) => {}
        }
        if end > slot.journal_start && !read_only {
            place_nvram(&file, &layout, &slot).map_err(nvram_error)?;
        }
        let blocks = read_table(&file, &layout)?;
        if !read_only {
            slot.counters.power_cuts += !slot.clean as u64;
            slot.journal_start = layout.journal.next_life(slot.journal_start);
            if !is_newest {
                // The newer slot is lost; according to it, the ring may have wrapped once more.
                slot.journal_start = layout.journal.next_life(slot.journal_start);
            }
            slot.journal_safe = slot.journal_start;
        }
        let image = Arc::new(ImageFile::new(file, layout, &slot));
        if !read_only {
            mark_open(&image).map_err(|e| Error::io("mark the image as open", e))?;
        }
        let dies = blocks.into_iter().enumerate().map(|(die, blocks)| {
            let store = FileStore::new(image.clone(), die as u32, &blocks, slot.clean);
            Die::new(die as u32, blocks, Box::new(store))
        });
        let params = NandParams {
            seed: info.seed,
            endurance: info.endurance,
            factory_bad_share: 0.0, // decided when the image was created
            nvram_bytes: info.nvram_bytes as usize,
            wear,
            erases_kept: 0,
        };
        let nand = Nand::on(Parts {
            geometry: layout.geometry,
            params,
            dies: dies.collect(),
            nvram,
            nvram_backing: Some(Box::new(FileNvram(image.clone()))),
            backing: Box::new(FileBacking(image.clone())),
            counters: slot.counters,
            read_only,
        });
        let flash = match info.coding {
            None => Coded::plain(nand),
            Some(coding) => Coded::new(nand, info.geometry.oob_bytes, coding)?,
        };
        Ok((flash, image))
    }

    /// Reads an image's properties without opening it; it may be in use.
    pub fn inspect(path: &Path) -> Result<ImageInfo> {
        let file = File::open(path).map_err(|e| Error::io(format!("open {}", path.display()), e))?;
        let (info, layout) = read_header(&file).map_err(|e| e.context(path.display()))?;
        check_length(&file, &info, &layout).map_err(|e| e.context(path.display()))?;
        Ok(info)
    }
}

fn layout_of(params: &ImageParams) -> Result<Layout> {
    if params.label.len() > format::LABEL_BYTES {
        return Err(Error::invalid(format!("the label '{}' is longer than 32 bytes", params.label)));
    }
    let nvram_bytes = params.nvram_bytes as u64;
    Layout::new(&params.geometry, params.coding.as_ref(), nvram_bytes, journal::bytes_for(nvram_bytes))
}

fn open_path(path: &Path, read_only: bool) -> Result<File> {
    let file = OpenOptions::new().read(true).write(!read_only).open(path);
    file.map_err(|e| Error::io(format!("open {}", path.display()), e))
}

fn write_new(file: &File, params: &ImageParams, layout: &Layout) -> std::io::Result<()> {
    let env = RealEnv::new();
    let random = || (env.random() as u128) << 64 | env.random() as u128;
    let info = ImageInfo {
        id: params.id.unwrap_or_else(random),
        label: params.label.clone(),
        geometry: params.geometry,
        coding: params.coding,
        endurance: params.endurance,
        nvram_bytes: params.nvram_bytes as u64,
        journal_bytes: layout.journal.bytes,
        seed: params.seed,
    };
    file.set_len(layout.file_bytes)?;
    // All space except stripes is allocated now, so that a full host cannot prevent the table from being written.
    take_room(file, 0, layout.stripes_offset)?;
    take_room(file, layout.journal.offset, layout.journal.bytes)?;
    let header = info.encode(layout);
    file.write_all_at(&header, 0)?;
    file.write_all_at(&header, HEADER_COPY_OFFSET)?;
    let chance = NandParams {
        seed: params.seed,
        factory_bad_share: params.factory_bad_share,
        ..NandParams::default()
    };
    let image = ImageFile::new(HostFile::new(file.try_clone()?), *layout, &CountersSlot::default());
    let blocks = (0..params.geometry.blocks()).map(|b| (BlockAddr(b), new_block(&chance, BlockAddr(b))));
    image.write_entries(blocks.filter(|(_, block)| block.bad).collect())?;
    image.write_counters(true)?;
    file.sync_all()
}

fn take_room(file: &File, offset: u64, bytes: u64) -> std::io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    if bytes == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::empty(), offset, bytes) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Adds a journal to an image of an older version, if it has an NVRAM.
fn add_journal(file: &File, info: &mut ImageInfo, layout: &mut Layout) -> Result<()> {
    let journal_bytes = journal::bytes_for(info.nvram_bytes);
    if info.journal_bytes > 0 || journal_bytes == 0 {
        return Ok(());
    }
    let with = Layout::new(&info.geometry, info.coding.as_ref(), info.nvram_bytes, journal_bytes)?;
    info.journal_bytes = journal_bytes;
    take_journal_room(file, layout, &with)
        .and_then(|()| write_journal(file, info, &with))
        .map_err(|e| Error::io("give the image's NVRAM a journal", e))?;
    *layout = with;
    Ok(())
}

/// Extends the file; restores its length if there is no room.
fn take_journal_room(file: &File, before: &Layout, with: &Layout) -> std::io::Result<()> {
    file.set_len(with.file_bytes)?;
    take_room(file, with.journal.offset, with.journal.bytes).inspect_err(|_| {
        let _ = file.set_len(before.file_bytes); // the error that matters is the first
    })
}

fn write_journal(file: &File, info: &ImageInfo, layout: &Layout) -> std::io::Result<()> {
    file.sync_all()?;
    // One after the other, so that one is intact; first the one that is read second: until both are written, the next
    // opening starts over.
    for offset in [HEADER_COPY_OFFSET, 0] {
        file.write_all_at(&info.encode(layout), offset)?;
        file.sync_all()?;
    }
    Ok(())
}

/// Makes the directory entry of a new file durable.
fn sync_directory(path: &Path) -> std::io::Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

fn lock(file: &File, read_only: bool) -> Result<()> {
    let locked = if read_only { file.try_lock_shared() } else { file.try_lock() };
    locked.map_err(|e| match e {
        TryLockError::WouldBlock => Error::new(
            Kind::Busy,
            "the image is open elsewhere; close it there first (two writers would destroy it)",
        ),
        TryLockError::Error(e) => Error::io("lock the image", e),
    })
}

/// The header, from whichever copy is intact.
fn read_header(file: &File) -> Result<(ImageInfo, Layout)> {
    let copy = |offset| read_up_to(file, offset, UNIT).and_then(|bytes| ImageInfo::decode(&bytes));
    let gone = |what: String| Error::corrupt(what).because(reason::IMAGE_HEADERS);
    let first = match copy(0) {
        Ok(found) => return Ok(found),
        Err(error) => error,
    };
    copy(HEADER_COPY_OFFSET).map_err(|second| {
        // If the first has our magic, its error says more than that of the second.
        let error = if first.kind() == Kind::Invalid { second } else { first };
        match error.kind() {
            Kind::Corrupt => gone(format!("neither header of the image is whole ({error})")),
            Kind::Invalid if has_counters(file) => gone(
                "both headers of the image are gone; that it was a flash image is seen by its counters, which are there"
                    .into(),
            ),
            _ => error,
        }
    })
}

fn check_length(file: &File, info: &ImageInfo, layout: &Layout) -> Result<()> {
    let bytes = file.metadata().map_err(|e| Error::io("look at the image", e))?.len();
    // The image was being given a journal.
    let almost = layout.file_bytes + journal::bytes_for(info.nvram_bytes);
    if bytes == layout.file_bytes || (info.journal_bytes == 0 && bytes == almost) {
        return Ok(());
    }
    let what = match bytes < layout.file_bytes {
        true => "it was cut or copied in part",
        false => "what lies behind its end is not its own, and a repair cuts it off",
    };
    Err(Error::corrupt(format!(
        "the image is {bytes} bytes long and should be {}: {what}",
        layout.file_bytes
    )))
}

fn has_counters(file: &File) -> bool {
    let is_one = |bytes: Vec<u8>| bytes.len() == UNIT && CountersSlot::decode(&bytes).is_some();
    COUNTERS_OFFSETS.into_iter().any(|offset| read_up_to(file, offset, UNIT).is_ok_and(is_one))
}

/// The newest counters, and whether they are certainly the newest, since both slots are intact.
fn read_counters(file: &HostFile) -> Result<(CountersSlot, bool)> {
    let (mut newest, mut is_certain) = (None::<CountersSlot>, true);
    for offset in COUNTERS_OFFSETS {
        let found = CountersSlot::decode(&read_vec(file, offset, UNIT)?);
        is_certain &= found.is_some();
        newest = newest.into_iter().chain(found).max_by_key(|slot| slot.sequence);
    }
    let newest = newest.ok_or_else(|| {
        Error::corrupt("both counter slots of the image are damaged; restore the image from a copy")
    })?;
    Ok((newest, is_certain))
}

/// The blocks of each die.
fn read_table(file: &HostFile, layout: &Layout) -> Result<Vec<Vec<Block>>> {
    let geometry = &layout.geometry;
    let mut dies = vec![Vec::new(); geometry.dies() as usize];
    let total = geometry.blocks() as usize * ENTRY_BYTES;
    for at in (0..total).step_by(64 * 1024) {
        let bytes = (total - at).min(64 * 1024);
        let copies = (0..layout.table_copies)
            .map(|copy| read_vec(file, layout.table_offset + copy * layout.table_bytes + at as u64, bytes));
        let copies = copies.collect::<Result<Vec<_>>>()?;
        for i in 0..bytes / ENTRY_BYTES {
            let address = BlockAddr((at / ENTRY_BYTES + i) as u32);
            let entries = copies.iter().map(|copy| &copy[i * ENTRY_BYTES..][..ENTRY_BYTES]);
            let block = format::decode_entry(entries, geometry.pages_per_block);
            dies[geometry.die_of(address) as usize].push(block);
        }
    }
    Ok(dies)
}

fn mark_open(image: &ImageFile) -> std::io::Result<()> {
    // A killed process may not have synced the newest slot, and the other is written next.
    image.file.sync_data()?;
    image.write_counters(false)?;
    image.file.sync_data()
}

fn read_vec(file: &HostFile, offset: u64, bytes: usize) -> Result<Vec<u8>> {
    let mut out = vec![0; bytes];
    file.read_exact_at(&mut out, offset).map_err(|e| Error::io("read the image", e))?;
    Ok(out)
}

/// Reads at most `bytes`, up to the end of the file.
fn read_up_to(file: &File, offset: u64, bytes: usize) -> Result<Vec<u8>> {
    let mut out = vec![0; bytes];
    let mut filled = 0;
    while filled < bytes {
        match file.read_at(&mut out[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io("read the image", e)),
        }
    }
    out.truncate(filled);
    Ok(out)
}
