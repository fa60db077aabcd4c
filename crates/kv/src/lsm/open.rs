//! Opening a store: from options and a medium to [`Core`].

use crate::freewrite::{ReuseOptions, UnitBounds};
use crate::journal::{Area, COMPARATOR, Edit, Ending, PAYLOAD_BYTES_MAX, Wal};
use crate::key::KEY_BYTES_MAX;
use crate::lifetime::{Counts, Lifetime};
use crate::lsm::cache::Cache;
use crate::lsm::compaction::longest_of_piece;
use crate::lsm::compaction::{LevelDb, Toll, Window};
use crate::lsm::core::{Core, Limits, State, View};
use crate::lsm::recover::{Recovered, recover};
use crate::lsm::room::{Short, tables_of_merge};
use crate::lsm::table::{Library, Warmed};
use crate::lsm::writer::Writer;
use crate::manifest::Manifest;
use crate::media::{Media, ReadOnly, Sharing, check_shape, refused};
use crate::options::{CachePolicy, Options, Rules, VALUE_BYTES_MAX};
use crate::shared::Shared;
use crate::swap::ArcSwap;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::sync::atomic::{AtomicU64, AtomicUsize};
use vellum_base::{Env, Error, Kind, Result};

/// Default size of level 1 in memtables: a little more than level 0 has when it is merged, as write amplification is
/// least if levels grow evenly (docs/decisions/0016).
const LEVEL1_MEMTABLES: u64 = 32;
/// Most logs that are replayed into the active memtable.
const REPLAYED_LOGS_MAX: usize = 64;

/// Recovers the store on `media`, or creates one, and removes leftovers. Background tasks are not started.
pub(crate) fn open(media: Arc<dyn Media>, env: Arc<dyn Env>, mut options: Options) -> Result<Core> {
    options.check()?;
    check_shape(&media.shape())?;
    if !options.read_only {
        media.check_writable()?;
    }
    let mut limits = limits(&*media, &options);
    let logs_max = media.shape().logs_max;
    options.memtables_max = options.memtables_max.clamp(1, (logs_max - 2) / 2);
    // Each memtable that may wait, and the active one, has a log, and perhaps one from before this opening.
    let logs_of_memtables = options.memtables_max.saturating_add(1).saturating_mul(2);
    limits.replayed_logs_max = logs_max.saturating_sub(logs_of_memtables).clamp(1, REPLAYED_LOGS_MAX);
    limits.logs_max = logs_max.min(logs_of_memtables.saturating_add(2 * REPLAYED_LOGS_MAX));
    if options.compaction_bytes == 0 {
        options.compaction_bytes = limits.memtable_bytes;
    }
    if let Some(all) = tables_of(&*media, &options, &limits)? {
        // Writes are refused while merging levels 0 and 1 would not fit, so both have to be small where room is short.
        let tables = usize::try_from(all / 16).unwrap_or(usize::MAX).max(4);
        limits.spare_tables_max = all / 10;
        limits.short.level0_compact = tables;
        if options.level1_bytes == 0 {
            let counted_in_bytes = media.room_bytes().is_some();
            let memtable_bytes = limits.short.memtable_bytes as u64;
            let table_bytes = if counted_in_bytes { memtable_bytes } else { media.shape().table_bytes };
            limits.short.level1_bytes = limits.level1_bytes.min(tables as u64 * table_bytes);
        }
    }
    // Whoever is slowed down or waits for fewer tables waits for a merge, which must be due then.
    options.level0_slow = options.level0_slow.max(options.level0_compact);
    options.level0_stop = options.level0_stop.max(options.level0_compact).max(1);
    // A flush writes a table, too, and perhaps an ingest does.
    let merged_max = media.tables_written_max().saturating_sub(2).max(1);
    options.compaction_tasks = options.compaction_tasks.min(merged_max);
    let sharing = sharing(&*media, &mut options, &limits)?;
    let is_ours = options.rules == Rules::Vellum && options.cache_policy == CachePolicy::CompactionAware;
    let new_cache = if is_ours { Cache::with_visits } else { Cache::new };
    let library = Arc::new(Library {
        env: env.clone(),
        cache: new_cache(options.cache_bytes),
        policy: options.cache_policy,
        map_files: options.map_files,
        obsolete: Default::default(),
        filters: Default::default(),
        warmed: Warmed::default(),
        kept_logs: Default::default(),
        pointed_reads: Default::default(),
    });
    let media = if options.read_only { Arc::new(ReadOnly(media)) } else { media };
    let mut found = match recover(&*media, &library, &limits, Ending::of(options.strict_log))? {
        Some(found) => found,
        None if options.create_if_missing && !options.read_only => create(&media, &library, &limits)?,
        None => return Err(Error::invalid("there is no key-value store here")),
    };
    if options.read_only {
        let core = core_of(found, media, env, (options, sharing), limits, library);
        core.state.poison(refused());
        return Ok(core);
    }
    // What was replayed may never have been synced, but later writes will depend on it.
    let logs = found.frozen.iter().flat_map(|frozen| &frozen.logs).chain(&found.active.logs);
    let mut logs = logs.peekable();
    if logs.peek().is_some() {
        // Discards what was allocated ahead in the newest log.
        media.trim_area(Area::log(found.previous.number), found.previous.length)?;
    }
    logs.try_for_each(|log| media.sync_area(Area::log(*log)))?;
    // Leftovers are what the manifest does not name, so it must be durable before they are removed.
    media.sync_area(Area::manifest(found.current.manifest))?;
    let (leftovers, current) = (std::mem::take(&mut found.leftovers), found.current);
    let core = core_of(found, media, env, (options, sharing), limits, library);
    leftovers.remove(&*core.media, || core.install(&Edit::default(), |_, _| ()))?;
    current.upgrade(|| core.install(&Edit::default(), |_, _| ()))?;
    Ok(core)
}

/// How the medium shares leaves, if that is wanted. Puts the mode in force into the options.
fn sharing(media: &dyn Media, options: &mut Options, limits: &Limits) -> Result<Sharing> {
    let Options { reuse, caps, unit_bytes, island_bytes_min, .. } = *options;
    let reuse_options = ReuseOptions { reuse, caps, unit_bytes, island_bytes_min };
    let unit_bounds = UnitBounds { bytes: limits.table_bytes, ..UnitBounds::of(&media.shape()) };
    let (reuse_options, sharing) = reuse_options.settle(media, unit_bounds, options.read_only)?;
    (options.reuse, options.unit_bytes) = (reuse_options.reuse, reuse_options.unit_bytes);
    options.island_bytes_min = reuse_options.island_bytes_min;
    Ok(sharing)
}

/// Number of tables that the medium can hold, if known.
fn tables_of(media: &dyn Media, options: &Options, limits: &Limits) -> Result<Option<u64>> {
    if options.read_only {
        return Ok(None);
    }
    Ok(match (media.all_bytes(), media.tables_free()) {
        (Some(bytes), _) => Some(bytes / limits.short.memtable_bytes as u64),
        (None, u64::MAX) => None,
        (None, free) => Some(free + media.tables()?.len() as u64),
    })
}

/// What fits a store on `media`.
pub(crate) fn limits(media: &dyn Media, options: &Options) -> Limits {
    let shape = media.shape();
    let all = media.all_bytes().unwrap_or(u64::MAX);
    let log = usize::try_from(shape.log_bytes).unwrap_or(usize::MAX);
    // A memtable should fill one table, and no more.
    let table = usize::try_from(shape.table_bytes).unwrap_or(usize::MAX);
    // More than a hundred should fit the medium where room is short, or nothing could be reserved for compaction.
    let share = usize::try_from(all / 128).unwrap_or(usize::MAX);
    let memtable_of = |bytes: usize| bytes.max(64 << 10).min(log / 8 * 7).min(table / 8 * 7);
    let small = memtable_of(options.memtable_bytes.min(share));
    let memtable_bytes = match options.rules {
        Rules::Vellum => memtable_of(options.memtable_bytes),
        Rules::LevelDb => small,
    };
    // A table of one entry may contain its key up to nine times by the estimates used, and the value twice.
    let key_bytes_max = KEY_BYTES_MAX.min(table / 16).min(log / 4);
    let value_bytes_max = VALUE_BYTES_MAX.min(table / 8).min(log / 4);
    let level1_bytes = match options.level1_bytes {
        0 => (LEVEL1_MEMTABLES * memtable_bytes as u64)
            .max(4 * if shape.whole_tables { shape.table_bytes } else { 0 }),
        bytes => bytes,
    };
    // On media that count bytes, one table in terms of room is what a memtable becomes.
    let table_bytes = shape.table_bytes.min((all / 64).max(2 * small as u64));
    let counted = |bytes: u64| if media.room_bytes().is_some() { bytes.div_ceil(small as u64) } else { 1 };
    let two = counted(table_bytes) + counted(longest_of_piece(table_bytes));
    // In addition to the batch a log has its head, a mark, and the head of the record.
    let batch_bytes_max = (log - 128).min(PAYLOAD_BYTES_MAX);
    Limits {
        memtable_bytes,
        table_bytes,
        log_bytes: shape.log_bytes,
        replayed_logs_max: 1,
        logs_max: usize::MAX,
        key_bytes_max,
        value_bytes_max,
        batch_bytes_max,
        level1_bytes,
        merge_tables: tables_of_merge(two),
        spare_tables_max: u64::MAX,
        short: Short { memtable_bytes: small, level0_compact: usize::MAX, level1_bytes },
    }
}

/// Creates an empty store: a manifest, then CURRENT.
fn create(media: &Arc<dyn Media>, library: &Arc<Library>, limits: &Limits) -> Result<Recovered> {
    // An earlier creation may have been interrupted.
    media.areas()?.into_iter().try_for_each(|area| media.remove_area(area))?;
    let mut manifest = Manifest::new(media.clone(), library.env.random(), COMPARATOR, None);
    manifest.append(&Edit::default(), || Edit { next_number: Some(2), ..Edit::default() }, || 1)?;
    let made = recover(&**media, library, limits, Ending::Torn)?;
    let made = made.ok_or_else(|| Error::new(Kind::Io, "the store that was just made is gone"))?;
    // The bytes written for it are in the ledger of the medium, so they must not count twice.
    Ok(Recovered { lifetime: Lifetime::default(), ..made })
}

fn core_of(
    found: Recovered,
    media: Arc<dyn Media>,
    env: Arc<dyn Env>,
    (options, sharing): (Options, Sharing),
    limits: Limits,
    library: Arc<Library>,
) -> Core {
    let ahead_bytes = options.map_files.then_some(limits.short.memtable_bytes as u64);
    let wal = Wal::new(found.current.store, found.previous, ahead_bytes);
    let mut writer = Writer::new(found.floors.last_seq + 1);
    writer.logs = found.active.logs;
    writer.memtable_bytes = found.active.bytes;
    let view = View {
        active: Arc::new(found.active.memtable),
        frozen: found.frozen.iter().rev().map(|frozen| frozen.memtable.clone()).collect(),
        version: Arc::new(found.version),
    };
    let state = State { frozen: found.frozen.into(), floors: found.floors, ..State::default() };
    let manifest = Mutex::new(Manifest::new(
        media.clone(),
        found.current.store,
        COMPARATOR,
        Some(found.current.manifest),
    ));
    let core = Core {
        env,
        media,
        options,
        sharing,
        limits,
        view: ArcSwap::from_pointee(view),
        visible: AtomicU64::new(found.floors.last_seq),
        writer: Mutex::new(writer),
        wal: Mutex::new(wal),
        memtable_bytes_max: AtomicUsize::new(limits.short.memtable_bytes),
        state: Shared::new(state),
        manifest,
        snapshots: Mutex::default(),
        next_number: AtomicU64::new(found.next_number),
        counts: Counts::default(),
        before: found.lifetime,
        window: Window::default(),
        toll: Toll::new(library.pointed_reads.clone()),
        flush_rate: AtomicU64::new(0),
        library,
        leveldb: Mutex::new(LevelDb::default()),
    };
    core.size_next_memtable(&core.view.load().version, &core.state.lock());
    core
}
