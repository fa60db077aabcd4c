//! What every store does, whether its keys have an order or not.

use crate::batch::Batch;
use crate::media::Media;
use crate::options::Durability;
use std::sync::Arc;
use vellum_base::{Kind, Result};

/// A batch that is filled bit by bit is written when it has so many bytes.
const BATCH_BYTES: usize = 64 << 10;
/// What a store adds to a key and a value, at most, about.
const FRAMING_BYTES: usize = 24;

/// Sees a key and its value.
pub type Show<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

/// A map from keys to values on a medium: [`crate::Store`] and [`crate::log::Store`].
pub trait Map: Send + Sync {
    /// Applies a batch as a whole. When this returns it is visible, and survives what `durability` says; what was
    /// written before it survives the same. After an error of the medium the store takes no more writes.
    fn write(&self, batch: &Batch, durability: Durability) -> Result<()>;

    /// The value of `key`, into memory that is used again and again. False if there is none; then `value` is anything.
    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Shows every key and its value as they are now: in the order of keys, where there is one.
    fn each(&self, show: Show<'_>) -> Result<()>;

    /// Makes all that was written survive the loss of power.
    fn sync(&self) -> Result<()>;

    /// Puts everything written so far into tables.
    fn flush(&self) -> Result<()>;

    /// Flushes, then rewrites tables until nothing that is hidden or deleted takes room.
    fn compact(&self) -> Result<()>;

    /// Makes a store on `into`, which must be empty, that holds what this one holds now. Tables are linked where both
    /// are directories of one file system of the host, else copied. Readers and writers go on meanwhile. A checkpoint
    /// that was cut short is no store.
    fn checkpoint(&self, into: &Arc<dyn Media>) -> Result<()>;

    /// Reads all there is, and says what is not in order. An error only if the medium fails. May run beside readers and
    /// writers.
    fn verify(&self) -> Result<Verified>;

    /// Most bytes of a value here.
    fn value_bytes_max(&self) -> usize;

    /// Most bytes of a batch here ([`Batch::bytes`]).
    fn batch_bytes_max(&self) -> usize;

    /// True once a batch that is filled bit by bit is large enough to be written.
    fn is_filled(&self, batch: &Batch) -> bool {
        batch.bytes() + FRAMING_BYTES * batch.len() >= BATCH_BYTES.min(self.batch_bytes_max() / 2)
    }

    /// Sets `key` to `value`; survives the process.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut batch = Batch::new();
        batch.put(key, value)?;
        self.write(&batch, Durability::Buffered)
    }

    /// Removes `key`, if it is there; survives the process.
    fn delete(&self, key: &[u8]) -> Result<()> {
        let mut batch = Batch::new();
        batch.delete(key)?;
        self.write(&batch, Durability::Buffered)
    }

    /// The value of `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }
}

/// What [`Map::verify`] saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Tables read.
    pub tables: usize,
    /// Entries in those that are in order.
    pub entries: u64,
    /// Bytes of all tables.
    pub bytes: u64,
    /// Logs read.
    pub logs: usize,
    /// What is not in order, in words. Nothing if all is well.
    pub problems: Vec<String>,
    /// Of a store that is opened read-only: where a log ends though records follow that were not synced, in words. That
    /// is what a loss of power leaves, or damage; whoever opens the store to write gives them up, and `repair` takes
    /// them before ([`crate::Options::strict_log`]).
    pub remarks: Vec<String>,
}

impl Verified {
    pub(crate) fn note(&mut self, result: Result<()>) -> Result<()> {
        match result {
            // Of the process, which may open no more files: nothing is said of the store.
            Err(error) if error.kind() == Kind::NoSpace => return Err(error),
            other => self.problems.extend(other.err().map(|error| error.to_string())),
        }
        Ok(())
    }

    /// Takes what is said of logs that have to end where nothing follows, if they are in order otherwise.
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
