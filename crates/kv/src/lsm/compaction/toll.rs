//! Read-triggered compaction: level 0 is merged for the sake of reads. Each of its tables costs every scan one more
//! source, and every get one more filter. When reads have paid as much as merging level 0 would write, it is merged,
//! however few tables it has. As in the ski rental problem, that costs at most twice the optimum.
//!
//! Invariants
//! 1. Without reads no merge is due: an idle store writes nothing.
//! 2. The sum paid is reset when a memtable is frozen. So if many requests are writes, which fill level 0 again soon,
//!    reads never reach the price.
//! 3. While room is short, it is kept for writers and no such merge is done (`Core::pick`).

use super::job::{bounds, bytes_between};
use crate::lsm::striped::Striped;
use crate::lsm::version::Version;
use std::sync::Arc;

/// Price of a scan per table: it reads a leaf, and merges one more source.
const SCAN_BYTES: u64 = 4096;
/// Price of a get per table: it queries a filter in memory.
const GET_BYTES: u64 = 64;
/// Price of reading a value that is in a log and not in memory: about what a merge writes in that time.
const POINTED_BYTES: u64 = 128;
/// Each time this much has been paid, it is checked whether a merge is due.
const LOOK_BYTES: u64 = 1 << 20;
/// Merging fewer tables rewrites too much of level 1 for them: the price is this many times higher.
const TABLES_FEW: usize = 4;
const DEAR: u64 = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct Toll {
    paid: Striped,
    /// Number of values read in logs.
    pointed: Arc<Striped>,
}

impl Toll {
    /// `pointed` is incremented by whoever reads values in logs.
    pub(crate) fn new(pointed: Arc<Striped>) -> Toll {
        Toll { paid: Striped::default(), pointed }
    }

    /// Accounts for a get. True if it should be checked whether a merge is due.
    #[inline]
    pub(crate) fn get(&self, version: &Version) -> bool {
        self.pay(version, GET_BYTES)
    }

    /// The same for a scan.
    pub(crate) fn scan(&self, version: &Version) -> bool {
        self.pay(version, SCAN_BYTES)
    }

    #[inline]
    fn pay(&self, version: &Version, bytes: u64) -> bool {
        let tables = version.levels[0].len() as u64;
        if tables == 0 {
            return false;
        }
        let before = self.paid.add(tables * bytes);
        (before + tables * bytes) / LOOK_BYTES != before / LOOK_BYTES
    }

    /// True if reads have paid the price of merging level 0.
    pub(crate) fn is_due(&self, version: &Version) -> bool {
        let paid = || self.paid.total() + self.pointed.total() * POINTED_BYTES;
        price(version).is_some_and(|price| paid() >= price)
    }

    /// Resets the sum, as level 0 is about to change.
    pub(crate) fn forget(&self) {
        self.paid.reset();
        self.pointed.reset();
    }
}

/// The price of merging level 0: bytes to be written; `None` if reads would not profit.
fn price(version: &Version) -> Option<u64> {
    let level0 = &version.levels[0];
    if level0.len() < 2 && version.levels[1..].iter().all(Vec::is_empty) {
        return None;
    }
    let (smallest, largest) = bounds(level0)?;
    let below = bytes_between(version, 1, &smallest, &largest);
    let above: u64 = level0.iter().map(|table| table.meta.merged_bytes()).sum();
    let price = above + below;
    Some(if level0.len() < TABLES_FEW { DEAR * price } else { price })
}
