//! A medium for trying out a repair: reads go to the medium below, changes are kept on another one.
//!
//! 1. The medium below is never changed.
//! 2. What was written or removed here is seen here as if it had been done.

use super::{AreaReader, AreaWriter, Areas, Intent, Media, MediaShape, TableReader, TableWriter, Tables};
use crate::journal::Area;
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Error, Kind, LedgerSnapshot, Result};

/// See the module.
pub struct Rehearsal {
    below: Arc<dyn Media>,
    aside: Arc<dyn Media>,
    removed: Mutex<Removed>,
}

/// What exists below but was removed here.
#[derive(Default)]
struct Removed {
    tables: BTreeSet<u64>,
    areas: BTreeSet<Area>,
}

impl Rehearsal {
    /// A medium that shows what is on `below` and writes to `aside`, which must be empty.
    pub fn over(below: Arc<dyn Media>, aside: Arc<dyn Media>) -> Arc<Rehearsal> {
        Arc::new(Rehearsal { below, aside, removed: Mutex::default() })
    }

    fn has_table(&self, number: u64) -> Result<bool> {
        Ok(self.aside.tables()?.contains(&number))
    }

    /// The medium that has an area; an error if it was removed.
    fn of_area(&self, area: Area) -> Result<&dyn Media> {
        if self.aside.areas()?.contains(&area) {
            return Ok(&*self.aside);
        }
        match self.removed.lock().areas.contains(&area) {
            true => Err(Error::corrupt(format!("{area} is missing"))),
            false => Ok(&*self.below),
        }
    }
}

impl Media for Rehearsal {
    fn shape(&self) -> MediaShape {
        self.below.shape()
    }
    fn problems(&self) -> Vec<String> {
        self.below.problems()
    }
    fn current(&self) -> Result<Option<Vec<u8>>> {
        match self.aside.current()? {
            Some(bytes) => Ok(Some(bytes)),
            None => self.below.current(),
        }
    }
    fn set_current(&self, bytes: &[u8]) -> Result<()> {
        self.aside.set_current(bytes)
    }
    fn ledger(&self) -> LedgerSnapshot {
        self.aside.ledger()
    }
}

impl Tables for Rehearsal {
    fn tables_free(&self) -> u64 {
        let written = self.aside.tables().map_or(0, |tables| tables.len() as u64);
        match self.below.tables_free() {
            u64::MAX => u64::MAX,
            free => free.saturating_sub(written),
        }
    }
    fn tables_written_max(&self) -> usize {
        self.below.tables_written_max()
    }
    fn create_table(&self, number: u64, intent: Intent) -> Result<Box<dyn TableWriter>> {
        match self.tables_free() {
            0 => Err(Error::new(Kind::NoSpace, "there is no room for what would be written anew")),
            _ => self.aside.create_table(number, intent),
        }
    }
    fn open_table(&self, number: u64) -> Result<Arc<dyn TableReader>> {
        match self.has_table(number)? {
            true => self.aside.open_table(number),
            false if self.removed.lock().tables.contains(&number) => {
                Err(Error::corrupt(format!("table {number} is missing")))
            }
            false => self.below.open_table(number),
        }
    }
    fn erase_table(&self, number: u64) -> Result<()> {
        self.removed.lock().tables.insert(number);
        self.aside.erase_table(number)
    }
    fn tables(&self) -> Result<Vec<u64>> {
        let (mut tables, removed) = (self.below.tables()?, self.removed.lock());
        tables.retain(|number| !removed.tables.contains(number));
        tables.extend(self.aside.tables()?);
        Ok(tables)
    }
    fn highest_table(&self) -> u64 {
        self.below.highest_table()
    }
}

impl Areas for Rehearsal {
    fn create_area(&self, area: Area) -> Result<Arc<dyn AreaWriter>> {
        self.aside.create_area(area)
    }
    fn read_area(&self, area: Area) -> Result<Vec<u8>> {
        self.of_area(area)?.read_area(area)
    }
    fn sync_area(&self, _area: Area) -> Result<()> {
        Ok(())
    }
    fn remove_area(&self, area: Area) -> Result<()> {
        self.removed.lock().areas.insert(area);
        self.aside.remove_area(area)
    }
    fn sync_removals(&self) -> Result<()> {
        Ok(())
    }
    fn keeps_areas(&self) -> bool {
        self.below.keeps_areas()
    }
    fn open_area(&self, area: Area) -> Result<Arc<dyn AreaReader>> {
        self.of_area(area)?.open_area(area)
    }
    fn areas(&self) -> Result<Vec<Area>> {
        let (mut areas, removed) = (self.below.areas()?, self.removed.lock());
        areas.retain(|area| !removed.areas.contains(area));
        areas.extend(self.aside.areas()?);
        Ok(areas)
    }
}
