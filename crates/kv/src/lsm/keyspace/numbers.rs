//! Numbers of keyspaces: which are free, and how those of dropped keyspaces become free.

use super::set::{has_key_of, spans};
use crate::key::KEYSPACES_MAX;
use crate::lsm::compaction::Claim;
use crate::lsm::core::{Core, State};
use crate::lsm::iter::Range;
use crate::lsm::version::Version;
use crate::lsm::writer::Writer;
use crate::waiting::Waiting;
use vellum_base::Result;

/// Numbers that are free provided that no table has keys of them. `logs_are_empty` says that everything in the logs is
/// in tables, too.
fn numbers_without_logs(version: &Version, state: &State, logs_are_empty: bool) -> Vec<u8> {
    let spaces = &version.keyspaces;
    let in_logs = |log: u64| {
        let is_needed = state.floors.log_floor <= log && !logs_are_empty;
        is_needed || version.logs().any(|kept| kept.number <= log)
    };
    let is_merged =
        |number: u8| state.running.iter().any(|claim| spans(number, &claim.smallest, &claim.largest));
    let may_be = |number: &u8| match spaces.dead.get(number) {
        Some(log) => !in_logs(*log) && !is_merged(*number),
        // A repair may have found keys of a keyspace that nothing names.
        None => !spaces.is_live(*number) && !is_merged(*number),
    };
    (1..=KEYSPACES_MAX as u8).filter(may_be).collect()
}

/// True if any table has a key of a keyspace.
fn is_in_tables(version: &Version, number: u8) -> Result<bool> {
    let tables = version.levels.iter().flatten();
    for table in tables.filter(|table| spans(number, &table.meta.smallest, &table.meta.largest)) {
        if has_key_of(table, number)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The lowest of `numbers` of which no table has keys. Numbers that are in no table's key range are preferred: tables
/// need not be read for them.
fn number_in_no_table(version: &Version, numbers: &[u8]) -> Result<Option<u8>> {
    let is_beside = |number: &u8| {
        let mut tables = version.levels.iter().flatten();
        !tables.any(|table| spans(*number, &table.meta.smallest, &table.meta.largest))
    };
    if let Some(number) = numbers.iter().copied().find(is_beside) {
        return Ok(Some(number));
    }
    for number in numbers {
        if !is_in_tables(version, *number)? {
            return Ok(Some(*number));
        }
    }
    Ok(None)
}

impl Core {
    /// A free number, and the running merges that may still write keys of numbers that are not live.
    pub(super) fn free_number(&self, writer: &Writer) -> Result<(Option<u8>, Vec<Claim>)> {
        let state = self.state.lock();
        let version = self.view.load().version.clone();
        let logs_are_empty = writer.memtable_bytes == 0 && state.frozen.is_empty();
        let numbers = numbers_without_logs(&version, &state, logs_are_empty);
        let mut running = state.running.clone();
        drop(state);
        let not_live = || (1..=KEYSPACES_MAX as u8).filter(|number| !version.keyspaces.is_live(*number));
        running.retain(|claim| not_live().any(|number| spans(number, &claim.smallest, &claim.largest)));
        Ok((number_in_no_table(&version, &numbers)?, running))
    }

    /// True if a number is free, once running merges that stand in the way are done.
    fn is_a_number_free(&self) -> Result<bool> {
        loop {
            let (number, merges) = self.free_number(&self.writer.lock())?;
            if number.is_some() || merges.is_empty() {
                return Ok(number.is_some());
            }
            self.wait_until(|state| !merges.iter().all(|claim| state.running.contains(claim)))?;
        }
    }

    /// Frees the number of a dropped keyspace: by flushing the logs that hold its entries, and if that is not enough,
    /// by merging its entries out of tables. False if no number could be freed.
    pub(super) fn free_a_number(&self) -> Result<bool> {
        self.flush()?;
        if !self.is_a_number_free()? {
            // Tables may have left values in the logs.
            self.empty_level(&Range::everything(), 0)?;
        }
        let dead: Vec<u8> = self.view.load().version.keyspaces.dead().collect();
        for number in dead {
            if self.is_a_number_free()? {
                return Ok(true);
            }
            self.compact(&Range { lower: vec![number], upper: vec![number + 1] })?;
        }
        self.is_a_number_free()
    }
}
