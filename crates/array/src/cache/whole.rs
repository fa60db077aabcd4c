//! Common code of policies that keep whole versions of sectors (write-around, write-through, LARC, LeavO): reading a
//! sector, and restoring clean pages after a clean stop.

use super::map::Map;
use super::metalog::{entry_of, log_pages_min};
use super::policy::{Recipe, Restored};
use super::restore::{Placed, each_page, place};
use super::shape::PageState;
use super::step::{LogEntry, Newest, Step, Steps};
use vellum_base::{Lba, Result};

/// Where the newest version of a sector is.
pub(super) fn newest(map: &Map, lba: Lba) -> Newest {
    map.find(lba).map_or(Newest::Array, Newest::Page)
}

/// Handles a read of a sector.
pub(super) fn read(map: &mut Map, lba: Lba, steps: &mut Steps) -> Newest {
    let newest = newest(map, lba);
    if let Newest::Page(page) = newest {
        map.touch(page);
        steps.push(Step::ReadPage(page));
    } else {
        steps.push(Step::ReadArray(lba));
    }
    steps.answer();
    newest
}

/// Entries of data pages, coldest first.
pub(super) fn entries(map: &Map) -> Vec<LogEntry> {
    map.kept().into_iter().map(|page| entry_of(map, page)).collect()
}

/// Restores clean pages.
pub(super) fn restore(map: &mut Map, recipe: &Recipe, restored: &Restored) -> Result<()> {
    let shape = map.shape;
    let capacity = recipe.log_pages.max(log_pages_min(shape.pages)).into();
    each_page(&shape, restored, capacity, |entry| match (entry.state, entry.delta) {
        (PageState::Clean, None) => place(map, entry),
        _ => Placed::Err("no such state in this policy"),
    })
}
