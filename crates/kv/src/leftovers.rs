//! Tables and areas that an opening finds but the current manifest does not need.

use crate::journal::{Area, AreaKind};
use crate::media::{Areas, Directory, Media, Tables, ZoneMedia};
use crate::reason;
use std::collections::BTreeSet;
use vellum_base::{Error, Kind, Result};

/// No store reaches higher numbers, even creating a table each nanosecond for most of a day. A higher one is damage, or
/// hostile.
pub(crate) const TABLE_NUMBER_MAX: u64 = 1 << 46;

/// Tables and areas that nothing needs.
#[derive(Default)]
pub(crate) struct Leftovers {
    tables: Vec<u64>,
    manifests: Vec<Area>,
    /// The newest first.
    logs: Vec<Area>,
    /// All lower numbers are recorded as used in the current manifest.
    numbers_below: u64,
}

impl Leftovers {
    /// Everything except these tables, these logs, and the current manifest, which records that all numbers below
    /// `numbers_below` were used.
    pub(crate) fn but(
        (mut tables, areas): (Vec<u64>, Vec<Area>),
        wanted: &BTreeSet<u64>,
        kept_logs: &BTreeSet<u64>,
        (manifest, numbers_below): (u64, u64),
    ) -> Leftovers {
        let (mut logs, mut manifests): (Vec<Area>, Vec<Area>) =
            areas.into_iter().partition(|area| area.kind == AreaKind::Log);
        tables.retain(|table| !wanted.contains(table));
        logs.retain(|log| !kept_logs.contains(&log.number));
        logs.sort_by_key(|log| std::cmp::Reverse(log.number));
        manifests.retain(|area| area.number != manifest);
        Leftovers { tables, manifests, logs, numbers_below }
    }

    /// Removes them. If the number of a log would be forgotten with it, `remember` first makes the manifest record it
    /// as used: NVRAM still has the bytes of the log, and a new one of the same number would appear to contain them.
    /// The newest log is removed first, each durably before the next, as a log needs the one before it.
    pub(crate) fn remove(&self, media: &dyn Media, remember: impl FnOnce() -> Result<()>) -> Result<()> {
        self.manifests.iter().try_for_each(|area| media.remove_area(*area))?;
        self.tables.iter().try_for_each(|table| media.erase_table(*table))?;
        if self.logs.first().is_some_and(|log| log.number >= self.numbers_below) {
            match remember() {
                // Where areas are files, a removed one never reappears.
                Err(error) if error.kind() == Kind::NoSpace && media.shape().areas_are_files => {}
                other => other?,
            }
        }
        for log in &self.logs {
            media.remove_area(*log)?;
            media.sync_removals()?;
        }
        Ok(())
    }
}

/// The first number above all of these.
pub(crate) fn number_after(numbers: impl Iterator<Item = u64>) -> Result<u64> {
    match numbers.max().unwrap_or(0) {
        number if number <= TABLE_NUMBER_MAX => Ok(number + 1),
        number => Err(Error::corrupt(format!("something has the number {number}, and nothing can"))),
    }
}

/// Without CURRENT there is no store, or one whose creation was interrupted. Anything beyond that is damage.
pub(crate) fn no_current(areas: &[Area], tables: &[u64]) -> Result<()> {
    let manifests = areas.iter().filter(|area| area.kind == AreaKind::Manifest).count();
    match tables.is_empty() && manifests <= 1 && areas.len() == manifests {
        true => Ok(()),
        false => Err(current_missing()),
    }
}

/// An error, because of [`reason::CURRENT_MISSING`], if `directory` has what is left of a store that lost the file
/// CURRENT. A manifest alone is of a store whose creation was interrupted, unless it names tables on a device.
pub fn check_current(directory: &Directory) -> Result<()> {
    if directory.current()?.is_some() {
        return Ok(());
    }
    let areas = directory.areas()?;
    no_current(&areas, &directory.tables()?)?;
    let is_on_device = || ZoneMedia::home_of(directory).is_ok_and(|home| home.is_some());
    match !areas.is_empty() && is_on_device() && !ZoneMedia::awaits_store(directory)? {
        true => Err(current_missing()),
        false => Ok(()),
    }
}

fn current_missing() -> Error {
    Error::corrupt("CURRENT is missing, though there are tables or logs").because(reason::CURRENT_MISSING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_after_all_that_are_there_and_never_begin_anew() {
        assert_eq!(number_after([].into_iter()).unwrap(), 1);
        assert_eq!(number_after([3, 9, 4].into_iter()).unwrap(), 10);
        assert_eq!(number_after([TABLE_NUMBER_MAX].into_iter()).unwrap(), TABLE_NUMBER_MAX + 1);
        assert!(number_after([1, u64::MAX].into_iter()).is_err());
        assert!(number_after([TABLE_NUMBER_MAX + 1].into_iter()).is_err());
    }
}
