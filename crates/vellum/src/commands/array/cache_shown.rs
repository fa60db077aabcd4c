//! What is said of an array's cache.

use crate::text::{self, Align, Table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vellum::array::cache::engine::CacheStatus;
use vellum::base::Cause;

/// docs/json/array.md
#[derive(Debug, Serialize, Deserialize)]
pub struct CacheShown {
    policy: String,
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
    /// By cause; those that wrote nothing are left out.
    flash_bytes: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resync_ms: Option<u64>,
}

/// How many are what.
#[derive(Debug, Serialize, Deserialize)]
struct Pages {
    free: u64,
    clean: u64,
    old: u64,
    new: u64,
    delta: u64,
    in_memory: u64,
}

impl CacheShown {
    /// None if there is no cache.
    pub fn of(status: &CacheStatus) -> Option<CacheShown> {
        let census = status.census;
        let bytes = |cause: &Cause| (cause.name().to_string(), status.ledger.programmed_by(*cause));
        Some(CacheShown {
            policy: status.scheme?.name().into(),
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
            flash_bytes: Cause::ALL.iter().map(bytes).filter(|(_, bytes)| *bytes > 0).collect(),
            resync_ms: status.resync_time().map(|time| time.0 / 1_000_000),
        })
    }

    /// For people.
    pub fn describe(&self) -> String {
        let mut table = Table::new(&[Align::Left, Align::Left]);
        let pages = &self.pages;
        table.row([
            "pages".into(),
            format!(
                "{} clean, {} old, {} new, {} of deltas, {} free; {} of them in memory",
                pages.clean, pages.old, pages.new, pages.delta, pages.free, pages.in_memory
            ),
        ]);
        let hits = |hits: u64, misses: u64| match hits + misses {
            0 => "none yet".to_string(),
            all => format!("{} of {all} sectors ({})", hits, text::percent(hits, all)),
        };
        table.row(["read hits".into(), hits(self.read_hits, self.read_misses)]);
        table.row(["write hits".into(), hits(self.write_hits, self.write_misses)]);
        let flash: Vec<String> = self
            .flash_bytes
            .iter()
            .map(|(cause, bytes)| format!("{} {cause}", text::bytes(*bytes)))
            .collect();
        table.row([
            "flash written".into(),
            if flash.is_empty() { "nothing".into() } else { flash.join(", ") },
        ]);
        table.row(["stale rows".into(), format!("{} of at most {}", self.stale_rows, self.stale_rows_max)]);
        let time =
            self.resync_ms.map_or(String::new(), |ms| format!(", in about {:.1} s", ms as f64 / 1000.0));
        let lost = format!("0 bytes lost, {} rows to resync{time}", self.stale_rows);
        table.row(["if it died now".into(), lost]);
        let state = match (&self.detached, &self.emptied) {
            (Some(why), _) => format!(", detached: {why}"),
            (None, Some(why)) => format!(", found empty: {why}"),
            _ => String::new(),
        };
        format!("cache: {}{state}\n{}", self.policy, table.render("  "))
    }
}
