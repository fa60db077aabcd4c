//! Who has which superblock.
//!
//! 1. A superblock is exactly one of: free (erased, or to be erased before it is used next), being erased, in the
//!    book (tables count on it, or it is being written), a table's remains.
//! 2. A superblock that is being erased comes to be free without anybody's doing.
//! 3. While tables share superblocks, or will, one is free that only collection takes: the widest.

use super::book::Book;
use super::layout::Handle;
use super::list::Run;
use super::queue::{Op, Outcome, Road};
use super::rebuild::{Rebuilt, rebuild};
use super::stripe::Supply;
use super::superblock::{Found, Home, UNIT_BYTES, look};
use crate::lsm::table::Stored;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vellum_base::sync::{Condvar, Mutex};
use vellum_base::{BlockState, Env, Error, Flash, FlashError, IoClass, Kind, Result};

/// Erases are urgent while a smaller share than one in so many superblocks is free (FlashKV, section 3.5).
const SCARCE_BELOW: usize = 5;

/// When a leaf that need not change stays where it is (docs/decisions/0025).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Relinking {
    /// Of its superblock at least this part is expected to be needed after the merge.
    pub live_min: f64,
    /// While less than this part of all superblocks is free, more has to be needed than of what is collected next:
    /// what is less would be collected at once.
    pub free_min: f64,
}

impl Default for Relinking {
    fn default() -> Relinking {
        Relinking { live_min: 0.0, free_min: 0.25 }
    }
}

/// A part of what is stored already, for a table that is being written.
pub(super) struct Offered {
    pub bytes: u64,
    /// What its units are, if the table counts on them now.
    pub linked: Option<Vec<Run>>,
}

/// See the module.
pub(super) struct Pool {
    flash: Arc<dyn Flash>,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    /// By erases so far, with how many dies take part: the least worn is used next.
    free: BTreeMap<(u64, u32), usize>,
    /// With how many dies of each take part.
    erasing: BTreeMap<u32, usize>,
    book: Book,
    /// Tables that cannot be read, and superblocks that hold their remains.
    remains: BTreeMap<u64, Vec<u32>>,
    /// The highest number of a table that was found anywhere.
    highest: u64,
    /// Tables will share superblocks, if they do not yet.
    relinks: bool,
    relinking: Relinking,
    /// The power went off during an erase.
    lost: bool,
}

impl State {
    /// Free superblocks that only collection may have: without one it could not begin.
    fn reserve(&self) -> usize {
        (self.relinks || self.book.is_shared()) as usize
    }

    /// It is free, unless all its blocks have become bad.
    fn add_erased(&mut self, wear: u64, index: u32, width: usize) {
        self.book.erased(index);
        if width > 0 {
            self.free.insert((wear, index), width);
        }
    }

    /// None if there is none yet, or no more.
    fn take(&mut self, supply: Supply) -> Option<u32> {
        // Of those that are as wide the most worn: what is collected stays long.
        let widest = self.free.iter().max_by_key(|(key, width)| (**width, **key));
        let (key, width) = widest.map(|(key, width)| (*key, *width))?;
        let kept = (self.reserve() > 0).then_some(key);
        let key = match supply {
            Supply::Collection if self.erasing.values().any(|coming| *coming > width) => return None,
            Supply::Collection => key,
            Supply::Tables => *self.free.keys().find(|key| Some(**key) != kept)?,
        };
        self.free.remove(&key);
        Some(key.1)
    }
}

impl Pool {
    /// Looks at the first and last page of every erase block.
    pub(super) fn open(flash: Arc<dyn Flash>) -> Result<Pool> {
        let geometry = *flash.geometry();
        let found: Vec<Found> = (0..geometry.blocks_per_die).map(|index| look(&*flash, index)).collect();
        let Rebuilt { book, remains, highest, unused } = rebuild(found, &*flash)?;
        let free = unused.into_iter().map(|index| ((wear(&*flash, index), index), width(&*flash, index)));
        let state = State {
            free: free.filter(|(_, width)| *width > 0).collect(),
            book,
            remains,
            highest,
            ..State::default()
        };
        Ok(Pool { flash, state: Mutex::new(state), freed: Condvar::new() })
    }

    pub(super) fn set_relinking(&self, relinking: Relinking) {
        self.state.lock().relinking = relinking;
    }

    /// From now on one is kept for collection: what is promised then is not taken back when tables begin to share.
    pub(super) fn will_relink(&self) {
        self.state.lock().relinks = true;
    }

    pub(super) fn relinks(&self) -> bool {
        self.state.lock().relinks
    }

    /// Superblocks that tables can have: those that are free, or will be in a moment, or can be collected.
    pub(super) fn free(&self) -> usize {
        let state = self.state.lock();
        let widest = state.free.values().chain(state.erasing.values()).max();
        let width = widest.copied().unwrap_or(0);
        let page_bytes = u64::from(self.flash.geometry().page_bytes);
        let pages = 2 * page_bytes.div_ceil(UNIT_BYTES);
        let collectable = state.book.collectable(self.units(width), pages) as usize;
        (state.free.len() + state.erasing.len() + collectable).saturating_sub(state.reserve())
    }

    /// Units of a superblock of so many dies.
    fn units(&self, width: usize) -> u64 {
        let geometry = self.flash.geometry();
        let blocks = geometry.pages_per_block.saturating_sub(2) as u64 * width as u64;
        blocks * geometry.page_bytes as u64 / UNIT_BYTES
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

    /// The highest number of a table of which anything was found when the flash was opened.
    pub(super) fn highest(&self) -> u64 {
        self.state.lock().highest
    }

    /// Changes the book, or looks into it.
    pub(super) fn with_book<T>(&self, change: impl FnOnce(&mut Book) -> T) -> T {
        change(&mut self.state.lock().book)
    }

    /// A superblock that was taken is being written.
    pub(super) fn begin(&self, home: &Arc<Home>) {
        let capacity = home.capacity(self.flash.geometry());
        self.with_book(|book| book.begin(home.clone(), capacity));
    }

    /// Forgets a table. What is returned is to be released.
    pub(super) fn forget(&self, table: u64) -> Vec<u32> {
        let mut state = self.state.lock();
        let mut gone = state.remains.remove(&table).unwrap_or_default();
        gone.extend(state.book.forget(table));
        gone
    }

    /// Where so many bytes are, for `table`, which is being written: it counts on what of it may stay. `survival` is
    /// the part of what the table is made of that need not change, about.
    pub(super) fn link(&self, table: u64, from: Stored, bytes: u64, survival: f64) -> Option<Vec<Offered>> {
        let mut state = self.state.lock();
        let extents = state.book.find(from.table, from.offset, bytes)?;
        let free = state.free.len() + state.erasing.len();
        let is_scarce =
            (free as f64) < state.relinking.free_min * self.flash.geometry().blocks_per_die as f64;
        let collected = if is_scarce { state.book.next_victim_live() } else { 0.0 };
        let least = state.relinking.live_min.max(collected);
        let offered = extents.into_iter().map(|extent| Offered {
            bytes: extent.bytes(),
            linked: state.book.link(table, &extent, |s| free > 0 && s.live_share() * survival >= least),
        });
        Some(offered.collect())
    }

    /// True if a table can be begun at once.
    pub(super) fn has_free(&self) -> bool {
        let state = self.state.lock();
        state.free.len() + state.erasing.len() > state.reserve()
    }

    /// All superblocks that nothing is on, or will be in a moment.
    pub(super) fn erased(&self) -> usize {
        let state = self.state.lock();
        state.free.len() + state.erasing.len()
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
            self.with_book(|book| book.erased(index));
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
            if let Some(index) = state.take(supply) {
                return Ok(Some(index));
            }
            if state.lost {
                return Err(FlashError::PowerLost.into());
            }
            if state.erasing.is_empty() {
                return Ok(None);
            }
            self.freed.wait(&mut state);
        }
    }

    /// Erases a superblock, and makes it free. With queues that happens later.
    pub(super) fn release(self: &Arc<Pool>, road: &Road, index: u32) -> Result<()> {
        let dies = width(&*self.flash, index);
        if dies == 0 {
            return Ok(()); // all its blocks are bad
        }
        self.state.lock().erasing.insert(index, dies);
        let (pool, failure) = (self.clone(), Arc::new(Mutex::new(None)));
        let noted = failure.clone();
        let then = move |outcome: &Outcome| {
            let result = check(outcome);
            let mut state = pool.state.lock();
            state.erasing.remove(&index);
            match &result {
                Ok(()) => state.add_erased(wear(&*pool.flash, index), index, width(&*pool.flash, index)),
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

/// Dies of a superblock that can take part.
fn width(flash: &dyn Flash, index: u32) -> usize {
    let geometry = flash.geometry();
    let is_good = |die: &u32| flash.report(geometry.block_on(*die, index)).state == BlockState::Good;
    (0..geometry.dies()).filter(is_good).count()
}
