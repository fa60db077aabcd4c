//! The entries of a batch, and what the store has of their keys.

use super::core::Core;
use super::index::Pointer;
use super::record::record_bytes;
use super::segment::Account;
use crate::batch::{Batch, decode_entry};
use crate::key::{DEFAULT_KEYSPACE, EntryKind};
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::{IoClass, Result};

/// What is to be written of a key.
pub(super) struct Entry<'a> {
    pub kind: EntryKind,
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub hash: u64,
    pub found: Found,
}

/// What the store has of a key.
#[derive(Default)]
pub(super) struct Found {
    /// Candidates that were looked at.
    pub pointers: Vec<Pointer>,
    /// Accounts of the segments that they point into: slots are reused.
    pub accounts: Vec<Arc<Account>>,
    /// Its record, and how many bytes that takes.
    pub record: Option<(Pointer, usize)>,
    /// Another key has the same hash.
    pub twin: bool,
}

impl Entry<'_> {
    pub(super) fn bytes(&self) -> usize {
        record_bytes(self.kind, self.key.len(), self.value.len())
    }
    /// False for a delete of what is not there.
    pub(super) fn does_something(&self) -> bool {
        self.kind == EntryKind::Put || self.found.record.is_some()
    }
}

impl Core {
    /// What a batch does in the end: of several entries of a key the last counts.
    pub(super) fn entries<'a>(&self, batch: &'a Batch) -> Vec<Entry<'a>> {
        let (mut rest, mut all) = (batch.payload(), Vec::with_capacity(batch.len()));
        while !rest.is_empty() {
            let (entry, length) = decode_entry(rest).expect("the batch was made by us");
            debug_assert_eq!(entry.key[0], DEFAULT_KEYSPACE);
            let key = &entry.key[1..];
            all.push(Entry {
                kind: entry.kind,
                key,
                value: entry.value,
                hash: self.hash(key),
                found: Found::default(),
            });
            rest = &rest[length..];
        }
        if all.len() > 1 {
            let last: BTreeMap<&[u8], usize> =
                all.iter().enumerate().map(|(at, entry)| (entry.key, at)).collect();
            let mut at = 0;
            all.retain(|entry| {
                at += 1;
                last[entry.key] == at - 1
            });
        }
        all
    }

    /// Looks up what the store has of a key.
    pub(super) fn look(&self, entry: &mut Entry<'_>) -> Result<()> {
        let mut found = Found::default();
        let view = self.candidates(entry.hash, &mut found.pointers);
        for pointer in &found.pointers {
            let segment = view.segment(self.format.slot(*pointer))?;
            found.accounts.push(segment.account.clone());
            let reading = self.reading(IoClass::Foreground);
            let matched =
                segment.record(reading, self.format.offset(*pointer), |record, bytes| {
                    match record.key == entry.key {
                        true => Ok(bytes),
                        false => Err(self.hash(record.key) == entry.hash),
                    }
                })?;
            match matched {
                Ok(bytes) => found.record = Some((*pointer, bytes)),
                Err(is_twin) => found.twin |= is_twin,
            }
        }
        entry.found = found;
        Ok(())
    }

    /// Looks again at what has changed since.
    pub(super) fn look_again(&self, entries: &mut [Entry<'_>]) -> Result<()> {
        let mut pointers = Vec::new();
        for entry in entries {
            let view = self.candidates(entry.hash, &mut pointers);
            let mut is_same = pointers == entry.found.pointers;
            for (pointer, account) in pointers.iter().zip(&entry.found.accounts) {
                let segment = view.segment(self.format.slot(*pointer))?;
                is_same &= Arc::ptr_eq(&segment.account, account);
            }
            if !is_same {
                self.look(entry)?;
            }
        }
        Ok(())
    }
}

/// Marks keys of a batch whose hashes are equal: each exists when the next is written.
pub(super) fn find_twins(entries: &mut [Entry<'_>]) {
    let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
    entries.iter().for_each(|entry| *seen.entry(entry.hash).or_default() += 1);
    entries.iter_mut().for_each(|entry| entry.found.twin |= seen[&entry.hash] > 1);
}
