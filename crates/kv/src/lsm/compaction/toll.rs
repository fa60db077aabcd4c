//! What reads pay for level 0. Each of its tables is a source of every scan and a filter of every get. When reads
//! have paid as much as merging level 0 would write, it is merged, however few tables it has: as who rents skis buys
//! them when the rent has come to their price, it never costs more than twice what was best.
//!
//! Invariants
//! 1. Where nobody reads, nothing is due: an idle store writes nothing.
//! 2. What was paid is forgotten when a memtable is frozen. So where many of the requests are writes, which fill level
//!    0 again soon, reads never come to the price.
//! 3. Where room is short it is kept for who writes (`Core::pick`).

use crate::lsm::striped::Striped;
use crate::lsm::version::Version;
use std::sync::Arc;

/// A scan reads a leaf of each table, and merges one source more.
const SCAN_BYTES: u64 = 4096;
/// A get asks a filter, which is in memory.
const GET_BYTES: u64 = 64;
/// A value that is in a log, and not in memory, is a read of its own: a merge writes about so much in that time.
const POINTED_BYTES: u64 = 128;
/// After so much was paid it is worth a look whether a merge is due.
const LOOK_BYTES: u64 = 1 << 20;
/// Merging fewer tables drags too much of level 1 along: it takes so many times the price.
const TABLES_FEW: usize = 4;
const DEAR: u64 = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct Toll {
    paid: Striped,
    /// Values that were read in logs.
    pointed: Arc<Striped>,
}

impl Toll {
    /// Who reads values in logs counts them there.
    pub(crate) fn new(pointed: Arc<Striped>) -> Toll {
        Toll { paid: Striped::default(), pointed }
    }

    /// A get pays. True if it is worth a look whether a merge is due.
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

    /// True if reads have paid for merging level 0.
    pub(crate) fn is_due(&self, version: &Version) -> bool {
        let paid = || self.paid.total() + self.pointed.total() * POINTED_BYTES;
        price(version).is_some_and(|price| paid() >= price)
    }

    /// Level 0 is about to change.
    pub(crate) fn forget(&self) {
        self.paid.reset();
        self.pointed.reset();
    }
}

/// What merging level 0 costs; `None` if reads would have nothing of it.
fn price(version: &Version) -> Option<u64> {
    let level0 = &version.levels[0];
    if level0.len() < 2 && version.levels[1..].iter().all(Vec::is_empty) {
        return None;
    }
    let smallest = level0.iter().map(|table| &table.meta.smallest).min()?;
    let largest = level0.iter().map(|table| &table.meta.largest).max()?;
    let below: u64 = version.overlap(1, smallest, largest).iter().map(|table| table.meta.bytes).sum();
    let above: u64 = level0.iter().map(|table| table.meta.merged_bytes()).sum();
    let price = above + below;
    Some(if level0.len() < TABLES_FEW { DEAR * price } else { price })
}
