//! Accounting of bytes written to the SSD in its superblock: after a crash the stored count is never less than what was
//! written.
//!
//! 1. Before bytes are written that the superblock does not count yet, it is advanced by another step, durably. So
//!    after a crash it counts too much, by at most one step plus what was in flight, and that excess stays. A clean
//!    stop adds nothing. (If an opening is interrupted while it writes the two superblock sectors, these are not
//!    counted.)
//! 2. The counted room always suffices for both copies of the next superblock as well.
//! 3. The stored budget is what was left, plus what time has brought since, minus all bytes counted.

use super::ssd::Ssd;
use super::superblock::CacheSuperblock;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use vellum_base::sync::Mutex;
use vellum_base::{Cause, Result, SECTOR_BYTES};

/// Both copies of a superblock.
const BOTH_COPIES: u64 = 2 * SECTOR_BYTES as u64;
/// A step is this fraction of the SSD...
const STEP_PART: u64 = 256;
/// ...or this many bytes if that is more, so that superblocks are less than a hundredth of what is written...
const STEP_BYTES_MIN: u64 = 1 << 20;
/// ...but no more than this fraction of the SSD.
const STEP_PART_MAX: u64 = 8;

/// See the module.
pub(super) struct Account {
    state: Mutex<State>,
    /// Budget that time has brought since the opening, as far as the policy accepted it.
    granted: AtomicI64,
    step: u64,
}

struct State {
    /// The superblock on the SSD, but with the count from the beginning of this opening.
    superblock: CacheSuperblock,
    /// Bytes written in this opening or about to be, and the number that the superblock counts.
    claimed: u64,
    counted: u64,
    /// The last superblock was written, or it was erased: counting has ended.
    has_ended: bool,
}

impl State {
    /// The superblock to store if this many bytes of this opening are counted.
    fn counting(&self, bytes: u64, granted: i64) -> CacheSuperblock {
        let mut stored = self.superblock.clone();
        stored.written = stored.written.saturating_add(bytes);
        stored.budget_left = stored.budget_left.saturating_add(granted).saturating_sub_unsigned(bytes);
        stored
    }
}

impl Account {
    /// The account of an SSD with this superblock.
    pub fn new(superblock: CacheSuperblock) -> Account {
        let bytes = superblock.plot.ssd_sectors * SECTOR_BYTES as u64;
        let step = (bytes / STEP_PART).max(STEP_BYTES_MIN.min(bytes / STEP_PART_MAX));
        let state = State { superblock, claimed: 0, counted: 0, has_ended: false };
        Account { state: Mutex::new(state), granted: AtomicI64::new(0), step }
    }

    /// Adds what time has brought to the budget, in bytes.
    pub fn grant(&self, bytes: i64) {
        self.granted.fetch_add(bytes, Relaxed);
    }
}

impl Ssd {
    /// Called before this many bytes are written. False, and the SSD is detached, if the superblock cannot be updated.
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

    /// Stores a new superblock: the cache is in use from here on.
    pub(super) fn begin_account(&self, superblock: &CacheSuperblock) -> Result<bool> {
        let mut state = self.account.state.lock();
        state.superblock = superblock.clone();
        state.claimed += BOTH_COPIES;
        state.counted = state.counted.max(state.claimed + BOTH_COPIES);
        let stored = state.counting(state.counted, self.account.granted.load(Relaxed));
        self.store(&stored)
    }

    /// Stores the last superblock; nothing is written after it. It has the exact count, and the rest of the budget
    /// according to the policy.
    pub(super) fn end_account(&self, superblock: &CacheSuperblock, budget_left: i64) -> Result<bool> {
        let mut state = self.account.state.lock();
        state.has_ended = true;
        let mut stored = superblock.clone();
        stored.budget_left = budget_left.saturating_sub_unsigned(BOTH_COPIES);
        stored.written =
            stored.written.saturating_add(self.ledger.snapshot().programmed_total() + BOTH_COPIES);
        self.store(&stored)
    }

    /// Erases the superblock: the SSD is no longer a cache, whatever is still written to it.
    pub(super) fn erase_superblock(&self) -> Result<bool> {
        self.account.state.lock().has_ended = true;
        self.store_sectors(&[0; SECTOR_BYTES])
    }

    fn store(&self, superblock: &CacheSuperblock) -> Result<bool> {
        self.store_sectors(&superblock.encode())
    }

    /// Writes both copies, one after the other, durably; false, and the SSD is detached, if that failed.
    fn store_sectors(&self, content: &[u8]) -> Result<bool> {
        for sector in [0, self.plot.ssd_sectors - 1] {
            if !self.program(sector, content, Cause::CacheMetadata)? || !self.flush()? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
