//! A medium wrapper for repairs, which must not take a transient read error for damage: a failed read is retried, and
//! of a log or manifest that still cannot be read as a whole, everything readable is returned.

use super::{AreaReader, AreaWriter, Areas, Intent, Media, MediaShape, TableReader, TableWriter, Tables};
use crate::journal::Area;
use std::sync::Arc;
use vellum_base::{IoClass, Kind, LedgerSnapshot, Nanos, Result};

/// Bytes of an area that are read or lost at a time.
const PIECE_BYTES: usize = 4096;

/// See the module.
pub(crate) struct Patient(Arc<dyn Media>);

/// Tries twice: what a device cannot do once it may do the next time.
pub(super) fn twice<T>(mut read: impl FnMut() -> Result<T>) -> Result<T> {
    match read() {
        Err(error) if error.kind() == Kind::Io => read(),
        done => done,
    }
}

impl Patient {
    pub(crate) fn with(media: &Arc<dyn Media>) -> Arc<dyn Media> {
        Arc::new(Patient(media.clone()))
    }

    /// An area that cannot be read whole, with zeros where it cannot. An error if none of it can.
    fn read_in_pieces(&self, area: Area) -> Result<Vec<u8>> {
        let reader = twice(|| self.0.open_area(area))?;
        let mut bytes = vec![0; twice(|| reader.bytes())? as usize];
        let (mut is_any_read, mut failed) = (false, None);
        for (at, piece) in (0..).step_by(PIECE_BYTES).zip(bytes.chunks_mut(PIECE_BYTES)) {
            match twice(|| reader.read(at, piece)) {
                Ok(()) => is_any_read = true,
                Err(error) => {
                    piece.fill(0);
                    failed = Some(error);
                }
            }
        }
        match failed {
            Some(error) if !is_any_read => Err(error),
            _ => Ok(bytes),
        }
    }
}

impl Media for Patient {
    fn shape(&self) -> MediaShape {
        self.0.shape()
    }
    fn current(&self) -> Result<Option<Vec<u8>>> {
        twice(|| self.0.current())
    }
    fn set_current(&self, bytes: &[u8]) -> Result<()> {
        self.0.set_current(bytes)
    }
    fn ledger(&self) -> LedgerSnapshot {
        self.0.ledger()
    }
}

impl Tables for Patient {
    fn tables_free(&self) -> u64 {
        self.0.tables_free()
    }
    fn tables_written_max(&self) -> usize {
        self.0.tables_written_max()
    }
    fn create_table(&self, number: u64, intent: Intent) -> Result<Box<dyn TableWriter>> {
        self.0.create_table(number, intent)
    }
    fn open_table(&self, number: u64) -> Result<Arc<dyn TableReader>> {
        Ok(Arc::new(PatientReader(twice(|| self.0.open_table(number))?)))
    }
    fn erase_table(&self, number: u64) -> Result<()> {
        self.0.erase_table(number)
    }
    fn tables(&self) -> Result<Vec<u64>> {
        twice(|| self.0.tables())
    }
    fn highest_table(&self) -> u64 {
        self.0.highest_table()
    }
}

impl Areas for Patient {
    fn create_area(&self, area: Area) -> Result<Arc<dyn AreaWriter>> {
        self.0.create_area(area)
    }
    fn read_area(&self, area: Area) -> Result<Vec<u8>> {
        match twice(|| self.0.read_area(area)) {
            Err(error) if error.kind() == Kind::Io => self.read_in_pieces(area).map_err(|_| error),
            done => done,
        }
    }
    fn sync_area(&self, area: Area) -> Result<()> {
        self.0.sync_area(area)
    }
    fn remove_area(&self, area: Area) -> Result<()> {
        self.0.remove_area(area)
    }
    fn sync_removals(&self) -> Result<()> {
        self.0.sync_removals()
    }
    fn keeps_areas(&self) -> bool {
        self.0.keeps_areas()
    }
    fn open_area(&self, area: Area) -> Result<Arc<dyn AreaReader>> {
        Ok(Arc::new(PatientAreaReader(twice(|| self.0.open_area(area))?)))
    }
    fn areas(&self) -> Result<Vec<Area>> {
        twice(|| self.0.areas())
    }
}

struct PatientReader(Arc<dyn TableReader>);

impl TableReader for PatientReader {
    fn read(&self, offset: u64, out: &mut [u8], class: IoClass) -> Result<Nanos> {
        twice(|| self.0.read(offset, out, class))
    }
    fn bytes(&self) -> Result<u64> {
        twice(|| self.0.bytes())
    }
    fn bytes_given(&self, listed: u64) -> Result<u64> {
        twice(|| self.0.bytes_given(listed))
    }
    fn lost_bytes(&self) -> u64 {
        self.0.lost_bytes()
    }
}

struct PatientAreaReader(Arc<dyn AreaReader>);

impl AreaReader for PatientAreaReader {
    fn bytes(&self) -> Result<u64> {
        twice(|| self.0.bytes())
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        twice(|| self.0.read(offset, out))
    }
}
