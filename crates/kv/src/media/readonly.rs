//! A medium wrapper that refuses all changes.

use super::{
    AreaReader, AreaWriter, Areas, Intent, Media, MediaShape, Placement, TableReader, TableWriter, Tables,
};
use crate::journal::Area;
use std::path::PathBuf;
use std::sync::Arc;
use vellum_base::{Error, LedgerSnapshot, Result};

/// Passes reads through, and refuses everything else.
pub(crate) struct ReadOnly(pub Arc<dyn Media>);

/// The error that writes return in a store that was opened read-only.
pub(crate) fn refused() -> Error {
    Error::invalid("the store was opened read-only")
}

impl Media for ReadOnly {
    fn shape(&self) -> MediaShape {
        self.0.shape()
    }
    fn placement(&self) -> Option<Placement> {
        self.0.placement()
    }
    fn problems(&self) -> Vec<String> {
        self.0.problems()
    }
    fn current(&self) -> Result<Option<Vec<u8>>> {
        self.0.current()
    }
    fn set_current(&self, _bytes: &[u8]) -> Result<()> {
        Err(refused())
    }
    fn ledger(&self) -> LedgerSnapshot {
        self.0.ledger()
    }
}

impl Tables for ReadOnly {
    fn tables_free(&self) -> u64 {
        0
    }
    fn create_table(&self, _number: u64, _intent: Intent) -> Result<Box<dyn TableWriter>> {
        Err(refused())
    }
    fn open_table(&self, number: u64) -> Result<Arc<dyn TableReader>> {
        self.0.open_table(number)
    }
    fn erase_table(&self, _number: u64) -> Result<()> {
        Err(refused())
    }
    fn tables(&self) -> Result<Vec<u64>> {
        self.0.tables()
    }
    fn highest_table(&self) -> u64 {
        self.0.highest_table()
    }
    fn table_path(&self, number: u64) -> Option<PathBuf> {
        self.0.table_path(number)
    }
}

impl Areas for ReadOnly {
    fn create_area(&self, _area: Area) -> Result<Arc<dyn AreaWriter>> {
        Err(refused())
    }
    fn read_area(&self, area: Area) -> Result<Vec<u8>> {
        self.0.read_area(area)
    }
    fn sync_area(&self, _area: Area) -> Result<()> {
        Err(refused())
    }
    fn remove_area(&self, _area: Area) -> Result<()> {
        Err(refused())
    }
    fn sync_removals(&self) -> Result<()> {
        Err(refused())
    }
    fn keeps_areas(&self) -> bool {
        self.0.keeps_areas()
    }
    fn open_area(&self, area: Area) -> Result<Arc<dyn AreaReader>> {
        self.0.open_area(area)
    }
    fn area_path(&self, area: Area) -> Option<PathBuf> {
        self.0.area_path(area)
    }
    fn areas(&self) -> Result<Vec<Area>> {
        self.0.areas()
    }
}
