//! The device of an array's log, if that has its own: while served, and as found while the array is not open.

use crate::text;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use vellum::array::{Device, Status, Survey};
use vellum::base::{BlockDevice, Error, SECTOR_BYTES};

/// docs/json/array.md
#[derive(Debug, Serialize, Deserialize)]
pub struct LogSeen {
    /// None: the file does not name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device: Option<PathBuf>,
    state: State,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// The array is open, and records go to it.
    #[serde(rename = "in use")]
    InUse,
    /// The array's log as it was left.
    Ours,
    /// Something else: the array is opened with it only by force.
    Refused,
    /// It cannot be opened, or is not named.
    Away,
}

impl LogSeen {
    /// For an open array.
    pub fn served(status: &Status, device: Option<PathBuf>) -> Option<LogSeen> {
        let bytes = status.log_device_sectors? * SECTOR_BYTES as u64;
        Some(LogSeen { device, state: State::InUse, bytes: Some(bytes), problem: None })
    }

    /// For an array that is not open, given its named log device, or the error if that could not be opened. The ring of
    /// records is not read: it may be large.
    pub fn of(named: Option<(PathBuf, Result<Device, Error>)>, array: &Survey) -> LogSeen {
        let Some((path, device)) = named else {
            let problem = Some("the file names none".into());
            return LogSeen { device: None, state: State::Away, bytes: None, problem };
        };
        let bytes = device.as_ref().ok().map(|device| device.info().bytes());
        let (state, problem) = match device {
            Err(error) => (State::Away, Some(error)),
            Ok(device) => match array.stale_rows(&[], Some(&device)) {
                Ok(_) => (State::Ours, None),
                Err(error) => (State::Refused, Some(error)),
            },
        };
        // The context already says that this is the log device.
        let problem = problem.map(|error| error.to_string());
        let problem = problem.map(|why| why.strip_prefix("the log device: ").unwrap_or(&why).to_string());
        LogSeen { device: Some(path), state, bytes, problem }
    }

    /// Whether the array is opened with it.
    pub fn is_usable(&self) -> bool {
        matches!(self.state, State::InUse | State::Ours)
    }

    /// A line for display.
    pub fn describe(&self) -> String {
        let path = self.device.as_ref().map_or("not named".into(), |path| path.display().to_string());
        let bytes = self.bytes.map_or(String::new(), |bytes| format!(", {}", text::bytes(bytes)));
        let state = match self.state {
            State::InUse => ", in use",
            State::Ours => ", as it was left",
            State::Refused => ", refused",
            State::Away => ", cannot be opened",
        };
        let problem = self.problem.as_ref().map_or(String::new(), |problem| format!(": {problem}"));
        let next = match self.state {
            State::Away => {
                "\n  `vellum array serve` refuses the array without it; if it is gone for good, name another device as log in \
                 FILE, or make a file of its size (truncate -s SIZE), then say --force: that one takes its place, and the \
                 parity of all rows is made anew"
            }
            _ => "",
        };
        format!("log device: {path}{bytes}{state}{problem}{next}\n")
    }
}
