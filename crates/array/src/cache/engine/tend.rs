//! Maintenance of an array with a cache: cleaning all rows, rebuild, scrub.

use super::cached::CachedArray;
use super::job::Jobs;
use super::turns::Turn;
use crate::array::Array;
use crate::give_up::{GivenUp, Held, Known};
use crate::rebuild::{Progress, Rebuilt};
use crate::scrub::{Repair, Scrubbed};
use vellum_base::{Error, Kind, Lba, Result};

impl CachedArray {
    /// Cleans the rows that are stale now; unknown ones are resynchronised. `go_on` gets the number of rows left, and
    /// stops it by returning false. An error does not keep other rows from being cleaned; the first one is returned.
    pub fn clean_all(&self, mut go_on: impl FnMut(u64) -> bool) -> Result<()> {
        let result = self.clean_rows(&mut go_on, |_| true);
        result.and(self.core.tell_whole_rows())
    }

    /// A flush with a member out: flushed data must survive a power loss, which empties the cache. So all known rows
    /// are cleaned, and their marks on the members cleared. Rows that cannot be cleaned stay stale.
    pub(super) fn flush_degraded(&self) -> Result<()> {
        let is_known = |row: &u64| !self.core.unknown.lock().contains(row);
        match self.clean_rows(&mut |_| true, is_known) {
            Err(error) if error.kind() == Kind::PowerLost => return Err(error),
            _ => self.core.flush()?,
        }
        self.core.tell_whole_rows()
    }

    /// Cleans the rows that are stale at the beginning. Rows that become stale by requests meanwhile are not waited
    /// for.
    fn clean_rows(&self, go_on: &mut dyn FnMut(u64) -> bool, is_wanted: impl Fn(&u64) -> bool) -> Result<()> {
        let (array, mut result) = (&self.core.array, Ok(()));
        if array.core().stale.count() == 0 {
            return result;
        }
        let rows = array.stale_rows(0, usize::MAX).into_iter().filter(is_wanted);
        for row in rows.filter(|row| array.is_stale(*row)) {
            if !go_on(array.core().stale.count()) {
                break;
            }
            if let Err(error) = self.core.resync(row) {
                keep_first(&mut result, error, array)?;
            }
            self.core.tell_many_whole_rows()?;
        }
        result
    }

    /// The same while no parity is deferred ([`super::core::Core::put_nothing_off`]): rows of which the policy has
    /// deltas are cleaned first, including those with writes still in flight. False if `go_on` stopped it.
    pub(super) fn clean_for_good(&self, mut go_on: impl FnMut(u64) -> bool) -> Result<bool> {
        let (array, mut result, mut goes_on) = (&self.core.array, Ok(()), true);
        let mut go_on = |left| {
            goes_on &= go_on(left);
            goes_on
        };
        while go_on(array.core().stale.count()) {
            match self.core.clean_some() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => keep_first(&mut result, error, array)?,
            }
        }
        self.core.await_writes();
        let result = result.and(self.clean_all(&mut go_on));
        if goes_on { result.map(|()| true) } else { Ok(false) }
    }

    /// Cleans all rows, then rebuilds added members, as [`Array::rebuild`] does. Sectors that are lost are dropped from
    /// the cache before they become zeros.
    pub fn rebuild(&self, give_up: bool, go_on: impl FnMut(Progress) -> bool) -> Result<Rebuilt> {
        let _nothing = self.core.put_nothing_off();
        match self.clean_for_good(|_| true) {
            Err(error) if !give_up || error.kind() == Kind::PowerLost => return Err(error),
            _ => {}
        }
        let mut given = GivenUp::default();
        let mut let_go = |row| self.let_go(row);
        let ended = self.core.array.rebuild_to_end(give_up.then_some(&mut let_go), go_on, &mut given);
        Rebuilt::of(ended, given.lost)
    }

    /// Called before sectors of a row are given up: returns what the cache has of the row, and keeps others away from
    /// it. The rest of the row is dropped from the cache, durably, so that content which is unreadable now cannot come
    /// back over zeros. The row becomes unknown. No parity may be deferred meanwhile, as that would wait for itself.
    fn let_go(&self, row: u64) -> Result<(Known, Held)> {
        let row_sectors = self.core.array.core().shape.row_sectors();
        let of_row = row * row_sectors..(row + 1) * row_sectors;
        let _room = self.core.room(self.core.row_bytes())?;
        let mut jobs = Jobs::default();
        let (found, turn) = {
            let mut brain = self.core.brain.lock();
            let find = |lba| (lba, brain.find(&self.core.turns, Lba(lba)));
            let found: Vec<_> = of_row.clone().map(find).collect();
            (found, self.core.take_row(&mut brain, &mut jobs, row, std::iter::empty()))
        };
        let known = found.into_iter().filter_map(|(lba, (source, turn))| {
            turn.wait();
            Some((lba, self.core.content(&source)?))
        });
        let known: Known = known.collect();
        // Errors are ignored: the array reports its own to the next that uses it.
        let _ = self.core.carry_all(jobs.now, &[]);
        turn.wait();
        let unknown = of_row.filter(|lba| !known.contains_key(lba)).map(Lba);
        let _ = self.core.ask(|policy, steps| unknown.for_each(|lba| policy.forget(lba, steps)));
        if self.core.ssd().is_some() {
            self.core.lose_track(row);
        }
        self.core.persist_all()?;
        Ok((known, Box::new(turn)))
    }

    /// Scrubs all rows, as [`Array::scrub`] does. Offsets to be repaired are first dropped from the cache: its content
    /// may be what is wrong, and would be the base of deltas that do not match parity.
    pub fn scrub(&self, repair: Repair, go_on: impl FnMut(Progress) -> bool) -> Result<Scrubbed> {
        let (array, of) = (&self.core.array, self.core.array.core().shape.rows);
        Scrubbed::of_rows(0..of, of, go_on, |row| {
            let mut found = array.scrub_one(row, Repair::None)?;
            if found.report.stale_rows > 0 && found.report.lost_sectors > 0 {
                // The cache may have the deltas that parity lacks, or the unreadable data: this is used before a failed
                // resynchronisation drops it.
                let is_unknown = self.core.unknown.lock().contains(&row);
                if is_unknown || self.core.resync(row).is_err() {
                    self.put_back(row)?;
                }
                found = array.scrub_one(row, Repair::None)?;
            }
            let to_repair = found.to_repair(repair);
            if !to_repair.is_empty() {
                let _alone = self.clear_row(row, &to_repair)?;
                // A row that could not be cleaned is reported as found before.
                let repaired = array.scrub_one(row, repair)?;
                found = if repaired.report.stale_rows == 0 { repaired } else { found };
            }
            Ok(found.report)
        })
    }

    /// Writes the cache's content of a row to where the members' is unreadable; then the row is resynchronised.
    fn put_back(&self, row: u64) -> Result<()> {
        let _nothing = self.core.put_nothing_off();
        let (known, held) = self.let_go(row)?;
        let core = self.core.array.core();
        core.begin_change()?;
        let locked = core.lock_row(row);
        core.put_back(row, &known)?;
        drop((locked, held));
        let _ = self.core.resync(row);
        Ok(())
    }

    /// Drops these offsets of a row from the cache, durably, and cleans the row. Others stay away from it until the
    /// turn is dropped.
    fn clear_row(&self, row: u64, offsets: &[u32]) -> Result<Turn> {
        let shape = self.core.array.core().shape;
        let columns = (0..shape.data_columns() as u64).map(|column| column * u64::from(shape.chunk_sectors));
        let first = row * shape.row_sectors();
        let sectors =
            columns.flat_map(|column| offsets.iter().map(move |at| first + column + u64::from(*at)));
        let _room = self.core.room(self.core.row_bytes())?;
        self.core.clear_row(row, sectors)
    }
}

/// Keeps the first error; returns an error after which nothing more can be done.
fn keep_first(result: &mut Result<()>, error: Error, array: &Array) -> Result<()> {
    if error.kind() == Kind::PowerLost || array.core().check_writable().is_err() {
        return Err(error);
    }
    if result.is_ok() {
        *result = Err(error);
    }
    Ok(())
}
