//! `array detail`: what the members say, without touching anything.

use super::cache_seen::CacheSeen;
use super::control;
use super::order::{Answer, Order};
use super::target::{Copied, log_name, rows_of, state_name};
use crate::failure::{Failure, Outcome, Verdict};
use crate::text::{self, Align, Table};
use crate::ui::{Ui, json_line};
use serde::Serialize;
use std::path::{Path, PathBuf};
use vellum::array::{State, Superblock, examine, hex, newest_of};
use vellum::array_file::ArrayFile;
use vellum::base::{Error, SECTOR_BYTES};

/// Show an array, its members and its cache; changes nothing
#[derive(clap::Args)]
#[command(after_help = "\
Devices are only read, also while something else has them. While the array is served the server
answers, with what it knows now: what the cache holds, hits, flash
written by cause and against its budget, and what would become of the array if the cache died now.

Example:
  vellum array detail a.toml
  vellum array stat a.toml --watch --json

Exit codes: 0 all members are active, 1 some are not, 2 usage, 3 no device can be read")]
pub struct Args {
    /// The file that names the array's devices
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Show it again every second until interrupted; with --json one line each
    #[arg(long)]
    watch: bool,
}

/// docs/json/array.md
#[derive(Serialize)]
struct Detail {
    array: String,
    level: u8,
    bytes: u64,
    chunk_bytes: u64,
    rows: u64,
    data_start_bytes: u64,
    log: &'static str,
    event: u64,
    closed: bool,
    devices: Vec<Seen>,
    #[serde(skip)]
    is_whole: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    replacing: Option<Copied>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<CacheSeen>,
}

/// A device, as it and the newest superblock say.
#[derive(Serialize)]
struct Seen {
    device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<u64>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows_rebuilt: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        if self.watch {
            ui.watch(|| {
                look(&self.file).map(|seen| if ui.json { json_line(&seen) } else { seen.describe() })
            })?;
            return Ok(Verdict::Fine);
        }
        let seen = look(&self.file)?;
        ui.result(&seen, || seen.describe());
        Ok(if seen.is_whole() { Verdict::Fine } else { Verdict::Problems })
    }
}

/// What whoever serves the array says of it, or else its devices.
#[derive(Serialize)]
#[serde(untagged)]
enum Look {
    Served(Answer),
    Devices(Box<Detail>),
}

fn look(file: &Path) -> Result<Look, Failure> {
    let answer = control::ask(file, &Order::Show, &mut |_, _| true)?;
    answer.map_or_else(
        || Detail::of(file).map(|detail| Look::Devices(Box::new(detail))),
        |answer| Ok(Look::Served(answer)),
    )
}

impl Look {
    fn is_whole(&self) -> bool {
        match self {
            Look::Served(answer) => answer.is_whole(),
            Look::Devices(detail) => detail.is_whole,
        }
    }

    fn describe(&self) -> String {
        match self {
            Look::Served(answer) => answer.describe(),
            Look::Devices(detail) => detail.describe(),
        }
    }
}

fn seen(path: PathBuf, found: Result<Superblock, Error>, newest: &Superblock) -> Seen {
    let device = path.display().to_string();
    let blank = Seen { device, role: None, event: None, state: "unknown", rows_rebuilt: None, problem: None };
    match found {
        Err(error) => Seen { problem: Some(error.to_string()), ..blank },
        Ok(found) if found.array != newest.array => {
            Seen { state: "foreign", problem: Some(format!("of array {}", hex(&found.array))), ..blank }
        }
        Ok(found) => {
            let entry = newest.table[found.role];
            let is_same = found.table[found.role].id == entry.id;
            let counts = is_same && entry.state != State::Missing && found.event + 1 >= newest.event;
            Seen {
                role: Some(found.role),
                event: Some(found.event),
                state: if counts { state_name(entry.state) } else { "stale" },
                rows_rebuilt: rows_of(entry.state).filter(|_| counts),
                ..blank
            }
        }
    }
}

impl Detail {
    fn of(file: &Path) -> Result<Detail, Failure> {
        let named = ArrayFile::load(file)?;
        let mut devices = named.look(file)?;
        let replacing = named.replacing.map(|r| Copied { old: r.old, new: r.new, rows_copied: None });
        let cache = named.cache.map(|path| {
            let absent = devices.absent.iter().position(|(absent, _)| *absent == path);
            let absent = absent.map(|at| devices.absent.remove(at).1);
            let missing = || Error::invalid("it cannot be opened");
            (path, devices.cache.take().ok_or_else(|| absent.unwrap_or_else(missing)))
        });
        let found: Vec<(PathBuf, Result<Superblock, Error>)> = devices
            .members
            .into_iter()
            .map(|(path, device)| (path, examine(&device)))
            .chain(devices.absent.into_iter().map(|(path, error)| (path, Err(error))))
            .collect();
        let superblocks = found.iter().filter_map(|(_, found)| found.as_ref().ok());
        let Some(newest) = newest_of(superblocks.collect()).cloned() else {
            let path = file.display();
            return Err(Error::corrupt(format!("no device of {path} has a superblock of an array")).into());
        };
        let devices: Vec<Seen> = found.into_iter().map(|(path, found)| seen(path, found, &newest)).collect();
        Ok(Detail {
            array: hex(&newest.array),
            level: newest.shape.level.number(),
            bytes: newest.shape.sectors() * SECTOR_BYTES as u64,
            chunk_bytes: u64::from(newest.shape.chunk_sectors) * SECTOR_BYTES as u64,
            rows: newest.shape.rows,
            data_start_bytes: newest.plot.data_start * SECTOR_BYTES as u64,
            log: log_name(newest.log),
            event: newest.event,
            closed: newest.clean,
            is_whole: devices.iter().filter(|d| d.state == "active").count() == newest.shape.members,
            devices,
            replacing,
            cache: cache.map(|(path, device)| CacheSeen::of(path, device, &newest)),
        })
    }

    fn describe(&self) -> String {
        let mut table = Table::new(&[Align::Left, Align::Left, Align::Left, Align::Left]);
        for device in &self.devices {
            let role = device.role.map_or(String::new(), |role| format!("role {role}"));
            let state = match device.rows_rebuilt {
                Some(rows) => format!("{} ({})", device.state, text::percent(rows, self.rows)),
                None => device.state.to_string(),
            };
            table.row([device.device.clone(), role, state, device.problem.clone().unwrap_or_default()]);
        }
        let copied = self.replacing.as_ref().map_or(String::new(), |copied| copied.describe(self.rows));
        let cache = self.cache.as_ref().map_or(String::new(), CacheSeen::describe);
        format!(
            "array {}: RAID-{} of {}, chunks of {}, log: {}, {}, event {}\n{}{copied}{cache}",
            self.array,
            self.level,
            text::bytes(self.bytes),
            text::bytes(self.chunk_bytes),
            self.log,
            if self.closed { "closed" } else { "not closed" },
            self.event,
            table.render("  ")
        )
    }
}
