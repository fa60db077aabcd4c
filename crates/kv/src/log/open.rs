//! Opening a log store: reads CURRENT, manifest, segments and logs, builds the index, then removes leftovers.
//!
//! Nothing is erased before everything that the manifest relies on was found without damage.

use super::collect::ORDERS;
use super::core::{Core, CurrentManifest, State};
use super::hint::SEGMENT_UNIT_BYTES;
use super::open_segment::{Frozen, OpenSegment};
use super::options::{Limits, Options, SEGMENT_BYTES_MIN};
use super::pointer::{DATA_BYTES_MAX, PointerFormat};
use super::rebuild::{Rebuild, view_of};
use super::replay::{Content, ReplayedSegment, read_logs, segments_of};
use super::segment::{Home, ReadContext, Segment};
use super::state::{ManifestState, state_of};
use super::writer::Writer;
use crate::freewrite::UnitBounds;
use crate::journal::{Area, Edit, Ending, Floors, LogRead, Previous, UNORDERED, Wal};
use crate::leftovers::{Leftovers, no_current, number_after};
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

/// Reads the store on `media`, or makes one, and tidies up; no task runs yet.
pub(crate) fn open(media: Arc<dyn Media>, env: Arc<dyn Env>, mut options: Options) -> Result<Core> {
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
    let sharing;
    (options.reuse, sharing) = options.reuse.settle(&*media, unit_bounds, options.read_only)?;
    let media = if options.read_only { Arc::new(ReadOnly(media)) } else { media };
    let found = Current::of(&*media)?;
    let is_new = found.is_none();
    let current = match found {
        Some(current) => current,
        None => {
            no_current(&media.areas()?, &media.tables()?)?;
            if options.read_only || !options.create_if_missing {
                return Err(Error::invalid("there is no key-value store here"));
            }
            let store = env.random();
            let first = Edit { seed: Some(env.random()), ..Edit::default() };
            manifest::create(&media, store, UNORDERED, first)?
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
        let largest = state
            .segments
            .iter()
            .map(|meta| meta.bytes)
            .chain(memory.iter().map(ReplayedSegment::table_bytes));
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
            opened.push(OpenSegment { segment, buffer, table: None, logs, records, is_for_deletes: true });
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

fn frozen_of(opened: Vec<OpenSegment>, last_seq: u64) -> Vec<Frozen> {
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

fn with_next_logs(frozen: Vec<Frozen>, open: Option<&OpenSegment>) -> VecDeque<Arc<Frozen>> {
    let mut next_log = open.and_then(|open| open.logs.first().copied()).unwrap_or(0);
    let mut all = VecDeque::new();
    for mut one in frozen.into_iter().rev() {
        one.next_log = next_log;
        next_log = one.logs.first().copied().unwrap_or(next_log);
        all.push_front(Arc::new(one));
    }
    all
}
