//! Reading a table whole, to see that it is in order.

use super::{Library, Table, TableCursor, TableStream, hash};
use crate::journal::TableMeta;
use crate::key::{EntryKind, Stamp, compare};
use crate::lsm::cache::Cache;
use crate::lsm::merge::Stream;
use std::cmp::Ordering;
use std::sync::Arc;
use vellum_base::{Env, Error, IoClass, Result};

impl Library {
    /// For tables that are read once: it keeps nothing.
    pub(crate) fn without_cache(env: Arc<dyn Env>) -> Arc<Library> {
        Arc::new(Library {
            env,
            cache: Cache::new(0),
            policy: Default::default(),
            map_files: false,
            obsolete: Default::default(),
            filters: Default::default(),
            warmed: Default::default(),
            kept_logs: Default::default(),
            pointed_reads: Default::default(),
        })
    }
}

impl Table {
    /// Reads the table twice, as it lies and through its index, and compares; then what it holds in all with what the
    /// manifest says. All of it has to be in keyspaces that are `known`.
    pub(crate) fn verify(self: &Arc<Table>, known: impl Fn(u8) -> bool) -> Result<()> {
        let mut lies = TableStream::new(self.clone(), IoClass::Background);
        let mut found = TableCursor::new(self.clone());
        let mut held = TableMeta { number: self.meta.number, seq_min: u64::MAX, ..TableMeta::default() };
        let wrong = |what: &str| Err(Error::corrupt(format!("table {}: {what}", self.meta.number)));
        lies.first()?;
        found.first()?;
        let mut last: Option<Stamp> = None;
        while lies.is_valid() {
            lies.load()?;
            found.load()?;
            let (key, stamp) = (lies.key(), lies.stamp());
            if !found.is_valid() || (found.key(), found.stamp(), found.value()) != (key, stamp, lies.value())
            {
                return wrong("an entry is not where the index says");
            }
            if last.is_some_and(|last| compare((&held.largest, last), (key, stamp)) != Ordering::Less) {
                return wrong("entries are out of order");
            }
            if !key.first().is_some_and(|keyspace| known(*keyspace)) {
                return wrong("a key of no keyspace");
            }
            if !found.filter_holds(hash(key)) {
                return wrong("a filter does not know a key");
            }
            let Some(kind) = stamp.kind() else { return wrong("an entry is of no known kind") };
            if last.is_none() {
                held.smallest = key.to_vec();
            }
            held.older += u64::from(last.is_some() && held.largest == key);
            held.largest.clear();
            held.largest.extend_from_slice(key);
            last = Some(stamp);
            held.entries += 1;
            held.deletes += (kind == EntryKind::Delete) as u64;
            held.seq_min = held.seq_min.min(stamp.seq());
            held.seq_max = held.seq_max.max(stamp.seq());
            lies.next()?;
            found.next()?;
        }
        let TableMeta { bytes, pointed_bytes, logs, .. } = &self.meta;
        (held.bytes, held.pointed_bytes, held.logs) = (*bytes, *pointed_bytes, logs.clone());
        held.sum = self.meta.sum; // the stream has compared it
        // Tables that earlier programs wrote do not say.
        held.older = if self.meta.older == 0 { 0 } else { held.older };
        match found.is_valid() || held != self.meta {
            true => wrong("it does not hold what the manifest says"),
            false => Ok(()),
        }
    }
}
