//! A file system as far as it matters to a key-value store: files of a few extents on a block device, a journal written
//! by every `fsync`, and deletion with or without discards.
//!
//! Data written to a table stay in the page cache until its `fsync`: LevelDB syncs each table when it is complete
//! (`BuildTable`, `FinishCompactionOutputFile`), and Linux writes back earlier only if a tenth of all memory is dirty
//! (`dirty_background_ratio`). Logs are in memory, as in the page cache: the paper's stores write them asynchronously,
//! and remove them before the kernel would have written them back. Manifests are synced, so each sync writes their last
//! sector and the journal.

mod space;

pub(in crate::experiment) use space::Layout;

use space::{Extent, Space};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::sync::Mutex;
use vellum_base::{
    BlockDevice, Cause, Env, Error, IoClass, Lba, Ledger, LedgerSnapshot, Nanos, Result, SECTOR_BYTES,
};
use vellum_kv::Media;
use vellum_kv::media::{
    Area, AreaKind, AreaWriter, Areas, Intent, MediaShape, TableReader, TableWriter, Tables,
};

/// Sectors of the journal, and of manifests.
const JOURNAL_SECTORS: u64 = 512;
/// Descriptor, inode and bitmap, commit.
const COMMIT_SECTORS: u64 = 3;
const LOG_BYTES_MAX: u64 = 1 << 30;
/// The largest request that the kernel issues to a device.
const REQUEST_BYTES: usize = 512 << 10;

/// Kind of a file system, and its costs.
#[derive(Clone, Copy, Debug)]
pub(in crate::experiment) struct FsKind {
    pub layout: Layout,
    /// The parts of tables begin at multiples of this; the file system itself would allow any position.
    pub unit_bytes: u64,
    /// Discard the extents of deleted files on the device.
    pub discard: bool,
    /// Processor time of a request: system call, file system, block layer, driver.
    pub request_cpu: Nanos,
}

/// See the module.
pub(in crate::experiment) struct FsMedia {
    inner: Arc<Inner>,
}

type AreaBytes = Arc<Mutex<Vec<u8>>>;

struct Inner {
    device: Arc<dyn BlockDevice>,
    env: Arc<dyn Env>,
    kind: FsKind,
    table_bytes: u64,
    ledger: Ledger,
    space: Mutex<Space>,
    files: Mutex<BTreeMap<u64, Arc<File>>>,
    /// By whether it is a manifest, and by number.
    areas: Mutex<BTreeMap<(bool, u64), AreaBytes>>,
    current: Mutex<Option<Vec<u8>>>,
    journal_at: AtomicU64,
}

/// Extents of a file, in order. They change when the file system cleans.
#[derive(Default)]
struct File {
    extents: Mutex<Vec<Extent>>,
    moves: AtomicU64,
}

impl FsMedia {
    pub(in crate::experiment) fn new(
        device: Arc<dyn BlockDevice>,
        env: Arc<dyn Env>,
        kind: FsKind,
        table_bytes: u64,
    ) -> Arc<FsMedia> {
        let whole = JOURNAL_SECTORS..device.info().sectors;
        let inner = Inner {
            device,
            env,
            kind,
            table_bytes,
            ledger: Ledger::default(),
            space: Mutex::new(Space::new(kind.layout, whole)),
            files: Mutex::default(),
            areas: Mutex::default(),
            current: Mutex::default(),
            journal_at: AtomicU64::new(0),
        };
        Arc::new(FsMedia { inner: Arc::new(inner) })
    }
}

impl Inner {
    /// What `fsync` does after writing a file's data.
    fn commit(&self) -> Result<()> {
        let at = self.journal_at.fetch_add(COMMIT_SECTORS, Relaxed);
        self.env.charge(self.kind.request_cpu);
        for sector in at..at + COMMIT_SECTORS {
            let mut bytes = [0; SECTOR_BYTES];
            bytes[..8].copy_from_slice(&(sector + 1).to_le_bytes());
            bytes[SECTOR_BYTES - 8..].copy_from_slice(&(sector + 1).to_le_bytes());
            self.device.write(Lba(sector % JOURNAL_SECTORS), &bytes, false)?;
        }
        self.ledger.programmed(Cause::StoreMetadata, COMMIT_SECTORS * SECTOR_BYTES as u64);
        self.device.flush()
    }

    fn write(&self, file: &File, bytes: &[u8], cause: Cause) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            self.clean()?;
            let end = file.extents.lock().last().map_or(0, |extent| extent.end);
            let sectors = rest.len().min(REQUEST_BYTES) / SECTOR_BYTES;
            let extent = self.space.lock().take(sectors as u64, end)?;
            let (piece, later) = rest.split_at((extent.end - extent.start) as usize * SECTOR_BYTES);
            self.env.charge(self.kind.request_cpu);
            self.device.write(Lba(extent.start), piece, false)?;
            file.extents.lock().push(extent);
            rest = later;
        }
        self.ledger.programmed(cause, bytes.len() as u64);
        Ok(())
    }

    /// If few segments are free, moves the valid data of the emptiest one to the end of the log.
    fn clean(&self) -> Result<()> {
        let Some(victim) = self.space.lock().to_clean() else { return Ok(()) };
        let files: Vec<Arc<File>> = self.files.lock().values().cloned().collect();
        for file in files {
            let count = file.extents.lock().len();
            for at in 0..count {
                let from = match file.extents.lock().get(at) {
                    Some(extent) if victim.contains(&extent.start) => extent.clone(),
                    _ => continue,
                };
                let mut bytes = vec![0; (from.end - from.start) as usize * SECTOR_BYTES];
                self.device.read(Lba(from.start), &mut bytes)?;
                let moved = File::default();
                self.append_moved(&moved, &bytes)?;
                let mut extents = file.extents.lock();
                if extents.get(at) != Some(&from) {
                    continue; // deleted meanwhile
                }
                extents.splice(at..=at, moved.extents.lock().drain(..));
                file.moves.fetch_add(1, Relaxed);
                drop(extents);
                self.space.lock().give_back(from);
            }
        }
        Ok(())
    }

    fn append_moved(&self, file: &File, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let extent = self.space.lock().take((rest.len() / SECTOR_BYTES) as u64, 0)?;
            let (piece, later) = rest.split_at((extent.end - extent.start) as usize * SECTOR_BYTES);
            self.device.write(Lba(extent.start), piece, false)?;
            file.extents.lock().push(extent);
            rest = later;
        }
        self.ledger.programmed(Cause::Gc, bytes.len() as u64);
        Ok(())
    }

    fn delete(&self, file: &File) -> Result<()> {
        let extents = std::mem::take(&mut *file.extents.lock());
        for extent in extents {
            if self.kind.discard {
                self.device.trim(Lba(extent.start), extent.end - extent.start)?;
            }
            self.space.lock().give_back(extent);
        }
        Ok(())
    }
}

fn area_key(area: Area) -> (bool, u64) {
    (area.kind == AreaKind::Manifest, area.number)
}

impl Media for FsMedia {
    fn shape(&self) -> MediaShape {
        MediaShape {
            table_bytes: self.inner.table_bytes,
            unit_bytes: self.inner.kind.unit_bytes,
            log_bytes: LOG_BYTES_MAX,
            logs_max: 16,
            manifest_bytes: 16 << 20,
            whole_tables: false,
            areas_are_files: false,
        }
    }

    fn current(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.inner.current.lock().clone())
    }

    fn set_current(&self, bytes: &[u8]) -> Result<()> {
        *self.inner.current.lock() = Some(bytes.to_vec());
        self.inner.commit()
    }

    fn ledger(&self) -> LedgerSnapshot {
        self.inner.ledger.snapshot()
    }
}

impl Tables for FsMedia {
    fn tables_free(&self) -> u64 {
        u64::MAX
    }

    fn create_table(&self, number: u64, intent: Intent) -> Result<Box<dyn TableWriter>> {
        let file = Arc::new(File::default());
        self.inner.files.lock().insert(number, file.clone());
        let inner = self.inner.clone();
        let (cause, pages) = (intent.cause, Vec::new());
        Ok(Box::new(FileWriter { inner, number, file, cause, pages, done: false }))
    }

    fn open_table(&self, number: u64) -> Result<Arc<dyn TableReader>> {
        let file = self.inner.files.lock().get(&number).cloned();
        let file = file.ok_or_else(|| Error::corrupt(format!("table {number} is missing")))?;
        Ok(Arc::new(FileReader { inner: self.inner.clone(), file }))
    }

    fn erase_table(&self, number: u64) -> Result<()> {
        let file = self.inner.files.lock().remove(&number);
        file.map_or(Ok(()), |file| self.inner.delete(&file))
    }

    fn tables(&self) -> Result<Vec<u64>> {
        Ok(self.inner.files.lock().keys().copied().collect())
    }
}

impl Areas for FsMedia {
    fn create_area(&self, area: Area) -> Result<Arc<dyn AreaWriter>> {
        let bytes = self.inner.areas.lock().entry(area_key(area)).or_default().clone();
        Ok(Arc::new(AreaFile { inner: self.inner.clone(), kind: area.kind, bytes }))
    }

    fn read_area(&self, area: Area) -> Result<Vec<u8>> {
        let bytes = self.inner.areas.lock().get(&area_key(area)).cloned();
        let bytes = bytes.ok_or_else(|| Error::corrupt(format!("{area} is missing")))?;
        Ok(bytes.lock().clone())
    }

    fn sync_area(&self, _area: Area) -> Result<()> {
        Ok(())
    }

    fn remove_area(&self, area: Area) -> Result<()> {
        self.inner.areas.lock().remove(&area_key(area));
        Ok(())
    }

    fn sync_removals(&self) -> Result<()> {
        Ok(())
    }

    fn areas(&self) -> Result<Vec<Area>> {
        let areas = self.inner.areas.lock();
        let area = |(manifest, number): &(bool, u64)| match manifest {
            true => Area::manifest(*number),
            false => Area::log(*number),
        };
        Ok(areas.keys().map(area).collect())
    }
}

struct AreaFile {
    inner: Arc<Inner>,
    kind: AreaKind,
    bytes: AreaBytes,
}

impl AreaWriter for AreaFile {
    fn append(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut all = self.bytes.lock();
        all.truncate(offset as usize);
        all.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        match self.kind {
            AreaKind::Log => Ok(()),
            AreaKind::Manifest => self.inner.commit(),
        }
    }
}

struct FileWriter {
    inner: Arc<Inner>,
    number: u64,
    file: Arc<File>,
    cause: Cause,
    /// In the page cache, but not yet on the device.
    pages: Vec<u8>,
    done: bool,
}

impl TableWriter for FileWriter {
    fn capacity(&self) -> u64 {
        self.inner.table_bytes
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.pages.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(mut self: Box<Self>, bubbles: u64) -> Result<()> {
        let padding = self.pages.len().next_multiple_of(SECTOR_BYTES) - self.pages.len();
        self.pages.resize(self.pages.len() + padding, 0);
        self.inner.write(&self.file, &self.pages, self.cause)?;
        self.inner.ledger.rebook(self.cause, Cause::Padding, padding as u64);
        self.inner.ledger.rebook(self.cause, Cause::Bubble, bubbles);
        self.done = true;
        self.inner.commit()
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if !self.done {
            self.inner.files.lock().remove(&self.number);
            // An error here would have affected the writer as well.
            let _ = self.inner.delete(&self.file);
        }
    }
}

struct FileReader {
    inner: Arc<Inner>,
    file: Arc<File>,
}

impl TableReader for FileReader {
    fn bytes(&self) -> Result<u64> {
        let sectors: u64 = self.file.extents.lock().iter().map(|extent| extent.end - extent.start).sum();
        Ok(sectors * SECTOR_BYTES as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8], _class: IoClass) -> Result<Nanos> {
        // The page cache holds whole sectors.
        let (first, skipped) = (offset / SECTOR_BYTES as u64, offset as usize % SECTOR_BYTES);
        let mut sectors = vec![0; (skipped + out.len()).next_multiple_of(SECTOR_BYTES)];
        loop {
            let moves = self.file.moves.load(Relaxed);
            let extents = self.file.extents.lock().clone();
            read_extents(&self.inner, &extents, first, &mut sectors)?;
            if self.file.moves.load(Relaxed) == moves {
                out.copy_from_slice(&sectors[skipped..][..out.len()]);
                return Ok(Nanos::ZERO);
            }
        }
    }
}

fn read_extents(inner: &Inner, extents: &[Extent], sector: u64, out: &mut [u8]) -> Result<()> {
    let (mut skip, mut rest) = (sector, out);
    for extent in extents {
        let sectors = extent.end - extent.start;
        if skip >= sectors {
            skip -= sectors;
            continue;
        }
        let bytes = ((sectors - skip) as usize * SECTOR_BYTES).min(rest.len());
        let (piece, later) = rest.split_at_mut(bytes);
        inner.env.charge(inner.kind.request_cpu);
        inner.device.read(Lba(extent.start + skip), piece)?;
        (skip, rest) = (0, later);
        if rest.is_empty() {
            return Ok(());
        }
    }
    Err(Error::corrupt("a table is shorter than its index says"))
}
