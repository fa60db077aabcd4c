//! Writing a table to a superblock, a stripe at a time.

use super::Inner;
use super::superblock::{Home, Tag, TagState};
use crate::media::{Intent, TableWriter};
use std::sync::Arc;
use vellum_base::{Cause, Error, FlashError, FlashOp, Kind, Nanos, PageAddr, Result, Source};

/// Attempts at writing one table, each on another superblock.
const ATTEMPTS_MAX: u32 = 8;

/// States: begun (no page programmed) → writing → finished, or given up when dropped before.
pub(crate) struct SuperblockWriter {
    inner: Arc<Inner>,
    table: u64,
    intent: Intent,
    home: Home,
    /// Bytes that wait for a whole stripe.
    waiting: Vec<u8>,
    /// Data pages programmed.
    pages: u64,
    /// What this attempt booked, to be rebooked if it fails.
    booked: Vec<(Cause, u64)>,
    /// When what was submitted is finished.
    at: Nanos,
    attempts: u32,
    done: bool,
}

impl SuperblockWriter {
    pub(crate) fn new(inner: Arc<Inner>, table: u64, intent: Intent) -> Result<SuperblockWriter> {
        let home = inner.take(intent.class)?;
        let mut writer = SuperblockWriter {
            inner,
            table,
            intent,
            home,
            waiting: Vec::new(),
            pages: 0,
            booked: Vec::new(),
            at: Nanos::ZERO,
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
        let tag = Tag { state, table: self.table, bytes, dies }.encode(&geometry);
        let parts = [Source::Bytes(&tag), Source::Pad(geometry.page_bytes - tag.len() as u32)];
        let batch: Vec<_> = pages.iter().map(|page| (*page, &parts[..])).collect();
        self.program(&batch, Cause::StoreMetadata)
    }

    /// Programs pages, each from its parts, and books them.
    fn program(&mut self, pages: &[(PageAddr, &[Source<'_>])], cause: Cause) -> Result<(), FlashError> {
        let mut ops: Vec<_> = pages
            .iter()
            .map(|(page, parts)| FlashOp::Program { page: *page, parts, oob: &[], seeds: &[] })
            .collect();
        let result = self.inner.flash.submit(self.intent.class, &mut ops);
        let page_bytes = self.page_bytes() as u64;
        let (programmed, failed) = match &result {
            Ok(_) => (pages.len() as u64, 0),
            Err(e) => (e.index as u64, !matches!(e.error, FlashError::Rule(_)) as u64),
        };
        self.inner.booked(cause, programmed * page_bytes);
        self.inner.booked(Cause::Failed, failed * page_bytes);
        self.booked.push((cause, programmed * page_bytes));
        match result {
            Ok(done) => self.at = self.at.max(done.at),
            Err(e) => return Err(e.error),
        }
        Ok(())
    }

    /// Programs `bytes`, whole pages, as the next data pages, at most a stripe.
    fn stripe(&mut self, bytes: &[u8]) -> Result<(), FlashError> {
        // One stripe may be under way while the next is made.
        self.inner.env.sleep_until(self.at);
        let page_bytes = self.page_bytes();
        let parts: Vec<[Source<'_>; 1]> =
            bytes.chunks(page_bytes).map(|page| [Source::Bytes(page)]).collect();
        let batch: Vec<_> =
            (self.pages..).zip(&parts).map(|(d, part)| (self.home.page(d), &part[..])).collect();
        self.program(&batch, self.intent.cause)?;
        self.pages += parts.len() as u64;
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

    fn copy_from(&mut self, old: &Home) -> Result<(), FlashError> {
        self.begin()?;
        let bytes = self.page_bytes() as u32;
        for data_page in 0..self.pages {
            let part = [Source::Copy { page: old.page(data_page), offset: 0, bytes }];
            self.program(&[(self.home.page(data_page), &part)], self.intent.cause)?;
        }
        Ok(())
    }
}

impl TableWriter for SuperblockWriter {
    fn capacity(&self) -> u64 {
        self.home.capacity(self.inner.flash.geometry())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.waiting.extend_from_slice(bytes);
        let stripe = self.page_bytes() * self.home.blocks.len();
        let waiting = std::mem::take(&mut self.waiting);
        let whole = waiting.len() / stripe * stripe;
        for piece in waiting[..whole].chunks(stripe) {
            self.with_retries(|w| w.stripe(piece))?;
        }
        self.waiting = waiting;
        self.waiting.drain(..whole);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let page_bytes = self.page_bytes();
        let bytes = self.pages * page_bytes as u64 + self.waiting.len() as u64;
        let padding = self.waiting.len().next_multiple_of(page_bytes) - self.waiting.len();
        self.waiting.resize(self.waiting.len() + padding, 0);
        let waiting = std::mem::take(&mut self.waiting);
        let stripe = page_bytes * self.home.blocks.len();
        for piece in waiting.chunks(stripe) {
            self.with_retries(|w| w.stripe(piece))?;
        }
        self.inner.ledger.rebook(self.intent.cause, Cause::Padding, padding as u64);
        self.with_retries(|w| {
            let ends: Vec<PageAddr> = (0..w.home.blocks.len())
                .map(|at| w.home.blocks[at].page(w.home.pages_in(at, w.pages)))
                .collect();
            w.tags(&ends, TagState::Whole, bytes)
        })?;
        self.inner.env.sleep_until(self.at);
        self.inner.flash.sync()?;
        self.inner.blocks.lock().homes.insert(self.table, self.home.clone());
        self.done = true;
        Ok(())
    }
}

impl Drop for SuperblockWriter {
    fn drop(&mut self) {
        if !self.done {
            // Without power the erase waits until the store is opened again.
            let _ = self.inner.release(self.home.index);
        }
    }
}
