//! The store: what a program that embeds one sees.

use super::background;
use super::core::Core;
use super::iter::Iter;
use super::open::open;
use super::options::Options;
use super::stat::StoreStat;
use crate::batch::Batch;
use crate::journal::Edit;
use crate::key::check_key;
use crate::media::Media;
use crate::options::Durability;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Env, Error, Kind, Result, Task};

/// A key-value store without order. Share it between threads in an `Arc`.
///
/// ```
/// use vellum_base::RealEnv;
/// use vellum_kv::log::{Options, Store};
/// use vellum_kv::{Directory, DirectoryOptions};
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
    tasks: Mutex<Vec<Task>>,
}

impl Store {
    /// Opens the store on `media`; makes one if there is none and the options say so.
    pub fn open(media: Arc<dyn Media>, env: Arc<dyn Env>, options: Options) -> Result<Store> {
        let core = Arc::new(open(media, env, options)?);
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
    /// written before it survives the same. After an error of the medium the store takes no more writes. Where a key of
    /// it is there already, this reads its record.
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
        check_key(key)?;
        self.core.get(key, value)
    }

    /// Walks through all keys, in no order. Whatever is there all the time is met once; of what comes, goes or changes
    /// meanwhile, either state may be.
    pub fn iter(&self) -> Iter {
        Iter::new(self.core.clone())
    }

    /// How many keys there are.
    pub fn len(&self) -> u64 {
        self.core.index.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes everything written so far into segments on the medium.
    pub fn flush(&self) -> Result<()> {
        self.core.flush()
    }

    /// Flushes, then collects every segment that holds anything hidden or deleted. Where there is no room to flush,
    /// what is on the medium is collected first.
    pub fn compact(&self) -> Result<()> {
        match self.core.flush() {
            Err(error) if error.kind() == Kind::NoSpace => {
                self.core.collect_all()?;
                self.core.flush()?;
            }
            flushed => flushed?,
        }
        self.core.collect_all()
    }

    /// What the store holds and did.
    pub fn stat(&self) -> StoreStat {
        self.core.stat()
    }

    /// Most bytes of a value here.
    pub fn value_bytes_max(&self) -> usize {
        self.core.limits.value_bytes_max
    }

    /// Most bytes of a batch here ([`Batch::bytes`], and 16 for each entry).
    pub fn batch_bytes_max(&self) -> usize {
        self.core.limits.batch_bytes_max
    }

    /// Ends background work, makes all that was written durable, and notes that it is whole: if bytes of it rot
    /// until it is opened again, that is seen. Dropping does the same, but swallows errors.
    pub fn close(self) -> Result<()> {
        self.shut()
    }

    fn shut(&self) -> Result<()> {
        let core = &self.core;
        let tasks = std::mem::take(&mut *self.tasks.lock());
        if tasks.is_empty() {
            return Ok(());
        }
        background::stop(core);
        tasks.into_iter().for_each(Task::join);
        core.check_writable()?;
        core.sync_log()?;
        let mut writer = core.writer.lock();
        let closed = core.wal.lock().open_log();
        // What it would have become is not needed: its logs stay.
        drop(writer.open.as_mut().and_then(|open| open.table.take()));
        drop(writer);
        core.state.lock().frozen.iter().for_each(|frozen| drop(frozen.table.lock().take()));
        if closed.is_some() {
            core.install(Edit { closed, ..Edit::default() }, |_, _| ())?;
        }
        let buried = core.bury();
        // An iterator may outlive the store.
        core.poison(Error::new(Kind::Poisoned, "it was closed"));
        buried
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // An error has nowhere to go; whoever wants it calls `close`.
        let _ = self.shut();
    }
}
