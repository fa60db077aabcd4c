//! A store in a directory of any file system.
//!
//! Files are named `000012.table`, `000013.log`, `000014.manifest`, CURRENT, TAIL, which holds the end of the open log,
//! and LOCK, which is locked while the store is open. Files with such names belong to the store and are removed when
//! nothing needs them; others are left alone.
//!
//! 1. The directory entry of a file is durable before the first sync of the file returns.
//! 2. CURRENT is replaced by renaming a synced file over it.
//! 3. What is read from an area is what the device has, or what will still be written back: never page cache contents
//!    that an earlier process failed to sync.
//! 4. What an earlier process left in TAIL is read as the end of its log. It is written to the log, and TAIL is removed
//!    durably, before another area is created or a log is truncated: nothing that was truncated comes back.

mod area;
mod fault;
mod files;
mod host;
mod host_file;
mod mapping;
mod table;
mod tail;
mod tail_file;
mod waits;

pub(crate) use area::ZEROS_MAX;
pub use files::{Files, Handle, Memory};
pub use mapping::Mapping;
pub(crate) use tail::fuzzed;

use super::{
    AreaReader, AreaWriter, Areas, Intent, MEDIA_UNIT_BYTES, Media, MediaShape, Sharing, TableReader,
    TableWriter, Tables,
};
use crate::journal::{Area, AreaKind};
use crate::leftovers::TABLE_NUMBER_MAX;
use area::{FileArea, KeptArea};
use host::{CLONES, HostFiles, LOCK};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use table::{FileTable, FileTableWriter};
use tail::TAIL;
use tail_file::TailFile;
use vellum_base::sync::Mutex;
use vellum_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::{Cause, Error, Ledger, LedgerSnapshot, Result};

/// A note that names the device, where tables are on a device of their own.
pub(crate) const ZONES: &str = "ZONES";
/// Suffix of a file that is to replace a note.
const NEW: &str = ".new";
/// File name suffix of tables.
const TABLE: &str = ".table";
/// Most bytes of CURRENT, or of another note.
const NOTE_BYTES_MAX: u64 = 8192;
/// A file with a higher number is not ours: the engines do not assign such numbers.
const NUMBER_MAX: u64 = 2 * TABLE_NUMBER_MAX;
/// Capacity of an area in bytes: places in logs are told in 32 bits.
const AREA_BYTES_MAX: u64 = u32::MAX as u64;

/// Options of a [`Directory`].
#[derive(Clone, Copy, Debug)]
pub struct DirectoryOptions {
    /// Most bytes of a table.
    pub table_bytes: u64,
}

impl Default for DirectoryOptions {
    /// Tables of 64 MiB.
    fn default() -> DirectoryOptions {
        DirectoryOptions { table_bytes: 64 << 20 }
    }
}

/// See the module.
pub struct Directory {
    files: Arc<dyn Files>,
    ledger: Arc<Ledger>,
    options: DirectoryOptions,
    never_clones: Arc<AtomicBool>,
    tail_file: Arc<TailFile>,
    seen: Mutex<Seen>,
}

/// Areas about which it is known whether the page cache agrees with the device.
#[derive(Default)]
struct Seen {
    /// Existed before, and were read since this directory was opened.
    read: BTreeSet<String>,
    /// Created since; a sync of them may have failed.
    made: BTreeSet<String>,
}

impl Seen {
    /// True if the page cache of an area may hold contents that a failed sync did not write.
    fn is_doubtful(&mut self, name: &str) -> bool {
        self.made.contains(name) || self.read.insert(name.into())
    }

    fn forget(&mut self, name: &str) {
        self.made.remove(name);
        self.read.remove(name);
    }
}

impl Directory {
    /// Opens the directory at `path`, creates it if absent, and locks it until this is dropped. An error if it is
    /// locked already.
    pub fn open(path: &Path, options: DirectoryOptions) -> Result<Arc<Directory>> {
        Ok(Directory::on(Arc::new(HostFiles::open(path)?), options))
    }

    /// Opens the existing directory at `path` under a shared lock: others may read it meanwhile, but not write, nor
    /// does a store on it. Where it has no lock yet, as a copy of files may, a writer is not kept out.
    pub fn open_read_only(path: &Path, options: DirectoryOptions) -> Result<Arc<Directory>> {
        Ok(Directory::on(Arc::new(HostFiles::open_read_only(path)?), options))
    }

    /// Opens the directory at `path` without a lock, to look at a store that another process may be changing. No
    /// store on it writes.
    pub fn look(path: &Path) -> Result<Arc<Directory>> {
        Ok(Directory::on(Arc::new(HostFiles::unlocked(path)?), DirectoryOptions::default()))
    }

    /// A directory on any implementation of [`Files`].
    pub fn on(files: Arc<dyn Files>, options: DirectoryOptions) -> Arc<Directory> {
        let (ledger, never_clones, seen) = Default::default();
        let tail_file = Arc::new(TailFile::new(files.clone()));
        Arc::new(Directory { files, ledger, options, never_clones, tail_file, seen })
    }

    /// Name of the file that every store has in its directory: it names the manifest in force.
    pub const CURRENT: &str = "CURRENT";

    /// True if a store may have a file of this name in its directory.
    pub fn is_own_name(name: &str) -> bool {
        let endings = [TABLE, ending_of(AreaKind::Log), ending_of(AreaKind::Manifest)];
        let note = name.strip_suffix(NEW).unwrap_or(name);
        endings.iter().any(|ending| number_of(name, ending).is_some())
            || [Directory::CURRENT, ZONES].contains(&note)
            || [LOCK, TAIL].contains(&name)
            || CLONES.contains(&name)
    }

    /// The note called `name`, a small file beside tables and areas; `None` if absent.
    pub(crate) fn note(&self, name: &str) -> Result<Option<Vec<u8>>> {
        if !self.files.names()?.iter().any(|found| found == name) {
            return Ok(None);
        }
        let file = self.files.open(name)?;
        let mut bytes = vec![0; file.len()?.min(NOTE_BYTES_MAX) as usize];
        file.read(0, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Replaces a note atomically and durably.
    pub(crate) fn set_note(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let new = format!("{name}{NEW}");
        self.files.remove(&new)?;
        let file = self.files.create(&new)?;
        file.write(0, bytes)?;
        file.sync()?;
        self.files.rename(&new, name)?;
        self.files.sync_names()?;
        self.ledger.programmed(Cause::StoreMetadata, bytes.len() as u64);
        Ok(())
    }

    /// Completes an area of an earlier writer, which is to be synced or truncated.
    fn settle_log(&self, area: Area) -> Result<()> {
        self.tail_file.settle(|log| Area::log(log) == area)
    }

    /// A number that tells this directory from a copy of it, if the file system has one ([`Files::number`]).
    pub(crate) fn number(&self) -> Option<u64> {
        self.files.number()
    }

    pub(crate) fn ledger_shared(&self) -> &Ledger {
        &self.ledger
    }

    /// Numbers of the files whose names end in `ending` and are formatted exactly as we do it.
    fn numbers(&self, ending: &str) -> Result<Vec<u64>> {
        Ok(self.files.names()?.iter().filter_map(|name| number_of(name, ending)).collect())
    }
}

/// The highest number of a log among these names.
fn newest_log(names: &[String]) -> Option<u64> {
    names.iter().filter_map(|name| number_of(name, ending_of(AreaKind::Log))).max()
}

/// The number in a file name, if the name is one that we would write.
fn number_of(name: &str, ending: &str) -> Option<u64> {
    let number = name.strip_suffix(ending)?.parse().ok()?;
    (number <= NUMBER_MAX && *name == file_name(number, ending)).then_some(number)
}

fn file_name(number: u64, ending: &str) -> String {
    format!("{number:06}{ending}")
}

fn table_name(number: u64) -> String {
    file_name(number, TABLE)
}

fn area_name(area: Area) -> String {
    file_name(area.number, ending_of(area.kind))
}

fn ending_of(kind: AreaKind) -> &'static str {
    match kind {
        AreaKind::Log => ".log",
        AreaKind::Manifest => ".manifest",
    }
}

impl Media for Directory {
    fn check_writable(&self) -> Result<()> {
        self.files.check_writable()
    }

    fn shape(&self) -> MediaShape {
        MediaShape {
            table_bytes: self.options.table_bytes,
            unit_bytes: MEDIA_UNIT_BYTES,
            log_bytes: AREA_BYTES_MAX,
            logs_max: usize::MAX,
            manifest_bytes: 1 << 20,
            whole_tables: false,
            areas_are_files: true,
        }
    }

    fn room_bytes(&self) -> Option<u64> {
        self.files.room_bytes()
    }

    fn all_bytes(&self) -> Option<u64> {
        let len = |number: u64| self.files.open(&table_name(number)).and_then(|file| file.len());
        let taken = self.tables().ok()?.into_iter().filter_map(|number| len(number).ok());
        let log = |number| self.files.open(&area_name(Area::log(number))).and_then(|file| file.len());
        let taken = taken.chain(
            self.numbers(ending_of(AreaKind::Log)).ok()?.into_iter().filter_map(|number| log(number).ok()),
        );
        Some(taken.fold(self.files.room_bytes()?, u64::saturating_add))
    }

    fn current(&self) -> Result<Option<Vec<u8>>> {
        self.note(Directory::CURRENT)
    }

    fn set_current(&self, bytes: &[u8]) -> Result<()> {
        self.set_note(Directory::CURRENT, bytes)
    }

    fn ledger(&self) -> LedgerSnapshot {
        self.ledger.snapshot()
    }
}

impl Tables for Directory {
    fn tables_free(&self) -> u64 {
        u64::MAX
    }

    fn create_table(&self, number: u64, intent: Intent) -> Result<Box<dyn TableWriter>> {
        let (files, ledger) = (self.files.clone(), self.ledger.clone());
        let (capacity, never_clones) = (self.options.table_bytes, self.never_clones.clone());
        let writer =
            FileTableWriter::new(table_name(number), (files, ledger), intent, capacity, never_clones)?;
        Ok(Box::new(writer))
    }

    fn open_table(&self, number: u64) -> Result<Arc<dyn TableReader>> {
        Ok(Arc::new(FileTable { file: self.files.open(&table_name(number))? }))
    }

    fn erase_table(&self, number: u64) -> Result<()> {
        self.files.remove(&table_name(number))
    }

    fn tables(&self) -> Result<Vec<u64>> {
        self.numbers(TABLE)
    }

    fn table_path(&self, number: u64) -> Option<PathBuf> {
        self.files.path(&table_name(number))
    }

    fn adopt_table(&self, number: u64, from: &Path) -> Result<bool> {
        self.files.link(from, &table_name(number))
    }

    fn sharing(&self, unit_bytes: u64) -> Result<Sharing> {
        // The newest table is what will be cloned from, if it has more than one unit.
        let newest = self.tables()?.into_iter().max().map(table_name);
        let is_long = |name: &String| self.files.open(name)?.len().map(|bytes| bytes >= 2 * unit_bytes);
        let source = match newest {
            Some(name) if is_long(&name)? => Some(name),
            _ => None,
        };
        Ok(if self.files.clones(source.as_deref(), unit_bytes)? { Sharing::Reflink } else { Sharing::None })
    }

    fn sharing_refused(&self) -> bool {
        self.never_clones.load(Relaxed)
    }
}

impl Areas for Directory {
    fn create_area(&self, area: Area) -> Result<Arc<dyn AreaWriter>> {
        // The writer of a log finishes it before it creates another.
        self.tail_file.settle(|_| area.kind == AreaKind::Log)?;
        let cause = match area.kind {
            AreaKind::Log => Cause::Log,
            AreaKind::Manifest => Cause::StoreMetadata,
        };
        let file = self.files.create(&area_name(area))?;
        self.seen.lock().made.insert(area_name(area));
        let (files, count) = (self.files.clone(), (self.ledger.clone(), cause));
        Ok(Arc::new(FileArea::new(area.number, file, (files, self.tail_file.clone()), count)))
    }

    fn read_area(&self, area: Area) -> Result<Vec<u8>> {
        let name = area_name(area);
        let file = self.files.open(&name)?;
        if self.seen.lock().is_doubtful(&name) {
            file.forget_read();
        }
        let is_log = area.kind == AreaKind::Log;
        let left = if is_log { self.tail_file.left_of(area.number)? } else { None };
        let len = file.len()?;
        let end = left.as_ref().and_then(|left| left.end_behind(len)).unwrap_or(0).max(len);
        if end > AREA_BYTES_MAX {
            return Err(Error::corrupt(format!("{name} has {end} bytes, more than any log or manifest")));
        }
        let mut bytes = vec![0; len as usize];
        file.read(0, &mut bytes)?;
        left.into_iter().for_each(|left| left.complete(&mut bytes));
        Ok(bytes)
    }

    fn sync_area(&self, area: Area) -> Result<()> {
        self.settle_log(area)?;
        self.files.open(&area_name(area))?.sync()?;
        self.files.sync_names()
    }

    fn trim_area(&self, area: Area, bytes: u64) -> Result<()> {
        self.settle_log(area)?;
        self.files.cut(&area_name(area), bytes)
    }

    fn remove_area(&self, area: Area) -> Result<()> {
        self.seen.lock().forget(&area_name(area));
        self.files.remove(&area_name(area))
    }

    fn sync_removals(&self) -> Result<()> {
        self.files.sync_names()
    }

    fn keeps_areas(&self) -> bool {
        true
    }

    fn open_area(&self, area: Area) -> Result<Arc<dyn AreaReader>> {
        let left = match area.kind {
            AreaKind::Log => self.tail_file.left_of(area.number)?,
            AreaKind::Manifest => None,
        };
        Ok(Arc::new(KeptArea::of(self.files.open(&area_name(area))?, left)?))
    }

    fn area_path(&self, area: Area) -> Option<PathBuf> {
        self.files.path(&area_name(area))
    }

    fn adopt_area(&self, area: Area, from: &Path) -> Result<bool> {
        self.tail_file.settle(|_| false)?; // or what is left here would be written to somebody else's log
        self.files.link(from, &area_name(area))
    }

    fn areas(&self) -> Result<Vec<Area>> {
        let logs = self.numbers(ending_of(AreaKind::Log))?.into_iter().map(Area::log);
        let manifests = self.numbers(ending_of(AreaKind::Manifest))?.into_iter().map(Area::manifest);
        Ok(logs.chain(manifests).collect())
    }
}
