//! Tables: leaves, branches, a root and a foot. See docs/formats/kv-table.md.
//!
//! Invariants
//! 1. Foot and root of an open table were verified; everything else is verified when it is read. Only objects within
//!    the table and of possible size are read.
//! 2. A table marked obsolete is listed in [`crate::obsolete::Obsolete`] when its last holder drops it, and erased from
//!    there.

mod ahead;
mod buffer;
mod build;
mod cached;
mod check;
mod cursor;
mod entry_fences;
mod filter;
mod foot;
pub(crate) mod fuzzed;
mod get;
mod grain;
mod leaf;
mod leaf_build;
mod leaves_read;
mod lineage;
mod mapped;
mod object;
mod pack;
mod pins;
mod pointed;
mod runs;
mod salvage;
mod stored;
mod stream;
mod warm;

pub(crate) use build::TableBuilder;
pub(crate) use cached::Object;
pub(crate) use cursor::TableCursor;
pub(crate) use filter::hash;
pub(crate) use foot::Foot;
pub(crate) use grain::Grain;
pub(crate) use leaves_read::LeavesRead;
pub(crate) use lineage::Lineage;
pub(crate) use pins::Pins;
pub(crate) use salvage::{Salvaged, foot_of, salvage};
#[cfg(test)]
pub(crate) use stored::leaf_of;
pub(crate) use stored::{StoredLeaf, StoredSpan};
pub(crate) use stream::{StreamOptions, TableStream};
pub(crate) use warm::Warmed;

use crate::bytes::Fields;
use crate::journal::{LogPart, TableMeta};
use crate::key::Stamp;
use crate::lsm::cache::{Cache, CacheKey};
use crate::lsm::compaction::MergeRange;
use crate::lsm::kept_log::{KeptLog, KeptLogs};
use crate::lsm::striped::Striped;
use crate::lsm::units::Blocks;
use crate::media::{Media, TableReader, check_whole};
use crate::obsolete::Obsolete;
use crate::options::CachePolicy;
use buffer::Buffer;
use cached::OwnLeaf;
use filter::FilterCounts;
use foot::FOOT_BYTES;
use leaf::{Leaf, LeafCursor};
use mapped::Mapped;
use object::{OBJECT_BYTES_MAX, ObjectKind};
use std::sync::Arc;
use vellum_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::{Env, Error, IoClass, Kind, Result};

/// State shared by all tables of a store.
pub(crate) struct Library {
    pub env: Arc<dyn Env>,
    pub cache: Cache,
    pub policy: CachePolicy,
    /// See [`crate::Options::map_files`].
    pub map_files: bool,
    pub obsolete: Obsolete,
    pub filters: FilterCounts,
    pub warmed: Warmed,
    pub kept_logs: KeptLogs,
    /// Number of values that clients read from logs, as they were neither mapped nor cached.
    pub pointed_reads: Arc<Striped>,
}

/// An open table.
pub(crate) struct Table {
    pub meta: TableMeta,
    /// Bytes of a unit.
    pub unit_bytes: usize,
    library: Arc<Library>,
    reader: Arc<dyn TableReader>,
    mapped: Option<Mapped>,
    root: Leaf,
    root_bytes: Box<[u8]>,
    pins: Arc<Pins>,
    /// Data leaves and branches are below this unit.
    root_unit: usize,
    /// The sequence number of every entry, if the table was ingested; else 0.
    own_seq: u64,
    /// Bytes of its keys and values, uncompressed.
    pub data_bytes: u64,
    obsolete: AtomicBool,
    /// First units of objects that went to the cache, and others near them.
    cached: Blocks,
    /// The logs that it points into.
    pub logs: Vec<Arc<KeptLog>>,
}

/// Where a data leaf is.
#[derive(Clone, Copy, Debug)]
struct LeafPlace {
    unit: usize,
    units: usize,
}

/// Where a branch is.
#[derive(Clone, Copy, Debug)]
struct BranchPlace {
    unit: usize,
    filter_units: usize,
    index_units: usize,
}

/// What is read when opening a table.
struct Parts {
    unit_bytes: usize,
    root: Leaf,
    root_bytes: Box<[u8]>,
    root_unit: usize,
    own_seq: u64,
    data_bytes: u64,
}

impl Table {
    /// Opens a table: reads and checks its foot and its root.
    pub(crate) fn open(
        library: &Arc<Library>,
        reader: Arc<dyn TableReader>,
        meta: TableMeta,
    ) -> Result<Table> {
        let result = check_whole(&*reader).and_then(|()| Table::open_parts(library, &*reader, &meta));
        let Parts { unit_bytes, root, root_bytes, root_unit, own_seq, data_bytes } =
            result.map_err(|e| e.context(format!("table {}", meta.number)))?;
        let obsolete = AtomicBool::new(false);
        let cached = Blocks::of(root_unit, unit_bytes);
        library.warmed.take(meta.number).into_iter().for_each(|unit| cached.mark(unit as usize));
        Ok(Table {
            meta,
            unit_bytes,
            library: library.clone(),
            mapped: library.map_files.then(|| reader.map()).flatten().map(|map| Mapped::new(map, unit_bytes)),
            reader,
            pins: Pins::new(&root, &root_bytes),
            root,
            root_bytes,
            root_unit,
            own_seq,
            data_bytes,
            obsolete,
            cached,
            logs: Vec::new(),
        })
    }

    /// Opens a table of `media`, and the logs that it points into. Its first and last key are read if the manifest has
    /// only their beginnings. If they are damaged, a wider range takes their place, and `is_cut` stays
    /// ([`Version::check_guesses`](crate::lsm::version::Version::check_guesses)).
    pub(crate) fn on(library: &Arc<Library>, media: &dyn Media, meta: TableMeta) -> Result<Arc<Table>> {
        let open = |part: &LogPart| KeptLogs::open(library, media, *part);
        let logs: Result<Vec<_>> = meta.logs.iter().map(open).collect();
        let logs = logs.map_err(|e| e.context(format!("table {}", meta.number)))?;
        let mut table = Table::open(library, media.open_table(meta.number)?, meta)?;
        table.logs = logs;
        let mut table = Arc::new(table);
        if table.meta.is_cut {
            let read = table.bounds();
            let meta = &mut Arc::get_mut(&mut table).expect("no other holder yet").meta;
            match read {
                Ok(bounds) => ((meta.smallest, meta.largest), meta.is_cut) = (bounds, false),
                Err(error) if error.kind() == Kind::Corrupt => meta.largest = above(&meta.largest),
                Err(error) => return Err(error),
            }
        }
        Ok(table)
    }

    fn open_parts(library: &Library, reader: &dyn TableReader, meta: &TableMeta) -> Result<Parts> {
        let read = |offset: u64, bytes: usize| {
            let mut bytes = vec![0; bytes];
            let at = reader.read(offset, &mut bytes, IoClass::Foreground)?;
            library.env.sleep_until(at);
            Ok::<_, Error>(bytes)
        };
        let Some(foot_at) = meta.bytes.checked_sub(FOOT_BYTES as u64) else {
            return Err(Error::corrupt("of impossible length"));
        };
        let foot = Foot::read(&read(foot_at, FOOT_BYTES)?)?;
        let (unit_bytes, root_unit) = (foot.unit_bytes, foot.root_unit as usize);
        if foot.entries != meta.entries || foot.root_units == 0 || foot.unit() * unit_bytes as u64 != foot_at
        {
            return Err(Error::corrupt("its foot does not fit the manifest"));
        }
        if foot.is_another(meta) {
            return Err(Error::corrupt("it is not the table that the manifest tells of"));
        }
        let root_units = foot.root_units as usize;
        if root_units * unit_bytes > OBJECT_BYTES_MAX {
            return Err(Error::corrupt("its root is of impossible length"));
        }
        let root_bytes = read((root_unit * unit_bytes) as u64, root_units * unit_bytes)?;
        let root = Leaf::check(&root_bytes, ObjectKind::Root)?;
        let own_seq = if foot.seq_max == 0 { meta.seq_max } else { 0 };
        let data_bytes = foot.data_bytes;
        Ok(Parts { unit_bytes, root, root_bytes: root_bytes.into(), root_unit, own_seq, data_bytes })
    }

    /// The stamp of an entry, given the one stored in the table.
    #[inline]
    fn stamp(&self, stored: Stamp) -> Stamp {
        match self.own_seq {
            0 => stored.shown(),
            seq => stored.shown().of(seq),
        }
    }

    /// Reads whole units as they are on the medium.
    pub(crate) fn read_raw(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let at = self.reader.read(offset, out, IoClass::Background)?;
        self.library.env.sleep_until(at);
        Ok(())
    }

    /// Marks the table obsolete, to be erased when nobody holds it any more.
    pub(crate) fn retire(&self) {
        self.obsolete.store(true, Relaxed);
        self.library.obsolete.retire(self.meta.number);
    }

    /// For each run, a key at or after its last one, in order.
    pub(crate) fn run_ends(&self) -> Result<Vec<Vec<u8>>> {
        let (mut ends, mut run) = (Vec::new(), LeafCursor::default());
        run.first(&self.root, &self.root_bytes)?;
        while run.is_valid() {
            ends.push(run.key().to_vec());
            run.next(&self.root, &self.root_bytes)?;
        }
        Ok(ends)
    }

    /// Units of the runs that may hold keys of a piece: from (inclusive), until (exclusive).
    fn units_of(&self, piece: &MergeRange) -> Result<(usize, usize)> {
        let (mut from, mut at, mut run) = (None, 0, LeafCursor::default());
        run.first(&self.root, &self.root_bytes)?;
        while run.is_valid() {
            let place = self.branch_place(run.value(&self.root_bytes))?;
            if piece.after.as_ref().is_none_or(|after| run.key() > &after[..]) {
                from.get_or_insert(at);
            }
            at = place.unit + place.filter_units + place.index_units;
            // A run that ends with the last key may be followed by older versions of it.
            if piece.until.as_ref().is_some_and(|until| run.key() > &until[..]) {
                break;
            }
            run.next(&self.root, &self.root_bytes)?;
        }
        let end = if run.is_valid() { at } else { self.root_unit };
        Ok((from.unwrap_or(end).min(end), end))
    }

    /// A branch, from the cache or the medium. It always goes to the cache, as every get in its range needs it.
    fn branch(&self, place: BranchPlace) -> Result<Arc<Object>> {
        let known = self.cache_key(place.unit);
        if let Some(object) = self.library.cache.get(known) {
            return Ok(object);
        }
        let mut bytes = Buffer::new((place.filter_units + place.index_units) * self.unit_bytes);
        self.read(place.unit, &mut bytes)?;
        let branch = Arc::new(Object::branch(bytes, place.filter_units * self.unit_bytes)?);
        self.keep(known, branch.clone());
        Ok(branch)
    }

    /// A data leaf in mapped memory, if the table is mapped and the leaf is not compressed.
    fn mapped(&self, place: LeafPlace) -> Result<Option<Arc<Object>>> {
        let Some(mapped) = &self.mapped else { return Ok(None) };
        Ok(mapped.object(place)?.map(Arc::new))
    }

    /// A compressed data leaf, from the cache or from mapped memory.
    fn unpacked(&self, place: LeafPlace) -> Result<Option<Arc<Object>>> {
        if let Some(object) = self.library.cache.get(self.cache_key(place.unit)) {
            return Ok(Some(object));
        }
        let Some(mapped) = &self.mapped else { return Ok(None) };
        Ok(mapped.unpacked(place)?.map(|leaf| Arc::new(Object::data(leaf))))
    }

    /// True if the table is mapped, and the leaf was verified lately.
    fn was_verified(&self, place: LeafPlace) -> bool {
        self.mapped.as_ref().is_some_and(|mapped| mapped.was_verified(place))
    }

    /// True if the table is mapped, and these units are in the page cache.
    fn is_resident(&self, unit: usize, units: usize) -> bool {
        self.mapped.as_ref().is_some_and(|mapped| mapped.is_resident(unit, units))
    }

    /// Prefetches a data leaf into the processor's cache, if the table is mapped.
    fn prefetch(&self, place: LeafPlace) {
        if let Some(mapped) = &self.mapped {
            mapped.prefetch(place);
        }
    }

    /// A data leaf, from the cache or the medium. It goes to the cache if that admits it.
    fn data(&self, place: LeafPlace) -> Result<Arc<Object>> {
        let known = self.cache_key(place.unit);
        if let Some(object) = self.library.cache.get(known) {
            return Ok(object);
        }
        let object = Arc::new(Object::data(self.fetch(place)?));
        if self.library.cache.admits(known, place.units * self.unit_bytes) {
            self.keep(known, object.clone());
        }
        Ok(object)
    }

    /// A data leaf that is not in the cache: from mapped memory, if it is compressed there, or from the medium.
    fn fetch(&self, place: LeafPlace) -> Result<OwnLeaf> {
        if let Some(mapped) = &self.mapped
            && let Some(leaf) = mapped.unpacked_at_hand(place)?
        {
            return Ok(leaf);
        }
        let mut stored = Buffer::new(place.units * self.unit_bytes);
        self.read(place.unit, &mut stored)?;
        let leaf = OwnLeaf::open(stored)?;
        if let (true, Some(mapped)) = (leaf.packed, &self.mapped) {
            mapped.note_packed(place);
        }
        Ok(leaf)
    }

    /// Reads units for a client.
    fn read(&self, unit: usize, out: &mut [u8]) -> Result<()> {
        let at = self.reader.read((unit * self.unit_bytes) as u64, out, IoClass::Foreground)?;
        self.library.env.sleep_until(at);
        Ok(())
    }

    fn cache_key(&self, unit: usize) -> CacheKey {
        CacheKey { table: self.meta.number, unit: unit as u32 }
    }

    /// Gives an object to the cache.
    fn keep(&self, place: CacheKey, object: Arc<Object>) {
        self.cached.mark(place.unit as usize);
        self.library.cache.insert(place, object);
    }

    fn leaf_place(&self, value: &[u8]) -> Result<LeafPlace> {
        let [unit, units] = self.numbers(value)?;
        self.within(unit, &[units])?;
        Ok(LeafPlace { unit, units })
    }

    fn branch_place(&self, value: &[u8]) -> Result<BranchPlace> {
        let [unit, filter_units, index_units] = self.numbers(value)?;
        self.within(unit, &[filter_units, index_units])?;
        Ok(BranchPlace { unit, filter_units, index_units })
    }

    fn numbers<const N: usize>(&self, value: &[u8]) -> Result<[usize; N]> {
        let (mut fields, mut numbers) = (Fields::new(value), [0; N]);
        for number in &mut numbers {
            let field = fields.varint().filter(|n| *n <= u32::MAX as u64);
            *number = field.ok_or_else(|| Error::corrupt("an index entry does not decode"))? as usize;
        }
        Ok(numbers)
    }

    /// An error unless adjacent objects of these units each fit at `unit`.
    fn within(&self, unit: usize, objects: &[usize]) -> Result<()> {
        let units: usize = objects.iter().sum();
        if units == 0 || unit + units > self.root_unit {
            return Err(Error::corrupt("an index entry points outside"));
        }
        match objects.iter().all(|units| *units * self.unit_bytes <= OBJECT_BYTES_MAX) {
            true => Ok(()),
            false => Err(Error::corrupt("an index entry names an object of impossible length")),
        }
    }
}

/// The shortest key above all that begin like this one. No keyspace has number 255.
fn above(begin: &[u8]) -> Vec<u8> {
    let upto = begin.iter().rposition(|byte| *byte < u8::MAX).map_or(0, |at| at + 1);
    let mut above = begin[..upto].to_vec();
    above.last_mut().into_iter().for_each(|last| *last += 1);
    above
}

impl Drop for Table {
    fn drop(&mut self) {
        if self.obsolete.load(Relaxed) {
            if self.library.policy == CachePolicy::CompactionAware {
                self.library.cache.remove_units(self.meta.number, self.cached.units());
            }
            self.logs.clear(); // those that no other table points into are buried first
            self.library.obsolete.add_table(self.meta.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::leaf_build::LeafBuilder;
    use super::object::TABLE_UNIT_BYTES;
    use super::*;
    use crate::bytes::put_varint;
    use crate::key::LookupKey;
    use vellum_base::{Nanos, RealEnv};

    const UNITS_MAX: u32 = (OBJECT_BYTES_MAX / TABLE_UNIT_BYTES) as u32;

    /// A long table that is zero up to its end.
    struct Hollow {
        bytes: u64,
        end: Vec<u8>,
    }

    impl TableReader for Hollow {
        fn read(&self, offset: u64, out: &mut [u8], _class: IoClass) -> Result<Nanos> {
            assert!(out.len() <= 2 * OBJECT_BYTES_MAX, "{} bytes are read in one go", out.len());
            let end_at = (self.bytes - self.end.len() as u64).saturating_sub(offset) as usize;
            if let Some(out) = out.get_mut(end_at..) {
                let from = (offset + end_at as u64 + self.end.len() as u64 - self.bytes) as usize;
                out.copy_from_slice(&self.end[from..][..out.len()]);
            }
            Ok(Nanos::ZERO)
        }
        fn bytes(&self) -> Result<u64> {
            Ok(self.bytes)
        }
    }

    /// A table with a root behind so many units of nothing, which its foot says has so many, and of which the one entry
    /// names a filter and an index of so many.
    fn open(before: u32, root_units: u32, branch: [u32; 2]) -> Result<Table> {
        let (mut end, mut root, mut place) = (Vec::new(), LeafBuilder::default(), Vec::new());
        [0, branch[0], branch[1]].into_iter().for_each(|number| put_varint(&mut place, number.into()));
        root.add(b"key", Stamp(0), &place, 0);
        root.finish(&mut end, ObjectKind::Root, TABLE_UNIT_BYTES);
        let (root_unit, lineage) = (before + 1 - root_units, Lineage::default());
        let (unit_bytes, seq_floor, data_bytes) = (TABLE_UNIT_BYTES, 0, 0);
        let (entries, deletes, seq_min, seq_max) = (1, 0, 1, 1);
        Foot {
            unit_bytes,
            entries,
            deletes,
            seq_min,
            seq_max,
            root_unit,
            root_units,
            data_bytes,
            seq_floor,
            sum: None,
            lineage,
        }
        .write(&mut end);
        let bytes = u64::from(before) * TABLE_UNIT_BYTES as u64 + end.len() as u64;
        let library = Library::without_cache(RealEnv::new());
        let meta = TableMeta { number: 1, bytes, entries, seq_max, ..TableMeta::default() };
        Table::open(&library, Arc::new(Hollow { bytes, end }), meta)
    }

    #[test]
    fn what_is_too_long_for_an_object_is_not_read() {
        let long = 3 * UNITS_MAX;
        let error = open(long, long, [1, 1]).map(drop).unwrap_err();
        assert!(error.to_string().contains("its root is of impossible length"), "{error}");
        for branch in [[long - 1, 1], [1, long - 1], [UNITS_MAX, UNITS_MAX + 1]] {
            let table = open(long, 1, branch).unwrap();
            let wanted = LookupKey { key: b"key", stamp: Stamp(u64::MAX), hash: 0 };
            let error = table.get(wanted, &mut Vec::new()).unwrap_err();
            assert!(error.to_string().contains("an object of impossible length"), "{error}");
        }
    }
}
