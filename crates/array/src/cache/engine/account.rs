//! What was written to the SSD, as its superblock says it: after a cut, too, never less than was.
//!
//! 1. Before bytes are written that the superblock does not count, it counts a step more, durably. So after a cut it
//!    counts at most a step and what was under way too much, and stays ahead by that for good. A clean stop adds
//!    nothing. (The two sectors of an opening that is cut off while it writes them are not counted.)
//! 2. What there is room for is always enough for both copies of the next superblock.
//! 3. What is left of the budget, as it says it, is what was left and what time brought since, less all that it counts.

use super::ssd::Ssd;
use super::superblock::CacheSuperblock;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use vellum_base::sync::Mutex;
use vellum_base::{Cause, Result, SECTOR_BYTES};

/// Both copies of a superblock.
const BOTH_COPIES: u64 = 2 * SECTOR_BYTES as u64;
/// A step is this part of the SSD...
const STEP_PART: u64 = 256;
/// ...or so many bytes, so that superblocks are less than a hundredth of what is written...
const STEP_BYTES_MIN: u64 = 1 << 20;
/// ...but not more than this part.
const STEP_PART_MAX: u64 = 8;

/// See the module.
pub(super) struct Account {
    state: Mutex<State>,
    /// What time has brought of the budget since the opening, as far as it was taken.
    granted: AtomicI64,
    step: u64,
}

struct State {
    /// As it is on the SSD, but for what it counts: that is what it counted when this opening began.
    superblock: CacheSuperblock,
    /// Bytes written in this opening or about to be, and how many the superblock counts.
    claimed: u64,
    counted: u64,
    /// The last superblock was written, or there is none any more: nothing is counted.
    has_ended: bool,
}

impl State {
    /// What is stored if so many bytes of this opening are counted.
    fn counting(&self, bytes: u64, granted: i64) -> CacheSuperblock {
        let mut stored = self.superblock.clone();
        stored.written = stored.written.saturating_add(bytes);
        stored.budget_left = stored.budget_left.saturating_add(granted).saturating_sub_unsigned(bytes);
        stored
    }
}

impl Account {
    /// Of an SSD with this superblock.
    pub fn new(superblock: CacheSuperblock) -> Account {
        let bytes = superblock.plot.ssd_sectors * SECTOR_BYTES as u64;
        let step = (bytes / STEP_PART).max(STEP_BYTES_MIN.min(bytes / STEP_PART_MAX));
        let state = State { superblock, claimed: 0, counted: 0, has_ended: false };
        Account { state: Mutex::new(state), granted: AtomicI64::new(0), step }
    }

    /// Time has brought so many bytes of the budget.
    pub fn grant(&self, bytes: i64) {
        self.granted.fetch_add(bytes, Relaxed);
    }
}

impl Ssd {
    /// So many bytes are about to be written. False, and the SSD is detached, if it cannot be told.
    pub(super) fn claim(&self, bytes: u64) -> Result<bool> {
        let mut state = self.account.state.lock();
        state.claimed += bytes;
        if state.has_ended || state.claimed + BOTH_COPIES <= state.counted {
            return Ok(true);
        }
        state.claimed += BOTH_COPIES;
        state.counted = state.claimed + BOTH_COPIES + self.account.step;
        let stored = state.counting(state.counted, self.account.granted.load(Relaxed));
        self.store(&stored)
    }

    /// This is the superblock from now on: the cache is in use.
    pub(super) fn begin_account(&self, superblock: &CacheSuperblock) -> Result<bool> {
        let mut state = self.account.state.lock();
        state.superblock = superblock.clone();
        state.claimed += BOTH_COPIES;
        state.counted = state.counted.max(state.claimed + BOTH_COPIES);
        let stored = state.counting(state.counted, self.account.granted.load(Relaxed));
        self.store(&stored)
    }

    /// The last superblock: nothing is written behind it. It counts what was written, and has what the policy says is
    /// left of the budget.
    pub(super) fn end_account(&self, superblock: &CacheSuperblock, budget_left: i64) -> Result<bool> {
        let mut state = self.account.state.lock();
        state.has_ended = true;
        let mut stored = superblock.clone();
        stored.budget_left = budget_left.saturating_sub_unsigned(BOTH_COPIES);
        stored.written =
            stored.written.saturating_add(self.ledger.snapshot().programmed_total() + BOTH_COPIES);
        self.store(&stored)
    }

    /// It is no cache any more, whatever is written yet.
    pub(super) fn erase_superblock(&self) -> Result<bool> {
        self.account.state.lock().has_ended = true;
        self.store_sectors(&[0; SECTOR_BYTES])
    }

    fn store(&self, superblock: &CacheSuperblock) -> Result<bool> {
        self.store_sectors(&superblock.encode())
    }

    /// Both copies, one after the other, and durable; false, and the SSD is detached, if that failed.
    fn store_sectors(&self, content: &[u8]) -> Result<bool> {
        for sector in [0, self.plot.ssd_sectors - 1] {
            if !self.program(sector, content, Cause::CacheMetadata)? || !self.flush()? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
