//! The entries of a table in order, for compaction.

use super::batches::Batches;
use super::buffer::Buffer;
use super::cached::Bytes;
use super::entry_fences::EntryFences;
use super::leaf::{Leaf, LeafCursor};
use super::leaves_read::{LeavesRead, check_sum};
use super::object::{Head, OBJECT_HEAD_BYTES, ObjectKind, TABLE_UNIT_BYTES};
use super::pointed::{LeafValues, value_bytes};
use super::{Object, StoredLeaf, Table};
use crate::key::Stamp;
use crate::lsm::cache::CacheKey;
use crate::lsm::compaction::MergeRange;
use crate::lsm::merge::Stream;
use crate::media::Stored;
use crate::options::CachePolicy;
use crate::sum::sum_with;
use std::sync::Arc;
use vellum_base::{Error, IoClass, Result};

/// Most and fewest bytes of a batch.
const BATCH_BYTES_MAX: usize = 2 << 20;
const BATCH_BYTES_MIN: usize = 64 << 10;

/// Parameters of sequential reading.
#[derive(Clone)]
pub(crate) struct StreamOptions {
    pub class: IoClass,
    /// Whole units, whatever they have.
    batch_bytes: usize,
    /// Where the leaves that were read are noted.
    leaves_read: Option<LeavesRead>,
}

impl StreamOptions {
    /// For one of `inputs` tables that are read concurrently and share `bytes` of buffers: for each of them a batch,
    /// and the next one.
    pub(crate) fn beside(class: IoClass, inputs: usize, bytes: usize) -> StreamOptions {
        let batch = (bytes / (2 * inputs.max(1))).clamp(BATCH_BYTES_MIN, BATCH_BYTES_MAX);
        StreamOptions { class, batch_bytes: batch / TABLE_UNIT_BYTES * TABLE_UNIT_BYTES, leaves_read: None }
    }

    /// With other streams, of which each reads a part of the tables.
    pub(crate) fn reporting_to(self, leaves_read: Option<LeavesRead>) -> StreamOptions {
        StreamOptions { leaves_read, ..self }
    }

    fn alone(class: IoClass) -> StreamOptions {
        StreamOptions { class, batch_bytes: BATCH_BYTES_MAX, leaves_read: None }
    }
}

/// The entries of a table whose keys are in a piece, in order.
pub(crate) struct TableStream {
    table: Arc<Table>,
    piece: MergeRange,
    options: StreamOptions,
    /// Of the runs that may hold keys of the piece. Begins with the current object.
    batches: Batches,
    /// The current leaf unpacked, if it was compressed.
    plain: Option<Buffer>,
    leaf: Option<Leaf>,
    /// Bytes of the current object, in whole units.
    leaf_bytes: usize,
    /// The leaf is in the cache and was used by clients lately.
    is_hot: bool,
    entry: LeafCursor,
    /// Values of the leaf's entries that are in logs.
    values: LeafValues,
    /// The current entry is the first of its leaf.
    is_first: bool,
    entries: u64,
    /// Sum of the leaves read so far.
    sum: u32,
    /// It reads all runs.
    is_whole: bool,
    /// Leaves to be told of.
    read: Vec<(usize, [u8; 4])>,
}

impl Drop for TableStream {
    fn drop(&mut self) {
        if let Some(leaves_read) = &self.options.leaves_read {
            leaves_read.add(self.table.meta.number, &mut self.read);
        }
    }
}

impl TableStream {
    /// All entries of a table.
    pub(crate) fn new(table: Arc<Table>, class: IoClass) -> TableStream {
        TableStream::within(table, StreamOptions::alone(class), MergeRange::default())
    }

    pub(crate) fn within(table: Arc<Table>, options: StreamOptions, piece: MergeRange) -> TableStream {
        TableStream {
            batches: Batches::new(table.clone(), options.class, options.batch_bytes),
            piece,
            table,
            options,
            plain: None,
            leaf: None,
            leaf_bytes: 0,
            is_hot: false,
            entry: LeafCursor::default(),
            values: LeafValues::default(),
            is_first: false,
            entries: 0,
            sum: 0,
            is_whole: false,
            read: Vec::new(),
        }
    }

    /// The place of the current object.
    fn place(&self) -> CacheKey {
        self.table.cache_key(self.batches.first_unit())
    }

    /// Adds the current leaf to the cache, as a client's read would.
    fn keep(&self, leaf: Leaf) {
        let stored = &self.batches.rest()[..self.leaf_bytes];
        let bytes = Bytes::Own(Buffer::of(self.plain.as_deref().unwrap_or(stored)));
        let fences = EntryFences::new(&leaf, &bytes).ok();
        self.table
            .keep(self.place(), Arc::new(Object::Data { leaf, fences, bytes, packed: self.plain.is_some() }));
    }

    fn next_leaf(&mut self) -> Result<()> {
        loop {
            self.batches.pass(std::mem::take(&mut self.leaf_bytes));
            self.values.clear();
            self.leaf = None;
            if !self.batches.need(OBJECT_HEAD_BYTES)? {
                return self.at_end();
            }
            let head = Head::parse(self.batches.rest())?;
            let bytes = head.length.next_multiple_of(self.table.unit_bytes);
            if !self.batches.need(bytes)? {
                return Err(Error::corrupt("an object reaches into the root"));
            }
            self.leaf_bytes = bytes;
            let bytes = self.batches.rest();
            if head.kind == ObjectKind::Data {
                let (leaf, plain) = Leaf::open(bytes)?;
                self.sum = sum_with(self.sum, bytes);
                if self.options.leaves_read.is_some() {
                    self.read.push((self.batches.first_unit(), [bytes[0], bytes[1], bytes[2], bytes[3]]));
                }
                self.entry.first(&leaf, plain.as_deref().unwrap_or(bytes))?;
                (self.leaf, self.plain) = (Some(leaf), plain);
                self.is_first = true;
                self.entries += self.entry.is_valid() as u64;
                match self.table.library.policy {
                    CachePolicy::Lru => self.keep(leaf),
                    CachePolicy::CompactionAware => {
                        self.is_hot = self.table.library.cache.is_in_use(self.place());
                    }
                }
                return Ok(());
            }
            head.check(bytes, head.kind)?;
        }
    }

    /// Moves to the first entry of the piece.
    fn start(&mut self) -> Result<()> {
        let (begin, end) = self.table.units_of(&self.piece)?;
        self.batches.begin(begin, end);
        self.leaf_bytes = 0;
        self.is_whole = begin == 0 && end == self.table.root_unit;
        self.next_leaf()?;
        while let Some(after) = &self.piece.after
            && self.leaf.is_some()
            && self.entry.key() <= &after[..]
        {
            self.step()?;
        }
        self.stop()
    }

    fn step(&mut self) -> Result<()> {
        let Some(leaf) = self.leaf else { return Ok(()) };
        self.is_first = false;
        let bytes = self.plain.as_deref().unwrap_or(self.batches.rest());
        self.entry.next(&leaf, bytes)?;
        if self.entry.is_valid() {
            self.entries += 1;
            return Ok(());
        }
        self.next_leaf()
    }

    /// Ends the stream after the last key of the piece.
    fn stop(&mut self) -> Result<()> {
        if let Some(until) = &self.piece.until
            && self.leaf.is_some()
            && self.entry.key() > &until[..]
        {
            self.leaf = None;
        }
        Ok(())
    }

    /// The bytes of the current leaf, unpacked.
    fn entries_of_leaf(&self) -> &[u8] {
        self.plain.as_deref().unwrap_or(self.batches.rest())
    }

    /// See [`Stream::leaf_end`]. `None` for ingested tables, whose stored stamps are placeholders, for tables that
    /// point into logs, and if the piece ends within the leaf.
    fn end_of_leaf(&self, last: &mut Vec<u8>) -> Result<Option<Stamp>> {
        let Some(leaf) =
            self.leaf.filter(|_| self.is_first && self.table.own_seq == 0 && !self.table.meta.points())
        else {
            return Ok(None);
        };
        let stamp = leaf.last(self.entries_of_leaf(), last)?;
        Ok(stamp.filter(|_| self.piece.until.as_ref().is_none_or(|until| *last <= *until)))
    }

    fn pass_leaf(&mut self) -> Result<Option<StoredLeaf>> {
        let mut last = Vec::new();
        let Some(leaf) = self.leaf.filter(|_| self.is_first) else { return Ok(None) };
        leaf.last(self.entries_of_leaf(), &mut last)?;
        let entries = leaf.count(self.entries_of_leaf())?;
        let place = self.place();
        let stored = StoredLeaf {
            bytes: self.batches.rest()[..self.leaf_bytes].to_vec(),
            plain: self.plain.take(),
            leaf,
            from: Stored { table: place.table, offset: place.unit as u64 * self.table.unit_bytes as u64 },
            is_hot: self.is_hot,
            first: self.entry.key().to_vec(),
            last,
            entries,
        };
        self.entries += stored.entries - 1;
        self.next_leaf()?;
        self.stop()?;
        Ok(Some(stored))
    }

    fn at_end(&self) -> Result<()> {
        let meta = &self.table.meta;
        if !self.is_whole {
            return Ok(());
        }
        if self.entries != meta.entries {
            let what = format!("{} entries where there should be {}", self.entries, meta.entries);
            return Err(Error::corrupt(what));
        }
        check_sum(&self.table, self.sum)
    }

    fn named<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|e| e.context(format!("table {}", self.table.meta.number)))
    }
}

impl Stream for TableStream {
    fn is_valid(&self) -> bool {
        self.leaf.is_some()
    }
    fn key(&self) -> &[u8] {
        self.entry.key()
    }
    fn stamp(&self) -> Stamp {
        self.table.stamp(self.entry.stamp())
    }
    fn value(&self) -> &[u8] {
        self.values.value(&self.entry, self.entry.value(self.entries_of_leaf()))
    }
    fn value_bytes(&self) -> usize {
        value_bytes(self.entry.stamp(), self.entry.value(self.entries_of_leaf()))
    }
    fn load(&mut self) -> Result<()> {
        let Some(leaf) = &self.leaf else { return Ok(()) };
        let bytes = self.plain.as_deref().unwrap_or(self.batches.rest());
        let loaded = self.values.load(&self.table, (leaf, bytes), &self.entry, self.options.batch_bytes);
        self.named(loaded)
    }

    fn is_hot(&self) -> bool {
        self.is_hot
    }
    fn first(&mut self) -> Result<()> {
        let result = self.start();
        self.named(result)
    }

    fn next(&mut self) -> Result<()> {
        let result = self.step().and_then(|()| self.stop());
        self.named(result)
    }

    fn leaf_end(&mut self, last: &mut Vec<u8>) -> Result<Option<Stamp>> {
        let result = self.end_of_leaf(last);
        self.named(result)
    }

    fn leaf_hides(&self, key: &[u8], stamp: Stamp) -> Result<bool> {
        let Some(leaf) = &self.leaf else { return Ok(false) };
        let newest = leaf.get(self.entries_of_leaf(), key, Stamp(u64::MAX));
        self.named(newest.map(|found| found.is_some_and(|(newest, _)| newest > stamp)))
    }

    fn take_leaf(&mut self) -> Result<Option<StoredLeaf>> {
        let result = self.pass_leaf();
        self.named(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::table::{Grain, Library, TableBuilder};
    use crate::media::TableReader;
    use vellum_base::{Env, Nanos};
    use vellum_sim::Sim;

    /// A table in memory; a read of it takes a while.
    struct Slow {
        bytes: Vec<u8>,
        env: Arc<dyn Env>,
    }

    const READ: Nanos = Nanos::from_us(100);

    impl TableReader for Slow {
        fn read(&self, offset: u64, out: &mut [u8], _class: IoClass) -> Result<Nanos> {
            out.copy_from_slice(&self.bytes[offset as usize..][..out.len()]);
            self.env.sleep_until(self.env.now() + READ);
            Ok(Nanos::ZERO)
        }
        fn bytes(&self) -> Result<u64> {
            Ok(self.bytes.len() as u64)
        }
        fn asking_waits(&self) -> bool {
            true
        }
    }

    #[test]
    fn the_next_batch_is_read_while_the_one_at_hand_is_worked_on() {
        let sim = Sim::new(1);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let grain = Grain::default();
            let mut builder = TableBuilder::new(1, 10, grain);
            (0..1000u32).for_each(|n| builder.add(&n.to_be_bytes(), Stamp(n.into()), &[7; 1000]));
            let finished = builder.finish();
            let reader = Slow { bytes: finished.tail, env: env.clone() };
            let library = Library::without_cache(env.clone());
            let table = Table::open(&library, Arc::new(reader), finished.meta).unwrap();
            let mut stream = TableStream::within(
                Arc::new(table),
                StreamOptions::beside(IoClass::Background, 1, 0),
                MergeRange::default(),
            );
            let begun = env.now();
            stream.first().unwrap();
            let mut entries = 0;
            while stream.is_valid() {
                entries += 1;
                env.sleep_until(env.now() + Nanos::from_us(10));
                stream.next().unwrap();
            }
            assert_eq!(entries, 1000);
            // Of a batch of 60 entries the work takes longer than a read: only the first is waited for.
            assert_eq!(env.now() - begun, Nanos::from_us(10 * 1000) + READ);
        });
    }

    #[test]
    fn batches_of_all_inputs_keep_to_the_bytes_given() {
        for bytes in [0, 1 << 20, 8 << 20, 64 << 20, usize::MAX] {
            for inputs in [0, 1, 2, 13, 45] {
                let batch = StreamOptions::beside(IoClass::Background, inputs, bytes).batch_bytes;
                let all = 2 * batch * inputs;
                assert!(all <= bytes.max(2 * BATCH_BYTES_MIN * inputs), "{all} of {bytes} by {inputs}");
                assert!((BATCH_BYTES_MIN..=BATCH_BYTES_MAX).contains(&batch));
                assert!(batch.is_multiple_of(TABLE_UNIT_BYTES));
            }
        }
    }
}
