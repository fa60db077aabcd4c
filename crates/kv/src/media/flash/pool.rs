//! Who has which superblock.
//!
//! 1. A superblock is exactly one of: free (erased, or to be erased before its next table), being erased, home of a
//!    table, a table's remains, being written.
//! 2. A superblock that is being erased comes to be free without anybody's doing.

use super::queue::{Op, Outcome, Road};
use super::superblock::{Found, Home, look};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vellum_base::sync::{Condvar, Mutex};
use vellum_base::{BlockState, Env, Error, Flash, FlashError, IoClass, Kind, Result};

/// Erases are urgent while a smaller share than one in so many superblocks is free (FlashKV, section 3.5).
const SCARCE_BELOW: usize = 5;

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
    homes: BTreeMap<u64, Home>,
    /// Superblocks that hold a table's remains.
    remains: BTreeMap<u64, Vec<u32>>,
    /// The power went off during an erase.
    lost: bool,
}

impl Pool {
    /// Looks at the first and last page of every erase block.
    pub(super) fn open(flash: Arc<dyn Flash>) -> Pool {
        let mut state = State::default();
        for index in 0..flash.geometry().blocks_per_die {
            match look(&*flash, index) {
                Found::Empty => drop(state.free.insert((wear(&*flash, index), index))),
                Found::Table(tag, home) if !state.homes.contains_key(&tag.table) => {
                    state.homes.insert(tag.table, home);
                }
                Found::Table(tag, _) => state.remains.entry(tag.table).or_default().push(index),
                Found::Remains(Some(table)) => state.remains.entry(table).or_default().push(index),
                // Nobody's: erased when the superblock is used.
                Found::Remains(None) => drop(state.free.insert((wear(&*flash, index), index))),
            }
        }
        Pool { flash, state: Mutex::new(state), freed: Condvar::new() }
    }

    /// Superblocks that are free, or will be in a moment.
    pub(super) fn free(&self) -> usize {
        let state = self.state.lock();
        state.free.len() + state.erasing
    }

    /// True while erases are urgent.
    pub(super) fn is_scarce(&self) -> bool {
        self.state.lock().free.len() * SCARCE_BELOW < self.flash.geometry().blocks_per_die as usize
    }

    pub(super) fn home(&self, table: u64) -> Option<Home> {
        self.state.lock().homes.get(&table).cloned()
    }

    pub(super) fn settle(&self, table: u64, home: Home) {
        self.state.lock().homes.insert(table, home);
    }

    /// Every table there is any trace of.
    pub(super) fn tables(&self) -> Vec<u64> {
        let state = self.state.lock();
        let all: BTreeSet<u64> = state.homes.keys().chain(state.remains.keys()).copied().collect();
        all.into_iter().collect()
    }

    /// Forgets a table; its superblocks are to be released.
    pub(super) fn forget(&self, table: u64) -> Vec<u32> {
        let mut state = self.state.lock();
        let mut gone = state.remains.remove(&table).unwrap_or_default();
        gone.extend(state.homes.remove(&table).map(|home| home.index));
        gone
    }

    /// Takes the least worn free superblock, erased, with those of its blocks that are good.
    pub(super) fn take(&self, road: &Road, env: &dyn Env, class: IoClass) -> Result<Home> {
        loop {
            let index = self.pop()?;
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
                return Ok(Home::new(geometry, index, &dies));
            }
        }
    }

    fn pop(&self) -> Result<u32> {
        let mut state = self.state.lock();
        loop {
            if let Some((_, index)) = state.free.pop_first() {
                return Ok(index);
            }
            if state.lost {
                return Err(FlashError::PowerLost.into());
            }
            if state.erasing == 0 {
                let what = "no superblock is free; delete keys, then compact";
                return Err(Error::new(Kind::NoSpace, what));
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
