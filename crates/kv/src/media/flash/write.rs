//! Writing a table to a superblock, a batch of stripes at a time.

use super::Inner;
use super::queue::{Op, Outcome, Pending};
use super::superblock::{Home, Tag, TagState};
use crate::media::{Intent, Parallelism, TableWriter};
use std::sync::Arc;
use vellum_base::{Cause, Error, FlashError, FlashOp, Kind, PageAddr, Result, Source};

/// Attempts at writing one table, each on another superblock.
const ATTEMPTS_MAX: u32 = 8;
/// Bytes that are written in one go (FlashKV, section 3.4), if a stripe is not more.
const BATCH_BYTES: usize = 2 << 20;

/// States: begun (no page programmed) → writing → finished, or given up when dropped before.
///
/// Invariants
/// 1. At most one batch is under way, and its bytes are kept until it is known to be programmed.
/// 2. The first tags go with the first batch, the last tags with the last: they take no time of their own.
pub(super) struct SuperblockWriter {
    inner: Arc<Inner>,
    table: u64,
    intent: Intent,
    home: Home,
    batch_bytes: usize,
    /// Bytes that wait for a whole batch.
    waiting: Vec<u8>,
    sent: Option<Sent>,
    /// Data pages programmed.
    pages: u64,
    /// What this attempt booked, to be rebooked if it fails.
    booked: Vec<(Cause, u64)>,
    attempts: u32,
    done: bool,
}

/// A batch under way.
struct Sent {
    bytes: Arc<Vec<u8>>,
    /// The last batch ends with these tags.
    end: Option<End>,
    /// Pages of it that are tags.
    tags: u64,
    pending: Pending,
}

/// The last tags: bytes of the whole table.
#[derive(Clone, Copy)]
struct End {
    table_bytes: u64,
}

impl SuperblockWriter {
    pub(super) fn new(inner: Arc<Inner>, table: u64, intent: Intent) -> Result<SuperblockWriter> {
        let home = inner.take(intent.class)?;
        let stripe = inner.flash.geometry().page_bytes as usize * home.blocks.len();
        Ok(SuperblockWriter {
            inner,
            table,
            intent,
            home,
            batch_bytes: (BATCH_BYTES / stripe).max(1) * stripe,
            waiting: Vec::new(),
            sent: None,
            pages: 0,
            booked: Vec::new(),
            attempts: 1,
            done: false,
        })
    }

    fn page_bytes(&self) -> usize {
        self.inner.flash.geometry().page_bytes as usize
    }

    /// Tags for one page of each erase block.
    fn tags(&self, pages: impl Iterator<Item = PageAddr>, state: TagState, bytes: u64) -> Vec<Op> {
        let geometry = *self.inner.flash.geometry();
        let dies = self.home.blocks.iter().map(|block| geometry.die_of(*block)).collect();
        let tag = Arc::new(Tag { state, table: self.table, bytes, dies }.encode(&geometry));
        pages.map(|page| Op::Program { page, data: tag.clone(), part: 0..tag.len() }).collect()
    }

    fn first_tags(&self) -> Vec<Op> {
        self.tags(self.home.blocks.iter().map(|block| block.page(0)), TagState::Begun, 0)
    }

    fn last_tags(&self, pages: u64, end: End) -> Vec<Op> {
        let blocks = self.home.blocks.iter().enumerate();
        let ends = blocks.map(|(at, block)| block.page(self.home.pages_in(at, pages)));
        self.tags(ends, TagState::Whole, end.table_bytes)
    }

    /// Hands pages to the flash; with half the parallelism those of one half of the channels follow those of the other.
    fn submit(&self, ops: Vec<Op>) -> Pending {
        let road = &self.inner.road;
        if self.intent.parallelism == Parallelism::Full {
            return road.submit(self.intent.class, ops);
        }
        let geometry = *self.inner.flash.geometry();
        let channel = |op: &Op| match op {
            Op::Program { page, .. } => geometry.channel_of(geometry.die_of(page.block)),
            _ => 0,
        };
        let (first, second): (Vec<Op>, Vec<Op>) =
            ops.into_iter().partition(|op| channel(op) < geometry.channels / 2);
        road.submit_in_turn(self.intent.class, first, second)
    }

    /// Waits for programs, of which so many are tags, and books them.
    fn outcome(&mut self, pending: Pending, tags: u64) -> Result<(), FlashError> {
        let outcome = pending.wait(&*self.inner.env);
        let page_bytes = self.page_bytes() as u64;
        // If some failed, all of them will be booked as such: which were tags matters no more.
        let tags = tags.min(outcome.programmed);
        let causes = [(Cause::StoreMetadata, tags), (self.intent.cause, outcome.programmed - tags)];
        for (cause, pages) in causes {
            self.inner.booked(cause, pages * page_bytes);
            self.booked.push((cause, pages * page_bytes));
        }
        self.inner.booked(Cause::Failed, outcome.failed * page_bytes);
        outcome.error.map_or(Ok(()), Err)
    }

    /// Begins to program `bytes`, whole pages, as the next data pages, with the tags that go with them. Returns how
    /// many those are, too.
    fn send(&self, bytes: &Arc<Vec<u8>>, end: Option<End>) -> (Pending, u64) {
        let page_bytes = self.page_bytes();
        let count = bytes.len() / page_bytes;
        let op = |at: usize| Op::Program {
            page: self.home.page(self.pages + at as u64),
            data: bytes.clone(),
            part: at * page_bytes..(at + 1) * page_bytes,
        };
        let mut ops = if self.pages == 0 { self.first_tags() } else { Vec::new() };
        ops.extend((0..count).map(op));
        if let Some(end) = end {
            ops.extend(self.last_tags(self.pages + count as u64, end));
        }
        let tags = (ops.len() - count) as u64;
        (self.submit(ops), tags)
    }

    /// Waits for the batch under way.
    fn settle(&mut self) -> Result<()> {
        let Some(Sent { bytes, end, tags, pending }) = self.sent.take() else { return Ok(()) };
        let mut result = self.outcome(pending, tags);
        while let Err(error) = result {
            match error {
                FlashError::ProgramFailed(_) => self.move_on()?,
                error => return Err(error.into()),
            }
            let (pending, tags) = self.send(&bytes, end);
            result = self.outcome(pending, tags);
        }
        self.pages += (bytes.len() / self.page_bytes()) as u64;
        Ok(())
    }

    /// Sends the first `len` bytes that wait, when the batch before is done with.
    fn write(&mut self, len: usize, end: Option<End>) -> Result<()> {
        self.settle()?;
        let rest = self.waiting.split_off(len);
        let bytes = Arc::new(std::mem::replace(&mut self.waiting, rest));
        let (pending, tags) = self.send(&bytes, end);
        self.sent = Some(Sent { bytes, end, tags, pending });
        Ok(())
    }

    /// Copies the data pages programmed so far to another superblock, and gives this one up.
    fn move_on(&mut self) -> Result<()> {
        loop {
            self.attempts += 1;
            if self.attempts > ATTEMPTS_MAX {
                return Err(Error::new(
                    Kind::Io,
                    format!("programs of table {} fail again and again", self.table),
                ));
            }
            let next = self.take_as_wide()?;
            for (cause, bytes) in self.booked.drain(..) {
                self.inner.ledger.rebook(cause, Cause::Failed, bytes);
            }
            let old = std::mem::replace(&mut self.home, next);
            let copied = self.copy_from(&old);
            match copied {
                Ok(()) => return self.inner.release(old.index),
                Err(FlashError::ProgramFailed(_)) => {
                    let failed = std::mem::replace(&mut self.home, old);
                    self.inner.release(failed.index)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A superblock with as much room as this one: the table was cut to fit.
    fn take_as_wide(&self) -> Result<Home> {
        let mut narrow = Vec::new();
        let found = loop {
            match self.inner.take(self.intent.class) {
                Ok(home) if home.blocks.len() < self.home.blocks.len() => narrow.push(home.index),
                other => break other,
            }
        };
        narrow.into_iter().try_for_each(|index| self.inner.release(index))?;
        found
    }

    /// By copy-back, past the queues: this happens once in the life of an erase block.
    fn copy_from(&mut self, old: &Home) -> Result<(), FlashError> {
        if self.pages == 0 {
            return Ok(());
        }
        let first = self.submit(self.first_tags());
        self.outcome(first, self.home.blocks.len() as u64)?;
        let bytes = self.page_bytes() as u32;
        for data_page in 0..self.pages {
            let parts = [Source::Copy { page: old.page(data_page), offset: 0, bytes }];
            let page = self.home.page(data_page);
            let op = FlashOp::Program { page, parts: &parts, oob: &[], seeds: &[] };
            let result = self.inner.flash.submit(self.intent.class, &mut [op]);
            let outcome = match result {
                Ok(done) => Outcome { at: done.at, programmed: 1, ..Outcome::default() },
                Err(e) => {
                    let failed = !matches!(e.error, FlashError::Rule(_)) as u64;
                    Outcome { at: e.done.at, failed, error: Some(e.error), ..Outcome::default() }
                }
            };
            self.outcome(Pending::Known(outcome), 0)?;
        }
        Ok(())
    }
}

impl TableWriter for SuperblockWriter {
    fn capacity(&self) -> u64 {
        self.home.capacity(self.inner.flash.geometry())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let batch = self.batch_bytes;
            let (piece, later) = rest.split_at(rest.len().min(batch - self.waiting.len()));
            self.waiting.extend_from_slice(piece);
            rest = later;
            if self.waiting.len() == batch {
                self.write(batch, None)?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, bubbles: u64) -> Result<()> {
        let page_bytes = self.page_bytes();
        self.settle()?;
        let table_bytes = self.pages * page_bytes as u64 + self.waiting.len() as u64;
        let padding = self.waiting.len().next_multiple_of(page_bytes) - self.waiting.len();
        self.waiting.resize(self.waiting.len() + padding, 0);
        self.write(self.waiting.len(), Some(End { table_bytes }))?;
        self.settle()?;
        self.inner.ledger.rebook(self.intent.cause, Cause::Padding, padding as u64);
        self.inner.ledger.rebook(self.intent.cause, Cause::Bubble, bubbles);
        self.inner.flash.sync()?;
        self.inner.pool.settle(self.table, self.home.clone());
        self.done = true;
        Ok(())
    }
}

impl Drop for SuperblockWriter {
    fn drop(&mut self) {
        if !self.done {
            if let Some(sent) = self.sent.take() {
                let _ = self.outcome(sent.pending, sent.tags);
            }
            // Without power the erase waits until the store is opened again.
            let _ = self.inner.release(self.home.index);
        }
    }
}
