//! Why an array is not opened: which of its devices is the cause, and what to do next. `detach-cache` has a `--force`
//! of its own, so what only the `--force` of other commands allows must be done by one of those first.

use super::devices::{Absent, has_write_hole};
use super::target::Target;
use crate::failure::Failure;
use std::path::{Path, PathBuf};
use vellum::array::cache::engine::{check_bound, check_left_together, foresee};
use vellum::array::{Device, State, survey};
use vellum::array_file::ArrayFile;
use vellum::base::{Error, Kind};

/// Opened and unopened parts of an array.
pub struct Parts<'a> {
    /// The contents of its file.
    pub named: &'a ArrayFile,
    /// Devices used as members.
    pub members: &'a [Device],
    /// Members' devices that cannot be opened.
    pub away: &'a [(PathBuf, Error)],
    /// The log, the cache and its NVRAM, if they cannot be opened.
    pub absent: &'a [Absent],
}

impl Target {
    /// Failure to assemble members and log.
    pub fn not_assembled(&self, error: Error, parts: &Parts<'_>) -> Failure {
        let (file, log) = (self.file.display(), parts.named.log.as_deref());
        let (force, then) = self.by_force();
        if let Some(absent) = parts.absent.iter().find(|absent| Some(absent.path.as_path()) == log) {
            return self.log_is_absent(absent);
        }
        match (error.kind(), log) {
            (Kind::Io, _) => {
                let next = format!(
                    "bring the devices back, or correct their paths in {file}: vellum array detail {file} shows what \
                     each says"
                );
                Failure::with_next(error, next)
            }
            (Kind::Corrupt, _) if survey(parts.members).is_ok_and(|found| has_write_hole(&found.newest)) => {
                let away: String = parts.away.iter().map(|(_, error)| format!("; {error}")).collect();
                let next = format!(
                    "bring the member back; {force} goes on without it, and what was being written when the array \
                     stopped may be wrong{then}"
                );
                Failure::with_next(Error::new(Kind::Corrupt, format!("{error}{away}")), next)
            }
            (Kind::Invalid | Kind::Corrupt, Some(log)) => {
                let next = format!(
                    "name the right one as log in {file}; {force} makes the one that is named there an empty one, if \
                     it has the room{then}"
                );
                Failure::with_next(no_usage(error.context(log.display())), next)
            }
            (Kind::Invalid, None) => {
                Failure::with_next(error, format!("name it in {file}, as in: log = \"PATH\""))
            }
            _ => {
                Failure::with_next(error, format!("`vellum array detail {file}` shows what each device says"))
            }
        }
    }

    fn log_is_absent(&self, absent: &Absent) -> Failure {
        let (file, (force, then)) = (self.file.display(), self.by_force());
        let error = Error::new(Kind::Io, format!("{} cannot be opened: {}", absent.what, absent.error));
        let next = format!(
            "bring it back; if it is gone for good, name another device as log in {file}, or make a file of its size \
             (truncate -s SIZE {}), and then say {force}: that one takes its place, all rows count as stale, and are \
             resynced; with a member lost, too, what it had is lost{then}",
            absent.path.display()
        );
        Failure::with_next(error, next)
    }

    /// Failure to open the array with its cache. Named devices that cannot be opened take precedence.
    pub fn cache_refused(&self, error: Error, named: &ArrayFile, absent: &[Absent]) -> Failure {
        let file = self.file.display();
        let gone = format!("if it is gone for good: vellum array detach-cache --force {file}");
        let force = if self.detaches { "" } else { "--force goes on without it; " };
        let absent = absent.iter().find(|absent| named.log.as_ref() != Some(&absent.path));
        match (error.kind(), absent, &named.cache) {
            (Kind::Invalid, Some(Absent { what, path, error: why }), _) => {
                let text =
                    format!("{what} cannot be opened, and the array is not to be used without it: {why}");
                let next = format!("bring {} back; {force}{gone}", path.display());
                Failure::with_next(Error::new(Kind::Io, text), next)
            }
            (Kind::Invalid | Kind::Corrupt | Kind::Unsupported, _, Some(ssd)) => {
                let error = error.context(format!("the cache {}", with_nvram(ssd, named.nvram.as_deref())));
                let next =
                    format!("bring the array's own back as it was, or name it in {file}; {force}{gone}");
                Failure::with_next(no_usage(error), next)
            }
            (Kind::Invalid, None, None) => {
                let next = format!("name it in {file}, as in: cache = \"SSD\"; {force}{gone}");
                Failure::with_next(error, next)
            }
            _ => error.into(),
        }
    }

    /// Refuses, before anything is written, an array that must not be opened with this cache, or without one: a missing
    /// member can come back only as long as the others have not continued without it.
    pub fn check_cache(
        &self,
        parts: &Parts<'_>,
        (log, ssd, nvram): (Option<&Device>, Option<&Device>, Option<&Device>),
        with_cache: bool,
    ) -> Result<(), Failure> {
        let lets_go = self.force || self.detaches && !with_cache;
        let Ok(found) = survey(parts.members) else { return Ok(()) };
        if found.newest.bond == 0 || lets_go {
            return Ok(());
        }
        let refused = |error| self.cache_refused(error, parts.named, parts.absent);
        check_bound(&found.newest, ssd, nvram).map_err(refused)?;
        if let Some(ssd) = ssd {
            check_left_together(&found.newest, ssd, nvram).map_err(refused)?;
        }
        let absent = found.absent_roles();
        // If the log cannot be read, the assembly reports that.
        if absent.is_empty() {
            return Ok(());
        }
        let Ok(stale) = found.stale_rows(parts.members, log) else { return Ok(()) };
        // The cache is the right one: it must not be emptied while a member is missing.
        let may_come_back = absent.iter().any(|role| found.newest.table[*role].state != State::Missing);
        foresee(&found, &stale, ssd, nvram)
            .map(drop)
            .map_err(|error| self.member_is_needed(error, may_come_back.then_some(parts.away)))
    }

    /// The cache cannot be used while a member is missing; `away` are missing devices if the member may come back.
    fn member_is_needed(&self, error: Error, away: Option<&[(PathBuf, Error)]>) -> Failure {
        let (force, then) = self.by_force();
        let away =
            away.map(|away| away.iter().map(|(path, _)| path.display().to_string()).collect::<Vec<_>>());
        let other = match away.as_deref() {
            None => String::new(),
            Some([]) => "bring the member back: nothing was changed; ".into(),
            Some(away) => format!("bring {} back: nothing was changed; ", away.join(", ")),
        };
        let next = format!(
            "{other}{force} goes on without the cache, and what the parity of its stale rows lacks of the member is \
             lost{then}"
        );
        Failure::with_next(no_usage(error), next)
    }

    /// Whether its members were closed with a cache, or are in use with one.
    pub fn is_bound(&self, named: &ArrayFile) -> bool {
        let Ok(devices) = named.look(&self.file) else { return false };
        let members: Vec<Device> = devices.members.into_iter().map(|(_, device)| device).collect();
        survey(&members).is_ok_and(|found| found.newest.bond != 0)
    }

    /// Failure if there is no cache to detach.
    pub fn names_no_cache(&self, named: &ArrayFile) -> Failure {
        let file = self.file.display();
        if !self.is_bound(named) {
            let next = format!("vellum array attach-cache {file} SSD puts one in front");
            return Failure::with_next(Error::invalid("the array has no cache"), next);
        }
        let what = format!("{file} names no cache, but its members were closed with one");
        let next = format!(
            "name it in {file}, as in: cache = \"SSD\", then this again; if it is gone for good: vellum array \
             detach-cache --force {file}"
        );
        Failure::with_next(Error::invalid(what), next)
    }

    /// The option or command that continues without something, and what to do after it.
    fn by_force(&self) -> (String, &'static str) {
        match self.detaches {
            false => ("--force".into(), ""),
            true => {
                let command = format!("vellum array flush {} --force --degraded", self.file.display());
                (command, "; after it this again")
            }
        }
    }
}

/// Turns a usage error into a missing device: the same command works when the device is back as it was.
fn no_usage(error: Error) -> Error {
    match error.kind() {
        Kind::Invalid => Error::new(Kind::Gone, error.to_string()),
        _ => error,
    }
}

fn with_nvram(ssd: &Path, nvram: Option<&Path>) -> String {
    nvram.map_or(ssd.display().to_string(), |nvram| {
        format!("{} with its NVRAM {}", ssd.display(), nvram.display())
    })
}
