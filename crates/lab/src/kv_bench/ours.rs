//! Vellum's own store, in a directory or on flash of its own.

use super::engine::{Compression, Engine, Setup};
use super::kept::{Kept, Ours};
use std::path::Path;
use std::sync::Arc;
use vellum_base::{Env, Error, Geometry, Result};
use vellum_kv::{Bounds, Directory, DirectoryOptions, FlashMedia, Options, Store, check_sharing};
use vellum_media::nand::Nand;
use vellum_media::{Coded, Image, ImageParams};

/// As in flash made by `vellum disk create` with defaults.
const FLASH_PAGE_BYTES: usize = 4096;
const FLASH_CHANNELS: usize = 8;
/// The NVRAM of an image holds logs of ten memtables of this size, and manifests.
pub const FLASH_MEMTABLE_BYTES_MAX: usize = 25 << 20;

/// Opens the store that `setup` describes, with files mapped into memory or else read and written.
pub fn open(setup: &Setup, env: &Arc<dyn Env>, map_files: bool) -> Result<Arc<dyn Engine>> {
    let media = Directory::open(&setup.dir, DirectoryOptions::default())?;
    check_sharing(&*media, &setup.reuse)?;
    let store = Store::open(media, env.clone(), Options { map_files, ..options(setup)? })?;
    Ok(Arc::new(Ours { store, durability: setup.durability, uncalled: map_files }))
}

/// The same on flash of its own: an image in the directory, with superblocks as large as memtables.
pub fn open_on_flash(setup: &Setup, env: &Arc<dyn Env>) -> Result<Arc<dyn Engine>> {
    let memtable_bytes = setup.memtable_bytes.min(FLASH_MEMTABLE_BYTES_MAX);
    let setup = &Setup { memtable_bytes, ..setup.clone() };
    let path = setup.dir.join("flash.vellum");
    let flash = Arc::new(match path.exists() {
        true => Image::open(&path, false)?,
        false => new_flash(setup, &path)?,
    });
    let media = FlashMedia::open(flash, env.clone())?;
    check_sharing(&*media, &setup.reuse)?;
    let store = Store::open(media, env.clone(), options(setup)?)?;
    Ok(Arc::new(Ours { store, durability: setup.durability, uncalled: true }))
}

fn new_flash(setup: &Setup, path: &Path) -> Result<Coded<Nand>> {
    let superblock_pages = (setup.memtable_bytes / FLASH_PAGE_BYTES).max(16 * FLASH_CHANNELS);
    let geometry = Geometry {
        channels: FLASH_CHANNELS as u32,
        dies_per_channel: 1,
        blocks_per_die: (setup.flash_bytes / (superblock_pages * FLASH_PAGE_BYTES) as u64) as u32,
        pages_per_block: (superblock_pages / FLASH_CHANNELS) as u32,
        page_bytes: FLASH_PAGE_BYTES as u32,
        oob_bytes: 0,
    };
    // Logs of six memtables and of those being written, and manifests.
    let nvram_bytes = 10 * setup.memtable_bytes + (4 << 20);
    std::fs::create_dir_all(&setup.dir).map_err(|e| Error::io(format!("make {}", setup.dir.display()), e))?;
    let flash = Image::create(path, &ImageParams { nvram_bytes, ..ImageParams::new(geometry) })?;
    FlashMedia::format(&flash)?;
    Ok(flash)
}

fn options(setup: &Setup) -> Result<Options> {
    let compression = match setup.compression {
        Compression::None => vellum_kv::Compression::None,
        Compression::Lz4 => vellum_kv::Compression::Lz4,
        Compression::Zstd => vellum_kv::Compression::Zstd(0),
    };
    let mut options = Options {
        memtable_bytes: setup.memtable_bytes,
        memtables_max: setup.memtables.saturating_sub(1),
        cache_bytes: setup.cache_bytes,
        filter_bits_per_key: setup.filter_bits,
        compression: [compression; _],
        reuse: setup.reuse,
        ..Options::default()
    };
    for (name, value) in &setup.vellum_options {
        set(&mut options, name, *value)?;
    }
    Ok(options)
}

/// Sets an option to a number.
type Setter = fn(&mut Options, u64);

/// Options for the shape of the tree and for the number of tasks.
const SETTERS: [(&str, Setter); 9] = [
    ("level0_compact", |options, value| options.level0_compact = count(value)),
    ("level0_slow", |options, value| options.level0_slow = count(value)),
    ("level0_stop", |options, value| options.level0_stop = count(value)),
    ("level0_in_log", |options, value| options.level0_in_log = value > 0),
    ("level1_bytes", |options, value| options.level1_bytes = value),
    ("level_factor", |options, value| options.level_factor = value),
    ("compaction_tasks", |options, value| options.compaction_tasks = count(value)),
    ("compaction_bytes", |options, value| options.compaction_bytes = count(value)),
    ("plain_levels", |options, value| {
        let plain = options.compression.iter_mut().take(count(value));
        plain.for_each(|level| *level = vellum_kv::Compression::None);
    }),
];

/// The names that [`Setup::vellum_options`] may have, for messages.
pub fn vellum_option_names() -> String {
    SETTERS.map(|(name, _)| name).join(", ")
}

fn count(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn set(options: &mut Options, name: &str, value: u64) -> Result<()> {
    let setter = SETTERS.iter().find(|(known, _)| *known == name);
    let none = || Error::invalid(format!("'{name}' is none of {}", vellum_option_names()));
    setter.map(|(_, set)| set(options, value)).ok_or_else(none)
}

impl Kept for Store {
    fn shut(self) -> Result<()> {
        self.close()
    }

    fn scan(&self, key: &[u8], records: u32, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<u32> {
        let mut iter = self.iter(Bounds::all())?;
        iter.seek(key)?;
        let mut seen = 0;
        while iter.is_valid() && seen < records {
            see(iter.key(), iter.value());
            seen += 1;
            if seen < records {
                iter.next()?;
            }
        }
        Ok(seen)
    }

    fn programmed_bytes(&self) -> u64 {
        self.stat().ledger.programmed_total()
    }

    fn nvram_bytes(&self) -> u64 {
        self.stat().since_opened.nvram_bytes()
    }
}
