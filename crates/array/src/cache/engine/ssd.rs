//! The SSD as seen by the engine: its pages, an account of writes by cause, and its detachment.
//!
//! 1. A *bad* page has no valid content: it could not be written, or its content never arrived.
//! 2. An SSD that fails a write, or is shorter than before, is detached. After that it is neither read nor written.
//! 3. Page numbers beyond the SSD are in memory (the window of KDD in vellum mode), and are lost with it.
//! 4. The ledger has every byte written to the SSD; its superblock counts them ahead of time (`account.rs`).
//! 5. Without an NVRAM, pages of incomplete segments are in memory, too (`segments.rs`).
//! 6. A page whose content is not what was written fails to read (`sums.rs`).

use super::account::Account;
use super::segments::{Run, Segments};
use super::sums::Sums;
use super::superblock::{CachePlot, CacheSuperblock};
use crate::assemble::Device;
use crate::cache::step::PageNo;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use vellum_base::hash::FixedMap;
use vellum_base::sync::Mutex;
use vellum_base::{Cause, Error, Kind, Lba, Ledger, Result, SECTOR_BYTES};

/// See the module.
pub(super) struct Ssd {
    /// `None` once it is released.
    device: Mutex<Option<Device>>,
    /// Every write is durable on return: with an NVRAM, records depend on it.
    is_durable: bool,
    /// It is told when the cache is detached.
    array: Arc<crate::core::Core>,
    pub plot: CachePlot,
    pub tag: u64,
    pub ledger: Ledger,
    pub account: Account,
    /// Failed reads of sectors.
    pub unreadable: AtomicU64,
    /// Pages whose content was not what was written.
    pub wrong: AtomicU64,
    /// Checksums of pages.
    pub sums: Arc<Sums>,
    bad: Mutex<BTreeSet<PageNo>>,
    window: Mutex<FixedMap<PageNo, Arc<[u8]>>>,
    /// `None`: each page is written separately.
    segments: Option<Segments>,
    /// Bytes discarded.
    pub discarded: AtomicU64,
    /// A discard failed: no more are sent.
    keeps_all: AtomicBool,
    is_detached: AtomicBool,
    why: Mutex<Option<String>>,
}

impl Ssd {
    /// An SSD to be used with `superblock`; `found` is the one it has.
    pub fn new(
        device: Device,
        found: CacheSuperblock,
        superblock: &CacheSuperblock,
        array: &Arc<crate::core::Core>,
    ) -> Ssd {
        let CacheSuperblock { plot, tag, nvram, .. } = *superblock;
        Ssd {
            device: Mutex::new(Some(device)),
            is_durable: nvram,
            array: array.clone(),
            plot,
            tag,
            ledger: Ledger::default(),
            account: Account::new(found),
            unreadable: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            sums: Arc::new(Sums::new(plot.pages)),
            bad: Mutex::default(),
            window: Mutex::default(),
            segments: (plot.segment_pages > 0 && !nvram).then(|| Segments::new(plot.segment_pages)),
            discarded: AtomicU64::new(0),
            keeps_all: AtomicBool::new(false),
            is_detached: AtomicBool::new(false),
            why: Mutex::default(),
        }
    }

    pub fn is_detached(&self) -> bool {
        self.is_detached.load(Relaxed)
    }

    /// Why it is detached, if it is.
    pub fn why(&self) -> Option<String> {
        self.why.lock().clone()
    }

    /// Detaches the SSD. The first reason is kept.
    pub fn detach(&self, why: &str) {
        self.array.has_cache.store(false, Relaxed);
        self.why.lock().get_or_insert_with(|| why.to_string());
        self.is_detached.store(true, Relaxed);
        self.array.bell.ring(); // All stale rows are to be made anew.
    }

    /// Releases the device, so that others may use it. The SSD must be detached.
    pub fn let_go(&self) {
        *self.device.lock() = None;
    }

    /// True if the device was released.
    pub fn is_let_go(&self) -> bool {
        self.device.lock().is_none()
    }

    fn device(&self) -> Result<Device> {
        self.device.lock().clone().ok_or_else(|| Error::new(Kind::Io, "the cache is detached"))
    }

    /// Reads a data page and verifies its checksum.
    pub fn read_page(&self, page: PageNo) -> Result<Vec<u8>> {
        if self.sums.is_with_delta(page) {
            return Err(Error::corrupt("nobody knows what the page held: its delta was not read"));
        }
        let content = self.read_unchecked(page)?;
        if !self.is_window(page) {
            self.sums.check(page, &content).inspect_err(|_| self.count_wrong())?;
        }
        Ok(content)
    }

    /// Reads a page without verification.
    pub fn read_unchecked(&self, page: PageNo) -> Result<Vec<u8>> {
        if self.is_detached() {
            return Err(Error::new(Kind::Io, "the cache is detached"));
        }
        if self.is_bad(page) {
            return Err(Error::new(Kind::Io, "the page of the cache holds nothing"));
        }
        if self.is_window(page) {
            let held = self.window.lock().get(&page).cloned();
            return held
                .map(|held| held.to_vec())
                .ok_or_else(|| Error::new(Kind::Io, "nothing is held there"));
        }
        if let Some(held) = self.segments.as_ref().and_then(|segments| segments.read(page)) {
            return Ok(held.to_vec());
        }
        self.read_sector(self.sector_of(page))
    }

    /// Counts a page whose content was not what was written.
    pub fn count_wrong(&self) {
        self.wrong.fetch_add(1, Relaxed);
    }

    fn sector_of(&self, page: PageNo) -> u64 {
        self.plot.data_start + u64::from(page.0)
    }

    /// Writes a page, together with its segment if there are segments; false, and the SSD is detached, if that failed.
    pub fn write_page(&self, page: PageNo, content: &[u8], cause: Cause) -> Result<bool> {
        if self.is_window(page) {
            self.window.lock().insert(page, content.into());
            self.bad.lock().remove(&page);
            return Ok(true);
        }
        self.sums.set(page, content); // Of a page of deltas nobody asks for it.
        let done = match &self.segments {
            None => self.write_sector(self.sector_of(page), content, cause)?,
            Some(segments) => self.write_run(segments.settle(page, Some((content.into(), cause))))?,
        };
        if done {
            self.bad.lock().remove(&page);
        }
        Ok(done)
    }

    /// Writes the pages of a segment, if given; false, and the SSD is detached, if that failed.
    fn write_run(&self, run: Option<Run>) -> Result<bool> {
        let (Some(run), false) = (run, self.is_detached()) else { return Ok(!self.is_detached()) };
        if !self.claim(run.bytes.len() as u64)? {
            return Ok(false);
        }
        let first = Lba(self.sector_of(run.first));
        let result = self.device().and_then(|device| device.write(first, &run.bytes, self.is_durable));
        let done = self.judge(result, |ledger| {
            run.causes.iter().for_each(|cause| ledger.programmed(*cause, SECTOR_BYTES as u64));
        })?;
        if let Some(segments) = self.segments.as_ref().filter(|_| done) {
            segments.written(&run);
        }
        Ok(done)
    }

    /// Writes incomplete segments; false, and the SSD is detached, if that failed.
    pub fn write_rest(&self) -> Result<bool> {
        let rest = self.segments.as_ref().map(Segments::rest).unwrap_or_default();
        for run in rest {
            if !self.write_run(Some(run))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Tells the SSD that these pages will be rewritten before they are read. This is only a hint: the only error
    /// returned is a lost power.
    pub fn discard(&self, first: PageNo, pages: u32) -> Result<()> {
        if self.is_detached() || self.keeps_all.load(Relaxed) {
            return Ok(());
        }
        let first = Lba(self.sector_of(first));
        match self.device().and_then(|device| device.discard(first, pages.into())) {
            Ok(()) => {
                self.discarded.fetch_add(u64::from(pages) * SECTOR_BYTES as u64, Relaxed);
                Ok(())
            }
            Err(error) if error.kind() == Kind::PowerLost => Err(error),
            Err(_) => {
                self.keeps_all.store(true, Relaxed);
                Ok(())
            }
        }
    }

    fn is_window(&self, page: PageNo) -> bool {
        page.0 >= self.plot.pages
    }

    /// True if the page has no valid content.
    pub fn is_bad(&self, page: PageNo) -> bool {
        self.bad.lock().contains(&page)
    }

    /// Marks a page as bad.
    pub fn spoil(&self, page: PageNo) -> Result<()> {
        self.bad.lock().insert(page);
        match self.segments.as_ref().filter(|_| !self.is_window(page)) {
            Some(segments) => self.write_run(segments.settle(page, None)).map(drop),
            None => Ok(()),
        }
    }

    /// Reads a sector of any kind.
    pub fn read_sector(&self, sector: u64) -> Result<Vec<u8>> {
        let mut out = vec![0; SECTOR_BYTES];
        self.device()?.read(Lba(sector), &mut out).inspect_err(|error| {
            if error.kind() != Kind::PowerLost {
                self.unreadable.fetch_add(1, Relaxed);
            }
            if error.kind() == Kind::Gone {
                self.detach(&format!("the SSD is gone: {error}"));
            }
        })?;
        Ok(out)
    }

    /// Writes sectors; false, and the SSD is detached, if that failed. An error means that the power is lost.
    pub fn write_sector(&self, sector: u64, content: &[u8], cause: Cause) -> Result<bool> {
        if self.is_detached() || !self.claim(content.len() as u64)? {
            return Ok(false);
        }
        self.program(sector, content, cause)
    }

    /// The same for bytes that the account already covers.
    pub(super) fn program(&self, sector: u64, content: &[u8], cause: Cause) -> Result<bool> {
        if self.is_detached() {
            return Ok(false);
        }
        let result = self.device().and_then(|device| device.write(Lba(sector), content, self.is_durable));
        self.judge(result, |ledger| ledger.programmed(cause, content.len() as u64))
    }

    /// Makes everything durable; false, and the SSD is detached, if that failed.
    pub fn flush(&self) -> Result<bool> {
        if self.is_detached() {
            return Ok(false);
        }
        let result = self.device().and_then(|device| device.flush());
        self.judge(result, |_| ())
    }

    fn judge(&self, result: Result<()>, done: impl FnOnce(&Ledger)) -> Result<bool> {
        match result {
            Ok(()) => {
                done(&self.ledger);
                Ok(true)
            }
            Err(error) if error.kind() == Kind::PowerLost => Err(error),
            Err(error) => {
                self.detach(&format!("the SSD failed: {error}"));
                Ok(false)
            }
        }
    }
}
