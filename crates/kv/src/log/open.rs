//! Opening a log store: reads CURRENT, manifest, segments and logs, builds the index, then removes leftovers.
//!
//! Nothing is erased before everything that the manifest relies on was found without damage.

use super::collect::ORDERS;
use super::core::{Core, CurrentManifest, State};
use super::hint::SEGMENT_UNIT_BYTES;
use super::options::{Limits, Options, SEGMENT_BYTES_MIN};
use super::rebuild::{Rebuild, view_of};
use super::record::{Item, Items, RECORD_HEAD_BYTES};
use super::segment::{DATA_BYTES_MAX, Home, PointerFormat, ReadContext, START_BYTES, Segment, start};
use super::writer::{Frozen, Open, Writer, table_bytes};
use crate::freewrite::{ReuseOptions, UnitBounds};
use crate::journal::{
    Area, Edit, Ending, Floors, LogBounds, LogRead, Payload, Previous, SegmentMeta, UNORDERED, Wal,
    check_comparator, read_chain, salvage_records,
};
use crate::leftovers::{Leftovers, TABLE_NUMBER_MAX, no_current, number_after};
use crate::lifetime::{Counts, Lifetime};
use crate::manifest::{self, Current, Manifest};
use crate::media::{Media, MediaShape, ReadOnly, Sharing, check_shape, check_whole, refused};
use crate::obsolete::Obsolete;
use crate::shared::Shared;
use crate::swap::ArcSwap;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use vellum_base::sync::atomic::{AtomicBool, AtomicU64};
use vellum_base::sync::{Mutex, RwLock};
use vellum_base::{Env, Error, IoClass, Kind, Result};

/// A segment has a unit of records, one of its hint, and a foot; one that is worth it, some more.
const SEGMENT_BYTES_LEAST: u64 = 5 * SEGMENT_UNIT_BYTES as u64;
const _: () = assert!(TABLE_NUMBER_MAX < u64::MAX / ORDERS / 2, "orders are made of numbers");

/// What the manifest says after its last edit.
#[derive(Clone, Debug, Default)]
pub(crate) struct ManifestState {
    pub seed: u64,
    /// In their order.
    pub segments: Vec<SegmentMeta>,
    pub floors: Floors,
    pub next_number: u64,
    pub lifetime: Lifetime,
}

/// Plays the edits.
pub(crate) fn state_of(edits: Vec<Edit>) -> Result<ManifestState> {
    let mut state = ManifestState { next_number: 1, ..ManifestState::default() };
    for edit in edits {
        check_comparator(&edit, UNORDERED)?;
        state.floors = state.floors.after(&edit);
        for number in &edit.segments_gone {
            let Some(at) = state.segments.iter().position(|meta| meta.number == *number) else {
                return Err(Error::corrupt(format!("manifest: segment {number} is not there")));
            };
            state.segments.remove(at);
        }
        state.segments.extend(&edit.segments);
        if !edit.lifetime.is_empty() {
            state.lifetime = edit.lifetime;
        }
        state.seed = edit.seed.unwrap_or(state.seed);
        state.next_number = edit.next_number.unwrap_or(0).max(state.next_number);
    }
    number_after(std::iter::once(state.next_number.saturating_sub(1)))?; // an error if nothing can have such a number
    state.segments.sort_by_key(|meta| meta.order);
    let is_impossible = |meta: &&SegmentMeta| {
        // What is written next is to be newer.
        meta.order / ORDERS > meta.number
            || meta.data_bytes > meta.bytes.min(DATA_BYTES_MAX)
            || meta.bubble_bytes > meta.data_bytes
            || meta.records > meta.data_bytes / RECORD_HEAD_BYTES as u64
    };
    if let Some(meta) = state.segments.iter().find(is_impossible) {
        return Err(Error::corrupt(format!(
            "manifest: segment {} cannot be so large, or there",
            meta.number
        )));
    }
    let same = |two: &[SegmentMeta]| two[0].order == two[1].order;
    let numbers: BTreeSet<u64> = state.segments.iter().map(|meta| meta.number).collect();
    match state.segments.windows(2).any(same) || numbers.len() < state.segments.len() {
        true => Err(Error::corrupt("manifest: two segments have one place")),
        false => Ok(state),
    }
}

/// Records of a log, as they are in its segment.
#[derive(Default)]
pub(crate) struct Content {
    bytes: Vec<u8>,
    records: u64,
}

impl Content {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
    /// Appends what another holds.
    pub(crate) fn take(&mut self, other: &Content) {
        self.bytes.extend_from_slice(&other.bytes);
        self.records += other.records;
    }
}

/// Takes a batch: records, where all but the last say that more follow.
pub(crate) fn take_batch(content: &mut Content, batch: Payload<'_>) -> Result<u64> {
    let payload = batch.bytes;
    let (mut items, mut count, mut more) = (Items::new(payload, 0), 0, true);
    for (_, item, _) in items.by_ref() {
        let Item::Record(record) = item else { break };
        if !more {
            return Err(Error::corrupt("a batch has records behind its last"));
        }
        (count, more) = (count + 1, record.more);
    }
    if !items.is_done() || more {
        return Err(Error::corrupt("a batch does not decode"));
    }
    content.bytes.extend_from_slice(payload);
    content.records += count;
    Ok(count)
}

/// True if a log has batches of a log store.
pub(crate) fn holds_records(media: &dyn Media, log: Area, store: Option<u64>) -> bool {
    let Ok(bytes) = media.read_area(log) else { return false };
    let records = salvage_records(log, store, &bytes).unwrap_or_default();
    let mut batches = records.into_iter().map(|(seq, bytes)| Payload { bytes, seq, at: 0 });
    batches.any(|batch| take_batch(&mut Content::default(), batch).is_ok_and(|count| count > 0))
}

/// The logs that count, oldest first.
pub(crate) fn read_logs(
    media: &dyn Media,
    areas: &[Area],
    state: &ManifestState,
    (store, ending): (Option<u64>, Ending),
) -> Result<Vec<LogRead<Content>>> {
    let kept = &BTreeSet::new();
    let bounds =
        LogBounds { store, floor: state.floors.log_floor, closed: state.floors.closed, kept, ending };
    read_chain(media, areas, bounds, &take_batch)
}

/// Reads the store on `media`, or makes one, and tidies up; no task runs yet.
pub(crate) fn open(media: Arc<dyn Media>, env: Arc<dyn Env>, mut options: Options) -> Result<Core> {
    let Options { reuse, caps, unit_bytes, island_bytes_min, .. } = options;
    let reuse_options = ReuseOptions { reuse, caps, unit_bytes, island_bytes_min };
    check_shape(&media.shape())?;
    if !options.read_only {
        media.check_writable()?;
    }
    let limits = Limits::new(&*media, &options);
    if limits.segment_bytes < SEGMENT_BYTES_LEAST && !options.read_only && media.current()?.is_none() {
        let what = "the logs that its NVRAM has room for are too short for a log store";
        return Err(Error::new(Kind::Unsupported, what));
    }
    let unit_bounds = unit_bounds(&media.shape(), &options, &limits);
    let (reuse_options, sharing) = reuse_options.settle(&*media, unit_bounds, options.read_only)?;
    (options.reuse, options.unit_bytes) = (reuse_options.reuse, reuse_options.unit_bytes);
    options.island_bytes_min = reuse_options.island_bytes_min;
    let media = if options.read_only { Arc::new(ReadOnly(media)) } else { media };
    let current_bytes = media.current()?;
    let is_new = current_bytes.is_none();
    let current = match current_bytes {
        Some(bytes) => Current::decode(&bytes)?,
        None => {
            no_current(&media.areas()?, &media.tables()?)?;
            if options.read_only || !options.create_if_missing {
                return Err(Error::invalid("there is no key-value store here"));
            }
            create(&media, &*env)?
        }
    };
    let mut state = state_of(manifest::read(&*media, current)?)?;
    if is_new {
        state.lifetime = Lifetime::default(); // The medium's ledger has what making it took.
    }
    let (areas, tables) = (media.areas()?, media.tables()?);
    let logs = read_logs(&*media, &areas, &state, (Some(current.store), Ending::of(options.strict_log)))?;
    let kept: BTreeSet<u64> = logs.iter().map(|log| log.number).collect();
    let newest = logs.last().map(|log| (log.number, log.length));
    let wanted: BTreeSet<u64> = state.segments.iter().map(|meta| meta.number).collect();
    let numbers = areas.iter().map(|area| area.number).chain(tables.iter().copied());
    let numbers = numbers.chain([media.highest_table(), state.next_number.saturating_sub(1)]);
    let next_number = number_after(numbers)?;
    let leftovers = Leftovers::but((tables, areas), &wanted, &kept, (current.manifest, state.next_number));
    let core = Opening { media: media.clone(), env, options, sharing, limits, current, next_number }
        .core(state, logs)?;
    if core.options.read_only {
        core.state.poison(refused());
        return Ok(core);
    }
    if let Some((log, length)) = newest {
        // Where it was torn, or damaged, it ends for good.
        media.trim_area(Area::log(log), length)?;
    }
    // What was read from them may never have been synced, and what is written from now on builds on it.
    kept.into_iter().try_for_each(|log| media.sync_area(Area::log(log)))?;
    // What is removed next is what the manifest, as far as it was written, does not name: it must be safe before.
    media.sync_area(Area::manifest(current.manifest))?;
    leftovers.remove(&*media, || core.install(Edit::default(), |_, _| ()))?;
    current.upgrade(|| core.install(Edit::default(), |_, _| ()))?;
    Ok(core)
}

fn unit_bounds(shape: &MediaShape, options: &Options, limits: &Limits) -> UnitBounds {
    let unit_bytes_min = shape.unit_bytes.max(SEGMENT_UNIT_BYTES as u64);
    let asked_bytes = options.segment_bytes.max(SEGMENT_BYTES_MIN).min(shape.table_bytes);
    UnitBounds { unit_bytes_min, asked_bytes, bytes: limits.segment_bytes }
}

/// Makes an empty store: a manifest that says so, then CURRENT.
fn create(media: &Arc<dyn Media>, env: &dyn Env) -> Result<Current> {
    // Perhaps its making was cut short before.
    media.areas()?.into_iter().try_for_each(|area| media.remove_area(area))?;
    let mut manifest = Manifest::new(media.clone(), env.random(), UNORDERED, None);
    let whole = || Edit { next_number: Some(2), seed: Some(env.random()), ..Edit::default() };
    manifest.append(&Edit::default(), whole, || 1)?;
    let bytes =
        media.current()?.ok_or_else(|| Error::new(Kind::Io, "the store that was just made is gone"))?;
    Current::decode(&bytes)
}

/// What is known when segments and logs were found.
struct Opening {
    media: Arc<dyn Media>,
    env: Arc<dyn Env>,
    options: Options,
    sharing: Sharing,
    limits: Limits,
    current: Current,
    next_number: u64,
}

impl Opening {
    fn core(self, state: ManifestState, logs: Vec<LogRead<Content>>) -> Result<Core> {
        let obsolete = Arc::<Obsolete>::default();
        let previous = logs
            .last()
            .map_or(Previous::default(), |log| Previous { number: log.number, length: log.length });
        let last_seq = logs.last().map_or(0, |log| log.last_seq).max(state.floors.last_seq);
        let mut memory = segments_of(&logs, &self.limits, &*self.media);
        drop(logs);
        // The data of a segment that collection makes may be as long as the longest table that exists.
        let largest =
            state.segments.iter().map(|meta| meta.bytes).chain(memory.iter().map(OfLogs::table_bytes));
        let largest = largest.chain([self.limits.segment_bytes]).max().unwrap_or(0);
        let format = PointerFormat::new(largest.min(DATA_BYTES_MAX));
        let mut segments = Vec::new();
        for (slot, meta) in state.segments.iter().enumerate() {
            let table = self.media.open_table(meta.number)?;
            check_whole(&*table).map_err(|error| error.context(format!("segment {}", meta.number)))?;
            if meta.bytes > table.bytes_given(meta.bytes)? {
                return Err(Error::corrupt(format!("segment {} is shorter than it was", meta.number)));
            }
            let home = Home::Table(table, *meta);
            segments.push(Arc::new(Segment::new(meta.order, slot, home, Arc::default(), &obsolete)));
        }
        let (tables, mut opened) = (segments.len(), Vec::new());
        for (number, of_logs) in memory.iter_mut().enumerate() {
            let buffer = Arc::new(RwLock::new(std::mem::take(&mut of_logs.bytes)));
            let order = (self.next_number + number as u64) * ORDERS;
            let home = Home::Memory(buffer.clone());
            let segment = Arc::new(Segment::new(order, tables + number, home, Arc::default(), &obsolete));
            segments.push(segment.clone());
            let (logs, records) = (std::mem::take(&mut of_logs.logs), of_logs.records);
            opened.push(Open { segment, buffer, table: None, logs, records, is_for_deletes: true });
        }
        if segments.len() > format.slots() {
            return Err(Error::new(Kind::Unsupported, "more segments than the index can tell apart"));
        }
        let reading = ReadContext { env: &*self.env, class: IoClass::Foreground };
        // Numbers that orders were made of are taken.
        let next_number = self.next_number + (segments.len() - tables) as u64;
        let rebuild = Rebuild { seed: state.seed, format, reading, segments };
        let (index, _) = rebuild.run()?;
        let view = view_of(&rebuild.segments);
        let slots = vec![true; rebuild.segments.len()];
        let (open, frozen) = (opened.pop(), frozen_of(opened, last_seq));
        // The log after those that are on their way to tables.
        let frozen = with_next_logs(frozen, open.as_ref());
        let shared = State { frozen, floors: Floors { last_seq, ..state.floors }, slots, ..State::default() };
        let manifest =
            Manifest::new(self.media.clone(), self.current.store, UNORDERED, Some(self.current.manifest));
        Ok(Core {
            env: self.env,
            media: self.media,
            options: self.options,
            sharing: self.sharing,
            limits: self.limits,
            format,
            seed: state.seed,
            index,
            view: ArcSwap::from_pointee(view),
            writer: Mutex::new(Writer { next_seq: last_seq + 1, open }),
            wal: Mutex::new(Wal::new(self.current.store, previous, None)),
            moves: Mutex::new(()),
            manifest: Mutex::new(CurrentManifest { manifest, segments: state.segments }),
            state: Shared::new(shared),
            next_number: AtomicU64::new(next_number),
            obsolete,
            counts: Counts::default(),
            looks: Default::default(),
            collected: Mutex::default(),
            before: state.lifetime,
        })
    }
}

/// A segment that was not a table yet.
pub(crate) struct OfLogs {
    pub bytes: Vec<u8>,
    pub records: u64,
    logs: Vec<u64>,
}

impl OfLogs {
    fn new() -> OfLogs {
        OfLogs { bytes: start().to_vec(), records: 0, logs: Vec::new() }
    }
    fn fits(&self, bytes: usize, records: u64, most: u64) -> bool {
        table_bytes((self.bytes.len() + bytes) as u64, self.records + records) <= most
    }
    fn table_bytes(&self) -> u64 {
        table_bytes(self.bytes.len() as u64, self.records)
    }
    fn take(&mut self, bytes: &[u8], records: u64) {
        self.bytes.extend_from_slice(bytes);
        self.records += records;
    }
}

/// A log belongs to the segment that it fits into. A log that is too long is cut: where tables take whole superblocks,
/// none may be as large as the one that it was written for, because of what they list, or of blocks that have become
/// bad. A cut log belongs to the last of its segments, so it is read again unless all of them become tables, and what
/// is read hides what is in these. Where segments are shorter than they were, there may be too few free tables for such
/// pieces and for a collection: then the pieces are as long as a table has room for.
fn segments_of(logs: &[LogRead<Content>], limits: &Limits, media: &dyn Media) -> Vec<OfLogs> {
    let whole_tables = media.shape().whole_tables;
    let short = cut_for(logs, limits.logs_max, cut_bytes(limits, whole_tables));
    if !whole_tables || (short.len() as u64) < media.tables_free() {
        return short;
    }
    drop(short); // logs and pieces are in memory at once
    cut_for(logs, limits.logs_max, limits.table_bytes / 8 * 7)
}

fn cut_for(logs: &[LogRead<Content>], logs_max: usize, most: u64) -> Vec<OfLogs> {
    let mut all: Vec<OfLogs> = Vec::new();
    for LogRead { number, content: Content { bytes, records }, .. } in logs {
        let fits = |last: &OfLogs| last.logs.len() < logs_max && last.fits(bytes.len(), *records, most);
        if !all.last().is_some_and(fits) {
            all.push(OfLogs::new());
        }
        match all.last_mut().filter(|last| fits(last)) {
            Some(last) => last.take(bytes, *records),
            None => cut(bytes, most, &mut all),
        }
        all.last_mut().expect("there is one").logs.push(*number);
    }
    debug_assert!(all.iter().all(|segment| segment.bytes.len() >= START_BYTES));
    all
}

/// Bytes of a table that logs are cut to fit.
pub(crate) fn cut_bytes(limits: &Limits, whole_tables: bool) -> u64 {
    if whole_tables { limits.segment_bytes / 8 * 7 } else { limits.segment_bytes }
}

/// Fills the last segment with records, and adds more segments as needed.
pub(crate) fn cut(bytes: &[u8], most: u64, all: &mut Vec<OfLogs>) {
    for (at, _, length) in Items::new(bytes, 0) {
        if !all.last().is_some_and(|last| last.records == 0 || last.fits(length, 1, most)) {
            all.push(OfLogs::new());
        }
        all.last_mut().expect("there is one").take(&bytes[at..at + length], 1);
    }
}

fn frozen_of(opened: Vec<Open>, last_seq: u64) -> Vec<Frozen> {
    let frozen = opened.into_iter().map(|open| Frozen {
        segment: open.segment,
        table: Mutex::new(None),
        logs: open.logs,
        next_log: 0,
        last_seq,
        records: open.records,
        lacks_table: AtomicBool::new(true),
    });
    frozen.collect()
}

fn with_next_logs(frozen: Vec<Frozen>, open: Option<&Open>) -> VecDeque<Arc<Frozen>> {
    let mut next_log = open.and_then(|open| open.logs.first().copied()).unwrap_or(0);
    let mut all = VecDeque::new();
    for mut one in frozen.into_iter().rev() {
        one.next_log = next_log;
        next_log = one.logs.first().copied().unwrap_or(next_log);
        all.push_front(Arc::new(one));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_that_cannot_be_are_refused() {
        let good =
            SegmentMeta { number: 1, bytes: 8192, data_bytes: 4000, records: 500, ..Default::default() };
        let state = |meta| state_of(vec![Edit { segments: vec![meta], ..Edit::default() }]);
        assert_eq!(state(good).unwrap().segments, [good]);
        let larger_than_its_table = SegmentMeta { data_bytes: 8193, ..good };
        let no_pointer = SegmentMeta { bytes: u64::MAX, data_bytes: DATA_BYTES_MAX + 1, ..good };
        let crowded = SegmentMeta { records: 501, ..good };
        let all_bubbles = SegmentMeta { bubble_bytes: u64::MAX, ..good };
        for bad in [larger_than_its_table, no_pointer, crowded, all_bubbles] {
            assert_eq!(state(bad).unwrap_err().kind(), Kind::Corrupt, "{bad:?}");
        }
    }
}
