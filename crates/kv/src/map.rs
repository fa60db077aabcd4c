//! What both stores offer, the ordered one and the log store.

use crate::batch::{Batch, check_value_bytes};
use crate::media::Media;
use crate::options::Durability;
use std::sync::Arc;
use vellum_base::{Kind, Result};

/// A batch that is filled step by step is written when it has this many bytes.
const BATCH_BYTES: usize = 64 << 10;
/// Upper estimate of what a store adds to a key and its value.
const FRAMING_BYTES: usize = 24;

/// A callback that is given a key and its value; an error ends the walk.
pub type Show<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

/// A persistent map from keys to values: [`crate::Store`] and [`crate::log::Store`].
pub trait Map: Send + Sync {
    /// Applies a batch atomically. When this returns, the batch is visible, and it and everything written before it
    /// survive what `durability` says. After an error of the medium other than [`Kind::NoSpace`] the store refuses all
    /// writes until it is opened again.
    fn write(&self, batch: &Batch, durability: Durability) -> Result<()>;

    /// Reads the value of `key` into `value`, whose memory is reused. False if the key is absent; the contents of
    /// `value` are unspecified then.
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Calls `show` for every key and its value: in key order in an ordered store, in no order in a log store.
    fn each(&self, show: Show<'_>) -> Result<()>;

    /// Makes everything written so far survive loss of power.
    fn sync(&self) -> Result<()>;

    /// Writes everything in memory to tables.
    fn flush(&self) -> Result<()>;

    /// Flushes, then rewrites tables until overwritten and deleted entries take no more room.
    fn compact(&self) -> Result<()>;

    /// Creates on `into`, which must be empty, a store that holds what this one holds now. Tables are hard-linked where
    /// both are directories of one file system, else copied. Readers and writers go on meanwhile. A checkpoint that was
    /// interrupted is not a store.
    fn checkpoint(&self, into: &Arc<dyn Media>) -> Result<()>;

    /// Reads and checks everything, and reports what is damaged in [`Verified::problems`]. An error only if the medium
    /// fails. May run beside readers and writers.
    fn verify(&self) -> Result<Verified>;

    /// Largest value in bytes that this store takes.
    fn value_bytes_max(&self) -> usize;

    /// An error if a value of so many bytes is too long for this store, with [`crate::reason::VALUE_TOO_LONG`]:
    /// [`Kind::NoSpace`] if more room would help, else [`Kind::Invalid`].
    fn check_value(&self, bytes: usize) -> Result<()> {
        check_value_bytes(bytes, self.value_bytes_max())
    }

    /// Largest batch in bytes that this store takes ([`Batch::bytes`]).
    fn batch_bytes_max(&self) -> usize;

    /// True once a batch that is filled step by step is large enough to be written.
    fn is_filled(&self, batch: &Batch) -> bool {
        batch.bytes() + FRAMING_BYTES * batch.len() >= BATCH_BYTES.min(self.batch_bytes_max() / 2)
    }

    /// Sets `key` to `value` with [`Durability::Buffered`].
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut batch = Batch::new();
        batch.put(key, value)?;
        self.write(&batch, Durability::Buffered)
    }

    /// Removes `key` if present, with [`Durability::Buffered`].
    fn delete(&self, key: &[u8]) -> Result<()> {
        let mut batch = Batch::new();
        batch.delete(key)?;
        self.write(&batch, Durability::Buffered)
    }

    /// The value of `key`; `None` if it is absent.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }
}

/// The result of [`Map::verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Tables read.
    pub tables: usize,
    /// Entries in tables without damage.
    pub entries: u64,
    /// Bytes of all tables.
    pub bytes: u64,
    /// Logs read.
    pub logs: usize,
    /// A message for each piece of damage; empty if there is none.
    pub problems: Vec<String>,
    /// For a store that is open read-only: messages about logs that end before records which were never synced. A power
    /// loss leaves that, or damage. The next opening for writing discards these records; `repair`, if run first,
    /// recovers them ([`crate::Options::strict_log`]).
    pub remarks: Vec<String>,
}

impl Verified {
    pub(crate) fn note(&mut self, result: Result<()>) -> Result<()> {
        match result {
            // The process is at its limit of open files: that is no damage of the store.
            Err(error) if error.kind() == Kind::NoSpace => return Err(error),
            other => self.problems.extend(other.err().map(|error| error.to_string())),
        }
        Ok(())
    }

    /// Notes, as a remark, the result of checking that nothing follows the end of a log, unless problems were found
    /// already.
    pub(crate) fn note_strict(&mut self, logs: Result<()>) -> Result<()> {
        match logs {
            Err(error) if error.kind() != Kind::Corrupt => Err(error),
            Err(error) if self.problems.is_empty() => {
                self.remarks.push(error.to_string());
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
