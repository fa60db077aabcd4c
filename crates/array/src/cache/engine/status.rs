//! Status of a cache, for display.

use super::cached::CachedArray;
use crate::cache::policy::{Census, Scheme};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use vellum_base::{LedgerSnapshot, Nanos, SECTOR_BYTES};

/// State of a cache, and counters since it was opened.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheStatus {
    /// The policy; `None` if there is no SSD.
    pub scheme: Option<Scheme>,
    /// Pages of the SSD for data and deltas.
    pub pages: u32,
    /// Pages per segment, which are written, and discarded, together. 0: pages are written in place.
    pub segment_pages: u32,
    /// Bytes of the SSD discarded since the cache was opened.
    pub discarded_bytes: u64,
    /// Counts of pages by state.
    pub census: Census,
    /// Why the SSD is detached, if it is.
    pub detached: Option<String>,
    /// Why the cache was emptied when it was opened, if it was.
    pub emptied: Option<String>,
    /// Rows with deferred parity. If the SSD were lost now, they would have no redundancy until they are
    /// resynchronised.
    pub stale_rows: u64,
    /// Of these, rows whose deltas the cache does not have: they are being resynchronised.
    pub unknown_rows: u64,
    /// About how many rows may be stale.
    pub stale_rows_max: u64,
    /// Sectors read from the cache; `read_misses` were read from the array.
    pub read_hits: u64,
    /// See `read_hits`.
    pub read_misses: u64,
    /// Sectors written that the cache had; `write_misses` are those that it had not.
    pub write_hits: u64,
    /// See `write_hits`.
    pub write_misses: u64,
    /// Rows whose parity was updated from deltas.
    pub rows_cleaned: u64,
    /// Rows whose parity was recomputed from data.
    pub rows_resynced: u64,
    /// Mean time to clean or resynchronise a row.
    pub cleaning_mean: Nanos,
    /// Failed reads of pages of the SSD.
    pub unreadable_pages: u64,
    /// Pages of the SSD whose content was not what was written, without an error from the SSD.
    pub wrong_pages: u64,
    /// Deltas that could not be read, and were recomputed from base and array.
    pub deltas_recomputed: u64,
    /// Bytes written to the SSD since it was opened, by cause.
    pub ledger: LedgerSnapshot,
    /// Bytes written to it before, according to its superblock.
    pub written_before: u64,
    /// Time since the cache was opened.
    pub open_for: Nanos,
    /// Bytes of the SSD.
    pub ssd_bytes: u64,
    /// Bytes that may be written to it per day, if there is a limit.
    pub budget: Option<u64>,
}

impl CacheStatus {
    /// Time to resynchronise all stale rows if the SSD were lost now. `None` before any row was cleaned.
    pub fn resync_time(&self) -> Option<Nanos> {
        let is_known = self.rows_cleaned + self.rows_resynced > 0;
        is_known.then(|| Nanos(self.cleaning_mean.0.saturating_mul(self.stale_rows)))
    }
}

impl CachedArray {
    /// Sectors that are lost: those of a lost member in stale rows whose deltas are not known. A rebuild that gives
    /// them up makes them zeros.
    pub fn lost_sectors(&self) -> Vec<Range<u64>> {
        let array = &self.core.array;
        let unknown: Vec<u64> = match self.core.ssd() {
            Some(_) => self.core.unknown.lock().iter().copied().filter(|row| array.is_stale(*row)).collect(),
            None => array.stale_rows(0, usize::MAX),
        };
        array.lost_sectors(unknown.into_iter())
    }

    /// Sectors that only the cache can tell: those of a lost member in stale rows whose deltas it has.
    pub fn sectors_at_risk(&self) -> Vec<Range<u64>> {
        let Some(_) = self.core.ssd() else { return Vec::new() };
        let unknown = self.core.unknown.lock().clone();
        let stale = self.core.array.stale_rows(0, usize::MAX).into_iter();
        self.core.array.lost_sectors(stale.filter(|row| !unknown.contains(row)))
    }

    /// See [`CacheStatus`].
    pub fn status(&self) -> CacheStatus {
        let (core, counters) = (&self.core, &self.core.counters);
        let (ssd, about) = (core.ssd.as_ref(), self.about.superblock.as_ref());
        let stale_rows = core.array.core().stale.count();
        let unknown_rows = if core.ssd().is_some() { core.unknown.lock().len() as u64 } else { stale_rows };
        let rows_cleaned = counters.rows_cleaned.load(Relaxed);
        let rows_resynced = counters.rows_resynced.load(Relaxed);
        let cleaning = counters.cleaning_ns.load(Relaxed);
        CacheStatus {
            scheme: about
                .filter(|_| ssd.is_some_and(|ssd| !ssd.is_let_go()))
                .map(|superblock| superblock.scheme),
            pages: ssd.map_or(0, |ssd| ssd.plot.pages),
            segment_pages: ssd.map_or(0, |ssd| ssd.plot.segment_pages),
            discarded_bytes: ssd.map_or(0, |ssd| ssd.discarded.load(Relaxed)),
            census: if core.ssd().is_some() { core.brain.lock().policy.census() } else { Census::default() },
            detached: ssd.and_then(|ssd| ssd.why()),
            emptied: self.about.emptied.clone(),
            stale_rows,
            unknown_rows,
            stale_rows_max: core.stale_rows_max,
            read_hits: counters.read_hits.load(Relaxed),
            read_misses: counters.read_misses.load(Relaxed),
            write_hits: counters.write_hits.load(Relaxed),
            write_misses: counters.write_misses.load(Relaxed),
            rows_cleaned,
            rows_resynced,
            cleaning_mean: Nanos(cleaning.checked_div(rows_cleaned + rows_resynced).unwrap_or(0)),
            unreadable_pages: ssd.map_or(0, |ssd| ssd.unreadable.load(Relaxed)),
            wrong_pages: ssd.map_or(0, |ssd| ssd.wrong.load(Relaxed)),
            deltas_recomputed: counters.deltas_recomputed.load(Relaxed),
            written_before: about.map_or(0, |superblock| superblock.written),
            open_for: core.now().saturating_sub(core.opened_at),
            ssd_bytes: about.map_or(0, |superblock| superblock.plot.ssd_sectors * SECTOR_BYTES as u64),
            budget: about.map(|superblock| superblock.budget).filter(|bytes| *bytes > 0),
            ledger: ssd.map(|ssd| ssd.ledger.snapshot()).unwrap_or_default(),
        }
    }
}
