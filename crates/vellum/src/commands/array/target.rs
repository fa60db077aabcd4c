//! The array of a command, and its description.

use super::cache_shown::CacheSaid;
use super::control;
use super::devices::{Absent, check_all_there, usable};
use super::held::names_of;
use super::log_seen::LogSeen;
use super::order::Order;
use super::service::Service;
use super::unopened::Parts;
use crate::failure::Failure;
use crate::text::{self, Align, Table};
use crate::ui::Ui;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vellum::array::cache::engine::{CacheOptions, CachedArray};
use vellum::array::{Array, Device, Id, Options, State, assemble, hex};
use vellum::array_file::ArrayFile;
use vellum::base::{Error, Kind, RealEnv, SECTOR_BYTES};

/// An array, the devices of its cache, and the paths of its members' devices.
pub type Bare = (Array, CacheDevices, BTreeMap<Id, PathBuf>);

/// An array with its cache.
pub struct Assembled {
    pub cached: CachedArray,
    /// Paths of the members' devices, by member id.
    pub names: BTreeMap<Id, PathBuf>,
    /// Why the cache that the file names is not used, if so.
    pub why_unused: Option<String>,
}

/// The devices of an array's cache that are present and wanted.
pub struct CacheDevices {
    named: ArrayFile,
    ssd: Option<Device>,
    nvram: Option<Device>,
    absent: Vec<Absent>,
}

/// The file of an array.
#[derive(clap::Args)]
pub struct Target {
    /// The file that names the array's devices
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Go on without what is missing: the cache (it is empty from then on), a member of an array that was not closed
    /// and has no log (the write hole may be open), or the log device, once FILE names another in its place, or a new
    /// file of its size
    #[arg(long)]
    pub force: bool,
    /// Also without members that were there when the array was last used: they are out from then on, and come back by
    /// a rebuild. `serve` and `mount` go on without them anyway, unless that costs what was flushed: when they were
    /// killed while parity was put off
    #[arg(long)]
    pub degraded: bool,
    /// It is opened to let go of its cache, by a command whose `--force` means that.
    #[arg(skip)]
    pub detaches: bool,
}

impl Target {
    /// Assembles the array. Reports missing devices.
    pub fn assemble(&self, service: Option<Service>, ui: &Ui) -> Result<Assembled, Failure> {
        let (array, cache, names) = self.assemble_bare(service, ui, true)?;
        let CacheDevices { named, ssd, nvram, absent } = cache;
        let opened = CachedArray::open_with_nvram(array, ssd, nvram, self.cache_options());
        let cached = opened.map_err(|error| self.cache_refused(error, &named, &absent))?;
        let parity = match (cached.lost_sectors().is_empty(), service) {
            (true, Some(_)) => format!(
                "parity that was put off is made anew in the background: vellum array stat {} shows how many rows are \
                 stale",
                self.file.display()
            ),
            (true, None) => "parity that was put off is made anew".into(),
            (false, _) => {
                "what parity lacked of the member that is lost is lost with it: vellum array detail names the sectors"
                    .to_string()
            }
        };
        let status = cached.status();
        let is_kept = status.scheme.is_some() && status.emptied.is_none();
        for Absent { what, error, .. } in &absent {
            let rest = match is_kept {
                true => "the cache is as it was".to_string(),
                false => format!("what was acknowledged is on the members, and {parity}"),
            };
            ui.remark(format!("going on without {what}: {error}; {rest}"));
        }
        if let Some(why) = &status.emptied {
            ui.remark(format!("the cache is empty: {why}; {parity}"));
        }
        let absent = absent.into_iter().find(|absent| named.cache.as_ref() == Some(&absent.path));
        let why_unused = status.emptied.or_else(|| Some(absent?.error.to_string()));
        Ok(Assembled { cached, names, why_unused })
    }

    /// Options of its cache.
    pub fn cache_options(&self) -> CacheOptions {
        CacheOptions { without_cache: self.force, ..CacheOptions::default() }
    }

    /// Assembles the array without its cache, and opens that if present and wanted. `service`: if it is to be served.
    /// Otherwise it is opened for an order, which must not cause a temporarily missing member to be lost.
    pub fn assemble_bare(
        &self,
        service: Option<Service>,
        ui: &Ui,
        with_cache: bool,
    ) -> Result<Bare, Failure> {
        let mut named = ArrayFile::load(&self.file)?;
        named.cache = named.cache.filter(|_| with_cache);
        named.nvram = named.nvram.filter(|_| with_cache);
        let mut devices = named.open(&self.file).map_err(|error| self.in_use(error))?;
        let absent = Absent::take(&mut devices, &named);
        if !self.degraded {
            let (array, may_force) = (named.array.as_deref(), !self.detaches);
            check_all_there(&self.file, array, &devices, service.is_some(), may_force)?;
        }
        let names = names_of(&devices.members);
        let members = usable(&self.file, named.array.as_deref(), devices.members, &devices.absent, ui)?;
        let members = members.into_iter().map(|device| service.unwrap_or_default().member(device));
        let members = members.collect::<Result<Vec<_>, _>>()?;
        let options = Options { force: self.force, ..Options::default() };
        let parts = Parts { named: &named, members: &members, away: &devices.absent, absent: &absent };
        let beside = (devices.log.as_ref(), devices.cache.as_ref(), devices.nvram.as_ref());
        self.check_cache(&parts, beside, with_cache)?;
        let array = assemble(&members, devices.log.as_ref(), RealEnv::new(), options)
            .map_err(|error| self.not_assembled(error, &parts))?;
        let replayed = array.status().replayed_records;
        if replayed > 0 {
            ui.remark(format!("the array was not closed: {replayed} records were written in place again"));
        }
        let doubted = array.status().doubted_rows;
        if doubted > 0 {
            ui.remark(format!(
                "its log cannot be read whole: nobody knows the last writes to {}, whose parity is made anew from data",
                text::counted(doubted, "row")
            ));
        }
        Ok((array, CacheDevices { named, ssd: devices.cache, nvram: devices.nvram, absent }, names))
    }

    /// A device, or the place to serve it at, is in use, perhaps by a server of this array.
    pub fn in_use(&self, error: Error) -> Failure {
        let is_served = error.kind() == Kind::Busy
            && matches!(control::ask(&self.file, &Order::Show, &mut |_, _| true), Ok(Some(_)));
        if !is_served {
            return error.into();
        }
        let file = self.file.display();
        let next =
            format!("`vellum array stat {file}` shows it; whoever serves or mounts it ends that by Ctrl-C");
        Failure::with_next(Error::new(Kind::Busy, format!("{file} is served")), next)
    }
}

/// docs/json/array.md
#[derive(Debug, Serialize, Deserialize)]
pub struct Shown {
    array: String,
    level: u8,
    bytes: u64,
    chunk_bytes: u64,
    rows: u64,
    log: String,
    state: String,
    /// Why it no longer accepts writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
    stale_rows: u64,
    members: Vec<Member>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lost: Vec<(u64, u64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replacing: Option<Copied>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log_device: Option<LogSeen>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<CacheSaid>,
}

/// A member's device that is being copied to another, or was when the copy was stopped.
#[derive(Debug, Serialize, Deserialize)]
pub struct Copied {
    pub old: PathBuf,
    pub new: PathBuf,
    /// Present while the copy is running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_copied: Option<u64>,
}

impl Copied {
    /// A line for display.
    pub fn describe(&self, rows: u64) -> String {
        let how = match self.rows_copied {
            Some(done) => text::percent(done, rows),
            None => "stopped; goes on when the array is served".into(),
        };
        format!("  {} is copied to {} ({how})\n", self.old.display(), self.new.display())
    }
}

/// A member of the array.
#[derive(Debug, Serialize, Deserialize)]
pub struct Member {
    role: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<PathBuf>,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows_rebuilt: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Member {
    /// For an array that is not open.
    pub fn of(role: usize, device: Option<PathBuf>, state: &str, rows_rebuilt: Option<u64>) -> Member {
        Member { role, device, state: state.into(), rows_rebuilt, reason: None }
    }
}

impl Shown {
    /// State of an assembled array, with its devices as the file names them. `why_unused`: why it was opened without
    /// its cache, if so.
    pub fn of(
        cached: &CachedArray,
        name: impl Fn(&Id) -> Option<PathBuf>,
        named: ArrayFile,
        why_unused: Option<&str>,
    ) -> Shown {
        let status = cached.array().status();
        let members = status.members.iter().enumerate().map(|(role, member)| Member {
            role,
            device: name(&member.id),
            state: state_name(member.state).into(),
            rows_rebuilt: rows_of(member.state),
            reason: member.reason.clone(),
        });
        let log_device = LogSeen::served(&status, named.log);
        Shown {
            array: hex(&status.array),
            level: status.shape.level.number(),
            bytes: status.shape.sectors() * SECTOR_BYTES as u64,
            chunk_bytes: u64::from(status.shape.chunk_sectors) * SECTOR_BYTES as u64,
            rows: status.shape.rows,
            log: log_name(status.log).into(),
            state: if status.is_degraded() { "degraded" } else { "clean" }.into(),
            ended: status.ended,
            stale_rows: status.stale_rows,
            members: members.collect(),
            lost: cached.lost_sectors().iter().map(|lost| (lost.start, lost.end - lost.start)).collect(),
            replacing: None,
            log_device,
            cache: CacheSaid::of(cached, named.cache, why_unused),
        }
    }

    /// Adds the member that is being replaced.
    pub fn with_replacing(self, replacing: Option<Copied>) -> Shown {
        Shown { replacing, ..self }
    }

    /// Whether all members are active, the cache is in use if there is one, and writes are accepted.
    pub fn is_whole(&self) -> bool {
        self.ended.is_none()
            && self.members.iter().all(|member| member.state == state_name(State::Active))
            && self.cache.as_ref().is_none_or(CacheSaid::is_usable)
    }

    /// Stale rows, for display; a cache in use reports them itself.
    fn stale(&self) -> String {
        let has_cache = self.cache.as_ref().is_some_and(CacheSaid::is_usable);
        match self.stale_rows {
            0 => String::new(),
            _ if has_cache => String::new(),
            rows if self.state == "clean" => {
                format!("stale rows: {rows}: their parity is made anew from data\n")
            }
            rows => format!(
                "stale rows: {rows}: parity of those is made anew whose data are all on members that are there\n"
            ),
        }
    }

    /// Whether sectors are lost, because a member is and parity lacked them.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Describes an array that lacks members, and what to do about it.
    pub fn degraded(&self, file: &Path) -> Option<String> {
        let roles = |state| {
            let roles = self.members.iter().filter(|member| member.state == state_name(state));
            roles.map(|member| member.role.to_string()).collect::<Vec<_>>()
        };
        let missing = roles(State::Missing);
        let rebuilt = roles(State::Rebuilding { rows: 0 });
        let next = format!("vellum array add {} PATH takes a device in for it", file.display());
        match (missing.as_slice(), rebuilt.as_slice()) {
            ([], []) => None,
            ([], rebuilt) => Some(format!("degraded: role {} is being rebuilt", rebuilt.join(", "))),
            ([one], _) => Some(format!("degraded: role {one} is missing; {next}")),
            (more, _) => Some(format!("degraded: roles {} are missing; {next}", more.join(", "))),
        }
    }

    /// For display.
    pub fn describe(&self) -> String {
        let mut table = Table::new(&[Align::Right, Align::Left, Align::Left, Align::Left]);
        for member in &self.members {
            let state = match member.rows_rebuilt {
                Some(rows) => format!("{} ({})", member.state, text::percent(rows, self.rows)),
                None => member.state.clone(),
            };
            let device = member.device.as_ref().map_or(String::new(), |path| path.display().to_string());
            table.row([member.role.to_string(), device, state, member.reason.clone().unwrap_or_default()]);
        }
        let ended = self.ended.as_ref().map_or(String::new(), |why| format!("it takes no writes: {why}\n"));
        let copied = self.replacing.as_ref().map_or(String::new(), |copied| copied.describe(self.rows));
        let log = self.log_device.as_ref().map_or(String::new(), LogSeen::describe);
        let cache = self.cache.as_ref().map_or(String::new(), |cache| cache.describe(self.state != "clean"));
        let lost = match self.lost.as_slice() {
            [] => String::new(),
            lost => format!(
                "lost sectors: {}; their parity was put off, or is in doubt, and a member is lost: vellum array rebuild \
                 --give-up makes them zeros, once a device is added\n",
                text::sector_ranges(lost)
            ),
        };
        let stale = self.stale();
        format!(
            "array {}: RAID-{} of {}, {}, chunks of {}, log: {}\n{ended}{}{copied}{lost}{log}{cache}{stale}",
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

/// Name as in `--json`.
pub fn state_name(state: State) -> &'static str {
    match state {
        State::Active => "active",
        State::Missing => "missing",
        State::Rebuilding { .. } => "rebuilding",
    }
}

/// Rows done of a member that is being rebuilt.
pub fn rows_of(state: State) -> Option<u64> {
    match state {
        State::Rebuilding { rows } => Some(rows),
        _ => None,
    }
}

/// Name as in `--json`.
pub fn log_name(log: vellum::array::LogPlace) -> &'static str {
    match log {
        vellum::array::LogPlace::None => "none",
        vellum::array::LogPlace::Members => "members",
        vellum::array::LogPlace::Device => "device",
    }
}
