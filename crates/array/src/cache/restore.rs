//! Restoring a map from the entries of a log (kdd.txt, III.E).

use super::map::Map;
use super::policy::Restored;
use super::shape::{CacheShape, PageState};
use super::step::{LogEntry, PageNo};
use std::collections::BTreeMap;
use vellum_base::{Error, Result};

/// Why an entry is inconsistent.
pub(super) type Placed = std::result::Result<(), &'static str>;

/// Calls `place` for each page with content, in the order in which the entries were written: so data pages are inserted
/// in the order of their first use, and later ones are newer in the lists.
///
/// # Errors
/// [`vellum_base::Kind::Corrupt`] if the log is inconsistent, or `place` rejects an entry.
pub(super) fn each_page(
    shape: &CacheShape,
    restored: &Restored,
    log_capacity: u64,
    mut place: impl FnMut(&LogEntry) -> Placed,
) -> Result<()> {
    let (head, tail) = restored.log;
    if head > tail || tail - head > log_capacity {
        return Err(Error::corrupt("the cache's log has more pages than it has room for"));
    }
    for (order, entry) in in_order(shape, restored)? {
        place(&entry).map_err(|what| Error::corrupt(format!("entry {order} of the cache's log: {what}")))?;
    }
    Ok(())
}

/// Assigns a data page to the sector in its entry.
pub(super) fn place(map: &mut Map, entry: &LogEntry) -> Placed {
    let is_of_set = map.set_of(entry.lba) == entry.page.0 / map.shape.ways;
    if !is_of_set {
        return Err("its sector belongs to another set");
    }
    if map.state(entry.page) != PageState::Free || map.find(entry.lba).is_some() {
        return Err("its page or its sector has another use");
    }
    map.insert(entry.page, entry.lba, entry.state);
    Ok(())
}

/// The newest entry of each page, without those of free pages.
fn in_order(shape: &CacheShape, restored: &Restored) -> Result<Vec<(usize, LogEntry)>> {
    let mut newest: BTreeMap<PageNo, usize> = BTreeMap::new();
    for (at, (entry, _)) in restored.entries.iter().enumerate() {
        if entry.page.0 >= shape.pages {
            return Err(Error::corrupt(format!(
                "entry {at} of the cache's log is of a page beyond the cache"
            )));
        }
        newest.insert(entry.page, at);
    }
    let mut order: Vec<usize> = newest.into_values().collect();
    order.sort_unstable();
    let entries = order.into_iter().map(|at| (at, restored.entries[at].0));
    Ok(entries.filter(|(_, entry)| entry.state != PageState::Free).collect())
}
