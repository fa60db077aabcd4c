//! The public interface of the log store. Its states are those of the ordered store (`lsm/store.rs`).

use super::background;
use super::core::Core;
use super::iter::Iter;
use super::open::open;
use super::options::{Limits, Options};
use super::stat::StoreStat;
use crate::batch::Batch;
use crate::durable::Durable;
use crate::journal::Edit;
use crate::key::check_key;
use crate::map::{Map, Show, Verified};
use crate::media::Media;
use crate::options::Durability;
use std::fmt;
use std::sync::Arc;
use vellum_base::{Env, Error, Kind, Result};

/// A key-value store without order. Share it between threads in an `Arc`.
///
/// ```
/// use vellum_base::RealEnv;
/// use vellum_kv::log::{Options, Store};
/// use vellum_kv::{Directory, DirectoryOptions, Map};
///
/// # let dir = tempfile::tempdir().unwrap();
/// let media = Directory::open(dir.path(), DirectoryOptions::default())?;
/// let store = Store::open(media, RealEnv::new(), Options::default())?;
/// store.put(b"quire", b"four sheets")?;
/// assert_eq!(store.get(b"quire")?.as_deref(), Some(&b"four sheets"[..]));
/// store.delete(b"quire")?;
/// assert!(store.iter().next().is_none());
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
        Ok(Store { core })
    }

    /// An error if a store on `media`, whether it exists yet or not, is too small for the batch.
    pub fn check_batch_on(media: &Arc<dyn Media>, options: &Options, batch: &Batch) -> Result<()> {
        let limits = Limits::new(&**media, options);
        limits.check_value(batch.value_bytes_max(), media, options)?;
        limits.check_batch(batch)
    }

    /// Iterates over all keys in no order. A key that is present and unchanged throughout is seen once; of one that is
    /// written or deleted meanwhile, the state before or after may be seen.
    pub fn iter(&self) -> Iter {
        Iter::new(self.core.clone())
    }

    /// Number of keys.
    pub fn len(&self) -> u64 {
        self.core.index.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Statistics: what the store holds, and what it did.
    pub fn stat(&self) -> StoreStat {
        self.core.stat()
    }

    /// Ends background work, makes everything written durable, and records where the log ends, so that damage to the
    /// log before the next opening is detected. Dropping the store does the same, but ignores errors.
    pub fn close(self) -> Result<()> {
        self.shut()
    }

    fn shut(&self) -> Result<()> {
        let core = &self.core;
        if !core.state.end() {
            return Ok(());
        }
        core.state.check_writable()?;
        core.with_room(|| core.wal.lock().finish())?;
        core.sync_log()?;
        let mut writer = core.writer.lock();
        let closed = core.wal.lock().open_log();
        // The segment being written is given up: its logs stay and are replayed.
        drop(writer.open.as_mut().and_then(|open| open.table.take()));
        drop(writer);
        core.state.lock().frozen.iter().for_each(|frozen| drop(frozen.table.lock().take()));
        if closed.is_some() {
            core.with_room(|| core.install(Edit { closed, ..Edit::default() }, |_, _| ()))?;
        }
        let buried = core.erase_obsolete();
        // An iterator may outlive the store.
        core.state.poison(Error::new(Kind::Poisoned, "it was closed"));
        buried
    }
}

impl Map for Store {
    /// For each key that exists already, this reads its old record.
    fn write(&self, batch: &Batch, durability: Durability) -> Result<()> {
        self.core.write(batch, durability)
    }
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        check_key(key)?;
        self.core.get(key, value)
    }
    fn each(&self, show: Show<'_>) -> Result<()> {
        self.iter().try_for_each(|pair| pair.and_then(|(key, value)| show(&key, &value)))
    }
    fn sync(&self) -> Result<()> {
        self.core.sync_log()
    }
    fn flush(&self) -> Result<()> {
        self.core.flush()
    }
    /// If there is no room to flush, segments are collected first.
    fn compact(&self) -> Result<()> {
        match self.core.flush() {
            Err(error) if error.kind() == Kind::NoSpace => {
                self.core.collect_all()?;
                self.core.flush()?;
            }
            flushed => flushed?,
        }
        self.core.collect_all()
    }
    /// Writers wait until what was written before is in a segment.
    fn checkpoint(&self, into: &Arc<dyn Media>) -> Result<()> {
        self.core.checkpoint(into)
    }
    fn verify(&self) -> Result<Verified> {
        self.core.verify()
    }
    fn value_bytes_max(&self) -> usize {
        self.core.limits.value_bytes_max
    }
    fn check_value(&self, bytes: usize) -> Result<()> {
        self.core.limits.check_value(bytes, &self.core.media, &self.core.options)
    }
    /// Each entry counts 16 bytes more here than in [`Batch::bytes`].
    fn batch_bytes_max(&self) -> usize {
        self.core.limits.batch_bytes_max
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("keys", &self.len()).finish_non_exhaustive()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // A drop cannot report an error; callers who need it use `close`.
        let _ = self.shut();
    }
}
