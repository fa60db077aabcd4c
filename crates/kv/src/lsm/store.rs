//! The public interface of the ordered store. Further methods are in the files that implement them: keyspaces in
//! `keyspace/`, compaction on request in `manual.rs`, loading of sorted data in `ingest.rs`.
//!
//! States: open → closed. An open store may be *resting* (there is no room for background work, which is tried again
//! when there is more) or *failed* (after an error that leaves in doubt what is durable; reads go on, writes are
//! refused).

use crate::batch::Batch;
use crate::durable::Durable;
use crate::journal::Edit;
use crate::key::{DEFAULT_KEYSPACE, with_internal};
use crate::lsm::background;
use crate::lsm::core::Core;
use crate::lsm::iter::{Bounds, Iter, Range};
use crate::lsm::limits::Limits;
use crate::lsm::open::open;
use crate::lsm::stat::StoreStat;
use crate::lsm::version::Version;
use crate::lsm::writer::Writer;
use crate::map::{Map, Show, Verified};
use crate::media::Media;
use crate::options::{Durability, Options};
use crate::waiting::Waiting;
use std::fmt;
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering;
use vellum_base::{Env, Error, Kind, Result};

/// An ordered key-value store. Share it between threads in an `Arc`.
///
/// ```
/// use vellum_base::RealEnv;
/// use vellum_kv::{Bounds, Directory, DirectoryOptions, Map, Options, Store};
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
    pub(crate) core: Arc<Core>,
}

impl Store {
    /// Opens the store on `media`, or creates one if there is none and [`Options::create_if_missing`] is set.
    pub fn open(media: Arc<dyn Media>, env: Arc<dyn Env>, options: Options) -> Result<Store> {
        let core = Arc::new(open(media, env, options)?);
        background::start(&core);
        // A store that is opened and closed again and again before anything is flushed must not accumulate logs. A full
        // medium is reported to whoever writes.
        let _ = core.wait_until(|state| state.frozen.len() <= core.options.memtables_max);
        Ok(Store { core })
    }

    /// An error if a store on `media`, whether it exists yet or not, is too small for the batch.
    pub fn check_batch_on(media: &Arc<dyn Media>, options: &Options, batch: &Batch) -> Result<()> {
        Limits::new(&**media, options).check_batch(batch)
    }

    /// A read-only view of the store as it is now, valid as long as the snapshot is held.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshots = self.core.snapshots.lock();
        let seq = self.core.visible.load(Ordering::Acquire);
        *snapshots.entry(seq).or_default() += 1;
        drop(snapshots);
        Snapshot { core: self.core.clone(), seq }
    }

    /// An iterator over the keys within `bounds`, as they are now.
    pub fn iter(&self, bounds: Bounds) -> Result<Iter> {
        let (view, seq) = self.core.moment();
        self.core.scans(&view);
        Ok(Iter::new(view, seq, DEFAULT_KEYSPACE, bounds))
    }

    /// Statistics: what the store holds, and what it did.
    pub fn stat(&self) -> StoreStat {
        self.core.stat()
    }

    /// Ends background work, makes everything written durable, and records where the log ends, so that damage to the
    /// log before the next opening is detected. Dropping the store does the same, but ignores errors. Keyspaces and
    /// snapshots remain readable and keep the medium open: opening it elsewhere fails until they are dropped. Iterators
    /// remain readable, too; they keep open what they read from: flash and zones, but of a directory its files alone.
    pub fn close(self) -> Result<()> {
        self.shut()
    }

    pub(crate) fn version(&self) -> Arc<Version> {
        self.core.view.load().version.clone()
    }

    fn shut(&self) -> Result<()> {
        // A keyspace handle may outlive the store: its writes come before all this, or are refused. Whoever holds the
        // lock now may be waiting for a background task, so tasks end only after it is taken.
        let writer = self.core.writer.lock();
        if !self.core.state.end() {
            return Ok(());
        }
        let closed = self.close_log(&writer);
        self.core.state.poison(Error::new(Kind::Poisoned, "it was closed"));
        self.core.wait_for_ingests();
        closed
    }

    fn close_log(&self, writer: &Writer) -> Result<()> {
        self.core.state.check_writable()?;
        self.core.finish_log()?;
        self.core.sync_log()?;
        let closed = writer.log;
        if closed.is_some() {
            let edit = Edit { closed, ..Edit::default() };
            self.core.with_room(|| self.core.install(&edit, |_, _| ()))?;
        }
        self.core.erase_obsolete()
    }
}

impl Map for Store {
    fn write(&self, batch: &Batch, durability: Durability) -> Result<()> {
        self.core.write(batch, durability)
    }
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let view = self.core.view.load();
        with_internal(DEFAULT_KEYSPACE, key, |key| self.core.get(&view, key, None, value))
    }
    fn each(&self, show: Show<'_>) -> Result<()> {
        let mut iter = self.iter(Bounds::all())?;
        iter.seek_to_first()?;
        while iter.is_valid() {
            show(iter.key(), iter.value())?;
            iter.next()?;
        }
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        self.core.sync_log()
    }
    fn flush(&self) -> Result<()> {
        self.core.flush()
    }
    /// Entries visible to open snapshots stay. What was kept for snapshots dropped since goes, as far as there is room,
    /// but not from tables with something newer than a snapshot that is open, nor where a program before CURRENT's
    /// version 7 wrote the table: there it goes when the table is next merged.
    fn compact(&self) -> Result<()> {
        self.core.compact(&Range::everything())
    }
    fn checkpoint(&self, into: &Arc<dyn Media>) -> Result<()> {
        self.core.checkpoint(into)
    }
    fn verify(&self) -> Result<Verified> {
        self.core.verify()
    }
    fn value_bytes_max(&self) -> usize {
        self.core.limits.value_bytes_max
    }
    fn batch_bytes_max(&self) -> usize {
        self.core.limits.batch_bytes_max
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("keyspaces", &self.keyspaces()).finish_non_exhaustive()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // An error has nowhere to go; whoever wants it calls `close`.
        let _ = self.shut();
    }
}

/// A store as it was when the snapshot was taken. Entries that were visible then stay on the medium until it is
/// dropped; it takes no memory.
pub struct Snapshot {
    pub(crate) core: Arc<Core>,
    pub(crate) seq: u64,
}

impl Snapshot {
    /// The value of `key` at the time of the snapshot; `None` if it was absent.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        let view = self.core.view.load();
        let found = with_internal(DEFAULT_KEYSPACE, key, |key| {
            self.core.get(&view, key, Some(self.seq), &mut value)
        })?;
        Ok(found.then_some(value))
    }

    /// An iterator over the keys within `bounds` at the time of the snapshot.
    pub fn iter(&self, bounds: Bounds) -> Result<Iter> {
        let view = self.core.view.load_full();
        self.core.scans(&view);
        Ok(Iter::new(view, self.seq, DEFAULT_KEYSPACE, bounds))
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("seq", &self.seq).finish_non_exhaustive()
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
