//! Tables that point into logs, written anew with their values. The logs of such a table hold all that it does: what
//! cannot be read in one is taken from the other.

use super::Repair;
use super::values::Values;
use crate::batch::put_entry;
use crate::journal::{SEQ_STORED_MAX, TableMeta};
use crate::key::{EntryKind, Stamp};
use crate::lsm::compaction::Sweep;
use crate::lsm::kept_log::Pointer;
use crate::lsm::memtable::{Memtable, MemtableCursor};
use crate::lsm::merge::{Cursor, Stream};
use crate::lsm::table::salvage;
use crate::repair::known;
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::{Kind, Result};

impl Repair<'_> {
    /// The logs that a table points into, as far as it can be read.
    pub(super) fn logs_of(&self, number: u64) -> Result<BTreeSet<u64>> {
        let mut logs = BTreeSet::new();
        let Ok(reader) = known(self.media.open_table(number))? else { return Ok(logs) };
        let unit_bytes = self.unit_bytes_of(&*reader);
        let note = |_: &[u8], stamp: Stamp, value: &[u8]| {
            let pointer = stamp.is_in_log().then(|| Pointer::decode(value));
            logs.extend(pointer.and_then(Result::ok).map(|pointer| pointer.log));
            Ok(())
        };
        // What cannot be read is reported where the table is saved.
        let _ = known(salvage(&*reader, &**self.env, unit_bytes, note))?;
        Ok(logs)
    }

    /// Writes the newest entries of a flush into tables of `level`: those of a table, and of its logs. If the manifest
    /// names the table, only keys within its range, for others of its flush may have been merged.
    pub(super) fn rewrite_flushed(
        &mut self,
        number: u64,
        level: usize,
        logs: &BTreeSet<u64>,
        listed: Option<&TableMeta>,
    ) -> Result<Vec<TableMeta>> {
        let memtable = Arc::new(Memtable::default());
        let last_seq = listed.map_or(SEQ_STORED_MAX, |meta| meta.seq_max);
        self.take_flushed(&memtable, logs, last_seq)?;
        self.take_table(&memtable, number, listed)?;
        let mut sweep = Sweep::new(Vec::new(), self.keyspaces.dead().collect());
        let is_own = |key: &[u8], stamp: Stamp| {
            listed.is_none_or(|meta| meta.may_have(key)) && stamp.seq() <= last_seq
        };
        let (mut sink, mut saved, mut spaces) = (self.sink(level), 0, BTreeSet::new());
        let mut entry = MemtableCursor::new(memtable);
        entry.first()?;
        while entry.is_valid() {
            if is_own(entry.key(), entry.stamp()) && sweep.keeps(entry.key(), entry.stamp(), || false) {
                saved += 1;
                spaces.insert(entry.key()[0]);
                sink.add(entry.key(), entry.stamp(), entry.value())?;
            }
            entry.next()?;
        }
        let tables = sink.finish()?;
        self.spaces.extend(spaces);
        self.report.entries_lost += listed.map_or(0, |meta| meta.entries.saturating_sub(saved));
        match saved {
            0 => self.report.tables_lost += 1,
            _ => self.report.tables_rewritten += 1,
        }
        Ok(tables)
    }

    /// Takes the batches of logs that check out, and begin at `last_seq` or before: the last may go on behind it. Of
    /// two with the same number, that of the newer log counts.
    fn take_flushed(&mut self, memtable: &Memtable, logs: &BTreeSet<u64>, last_seq: u64) -> Result<()> {
        let mut below = SEQ_STORED_MAX;
        for log in logs.iter().rev() {
            let take = |payload: &[u8], seq, _| {
                if seq <= last_seq {
                    memtable.insert(payload, seq, None);
                }
            };
            match self.each_batch(*log, below, take) {
                Ok(first) => below = first.map_or(below, |first| first.min(below)),
                // It may be read another time.
                Err(error) if error.kind() != Kind::Corrupt => return Err(error),
                Err(error) => self.problem(error),
            }
        }
        Ok(())
    }

    /// Takes what a table holds and the memtable does not.
    fn take_table(
        &mut self,
        memtable: &Arc<Memtable>,
        number: u64,
        listed: Option<&TableMeta>,
    ) -> Result<()> {
        let reader = match known(self.reader_of(number, listed))? {
            Ok(reader) => reader,
            Err(error) => {
                self.problem(error);
                return Ok(());
            }
        };
        let mut values = Values::new(&**self.media, self.env);
        let mut entries = MemtableCursor::new(memtable.clone());
        let (mut payload, mut is_empty) = (Vec::new(), true);
        let unit_bytes = self.unit_bytes_of(&*reader);
        let salvaged = salvage(&*reader, &**self.env, unit_bytes, |key, stored, value| {
            is_empty = false;
            let stamp = stored.shown();
            entries.seek(key, stamp)?;
            if entries.is_valid() && (entries.key(), entries.stamp()) == (key, stamp) {
                return Ok(());
            }
            let value = if stored.is_in_log() { values.of(value) } else { Some(value) };
            if let (Some(value), Some(kind)) = (value, stamp.kind()) {
                let value = if kind == EntryKind::Put { value } else { &[] };
                payload.clear();
                put_entry(&mut payload, kind, (&key[..1], &key[1..]), value);
                memtable.insert(&payload, stamp.seq(), None);
            }
            Ok(())
        });
        values.problems()?.for_each(|what| self.problem(format!("table {number}: {what}")));
        let sum = listed.and_then(|listed| listed.sum);
        // Where there is nothing, nothing is doubtful.
        self.note_salvaged(number, salvaged, sum.filter(|_| !is_empty))
    }
}
