//! Who has which superblock.
//!
//! 1. A superblock is exactly one of: free (erased, or to be erased before it is used next), being erased, in the
//! book
//!    (tables count on it, or it is being written), a table's remains.
//! 2. A superblock that is being erased comes to be free without anybody's doing.
//! 3. While tables share superblocks one is free that only collection takes.

use super::book::Book;
use super::layout::{Extent, Handle};
use super::queue::{Op, Outcome, Road};
use super::rebuild::{Rebuilt, rebuild};
use super::stripe::Supply;
use super::superblock::{Found, Home, Name, look};
use crate::lsm::table::Stored;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vellum_base::sync::{Condvar, Mutex};
use vellum_base::{BlockState, Env, Error, Flash, FlashError, IoClass, Kind, Result};

/// Erases are urgent while a smaller share than one in so many superblocks is free (FlashKV, section 3.5).
const SCARCE_BELOW: usize = 5;

/// When a leaf that need not change stays where it is (docs/decisions/0021, "Relinking on raw flash").
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Relinking {
    /// Of its superblock at least this part is expected to be needed after the merge.
    pub live_min: f64,
    /// At least this part of all superblocks is free.
    pub free_min: f64,
}

impl Default for Relinking {
    fn default() -> Relinking {
        Relinking { live_min: 0.25, free_min: 0.125 }
    }
}

/// See the module.
pub(super) struct Pool {
    flash: Arc<dyn Flash>,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    /// By erases so far: the least worn is used next.
    free: BTreeSet<(u64, u32)>,
    erasing: usize,
    book: Book,
    /// Tables that cannot be read, and superblocks that hold their remains.
    remains: BTreeMap<u64, Vec<u32>>,
    relinking: Relinking,
    /// The power went off during an erase.
    lost: bool,
}

impl State {
    /// Free superblocks that only collection may have: without one it could not begin.
    fn reserve(&self) -> usize {
        self.book.is_shared() as usize
    }

    /// True if pinning a superblock more does no harm.
    fn may_pin(&self, superblocks: u32) -> bool {
        let free = self.free.len() + self.erasing;
        free >= 2 && free as f64 >= self.relinking.free_min * superblocks as f64
    }
}

impl Pool {
    /// Looks at the first and last page of every erase block.
    pub(super) fn open(flash: Arc<dyn Flash>) -> Pool {
        let geometry = *flash.geometry();
        let found: Vec<Found> = (0..geometry.blocks_per_die).map(|index| look(&*flash, index)).collect();
        let Rebuilt { book, remains, unused } = rebuild(found, &geometry);
        let free = unused.into_iter().map(|index| (wear(&*flash, index), index)).collect();
        let state = State { free, book, remains, ..State::default() };
        Pool { flash, state: Mutex::new(state), freed: Condvar::new() }
    }

    pub(super) fn set_relinking(&self, relinking: Relinking) {
        self.state.lock().relinking = relinking;
    }

    /// Superblocks that tables can have: those that are free, or will be in a moment, or can be collected.
    pub(super) fn free(&self) -> usize {
        let state = self.state.lock();
        (state.free.len() + state.erasing + state.book.collectable()).saturating_sub(state.reserve())
    }

    /// True while erases are urgent.
    pub(super) fn is_scarce(&self) -> bool {
        self.state.lock().free.len() * SCARCE_BELOW < self.flash.geometry().blocks_per_die as usize
    }

    pub(super) fn table(&self, table: u64) -> Option<Arc<Handle>> {
        self.state.lock().book.table(table).cloned()
    }

    /// Every table there is any trace of.
    pub(super) fn tables(&self) -> Vec<u64> {
        let state = self.state.lock();
        let all: BTreeSet<u64> = state.book.tables().chain(state.remains.keys().copied()).collect();
        all.into_iter().collect()
    }

    /// Changes the book, or looks into it.
    pub(super) fn with_book<T>(&self, change: impl FnOnce(&mut Book) -> T) -> T {
        change(&mut self.state.lock().book)
    }

    /// A superblock that was taken is being written.
    pub(super) fn begin(&self, home: &Arc<Home>, name: Name) {
        let capacity = home.capacity(self.flash.geometry());
        self.with_book(|book| book.begin(home.clone(), name, capacity));
    }

    /// Forgets a table. What is returned is to be released.
    pub(super) fn forget(&self, table: u64) -> Vec<u32> {
        let mut state = self.state.lock();
        let mut gone = state.remains.remove(&table).unwrap_or_default();
        gone.extend(state.book.forget(table));
        gone
    }

    /// Where so many bytes are, for a table that is being written: extents, each with whether the table may count on
    /// it, and then it does. `survival` is the part of what the table is made of that need not change, about.
    pub(super) fn link(&self, from: Stored, bytes: u64, survival: f64) -> Option<Vec<(Extent, bool)>> {
        let mut state = self.state.lock();
        let extents = state.book.find(from.table, from.offset, bytes)?;
        let may_pin = state.may_pin(self.flash.geometry().blocks_per_die);
        let judged = extents.into_iter().map(|extent| {
            let superblock = state.book.superblock(extent.index());
            let expected = superblock.map_or(0.0, |s| s.live_share() * survival);
            let is_linked = may_pin && expected >= state.relinking.live_min;
            if is_linked {
                state.book.hold(&extent);
            }
            (extent, is_linked)
        });
        Some(judged.collect())
    }

    /// True if a table can be begun at once.
    pub(super) fn has_free(&self) -> bool {
        let state = self.state.lock();
        state.free.len() + state.erasing > state.reserve()
    }

    /// All superblocks that nothing is on, or will be in a moment.
    pub(super) fn erased(&self) -> usize {
        let state = self.state.lock();
        state.free.len() + state.erasing
    }

    /// Takes the least worn free superblock, erased, with those of its blocks that are good. `None` if none is free.
    pub(super) fn take(
        &self,
        road: &Road,
        env: &dyn Env,
        class: IoClass,
        supply: Supply,
    ) -> Result<Option<Home>> {
        loop {
            let Some(index) = self.pop(supply)? else { return Ok(None) };
            road.set_scarce(self.is_scarce());
            let erases = self.erases(index);
            if !erases.is_empty() {
                check(&road.submit(class, erases).wait(env))?;
            }
            let geometry = self.flash.geometry();
            let good =
                |die: &u32| self.flash.report(geometry.block_on(*die, index)).state == BlockState::Good;
            let dies: Vec<u32> = (0..geometry.dies()).filter(good).collect();
            if !dies.is_empty() {
                return Ok(Some(Home::new(geometry, index, &dies)));
            }
        }
    }

    fn pop(&self, supply: Supply) -> Result<Option<u32>> {
        let mut state = self.state.lock();
        loop {
            let kept = if supply == Supply::Tables { state.reserve() } else { 0 };
            if state.free.len() > kept {
                return Ok(state.free.pop_first().map(|(_, index)| index));
            }
            if state.lost {
                return Err(FlashError::PowerLost.into());
            }
            if state.erasing == 0 {
                return Ok(None);
            }
            self.freed.wait(&mut state);
        }
    }

    /// Erases a superblock, and makes it free. With queues that happens later.
    pub(super) fn release(self: &Arc<Pool>, road: &Road, index: u32) -> Result<()> {
        self.state.lock().erasing += 1;
        let (pool, failure) = (self.clone(), Arc::new(Mutex::new(None)));
        let noted = failure.clone();
        let then = move |outcome: &Outcome| {
            let result = check(outcome);
            let mut state = pool.state.lock();
            state.erasing -= 1;
            match &result {
                Ok(()) => drop(state.free.insert((wear(&*pool.flash, index), index))),
                Err(_) => state.lost = true,
            }
            drop(state);
            pool.freed.notify_all();
            *noted.lock() = result.err();
        };
        road.submit_then(IoClass::Background, self.erases(index), Box::new(then));
        road.set_scarce(self.is_scarce());
        failure.lock().take().map_or(Ok(()), Err)
    }

    /// What is programmed of a superblock.
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
        Some(error) => Err(Error::new(Kind::Io, error.to_string())),
    }
}

fn wear(flash: &dyn Flash, index: u32) -> u64 {
    let geometry = flash.geometry();
    (0..geometry.dies()).map(|die| flash.report(geometry.block_on(die, index)).erase_count as u64).sum()
}
