//! The state of all superblocks: free, in use, being erased.
//!
//! 1. Each superblock is in exactly one of these states: free; taken from the free ones; being erased; set aside
//!    because erasing it failed; in the book (used by tables, or being written); remains that the store has not erased
//!    yet; useless, as it is less than half as wide as the widest one at opening, so that a table might have no room
//!    for the largest values.
//! 2. A superblock that is being erased becomes free, or is set aside, without further action.
//! 3. Tables share only superblocks that are nearly as wide as the widest. While they do so, or will, one free
//!    superblock of that width is kept for collection.
//! 4. [`Pool::free`] decreases by one with each new table, and otherwise only if something fails.

mod sharing;
#[cfg(test)]
mod tests;

pub use sharing::Relinking;
pub(super) use sharing::{Emitted, Offered};

use super::book::Book;
use super::dies::{data_units, fill_units, good_dies, wear, width};
use super::layout::TableHandle;
use super::queue::{Op, Outcome, Submitter};
use super::rebuild::Rebuilt;
use super::stripe::Supply;
use super::superblock::Home;
use super::survey::survey;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering::Relaxed;
use vellum_base::sync::{Condvar, Mutex};
use vellum_base::{BlockState, Env, Error, Flash, FlashError, IoClass, Kind, Result};

/// Erases are urgent while fewer than one in this many superblocks is free (FlashKV, section 3.5).
const SCARCE_BELOW: usize = 5;
/// Free superblocks that are few.
const FEW: usize = 8;
/// A superblock that tables share may lack one in this many of the dies of the widest: then the live units of one that
/// is collected fit any other.
const MISSING_MAX: usize = 16;

/// See the module.
pub(super) struct Pool {
    flash: Arc<dyn Flash>,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    /// Keyed by (wear, index), with the width in dies; the least worn is used next.
    free: BTreeMap<(u64, u32), usize>,
    /// Taken from the free ones, not in the book yet.
    taken: BTreeSet<u32>,
    /// With the width of each.
    erasing: BTreeMap<u32, usize>,
    /// Of these, those whose erase was not submitted yet.
    to_erase: Vec<u32>,
    /// Not erased because the flash failed; their contents are unknown until it is opened again.
    set_aside: BTreeSet<u32>,
    book: Book,
    /// Least width of a superblock that tables may share.
    width_min: usize,
    /// Least width of one that is used at all.
    width_least: usize,
    /// Superblocks with unreadable or unattributed contents, by table number.
    remains: BTreeMap<u64, Vec<u32>>,
    /// The highest table number found at opening.
    highest: u64,
    /// Relinking is on: tables may share superblocks.
    relinks: bool,
    relinking: Relinking,
    last_merge: Emitted,
    /// Collection has taken the superblock that is kept for it.
    is_collecting: bool,
    /// Why an erase failed; nothing becomes free any more.
    lost: Option<Error>,
}

impl State {
    /// Free superblocks that only collection may have: without one it could not begin.
    fn reserve(&self) -> usize {
        ((self.relinks || self.book.is_shared()) && !self.is_collecting) as usize
    }

    /// Number of superblocks that are free or being erased.
    fn erased(&self) -> usize {
        self.free.len() + self.erasing.len()
    }

    /// Their widths.
    fn widths(&self) -> impl Iterator<Item = usize> {
        self.free.values().chain(self.erasing.values()).copied()
    }

    /// Adds a free superblock, unless too many of its blocks have become bad.
    fn add_free(&mut self, wear: u64, index: u32, width: usize) {
        if width >= self.width_least {
            self.free.insert((wear, index), width);
        }
    }

    /// Takes a free superblock of at least `width_min` dies; `None` if there is none now.
    fn take(&mut self, supply: Supply, width_min: usize) -> Option<u32> {
        // Collection gets the most worn one, as what it moves is long-lived.
        let least = match supply {
            Supply::Collection => self.width_min.max(width_min),
            Supply::Tables => self.width_min,
        };
        let kept = self.free.iter().rfind(|(_, width)| **width >= least).map(|(key, _)| *key);
        let key = match supply {
            Supply::Collection => kept?,
            Supply::Tables => {
                let kept = kept.filter(|_| self.reserve() > 0);
                let wide =
                    self.free.iter().filter(|(key, width)| **width >= width_min && Some(**key) != kept);
                // The least worn one; among the last the narrowest, so that what is left has room for any table.
                let is_few = self.free.len() <= FEW;
                wide.min_by_key(|(key, width)| (is_few.then_some(**width), **key)).map(|(key, _)| *key)?
            }
        };
        self.free.remove(&key);
        self.taken.insert(key.1);
        self.is_collecting |= supply == Supply::Collection;
        Some(key.1)
    }
}

impl Pool {
    /// Looks at the first and last page of every erase block.
    pub(super) fn open(flash: Arc<dyn Flash>, env: &Arc<dyn Env>) -> Result<Pool> {
        let indices = 0..flash.geometry().blocks_per_die;
        let widest = indices.map(|index| width(&*flash, index)).max().unwrap_or(0);
        // At least 1, so that without good blocks nothing is wide enough.
        let (width_min, width_least) = ((widest - widest / MISSING_MAX).max(1), widest.div_ceil(2).max(1));
        let Rebuilt { book, remains, highest, unused, .. } = survey(&flash, env, width_min)?;
        let free = unused.into_iter().map(|index| ((wear(&*flash, index), index), width(&*flash, index)));
        let free = free.filter(|(_, width)| *width >= width_least).collect();
        let state = State { free, book, width_min, width_least, remains, highest, ..State::default() };
        Ok(Pool { flash, state: Mutex::new(state), freed: Condvar::new() })
    }

    /// Number of superblocks that tables can get: free, being erased, or to be freed by collection.
    pub(super) fn free(&self) -> usize {
        let mut state = self.state.lock();
        let won = if self.can_collect(&mut state) { state.book.won() as usize } else { 0 };
        (state.erased() + won).saturating_sub(state.reserve())
    }

    /// True if collection has a superblock to begin with, or will. If failed blocks have left none that is wide enough,
    /// the required width is lowered to the widest.
    fn can_collect(&self, state: &mut State) -> bool {
        let is_there = state.is_collecting || state.widths().any(|width| width >= state.width_min);
        if is_there || state.book.is_winning() {
            return true;
        }
        let Some(widest) = state.widths().max() else { return false };
        state.width_min = widest;
        let room = data_units(&*self.flash, widest);
        state.book.set_shared_room(room, fill_units(room, self.flash.geometry().page_bytes));
        true
    }

    /// True while erases are urgent.
    pub(super) fn is_scarce(&self) -> bool {
        self.state.lock().free.len() * SCARCE_BELOW < self.flash.geometry().blocks_per_die as usize
    }

    pub(super) fn table(&self, table: u64) -> Option<Arc<TableHandle>> {
        self.state.lock().book.table(table).cloned()
    }

    /// All tables of which there is any trace.
    pub(super) fn tables(&self) -> Vec<u64> {
        let state = self.state.lock();
        let all: BTreeSet<u64> = state.book.tables().chain(state.remains.keys().copied()).collect();
        all.into_iter().collect()
    }

    /// The highest number of a table of which anything was found when the flash was opened.
    pub(super) fn highest(&self) -> u64 {
        self.state.lock().highest
    }

    /// Changes the book, or looks into it.
    pub(super) fn with_book<T>(&self, change: impl FnOnce(&mut Book) -> T) -> T {
        self.with_state(|state| change(&mut state.book))
    }

    fn with_state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let done = change(&mut state);
        self.set_erasing(&mut state, Vec::new());
        done
    }

    /// Forgets a table.
    pub(super) fn forget(&self, table: u64) {
        let mut state = self.state.lock();
        let remains = state.remains.remove(&table).unwrap_or_default();
        state.book.forget(table);
        self.set_erasing(&mut state, remains);
    }

    /// Ends a collection by a last `change` of the book; from now on a superblock is kept for the next one again.
    pub(super) fn end_collection<T>(&self, change: impl FnOnce(&mut Book) -> T) -> T {
        self.with_state(|state| {
            state.is_collecting = false;
            change(&mut state.book)
        })
    }

    /// True if a table can be begun at once, on `width_min` dies or more.
    pub(super) fn has_free(&self, width_min: usize) -> bool {
        let state = self.state.lock();
        state.widths().filter(|width| *width >= width_min).count() > state.reserve()
    }

    /// Number of superblocks that are free or being erased.
    pub(super) fn erased(&self) -> usize {
        self.state.lock().erased()
    }

    /// Takes a free superblock of at least `width` dies and erases it, to be written on its good blocks. `None` if none
    /// is free.
    pub(super) fn take(
        &self,
        submitter: &Submitter,
        env: &dyn Env,
        class: IoClass,
        (supply, width): (Supply, usize),
    ) -> Result<Option<Arc<Home>>> {
        loop {
            let Some(index) = self.pop(supply, width)? else { return Ok(None) };
            submitter.set_scarce(self.is_scarce());
            let erases = self.erases(index);
            if !erases.is_empty() {
                check(&submitter.submit(class, erases).wait(env))?;
            }
            if let Some(home) = self.begin(index, supply, width) {
                return Ok(Some(home));
            }
        }
    }

    fn pop(&self, supply: Supply, width: usize) -> Result<Option<u32>> {
        let mut state = self.state.lock();
        loop {
            self.can_collect(&mut state);
            if let Some(index) = state.take(supply, width) {
                return Ok(Some(index));
            }
            if let Some(why) = &state.lost {
                return Err(why.repeated());
            }
            if state.erasing.is_empty() {
                return Ok(None);
            }
            self.freed.wait(&mut state);
        }
    }

    /// Enters a taken superblock in the book, unless erasing has left too few good blocks.
    fn begin(&self, index: u32, supply: Supply, width: usize) -> Option<Arc<Home>> {
        let geometry = self.flash.geometry();
        let dies: Vec<u32> = good_dies(&*self.flash, index).collect();
        let mut state = self.state.lock();
        state.taken.remove(&index);
        let width = match supply {
            Supply::Collection => width.max(state.width_min),
            Supply::Tables => width.max(state.width_least),
        };
        if dies.len() < width {
            state.add_free(wear(&*self.flash, index), index, dies.len());
            self.freed.notify_all();
            return None;
        }
        let home = Arc::new(Home::new(geometry, index, &dies));
        state.book.begin(home.clone(), home.capacity(geometry));
        Some(home)
    }

    /// Marks superblocks that the book released, and `remains`, as being erased. The caller must call
    /// [`Pool::erase_unneeded`].
    fn set_erasing(&self, state: &mut State, remains: Vec<u32>) {
        for index in state.book.take_unneeded().into_iter().chain(remains) {
            // Useless if too many of its blocks are bad.
            let width = width(&*self.flash, index);
            if width >= state.width_least {
                state.erasing.insert(index, width);
                state.to_erase.push(index);
            }
        }
    }

    /// Erases superblocks that are no longer needed, which makes them free. With queues that happens later.
    pub(super) fn erase_unneeded(self: &Arc<Pool>, submitter: &Submitter) -> Result<()> {
        let indices = std::mem::take(&mut self.state.lock().to_erase);
        indices.into_iter().try_for_each(|index| self.erase(submitter, index))
    }

    fn erase(self: &Arc<Pool>, submitter: &Submitter, index: u32) -> Result<()> {
        let (pool, scarce, failure) = (self.clone(), submitter.scarce(), Arc::new(Mutex::new(None)));
        let noted = failure.clone();
        let then = move |outcome: &Outcome| {
            let result = check(outcome);
            let mut state = pool.state.lock();
            state.erasing.remove(&index);
            match &result {
                Ok(()) => state.add_free(wear(&*pool.flash, index), index, width(&*pool.flash, index)),
                Err(error) => {
                    state.set_aside.insert(index);
                    state.lost = Some(error.repeated());
                }
            }
            drop(state);
            scarce.store(pool.is_scarce(), Relaxed);
            pool.freed.notify_all();
            *noted.lock() = result.err();
        };
        drop(submitter.submit_then(IoClass::Background, self.erases(index), Box::new(then)));
        failure.lock().take().map_or(Ok(()), Err)
    }

    /// Inconsistencies in what is known about superblocks and tables, as messages.
    pub(super) fn problems(&self, env: &Arc<dyn Env>) -> Vec<String> {
        let state = self.state.lock();
        let (before, width_min) = (state.book.layouts(), state.width_min);
        drop(state); // Others go on while all of it is read.
        let found = survey(&self.flash, env, width_min);
        let state = self.state.lock();
        let mut problems = state.book.problems();
        let mut known = vec![0; self.flash.geometry().blocks_per_die as usize];
        let free = state.free.keys().map(|(_, index)| index);
        let others = state.taken.iter().chain(state.erasing.keys()).chain(&state.set_aside);
        let others = others.chain(state.remains.values().flatten());
        for index in free.chain(others).copied().chain(state.book.superblocks()) {
            known[index as usize] += 1;
        }
        for (index, times) in (0..).zip(known).filter(|(_, times)| *times != 1) {
            if times > 1 || width(&*self.flash, index) >= state.width_least {
                problems.push(format!("superblock {index} is known {times} times, which should be once"));
            }
        }
        match found {
            Ok(found) => problems.extend(state.book.differences(&found.book, &before)),
            Err(error) => problems.push(error.to_string()),
        }
        problems
    }

    /// Erase operations for the programmed blocks of a superblock.
    fn erases(&self, index: u32) -> Vec<Op> {
        let geometry = self.flash.geometry();
        let blocks = (0..geometry.dies()).map(|die| geometry.block_on(die, index));
        let programmed = |block: &_| {
            let report = self.flash.report(*block);
            report.pages_written > 0 && report.state == BlockState::Good
        };
        blocks.filter(programmed).map(|block| Op::Erase { block }).collect()
    }
}

fn check(outcome: &Outcome) -> Result<()> {
    match &outcome.error {
        None => Ok(()),
        Some(FlashError::PowerLost) => Err(FlashError::PowerLost.into()),
        Some(error) => Err(Error::new(Kind::Io, error.to_string()).because(error.reason())),
    }
}
