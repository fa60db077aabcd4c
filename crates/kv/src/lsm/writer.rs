//! The way of a write: log, memtable, visible; and syncing for a group.
//!
//! Invariants
//! 1. The active memtable holds the batches of `logs`, then of the open log, and no others.
//! 2. What is below what [`crate::journal::GroupSync`] has seen of the log's `total` is durable, and so is every
//!    older log.

use crate::batch::{Batch, at_most};
use crate::journal::{Wal, record_bytes};
use crate::lsm::core::{Core, Frozen, State, View};
use crate::lsm::memtable::{LogPlace, Memtable};
use crate::options::{Durability, Rules};
use std::sync::Arc;
use vellum_base::sync::MutexGuard;
use vellum_base::sync::atomic::Ordering;
use vellum_base::{Nanos, Result};

/// What the index of a memtable takes for an entry, about.
pub(crate) const INDEX_BYTES: usize = 40;
/// Writers are not slowed down by less at a time: sleeping is not that exact.
const SLOWED_MIN: Nanos = Nanos::from_ms(1);
/// Bytes that are let through in a second when level 0 is about to be full.
const SLOWEST_BYTES_PER_SECOND: u64 = 2 << 20;

/// Who may write has this.
pub(crate) struct Writer {
    pub next_seq: u64,
    /// Logs of the active memtable that are closed: from before the store was opened.
    pub logs: Vec<u64>,
    pub wal: Wal,
    pub memtable_bytes: usize,
    /// The active memtable has more than deletes, as far as is known: of what was replayed it is not.
    pub has_puts: bool,
    /// By how much writers are to be slowed down, and were not yet.
    debt: Nanos,
}

impl Writer {
    /// Writes to `wal`.
    pub(crate) fn new(next_seq: u64, wal: Wal) -> Writer {
        Writer { next_seq, logs: Vec::new(), wal, memtable_bytes: 0, has_puts: false, debt: Nanos::ZERO }
    }
}

impl Core {
    /// Applies a batch.
    pub(crate) fn write(&self, batch: &Batch, durability: Durability) -> Result<()> {
        self.check_batch(batch)?;
        if batch.is_empty() {
            return self.settle(durability);
        }
        self.env.charge(self.options.cpu.put);
        let mut writer = self.writer.lock();
        self.state.check_writable()?;
        self.check_spaces(batch)?;
        let slow_by = self.make_room(&mut writer, batch)?;
        writer.debt += slow_by;
        let upto = self
            .with_room(|| self.append(&mut writer, batch, durability))
            .map_err(|error| self.state.refused_or_poisoned(error))?;
        if batch.key_bytes_max() > self.key_bytes_max.load(Ordering::Relaxed) {
            self.key_bytes_max.store(batch.key_bytes_max(), Ordering::Relaxed);
        }
        let seq = writer.next_seq;
        writer.next_seq += batch.len() as u64;
        writer.memtable_bytes += batch.bytes() + INDEX_BYTES * batch.len();
        writer.has_puts |= !batch.only_deletes();
        let active = self.view.load().active.clone();
        active.insert(batch.payload(), seq, self.place_of(&writer, batch));
        self.visible.store(writer.next_seq - 1, Ordering::Release);
        let delay = match writer.debt >= SLOWED_MIN {
            true => std::mem::take(&mut writer.debt),
            false => Nanos::ZERO,
        };
        drop(writer);
        self.counts.user_bytes.fetch_add(batch.user_bytes() as u64, Ordering::Relaxed);
        if delay > Nanos::ZERO {
            self.counts.slowed_ns.fetch_add(delay.0, Ordering::Relaxed);
            self.env.sleep_until(self.env.now() + delay);
        }
        match durability {
            Durability::Sync => self.sync_upto(upto),
            _ => Ok(()),
        }
    }

    /// What was written before becomes as durable as that.
    fn settle(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::None => Ok(()),
            Durability::Buffered => {
                self.state.check_writable()?;
                let handed_over = self.with_room(|| self.writer.lock().wal.hand_over());
                handed_over.map(drop).map_err(|error| self.state.refused_or_poisoned(error))
            }
            Durability::Sync => self.sync_log(),
        }
    }

    /// Makes all that was written durable.
    pub(crate) fn sync_log(&self) -> Result<()> {
        self.state.check_writable()?;
        let upto = self.writer.lock().wal.total;
        self.sync_upto(upto)
    }

    fn check_batch(&self, batch: &Batch) -> Result<()> {
        self.limits.check_entry(batch.key_bytes_max(), batch.value_bytes_max())?;
        at_most("a batch", batch.bytes(), self.limits.batch_bytes_max)
    }

    /// With the writers' lock held no keyspace comes or goes.
    fn check_spaces(&self, batch: &Batch) -> Result<()> {
        if batch.spaces().is_empty() {
            return Ok(());
        }
        let version = self.view.load().version.clone();
        batch.spaces().iter().try_for_each(|space| version.keyspaces.check(space))
    }

    /// Appends to the log; returns its `total` after it.
    fn append(&self, writer: &mut Writer, batch: &Batch, durability: Durability) -> Result<u64> {
        if writer.wal.open_log().is_none() {
            writer.wal.begin(&*self.media, self.number(), writer.next_seq)?;
        }
        writer.wal.append(batch.payload(), writer.next_seq, durability)
    }

    /// Where the batch is that was just appended, if tables may point to it.
    fn place_of(&self, writer: &Writer, batch: &Batch) -> Option<LogPlace> {
        let (log, bytes) = writer.wal.open_log().filter(|_| self.points())?;
        Some(LogPlace { log, offset: bytes - batch.bytes() as u64 })
    }

    /// Freezes the memtable if the batch does not fit; waits while there are too many. Returns by how much the writer
    /// is to be slowed down.
    fn make_room(&self, writer: &mut MutexGuard<'_, Writer>, batch: &Batch) -> Result<Nanos> {
        let log_bytes = writer.wal.open_log().map_or(0, |(_, bytes)| bytes);
        let record = record_bytes(batch.bytes());
        let needed = writer.memtable_bytes + batch.bytes() + INDEX_BYTES * batch.len();
        let full = needed > self.memtable_bytes_max() || log_bytes + record > self.limits.log_bytes;
        if !writer.has_puts && !batch.only_deletes() {
            self.wait_to_begin_puts()?;
        }
        let is_large = batch.bytes() > self.memtable_bytes_max();
        if full && (writer.memtable_bytes > 0 || is_large) {
            match batch.only_deletes() {
                _ if is_large => self.wait_for_large(batch)?,
                true => self.wait_to_delete()?,
                false => self.wait_for_tables(self.spare_for(false), 0)?,
            }
        }
        if full && writer.memtable_bytes > 0 {
            self.freeze(writer)?;
        }
        let tables = self.level0_tables();
        if full {
            self.wait_for_level0()?;
        }
        Ok(self.slow_down(tables, record))
    }

    pub(crate) fn level0_tables(&self) -> usize {
        self.view.load().version.levels[0].len()
    }

    fn slow_down(&self, tables: usize, bytes: u64) -> Nanos {
        let (slow, stop) = (self.options.level0_slow, self.options.level0_stop);
        if tables < slow || stop <= slow {
            return Nanos::ZERO;
        }
        if self.options.rules == Rules::LevelDb {
            return SLOWED_MIN;
        }
        let left = (stop.saturating_sub(tables) as u64).max(1);
        Nanos::transfer(bytes, SLOWEST_BYTES_PER_SECOND * left * left)
    }

    /// Puts everything written so far into tables; refused where that would leave no room to merge them.
    pub(crate) fn flush(&self) -> Result<()> {
        self.state.check_writable()?;
        let mut writer = self.writer.lock();
        if writer.memtable_bytes > 0 {
            self.wait_to_flush(&writer)?;
            self.freeze(&mut writer)?;
        }
        let upto = writer.next_seq - 1;
        drop(writer);
        // Not for what comes later, or this might not end beside writers.
        let is_done = |state: &State| state.frozen.front().is_none_or(|oldest| oldest.last_seq > upto);
        self.state.wait_until(is_done).map(drop)
    }

    /// Hands the active memtable to the background, as soon as there is room, and begins another memtable and log.
    pub(crate) fn freeze(&self, writer: &mut Writer) -> Result<()> {
        let has_room = |state: &State| state.frozen.len() < self.options.memtables_max;
        self.counts.stall(&*self.env, || self.state.wait_until(has_room))?;
        let next_log = self.with_room(|| self.next_log(writer));
        let next_log = next_log.map_err(|error| self.state.refused_or_poisoned(error))?;
        let logs = std::mem::take(&mut writer.logs);
        let bytes = std::mem::take(&mut writer.memtable_bytes);
        writer.has_puts = false;
        let mut state = self.state.lock();
        writer.wal.forget_below(state.log_floor);
        let view = self.view.load_full();
        let frozen =
            Frozen { memtable: view.active.clone(), logs, bytes, next_log, last_seq: writer.next_seq - 1 };
        let mut after = vec![frozen.memtable.clone()];
        after.extend(view.frozen.iter().cloned());
        state.frozen.push_back(frozen);
        self.begin_memtable(&view.version, &state);
        self.view.store(Arc::new(View {
            active: Arc::new(Memtable::new(self.memtable_bytes_max())),
            frozen: after,
            version: view.version.clone(),
        }));
        self.toll.forget();
        drop(state);
        self.state.wake_tasks();
        Ok(())
    }

    /// Closes the open log and begins the next at once: the manifest will count on it when this memtable's logs are
    /// gone. If there is no room for it, the open one stays.
    fn next_log(&self, writer: &mut Writer) -> Result<u64> {
        let (closed, number) = (writer.wal.open_log(), self.number());
        writer.wal.begin(&*self.media, number, writer.next_seq)?;
        writer.logs.extend(closed.map(|(number, _)| number));
        Ok(number)
    }

    /// Returns when all below `upto` is durable.
    fn sync_upto(&self, upto: u64) -> Result<()> {
        self.state.sync.upto(upto, || self.sync_all(upto), || self.state.check_writable())
    }

    /// Syncs every log there is, and keeps writers waiting.
    pub(crate) fn sync_held(&self, writer: &mut Writer) -> Result<()> {
        let unsynced = writer.wal.hand_over();
        let synced = unsynced.and_then(|unsynced| unsynced.sync().map(|()| unsynced));
        writer.wal.synced(&synced.map_err(|error| self.state.refused_or_poisoned(error))?);
        Ok(())
    }

    /// Syncs every log there is, oldest first. Returns up to where all is durable, at least `upto`.
    fn sync_all(&self, upto: u64) -> Result<u64> {
        let unsynced = self.writer.lock().wal.hand_over_for(upto);
        let unsynced = unsynced.map_err(|error| self.state.refused_or_poisoned(error))?;
        unsynced.sync().map_err(|error| self.state.poison(error))?;
        // A sync of a flush that failed meanwhile may have taken what this one was to tell.
        self.state.check_writable()?;
        self.writer.lock().wal.synced(&unsynced);
        Ok(unsynced.total)
    }
}
