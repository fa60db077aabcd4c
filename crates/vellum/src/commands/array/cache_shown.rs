//! Description of an array's cache.

use crate::text::{self, Align, Table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use vellum::array::cache::engine::{CacheStatus, CachedArray};
use vellum::base::{Cause, SECTOR_BYTES};

/// Writes over a shorter time do not allow an estimate per day.
const RATE_AFTER_MS: u64 = 60_000;
const DAY_MS: f64 = 24.0 * 3600.0 * 1000.0;
/// What to do about a cache that died, or was missing.
const DETACHED_NEXT: &str = "the array goes on without it: `vellum array detach-cache` lets go of it; when nobody serves \
                             the array any more, `vellum array attach-cache` takes another";

/// The cache that the file of an open array names.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CacheSaid {
    Shown(Box<CacheShown>),
    Unused(CacheUnused),
}

/// docs/json/array.md: a cache without which the array was opened.
#[derive(Debug, Serialize, Deserialize)]
pub struct CacheUnused {
    device: PathBuf,
    /// `away`.
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// docs/json/array.md
#[derive(Debug, Serialize, Deserialize)]
pub struct CacheShown {
    policy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<PathBuf>,
    bytes: u64,
    cache_pages: u32,
    /// `in use` or `detached`.
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    detached: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    emptied: Option<String>,
    pages: Pages,
    staged_bytes: u64,
    stale_rows: u64,
    stale_rows_max: u64,
    unknown_rows: u64,
    read_hits: u64,
    read_misses: u64,
    write_hits: u64,
    write_misses: u64,
    rows_cleaned: u64,
    rows_resynced: u64,
    unreadable_pages: u64,
    #[serde(default)]
    wrong_pages: u64,
    /// By cause; causes without writes are omitted.
    flash_bytes: BTreeMap<String, u64>,
    flash_bytes_before: u64,
    /// 0: pages are written in place.
    #[serde(default)]
    segment_bytes: u64,
    #[serde(default)]
    discarded_bytes: u64,
    open_ms: u64,
    drive_writes_a_day: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<Budget>,
    at_risk_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    resync_ms: Option<u64>,
}

/// Budget of flash writes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Budget {
    pub bytes_a_day: u64,
    pub drive_writes_a_day: f64,
    left_bytes: i64,
}

impl Budget {
    /// None if there is no budget. `bytes` is the size of the SSD.
    pub fn of(bytes_a_day: Option<u64>, left_bytes: i64, bytes: u64) -> Option<Budget> {
        let drive_writes_a_day = bytes_a_day? as f64 / bytes.max(1) as f64;
        Some(Budget { bytes_a_day: bytes_a_day?, drive_writes_a_day, left_bytes })
    }
}

/// Number of pages in each state.
#[derive(Debug, Serialize, Deserialize)]
struct Pages {
    free: u64,
    clean: u64,
    old: u64,
    new: u64,
    delta: u64,
    in_memory: u64,
}

impl CacheSaid {
    /// None if there is no cache. `device` is its SSD as the file names it; `why_unused` if it was opened without it.
    pub fn of(cached: &CachedArray, device: Option<PathBuf>, why_unused: Option<&str>) -> Option<CacheSaid> {
        let status = cached.status();
        let at_risk: u64 = cached.sectors_at_risk().iter().map(|range| range.end - range.start).sum();
        if let Some(shown) = CacheShown::of(&status, at_risk * SECTOR_BYTES as u64, device.clone()) {
            return Some(CacheSaid::Shown(Box::new(shown)));
        }
        // A cache that is being detached is named a little longer.
        let device = device.filter(|_| status.detached.is_none())?;
        let problem = why_unused.map(String::from);
        Some(CacheSaid::Unused(CacheUnused { device, state: "away".into(), problem }))
    }

    /// Whether it is in use: it was present, and neither its SSD nor its NVRAM has failed.
    pub fn is_usable(&self) -> bool {
        matches!(self, CacheSaid::Shown(shown) if shown.detached.is_none())
    }

    /// For display. `is_degraded`: a member of the array is lost.
    pub fn describe(&self, is_degraded: bool) -> String {
        match self {
            CacheSaid::Shown(shown) => shown.describe(is_degraded),
            CacheSaid::Unused(CacheUnused { device, problem, .. }) => {
                let why = problem.as_ref().map_or(String::new(), |problem| format!(": {problem}"));
                format!("cache: {}, not used{why}\n  {DETACHED_NEXT}\n", device.display())
            }
        }
    }
}

impl CacheShown {
    /// None if there is no cache. `at_risk_bytes` are stored only there; `device` is its SSD as the file names it.
    fn of(status: &CacheStatus, at_risk_bytes: u64, device: Option<PathBuf>) -> Option<CacheShown> {
        // A cache that failed and was then detached.
        if device.is_none() && status.detached.is_some() {
            return None;
        }
        let census = status.census;
        let open_ms = status.open_for.0 / 1_000_000;
        let whole = status.ssd_bytes.max(1) as f64;
        let budget = Budget::of(status.budget, census.budget_left.unwrap_or(0), status.ssd_bytes);
        let bytes = |cause: &Cause| (cause.name().to_string(), status.ledger.programmed_by(*cause));
        Some(CacheShown {
            policy: status.scheme?.name().into(),
            device,
            bytes: status.ssd_bytes,
            cache_pages: status.pages,
            state: if status.detached.is_some() { "detached" } else { "in use" }.into(),
            detached: status.detached.clone(),
            emptied: status.emptied.clone(),
            pages: Pages {
                free: census.free,
                clean: census.clean,
                old: census.old,
                new: census.new,
                delta: census.delta,
                in_memory: census.window,
            },
            staged_bytes: census.staged_bytes,
            stale_rows: status.stale_rows,
            stale_rows_max: status.stale_rows_max,
            unknown_rows: status.unknown_rows,
            read_hits: status.read_hits,
            read_misses: status.read_misses,
            write_hits: status.write_hits,
            write_misses: status.write_misses,
            rows_cleaned: status.rows_cleaned,
            rows_resynced: status.rows_resynced,
            unreadable_pages: status.unreadable_pages,
            wrong_pages: status.wrong_pages,
            flash_bytes: Cause::ALL.iter().map(bytes).filter(|(_, bytes)| *bytes > 0).collect(),
            flash_bytes_before: status.written_before,
            segment_bytes: u64::from(status.segment_pages) * SECTOR_BYTES as u64,
            discarded_bytes: status.discarded_bytes,
            open_ms,
            drive_writes_a_day: status.ledger.programmed_total() as f64 / whole
                * (DAY_MS / open_ms.max(1) as f64),
            budget,
            at_risk_bytes,
            resync_ms: status.resync_time().map(|time| time.0 / 1_000_000),
        })
    }

    fn describe(&self, is_degraded: bool) -> String {
        let name = self.device.as_ref().map_or(String::new(), |path| format!(" on {}", path.display()));
        let head = format!("cache: {}{name}, {}", self.policy, text::bytes(self.bytes));
        match (&self.detached, &self.emptied) {
            (Some(why), _) => format!("{head}, detached: {why}\n  {DETACHED_NEXT}\n"),
            (None, Some(why)) => format!("{head}, found empty: {why}\n{}", self.figures(is_degraded)),
            (None, None) => format!("{head}\n{}", self.figures(is_degraded)),
        }
    }

    fn figures(&self, is_degraded: bool) -> String {
        let mut table = Table::new(&[Align::Left, Align::Left]);
        let pages = &self.pages;
        table.row([
            "pages".into(),
            format!(
                "{} clean, {} old, {} new, {} of deltas, {} free; {} of these are kept in memory, not on the SSD",
                pages.clean, pages.old, pages.new, pages.delta, pages.free, pages.in_memory
            ),
        ]);
        let hits = |hits: u64, misses: u64| match hits + misses {
            0 => "none yet".to_string(),
            all => format!("{} of {all} sectors ({})", hits, text::percent(hits, all)),
        };
        table.row(["read hits".into(), hits(self.read_hits, self.read_misses)]);
        table.row(["write hits".into(), hits(self.write_hits, self.write_misses)]);
        if self.unreadable_pages + self.wrong_pages > 0 {
            table.row(["the SSD failed".into(), self.failures()]);
        }
        table.row(["flash written".into(), self.flash()]);
        if self.segment_bytes > 0 {
            table.row(["flash discarded".into(), self.discarded()]);
        }
        table.row(["endurance".into(), self.endurance()]);
        let share = text::percent(self.stale_rows, self.stale_rows_max);
        table.row([
            "stale rows".into(),
            format!("{} of at most {} ({share})", self.stale_rows, self.stale_rows_max),
        ]);
        table.row(["if it died now".into(), self.if_it_died(is_degraded)]);
        table.render("  ")
    }

    /// Failed and corrupt reads.
    fn failures(&self) -> String {
        format!(
            "{} failed, {} not what was written",
            text::counted(self.unreadable_pages, "read"),
            self.wrong_pages
        )
    }

    fn flash(&self) -> String {
        let causes: Vec<String> = self
            .flash_bytes
            .iter()
            .map(|(cause, bytes)| format!("{} {cause}", text::bytes(*bytes)))
            .collect();
        let causes = if causes.is_empty() { "nothing".to_string() } else { causes.join(", ") };
        let before = match self.flash_bytes_before {
            0 => String::new(),
            bytes => format!("; {} before", text::bytes(bytes)),
        };
        format!("{causes} in {}{before}", text::duration(self.open_ms))
    }

    fn discarded(&self) -> String {
        format!("{}, in segments of {}", text::bytes(self.discarded_bytes), text::bytes(self.segment_bytes))
    }

    fn endurance(&self) -> String {
        let rate = match self.open_ms {
            ..RATE_AFTER_MS => "too early to tell".to_string(),
            _ => format!("{:.3} drive writes a day", self.drive_writes_a_day),
        };
        match &self.budget {
            None => format!("{rate}; no budget"),
            Some(budget) => {
                let left = match u64::try_from(budget.left_bytes) {
                    Ok(left) => format!("{} may be written now", text::bytes(left)),
                    Err(_) => "nothing may be written now: more comes with time".to_string(),
                };
                let (daily, all) = (budget.drive_writes_a_day, text::bytes(budget.bytes_a_day));
                format!("{rate}; budget {daily:.3} ({all}) a day, {left}")
            }
        }
    }

    fn if_it_died(&self, is_degraded: bool) -> String {
        let lost = match self.at_risk_bytes {
            0 => "0 bytes lost".to_string(),
            bytes => format!("{} lost, as a member is", text::bytes(bytes)),
        };
        match (self.stale_rows, self.resync_ms) {
            (0, _) => format!("{lost}, nothing to resync"),
            (rows, _) if is_degraded => {
                format!(
                    "{lost}; of {rows} stale rows those are resynced whose data are all on members that are there"
                )
            }
            (rows, None) => format!("{lost}, {} to resync", text::counted(rows, "row")),
            (rows, Some(ms)) => {
                format!("{lost}, {} to resync in about {}", text::counted(rows, "row"), text::duration(ms))
            }
        }
    }
}
