//! The jbd2 journal of the model: a running transaction, a ring of slots, a checkpoint list.
//!
//! Invariants:
//! 1. A block is in the running transaction at most once, with its newest content.
//! 2. A home write has the content of the last committed copy of the block, and the slot of that copy is still part of
//!    the log (the tail has not passed it).
//! 3. A transaction never needs more than a quarter of the log; after every commit a quarter is free.
//! 4. The tail moves only after a flush that covers the home writes that it depends on.
//! 5. A checkpoint concurrent with a commit omits blocks that are in that commit: jbd2 waits for such a block, and then
//!    the newer transaction is responsible for it.

use crate::content::Content;
use crate::generate::ext::layout::Layout;
use crate::generate::ext::output::Output;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vellum_base::hash::FixedMap;
use vellum_base::{Nanos, SECTOR_BYTES};

const MAGIC: u32 = 0xC03B_3998;
const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const SUPERBLOCK_V2: u32 = 4;
/// Tags have 16 bytes (checksum version 3), after a header of 12 and a UUID of 16, before a checksum of 4.
const TAGS_PER_DESCRIPTOR: usize = (SECTOR_BYTES - 12 - 16 - 4) / 16;
const TAG_SAME_UUID: u32 = 2;
const TAG_LAST: u32 = 8;

/// A copy of a block in the journal.
#[derive(Clone)]
pub struct Copy {
    /// Its content.
    pub content: Content,
    /// It is file data, not metadata.
    pub is_data: bool,
}

/// See the module.
pub struct Journal {
    slots: u64,
    next: u64,
    used: u64,
    sequence: u64,
    order: Vec<u64>,
    running: FixedMap<u64, Copy>,
    /// Committed transactions that are not completely at home, oldest first; the newest has `sequence - 1`.
    log: VecDeque<Committed>,
    /// Slots that the tail may pass.
    released: u64,
    /// Committed blocks that are not at home: the copy, and the sequence of its transaction.
    pending: BTreeMap<u64, (Copy, u64)>,
    oldest_running: Option<Nanos>,
}

/// What the task that fills the journal does during a commit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Meanwhile {
    /// It waits for the commit, and makes room in the log afterwards.
    Waits,
    /// It fills the next transaction, and makes room for that while the commit is in progress.
    GoesOn,
}

struct Committed {
    time: Nanos,
    slots: u64,
    remaining: u64,
}

impl Journal {
    /// An empty journal of `slots` blocks, the first of which is its superblock.
    pub fn new(slots: u64) -> Journal {
        Journal {
            slots,
            next: 1,
            used: 0,
            sequence: 1,
            order: Vec::new(),
            running: FixedMap::default(),
            log: VecDeque::new(),
            released: 0,
            pending: BTreeMap::new(),
            oldest_running: None,
        }
    }

    /// Puts a block into the running transaction.
    pub fn add(&mut self, time: Nanos, block: u64, copy: Copy) {
        self.oldest_running.get_or_insert(time);
        if self.running.insert(block, copy).is_none() {
            self.order.push(block);
        }
    }

    /// A block was freed: it need not be written home.
    pub fn forget(&mut self, block: u64) {
        self.running.remove(&block);
        if let Some((_, sequence)) = self.pending.remove(&block) {
            self.settle(sequence);
        }
    }

    /// True if another operation might not fit into the running transaction.
    pub fn is_full(&self) -> bool {
        const OPERATION_BLOCKS: usize = 24;
        self.slots_needed(self.running.len() + OPERATION_BLOCKS) > self.slots / 4
    }

    /// When the running transaction began, if there is one.
    pub fn running_since(&self) -> Option<Nanos> {
        self.oldest_running
    }

    fn slots_needed(&self, blocks: usize) -> u64 {
        (blocks + blocks.div_ceil(TAGS_PER_DESCRIPTOR) + 1) as u64
    }

    /// Writes the running transaction to the log; if less than a quarter is free then, checkpoints, concurrently with
    /// the copies or after the commit. Returns the data blocks of the transaction.
    pub fn commit(
        &mut self,
        time: Nanos,
        meanwhile: Meanwhile,
        layout: &Layout,
        out: &mut Output,
    ) -> Vec<u64> {
        let order: Vec<u64> = std::mem::take(&mut self.order);
        let blocks: Vec<(u64, Copy)> =
            order.into_iter().filter_map(|block| Some((block, self.running.remove(&block)?))).collect();
        self.oldest_running = None;
        if blocks.is_empty() {
            return Vec::new();
        }
        let homes = match meanwhile {
            Meanwhile::Waits => BTreeMap::new(),
            Meanwhile::GoesOn => self.take_homes_beside(&blocks),
        };
        let mut copies = Vec::new();
        for part in blocks.chunks(TAGS_PER_DESCRIPTOR) {
            copies.push((self.take_slot(layout), self.descriptor(part)));
            copies.extend(part.iter().map(|(_, copy)| (self.take_slot(layout), copy.content.clone())));
        }
        out.write_beside(time, copies, homes);
        out.flush(time);
        let commit = (self.take_slot(layout), self.commit_block(time));
        out.write(time, [commit], true);
        let data = blocks.iter().filter(|(_, copy)| copy.is_data).map(|(block, _)| *block).collect();
        self.register(time, blocks);
        if self.free() < self.slots / 4 {
            let wanted = if meanwhile == Meanwhile::Waits { self.slots / 2 } else { self.slots / 4 };
            let due = self.due_for(wanted, self.free());
            self.checkpoint(time, due, layout, out);
        }
        data
    }

    /// Registers a committed transaction: its copies may now be written home.
    fn register(&mut self, time: Nanos, blocks: Vec<(u64, Copy)>) {
        let (slots, remaining) = (self.slots_needed(blocks.len()), blocks.len() as u64);
        self.log.push_back(Committed { time, slots, remaining });
        let sequence = self.sequence;
        self.sequence += 1;
        for (block, copy) in blocks {
            if let Some((_, superseded)) = self.pending.insert(block, (copy, sequence)) {
                self.settle(superseded);
            }
        }
    }

    /// Takes the blocks that must be written home, while `blocks` are committed, for a quarter of the log to be free
    /// afterwards.
    fn take_homes_beside(&mut self, blocks: &[(u64, Copy)]) -> BTreeMap<u64, Content> {
        let free = self.free().saturating_sub(self.slots_needed(blocks.len()));
        let limit = self.oldest() + self.due_for(self.slots / 4, free) as u64;
        let held: BTreeSet<u64> = blocks.iter().map(|(block, _)| *block).collect();
        let homes: Vec<u64> = self.pending_before(limit).filter(|block| !held.contains(block)).collect();
        self.take_homes(homes)
    }

    /// Writes those of these blocks home that are committed and not there yet.
    pub fn write_home(&mut self, time: Nanos, blocks: impl IntoIterator<Item = u64>, out: &mut Output) {
        let homes = self.take_homes(blocks);
        out.write(time, homes, false);
    }

    /// Writes home everything committed before `before`, as the kernel's flusher does, without moving the tail.
    pub fn write_back(&mut self, time: Nanos, before: Nanos, out: &mut Output) {
        let due = self.log.partition_point(|t| t.time < before);
        let homes: Vec<u64> = self.pending_before(self.oldest() + due as u64).collect();
        self.write_home(time, homes, out);
    }

    /// Writes everything home, and moves the tail.
    pub fn empty(&mut self, time: Nanos, layout: &Layout, out: &mut Output) {
        self.checkpoint(time, self.log.len(), layout, out);
    }

    /// How many of the oldest transactions must be at home for `wanted` slots to be free, if `free` are free now.
    fn due_for(&self, wanted: u64, free: u64) -> usize {
        let mut free = free + self.released;
        let mut due = 0;
        while free < wanted && due < self.log.len() {
            free += self.log[due].slots;
            due += 1;
        }
        due
    }

    /// Writes home the blocks of the oldest `due` transactions; moves the tail if transactions are complete by now.
    fn checkpoint(&mut self, time: Nanos, due: usize, layout: &Layout, out: &mut Output) {
        let homes: Vec<u64> = self.pending_before(self.oldest() + due as u64).collect();
        self.write_home(time, homes, out);
        if self.released > 0 {
            self.used -= std::mem::take(&mut self.released);
            out.flush(time);
            out.write(time, [(layout.journal_block(0).0, self.superblock())], true);
        }
    }

    /// Blocks whose last committed copy is in a transaction before `limit` and not yet at home.
    fn pending_before(&self, limit: u64) -> impl Iterator<Item = u64> {
        self.pending.iter().filter(move |(_, (_, sequence))| *sequence < limit).map(|(block, _)| *block)
    }

    /// Takes the copies of these blocks that are to be written home, and counts them as written.
    fn take_homes(&mut self, blocks: impl IntoIterator<Item = u64>) -> BTreeMap<u64, Content> {
        let mut homes = BTreeMap::new();
        for block in blocks {
            if let Some((copy, sequence)) = self.pending.remove(&block) {
                self.settle(sequence);
                homes.insert(block, copy.content);
            }
        }
        homes
    }

    /// The sequence of the first transaction in `log`.
    fn oldest(&self) -> u64 {
        self.sequence - self.log.len() as u64
    }

    /// Counts one block of a transaction as written home, or superseded.
    fn settle(&mut self, sequence: u64) {
        let at = (sequence - self.oldest()) as usize;
        self.log[at].remaining -= 1;
        while self.log.front().is_some_and(|t| t.remaining == 0) {
            self.released += self.log.pop_front().map_or(0, |settled| settled.slots);
        }
    }

    fn free(&self) -> u64 {
        self.slots - 1 - self.used
    }

    fn take_slot(&mut self, layout: &Layout) -> u64 {
        let slot = self.next;
        self.next = if slot + 1 == self.slots { 1 } else { slot + 1 };
        self.used += 1;
        assert!(self.used < self.slots, "the log never overtakes its tail");
        layout.journal_block(slot).0
    }

    fn header(&self, kind: u32) -> Vec<u8> {
        let mut block = vec![0; SECTOR_BYTES];
        for (at, word) in [MAGIC, kind, self.sequence as u32].into_iter().enumerate() {
            put(&mut block, 4 * at, word);
        }
        block
    }

    fn descriptor(&self, part: &[(u64, Copy)]) -> Content {
        let mut block = self.header(DESCRIPTOR);
        let mut at = 12;
        for (i, (home, _)) in part.iter().enumerate() {
            let same = if i > 0 { TAG_SAME_UUID } else { 0 };
            let last = if i + 1 == part.len() { TAG_LAST } else { 0 };
            for (field, word) in [*home as u32, same | last, (home >> 32) as u32].into_iter().enumerate() {
                put(&mut block, at + 4 * field, word);
            }
            at += if i == 0 { 32 } else { 16 };
        }
        Content::verbatim(&block)
    }

    fn commit_block(&self, time: Nanos) -> Content {
        let mut block = self.header(COMMIT);
        put(&mut block, 52, (time.0 / 1_000_000_000) as u32);
        put(&mut block, 56, (time.0 % 1_000_000_000) as u32);
        Content::verbatim(&block)
    }

    fn superblock(&self) -> Content {
        let mut block = self.header(SUPERBLOCK_V2);
        put(&mut block, 8, 0);
        let tail = (self.next + self.slots - 2 - self.used % (self.slots - 1)) % (self.slots - 1) + 1;
        let start = if self.used == 0 { 0 } else { tail as u32 };
        let sequence = self.oldest() as u32;
        for (at, word) in
            [(12, SECTOR_BYTES as u32), (16, self.slots as u32), (20, 1), (24, sequence), (28, start)]
        {
            put(&mut block, at, word);
        }
        Content::verbatim(&block)
    }
}

/// jbd2 is big endian.
fn put(block: &mut [u8], at: usize, word: u32) {
    block[at..at + 4].copy_from_slice(&word.to_be_bytes());
}
