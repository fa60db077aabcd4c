//! Writes a superblock from front to back, a batch of stripes at a time.

use super::Inner;
use super::queue::{Op, Outcome, Pending, costs_a_page};
use super::superblock::{Home, Name, Tag, TagState, second_at};
use crate::media::{Intent, Parallelism};
use std::sync::Arc;
use vellum_base::{Cause, Error, FlashError, FlashOp, Kind, PageAddr, Result, Source};

/// Attempts at writing one superblock, each on another.
const ATTEMPTS_MAX: u32 = 8;
/// Bytes of a batch (FlashKV, section 3.4), unless a stripe is larger.
const BATCH_BYTES: usize = 2 << 20;

/// Which free superblocks may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Supply {
    /// For tables: those that collection does not need; if there are none, collection is run.
    Tables,
    /// For collection: all free ones.
    Collection,
}

/// A superblock that is being written. It is erased if dropped before it is done.
struct SuperblockGuard {
    inner: Arc<Inner>,
    home: Arc<Home>,
    is_done: bool,
}

impl SuperblockGuard {
    /// One of `width` dies or more.
    fn new(inner: &Arc<Inner>, intent: Intent, supply: Supply, width: usize) -> Result<SuperblockGuard> {
        let home = inner.take(intent.class, supply, width)?;
        Ok(SuperblockGuard { inner: inner.clone(), home, is_done: false })
    }
}

impl Drop for SuperblockGuard {
    fn drop(&mut self) {
        if !self.is_done {
            // Without power the erase waits until the store is opened again.
            let _ = self.inner.with_book(|book| book.give_up(self.home.index));
        }
    }
}

/// States: begun (no page programmed) → writing → finished, or given up when dropped before.
///
/// Invariants
/// 1. At most one batch is in flight, and its bytes are kept until they are known to be programmed.
/// 2. The first tags are programmed with the first batch and the last tags with the last one, which takes no extra
///    time.
pub(super) struct Stripe {
    inner: Arc<Inner>,
    name: Name,
    intent: Intent,
    supply: Supply,
    taken: SuperblockGuard,
    /// The superblock being written: the one taken, or one that its pages are being copied to.
    home: Arc<Home>,
    batch_bytes: usize,
    /// Bytes that wait for a whole batch.
    waiting: Vec<u8>,
    sent: Option<Sent>,
    /// Data pages programmed.
    pages: u64,
    /// Ledger entries of this attempt, to be rebooked as failed if it fails.
    booked: Vec<(Cause, u64)>,
    attempts: u32,
}

/// A batch in flight.
struct Sent {
    bytes: Arc<Vec<u8>>,
    /// Contents of the last tags, if this is the last batch.
    end: Option<End>,
    /// Number of its pages that are tags.
    tags: u64,
    pending: Pending,
}

/// What the last tags say.
#[derive(Clone, Copy)]
struct End {
    /// Bytes before the lists.
    bytes: u64,
    list_bytes: u32,
}

impl Stripe {
    pub(super) fn begin(inner: Arc<Inner>, name: Name, intent: Intent, supply: Supply) -> Result<Stripe> {
        let taken = SuperblockGuard::new(&inner, intent, supply, 0)?;
        let home = taken.home.clone();
        let stripe = inner.flash.geometry().page_bytes as usize * home.blocks.len();
        Ok(Stripe {
            inner,
            name,
            intent,
            supply,
            taken,
            home,
            batch_bytes: (BATCH_BYTES / stripe).max(1) * stripe,
            waiting: Vec::new(),
            sent: None,
            pages: 0,
            booked: Vec::new(),
            attempts: 1,
        })
    }

    /// Capacity in bytes.
    pub(super) fn capacity(&self) -> u64 {
        self.home.capacity(self.inner.flash.geometry())
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
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

    /// Ends the superblock, with two copies of `list` unless empty, and makes it durable. The caller takes it over.
    pub(super) fn finish(mut self, list: &[u8]) -> Result<Arc<Home>> {
        self.settle()?;
        let bytes = self.bytes();
        let end = End { bytes, list_bytes: list.len() as u32 };
        self.append(list)?;
        if !list.is_empty() {
            let at = second_at(self.bytes(), self.inner.flash.geometry());
            self.append(&vec![0; (at - self.bytes()) as usize])?;
            self.append(list)?;
        }
        let lists = self.bytes() - bytes;
        self.settle()?;
        let page_bytes = self.page_bytes();
        let padding = self.waiting.len().next_multiple_of(page_bytes) - self.waiting.len();
        self.waiting.resize(self.waiting.len() + padding, 0);
        self.write(self.waiting.len(), Some(end))?;
        self.settle()?;
        self.inner.ledger.rebook(self.intent.cause, Cause::Padding, padding as u64);
        self.inner.ledger.rebook(self.intent.cause, Cause::StoreMetadata, lists);
        self.inner.sync()?;
        self.taken.is_done = true;
        Ok(self.home.clone())
    }

    /// Bytes appended so far.
    fn bytes(&self) -> u64 {
        let sent = self.sent.as_ref().map_or(0, |sent| sent.bytes.len());
        self.pages * self.page_bytes() as u64 + (sent + self.waiting.len()) as u64
    }

    fn page_bytes(&self) -> usize {
        self.inner.flash.geometry().page_bytes as usize
    }

    /// Tags for one page of each erase block.
    fn tags(&self, pages: impl Iterator<Item = PageAddr>, state: TagState, end: End) -> Vec<Op> {
        let geometry = *self.inner.flash.geometry();
        let dies = self.home.blocks.iter().map(|block| geometry.die_of(*block)).collect();
        let tag = Arc::new(
            Tag { state, name: self.name, bytes: end.bytes, list_bytes: end.list_bytes, dies }
                .encode(&geometry),
        );
        pages.map(|page| Op::Program { page, data: tag.clone(), part: 0..tag.len() }).collect()
    }

    fn first_tags(&self) -> Vec<Op> {
        let end = End { bytes: 0, list_bytes: 0 };
        self.tags(self.home.blocks.iter().map(|block| block.page(0)), TagState::Begun, end)
    }

    fn last_tags(&self, pages: u64, end: End) -> Vec<Op> {
        let blocks = self.home.blocks.iter().enumerate();
        let ends = blocks.map(|(at, block)| block.page(self.home.pages_in(at, pages)));
        self.tags(ends, TagState::Whole, end)
    }

    /// Submits pages; with [`Parallelism::Half`], those of the second half of the channels after those of the first.
    fn submit(&self, ops: Vec<Op>) -> Pending {
        let submitter = &self.inner.submitter;
        if self.intent.parallelism == Parallelism::Full {
            return submitter.submit(self.intent.class, ops);
        }
        let geometry = *self.inner.flash.geometry();
        let channel = |op: &Op| match op {
            Op::Program { page, .. } => geometry.channel_of(geometry.die_of(page.block)),
            _ => 0,
        };
        let (first, second): (Vec<Op>, Vec<Op>) =
            ops.into_iter().partition(|op| channel(op) < geometry.channels / 2);
        submitter.submit_in_turn(self.intent.class, first, second)
    }

    /// Waits for programs, including those of `tags` tags, and books them.
    fn outcome(&mut self, pending: Pending, tags: u64) -> Result<(), FlashError> {
        let outcome = pending.wait(&*self.inner.env);
        let page_bytes = self.page_bytes() as u64;
        // If some failed, all of them will be rebooked as failed, so it does not matter which were tags.
        let tags = tags.min(outcome.programmed);
        let causes = [(Cause::StoreMetadata, tags), (self.intent.cause, outcome.programmed - tags)];
        for (cause, pages) in causes {
            self.inner.ledger.programmed(cause, pages * page_bytes);
            self.booked.push((cause, pages * page_bytes));
        }
        self.inner.ledger.programmed(Cause::Failed, outcome.failed * page_bytes);
        outcome.error.map_or(Ok(()), Err)
    }

    /// Begins to program `bytes`, whole pages, as the next data pages, and tags as due. Also returns the number of
    /// tags.
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

    /// Waits for the batch in flight; if a program failed, goes on on another superblock.
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

    /// Sends the first `len` waiting bytes once the batch in flight is done.
    fn write(&mut self, len: usize, end: Option<End>) -> Result<()> {
        self.settle()?;
        let rest = self.waiting.split_off(len);
        let bytes = Arc::new(std::mem::replace(&mut self.waiting, rest));
        let (pending, tags) = self.send(&bytes, end);
        self.sent = Some(Sent { bytes, end, tags, pending });
        Ok(())
    }

    /// Copies the data pages programmed so far to another superblock, and releases this one.
    fn move_on(&mut self) -> Result<()> {
        loop {
            self.attempts += 1;
            if self.attempts > ATTEMPTS_MAX {
                return Err(Error::new(
                    Kind::Io,
                    format!("programs of {:?} fail again and again", self.name),
                ));
            }
            // At least as wide as this one, as the table was cut to fit.
            let next = SuperblockGuard::new(&self.inner, self.intent, self.supply, self.home.blocks.len())?;
            for (cause, bytes) in self.booked.drain(..) {
                self.inner.ledger.rebook(cause, Cause::Failed, bytes);
            }
            let old = std::mem::replace(&mut self.home, next.home.clone());
            match self.copy_from(&old) {
                Ok(()) => {
                    self.taken = next;
                    return Ok(());
                }
                Err(FlashError::ProgramFailed(_)) => self.home = old,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Copies by copy-back, bypassing the queues: this happens at most once in the life of an erase block.
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
                    let failed = costs_a_page(&e.error) as u64;
                    Outcome { at: e.done.at, failed, error: Some(e.error), ..Outcome::default() }
                }
            };
            self.outcome(Pending::Known(outcome), 0)?;
        }
        Ok(())
    }
}

impl Drop for Stripe {
    fn drop(&mut self) {
        // No program may be in flight when the superblock is erased.
        if let Some(sent) = self.sent.take() {
            let _ = self.outcome(sent.pending, sent.tags);
        }
    }
}
