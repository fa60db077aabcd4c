//! Zones as a medium: tables are in zones, everything else is in the directory beside them.

use super::ZoneMedia;
use super::reader::ZoneReader;
use super::writer::ZoneWriter;
use crate::journal::Area;
use crate::media::{
    AreaWriter, Areas, Intent, Media, MediaShape, NAMELESS, Sharing, TableReader, TableWriter, Tables,
};
use std::sync::Arc;
use vellum_base::{Error, Kind, LedgerSnapshot, Result};

impl Media for ZoneMedia {
    fn shape(&self) -> MediaShape {
        let table_bytes = self.inner.capacity();
        MediaShape { table_bytes, whole_tables: true, ..self.inner.directory.shape() }
    }

    fn check_writable(&self) -> Result<()> {
        self.inner.directory.check_writable()
    }

    fn current(&self) -> Result<Option<Vec<u8>>> {
        self.inner.directory.current()
    }

    fn set_current(&self, bytes: &[u8]) -> Result<()> {
        self.inner.directory.set_current(bytes)
    }

    fn ledger(&self) -> LedgerSnapshot {
        self.inner.directory.ledger()
    }
}

impl Tables for ZoneMedia {
    fn tables_free(&self) -> u64 {
        self.inner.homes.lock().free.len() as u64
    }

    fn tables_written_max(&self) -> usize {
        self.inner.open_max()
    }

    fn create_table(&self, number: u64, intent: Intent) -> Result<Box<dyn TableWriter>> {
        let zone = self.inner.begin(number)?;
        Ok(Box::new(ZoneWriter::new(self.inner.clone(), zone, number, intent)))
    }

    fn open_table(&self, number: u64) -> Result<Arc<dyn TableReader>> {
        let zone = self.inner.homes.lock().tables.get(&number).copied();
        let zone = zone.ok_or_else(|| match number {
            NAMELESS => Error::corrupt("zones hold what may have been any table"),
            _ => Error::corrupt(format!("table {number} is missing")),
        })?;
        Ok(Arc::new(ZoneReader::new(self.inner.clone(), zone, number)))
    }

    fn erase_table(&self, number: u64) -> Result<()> {
        match number {
            NAMELESS => self.inner.erase_nameless(),
            _ => match self.inner.erase(number) {
                // Nobody needs it: it stays as it is until the next opening.
                Err(e) if e.kind() == Kind::Io => {
                    self.inner.set_aside(number);
                    Ok(())
                }
                erased => erased,
            },
        }
    }

    fn tables(&self) -> Result<Vec<u64>> {
        let homes = self.inner.homes.lock();
        let nameless = (!homes.nameless.is_empty()).then_some(NAMELESS);
        Ok(nameless.into_iter().chain(homes.tables.keys().copied()).collect())
    }

    fn sharing(&self, _unit_bytes: u64) -> Result<Sharing> {
        Ok(if self.inner.zones.remaps() { Sharing::Remap } else { Sharing::None })
    }
}

impl Areas for ZoneMedia {
    fn create_area(&self, area: Area) -> Result<Arc<dyn AreaWriter>> {
        self.inner.directory.create_area(area)
    }

    fn read_area(&self, area: Area) -> Result<Vec<u8>> {
        self.inner.directory.read_area(area)
    }

    fn sync_area(&self, area: Area) -> Result<()> {
        self.inner.directory.sync_area(area)
    }

    fn trim_area(&self, area: Area, bytes: u64) -> Result<()> {
        self.inner.directory.trim_area(area, bytes)
    }

    fn remove_area(&self, area: Area) -> Result<()> {
        self.inner.directory.remove_area(area)
    }

    fn sync_removals(&self) -> Result<()> {
        self.inner.directory.sync_removals()
    }

    fn areas(&self) -> Result<Vec<Area>> {
        self.inner.directory.areas()
    }
}
