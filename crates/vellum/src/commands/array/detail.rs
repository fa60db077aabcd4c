//! `array detail`: what the members record, without changing anything.

use super::cache_seen::CacheSeen;
use super::control;
use super::devices::{Absent, check_is_named, none_of};
use super::log_seen::LogSeen;
use super::nvram_seen::NvramSeen;
use super::order::{Answer, Order};
use super::stale_seen::{Fate, StaleSeen};
use super::target::{Copied, Member, log_name, rows_of, state_name};
use crate::failure::{Failure, Outcome, Verdict};
use crate::text::{self, Align, Table};
use crate::ui::{Ui, json_line};
use serde::Serialize;
use std::path::{Path, PathBuf};
use vellum::array::{Device, LogPlace, Standing, State, Superblock, Survey, hex, survey};
use vellum::array_file::ArrayFile;
use vellum::base::{Error, SECTOR_BYTES};

/// Description of the command.
pub const ABOUT: &str = "Show an array, its members and its cache; changes nothing";

/// Show an array, its members and its cache; changes nothing
#[derive(clap::Args)]
#[command(after_help = "\
Devices are only read, also while something else has them. While the array is served the server
answers, with what it knows now: what the cache holds, hits, flash written by cause and against its
budget, and what would become of the array if the cache died now.

Example:
  vellum array detail a.toml
  vellum array stat a.toml --watch --json

Exit codes: 0 all members are active, 1 some are not, or one is there twice, or the log device, the
cache or its NVRAM cannot be used, 2 usage, 3 no device can be read")]
pub struct Args {
    /// The file that names the array's devices
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Show it again every second until interrupted; with --json one line each
    #[arg(long)]
    watch: bool,
}

/// State of a device with the same place as another one: the array is not opened with both.
const COPY: &str = "copy";

/// docs/json/array.md
#[derive(Serialize)]
struct Detail {
    served: bool,
    array: String,
    level: u8,
    bytes: u64,
    chunk_bytes: u64,
    rows: u64,
    data_start_bytes: u64,
    log: &'static str,
    event: u64,
    closed: bool,
    /// `clean`, `degraded`, or `failed`: more is lost than parity can restore.
    state: &'static str,
    missing_roles: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stale_rows: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stale_rows_become: Option<Fate>,
    /// The same for display.
    #[serde(skip)]
    stale: StaleSeen,
    members: Vec<Member>,
    devices: Vec<Seen>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replacing: Option<Copied>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_device: Option<LogSeen>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<CacheSeen>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nvram: Option<NvramSeen>,
}

/// A device, according to itself and the newest superblock.
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

/// The server's answer.
#[derive(Serialize)]
struct Served {
    served: bool,
    #[serde(flatten)]
    answer: Answer,
}

/// The answer of the server that has the array open, or else of the devices.
#[derive(Serialize)]
#[serde(untagged)]
enum Look {
    Served(Served),
    Devices(Box<Detail>),
}

fn look(file: &Path) -> Result<Look, Failure> {
    let answer = control::ask(file, &Order::Show, &mut |_, _| true)?;
    answer.map_or_else(
        || Detail::of(file).map(|detail| Look::Devices(Box::new(detail))),
        |answer| Ok(Look::Served(Served { served: true, answer })),
    )
}

impl Look {
    fn is_whole(&self) -> bool {
        match self {
            Look::Served(served) => served.answer.is_whole(),
            Look::Devices(detail) => {
                detail.state == "clean"
                    && detail.devices.iter().all(|device| device.state != COPY)
                    && detail.log_device.as_ref().is_none_or(LogSeen::is_usable)
                    && detail.cache.as_ref().is_none_or(CacheSeen::is_usable)
                    && detail.nvram.as_ref().is_none_or(NvramSeen::is_usable)
            }
        }
    }

    fn describe(&self) -> String {
        match self {
            Look::Served(served) => served.answer.describe(),
            Look::Devices(detail) => detail.describe(),
        }
    }
}

impl Seen {
    fn of(path: &Path, verdict: &vellum::array::Verdict, newest: &Superblock) -> Seen {
        let ours = verdict.superblock.as_ref().filter(|found| found.array == newest.array);
        let entry = ours.and_then(|found| newest.table.get(found.role)).map(|entry| entry.state);
        let state = match (&verdict.standing, entry) {
            (Standing::Counts, Some(state)) => state_name(state),
            (Standing::Counts | Standing::Stale, _) => "stale",
            (Standing::Twin(_), _) => COPY,
            (Standing::Foreign(_), _) => "foreign",
            (Standing::CutShort(..), _) => "cut short",
            (Standing::Unknown(_), _) => "unknown",
        };
        let counts = matches!(verdict.standing, Standing::Counts);
        Seen {
            device: path.display().to_string(),
            role: ours.map(|found| found.role),
            event: ours.map(|found| found.event),
            state,
            rows_rebuilt: entry.and_then(rows_of).filter(|_| counts),
            problem: (!counts).then(|| verdict.standing.to_string()),
        }
    }

    fn absent((path, error): &(PathBuf, Error)) -> Seen {
        let device = path.display().to_string();
        let problem = Some(error.to_string());
        Seen { device, role: None, event: None, state: "unknown", rows_rebuilt: None, problem }
    }
}

impl Detail {
    fn of(file: &Path) -> Result<Detail, Failure> {
        let named = ArrayFile::load(file)?;
        let mut found = named.look(file)?;
        let mut absent = Absent::take(&mut found, &named);
        let replacing = named.replacing.map(|r| Copied { old: r.old, new: r.new, rows_copied: None });
        let devices: Vec<Device> = found.members.iter().map(|(_, device)| device.clone()).collect();
        let surveyed =
            survey(&devices).map_err(|verdicts| none_of(file, &found.members, &verdicts, &found.absent))?;
        check_is_named(file, named.array.as_deref(), &found.members, &surveyed)?;
        let stale = StaleSeen::of(&surveyed, &devices, &found);
        let mut missing = |path: &Path| {
            let at = absent.iter().position(|absent| absent.path == path);
            at.map_or_else(|| Error::invalid("it cannot be opened"), |at| absent.swap_remove(at).error)
        };
        let log = named.log.map(|path| {
            let log = found.log.take().ok_or_else(|| missing(&path));
            (path, log)
        });
        let is_on_device = surveyed.newest.log == LogPlace::Device;
        let log_device = is_on_device.then(|| LogSeen::of(log, &surveyed));
        let Survey { newest, verdicts, .. } = surveyed;
        let there = found.members.iter().zip(&verdicts);
        let devices = there.map(|((path, _), verdict)| Seen::of(path, verdict, &newest));
        let devices: Vec<Seen> = devices.chain(found.absent.iter().map(Seen::absent)).collect();
        let roles_of = |state| {
            let devices = devices.iter().filter(move |device| device.state == state_name(state));
            devices.filter_map(|device| device.role).collect::<Vec<_>>()
        };
        let (active, rebuilding) = (roles_of(State::Active), roles_of(State::Rebuilding { rows: 0 }));
        let is_missing = |role: &usize| !active.contains(role) && !rebuilding.contains(role);
        let missing_roles: Vec<usize> = (0..newest.shape.members).filter(is_missing).collect();
        let cache = match named.cache {
            Some(path) => {
                let ssd = found.cache.clone().ok_or_else(|| missing(&path));
                Some(CacheSeen::of(path, ssd, &newest))
            }
            None => CacheSeen::missed(&newest),
        };
        let ssd = found.cache.filter(|_| cache.as_ref().is_some_and(CacheSeen::is_usable));
        let nvram = named.nvram.map(|path| {
            let nvram = found.nvram.ok_or_else(|| missing(&path));
            (path, nvram)
        });
        let nvram = NvramSeen::of(nvram, ssd.as_ref(), &newest);
        let members = (0..newest.shape.members).map(|role| {
            let is_it = |seen: &&Seen| {
                seen.role == Some(role) && (active.contains(&role) || seen.rows_rebuilt.is_some())
            };
            let seen = devices.iter().filter(|seen| seen.problem.is_none()).find(is_it);
            let device = seen.map(|seen| PathBuf::from(&seen.device));
            let state = seen.map_or(state_name(State::Missing), |seen| seen.state);
            Member::of(role, device, state, seen.and_then(|seen| seen.rows_rebuilt))
        });
        let members = members.collect();
        Ok(Detail {
            served: false,
            array: hex(&newest.array),
            level: newest.shape.level.number(),
            bytes: newest.shape.sectors() * SECTOR_BYTES as u64,
            chunk_bytes: u64::from(newest.shape.chunk_sectors) * SECTOR_BYTES as u64,
            rows: newest.shape.rows,
            data_start_bytes: newest.plot.data_start * SECTOR_BYTES as u64,
            log: log_name(newest.log),
            event: newest.event,
            closed: newest.clean,
            state: match newest.shape.members - active.len() {
                0 => "clean",
                lost if lost <= newest.shape.level.parities() => "degraded",
                _ => "failed",
            },
            missing_roles,
            stale_rows: stale.rows(),
            stale_rows_become: stale.fate(),
            stale,
            members,
            devices,
            replacing,
            log_device,
            cache,
            nvram,
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
        let is_named = |role: &usize| self.devices.iter().any(|device| device.role == Some(*role));
        for role in self.missing_roles.iter().filter(|role| !is_named(role)) {
            table.row(["-".into(), format!("role {role}"), state_name(State::Missing).into(), String::new()]);
        }
        let copied = self.replacing.as_ref().map_or(String::new(), |copied| copied.describe(self.rows));
        let log = self.log_device.as_ref().map_or(String::new(), LogSeen::describe);
        let cache = self.cache.as_ref().map_or(String::new(), CacheSeen::describe);
        let nvram = self.nvram.as_ref().map_or(String::new(), NvramSeen::describe);
        let stale = self.stale.describe();
        format!(
            "array {}: RAID-{} of {}, {}, chunks of {}, log: {}, {}, event {}\n{}{copied}{log}{cache}{nvram}{stale}",
            self.array,
            self.level,
            text::bytes(self.bytes),
            self.state,
            text::bytes(self.chunk_bytes),
            self.log,
            if self.closed { "closed" } else { "not closed" },
            self.event,
            table.render("  ")
        )
    }
}
