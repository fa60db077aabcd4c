//! What an array with a cache is asked for beside requests: to clean all, to rebuild, to scrub.

use super::cached::CachedArray;
use super::job::Jobs;
use super::turns::Turn;
use crate::array::Array;
use crate::give_up::{GivenUp, Held, Known};
use crate::rebuild::{Progress, Rebuilt};
use crate::scrub::{Repair, Scrubbed};
use vellum_base::{Error, Kind, Lba, Result};

impl CachedArray {
    /// Cleans the rows that are stale now; parity that is lacking what nobody knows is made anew. `go_on` hears of the
    /// rows that are left, and stops it by false. What fails keeps nothing else from being cleaned; the first error is
    /// returned.
    pub fn clean_all(&self, mut go_on: impl FnMut(u64) -> bool) -> Result<()> {
        let result = self.clean_rows(&mut go_on, |_| true);
        result.and(self.core.tell_whole_rows())
    }

    /// With a member out: what is flushed is to be there after a cut, too, which empties the cache. So nothing that is
    /// known is put off any more, and the members know. Rows that cannot be made whole stay stale.
    pub(super) fn flush_degraded(&self) -> Result<()> {
        let is_known = |row: &u64| !self.core.unknown.lock().contains(row);
        match self.clean_rows(&mut |_| true, is_known) {
            Err(error) if error.kind() == Kind::PowerLost => return Err(error),
            _ => self.core.flush()?,
        }
        self.core.tell_whole_rows()
    }

    /// Requests go on, and make rows stale meanwhile: those are not waited for.
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

    /// The same when parity of no row is put off any more ([`super::core::Core::put_nothing_off`]): what the policy has
    /// deltas of is cleaned first, also where a write is still on its way. False if `go_on` stopped it.
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

    /// Cleans all rows, then rebuilds members that were added, as [`Array::rebuild`] does. The cache has nothing of
    /// sectors that are lost, before they are zeros.
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

    /// Sectors of this row are to be given up; returns what the cache has of the row, and keeps everybody else away
    /// from it. Of the rest of the row it has nothing then, durably: what cannot be read now must not come back over
    /// zeros. Nobody knows what the parity of the row lacks. Nothing is put off meanwhile, or it would wait for itself.
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
        // An error is the array's, and whoever uses it next hears of it.
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

    /// Scrubs all rows, as [`Array::scrub`] does. Before offsets are repaired the cache lets go of them: what it has
    /// may be what is wrong, and would be the base of a delta that parity does not know.
    pub fn scrub(&self, repair: Repair, go_on: impl FnMut(Progress) -> bool) -> Result<Scrubbed> {
        let (array, of) = (&self.core.array, self.core.array.core().shape.rows);
        Scrubbed::of_rows(0..of, of, go_on, |row| {
            let mut found = array.scrub_one(row, Repair::None)?;
            if found.report.stale_rows > 0 && found.report.lost_sectors > 0 {
                // The cache may know what parity lacks, or have what cannot be read: it is asked for that before a
                // resync that fails drops it.
                let is_unknown = self.core.unknown.lock().contains(&row);
                if is_unknown || self.core.resync(row).is_err() {
                    self.put_back(row)?;
                }
                found = array.scrub_one(row, Repair::None)?;
            }
            let to_repair = found.to_repair(repair);
            if !to_repair.is_empty() {
                let _alone = self.clear_row(row, &to_repair)?;
                // A row that cannot be clean is as it was found.
                let repaired = array.scrub_one(row, repair)?;
                found = if repaired.report.stale_rows == 0 { repaired } else { found };
            }
            Ok(found.report)
        })
    }

    /// Writes what the cache has of a row to where that cannot be read; the row is made anew then.
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

    /// Drops these offsets of a row from the cache, durably, and cleans it. Others stay away from it until the turn
    /// ends.
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

/// Keeps the first error; returns one after which nothing more can be done.
fn keep_first(result: &mut Result<()>, error: Error, array: &Array) -> Result<()> {
    if error.kind() == Kind::PowerLost || array.core().check_writable().is_err() {
        return Err(error);
    }
    if result.is_ok() {
        *result = Err(error);
    }
    Ok(())
}
