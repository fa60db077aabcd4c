//! The device that an array's log is on, if it is on one of its own: served, and as it says while nobody has it open.

use crate::text;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use vellum::array::{Device, Status, Survey};
use vellum::base::{BlockDevice, Error, SECTOR_BYTES};

/// docs/json/array.md
#[derive(Debug, Serialize, Deserialize)]
pub struct LogSeen {
    /// None: the file names none.
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
    /// Served: records go to it.
    #[serde(rename = "in use")]
    InUse,
    /// The array's log as it was left.
    Ours,
    /// Something else: the array is not opened with it, but by force.
    Refused,
    /// It cannot be opened, or is not named.
    Away,
}

impl LogSeen {
    /// Of an array that is open.
    pub fn served(status: &Status, device: Option<PathBuf>) -> Option<LogSeen> {
        let bytes = status.log_device_sectors? * SECTOR_BYTES as u64;
        Some(LogSeen { device, state: State::InUse, bytes: Some(bytes), problem: None })
    }

    /// Of the log device that the file names, an error if it could not be opened, of an array that nobody has open. The
    /// ring of records is not read: there may be much of it.
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
        // That it is the log device needs no saying here.
        let problem = problem.map(|error| error.to_string());
        let problem = problem.map(|why| why.strip_prefix("the log device: ").unwrap_or(&why).to_string());
        LogSeen { device: Some(path), state, bytes, problem }
    }

    /// Whether the array is opened with it.
    pub fn is_usable(&self) -> bool {
        matches!(self.state, State::InUse | State::Ours)
    }

    /// A line for people.
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
