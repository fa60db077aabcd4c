//! The array that a command is about, and what is said of it.

use crate::failure::Failure;
use crate::text::{self, Align, Table};
use crate::ui::Ui;
use serde::Serialize;
use std::path::PathBuf;
use vellum::array::{Array, Options, State, Status, assemble, hex};
use vellum::array_file::ArrayFile;
use vellum::base::{RealEnv, SECTOR_BYTES};

/// The file of an array.
#[derive(clap::Args)]
pub struct Target {
    /// The file that names the array's devices
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Go on although the write hole may be open: not closed, without a log, and a member is missing
    #[arg(long)]
    pub force: bool,
}

impl Target {
    /// Assembles the array. Members that are missing are named.
    pub fn assemble(&self, ui: &Ui) -> Result<Array, Failure> {
        let devices = ArrayFile::load(&self.file)?.open(&self.file)?;
        for (path, error) in &devices.absent {
            ui.remark(format!("going on without {}: {error}", path.display()));
        }
        let members: Vec<_> = devices.members.iter().map(|(_, device)| device.clone()).collect();
        let options = Options { force: self.force, ..Options::default() };
        let array = assemble(&members, devices.log.as_ref(), RealEnv::new(), options).map_err(|error| {
            let file = self.file.display();
            Failure::with_next(error, format!("`vellum array detail {file}` shows what each device says"))
        })?;
        let replayed = array.status().replayed_records;
        if replayed > 0 {
            ui.remark(format!("the array was not closed: {replayed} records were written in place again"));
        }
        Ok(array)
    }
}

/// docs/json/array.md
#[derive(Serialize)]
pub struct Shown {
    array: String,
    level: u8,
    bytes: u64,
    chunk_bytes: u64,
    rows: u64,
    log: &'static str,
    state: &'static str,
    stale_rows: u64,
    members: Vec<Member>,
}

/// One of its members.
#[derive(Serialize)]
pub struct Member {
    role: usize,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows_rebuilt: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Shown {
    /// What an assembled array says of itself.
    pub fn of(status: &Status) -> Shown {
        let members = status.members.iter().enumerate().map(|(role, member)| Member {
            role,
            state: state_name(member.state),
            rows_rebuilt: rows_of(member.state),
            reason: member.reason.clone(),
        });
        Shown {
            array: hex(&status.array),
            level: status.shape.level.number(),
            bytes: status.shape.sectors() * SECTOR_BYTES as u64,
            chunk_bytes: u64::from(status.shape.chunk_sectors) * SECTOR_BYTES as u64,
            rows: status.shape.rows,
            log: log_name(status.log),
            state: if status.is_degraded() { "degraded" } else { "clean" },
            stale_rows: status.stale_rows,
            members: members.collect(),
        }
    }

    /// For people.
    pub fn describe(&self) -> String {
        let mut table = Table::new(&[Align::Right, Align::Left, Align::Left]);
        for member in &self.members {
            let state = match member.rows_rebuilt {
                Some(rows) => format!("{} ({})", member.state, text::percent(rows, self.rows)),
                None => member.state.to_string(),
            };
            table.row([member.role.to_string(), state, member.reason.clone().unwrap_or_default()]);
        }
        format!(
            "array {}: RAID-{} of {}, {}, chunks of {}, log: {}\n{}",
            self.array,
            self.level,
            text::bytes(self.bytes),
            self.state,
            text::bytes(self.chunk_bytes),
            self.log,
            table.render("  ")
        )
    }
}

/// As in `--json`.
pub fn state_name(state: State) -> &'static str {
    match state {
        State::Active => "active",
        State::Missing => "missing",
        State::Rebuilding { .. } => "rebuilding",
    }
}

/// How many rows a member has that is rebuilt.
pub fn rows_of(state: State) -> Option<u64> {
    match state {
        State::Rebuilding { rows } => Some(rows),
        _ => None,
    }
}

/// As in `--json`.
pub fn log_name(log: vellum::array::LogPlace) -> &'static str {
    match log {
        vellum::array::LogPlace::None => "none",
        vellum::array::LogPlace::Members => "members",
        vellum::array::LogPlace::Device => "device",
    }
}
