//! What the repairs of both engines share: which manifest they start from, how a new one is put in force, and their
//! report.
//!
//! Nothing is erased before a manifest that does not need it is durable.

use crate::journal::{Area, AreaKind, Edit, Previous, Wal};
use crate::manifest::{Current, Manifest};
use crate::media::{Media, NAMELESS};
use crate::reason;
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::{Error, Kind, Result};

/// Report of [`crate::repair()`] or [`crate::log::repair()`]: what was done, and what is lost. For a log store, tables
/// are its segments, and entries their records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Tables without damage, which are kept.
    pub tables_kept: usize,
    /// Tables that were damaged, or not named by a manifest, and were rewritten.
    pub tables_rewritten: usize,
    /// Of these, tables that could be read completely but held content of another store or of another time.
    pub tables_doubtful: usize,
    /// Tables of which nothing could be read.
    pub tables_lost: usize,
    /// Entries known to be lost, as far as they can be counted: in damaged tables, and in gaps of damaged logs that
    /// newer batches follow.
    pub entries_lost: u64,
    /// Damaged logs: entries at their ends may be lost without being counted.
    pub logs_damaged: usize,
    /// Batches recovered from damaged logs.
    pub batches: u64,
    /// Keyspaces whose names are lost: each has a new one now, see the messages.
    pub names_lost: usize,
    /// True if no manifest could be read: entries that were deleted or overwritten may have come back.
    pub manifest_lost: bool,
    /// Messages about everything that was found. Empty if there was nothing to repair; nothing was written then.
    pub problems: Vec<String>,
}

/// Separates damage from other failures: the outer error is one that is not [`Kind::Corrupt`], such as a read error or
/// an unknown format.
pub(crate) fn known<T>(read: Result<T>) -> Result<Result<T>> {
    match read {
        Err(error) if error.kind() != Kind::Corrupt => Err(error),
        other => Ok(other),
    }
}

/// CURRENT, or what is wrong with it, and the number of the manifest in force. If CURRENT is damaged, that is the
/// newest manifest that can be `read` (which excludes one left incomplete by an interrupted repair), or else the newest
/// of all. If CURRENT names one that cannot be read, and a newer one can, CURRENT is taken to be out of date: every
/// manifest begins with everything that the one before it said.
pub(crate) fn manifest_in_force(
    media: &dyn Media,
    areas: &[Area],
    read: impl Fn(u64) -> Result<()>,
) -> Result<(Result<Current>, Option<u64>)> {
    let numbers: BTreeSet<u64> = manifests(areas).map(|area| area.number).collect();
    let current = match known(Current::of_store(media))? {
        Ok(current) => current,
        Err(error) => {
            let number = newest_that_reads(&numbers, &read)?.or(numbers.last().copied());
            return Ok((Err(error), number));
        }
    };
    let named = current.manifest;
    let newer = match known(read(named))? {
        Ok(()) => None,
        Err(_) => newest_that_reads(&numbers, &read)?.filter(|newer| *newer > named),
    };
    Ok(match newer {
        None => (Ok(current), Some(named)),
        Some(newer) => {
            let what = format!("CURRENT names manifest {named}, which cannot be read; manifest {newer} can");
            (Err(Error::corrupt(what)), Some(newer))
        }
    })
}

fn newest_that_reads(numbers: &BTreeSet<u64>, read: impl Fn(u64) -> Result<()>) -> Result<Option<u64>> {
    for number in numbers.iter().rev() {
        if known(read(*number))?.is_ok() {
            return Ok(Some(*number));
        }
    }
    Ok(None)
}

fn manifests(areas: &[Area]) -> impl Iterator<Item = Area> {
    areas.iter().copied().filter(|area| area.kind == AreaKind::Manifest)
}

/// Tables that were replaced for good: those known to be `gone`, and all sources of a table if any one of its sources
/// is absent: sources are erased only after a manifest that names the new table is durable.
pub(crate) fn replaced_for_good(
    gone: BTreeSet<u64>,
    made_of: &[&[u64]],
    is_there: impl Fn(&u64) -> bool,
) -> BTreeSet<u64> {
    let mut replaced = gone;
    loop {
        let before = replaced.len();
        for sources in made_of {
            if sources.iter().any(|number| !is_there(number) || replaced.contains(number)) {
                replaced.extend(*sources);
            }
        }
        if replaced.len() == before {
            return replaced;
        }
    }
}

/// What a manifest relies on.
pub(crate) struct Named {
    pub tables: BTreeSet<u64>,
    /// Of these, tables with values in logs that are gone: a table and its logs may be removed in any order.
    pub spoiled: BTreeSet<u64>,
    /// A log that has to be replayed is gone.
    pub lacks_log: bool,
    /// Everything created after its last edit has this number or a higher one.
    pub next_number: u64,
}

/// What a manifest names but is absent.
pub(crate) struct Gone<'a> {
    named: &'a Named,
    present: &'a BTreeSet<u64>,
}

impl Gone<'_> {
    /// True if one of the tables that `heir` was made of is gone, though the manifest counts on it, or is of a time
    /// that it does not tell of: nothing goes before an edit is durable.
    pub(crate) fn has_any(&self, made_of: &[u64], heir: u64) -> bool {
        let is_listed = |number| self.named.tables.contains(number) || heir >= self.named.next_number;
        let is_gone = |number| !self.present.contains(number) || self.named.spoiled.contains(number);
        made_of.iter().any(|number| is_gone(number) && is_listed(number))
    }
}

impl Named {
    /// False if the manifest lost its last edits: something that it counts on is gone, and a table that it does not
    /// name `is_heir`. What else is there is left over. An error if none of its tables is there, whether others are or
    /// not.
    pub(crate) fn is_current(
        &self,
        tables: &[u64],
        is_heir: impl Fn(u64, &Gone<'_>) -> Result<bool>,
    ) -> Result<bool> {
        // What may be any table may be one of those that are missed.
        let present: BTreeSet<u64> = tables.iter().copied().filter(|number| *number != NAMELESS).collect();
        let gone = Gone { named: self, present: &present };
        // Where all that it counts on is there, what it does not name is left over, whoever made it.
        if self.lacks_log || !self.spoiled.is_empty() || !self.tables.is_subset(&present) {
            for number in present.difference(&self.tables) {
                if is_heir(*number, &gone)? {
                    return Ok(false);
                }
            }
        }
        let may_be_there = tables.contains(&NAMELESS) && present.is_empty();
        if self.tables.is_empty() || may_be_there || !self.tables.is_disjoint(&present) {
            return Ok(true);
        }
        let (why, reason) = match present.is_empty() {
            true => {
                let why = "they may be on a device (the file ZONES says on which), or in another directory";
                (why, Some(reason::DEVICE_UNKNOWN))
            }
            false => ("but others are: it may be of another store", None),
        };
        let what = format!(
            "none of the tables that the manifest names is there, {why}; put back what belongs to it, or move manifest \
             and CURRENT away"
        );
        Err(Error::new(Kind::Unsupported, what).because(reason))
    }
}

/// Erases what a repair that ends without a new manifest has written: all tables but those that were there `before`.
/// What cannot be erased now is left out when the repair is begun again.
pub(crate) fn give_up(media: &dyn Media, before: &[u64]) {
    let written = media.tables().unwrap_or_default().into_iter().filter(|table| !before.contains(table));
    written.for_each(|table| drop(media.erase_table(table)));
}

/// Sequence numbers between batches (from, below), and from the last of them to `last`, that none of them has: they
/// follow one another.
pub(crate) fn missing(batches: &mut [(u64, u64)], last: u64) -> u64 {
    batches.sort_unstable();
    let Some((mut next, _)) = batches.first().copied() else { return 0 };
    let mut missing = 0;
    for (from, below) in batches {
        missing += from.saturating_sub(next);
        next = next.max(*below);
    }
    missing + last.saturating_add(1).saturating_sub(next)
}

/// A store that is to come in force.
pub(crate) struct Renewed<'a> {
    pub media: &'a Arc<dyn Media>,
    /// All there are.
    pub areas: &'a [Area],
    /// The tables that were there before anything was written.
    pub before: &'a [u64],
    /// The number of the manifest that counts until then.
    pub manifest: Option<u64>,
    /// The number of the store.
    pub store: u64,
    pub comparator: &'static str,
    /// What it needs.
    pub tables: BTreeSet<u64>,
    pub logs: BTreeSet<u64>,
    /// The other logs are in order, and stay, too.
    pub logs_stay: bool,
}

impl Renewed<'_> {
    /// Puts its manifest in force, then erases what it does not need. Returns what could not be erased.
    pub(crate) fn install(&self, mut whole: Edit, number: impl Fn() -> u64) -> Result<Vec<String>> {
        // There may be room for two manifests only; the newest stays until there is a new one.
        let is_newest = |area: &Area| Some(area.number) == self.manifest;
        let mut older = manifests(self.areas).filter(|area| !is_newest(area));
        let removed = older.try_for_each(|old| self.media.remove_area(old));
        removed.inspect_err(|_| give_up(&**self.media, self.before))?;
        let first_log = (!self.logs_stay).then(&number);
        whole.log_floor = first_log.or(whole.log_floor);
        let last_seq = whole.last_seq.unwrap_or(0);
        let mut manifest = Manifest::new(self.media.clone(), self.store, self.comparator, None);
        manifest.append(&Edit::default(), || whole, &number).inspect_err(|error| {
            if error.kind() == Kind::NoSpace {
                give_up(&**self.media, self.before); // The manifest before it is in force.
            }
        })?;
        manifests(self.areas).filter(is_newest).try_for_each(|area| self.media.remove_area(area))?;
        if let Some(first_log) = first_log {
            self.remove_logs()?;
            // Where this is cut short before it, the log is missing, and is repaired.
            let mut wal = Wal::new(self.store, Previous::default(), None);
            wal.begin(&**self.media, first_log, last_seq + 1)?;
        }
        self.erase_tables()
    }

    fn remove_logs(&self) -> Result<()> {
        let is_gone = |area: &&Area| area.kind == AreaKind::Log && !self.logs.contains(&area.number);
        for log in self.areas.iter().rev().filter(is_gone) {
            self.media.remove_area(*log)?;
            self.media.sync_removals()?;
        }
        Ok(())
    }

    fn erase_tables(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for table in self.media.tables()?.into_iter().filter(|table| !self.tables.contains(table)) {
            if let Err(error) = self.media.erase_table(table) {
                left.push(format!("table {table}, which is not needed, cannot be erased: {error}"));
            }
        }
        Ok(left)
    }
}
