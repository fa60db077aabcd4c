//! Writes entries in order to as many tables as they need.

use crate::freewrite::{IslandPart, Planner, Reuse, ReuseStat, Verdict};
use crate::journal::TableMeta;
use crate::key::Stamp;
use crate::lsm::core::Core;
use crate::lsm::kept_log::Pointer;
use crate::lsm::room::RoomTaken;
use crate::lsm::table::{Grain, Library, Lineage, StoredLeaf, StoredSpan, Table, TableBuilder};
use crate::media::{Intent, Media, TableWriter};
use crate::options::{Compression, Options};
use std::sync::Arc;
use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::{Error, Result};

/// Most bytes handed to a writer at a time, and no more than one in `CHUNK_OF_TABLE` of a table: the capacity of a
/// writer grows only as it is told what is shared.
const CHUNK_BYTES: usize = 256 << 10;
const CHUNK_OF_TABLE: u64 = 16;

/// Tables of at least this capacity end close to it. In smaller ones the leaf that no longer fits makes a large part.
pub(crate) const FINE_BYTES: u64 = 240 << 10;

/// Of tables that must not be larger than those they replace, however these were compressed.
const PACKED_TIGHTLY: Compression = Compression::Zstd(1);

/// See the module. Tables that were not returned by [`TableSink::finish`] are erased when it is dropped.
pub(crate) struct TableSink<'a> {
    media: &'a dyn Media,
    /// Source of table numbers.
    numbers: &'a AtomicU64,
    options: &'a Options,
    /// Size at which tables end, unless a single entry is longer.
    table_bytes: u64,
    /// Tables may be longer than that ([`longest_of_piece`]).
    is_longer: bool,
    /// The library whose cache is warmed.
    library: Option<&'a Library>,
    /// For an ingest ([`TableBuilder::ingesting`]).
    seq_floor: u64,
    lineage: Lineage,
    compression: Compression,
    grain: Grain,
    intent: Intent,
    chunk_bytes: usize,
    open: Option<Open>,
    done: Vec<TableMeta>,
    reused: ReuseStat,
    finished: bool,
    /// Counts the room taken.
    taken: RoomTaken,
    /// Buffer for an encoded pointer.
    stored: Vec<u8>,
}

struct Open {
    number: u64,
    medium: Medium,
    builder: TableBuilder,
    planner: Planner,
}

/// Where the bytes of a table go.
struct Medium {
    writer: Box<dyn TableWriter>,
    /// It is told which bytes are stored already.
    relinks: bool,
    /// Bytes that it shared instead of writing.
    relinked: u64,
}

impl<'a> TableSink<'a> {
    pub(crate) fn new(core: &'a Core, intent: Intent) -> TableSink<'a> {
        let mut sink = TableSink::on(&*core.media, &core.next_number, &core.options, intent);
        sink.library = Some(&core.library);
        if core.clones_short_islands() {
            sink.grain = sink.grain.narrow();
        }
        sink.table_bytes = core.limits.table_bytes;
        sink.lineage.gone = core.library.obsolete.retired();
        sink
    }

    /// Records that the output replaces `tables`.
    pub(crate) fn instead_of(mut self, tables: impl Iterator<Item = u64>) -> TableSink<'a> {
        self.lineage.merged = tables.collect();
        self
    }

    /// For a piece of a merge: allows tables to be longer, so that what it adds to a full table does not become a short
    /// table of its own.
    pub(crate) fn longer(mut self) -> TableSink<'a> {
        self.is_longer = !self.media.shape().whole_tables;
        self
    }

    /// Counts the room it takes in `taken`.
    pub(crate) fn counting(mut self, taken: &RoomTaken) -> TableSink<'a> {
        self.taken = taken.clone();
        self
    }

    /// A sink that writes to `media`, without a library, compression or size limit.
    pub(crate) fn on(
        media: &'a dyn Media,
        numbers: &'a AtomicU64,
        options: &'a Options,
        intent: Intent,
    ) -> TableSink<'a> {
        let (open, done) = (None, Vec::new());
        let (library, compression) = (None, Compression::None);
        let chunk_bytes = (media.shape().table_bytes / CHUNK_OF_TABLE).min(CHUNK_BYTES as u64) as usize;
        TableSink {
            media,
            numbers,
            options,
            table_bytes: u64::MAX,
            is_longer: false,
            library,
            seq_floor: 0,
            lineage: Lineage::default(),
            compression,
            grain: grain(media, options),
            intent,
            chunk_bytes,
            open,
            done,
            reused: ReuseStat::default(),
            finished: false,
            taken: RoomTaken::default(),
            stored: Vec::new(),
        }
    }

    /// Compresses as configured for `level`, unless tables of the medium are so short that a compressed leaf being
    /// collected might not fit.
    pub(crate) fn for_level(mut self, level: usize) -> TableSink<'a> {
        if self.media.shape().table_bytes >= FINE_BYTES {
            self.compression = self.options.compression[level];
        }
        self
    }

    /// For tables that must not be larger than these, which they replace, though the options may be others now:
    /// compresses if these are compressed, and takes the medium's unit where leaves need not have the one configured to
    /// be shared.
    pub(crate) fn no_larger_than<'t>(
        mut self,
        mut tables: impl Iterator<Item = &'t Arc<Table>>,
    ) -> TableSink<'a> {
        let shape = self.media.shape();
        let is_packed = |table: &Arc<Table>| table.data_bytes > table.meta.bytes;
        let is_best = matches!(self.compression, Compression::Zstd(_));
        if shape.table_bytes >= FINE_BYTES && !is_best && tables.any(is_packed) {
            self.compression = PACKED_TIGHTLY;
        }
        if self.options.reuse.mode != Reuse::Relink {
            self.grain = Grain::of(shape.unit_bytes as usize);
        }
        self
    }

    /// For entries whose sequence number is assigned later; it will be at least `seq_floor`.
    pub(crate) fn ingesting(mut self, seq_floor: u64) -> TableSink<'a> {
        self.seq_floor = seq_floor;
        self
    }

    /// The finished tables.
    pub(crate) fn done(&self) -> &[TableMeta] {
        &self.done
    }

    /// True if this entry would begin a new table.
    pub(crate) fn begins_with(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.open.is_none() || self.is_full(|builder| builder.bytes_with(key, value))
    }

    /// True if the table being written might become too long, as `bytes_with` says, even if what is collected to be
    /// compressed becomes leaves now, however short: it is not known before how much it compresses.
    fn is_full(&mut self, bytes_with: impl Fn(&TableBuilder) -> usize) -> bool {
        let Some(open) = &self.open else { return false };
        let most = self.most(open);
        let Some(open) = &mut self.open else { return false };
        let is_full = |builder: &TableBuilder| bytes_with(builder) as u64 > most;
        is_full(&open.builder) && {
            open.builder.pack_collected();
            is_full(&open.builder)
        }
    }

    /// Bytes of the table being written, and its size limit.
    pub(crate) fn fill(&self) -> Option<(u64, u64)> {
        self.open.as_ref().map(|open| (open.builder.bytes() as u64, self.most(open)))
    }

    fn most(&self, open: &Open) -> u64 {
        let most = open.medium.writer.capacity().min(self.table_bytes);
        if self.is_longer { longest_of_piece(most) } else { most }
    }

    /// Marks the last entry as one that clients read, so that its leaf goes to the cache.
    pub(crate) fn heat(&mut self) {
        if let Some(open) = &mut self.open {
            open.builder.heat();
        }
    }

    /// Adds the next entry.
    pub(crate) fn add(&mut self, key: &[u8], stamp: Stamp, value: &[u8]) -> Result<()> {
        if self.begins_with(key, value) {
            self.cut()?;
        }
        let is_bounded = self.media.shape().whole_tables;
        let open = self.open()?;
        // A file may be longer: entries already in the store must stay even if tables are shorter now.
        if is_bounded
            && open.builder.is_empty()
            && open.builder.bytes_with(key, value) as u64 > open.medium.writer.capacity()
        {
            return Err(Error::invalid("an entry is larger than a table"));
        }
        open.builder.add(key, stamp, value);
        self.hand_over()
    }

    /// Adds the next entry with a pointer to its value in a log.
    pub(crate) fn point(&mut self, key: &[u8], stamp: Stamp, pointer: &Pointer) -> Result<()> {
        let mut stored = std::mem::take(&mut self.stored);
        pointer.encode(&mut stored);
        self.add(key, stamp, &stored)?;
        self.stored = stored;
        self.open.iter_mut().for_each(|open| open.builder.points(pointer));
        Ok(())
    }

    /// What to do with `leaf`, the first of an island of which `known` bytes have been seen; they are all of it if it
    /// has `ended`.
    pub(crate) fn judge(&mut self, leaf: &StoredLeaf, known: u64, ended: bool) -> Verdict {
        if !leaf.is_of_units(self.grain.unit_bytes) {
            return Verdict::Pack;
        }
        let Some(open) = &mut self.open else { return Verdict::Keep };
        match open.planner.judge(open.builder.tail() as u64, open.piece(leaf), known, ended) {
            Verdict::Keep if !open.medium.would_share(leaf) => Verdict::Pack,
            verdict => verdict,
        }
    }

    /// True if the table being written has no room for `leaf`.
    pub(crate) fn is_full_for(&mut self, leaf: &StoredLeaf) -> bool {
        self.is_full(|builder| builder.bytes_with_leaf(leaf))
    }

    /// Adds a leaf unchanged, as it is stored.
    pub(crate) fn keep(&mut self, leaf: &StoredLeaf) -> Result<()> {
        let open = self.open()?;
        let piece = open.piece(leaf);
        open.planner.keep(open.builder.tail() as u64, piece);
        open.builder.keep(leaf)?;
        self.hand_over()
    }

    fn hand_over(&mut self) -> Result<()> {
        match &mut self.open {
            Some(open) if open.builder.pending().0.len() >= self.chunk_bytes => open.hand_over(self.library),
            _ => Ok(()),
        }
    }

    /// The table being written; begins one if there is none.
    fn open(&mut self) -> Result<&mut Open> {
        if self.open.is_none() {
            let number = self.numbers.fetch_add(1, Relaxed);
            let writer = self.media.create_table(number, self.intent)?;
            let grain = self.grain;
            let builder = TableBuilder::new(number, self.options.filter_bits_per_key, grain)
                .ingesting(self.seq_floor)
                .descending(self.lineage.clone())
                .packing(self.compression);
            let planner = Planner::new(
                grain.unit_bytes as u64,
                self.options.reuse.caps,
                self.options.reuse.island_bytes_min.unwrap_or(0),
            );
            let relinks = self.options.reuse.mode == Reuse::Relink;
            let medium = Medium { writer, relinks, relinked: 0 };
            self.open = Some(Open { number, medium, builder, planner });
        }
        Ok(self.open.as_mut().expect("just opened"))
    }

    /// Ends the table being written, so that the next entry begins another.
    pub(crate) fn cut(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let (number, library) = (open.number, self.library);
        // The table is not in `open` any more, so `drop` would not clean up its cached leaves.
        self.end(open).inspect_err(|_| library.iter().for_each(|library| library.cool(number)))
    }

    fn end(&mut self, Open { number, mut medium, builder, planner }: Open) -> Result<()> {
        let finished = builder.finish();
        debug_assert!(finished.meta.bytes.is_multiple_of(self.media.shape().unit_bytes));
        if let Some(library) = self.library {
            library.warm(number, finished.warm, &finished.tail);
        }
        medium.append(&finished.tail, &finished.kept)?;
        medium.writer.leaves_in_log(finished.meta.pointed_bytes);
        medium.writer.finish(planner.totals().bubble_bytes)?;
        self.reused.add(&ReuseStat::new(planner.totals(), medium.relinked));
        self.taken.add(finished.meta.bytes, medium.relinked, &self.media.shape());
        self.done.push(finished.meta);
        Ok(())
    }

    /// Ends the last table and returns all of them in order.
    pub(crate) fn finish(self) -> Result<Vec<TableMeta>> {
        self.finish_all().map(|(tables, _)| tables)
    }

    /// The same, and the totals of kept leaves.
    pub(crate) fn finish_all(mut self) -> Result<(Vec<TableMeta>, ReuseStat)> {
        self.cut()?;
        self.finished = true;
        Ok((std::mem::take(&mut self.done), self.reused))
    }
}

impl Open {
    /// Describes `leaf`, if it came next, to the planner.
    fn piece(&self, leaf: &StoredLeaf) -> IslandPart {
        let bubble = self.planner.bubble(leaf.from.offset, self.builder.tail() as u64);
        let inherited = if leaf.is_loose() { leaf.padding() as u64 } else { 0 };
        IslandPart { bubble, bytes: leaf.bytes.len() as u64, inherited }
    }

    fn hand_over(&mut self, library: Option<&Library>) -> Result<()> {
        let warm = self.builder.warm();
        let (pending, kept) = self.builder.pending();
        if let Some(library) = library {
            library.warm(self.number, warm, pending);
        }
        self.medium.append(pending, kept)?;
        self.builder.taken();
        Ok(())
    }
}

impl Medium {
    /// False if keeping the leaf would save nothing.
    fn would_share(&mut self, leaf: &StoredLeaf) -> bool {
        !self.relinks || self.writer.would_share(leaf.bytes.len() as u64, leaf.from)
    }

    /// Appends `bytes`; those parts that are `kept` as stored bytes.
    fn append(&mut self, bytes: &[u8], kept: &[StoredSpan]) -> Result<()> {
        let mut at = 0;
        let kept = if self.relinks { kept } else { &[] };
        for island in islands(kept) {
            if at < island.start {
                self.writer.append(&bytes[at..island.start])?;
            }
            at = island.start + island.bytes;
            self.relinked += self.writer.append_stored(&bytes[island.start..at], island.from)?;
        }
        if at < bytes.len() {
            self.writer.append(&bytes[at..])?;
        }
        Ok(())
    }
}

/// Size limit of tables in a merge in pieces, given that of other merges.
pub(crate) fn longest_of_piece(table_bytes: u64) -> u64 {
    table_bytes.saturating_add(table_bytes / 2)
}

/// The units and leaf sizes of tables.
fn grain(media: &dyn Media, options: &Options) -> Grain {
    let unit_bytes = options.reuse.unit_bytes.unwrap_or(0).max(media.shape().unit_bytes) as usize;
    match options.reuse.mode {
        Reuse::Relink => Grain::sharing(unit_bytes),
        _ => Grain::of(unit_bytes),
    }
}

/// Joins leaves that are adjacent both here and where they are stored.
fn islands(kept: &[StoredSpan]) -> Vec<StoredSpan> {
    let mut islands: Vec<StoredSpan> = Vec::new();
    for leaf in kept {
        match islands.last_mut() {
            Some(island) if island.goes_on_with(leaf) => island.bytes += leaf.bytes,
            _ => islands.push(*leaf),
        }
    }
    islands
}

impl Drop for TableSink<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // What cannot be erased now is found and erased when the store is opened again.
            self.done.iter().for_each(|meta| drop(self.media.erase_table(meta.number)));
            if let Some(library) = self.library {
                let open = self.open.iter().map(|open| open.number);
                self.done.iter().map(|meta| meta.number).chain(open).for_each(|table| library.cool(table));
            }
        }
    }
}
