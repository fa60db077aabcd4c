//! State of a cache's SSD while the array is not open.

use super::cache_shown::Budget;
use crate::text;
use serde::Serialize;
use std::path::PathBuf;
use vellum::array::cache::engine::{Bond, CacheSuperblock, examine_cache};
use vellum::array::{Device, Superblock, hex};
use vellum::base::size::format_size;
use vellum::base::{BlockDevice, Error, SECTOR_BYTES};

/// docs/json/array.md
#[derive(Serialize)]
pub struct CacheSeen {
    /// None: the array was left with a cache, but the file does not name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<PathBuf>,
    state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(flatten)]
    known: Option<Known>,
    /// The array is not opened with it, only without it by force.
    #[serde(skip)]
    is_refused: bool,
}

/// What happens to it when the array is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Closed,
    #[serde(rename = "not closed")]
    NotClosed,
    #[serde(rename = "left behind")]
    LeftBehind,
    #[serde(rename = "out of step")]
    OutOfStep,
    #[serde(rename = "cut short")]
    CutShort,
    Foreign,
    /// It cannot be read.
    Unknown,
    /// It cannot be opened, but holds nothing that counts.
    Away,
    #[serde(rename = "not named")]
    NotNamed,
}

/// Details, if it is the array's.
#[derive(Serialize)]
struct Known {
    policy: &'static str,
    bytes: u64,
    cache_pages: u32,
    segment_bytes: u64,
    flash_bytes_before: u64,
    #[serde(skip)]
    has_nvram: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<Budget>,
}

impl CacheSeen {
    /// `device` is an error if it could not be opened; `array` is the newest superblock of a member.
    pub fn of(path: PathBuf, device: Result<Device, Error>, array: &Superblock) -> CacheSeen {
        // If nothing that it held counts, it does not matter that parts are missing.
        let may_lack = array.bond == 0;
        let seen = |state, problem, known| {
            let is_refused = match state {
                State::OutOfStep | State::Foreign => true,
                State::CutShort | State::Unknown => !may_lack,
                _ => false,
            };
            CacheSeen { device: Some(path), state, problem, known, is_refused }
        };
        let device = match device {
            Err(error) if array.bond == 0 => return seen(State::Away, Some(error.to_string()), None),
            Err(error) => return seen(State::Unknown, Some(error.to_string()), None),
            Ok(device) => device,
        };
        match examine_cache(&device) {
            Err(error) => seen(State::Unknown, Some(error.to_string()), None),
            Ok(found) if found.array != array.array => {
                seen(State::Foreign, Some(format!("of array {}", hex(&found.array))), None)
            }
            Ok(found) => {
                let has = device.info().sectors;
                let problem = (has < found.plot.ssd_sectors).then(|| {
                    let size = |sectors: u64| format_size(sectors.saturating_mul(SECTOR_BYTES as u64));
                    format!("it has {}, its superblock says {}", size(has), size(found.plot.ssd_sectors))
                });
                let state = if problem.is_some() { State::CutShort } else { State::beside(&found, array) };
                seen(state, problem, Some(Known::of(&found)))
            }
        }
    }

    /// For a file that names none: a cache is missing if the array was left with one.
    pub fn missed(array: &Superblock) -> Option<CacheSeen> {
        let seen =
            CacheSeen { device: None, state: State::NotNamed, problem: None, known: None, is_refused: true };
        (array.bond != 0).then_some(seen)
    }

    /// Whether it is present, and the array is opened with it.
    pub fn is_usable(&self) -> bool {
        matches!(self.state, State::Closed | State::NotClosed | State::LeftBehind)
    }

    /// For display.
    pub fn describe(&self) -> String {
        let path = self.device.as_ref().map_or(String::new(), |path| format!("{} ", path.display()));
        let device = match &self.known {
            Some(known) => format!("{} on {}, {}, ", known.policy, path.trim_end(), text::bytes(known.bytes)),
            None => path,
        };
        let problem = self.problem.as_ref().map_or(String::new(), |problem| format!(": {problem}"));
        let refused = match (self.is_refused, self.state) {
            (true, _) => "\n  `vellum array serve` refuses it; with --force it goes on without it",
            (false, State::CutShort | State::Unknown) => "\n  the array goes on without it",
            _ => "",
        };
        let written = self.known.as_ref().map_or(String::new(), Known::describe);
        let has_nvram = self.known.as_ref().is_some_and(|known| known.has_nvram);
        format!("cache: {device}{}{problem}{refused}\n{written}", self.state.describe(has_nvram))
    }
}

impl State {
    /// State of the array's own cache.
    fn beside(found: &CacheSuperblock, array: &Superblock) -> State {
        match Bond::between(found, array.bond) {
            Bond::Closed => State::Closed,
            Bond::AsNvramSays | Bond::NotClosed => State::NotClosed,
            Bond::LeftBehind => State::LeftBehind,
            Bond::OutOfStep => State::OutOfStep,
        }
    }

    /// For display.
    fn describe(self, has_nvram: bool) -> &'static str {
        match self {
            State::Closed => "closed with the array",
            State::NotClosed if has_nvram => "not closed: it goes on with what its NVRAM has",
            State::NotClosed => "not closed: it will be found empty",
            State::LeftBehind => "left behind: the array was used without it, so it will be found empty",
            State::OutOfStep => {
                "out of step: it and the members were not closed together, one has an earlier state"
            }
            State::CutShort => "was cut short",
            State::Foreign => "is foreign",
            State::Unknown => "cannot be used",
            State::Away => "cannot be opened, and the array goes on without it",
            State::NotNamed => "not named, but the members were closed with one",
        }
    }
}

impl Known {
    fn describe(&self) -> String {
        let budget = self.budget.as_ref().map_or(String::new(), |budget| {
            let bytes = text::bytes(budget.bytes_a_day);
            format!(", budget of {:.3} drive writes a day ({bytes})", budget.drive_writes_a_day)
        });
        format!("  {} written to it so far{budget}\n", text::bytes(self.flash_bytes_before))
    }

    fn of(found: &CacheSuperblock) -> Known {
        let bytes = found.plot.ssd_sectors * SECTOR_BYTES as u64;
        Known {
            policy: found.scheme.name(),
            bytes,
            cache_pages: found.plot.pages,
            segment_bytes: u64::from(found.plot.segment_pages) * SECTOR_BYTES as u64,
            flash_bytes_before: found.written,
            has_nvram: found.nvram,
            budget: Budget::of(Some(found.budget).filter(|bytes| *bytes > 0), found.budget_left, bytes),
        }
    }
}
