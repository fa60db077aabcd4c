//! Named key ranges of one store: the handle on one. `store` creates and drops them.
//!
//! The number of a keyspace is a one-byte prefix of its keys. States of a number: free → live (it has a name) → dead
//! (dropped, entries may be left) → free, once no entries are left.
//!
//! Invariants
//! 1. A number is free only if no table has keys with it, no running merge may write any, and no log that is still
//!    needed holds any.
//! 2. Number 0 is live, under the name `default`.

mod numbers;
mod set;
mod store;

pub(crate) use set::{Keyspaces, Space};

use crate::batch::Batch;
use crate::key::{KEYSPACE_NAME_BYTES_MAX, with_internal};
use crate::lsm::core::Core;
use crate::lsm::iter::{Bounds, Iter};
use crate::lsm::store::Snapshot;
use crate::options::Durability;
use std::fmt;
use std::sync::Arc;
use vellum_base::{Error, Result};

/// A handle on a named, separately ordered set of keys of a store. A batch may write to several keyspaces
/// ([`Batch::put_in`]). The handle keeps the medium of the store open until it is dropped.
///
/// ```
/// # use vellum_base::RealEnv;
/// # use vellum_kv::{Batch, Bounds, Directory, DirectoryOptions, Durability, Map, Options, Store};
/// # let dir = tempfile::tempdir().unwrap();
/// # let media = Directory::open(dir.path(), DirectoryOptions::default())?;
/// # let store = Store::open(media, RealEnv::new(), Options::default())?;
/// let (sheets, index) = (store.keyspace_or_create("sheets")?, store.keyspace_or_create("index")?);
/// let mut batch = Batch::new();
/// batch.put_in(&sheets, b"17", b"vellum")?;
/// batch.put_in(&index, b"vellum", b"17")?;
/// store.write(&batch, Durability::Sync)?;
/// assert_eq!(index.get(b"vellum")?.as_deref(), Some(&b"17"[..]));
/// assert_eq!(store.get(b"vellum")?, None);
/// store.drop_keyspace("index")?;
/// assert!(index.get(b"vellum").is_err());
/// # Ok::<(), vellum_base::Error>(())
/// ```
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) core: Arc<Core>,
    pub(crate) space: Arc<Space>,
}

impl Keyspace {
    /// An error if no keyspace can have this name: it has 1 to [`KEYSPACE_NAME_BYTES_MAX`] bytes.
    pub fn check_name(name: &str) -> Result<()> {
        match name.len() {
            1..=KEYSPACE_NAME_BYTES_MAX => Ok(()),
            bytes => Err(Error::invalid(format!(
                "a keyspace's name has 1 to {KEYSPACE_NAME_BYTES_MAX} bytes, not {bytes}"
            ))),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.space.name
    }

    /// Sets `key` to `value` with [`Durability::Buffered`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut batch = Batch::new();
        batch.put_in(self, key, value)?;
        self.core.write(&batch, Durability::Buffered)
    }

    /// Removes `key` if present, with [`Durability::Buffered`].
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        let mut batch = Batch::new();
        batch.delete_in(self, key)?;
        self.core.write(&batch, Durability::Buffered)
    }

    /// The value of `key`; `None` if it is absent.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Reads the value of `key` into `value`, whose memory is reused. False if the key is absent; the contents of
    /// `value` are unspecified then.
    pub fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.find(key, None, value)
    }

    /// An iterator over the keys within `bounds`, as they are now.
    pub fn iter(&self, bounds: Bounds) -> Result<Iter> {
        self.walk(None, bounds)
    }

    fn find(&self, key: &[u8], seq: Option<u64>, value: &mut Vec<u8>) -> Result<bool> {
        // As of one moment: later puts to another keyspace that was given this number are not visible.
        let (view, now) = self.core.moment();
        view.version.keyspaces.check(&self.space)?;
        let seq = Some(seq.unwrap_or(now));
        with_internal(self.space.number, key, |key| self.core.get(&view, key, seq, value))
    }

    fn walk(&self, seq: Option<u64>, bounds: Bounds) -> Result<Iter> {
        let (view, now) = self.core.moment();
        let seq = seq.unwrap_or(now);
        view.version.keyspaces.check(&self.space)?;
        self.core.scans(&view);
        Ok(Iter::new(view, seq, self.space.number, bounds))
    }
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.space.name).finish_non_exhaustive()
    }
}

impl Snapshot {
    /// The value of `key` in `keyspace` at the time of the snapshot. An error if the keyspace was dropped since.
    pub fn get_in(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        self.check(keyspace)?;
        Ok(keyspace.find(key, Some(self.seq), &mut value)?.then_some(value))
    }

    /// An iterator over the keys of `keyspace` within `bounds` at the time of the snapshot.
    pub fn iter_in(&self, keyspace: &Keyspace, bounds: Bounds) -> Result<Iter> {
        self.check(keyspace)?;
        keyspace.walk(Some(self.seq), bounds)
    }

    fn check(&self, keyspace: &Keyspace) -> Result<()> {
        match Arc::ptr_eq(&self.core, &keyspace.core) {
            true => Ok(()),
            false => Err(Error::invalid(format!("keyspace {:?} is of another store", keyspace.space.name))),
        }
    }
}
