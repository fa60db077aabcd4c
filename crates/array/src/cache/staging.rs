//! The staging buffer: a queue of deltas that wait for a delta page, in order of arrival (kdd.txt, III.B).
//!
//! 1. A base has at most one delta here; a newer one replaces it, at the end of the queue.
//! 2. `bytes` is the size of all deltas with their heads. After a request it is at most the capacity; within one it may
//!    exceed that by one delta, which makes older ones go to a page, so there must be memory for one more.

use super::step::{PageNo, Staged};
use std::collections::VecDeque;
use vellum_base::{Lba, SECTOR_BYTES};
use vellum_codes::delta;

/// Size of a delta page's head (docs/formats/array.md).
pub const DELTA_PAGE_HEAD_BYTES: usize = 32;
/// Size of a delta's head in a delta page.
pub const DELTA_HEAD_BYTES: usize = 16;
/// The longest delta that fits a delta page.
pub const DELTA_BYTES_MAX: usize = SECTOR_BYTES - DELTA_PAGE_HEAD_BYTES - DELTA_HEAD_BYTES;

/// Appends the delta of two versions of a sector, as the engine stages it. False, with `out` unchanged, if it does not
/// fit into a delta page: then parity is not deferred.
pub fn encode_delta(old: &[u8], new: &[u8], out: &mut Vec<u8>) -> bool {
    delta::encode(old, new, DELTA_BYTES_MAX, out)
}

/// Positions in the queue have 16 bits.
const QUEUE_MAX: usize = 60_000;

/// See the module.
pub(super) struct Staging {
    capacity: usize,
    queue: VecDeque<Option<(PageNo, u16)>>,
    /// Place number of the front of the queue.
    first: u16,
    bytes: usize,
}

impl Staging {
    /// A buffer of this many bytes, but at least a delta page.
    pub fn new(capacity: usize) -> Staging {
        let capacity = capacity.max(SECTOR_BYTES) - DELTA_PAGE_HEAD_BYTES;
        Staging { capacity, queue: VecDeque::new(), first: 0, bytes: 0 }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if some deltas must go to a delta page.
    pub fn is_over(&self) -> bool {
        self.bytes > self.capacity || self.queue.len() > QUEUE_MAX
    }

    /// Appends a delta; returns its place.
    pub fn push(&mut self, base: PageNo, bytes: u16) -> u16 {
        self.bytes += DELTA_HEAD_BYTES + usize::from(bytes);
        self.queue.push_back(Some((base, bytes)));
        self.first.wrapping_add(self.queue.len() as u16 - 1)
    }

    /// Removes the delta at this place.
    pub fn remove(&mut self, place: u16) {
        let slot = &mut self.queue[usize::from(place.wrapping_sub(self.first))];
        let (_, bytes) = slot.take().expect("a staged delta is at its place");
        self.bytes -= DELTA_HEAD_BYTES + usize::from(bytes);
        self.trim();
    }

    /// The base of the oldest delta.
    pub fn oldest(&self) -> Option<PageNo> {
        self.queue.front().map(|slot| slot.expect("the front of the queue is not empty").0)
    }

    /// Removes the oldest deltas that fit into one delta page, and lays them out in it.
    pub fn take_page(&mut self, lba_of: impl Fn(PageNo) -> Lba, out: &mut Vec<Staged>) {
        let start = out.len();
        let mut room = SECTOR_BYTES - DELTA_PAGE_HEAD_BYTES;
        while let Some(Some((base, bytes))) = self.queue.front().copied() {
            let taken = DELTA_HEAD_BYTES + usize::from(bytes);
            let Some(rest) = room.checked_sub(taken) else { break };
            room = rest;
            out.push(Staged { base, lba: lba_of(base), bytes, offset: 0 });
            self.bytes -= taken;
            self.queue[0] = None;
            self.trim();
        }
        let mut offset = (DELTA_PAGE_HEAD_BYTES + DELTA_HEAD_BYTES * (out.len() - start)) as u16;
        for staged in &mut out[start..] {
            staged.offset = offset;
            offset += staged.bytes;
        }
    }

    /// Removes empty places, so that the front of the queue is a delta.
    fn trim(&mut self) {
        while let Some(None) = self.queue.front() {
            self.queue.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }
}
