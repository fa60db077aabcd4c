//! Examines devices that are to form an array: one verdict for each, the same for an assembly and for a mere
//! inspection.
//!
//! 1. The array is the one that most devices belong to; in a tie, the first device's.
//! 2. Nothing is written.

use crate::assemble::{Device, examine, examine_copy};
use crate::below::Below;
use crate::bitmap::Bitmap;
use crate::log::{read_rings, read_stale};
use crate::superblock::{Id, LogPlace, Plot, State, Superblock};
use std::collections::BTreeSet;
use std::fmt;
use vellum_base::size::format_size;
use vellum_base::{Error, Result, SECTOR_BYTES};

/// See the module.
#[derive(Debug)]
pub struct Survey {
    /// The superblock that decides.
    pub newest: Superblock,
    /// One verdict per device, in their order.
    pub verdicts: Vec<Verdict>,
    /// Another array has as many devices: it is ambiguous which one is meant.
    pub is_tied: bool,
}

/// The verdict on one device.
#[derive(Debug)]
pub struct Verdict {
    /// Its superblock, if that can be read.
    pub superblock: Option<Superblock>,
    /// Its relation to the array.
    pub standing: Standing,
}

impl Verdict {
    /// The role that the device fills, if it does.
    fn role(&self) -> Option<usize> {
        let counts = matches!(self.standing, Standing::Counts);
        self.superblock.as_ref().filter(|_| counts).map(|found| found.role)
    }
}

/// What a device is to the array. Its `Display` text is meant to follow the device's name.
#[derive(Debug)]
pub enum Standing {
    /// It fills its role.
    Counts,
    /// It used to be a member: it can come back by a rebuild.
    Stale,
    /// It has the same role as an earlier device in the list.
    Twin(usize),
    /// It belongs to this other array.
    Foreign(Id),
    /// It is smaller than its superblock says: actual and recorded size, in sectors.
    CutShort(u64, u64),
    /// It has no readable superblock.
    Unknown(Error),
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |sectors: &u64| format_size(sectors * SECTOR_BYTES as u64);
        match self {
            Standing::Counts => write!(f, "it is a member"),
            Standing::Stale => write!(f, "it does not count any more: it comes back by a rebuild"),
            Standing::Twin(role) => {
                write!(f, "it is role {role}, which another device is, too: leave the copy out")
            }
            Standing::Foreign(array) => {
                write!(f, "it belongs to another array, {}: leave it out", crate::hex(array))
            }
            Standing::CutShort(has, says) => {
                write!(f, "it was cut short: it has {}, its superblock says {}", size(has), size(says))
            }
            Standing::Unknown(error) => write!(f, "{error}"),
        }
    }
}

/// Rows whose parity is deferred, and those that an assembly will find in doubt.
pub struct StaleRows {
    rows: Bitmap,
    doubted: BTreeSet<u64>,
}

impl StaleRows {
    /// Number of these rows.
    pub fn count(&self) -> u64 {
        self.rows.count()
    }
}

impl Survey {
    /// Roles that no device fills.
    pub fn absent_roles(&self) -> Vec<usize> {
        let filled: Vec<usize> = self.verdicts.iter().filter_map(Verdict::role).collect();
        (0..self.newest.table.len()).filter(|role| !filled.contains(role)).collect()
    }

    /// Rows whose parity is deferred, according to the log device or, if there is none, to the members that count; and
    /// rows whose parity is in doubt, as the log on their members cannot be read.
    ///
    /// # Errors
    /// If the log device cannot be read: any row may be stale. If all copies of a member bitmap's sector are
    /// unreadable, its rows count as stale instead.
    pub fn stale_rows(&self, devices: &[Device], log: Option<&Device>) -> Result<StaleRows> {
        let rows = Bitmap::new(Plot::STALE, self.newest.shape.rows);
        match (self.newest.log, log) {
            (LogPlace::Device, None) => {
                return Err(Error::invalid("they are on the log device, which is not there"));
            }
            (LogPlace::Device, Some(log)) => {
                read_stale(&**log, &self.newest.array, self.newest.log_epoch, &rows)?;
            }
            (LogPlace::Members | LogPlace::None, _) => {
                let members: Vec<Device> = self.members(devices).map(|(_, device)| device.clone()).collect();
                rows.read(&self.newest.array, &members)?;
            }
        }
        let doubted = self.rows_in_doubt(devices)?;
        doubted.iter().for_each(|row| rows.doubt(*row));
        Ok(StaleRows { rows, doubted })
    }

    fn rows_in_doubt(&self, devices: &[Device]) -> Result<BTreeSet<u64>> {
        let found = read_rings(&self.newest, self.members(devices))?;
        Ok(found.rows_in_doubt(self.newest.clean, &self.newest.shape, &self.states()))
    }

    /// The array as its assembly will find it; `stale` has its stale rows.
    pub(crate) fn below<'a>(&self, stale: &'a StaleRows) -> Below<'a> {
        let Superblock { array, shape, log, bond, .. } = self.newest;
        Below { array, shape, log, bond, members: self.states(), stale: &stale.rows, doubted: &stale.doubted }
    }

    /// States of the members, by role.
    fn states(&self) -> Vec<State> {
        let absent = self.absent_roles();
        let states = self.newest.table.iter().enumerate();
        states
            .map(|(role, entry)| if absent.contains(&role) { State::Missing } else { entry.state })
            .collect()
    }

    /// The devices that count, with their roles.
    fn members<'a>(&'a self, devices: &'a [Device]) -> impl Iterator<Item = (usize, &'a Device)> {
        self.verdicts.iter().zip(devices).filter_map(|(verdict, device)| Some((verdict.role()?, device)))
    }
}

/// Examines devices. Fails with the verdicts if none has a superblock and its full size.
pub fn survey(devices: &[Device]) -> Result<Survey, Vec<Verdict>> {
    let mut verdicts: Vec<Verdict> = devices.iter().map(look).collect();
    look_where_others_end(devices, &mut verdicts);
    let usable = verdicts.iter().filter(|verdict| matches!(verdict.standing, Standing::Counts));
    let found: Vec<&Superblock> = usable.filter_map(|verdict| verdict.superblock.as_ref()).collect();
    let Some((newest, is_tied)) = elect(&found) else { return Err(verdicts) };
    let mut is_filled = vec![false; newest.shape.members];
    for verdict in &mut verdicts {
        let (Standing::Counts, Some(found)) = (&verdict.standing, &verdict.superblock) else { continue };
        verdict.standing = standing(found, &newest, &mut is_filled);
    }
    Ok(Survey { newest, verdicts, is_tied })
}

/// The verdict on a device by itself.
fn look(device: &Device) -> Verdict {
    match examine(device) {
        Ok(found) => {
            let (has, says) = (device.info().sectors, found.plot.member_sectors);
            let standing = if has < says { Standing::CutShort(has, says) } else { Standing::Counts };
            Verdict { superblock: Some(found), standing }
        }
        Err(error) => Verdict { superblock: None, standing: Standing::Unknown(error) },
    }
}

/// Looks for copies of superblocks where the other members end. A copy is where the smallest member ends; on a larger
/// device whose first sector is overwritten, only the other members tell where that is.
fn look_where_others_end(devices: &[Device], verdicts: &mut [Verdict]) {
    let superblocks = verdicts.iter().filter_map(|verdict| verdict.superblock.as_ref());
    let ends: BTreeSet<u64> = superblocks.map(|found| found.plot.member_sectors).collect();
    for (device, verdict) in devices.iter().zip(verdicts) {
        if let Standing::Unknown(_) = verdict.standing
            && let Some(found) = ends.iter().find_map(|end| examine_copy(device, *end))
        {
            *verdict = Verdict { superblock: Some(found), standing: Standing::Counts };
        }
    }
}

fn standing(found: &Superblock, newest: &Superblock, is_filled: &mut [bool]) -> Standing {
    if found.array != newest.array {
        return Standing::Foreign(found.array);
    }
    let role = found.role;
    let Some(entry) = newest.table.get(role) else { return Standing::Stale };
    let is_same = found.table[role].id == entry.id;
    if !is_same || entry.state == State::Missing || found.event + 1 < newest.event {
        return Standing::Stale;
    }
    match std::mem::replace(&mut is_filled[role], true) {
        true => Standing::Twin(role),
        false => Standing::Counts,
    }
}

/// The superblock that decides, and whether another array has as many devices. Among the array's superblocks with the
/// newest event, it is the one whose member is known to most of the others: a device that was to replace a member, and
/// was absent when the others were opened without it, may have reached the same event number if the power was lost just
/// then, but no other superblock knows it.
fn elect(found: &[&Superblock]) -> Option<(Superblock, bool)> {
    let count = |array: Id| found.iter().filter(|other| other.array == array).count();
    let most = found.iter().map(|one| count(one.array)).max()?;
    let array = found.iter().find(|one| count(one.array) == most)?.array;
    let is_tied = found.iter().any(|one| one.array != array && count(one.array) == most);
    let knows = |one: &Superblock, other: &Superblock| {
        (one.array, one.event) == (other.array, other.event)
            && one.table.get(other.role).is_some_and(|entry| entry.id == other.table[other.role].id)
    };
    let standing = |one: &&&Superblock| (one.event, found.iter().filter(|other| knows(other, one)).count());
    let newest = found.iter().filter(|one| one.array == array).max_by_key(standing)?;
    Some(((*newest).clone(), is_tied))
}
