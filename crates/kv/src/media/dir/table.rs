//! Tables as files.

use super::files::{Files, Handle};
use super::mapping::Mapping;
use super::{table_name, waits};
use crate::media::{Intent, Stored, TableReader, TableWriter};
use std::sync::Arc;
use vellum_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::{Avoided, Cause, IoClass, Kind, Ledger, Nanos, Result};

/// A table that is written. It is removed if it is not finished.
pub(super) struct FileTableWriter {
    files: Arc<dyn Files>,
    file: Arc<dyn Handle>,
    name: String,
    ledger: Arc<Ledger>,
    intent: Intent,
    capacity: u64,
    bytes: u64,
    source: Source,
    /// Shared by the directory: the file system never clones.
    never_clones: Arc<AtomicBool>,
    done: bool,
}

/// Where bytes were cloned from.
enum Source {
    /// Nothing was yet.
    None,
    /// This table was the last.
    Table(u64, Arc<dyn Handle>),
    /// The file system refused once.
    Refused,
}

impl FileTableWriter {
    /// A new file `name` of at most `capacity` bytes. `never_clones` is the directory's.
    pub(super) fn new(
        name: String,
        (files, ledger): (Arc<dyn Files>, Arc<Ledger>),
        intent: Intent,
        capacity: u64,
        never_clones: Arc<AtomicBool>,
    ) -> Result<FileTableWriter> {
        let file = files.create(&name)?;
        let source = if never_clones.load(Relaxed) { Source::Refused } else { Source::None };
        let (bytes, done) = (0, false);
        Ok(FileTableWriter { files, file, name, ledger, intent, capacity, bytes, source, never_clones, done })
    }

    /// The file of `table`; `None` if nothing can be cloned.
    fn source(&mut self, table: u64) -> Result<Option<Arc<dyn Handle>>> {
        match &self.source {
            Source::Refused => Ok(None),
            Source::Table(number, file) if *number == table => Ok(Some(file.clone())),
            _ => {
                let file = self.files.open(&table_name(table))?;
                self.source = Source::Table(table, file.clone());
                Ok(Some(file))
            }
        }
    }
}

impl TableWriter for FileTableWriter {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write(self.bytes, bytes)?;
        self.bytes += bytes.len() as u64;
        self.ledger.programmed(self.intent.cause, bytes.len() as u64);
        Ok(())
    }

    fn append_stored(&mut self, bytes: &[u8], from: Stored) -> Result<u64> {
        let length = bytes.len() as u64;
        if let Some(source) = self.source(from.table)? {
            match self.file.clone_range(self.bytes, &*source, from.offset, length) {
                Ok(true) => {
                    self.bytes += length;
                    self.ledger.avoided(Avoided::Remap, length);
                    return Ok(length);
                }
                Ok(false) => {}
                Err(e) if e.kind() == Kind::Unsupported => self.never_clones.store(true, Relaxed),
                Err(e) => return Err(e),
            }
            self.source = Source::Refused;
        }
        self.append(bytes).map(|()| 0)
    }

    fn leaves_in_log(&mut self, bytes: u64) {
        self.ledger.avoided(Avoided::InLog, bytes);
    }

    fn finish(mut self: Box<Self>, bubbles: u64) -> Result<()> {
        self.ledger.rebook(self.intent.cause, Cause::Bubble, bubbles);
        self.file.sync()?;
        self.files.sync_names()?;
        self.done = true;
        Ok(())
    }
}

impl Drop for FileTableWriter {
    fn drop(&mut self) {
        if !self.done {
            // If this fails, the next opening removes it.
            let _ = self.files.remove(&self.name);
        }
    }
}

/// A finished table.
pub(super) struct FileTable {
    pub file: Arc<dyn Handle>,
}

impl TableReader for FileTable {
    fn bytes(&self) -> Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8], _class: IoClass) -> Result<Nanos> {
        self.file.read(offset, out)?;
        Ok(Nanos::ZERO)
    }

    fn listens(&self) -> bool {
        self.file.host().is_some()
    }

    fn waits(&self) -> bool {
        self.listens() && waits::are_likely()
    }

    fn announce(&self, offset: u64, bytes: u64) {
        self.file.announce(offset, bytes);
    }

    fn map(&self) -> Option<Arc<Mapping>> {
        self.file.host().and_then(Mapping::of).map(Arc::new)
    }
}
