//! Logs of a store that is repaired.

use super::Repair;
use crate::batch::check_payload;
use crate::journal::{Area, AreaKind, Ending, SEQ_STORED_MAX, of_another_store, salvage_records, store_of};
use crate::key::Stamp;
use crate::lsm::memtable::{Memtable, MemtableCursor};
use crate::lsm::merge::{Cursor, Stream};
use crate::lsm::recover::ManifestState;
use crate::lsm::replay::read_logs;
use crate::lsm::table::{Table, TableCursor};
use crate::repair::{known, missing};
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::{Kind, Result};

impl Repair<'_> {
    /// Finds the logs that another store wrote: those of a copied store that tables point into, or once did, and those
    /// that were moved here, perhaps the only copies. An error if a manifest is of another store, or a log that would
    /// be replayed, or if no log is of this store: then it may be CURRENT that was moved.
    pub(super) fn find_foreign(&mut self, state: Option<&ManifestState>) -> Result<()> {
        let Some(store) = self.store else { return Ok(()) };
        let kept: BTreeSet<u64> = state.iter().flat_map(|state| state.kept_logs()).collect();
        let mut own_logs = 0;
        for area in &self.areas {
            let bytes = known(self.media.read_area(*area))?.ok();
            let wrote = bytes.and_then(|bytes| store_of(*area, &bytes));
            let is_foreign = wrote.is_some_and(|wrote| wrote != store);
            let counts = state
                .is_some_and(|state| area.number >= state.floors.log_floor && !kept.contains(&area.number));
            match area.kind {
                AreaKind::Manifest if is_foreign => return Err(of_another_store(*area)),
                AreaKind::Log if is_foreign && counts => return Err(of_another_store(*area)),
                AreaKind::Log if is_foreign => drop(self.foreign.insert(area.number)),
                AreaKind::Log => own_logs += 1,
                AreaKind::Manifest => {}
            }
        }
        match self.foreign.first() {
            Some(log) if state.is_none() && own_logs == 0 => Err(of_another_store(Area::log(*log))),
            _ => Ok(()),
        }
    }

    /// Leaves the logs as they are, and returns true, if they can be read; else takes from them what can be.
    pub(super) fn keep_logs(&mut self, state: &ManifestState) -> Result<bool> {
        match read_logs(&**self.media, &self.areas, state, (self.store, Ending::Strict)) {
            Ok(_) => Ok(true),
            // What cannot be read now, or is of another format, may be whole: it is not given up.
            Err(error) if error.kind() != Kind::Corrupt => Err(error),
            Err(error) => {
                self.problem(error);
                self.report.logs_damaged += 1;
                let logs = self.areas.iter().filter(|area| area.kind == AreaKind::Log);
                let wanted = logs.map(|area| area.number).filter(|number| *number >= state.floors.log_floor);
                let kept: BTreeSet<u64> = state.kept_logs().collect();
                let wanted = wanted.filter(|number| !kept.contains(number));
                self.salvage_logs(wanted.collect(), &[])?;
                self.report.entries_lost += missing(&mut self.salvaged, state.floors.last_seq);
                Ok(false)
            }
        }
    }

    /// Takes every batch that checks out. Of two with the same number, that of the newer log counts: the other is of an
    /// earlier run, which ended there. Where no manifest says what was flushed, `tables` are in the order of their
    /// keys: an entry is left out if one of them has a newer version, which it would hide.
    pub(super) fn salvage_logs(&mut self, mut numbers: Vec<u64>, tables: &[Arc<Table>]) -> Result<()> {
        numbers.sort_unstable();
        let mut below = SEQ_STORED_MAX;
        for number in numbers.into_iter().rev() {
            let first = self.salvage_log(number, below, tables)?;
            below = first.map_or(below, |first| first.min(below));
        }
        Ok(())
    }

    /// Shows every batch of a log that checks out, with numbers below `below`: its number, and how many entries it has.
    /// Returns the first number that the log holds.
    pub(super) fn each_batch(
        &self,
        number: u64,
        below: u64,
        mut show: impl FnMut(&[u8], u64, u64),
    ) -> Result<Option<u64>> {
        let area = Area::log(number);
        let bytes = self.media.read_area(area)?;
        let records = salvage_records(area, self.store, &bytes)?;
        let first = records.iter().map(|(seq, _)| *seq).min();
        for (seq, payload) in records {
            let Ok(count) = check_payload(payload, |_| true) else { continue };
            if count > 0 && seq.checked_add(count).is_some_and(|next| next <= below) {
                show(payload, seq, count);
            }
        }
        Ok(first)
    }

    /// Batches with numbers below `below`, as tables. Returns the first number that the log holds.
    fn salvage_log(&mut self, number: u64, below: u64, tables: &[Arc<Table>]) -> Result<Option<u64>> {
        let (memtable, mut found) = (Arc::new(Memtable::default()), Vec::new());
        let take = |payload: &[u8], seq, count| {
            memtable.insert(payload, seq, None);
            found.push((seq, seq + count));
        };
        let taken = self.each_batch(number, below, take);
        let first = match taken {
            Ok(first) => first,
            Err(error) if error.kind() != Kind::Corrupt => return Err(error),
            Err(error) => {
                self.problem(error);
                self.report.logs_damaged += 1;
                return Ok(None);
            }
        };
        let last_seq = found.iter().map(|(_, next)| next - 1).max().unwrap_or(0);
        let batches = found.len() as u64;
        self.salvaged.extend(found);
        self.last_seq = self.last_seq.max(last_seq);
        self.report.batches += batches;
        if batches == 0 {
            return Ok(first);
        }
        let area = Area::log(number);
        self.problem(format!("{area}: {batches} batches were taken from it"));
        let mut newest: Vec<TableCursor> = tables.iter().cloned().map(TableCursor::new).collect();
        self.add_to_level0(|add| {
            let mut entry = MemtableCursor::new(memtable);
            entry.first()?;
            while entry.is_valid() {
                let at = tables.partition_point(|table| table.meta.largest[..] < *entry.key());
                if !newest.get_mut(at).map_or(Ok(false), |table| has_newer(table, &entry))? {
                    add(entry.key(), entry.stamp(), entry.value())?;
                }
                entry.next()?;
            }
            Ok(())
        })?;
        Ok(first)
    }
}

/// True if a table has a newer version of the entry.
fn has_newer(table: &mut TableCursor, entry: &MemtableCursor) -> Result<bool> {
    table.seek(entry.key(), Stamp(u64::MAX))?;
    Ok(table.is_valid() && table.key() == entry.key() && table.stamp() > entry.stamp())
}
