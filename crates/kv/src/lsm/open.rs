//! Opening a store: from options and a medium to [`Core`].

use crate::freewrite::UnitBounds;
use crate::journal::{Area, COMPARATOR, Edit, Ending, Wal};
use crate::lifetime::{Counts, Lifetime};
use crate::lsm::cache::Cache;
use crate::lsm::compaction::{Toll, Window};
use crate::lsm::core::{Core, State, View};
use crate::lsm::limits::Limits;
use crate::lsm::recover::{Recovered, recover};
use crate::lsm::table::{Library, Warmed};
use crate::lsm::writer::Writer;
use crate::manifest::{self, Manifest};
use crate::media::{Media, ReadOnly, Sharing, check_shape, refused};
use crate::options::{CachePolicy, Options, Rules};
use crate::shared::Shared;
use crate::swap::ArcSwap;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::sync::atomic::{AtomicU64, AtomicUsize};
use vellum_base::{Env, Error, Kind, Result};

/// Recovers the store on `media`, or creates one, and removes leftovers. Background tasks are not started.
pub(crate) fn open(media: Arc<dyn Media>, env: Arc<dyn Env>, mut options: Options) -> Result<Core> {
    options.check()?;
    check_shape(&media.shape())?;
    if !options.read_only {
        media.check_writable()?;
    }
    let limits = Limits::fit(&*media, &mut options)?;
    let unit_bounds = UnitBounds { bytes: limits.table_bytes, ..UnitBounds::of(&media.shape()) };
    let sharing;
    (options.reuse, sharing) = options.reuse.settle(&*media, unit_bounds, options.read_only)?;
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

/// Creates an empty store: a manifest, then CURRENT.
fn create(media: &Arc<dyn Media>, library: &Arc<Library>, limits: &Limits) -> Result<Recovered> {
    manifest::create(media, library.env.random(), COMPARATOR, Edit::default())?;
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
    let rules = options.rules.begin();
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
        rules,
    };
    core.size_next_memtable(&core.view.load().version, &core.state.lock());
    core
}
