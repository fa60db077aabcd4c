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
/// Invariant: at most one batch is under way, and its bytes are kept until it is known to be programmed.
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
    pending: Pending,
}

impl SuperblockWriter {
    pub(super) fn new(inner: Arc<Inner>, table: u64, intent: Intent) -> Result<SuperblockWriter> {
        let home = inner.take(intent.class)?;
        let stripe = inner.flash.geometry().page_bytes as usize * home.blocks.len();
        let mut writer = SuperblockWriter {
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
        };
        writer.with_retries(SuperblockWriter::begin)?;
        Ok(writer)
    }

    fn page_bytes(&self) -> usize {
        self.inner.flash.geometry().page_bytes as usize
    }

    /// Programs the first tags.
    fn begin(&mut self) -> Result<(), FlashError> {
        let pages: Vec<PageAddr> = self.home.blocks.iter().map(|block| block.page(0)).collect();
        self.tags(&pages, TagState::Begun, 0)
    }

    fn tags(&mut self, pages: &[PageAddr], state: TagState, bytes: u64) -> Result<(), FlashError> {
        let geometry = *self.inner.flash.geometry();
        let dies = self.home.blocks.iter().map(|block| geometry.die_of(*block)).collect();
        let tag = Arc::new(Tag { state, table: self.table, bytes, dies }.encode(&geometry));
        let op = |page: &PageAddr| Op::Program { page: *page, data: tag.clone(), part: 0..tag.len() };
        let pending = self.submit(pages.iter().map(op).collect());
        self.outcome(pending, Cause::StoreMetadata)
    }

    /// Hands pages to the flash; with half the parallelism all but the last part are waited for.
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
        let mut all = road.submit(self.intent.class, first).wait(&*self.inner.env);
        if all.error.is_none() {
            let rest = road.submit(self.intent.class, second).wait(&*self.inner.env);
            let (programmed, failed) = (all.programmed + rest.programmed, all.failed + rest.failed);
            all = Outcome { programmed, failed, ..rest };
        }
        Pending::Known(all)
    }

    /// Waits for programs, and books them.
    fn outcome(&mut self, pending: Pending, cause: Cause) -> Result<(), FlashError> {
        let outcome = pending.wait(&*self.inner.env);
        let page_bytes = self.page_bytes() as u64;
        self.inner.booked(cause, outcome.programmed * page_bytes);
        self.inner.booked(Cause::Failed, outcome.failed * page_bytes);
        self.booked.push((cause, outcome.programmed * page_bytes));
        outcome.error.map_or(Ok(()), Err)
    }

    /// Begins to program `bytes`, whole pages, as the next data pages.
    fn send(&self, bytes: &Arc<Vec<u8>>) -> Pending {
        let page_bytes = self.page_bytes();
        let op = |at: usize| Op::Program {
            page: self.home.page(self.pages + at as u64),
            data: bytes.clone(),
            part: at * page_bytes..(at + 1) * page_bytes,
        };
        self.submit((0..bytes.len() / page_bytes).map(op).collect())
    }

    /// Waits for the batch under way.
    fn settle(&mut self) -> Result<()> {
        let Some(Sent { bytes, pending }) = self.sent.take() else { return Ok(()) };
        let mut result = self.outcome(pending, self.intent.cause);
        while let Err(error) = result {
            match error {
                FlashError::ProgramFailed(_) => self.move_on()?,
                error => return Err(error.into()),
            }
            result = self.outcome(self.send(&bytes), self.intent.cause);
        }
        self.pages += (bytes.len() / self.page_bytes()) as u64;
        Ok(())
    }

    /// Sends the first `len` bytes that wait, when the batch before is done with.
    fn write(&mut self, len: usize) -> Result<()> {
        self.settle()?;
        let rest = self.waiting.split_off(len);
        let bytes = Arc::new(std::mem::replace(&mut self.waiting, rest));
        let pending = self.send(&bytes);
        self.sent = Some(Sent { bytes, pending });
        Ok(())
    }

    /// Does `step`; after a program that failed, moves what there is to another superblock and does it again.
    fn with_retries(&mut self, step: impl Fn(&mut SuperblockWriter) -> Result<(), FlashError>) -> Result<()> {
        loop {
            match step(self) {
                Ok(()) => return Ok(()),
                Err(FlashError::ProgramFailed(_)) => self.move_on()?,
                Err(error) => return Err(error.into()),
            }
        }
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
        self.begin()?;
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
            self.outcome(Pending::Known(outcome), self.intent.cause)?;
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
                self.write(batch)?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let page_bytes = self.page_bytes();
        self.settle()?;
        let bytes = self.pages * page_bytes as u64 + self.waiting.len() as u64;
        let padding = self.waiting.len().next_multiple_of(page_bytes) - self.waiting.len();
        self.waiting.resize(self.waiting.len() + padding, 0);
        if !self.waiting.is_empty() {
            self.write(self.waiting.len())?;
            self.settle()?;
        }
        self.inner.ledger.rebook(self.intent.cause, Cause::Padding, padding as u64);
        self.with_retries(|w| {
            let ends: Vec<PageAddr> = (0..w.home.blocks.len())
                .map(|at| w.home.blocks[at].page(w.home.pages_in(at, w.pages)))
                .collect();
            w.tags(&ends, TagState::Whole, bytes)
        })?;
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
                let _ = self.outcome(sent.pending, self.intent.cause);
            }
            // Without power the erase waits until the store is opened again.
            let _ = self.inner.release(self.home.index);
        }
    }
}
