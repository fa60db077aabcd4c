//! The store: what a program that embeds one sees.

use crate::background;
use crate::batch::Batch;
use crate::cache::Cache;
use crate::compaction::Window;
use crate::core::{Core, Counts, Limits, State, View};
use crate::iter::{Bounds, Iter};
use crate::journal::{Area, Edit, LEVELS, PAYLOAD_BYTES_MAX};
use crate::key::{DEFAULT_KEYSPACE, KEY_BYTES_MAX};
use crate::manifest::Manifest;
use crate::media::Media;
use crate::options::{Durability, Options};
use crate::recover::{Recovered, recover};
use crate::stat::StoreStat;
use crate::table::{Graves, Library};
use crate::version::Version;
use crate::writer::Writer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vellum_base::sync::{Condvar, Mutex, RwLock};
use vellum_base::{Env, Error, Kind, Result, Task};

/// Most bytes of a value, wherever the store is.
const VALUE_BYTES_MAX: usize = 64 << 20;

/// An ordered key-value store. Share it between threads in an `Arc`.
///
/// ```
/// use vellum_base::RealEnv;
/// use vellum_kv::{Bounds, Directory, DirectoryOptions, Options, Store};
///
/// # let dir = tempfile::tempdir().unwrap();
/// let media = Directory::open(dir.path(), DirectoryOptions::default())?;
/// let store = Store::open(media, RealEnv::new(), Options::default())?;
/// store.put(b"quire", b"four sheets")?;
/// store.put(b"recto", b"right")?;
/// let mut iter = store.iter(Bounds::prefix(b"q"))?;
/// iter.seek_to_first()?;
/// assert!(iter.is_valid() && iter.key() == b"quire" && iter.value() == b"four sheets");
/// drop(iter);
/// store.close()?;
/// # Ok::<(), vellum_base::Error>(())
/// ```
pub struct Store {
    core: Arc<Core>,
    tasks: Mutex<Vec<Task>>,
}

impl Store {
    /// Opens the store on `media`; makes one if there is none and the options say so.
    pub fn open(media: Arc<dyn Media>, env: Arc<dyn Env>, options: Options) -> Result<Store> {
        let limits = limits(&*media, &options);
        let mut options = options;
        options.memtables_max = options.memtables_max.clamp(1, (media.shape().logs_max - 2) / 2);
        let cache = Cache::new(options.cache_bytes);
        let library = Arc::new(Library {
            env: env.clone(),
            cache,
            policy: options.cache_policy,
            graves: Graves::default(),
        });
        let found = match recover(&*media, &library)? {
            Some(found) => found,
            None if options.create_if_missing => create(&media, &library)?,
            None => return Err(Error::invalid("there is no key-value store here")),
        };
        // What was read from them may never have been synced, and what is written from now on builds on it.
        let logs = found.frozen.iter().flat_map(|frozen| &frozen.logs).chain(&found.active.1);
        logs.into_iter().try_for_each(|log| media.sync_area(Area::log(*log)))?;
        found.leftovers.remove(&*media)?;
        let core = Arc::new(core_of(found, media, env, options, limits, library));
        let tasks = Mutex::new(background::start(&core));
        Ok(Store { core, tasks })
    }

    /// Sets `key` to `value`; survives the process.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut batch = Batch::new();
        batch.put(key, value)?;
        self.write(&batch, Durability::Buffered)
    }

    /// Removes `key`, if it is there; survives the process.
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        let mut batch = Batch::new();
        batch.delete(key)?;
        self.write(&batch, Durability::Buffered)
    }

    /// Applies a batch as a whole. When this returns it is visible, and survives what `durability` says; what was
    /// written before it survives the same. After an error of the medium the store takes no more writes.
    pub fn write(&self, batch: &Batch, durability: Durability) -> Result<()> {
        self.core.write(batch, durability)
    }

    /// Makes all that was written survive the loss of power.
    pub fn sync(&self) -> Result<()> {
        self.core.sync_log()
    }

    /// The value of `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// The value of `key`, into memory that is used again and again. False if there is none; then `value` is anything.
    pub fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        with_internal(key, |key| self.core.get(key, None, value))
    }

    /// The store as it is now, for as long as the snapshot is held.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshots = self.core.snapshots.lock();
        let seq = self.core.visible.load(Ordering::Acquire);
        *snapshots.entry(seq).or_default() += 1;
        drop(snapshots);
        Snapshot { core: self.core.clone(), seq }
    }

    /// Walks through the keys within `bounds`, as they are now.
    pub fn iter(&self, bounds: Bounds) -> Result<Iter> {
        let view = self.core.view.read().clone();
        let seq = self.core.visible.load(Ordering::Acquire);
        Ok(Iter::new(view, seq, DEFAULT_KEYSPACE, bounds))
    }

    /// Puts everything written so far into tables.
    pub fn flush(&self) -> Result<()> {
        self.core.check_writable()?;
        let mut writer = self.core.writer.lock();
        if writer.memtable_bytes > 0 {
            self.core.freeze(&mut writer)?;
        }
        drop(writer);
        self.core.wait_for_flushes()
    }

    /// Flushes, then merges every level into the deepest that holds anything: nothing hidden or deleted stays, but
    /// for what snapshots see.
    pub fn compact(&self) -> Result<()> {
        self.flush()?;
        // The deepest level may get deeper meanwhile.
        let deepest =
            || (0..LEVELS).rev().find(|level| !self.version().levels[*level].is_empty()).unwrap_or(0);
        let mut level = 0;
        while level < deepest().max(1) {
            self.empty_level(level)?;
            level += 1;
        }
        self.core.check_writable()
    }

    /// Waits until a level is merged into the next.
    fn empty_level(&self, level: usize) -> Result<()> {
        let mut state = self.core.state.lock();
        state.requested[level] = true;
        self.core.work.notify_all();
        let mut stuck = false;
        while !stuck && state.failure.is_none() {
            let version = self.version();
            let busy = !state.running.is_empty() || !state.frozen.is_empty();
            if version.levels[level].is_empty() && !busy {
                break;
            }
            // A job that does not fit now will not fit later, if nothing is under way.
            stuck = !busy && self.core.pick(&version, &state).is_none();
            drop(version);
            if !stuck {
                self.core.progress.wait(&mut state);
            }
        }
        state.requested[level] = false;
        match stuck {
            true => Err(Error::new(Kind::NoSpace, "the medium is too full to merge a level")),
            false => Ok(()),
        }
    }

    /// What the store holds and did.
    pub fn stat(&self) -> StoreStat {
        self.core.stat()
    }

    /// Most bytes of a value here.
    pub fn value_bytes_max(&self) -> usize {
        self.core.limits.value_bytes_max
    }

    /// Most bytes of a batch here ([`Batch::bytes`]).
    pub fn batch_bytes_max(&self) -> usize {
        self.core.limits.batch_bytes_max
    }

    /// Ends background work, makes all that was written durable, and notes that it is whole: if bytes of it rot
    /// until it is opened again, that is seen. Dropping does the same, but swallows errors.
    pub fn close(self) -> Result<()> {
        self.shut()
    }

    fn version(&self) -> Arc<Version> {
        self.core.view.read().version.clone()
    }

    fn shut(&self) -> Result<()> {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        if tasks.is_empty() {
            return Ok(());
        }
        background::stop(&self.core);
        tasks.into_iter().for_each(Task::join);
        self.core.check_writable()?;
        self.core.sync_log()?;
        let closed = self.core.writer.lock().open_log();
        if closed.is_some() {
            self.core.install(&Edit { closed, ..Edit::default() }, |_, _| ())?;
        }
        self.core.bury()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // An error has nowhere to go; whoever wants it calls `close`.
        let _ = self.shut();
    }
}

/// A store as it was when this was made.
pub struct Snapshot {
    core: Arc<Core>,
    seq: u64,
}

impl Snapshot {
    /// The value of `key` then.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        let found = with_internal(key, |key| self.core.get(key, Some(self.seq), &mut value))?;
        Ok(found.then_some(value))
    }

    /// Walks through the keys within `bounds`, as they were then.
    pub fn iter(&self, bounds: Bounds) -> Result<Iter> {
        let view = self.core.view.read().clone();
        Ok(Iter::new(view, self.seq, DEFAULT_KEYSPACE, bounds))
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut snapshots = self.core.snapshots.lock();
        if let Some(held) = snapshots.get_mut(&self.seq) {
            *held -= 1;
            if *held == 0 {
                snapshots.remove(&self.seq);
            }
        }
    }
}

/// Puts the keyspace before `key`, without memory from the heap where the key is short.
fn with_internal<T>(key: &[u8], then: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
    const SHORT: usize = 64;
    if key.len() < SHORT {
        let mut internal = [DEFAULT_KEYSPACE; SHORT];
        internal[1..=key.len()].copy_from_slice(key);
        return then(&internal[..=key.len()]);
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::invalid(format!("a key of {} bytes; {KEY_BYTES_MAX} is the most", key.len())));
    }
    then(&[&[DEFAULT_KEYSPACE], key].concat())
}

fn limits(media: &dyn Media, options: &Options) -> Limits {
    let shape = media.shape();
    let log = usize::try_from(shape.log_bytes).unwrap_or(usize::MAX);
    // A memtable should fill one table, and no more.
    let table = usize::try_from(shape.table_bytes).unwrap_or(usize::MAX);
    let memtable_bytes = options.memtable_bytes.max(64 << 10).min(log / 8 * 7).min(table / 8 * 7);
    let value_bytes_max = VALUE_BYTES_MAX.min(table / 8).min(log / 4);
    let level1_bytes = match options.level1_bytes {
        0 => (8 * memtable_bytes as u64).max(4 * if shape.whole_tables { shape.table_bytes } else { 0 }),
        bytes => bytes,
    };
    // Besides the batch a log has its head, a mark, and the head of the record.
    let batch_bytes_max = (log - 128).min(PAYLOAD_BYTES_MAX);
    Limits { memtable_bytes, log_bytes: shape.log_bytes, value_bytes_max, batch_bytes_max, level1_bytes }
}

/// Makes an empty store: a manifest that says so, then CURRENT.
fn create(media: &Arc<dyn Media>, library: &Arc<Library>) -> Result<Recovered> {
    let mut manifest = Manifest::new(media.clone(), None, library.env.random());
    manifest.append(&Edit::default(), || Edit { next_number: Some(2), ..Edit::default() }, || 1)?;
    recover(&**media, library)?.ok_or_else(|| Error::new(Kind::Io, "the store that was just made is gone"))
}

fn core_of(
    found: Recovered,
    media: Arc<dyn Media>,
    env: Arc<dyn Env>,
    options: Options,
    limits: Limits,
    library: Arc<Library>,
) -> Core {
    let mut writer = Writer::new(found.last_seq + 1);
    writer.logs = found.active.1.into_iter().collect();
    writer.previous = found.previous;
    writer.memtable_bytes = found.active.0.bytes() * !found.active.0.is_empty() as usize;
    let view = View {
        active: Arc::new(found.active.0),
        frozen: found.frozen.iter().rev().map(|frozen| frozen.memtable.clone()).collect(),
        version: Arc::new(found.version),
    };
    let state = State {
        frozen: found.frozen.into(),
        log_floor: found.log_floor,
        last_seq: found.last_seq,
        ..State::default()
    };
    let manifest = Mutex::new(Manifest::new(media.clone(), found.current, 0));
    Core {
        env,
        media,
        options,
        limits,
        library,
        view: RwLock::new(Arc::new(view)),
        visible: AtomicU64::new(found.last_seq),
        writer: Mutex::new(writer),
        state: Mutex::new(state),
        work: Condvar::new(),
        progress: Condvar::new(),
        manifest,
        sync: Mutex::default(),
        sync_done: Condvar::new(),
        snapshots: Mutex::default(),
        next_number: AtomicU64::new(found.next_number),
        stopping: AtomicBool::new(false),
        poisoned: AtomicBool::new(false),
        counts: Counts::default(),
        window: Window::default(),
    }
}
