//! What an opening finds beside what the manifest in force counts on.

use crate::journal::{Area, AreaKind};
use crate::media::Media;
use std::collections::BTreeSet;
use vellum_base::{Error, Kind, Result};

/// No store comes to higher numbers, were it to make a table each nanosecond of a day: one that something has is
/// damage, or worse.
pub(crate) const NUMBERS_MAX: u64 = 1 << 46;

/// What nothing counts on.
#[derive(Default)]
pub(crate) struct Leftovers {
    tables: Vec<u64>,
    manifests: Vec<Area>,
    /// The newest first.
    logs: Vec<Area>,
    /// Of these the manifest in force knows that they were used.
    numbers_below: u64,
}

impl Leftovers {
    /// All but these tables, logs, and the manifest in force, which says that all numbers below `numbers_below` were
    /// used.
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

    /// Removes them. Where a log's number would be forgotten with it, `remember` has the manifest say first that it was
    /// used: NVRAM still has what was in it, and a log of that number would have it, too. The newest log goes first,
    /// each for good before the next: a log that is there counts on the one before it.
    pub(crate) fn remove(&self, media: &dyn Media, remember: impl FnOnce() -> Result<()>) -> Result<()> {
        self.manifests.iter().try_for_each(|area| media.remove_area(*area))?;
        self.tables.iter().try_for_each(|table| media.erase_table(*table))?;
        if self.logs.first().is_some_and(|log| log.number >= self.numbers_below) {
            match remember() {
                // Of a file that is gone nothing comes back.
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

/// The number that comes after all of these.
pub(crate) fn number_after(numbers: impl Iterator<Item = u64>) -> Result<u64> {
    match numbers.max().unwrap_or(0) {
        number if number <= NUMBERS_MAX => Ok(number + 1),
        number => Err(Error::corrupt(format!("something has the number {number}, and nothing can"))),
    }
}

/// Without CURRENT there is no store, or one whose making was cut short; anything more is damage.
pub(crate) fn no_current(areas: &[Area], tables: &[u64]) -> Result<()> {
    let manifests = areas.iter().filter(|area| area.kind == AreaKind::Manifest).count();
    if !tables.is_empty() || manifests > 1 || areas.len() > manifests {
        return Err(Error::corrupt("CURRENT is missing, though there are tables or logs"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_after_all_that_are_there_and_never_begin_anew() {
        assert_eq!(number_after([].into_iter()).unwrap(), 1);
        assert_eq!(number_after([3, 9, 4].into_iter()).unwrap(), 10);
        assert_eq!(number_after([NUMBERS_MAX].into_iter()).unwrap(), NUMBERS_MAX + 1);
        assert!(number_after([1, u64::MAX].into_iter()).is_err());
        assert!(number_after([NUMBERS_MAX + 1].into_iter()).is_err());
    }
}
