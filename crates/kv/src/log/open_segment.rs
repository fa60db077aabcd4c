//! The open segment, to which writes are appended: when it is full the next one begins, and it goes to the background.

use super::collect::ORDERS;
use super::core::{Core, NewTable, State};
use super::hint::{SEGMENT_UNIT_BYTES, units_max};
use super::options::Limits;
use super::segment::{Account, Buffer, Home, Segment, start};
use super::writer::Writer;
use crate::durable::Durable;
use crate::waiting::Waiting;
use std::sync::Arc;
use vellum_base::sync::atomic::AtomicBool;
use vellum_base::sync::{Mutex, RwLock};
use vellum_base::{Cause, IoClass, Kind, Result};

/// Tables that puts leave free for collecting, and those that deletes leave.
const SPARE_TABLES: u64 = 3;
const SPARE_FOR_DELETES: u64 = 1;

/// The segment that is written.
pub(crate) struct OpenSegment {
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

impl OpenSegment {
    /// True if it can take `bytes` more in `records` records.
    fn fits(&self, bytes: usize, records: usize, segment_bytes: u64) -> bool {
        let capacity =
            self.table.as_ref().map_or(segment_bytes, |begun| begun.table.capacity().min(segment_bytes));
        let data = self.segment.data_bytes() + bytes as u64;
        table_bytes(data, self.records + records as u64) <= capacity
    }
}

impl Core {
    /// Sees to it that the open segment and its log can take a batch; waits while too many are on their way to tables.
    pub(super) fn make_room(
        &self,
        writer: &mut Writer,
        bytes: usize,
        records: usize,
        only_deletes: bool,
    ) -> Result<()> {
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
        self.let_collection_catch_up()?;
        let lacking = writer.open.as_ref().is_some_and(|open| open.table.is_none());
        let spare = if is_for_deletes { SPARE_FOR_DELETES } else { SPARE_TABLES };
        self.wait_for_tables(1 + spare + u64::from(lacking))?;
        let fresh = self.when_free(|| self.begin_segment());
        let fresh = fresh.map_err(|error| self.state.refused_or_poisoned(error))?;
        let slot = fresh.segment.slot;
        let log = self.when_free(|| self.begin_log(writer.next_seq));
        let number = log.inspect_err(|_| self.give_slot(slot))?;
        self.show(|view| view.put(fresh.segment.clone()));
        let last = writer.open.replace(OpenSegment { logs: vec![number], is_for_deletes, ..fresh });
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

    fn begin_segment(&self) -> Result<OpenSegment> {
        let begun =
            self.begin_table(self.limits.table_bytes_min(), Cause::Flush, IoClass::UrgentCompaction)?;
        let slot = self.take_slot()?;
        Ok(self.open_segment(begun.number * ORDERS, slot, Some(begun)))
    }

    /// An empty segment.
    pub(crate) fn open_segment(&self, order: u64, slot: usize, table: Option<NewTable>) -> OpenSegment {
        let buffer: Buffer = Arc::new(RwLock::new(start().to_vec()));
        let home = Home::Memory(buffer.clone());
        let segment = Arc::new(Segment::new(order, slot, home, Arc::new(Account::default()), &self.obsolete));
        OpenSegment { segment, buffer, table, logs: Vec::new(), records: 0, is_for_deletes: false }
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
