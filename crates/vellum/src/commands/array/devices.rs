//! Which of the devices that an array's file names are used: those that cannot be are named, and left out.

use super::stale_seen::StaleSeen;
use crate::failure::Failure;
use crate::ui::Ui;
use std::path::{Path, PathBuf};
use vellum::array::cache::engine::check_nvram_size;
use vellum::array::{Device, LogPlace, Standing, State, Superblock, Survey, Verdict, hex, survey};
use vellum::array_file::{ArrayFile, Devices};
use vellum::base::{Error, Kind};

/// A device that is no member, and cannot be opened.
pub struct Absent {
    /// For people: which it is, and its name.
    pub what: String,
    /// As the file names it.
    pub path: PathBuf,
    /// Why it cannot be opened.
    pub error: Error,
}

impl Absent {
    /// Those of the log and the cache, out of all that cannot be opened. A device that is too small for any NVRAM is as
    /// good as none.
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

/// The devices that count or are to be rebuilt. Says which others are left out, and why.
///
/// # Errors
/// If it is not clear which array is meant, or which of two devices is the member.
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

/// Refuses another array than the one that the file is of, if it says so: that has taken most of its devices.
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

/// Whether a member was there when the array was last used.
fn is_awaited(newest: &Superblock, role: usize) -> bool {
    newest.table.get(role).is_some_and(|entry| entry.state != State::Missing)
}

/// Whether members may have parts of what was being written, and nothing tells which.
pub fn has_write_hole(newest: &Superblock) -> bool {
    !newest.clean && newest.log == LogPlace::None
}

/// Refuses an array that lacks a member which was there when it was last used; to serve it only if that would cost what
/// was flushed. One that lacks too many is refused by the assembly.
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
        return Ok(()); // Refused for that.
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
    // It would be refused for that next.
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

/// Devices that are there and are not the members that are awaited, with the reason.
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

/// No device has what makes it one of an array.
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
