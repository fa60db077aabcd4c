//! The SSD as the engine sees it: pages, what was written to them and why, and its end.
//!
//! 1. A page that is *bad* holds nothing that may be read: it could not be written, or what was to be written never
//!    came.
//! 2. An SSD that could not be written is detached. Nothing is read from it and nothing written to it from then on.
//! 3. Pages behind those of the SSD are in memory (the window of KDD in vellum mode), and go with it.
//! 4. The ledger has every byte that was written to the SSD; its superblock counts them ahead (`account.rs`).

use super::account::Account;
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
    device: Device,
    /// Every write is durable when it returns: with an NVRAM, records follow it.
    is_durable: bool,
    /// The array hears when the cache is let go.
    array: Arc<crate::core::Core>,
    pub plot: CachePlot,
    pub tag: u64,
    pub ledger: Ledger,
    pub account: Account,
    /// Pages and pages of the log that could not be read.
    pub unreadable: AtomicU64,
    bad: Mutex<BTreeSet<PageNo>>,
    window: Mutex<FixedMap<PageNo, Arc<[u8]>>>,
    is_detached: AtomicBool,
    why: Mutex<Option<String>>,
}

impl Ssd {
    /// To be used with this superblock; it has the one that was found.
    pub fn new(
        device: Device,
        found: CacheSuperblock,
        superblock: &CacheSuperblock,
        array: &Arc<crate::core::Core>,
    ) -> Ssd {
        let CacheSuperblock { plot, tag, nvram, .. } = *superblock;
        Ssd {
            device,
            is_durable: nvram,
            array: array.clone(),
            plot,
            tag,
            ledger: Ledger::default(),
            account: Account::new(found),
            unreadable: AtomicU64::new(0),
            bad: Mutex::default(),
            window: Mutex::default(),
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

    /// It is of no use from now on. The first reason stays.
    pub fn detach(&self, why: &str) {
        self.array.has_cache.store(false, Relaxed);
        self.why.lock().get_or_insert_with(|| why.to_string());
        self.is_detached.store(true, Relaxed);
    }

    /// Reads a page of data or deltas.
    pub fn read_page(&self, page: PageNo) -> Result<Vec<u8>> {
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
        self.read_sector(self.plot.data_start + u64::from(page.0))
    }

    /// Writes a page; false, and the SSD is detached, if that failed.
    pub fn write_page(&self, page: PageNo, content: &[u8], cause: Cause) -> Result<bool> {
        if self.is_window(page) {
            self.window.lock().insert(page, content.into());
            self.bad.lock().remove(&page);
            return Ok(true);
        }
        let done = self.write_sector(self.plot.data_start + u64::from(page.0), content, cause)?;
        if done {
            self.bad.lock().remove(&page);
        }
        Ok(done)
    }

    fn is_window(&self, page: PageNo) -> bool {
        page.0 >= self.plot.pages
    }

    /// Whether it holds nothing that may be read.
    pub fn is_bad(&self, page: PageNo) -> bool {
        self.bad.lock().contains(&page)
    }

    /// The page holds nothing that may be read.
    pub fn spoil(&self, page: PageNo) {
        self.bad.lock().insert(page);
    }

    /// Reads any sector.
    pub fn read_sector(&self, sector: u64) -> Result<Vec<u8>> {
        let mut out = vec![0; SECTOR_BYTES];
        self.device.read(Lba(sector), &mut out).inspect_err(|error| {
            if error.kind() != Kind::PowerLost {
                self.unreadable.fetch_add(1, Relaxed);
            }
        })?;
        Ok(out)
    }

    /// Writes sectors; false, and the SSD is detached, if that failed. An error is that the power is off.
    pub fn write_sector(&self, sector: u64, content: &[u8], cause: Cause) -> Result<bool> {
        if self.is_detached() || !self.claim(content.len() as u64)? {
            return Ok(false);
        }
        self.program(sector, content, cause)
    }

    /// The same with sectors that are claimed.
    pub(super) fn program(&self, sector: u64, content: &[u8], cause: Cause) -> Result<bool> {
        if self.is_detached() {
            return Ok(false);
        }
        let result = self.device.write(Lba(sector), content, self.is_durable);
        self.judge(result, |ledger| ledger.programmed(cause, content.len() as u64))
    }

    /// Makes everything durable; false, and the SSD is detached, if that failed.
    pub fn flush(&self) -> Result<bool> {
        if self.is_detached() {
            return Ok(false);
        }
        let result = self.device.flush();
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
