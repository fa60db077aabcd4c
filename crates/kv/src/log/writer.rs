//! The path of a write: look up its keys, then log, open segment, index.
//!
//! Looking up keys may read the medium, so it is done before the lock is taken, and repeated with the lock only if the
//! index has changed.
//!
//! Invariants
//! 1. The open segment holds exactly the records of its logs.
//! 2. Every record states whether another key with the same hash existed when it was written. Only if one does can two
//!    records with one hash belong to two existing keys (`rebuild.rs`).
//! 3. While `moves` is held nobody else changes pointers of the index.

use super::collect::ORDERS;
use super::core::{Core, NewTable, State};
use super::hint::{SEGMENT_UNIT_BYTES, units_max};
use super::index::{Change, Pointer};
use super::options::Limits;
use super::record::{Record, record_bytes};
use super::segment::{Account, Buffer, Home, Segment, start};
use crate::batch::{Batch, decode_entry};
use crate::durable::Durable;
use crate::key::{DEFAULT_KEYSPACE, EntryKind};
use crate::options::Durability;
use crate::waiting::Waiting;
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::sync::{Mutex, MutexGuard, RwLock};
use vellum_base::{Cause, IoClass, Kind, Result};

/// Tables that puts leave free for collecting, and those that deletes leave.
const SPARE_TABLES: u64 = 3;
const SPARE_FOR_DELETES: u64 = 1;

/// State that belongs to the task that writes.
pub(crate) struct Writer {
    pub next_seq: u64,
    pub open: Option<Open>,
}

/// The segment that is written.
pub(crate) struct Open {
    pub segment: Arc<Segment>,
    pub buffer: Buffer,
    /// What it is to become; none if nothing was written since the store was opened.
    pub table: Option<NewTable>,
    pub logs: Vec<u64>,
    pub records: u64,
    /// It took room that is kept for deletes, or may have: puts wait until there is more.
    pub is_for_deletes: bool,
}

/// A segment on its way to a table.
pub(crate) struct Frozen {
    pub segment: Arc<Segment>,
    pub table: Mutex<Option<NewTable>>,
    /// Its logs, removed when it is a table.
    pub logs: Vec<u64>,
    /// The first log that is needed after that.
    pub next_log: u64,
    pub last_seq: u64,
    pub records: u64,
    /// No table is begun for it: it is of an earlier life, or the one that was found no room.
    pub lacks_table: AtomicBool,
}

/// Bytes of a table for a segment with `data_bytes` of data in `records` records.
pub(crate) fn table_bytes(data_bytes: u64, records: u64) -> u64 {
    data_bytes.next_multiple_of(SEGMENT_UNIT_BYTES as u64)
        + (units_max(records) + 1) * SEGMENT_UNIT_BYTES as u64
}

/// What is to be written of a key.
struct Entry<'a> {
    kind: EntryKind,
    key: &'a [u8],
    value: &'a [u8],
    hash: u64,
    found: Found,
}

/// What the store has of a key.
#[derive(Default)]
struct Found {
    /// Candidates that were looked at.
    pointers: Vec<Pointer>,
    /// Accounts of the segments that they point into: slots are reused.
    accounts: Vec<Arc<Account>>,
    /// Its record, and how many bytes that takes.
    record: Option<(Pointer, usize)>,
    /// Another key has the same hash.
    twin: bool,
}

impl Entry<'_> {
    fn bytes(&self) -> usize {
        record_bytes(self.kind, self.key.len(), self.value.len())
    }
    /// False for a delete of what is not there.
    fn does_something(&self) -> bool {
        self.kind == EntryKind::Put || self.found.record.is_some()
    }
}

impl Open {
    /// True if it can take `bytes` more in `records` records.
    fn fits(&self, bytes: usize, records: usize, segment_bytes: u64) -> bool {
        let capacity =
            self.table.as_ref().map_or(segment_bytes, |begun| begun.table.capacity().min(segment_bytes));
        let data = self.segment.data_bytes() + bytes as u64;
        table_bytes(data, self.records + records as u64) <= capacity
    }
}

impl Core {
    /// Applies a batch.
    pub(crate) fn write(&self, batch: &Batch, durability: Durability) -> Result<()> {
        self.state.check_writable()?;
        self.limits.check_batch(batch)?;
        self.env.charge(self.options.cpu.put);
        let mut entries = self.entries(batch);
        entries.iter_mut().try_for_each(|entry| self.look(entry))?;
        if !entries.iter().any(Entry::does_something) {
            return self.settle(durability);
        }
        let mut writer = self.writer.lock();
        let written = self.write_locked(&mut writer, entries, batch.only_deletes(), durability)?;
        drop(writer);
        let Some(upto) = written else { return self.settle(durability) };
        self.counts.user_bytes.fetch_add(batch.user_bytes() as u64, Relaxed);
        match durability {
            Durability::Sync => self.sync_upto(upto),
            _ => Ok(()),
        }
    }

    /// What a batch does in the end: of several entries of a key the last counts.
    fn entries<'a>(&self, batch: &'a Batch) -> Vec<Entry<'a>> {
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
    fn look(&self, entry: &mut Entry<'_>) -> Result<()> {
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
    fn look_again(&self, entries: &mut [Entry<'_>]) -> Result<()> {
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

    /// Returns up to where the log is to be synced for it; `None` if nothing is left to be done.
    fn write_locked(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        mut entries: Vec<Entry<'_>>,
        only_deletes: bool,
        durability: Durability,
    ) -> Result<Option<u64>> {
        let bytes = entries.iter().map(Entry::bytes).sum();
        self.make_room(writer, bytes, entries.len(), only_deletes)?;
        self.state.check_writable()?; // it may have failed since this one began
        let moves = self.moves.lock();
        self.look_again(&mut entries)?;
        // A batch may hold two keys whose hashes collide.
        if entries.len() > 1 {
            find_twins(&mut entries);
        }
        entries.retain(Entry::does_something);
        if entries.is_empty() {
            return Ok(None);
        }
        let mut payload = Vec::with_capacity(bytes);
        let mut changes = Vec::with_capacity(entries.len());
        let Writer { next_seq, open: Some(open) } = &mut **writer else { unreachable!("a segment is open") };
        let from = open.segment.data_bytes();
        for (at, entry) in entries.iter().enumerate() {
            let offset = from + payload.len() as u64;
            let (more, twin) = (at + 1 < entries.len(), entry.found.twin);
            Record { kind: entry.kind, key: entry.key, value: entry.value, more, twin }.write(&mut payload);
            let new = (entry.kind == EntryKind::Put).then(|| self.format.pointer(open.segment.slot, offset));
            changes.push(Change { hash: entry.hash, old: entry.found.record.map(|(old, _)| old), new });
        }
        let appended = self.with_room(|| self.wal.lock().append(&payload, *next_seq, durability));
        let upto = appended.map_err(|error| self.state.refused_or_poisoned(error))?;
        *next_seq += entries.len() as u64;
        open.records += entries.len() as u64;
        open.buffer.write().extend_from_slice(&payload);
        self.index.change_all(&changes);
        self.book(&open.segment, &entries)?;
        drop(moves);
        Ok(Some(upto))
    }

    /// Keeps account of what became garbage.
    fn book(&self, open: &Segment, entries: &[Entry<'_>]) -> Result<()> {
        let view = self.view.load();
        for entry in entries {
            let bytes = entry.bytes() as u64;
            match entry.kind {
                EntryKind::Put => open.account.live.fetch_add(bytes, Relaxed),
                EntryKind::Delete => open.account.deletes.fetch_add(bytes, Relaxed),
            };
            if let Some((old, bytes)) = entry.found.record {
                view.segment(self.format.slot(old))?.account.live.fetch_sub(bytes as u64, Relaxed);
            }
        }
        Ok(())
    }

    /// Sees to it that the open segment and its log can take a batch; waits while too many are on their way to tables.
    fn make_room(&self, writer: &mut Writer, bytes: usize, records: usize, only_deletes: bool) -> Result<()> {
        let Limits { segment_bytes, log_bytes, logs_max, .. } = self.limits;
        let is_full = writer.open.as_ref().is_none_or(|open| {
            let logs_are_full = open.logs.len() >= logs_max && !self.wal.lock().has_room(bytes, log_bytes);
            logs_are_full || !open.fits(bytes, records, segment_bytes)
        });
        if is_full {
            return self.next_segment(writer, only_deletes);
        }
        let Writer { open: Some(open), next_seq } = writer else { unreachable!("a segment is open") };
        if open.is_for_deletes && !only_deletes {
            self.wait_for_tables(SPARE_TABLES + u64::from(open.table.is_none()))?;
            open.is_for_deletes = false;
        }
        if open.table.is_none() {
            self.stall(|waited| self.let_collect_first(waited, State::is_busy))?;
            let needed = table_bytes(open.segment.data_bytes() + bytes as u64, open.records + records as u64);
            match self.when_free(|| self.begin_table(needed, Cause::Flush, IoClass::UrgentCompaction)) {
                // It fits into what segments may have, but into none of the tables that are free.
                Err(error) if error.kind() == Kind::NoSpace && open.records > 0 => {
                    return self.next_segment(writer, only_deletes);
                }
                begun => open.table = Some(begun.map_err(|error| self.state.refused_or_poisoned(error))?),
            }
        }
        if !self.wal.lock().has_room(bytes, log_bytes) {
            let number = self.when_free(|| self.begin_log(*next_seq))?;
            open.logs.push(number);
        }
        Ok(())
    }

    /// Closes the log that is open, and begins another.
    fn begin_log(&self, next_seq: u64) -> Result<u64> {
        let number = self.number();
        let begun = self.with_room(|| self.wal.lock().begin(&*self.media, number, next_seq));
        begun.map(|()| number).map_err(|error| self.state.refused_or_poisoned(error))
    }

    /// Hands the open segment to the background, and begins another, with its log, once there is room for both. If
    /// there is none, nothing has changed.
    fn next_segment(&self, writer: &mut Writer, is_for_deletes: bool) -> Result<()> {
        let has_room = |state: &State| state.frozen.len() < self.limits.frozen_max;
        self.stall_until(has_room)?;
        let lacking = writer.open.as_ref().is_some_and(|open| open.table.is_none());
        let spare = if is_for_deletes { SPARE_FOR_DELETES } else { SPARE_TABLES };
        self.wait_for_tables(1 + spare + u64::from(lacking))?;
        let fresh = self.when_free(|| self.begin_segment());
        let fresh = fresh.map_err(|error| self.state.refused_or_poisoned(error))?;
        let slot = fresh.segment.slot;
        let log = self.when_free(|| self.begin_log(writer.next_seq));
        let number = log.inspect_err(|_| self.give_slot(slot))?;
        self.show(|view| view.put(fresh.segment.clone()));
        let last = writer.open.replace(Open { logs: vec![number], is_for_deletes, ..fresh });
        let mut state = self.state.lock();
        if let Some(last) = last {
            state.frozen.push_back(Arc::new(Frozen {
                segment: last.segment,
                table: Mutex::new(last.table),
                logs: last.logs,
                next_log: number,
                last_seq: writer.next_seq - 1,
                records: last.records,
                lacks_table: AtomicBool::new(lacking),
            }));
        }
        drop(state);
        self.state.wake_tasks();
        Ok(())
    }

    fn begin_segment(&self) -> Result<Open> {
        let begun =
            self.begin_table(self.limits.table_bytes_min(), Cause::Flush, IoClass::UrgentCompaction)?;
        let slot = self.take_slot()?;
        Ok(self.open_segment(begun.number * ORDERS, slot, Some(begun)))
    }

    /// An empty segment.
    pub(crate) fn open_segment(&self, order: u64, slot: usize, table: Option<NewTable>) -> Open {
        let buffer: Buffer = Arc::new(RwLock::new(start().to_vec()));
        let home = Home::Memory(buffer.clone());
        let segment = Arc::new(Segment::new(order, slot, home, Arc::new(Account::default()), &self.obsolete));
        Open { segment, buffer, table, logs: Vec::new(), records: 0, is_for_deletes: false }
    }

    /// Makes everything written so far into tables.
    pub(crate) fn flush(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        self.flush_locked(&mut writer)?;
        let upto = writer.next_seq - 1;
        drop(writer);
        self.wait_for_seals(upto)
    }

    /// Hands everything written so far to the background.
    pub(crate) fn flush_locked(&self, writer: &mut Writer) -> Result<()> {
        self.state.check_writable()?;
        if writer.open.as_ref().is_some_and(|open| open.records > 0) {
            self.next_segment(writer, true)?;
        }
        Ok(())
    }

    /// Waits until everything up to `upto` that was handed to the background is a table; not for anything later: this
    /// must end while others write.
    pub(crate) fn wait_for_seals(&self, upto: u64) -> Result<()> {
        let is_done = |state: &State| state.frozen.front().is_none_or(|oldest| oldest.last_seq > upto);
        self.wait_until(is_done)
    }
}

/// Marks keys of a batch whose hashes are equal: each exists when the next is written.
fn find_twins(entries: &mut [Entry<'_>]) {
    let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
    entries.iter().for_each(|entry| *seen.entry(entry.hash).or_default() += 1);
    entries.iter_mut().for_each(|entry| entry.found.twin |= seen[&entry.hash] > 1);
}
