//! Building the objects of a table from entries in order.

mod size;

use super::filter;
use super::foot::Foot;
use super::grain::Grain;
use super::leaf_build::LeafBuilder;
use super::lineage::Lineage;
use super::object::{self, ObjectKind};
use super::pack::{Packer, Step};
use super::runs::{Edge, Runs};
use super::stored::{StoredLeaf, StoredSpan};
use super::warm::{Warm, WarmObject};
use crate::bytes::put_varint;
use crate::journal::{LogPart, TableMeta};
use crate::key::{Stamp, separator};
use crate::lsm::kept_log::Pointer;
use crate::options::Compression;
use crate::sum::sum_with;
use vellum_base::Result;

/// A leaf is widened by units if closing it would waste more than one in so many bytes.
pub(super) const WASTE_MAX: usize = 8;
/// A run ends when its index leaf would exceed `INDEX_BYTES_MAX`, or at `RUN_ENTRIES_MAX` entries.
const INDEX_BYTES_MAX: usize = 4096;
const RUN_ENTRIES_MAX: usize = 16_384;

/// A leaf is closed at the end of a run of sequence numbers if it has at least one in so many of its bytes then. Each
/// leaf costs some 80 bytes for its head, padding, and entries in index and lists, so shorter ones are not worth it.
const RUN_PARTS_MAX: usize = 6;

/// Turns entries into the bytes of a table. The caller takes [`TableBuilder::pending`] away as it grows.
pub(crate) struct TableBuilder {
    grain: Grain,
    /// Finished objects that were not taken yet.
    pending: Vec<u8>,
    /// Parts of `pending` that are also stored elsewhere.
    kept: Vec<StoredSpan>,
    /// Units taken so far.
    units_before: usize,
    leaf: LeafBuilder,
    /// Most bytes of the open leaf.
    leaf_room: usize,
    runs: Runs,
    /// The open leaf has an entry that clients read.
    leaf_is_hot: bool,
    /// Closed objects worth keeping in the cache.
    warm: Vec<WarmObject>,
    /// Compresses leaves; `None` if they are not compressed.
    packer: Option<Packer>,
    index: LeafBuilder,
    root: LeafBuilder,
    hashes: Vec<u64>,
    bits_per_key: u32,
    /// Place of the last closed leaf, until its separator is known.
    closed: Option<(usize, usize)>,
    closed_last_key: Vec<u8>,
    /// Totals so far; `bytes` and `largest` are set at the end.
    meta: TableMeta,
    /// Bytes of keys and values.
    data_bytes: u64,
    seq_floor: u64,
    /// Sum of the leaves written so far.
    sum: u32,
    lineage: Lineage,
}

/// A finished table: its last bytes, and its description for the manifest.
pub(crate) struct Finished {
    pub tail: Vec<u8>,
    /// Parts of the tail that are also stored elsewhere.
    pub kept: Vec<StoredSpan>,
    /// Objects of the tail that are worth keeping in the cache.
    pub warm: Warm,
    pub meta: TableMeta,
}

impl TableBuilder {
    pub(crate) fn new(number: u64, bits_per_key: u32, grain: Grain) -> TableBuilder {
        TableBuilder {
            grain,
            pending: Vec::new(),
            kept: Vec::new(),
            units_before: 0,
            leaf: LeafBuilder::default(),
            leaf_room: grain.leaf_bytes,
            runs: Runs::default(),
            leaf_is_hot: false,
            warm: Vec::new(),
            packer: None,
            index: LeafBuilder::default(),
            root: LeafBuilder::default(),
            hashes: Vec::new(),
            bits_per_key,
            closed: None,
            closed_last_key: Vec::new(),
            meta: TableMeta { number, seq_min: u64::MAX, ..TableMeta::default() },
            data_bytes: 0,
            seq_floor: 0,
            sum: 0,
            lineage: Lineage::default(),
        }
    }

    /// Records the tables that this one replaces.
    pub(crate) fn descending(self, lineage: Lineage) -> TableBuilder {
        TableBuilder { lineage, ..self }
    }

    /// Compresses leaves.
    pub(crate) fn packing(self, compression: Compression) -> TableBuilder {
        TableBuilder { packer: Packer::new(compression, self.grain.leaf_bytes), ..self }
    }

    /// For a table whose sequence number is assigned later; it will be at least `seq_floor`.
    pub(crate) fn ingesting(self, seq_floor: u64) -> TableBuilder {
        TableBuilder { seq_floor, ..self }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.meta.entries == 0
    }
    /// Finished objects not taken yet, and the parts of them that are also stored elsewhere.
    pub(crate) fn pending(&self) -> (&[u8], &[StoredSpan]) {
        (&self.pending, &self.kept)
    }
    /// Takes the list of objects of `pending` that are worth keeping in the cache.
    pub(crate) fn warm(&mut self) -> Warm {
        let objects = std::mem::take(&mut self.warm);
        Warm { objects, first_unit: self.units_before, unit_bytes: self.grain.unit_bytes }
    }
    /// Marks the last entry as one that clients read.
    pub(crate) fn heat(&mut self) {
        self.leaf_is_hot = true;
    }
    /// Bytes of the table so far, whether taken or not.
    pub(crate) fn bytes(&self) -> usize {
        self.units_before * self.grain.unit_bytes + self.pending.len()
    }
    /// To be called after all of `pending` was taken.
    pub(crate) fn taken(&mut self) {
        self.units_before += self.pending.len() / self.grain.unit_bytes;
        self.pending.clear();
        self.kept.clear();
    }

    /// Closes the open leaf, full or not, and appends `leaf` unchanged. Entries come in order.
    pub(crate) fn keep(&mut self, leaf: &StoredLeaf) -> Result<()> {
        self.close_open();
        self.runs = Runs::default();
        self.index_closed(&leaf.first);
        let unit = self.next_unit();
        self.kept.push(StoredSpan { start: self.pending.len(), bytes: leaf.bytes.len(), from: leaf.from });
        self.pending.extend_from_slice(&leaf.bytes);
        let mut last_hash = None;
        leaf.each(|key, stamp, value| {
            self.count(key, stamp, value);
            self.closed_last_key.clear();
            self.closed_last_key.extend_from_slice(key);
            let hash = filter::hash(key);
            if last_hash.replace(hash) != Some(hash) {
                self.hashes.push(hash);
            }
            Ok(())
        })?;
        self.leaf_is_hot = leaf.is_hot;
        self.closed(unit, leaf.bytes.len() / self.grain.unit_bytes);
        Ok(())
    }

    /// Makes leaves of the entries that are collected to be compressed.
    pub(crate) fn pack_collected(&mut self) {
        if self.is_packing() {
            self.close_open();
        }
    }

    /// Closes the open leaf.
    fn close_open(&mut self) {
        while !self.leaf.is_empty() {
            if self.is_packing() { self.pack(true) } else { self.close_leaf() }
        }
    }

    /// Adds the next entry. Entries come in order.
    pub(crate) fn add(&mut self, key: &[u8], stamp: Stamp, value: &[u8]) {
        self.count(key, stamp, value);
        self.put(key, stamp, value, filter::hash(key));
    }

    /// Records that the value of the last entry is in a log.
    pub(crate) fn points(&mut self, pointer: &Pointer) {
        self.meta.pointed_bytes += pointer.bytes;
        match self.meta.logs.iter_mut().find(|log| log.number == pointer.log) {
            Some(log) => log.bytes = log.bytes.max(pointer.end()),
            None => self.meta.logs.push(LogPart { number: pointer.log, bytes: pointer.end() }),
        }
    }

    fn count(&mut self, key: &[u8], stamp: Stamp, value: &[u8]) {
        if self.meta.entries == 0 {
            self.meta.smallest = key.to_vec();
        }
        let is_older = key == self.last_key(); // no key is empty, but the last one before the first entry is
        let meta = &mut self.meta;
        meta.entries += 1;
        meta.older += u64::from(is_older);
        meta.deletes += (stamp.kind() == Some(crate::key::EntryKind::Delete)) as u64;
        meta.seq_min = meta.seq_min.min(stamp.seq());
        meta.seq_max = meta.seq_max.max(stamp.seq());
        self.data_bytes += (key.len() + value.len()) as u64;
    }

    /// The key of the last entry.
    fn last_key(&self) -> &[u8] {
        if self.leaf.is_empty() { &self.closed_last_key } else { self.leaf.last_key() }
    }

    fn is_packing(&self) -> bool {
        self.packer.as_ref().is_some_and(|packer| !packer.is_resting())
    }

    fn put(&mut self, key: &[u8], stamp: Stamp, value: &[u8], hash: u64) {
        if self.is_packing() {
            self.index_closed(key);
            self.leaf.add(key, stamp, value, hash);
            self.pack(false);
        } else {
            self.cut_at_run(stamp);
            self.make_room(key, stamp, value);
            self.leaf.add(key, stamp, value, hash);
        }
    }

    /// Closes the open leaf at the start or end of a run that the entry of stamp `next` reveals, if enough remains in
    /// it.
    fn cut_at_run(&mut self, next: Stamp) {
        if !self.grain.by_runs {
            return;
        }
        let count = match self.runs.next(next.seq()) {
            Edge::None => return,
            Edge::Began => self.leaf.count().saturating_sub(1),
            Edge::Ended => self.leaf.count(),
        };
        if self.leaf.bytes_of(count) * RUN_PARTS_MAX < self.grain.leaf_bytes {
            return;
        }
        let (rest, is_hot) = (self.leaf.split_off(count), self.leaf_is_hot);
        self.close_leaf();
        self.leaf_room = self.grain.leaf_bytes;
        rest.each(|_, key, stamp, value, hash| {
            self.make_room(key, stamp, value);
            self.leaf.add(key, stamp, value, hash);
            self.leaf_is_hot = is_hot;
        });
    }

    /// Makes compressed leaves of the collected entries, if there are enough of them, or `last`.
    fn pack(&mut self, last: bool) {
        while let Some(packer) = &mut self.packer {
            match packer.decide(&self.leaf, last) {
                Step::More => return,
                Step::Leaf(count) => self.close_packed(count),
                Step::Plain => {
                    let collected = std::mem::take(&mut self.leaf);
                    self.leaf_room = self.grain.leaf_bytes;
                    return collected.each(|_, key, stamp, value, hash| self.put(key, stamp, value, hash));
                }
            }
        }
    }

    /// Writes the first `count` entries as a compressed leaf; the others begin the next one.
    fn close_packed(&mut self, count: usize) {
        let Some(packer) = &self.packer else { return };
        let (unit, start) = (self.next_unit(), object::begin(&mut self.pending));
        let (packed, restarts, plain, codec) = packer.packed();
        self.pending.extend_from_slice(packed);
        let kind = (ObjectKind::Data, codec);
        let units =
            object::end_packed(&mut self.pending, start, kind, restarts, plain, self.grain.unit_bytes);
        self.closed(unit, units);
        let collected = std::mem::take(&mut self.leaf);
        self.hash(collected.hashes().take(count));
        collected.each(|at, key, stamp, value, hash| {
            if at < count {
                self.closed_last_key.clear();
                self.closed_last_key.extend_from_slice(key);
            } else {
                self.index_closed(key);
                self.leaf.add(key, stamp, value, hash);
            }
        });
    }

    /// Notes that a leaf was written; its separator follows from the next key.
    fn closed(&mut self, unit: usize, units: usize) {
        let start = (unit - self.units_before) * self.grain.unit_bytes;
        self.sum = sum_with(self.sum, &self.pending[start..]);
        self.closed = Some((unit, units));
        if std::mem::take(&mut self.leaf_is_hot) {
            self.warm.push(WarmObject { unit, units, filter_units: None });
        }
    }

    /// Adds hashes of keys to the filter, once for the adjacent versions of a key.
    fn hash(&mut self, hashes: impl Iterator<Item = u64>) {
        let mut last = None;
        for hash in hashes.filter(|hash| last.replace(*hash) != Some(*hash)) {
            self.hashes.push(hash);
        }
    }

    /// Closes or widens the open leaf, if this entry does not fit.
    fn make_room(&mut self, key: &[u8], stamp: Stamp, value: &[u8]) {
        let Grain { unit_bytes, leaf_bytes, leaf_bytes_max, .. } = self.grain;
        if !self.leaf.is_empty() {
            let needed = self.leaf.bytes_with(key, stamp, value);
            if needed <= self.leaf_room {
                return;
            }
            let wider = needed.next_multiple_of(unit_bytes);
            let room = self.leaf.bytes().next_multiple_of(unit_bytes);
            let waste = room - self.leaf.bytes();
            if waste * WASTE_MAX > room && wider <= leaf_bytes_max {
                self.leaf_room = wider;
                return;
            }
            self.close_leaf();
        }
        self.index_closed(key);
        let alone = self.leaf.bytes_with(key, stamp, value).next_multiple_of(unit_bytes);
        // Independent of the previous leaf: one large value must not lead to large leaves of small ones.
        self.leaf_room = alone.max(leaf_bytes);
    }

    /// The unit at which the next object begins.
    fn next_unit(&self) -> usize {
        self.bytes() / self.grain.unit_bytes
    }

    /// Closes a leaf that is not compressed.
    fn close_leaf(&mut self) {
        let unit = self.next_unit();
        self.closed_last_key.clear();
        self.closed_last_key.extend_from_slice(self.leaf.last_key());
        let leaf = std::mem::take(&mut self.leaf);
        self.hash(leaf.hashes());
        self.leaf = leaf;
        let units = self.leaf.finish(&mut self.pending, ObjectKind::Data, self.grain.unit_bytes);
        self.closed(unit, units);
        self.packer.iter_mut().for_each(Packer::rested);
    }

    /// Adds the closed leaf to the index, now that the next key is known. Ends the run if it is long enough.
    fn index_closed(&mut self, next: &[u8]) {
        let Some(place) = self.closed.take() else { return };
        let last = &self.closed_last_key;
        add_place(&mut self.index, &separator(last, next), &[place.0, place.1]);
        if self.index.bytes() + 128 > INDEX_BYTES_MAX || self.hashes.len() >= RUN_ENTRIES_MAX {
            self.close_run();
        }
    }

    /// Ends the run: filter, index leaf, and their entry in the root.
    fn close_run(&mut self) {
        if self.index.is_empty() {
            return;
        }
        let (unit, unit_bytes) = (self.next_unit(), self.grain.unit_bytes);
        let filter_units = filter::build(&mut self.pending, &self.hashes, self.bits_per_key, unit_bytes);
        self.hashes.clear();
        let last = self.index.last_key().to_vec();
        let index_units = self.index.finish(&mut self.pending, ObjectKind::Index, unit_bytes);
        add_place(&mut self.root, &last, &[unit, filter_units, index_units]);
        self.warm.push(WarmObject {
            unit,
            units: filter_units + index_units,
            filter_units: Some(filter_units),
        });
    }

    /// Ends the table, which has at least one entry.
    pub(crate) fn finish(mut self) -> Finished {
        self.close_open();
        let last = self.closed_last_key.clone();
        self.meta.largest = last.clone();
        if let Some(place) = self.closed.take() {
            add_place(&mut self.index, &last, &[place.0, place.1]);
        }
        self.close_run();
        let (root_unit, unit_bytes) = (self.next_unit(), self.grain.unit_bytes);
        let root_units = self.root.finish(&mut self.pending, ObjectKind::Root, unit_bytes);
        self.meta.sum = Some(self.sum);
        let meta = &self.meta;
        let foot = Foot {
            unit_bytes,
            entries: meta.entries,
            deletes: meta.deletes,
            seq_min: meta.seq_min,
            seq_max: meta.seq_max,
            root_unit: root_unit as u32,
            root_units: root_units as u32,
            data_bytes: self.data_bytes,
            seq_floor: self.seq_floor,
            sum: meta.sum,
            lineage: std::mem::take(&mut self.lineage),
        };
        foot.write(&mut self.pending);
        self.meta.bytes = self.bytes() as u64;
        let warm = self.warm();
        Finished { tail: self.pending, kept: self.kept, warm, meta: self.meta }
    }
}

fn add_place(index: &mut LeafBuilder, key: &[u8], numbers: &[usize]) {
    let mut value = Vec::with_capacity(12);
    for number in numbers {
        put_varint(&mut value, *number as u64);
    }
    index.add(key, Stamp(0), &value, 0);
}

#[cfg(test)]
mod tests;
