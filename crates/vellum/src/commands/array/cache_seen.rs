//! What the SSD of a cache says while nobody has the array open.

use super::cache_shown::Budget;
use crate::text;
use serde::Serialize;
use std::path::PathBuf;
use vellum::array::cache::engine::{CacheSuperblock, examine_cache};
use vellum::array::{Device, Superblock, hex};
use vellum::base::{Error, SECTOR_BYTES};

/// docs/json/array.md
#[derive(Serialize)]
pub struct CacheSeen {
    device: PathBuf,
    /// `closed`, `not closed`, `left behind`, `foreign` or `unknown`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(flatten)]
    known: Option<Known>,
}

/// If it is the array's.
#[derive(Serialize)]
struct Known {
    policy: &'static str,
    bytes: u64,
    cache_pages: u32,
    segment_bytes: u64,
    flash_bytes_before: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<Budget>,
}

impl CacheSeen {
    /// `device` is an error if it could not be opened; `array` is the newest superblock of a member.
    pub fn of(path: PathBuf, device: Result<Device, Error>, array: &Superblock) -> CacheSeen {
        match device.and_then(|device| examine_cache(&device)) {
            Err(error) => {
                CacheSeen { device: path, state: "unknown", problem: Some(error.to_string()), known: None }
            }
            Ok(found) if found.array != array.array => CacheSeen {
                device: path,
                state: "foreign",
                problem: Some(format!("of array {}", hex(&found.array))),
                known: None,
            },
            Ok(found) => CacheSeen {
                device: path,
                state: match (found.clean, found.bond == array.bond) {
                    (false, _) => "not closed",
                    (true, true) => "closed",
                    (true, false) => "left behind",
                },
                problem: None,
                known: Some(Known::of(&found)),
            },
        }
    }

    /// For people.
    pub fn describe(&self) -> String {
        let path = self.device.display();
        let Some(known) = &self.known else {
            let problem = self.problem.as_deref().unwrap_or_default();
            return format!("cache: {path} is {}: {problem}\n", self.state);
        };
        let state = match self.state {
            "closed" => "closed with the array",
            "not closed" => "not closed: it will be found empty, unless it has an NVRAM; no data are lost",
            _ => "left behind: the array was used without it, so it will be found empty; no data are lost",
        };
        let budget = known.budget.as_ref().map_or(String::new(), |budget| {
            let bytes = text::bytes(budget.bytes_a_day);
            format!(", budget of {:.3} drive writes a day ({bytes})", budget.drive_writes_a_day)
        });
        format!(
            "cache: {} on {path}, {}, {state}\n  {} written to it so far{budget}\n",
            known.policy,
            text::bytes(known.bytes),
            text::bytes(known.flash_bytes_before)
        )
    }
}

impl Known {
    fn of(found: &CacheSuperblock) -> Known {
        let bytes = found.plot.ssd_sectors * SECTOR_BYTES as u64;
        Known {
            policy: found.scheme.name(),
            bytes,
            cache_pages: found.plot.pages,
            segment_bytes: u64::from(found.plot.segment_pages) * SECTOR_BYTES as u64,
            flash_bytes_before: found.written,
            budget: Budget::of(Some(found.budget).filter(|bytes| *bytes > 0), found.budget_left, bytes),
        }
    }
}
