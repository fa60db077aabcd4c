//! The path of a write: to the log, to the memtable, visible; and group sync.
//!
//! Invariants
//! 1. The active memtable holds exactly the batches of `logs`, followed by those of the open log.
//! 2. All log bytes below the position that [`crate::journal::GroupSync`] has recorded (in terms of the log's `total`)
//!    are durable, including all older logs.

use crate::batch::Batch;
use crate::durable::Durable;
use crate::journal::record_bytes;
use crate::lsm::core::{Core, Frozen, State, View};
use crate::lsm::memtable::LogPlace;
use crate::lsm::pace::Ahead;
use crate::options::Durability;
use crate::waiting::Waiting;
use std::sync::Arc;
use vellum_base::sync::MutexGuard;
use vellum_base::sync::atomic::Ordering;
use vellum_base::{Kind, Result};

/// Approximate memory per entry of a memtable's index.
pub(crate) const INDEX_BYTES: usize = 40;

/// State of the writer, under a lock of its own.
pub(crate) struct Writer {
    pub next_seq: u64,
    /// Closed logs of the active memtable, from before the store was opened.
    pub logs: Vec<u64>,
    /// The open log and its length.
    pub log: Option<(u64, u64)>,
    pub memtable_bytes: usize,
    /// The active memtable has puts. Entries replayed at opening do not count.
    pub has_puts: bool,
    ahead: Ahead,
}

impl Writer {
    pub(crate) fn new(next_seq: u64) -> Writer {
        Writer {
            next_seq,
            logs: Vec::new(),
            log: None,
            memtable_bytes: 0,
            has_puts: false,
            ahead: Ahead::default(),
        }
    }
}

impl Core {
    /// Applies a batch.
    pub(crate) fn write(&self, batch: &Batch, durability: Durability) -> Result<()> {
        self.limits.check_batch(batch)?;
        if batch.is_empty() {
            return self.settle(durability);
        }
        self.env.charge(self.options.cpu.put);
        let mut writer = self.writer.lock();
        self.state.check_writable()?;
        self.check_spaces(batch)?;
        let tables = self.make_room(&mut writer, batch)?;
        let upto = self
            .with_room(|| self.append(&mut writer, batch, durability))
            .map_err(|error| self.state.refused_or_poisoned(error))?;
        let seq = writer.next_seq;
        writer.next_seq += batch.len() as u64;
        let bytes = batch.bytes() + INDEX_BYTES * batch.len();
        writer.memtable_bytes += bytes;
        writer.has_puts |= !batch.only_deletes();
        let view = self.view.load();
        let (active, waiting) = (view.active.clone(), view.frozen.len());
        drop(view);
        active.insert(batch.payload(), seq, self.place_of(&writer, batch));
        self.visible.store(writer.next_seq - 1, Ordering::Release);
        let delayed = self.delay_until(&mut writer.ahead, bytes as u64, (tables, waiting));
        drop(writer);
        self.counts.user_bytes.fetch_add(batch.user_bytes() as u64, Ordering::Relaxed);
        if durability == Durability::Sync {
            self.sync_upto(upto)?;
        }
        if let Some(until) = delayed {
            let delay = until.saturating_sub(self.env.now());
            self.counts.slowed_ns.fetch_add(delay.0, Ordering::Relaxed);
            self.env.sleep_until(until);
        }
        Ok(())
    }

    /// An error if a keyspace of the batch was dropped. The writer lock is held, so none can be dropped meanwhile.
    fn check_spaces(&self, batch: &Batch) -> Result<()> {
        if batch.spaces().is_empty() {
            return Ok(());
        }
        let version = self.view.load().version.clone();
        batch.spaces().iter().try_for_each(|space| version.keyspaces.check(space))
    }

    /// Appends to the log, which is open or can be begun ([`Core::wait_for_log`]); returns its `total` after it.
    fn append(&self, writer: &mut Writer, batch: &Batch, durability: Durability) -> Result<u64> {
        let mut wal = self.wal.lock();
        if writer.log.is_none() {
            wal.begin(&*self.media, self.number(), writer.next_seq)?;
        }
        let appended = wal.append(batch.payload(), writer.next_seq, durability);
        writer.log = wal.open_log();
        appended
    }

    /// The place in the log of the batch that was just appended, if tables may point there.
    fn place_of(&self, writer: &Writer, batch: &Batch) -> Option<LogPlace> {
        let (log, bytes) = writer.log.filter(|_| self.points())?;
        Some(LogPlace { log, offset: bytes - batch.bytes() as u64 })
    }

    /// Freezes the memtable if the batch does not fit; waits for room, flushes and level 0 if necessary. Returns the
    /// number of tables that level 0 had before that last wait.
    fn make_room(&self, writer: &mut MutexGuard<'_, Writer>, batch: &Batch) -> Result<usize> {
        let log_bytes = writer.log.map_or(0, |(_, bytes)| bytes);
        let record = record_bytes(batch.bytes());
        let needed = writer.memtable_bytes + batch.bytes() + INDEX_BYTES * batch.len();
        let full = needed > self.memtable_bytes_max() || log_bytes + record > self.limits.log_bytes;
        self.or_finish_log(writer, |writer| self.wait_for_batch(writer, batch, full))?;
        if writer.log.is_none() {
            match self.wait_for_log(writer, usize::MAX) {
                // Files may be more than they should.
                Err(error) if error.kind() == Kind::NoSpace && self.media.shape().areas_are_files => {}
                waited => waited?,
            }
        }
        if full && writer.memtable_bytes > 0 {
            self.freeze(writer)?;
        }
        let tables = self.level0_tables();
        if full {
            self.wait_for_level0()?;
        }
        Ok(tables)
    }

    /// Waits for the room of a batch, which may not fit into the memtable.
    fn wait_for_batch(&self, writer: &Writer, batch: &Batch, is_full: bool) -> Result<()> {
        if !writer.has_puts && !batch.only_deletes() {
            self.wait_to_begin_puts()?;
        }
        let is_large = batch.bytes() > self.memtable_bytes_max();
        match batch.only_deletes() {
            _ if !is_full || writer.memtable_bytes == 0 && !is_large => Ok(()),
            _ if is_large => self.wait_for_large(batch),
            true => self.wait_to_delete(),
            false => self.wait_to_put(),
        }
    }

    /// Waits for room. Where there is none, what was allocated ahead for the open log is freed.
    fn or_finish_log(&self, writer: &mut Writer, wait: impl Fn(&Writer) -> Result<()>) -> Result<()> {
        match wait(writer) {
            Err(error) if error.kind() == Kind::NoSpace && self.finish_log()? => wait(writer),
            waited => waited,
        }
    }

    pub(crate) fn level0_tables(&self) -> usize {
        self.view.load().version.levels[0].len()
    }

    /// Flushes everything written so far; an error if that would leave no room to merge the resulting tables.
    pub(crate) fn flush(&self) -> Result<()> {
        self.state.check_writable()?;
        let mut writer = self.writer.lock();
        if writer.memtable_bytes > 0 {
            self.or_finish_log(&mut writer, |writer| self.wait_to_flush(writer))?;
            self.freeze(&mut writer)?;
        }
        let upto = writer.next_seq - 1;
        drop(writer);
        // Memtables that are frozen later do not count, or this might never end with concurrent writers.
        let is_done = |state: &State| state.frozen.front().is_none_or(|oldest| oldest.last_seq > upto);
        self.wait_until(is_done)
    }

    /// Waits until another log may begin, and fewer than so many memtables wait for their flushes, which remove logs.
    fn wait_for_log(&self, writer: &Writer, memtables_max: usize) -> Result<()> {
        let own = writer.logs.len() + usize::from(writer.log.is_some());
        let may_begin = |state: &State| {
            let waiting: usize = state.frozen.iter().map(|frozen| frozen.logs.len()).sum();
            waiting == 0 || own + waiting < self.limits.logs_max
        };
        let has_room = |state: &State| state.frozen.len() < memtables_max && may_begin(state);
        self.stall_until(has_room)
    }

    /// Queues the active memtable for flushing, once the queue has room, and begins a new memtable and log.
    pub(crate) fn freeze(&self, writer: &mut Writer) -> Result<()> {
        self.wait_for_log(writer, self.options.memtables_max)?;
        let next_log = self.with_room(|| self.next_log(writer));
        let next_log = next_log.map_err(|error| self.state.refused_or_poisoned(error))?;
        let logs = std::mem::take(&mut writer.logs);
        let bytes = std::mem::take(&mut writer.memtable_bytes);
        writer.has_puts = false;
        let mut state = self.state.lock();
        let view = self.view.load_full();
        let frozen =
            Frozen { memtable: view.active.clone(), logs, bytes, next_log, last_seq: writer.next_seq - 1 };
        let mut after = vec![frozen.memtable.clone()];
        after.extend(view.frozen.iter().cloned());
        state.frozen.push_back(frozen);
        self.size_next_memtable(&view.version, &state);
        self.view.store(Arc::new(View {
            active: Arc::new(view.active.successor(self.memtable_bytes_max())),
            frozen: after,
            version: view.version.clone(),
        }));
        self.toll.forget();
        drop(state);
        self.state.wake_tasks();
        Ok(())
    }

    /// Closes the open log and begins the next at once, as the manifest will name it as the first to be replayed when
    /// this memtable's logs are removed. If there is no room for it, the open log stays open.
    fn next_log(&self, writer: &mut Writer) -> Result<u64> {
        let number = self.number();
        let mut wal = self.wal.lock();
        wal.begin(&*self.media, number, writer.next_seq)?;
        let closed = std::mem::replace(&mut writer.log, wal.open_log());
        writer.logs.extend(closed.map(|(number, _)| number));
        Ok(number)
    }

    /// Frees what is ahead of the open log. False if that was done before.
    pub(crate) fn finish_log(&self) -> Result<bool> {
        let finished = self.with_room(|| self.wal.lock().finish());
        finished.map_err(|error| self.state.refused_or_poisoned(error))
    }
}
