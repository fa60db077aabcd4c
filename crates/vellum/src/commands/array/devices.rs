//! Selects the usable devices among those that an array's file names; unusable ones are reported and left out.

use super::stale_seen::StaleSeen;
use crate::failure::Failure;
use crate::ui::Ui;
use std::path::{Path, PathBuf};
use vellum::array::cache::engine::check_nvram_size;
use vellum::array::{Device, LogPlace, Standing, State, Superblock, Survey, Verdict, hex, survey};
use vellum::array_file::{ArrayFile, Devices};
use vellum::base::{Error, Kind};

/// A device other than a member that cannot be opened.
pub struct Absent {
    /// For display: its function and its name.
    pub what: String,
    /// Path as in the file.
    pub path: PathBuf,
    /// Why it cannot be opened.
    pub error: Error,
}

impl Absent {
    /// Takes log, cache and NVRAM out of the devices that cannot be opened. A device too small for any NVRAM counts as
    /// absent.
    pub fn take(devices: &mut Devices, named: &ArrayFile) -> Vec<Absent> {
        let mut taken = Vec::new();
        let too_small = devices.nvram.as_ref().and_then(|nvram| check_nvram_size(&**nvram).err());
        if let Some((error, path)) = too_small.zip(named.nvram.clone()) {
            devices.nvram = None;
            devices.absent.push((path, error));
        }
        let parts = [("log device", &named.log), ("cache", &named.cache), ("cache's NVRAM", &named.nvram)];
        for (path, error) in std::mem::take(&mut devices.absent) {
            match parts.iter().find(|(_, part)| part.as_ref() == Some(&path)) {
                Some((what, _)) => {
                    taken.push(Absent { what: format!("the {what} {}", path.display()), path, error });
                }
                None => devices.absent.push((path, error)),
            }
        }
        taken
    }
}

/// The devices that count or are to be rebuilt. Reports which others are left out, and why.
///
/// # Errors
/// If it is ambiguous which array is meant, or which of two devices is the member.
pub fn usable(
    file: &Path,
    array: Option<&str>,
    members: Vec<(PathBuf, Device)>,
    absent: &[(PathBuf, Error)],
    ui: &Ui,
) -> Result<Vec<Device>, Failure> {
    let devices: Vec<Device> = members.iter().map(|(_, device)| device.clone()).collect();
    let found = survey(&devices).map_err(|verdicts| none_of(file, &members, &verdicts, absent))?;
    if found.is_tied {
        let what = format!("{} names as many devices of one array as of another", file.display());
        let next =
            format!("take those of the other out of it: vellum array detail {} shows them", file.display());
        return Err(Failure::with_next(Error::invalid(what), next));
    }
    check_is_named(file, array, &members, &found)?;
    for (path, error) in absent {
        ui.remark(format!("going on without {}: {error}", path.display()));
    }
    let mut used = Vec::new();
    for ((path, device), verdict) in members.into_iter().zip(found.verdicts) {
        match verdict.standing {
            Standing::Counts => used.push(device),
            standing @ Standing::Stale => {
                if verdict.superblock.as_ref().is_some_and(|theirs| is_awaited(&found.newest, theirs.role)) {
                    ui.remark(format!("going on without {}: {standing}", path.display()));
                }
                used.push(device);
            }
            standing @ Standing::Twin(_) => {
                let error = Error::invalid(format!("{}: {standing}", path.display()));
                let next = format!("take one of the two out of {}", file.display());
                return Err(Failure::with_next(error, next));
            }
            standing => ui.remark(format!("going on without {}: {standing}", path.display())),
        }
    }
    Ok(used)
}

/// Refuses an array that has taken most of the devices in a file, if the file states the id of another array.
pub fn check_is_named(
    file: &Path,
    array: Option<&str>,
    members: &[(PathBuf, Device)],
    found: &Survey,
) -> Result<(), Failure> {
    let theirs = hex(&found.newest.array);
    let Some(ours) = array.filter(|ours| *ours != theirs) else { return Ok(()) };
    let is_theirs = |verdict: &Verdict| {
        verdict.superblock.as_ref().is_some_and(|found_there| found_there.array == found.newest.array)
    };
    let taken = members.iter().zip(&found.verdicts).filter(|(_, verdict)| is_theirs(verdict));
    let taken: Vec<_> = taken.map(|((path, _), _)| path.display().to_string()).collect();
    let file = file.display();
    let what = format!(
        "{file} is of array {ours}, but {} belong to another one, {theirs}: they were taken for it",
        taken.join(", ")
    );
    let next = format!("correct the paths in {file}; if that other array is meant, its line `array`, too");
    Err(Failure::with_next(Error::invalid(what), next))
}

/// Whether a member was present when the array was last used.
fn is_awaited(newest: &Superblock, role: usize) -> bool {
    newest.table.get(role).is_some_and(|entry| entry.state != State::Missing)
}

/// Whether members may hold parts of interrupted writes that cannot be identified.
pub fn has_write_hole(newest: &Superblock) -> bool {
    !newest.clean && newest.log == LogPlace::None
}

/// Refuses an array without a member that was present when it was last used. It is refused to a service only if flushed
/// data would be lost. If too many members are missing, the assembly refuses it.
pub fn check_all_there(
    file: &Path,
    array: Option<&str>,
    found: &Devices,
    is_service: bool,
    may_force: bool,
) -> Result<(), Failure> {
    let devices: Vec<Device> = found.members.iter().map(|(_, device)| device.clone()).collect();
    let Ok(survey) = survey(&devices) else { return Ok(()) };
    if array.is_some_and(|ours| ours != hex(&survey.newest.array)) {
        return Ok(()); // Refused for that reason later.
    }
    let most = survey.newest.shape.level.parities();
    let absent = survey.absent_roles();
    let away = absent.iter().filter(|role| is_awaited(&survey.newest, **role));
    let away: Vec<String> = away.map(|role| role.to_string()).collect();
    if away.is_empty() || absent.len() > most {
        return Ok(());
    }
    let costs = StaleSeen::of(&survey, &devices, found).costs();
    if is_service && costs.is_empty() {
        return Ok(());
    }
    let costs = if costs.is_empty() { costs } else { format!("; {costs}") };
    let unopened = found.absent.iter().map(|(path, error)| (path, error.to_string()));
    let why: String = unopened
        .chain(unusable(&survey, &found.members))
        .map(|(path, error)| format!("; {}: {error}", path.display()))
        .collect();
    let what = format!(
        "{}: members that were there when the array was last used are not: role {}{why}{costs}; nothing was changed",
        file.display(),
        away.join(", ")
    );
    // The assembly would refuse it for that next.
    let (flags, why) = match has_write_hole(&survey.newest) && may_force {
        true => (
            "--degraded --force",
            " (it was not closed, and has no log: what was being written may be wrong)",
        ),
        false => ("--degraded", ""),
    };
    let next = format!(
        "bring the device back as it was (vellum array detail {file} shows what is there); {flags} goes on without \
         it{why}, and it is out from then on: vellum array add {file} PATH {flags} takes one in for it",
        file = file.display()
    );
    Err(Failure::with_next(Error::new(Kind::Gone, what), next))
}

/// Devices that are present but are not the awaited members, with the reason.
fn unusable<'a>(
    survey: &'a Survey,
    members: &'a [(PathBuf, Device)],
) -> impl Iterator<Item = (&'a PathBuf, String)> {
    let is_out = |verdict: &Verdict| {
        let ours = verdict.superblock.as_ref().filter(|theirs| theirs.array == survey.newest.array);
        ours.is_some_and(|theirs| !is_awaited(&survey.newest, theirs.role))
    };
    let there = members.iter().zip(&survey.verdicts);
    let others =
        there.filter(move |(_, verdict)| !matches!(verdict.standing, Standing::Counts) && !is_out(verdict));
    others.map(|((path, _), verdict)| (path, verdict.standing.to_string()))
}

/// Failure if no device identifies itself as part of an array.
pub fn none_of(
    file: &Path,
    members: &[(PathBuf, Device)],
    verdicts: &[Verdict],
    absent: &[(PathBuf, Error)],
) -> Failure {
    let file = file.display();
    match (members.first().zip(verdicts.first()), absent.first()) {
        (Some(((path, _), verdict)), _) => {
            let what =
                format!("no device of {file} is one of an array; {}: {}", path.display(), verdict.standing);
            let next =
                "it names other devices than the array's, or they were overwritten: correct their paths";
            Failure::with_next(Error::corrupt(what), next)
        }
        (None, Some((_, error))) => {
            let what = format!("no device of {file} can be opened: {error}");
            let next = format!("bring the devices back, or correct their paths in {file}");
            Failure::with_next(Error::new(Kind::Io, what), next)
        }
        (None, None) => {
            let next =
                format!("name the array's devices in {file}, as in: members = [\"d0\", \"d1\", \"d2\"]");
            Failure::with_next(Error::invalid(format!("{file} names no devices")), next)
        }
    }
}
