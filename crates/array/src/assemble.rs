//! Creating an array on devices, and assembling it again.
//!
//! 1. The newest superblock decides which members count. A member is stale if its own superblock is more than one event
//!    older, since an event is on all counting members before anything depends on it. Among several newest superblocks,
//!    one that other members know decides.
//! 2. Members that are one event behind get the newest superblock again, unchanged, before a newer one is written: the
//!    power may fail during that write.
//! 3. Absent members are recorded as missing by an event before anything of the log is replayed. Records stay valid
//!    until rows in doubt are marked stale on the members.
//! 4. Nothing is written before it is clear which devices belong to the array.

use crate::access::{What, call};
use crate::array::Array;
use crate::bitmap::Bitmap;
use crate::core::{Core, Member, Parts};
use crate::layout::{Level, Shape};
use crate::log::{
    self, Found, HEADS, Left, Log, RECORDS_MIN, largest_record, make_empty, read_device, read_rings, replay,
    rewrite,
};
use crate::owner::check_unused;
use crate::superblock::{BITS_PER_SECTOR, Entry, Id, LogPlace, Plot, SECTORS_MAX, State, Superblock};
use crate::survey::{Standing, survey};
use std::sync::Arc;
use vellum_base::size::format_size;
use vellum_base::{BlockDevice, Env, Error, Kind, Lba, Result, SECTOR_BYTES};

/// Parameters of a new array.
#[derive(Clone, Debug)]
pub struct Format {
    /// RAID-5 or RAID-6.
    pub level: Level,
    /// Sectors of a chunk, a power of two.
    pub chunk_sectors: u32,
    /// Where the log that closes the write hole is.
    pub log: LogPlace,
    /// Sectors of the log's ring on every member, if the log is on the members. Raised to four of the largest records.
    pub log_sectors: u32,
    /// Use devices even if they already belong to an array.
    pub force: bool,
}

impl Format {
    /// Chunks of 64 KiB, the log on the members.
    pub fn new(level: Level) -> Format {
        Format { level, chunk_sectors: 16, log: LogPlace::Members, log_sectors: 1024, force: false }
    }
}

/// How an array is assembled.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Concurrent calls per member.
    pub lanes: usize,
    /// Assemble although the write hole may be open: if the log device is another one or cannot be read (it is then
    /// made an empty log, and all rows count as stale), or if an array without a log was not closed and lacks a member.
    pub force: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { lanes: 4, force: false }
    }
}

/// A device of an array.
pub type Device = Arc<dyn BlockDevice>;

/// Creates an array on the devices, whose order gives their roles. They are zeroed, so that parity is consistent.
///
/// # Errors
/// [`Kind::Invalid`] if the devices or the format are unsuitable, [`Kind::Busy`] if a device already belongs to an
/// array.
pub fn create(devices: &[Device], log: Option<&Device>, env: &dyn Env, format: &Format) -> Result<()> {
    let member_sectors =
        devices.iter().map(|device| device.info().sectors).min().unwrap_or(0).min(SECTORS_MAX);
    let log_sectors = match format.log {
        LogPlace::Members => format
            .log_sectors
            .max(largest_record(format.chunk_sectors, devices.len()).saturating_mul(RECORDS_MIN)),
        _ => 0,
    };
    let mut shape =
        Shape { level: format.level, members: devices.len(), chunk_sectors: format.chunk_sectors, rows: 1 };
    shape.check()?;
    let (plot, rows) = Plot::divide(member_sectors, shape.chunk_sectors, log_sectors);
    shape.rows = rows;
    let smallest = devices.iter().position(|device| device.info().sectors == member_sectors).unwrap_or(0);
    let bytes = format_size(member_sectors.saturating_mul(SECTOR_BYTES as u64));
    shape.check().map_err(|error| error.context(format!("device {smallest}, the smallest, has {bytes}")))?;
    check_log_device(format.log, log, &shape)?;
    for (role, device) in devices.iter().enumerate() {
        check_unused(device, &format!("device {role}"), format.force)?;
    }
    if let Some(log) = log {
        check_unused(log, "the log device", format.force)?;
    }
    let table = devices.iter().map(|_| Entry { id: random_id(env), state: State::Active }).collect();
    let (array, log_epoch) = (random_id(env), env.random());
    let superblock = Superblock {
        array,
        event: 1,
        shape,
        log: format.log,
        clean: true,
        role: 0,
        plot,
        log_epoch,
        bond: 0,
        table,
    };
    if let Some(log) = log {
        log::format_device(&**log, &array, log_epoch, &shape)
            .map_err(|error| error.context("format the log device"))
            .inspect_err(|_| take_back(&[], Some(log)))?;
    }
    for (role, device) in devices.iter().enumerate() {
        format_member(device, &Superblock { role, ..superblock.clone() })
            .map_err(|error| error.context(format!("format member {role}")))
            .inspect_err(|_| take_back(&devices[..=role], log))?;
    }
    Ok(())
}

/// Undoes a creation that failed: zeroes superblocks and log heads, as far as the devices can be written.
pub fn take_back(devices: &[Device], log: Option<&Device>) {
    for device in devices.iter().chain(log) {
        let superblocks = [Some(0), examine(device).ok().map(|found| found.plot.member_sectors - 1)];
        let heads = log.filter(|log| Arc::ptr_eq(log, device)).map_or(1, |_| HEADS);
        for sector in superblocks.into_iter().flatten() {
            // Errors are ignored: the caller already reports why the array was not created.
            let _ = device.write_zeroes(Lba(sector), if sector == 0 { heads } else { 1 }, true);
        }
        let _ = device.flush();
    }
}

fn check_log_device(place: LogPlace, log: Option<&Device>, shape: &Shape) -> Result<()> {
    match (place, log) {
        (LogPlace::Device, None) => Err(Error::invalid("name the device that the log is to be on")),
        (LogPlace::Device, Some(log)) => check_log_room(&**log, shape),
        (LogPlace::Members | LogPlace::None, Some(_)) => {
            Err(Error::invalid("a log device is given, and the log is not to be on it"))
        }
        _ => Ok(()),
    }
}

/// Fails unless there is room for heads, bitmap and four of the largest records.
fn check_log_room(log: &dyn BlockDevice, shape: &Shape) -> Result<()> {
    let bitmap = shape.rows.div_ceil(BITS_PER_SECTOR);
    let records = u64::from(RECORDS_MIN) * u64::from(largest_record(shape.chunk_sectors, shape.members));
    let least = HEADS + bitmap + records;
    match log.info().sectors {
        sectors if sectors < least => Err(Error::invalid(format!(
            "the log device has {} and needs {}KiB or more: take a larger one",
            format_size(sectors.saturating_mul(SECTOR_BYTES as u64)),
            (least * SECTOR_BYTES as u64) >> 10
        ))),
        _ => Ok(()),
    }
}

/// Zeroes the device first: nothing of its old content may be taken for the array's.
fn format_member(device: &Device, superblock: &Superblock) -> Result<()> {
    let last = superblock.plot.member_sectors - 1;
    device.write_zeroes(Lba(0), superblock.plot.member_sectors, false)?;
    device.flush()?;
    for sector in [0, last] {
        device.write(Lba(sector), &superblock.encode(), true)?;
    }
    Ok(())
}

pub(crate) fn random_id(env: &dyn Env) -> Id {
    let [low, high] = [env.random(), env.random()];
    std::array::from_fn(|i| if i < 8 { low.to_le_bytes()[i] } else { high.to_le_bytes()[i - 8] })
}

/// An id in hexadecimal, for display.
pub fn hex(id: &Id) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The newer superblock of a device. The error says why there is none.
pub fn examine(device: &Device) -> Result<Superblock> {
    let read =
        |sector| call(&**device, sector, What::Read(SECTOR_BYTES)).and_then(|s| Superblock::decode(&s));
    let sectors = device.info().sectors;
    let first = if sectors == 0 { Err(Error::invalid("it has no sectors")) } else { read(0) };
    // The copy is at the end of the used part, which may be smaller than the device.
    let end = first.as_ref().map_or(sectors, |found| found.plot.member_sectors);
    let copy = if end == 0 { Err(Error::invalid("it has no sectors")) } else { read(end - 1) };
    match (first, copy) {
        (Ok(first), Ok(copy)) if copy.array == first.array && copy.event > first.event => Ok(copy),
        (Ok(first), _) => Ok(first),
        (Err(_), Ok(copy)) => Ok(copy),
        (Err(error), Err(_)) => Err(error),
    }
}

/// The superblock's copy in the last of `sectors` sectors, if it says that members have that size.
pub(crate) fn examine_copy(device: &Device, sectors: u64) -> Option<Superblock> {
    let stored = call(&**device, sectors.checked_sub(1)?, What::Read(SECTOR_BYTES)).ok()?;
    Superblock::decode(&stored).ok().filter(|found| found.plot.member_sectors == sectors)
}

/// What was found of an array among the devices.
struct Census {
    superblock: Superblock,
    devices: Vec<Option<Device>>,
    /// Some counting members are one event behind.
    is_uneven: bool,
}

/// Sorts devices by role. Fails for devices that are foreign, duplicates, cut short or unreadable.
fn take_census(devices: &[Device]) -> Result<Census> {
    let (newest, verdicts) = match survey(devices) {
        Ok(survey) => (Some(survey.newest), survey.verdicts),
        Err(verdicts) => (None, verdicts),
    };
    let mut members: Vec<Option<Device>> = vec![None; newest.as_ref().map_or(0, |n| n.shape.members)];
    let mut is_uneven = false;
    for (index, (verdict, device)) in verdicts.into_iter().zip(devices).enumerate() {
        match (verdict.standing, verdict.superblock, &newest) {
            (Standing::Counts, Some(found), Some(newest)) => {
                is_uneven |= found.event < newest.event;
                members[found.role] = Some(device.clone());
            }
            (Standing::Stale, ..) => {}
            (Standing::Unknown(error), ..) => return Err(error.context(format!("device {index}"))),
            (standing @ Standing::CutShort(..), ..) => {
                return Err(Error::corrupt(format!("device {index}: {standing}")));
            }
            (standing, ..) => return Err(Error::invalid(format!("device {index}: {standing}"))),
        }
    }
    let superblock = newest.ok_or_else(|| Error::invalid("name the devices of the array"))?;
    Ok(Census { superblock, devices: members, is_uneven })
}

/// Assembles an array from devices in any order and replays its log. Stale and missing devices count as lost.
///
/// # Errors
/// They name the device and the remedy. [`Kind::Io`] if too many members are lost.
pub fn assemble(
    devices: &[Device],
    log: Option<&Device>,
    env: Arc<dyn Env>,
    options: Options,
) -> Result<Array> {
    let Census { mut superblock, devices, is_uneven } = take_census(devices)?;
    let table_as_found = superblock.table.clone();
    for (entry, device) in superblock.table.iter_mut().zip(&devices) {
        if device.is_none() {
            entry.state = State::Missing;
        }
    }
    check_enough(&superblock)?;
    let resync = must_resync(&superblock, log, options.force)?;
    let newest = superblock.clone();
    let stale = Bitmap::new(Plot::STALE, superblock.shape.rows);
    let left = log.map(|log| take_log_device(&**log, &superblock, &stale, options.force)).transpose()?;
    let log_member = log.map(|log| Member::new(log.clone(), &env, options.lanes));
    let members = devices.into_iter().map(|device| device.map(|d| Member::new(d, &env, options.lanes)));
    let ring_sectors = left.as_ref().map_or(superblock.plot.log_sectors, |left| left.head.ring_sectors);
    let core = build_core(superblock, members.collect(), (log_member, ring_sectors), stale, env);
    let is_new_log = left.as_ref().is_some_and(|left| left.is_made);
    let found = find_log(&core, &newest, left)?;
    if is_uneven {
        core.repeat_event(table_as_found, newest.clean)?;
    }
    // Recorded before anything is replayed, as absent members miss that. There are two events, so that a member that
    // was absent for the first, or an older copy of one, is more than one behind whatever happens next.
    core.write_event()?;
    core.write_event()?;
    core.log.resume(&core, &found, found.doubted_roles(newest.clean))?;
    let replayed = replay(&core, &found)?;
    let doubted = match is_new_log && !newest.clean {
        true => (0..core.shape.rows).collect(),
        false => found.rows_in_doubt(newest.clean, &core.shape, &core.roster().states()),
    };
    doubted.iter().for_each(|row| core.stale.doubt(*row));
    core.stale.write_all(&core)?;
    if is_new_log && !newest.clean {
        core.bind(0)?; // A cache has nothing that counts.
    }
    core.log.begin(&core, core.roster().bond != 0 && !doubted.is_empty())?;
    rewrite(&core, found.unread)?;
    let array = Array::new(core, &options, replayed, doubted);
    if resync {
        array.resync_intended()?;
    }
    Ok(array)
}

/// Reads the log: from the log device, or from the members that count, whose bitmaps are read then, too.
fn find_log(core: &Core, newest: &Superblock, left: Option<Left>) -> Result<Found> {
    if let Some(left) = left {
        return Ok(left.found(&core.array));
    }
    let roster = core.roster();
    let members = || roster.present().filter_map(|role| Some((role, &roster.members[role].as_ref()?.device)));
    let devices: Vec<Device> = members().map(|(_, device)| device.clone()).collect();
    core.intent.read(&core.array, &devices)?;
    core.stale.read(&core.array, &devices)?;
    read_rings(newest, members())
}

/// Roles of members that do not have all their data.
fn lacking(superblock: &Superblock) -> Vec<String> {
    (0..superblock.table.len())
        .filter(|role| superblock.table[*role].state != State::Active)
        .map(|role| role.to_string())
        .collect()
}

fn check_enough(superblock: &Superblock) -> Result<()> {
    let missing = lacking(superblock);
    if missing.len() <= superblock.shape.level.parities() {
        return Ok(());
    }
    let lacks = missing.join(", ");
    Err(Error::new(
        Kind::Io,
        format!(
            "members {lacks} of {} are missing, stale or not rebuilt, and RAID-{} needs all but {}: bring their devices back",
            superblock.shape.members,
            superblock.shape.level.number(),
            superblock.shape.level.parities()
        ),
    ))
}

/// Whether parity may be inconsistent, so that the regions named by the bitmap must be resynchronised.
fn must_resync(superblock: &Superblock, log: Option<&Device>, force: bool) -> Result<bool> {
    let has_log = match superblock.log {
        LogPlace::Members => true,
        LogPlace::Device => log.is_some(),
        LogPlace::None => false,
    };
    if superblock.log == LogPlace::Device && !has_log {
        let why = "the array's log is on a device of its own: name it, too, or by force another in its place";
        return Err(Error::invalid(why));
    }
    let resync = !has_log && !superblock.clean;
    let lacking = lacking(superblock);
    if resync && !lacking.is_empty() && !force {
        let what = format!(
            "the array was not closed, lacks member {} and has no log: sectors may be wrong",
            lacking.join(", ")
        );
        return Err(Error::corrupt(what));
    }
    Ok(resync && lacking.is_empty())
}

fn build_core(
    superblock: Superblock,
    members: Vec<Option<Arc<Member>>>,
    (log_member, ring_sectors): (Option<Arc<Member>>, u32),
    stale: Bitmap,
    env: Arc<dyn Env>,
) -> Core {
    let shape = superblock.shape;
    let rings = if log_member.is_some() { 1 } else { shape.members };
    let bitmap_sectors = stale.sectors() as u64;
    let regions = shape.rows.div_ceil(region_rows(&shape));
    Core::new(
        env,
        Parts {
            superblock,
            members,
            log: Log::new(log_member, rings, ring_sectors, bitmap_sectors),
            stale,
            intent: Bitmap::new(Plot::INTENT, regions),
        },
    )
}

/// Rows per bit of the intent bitmap.
pub(crate) fn region_rows(shape: &Shape) -> u64 {
    shape.rows.div_ceil(BITS_PER_SECTOR).next_power_of_two()
}

/// Reads the log device. With `force`, one that is not the array's is made an empty log, if it has the room.
fn take_log_device(
    log: &dyn BlockDevice,
    superblock: &Superblock,
    stale: &Bitmap,
    force: bool,
) -> Result<Left> {
    check_log_room(log, &superblock.shape)?;
    match read_device(log, superblock, stale) {
        Err(error) if force && error.kind() != Kind::PowerLost => make_empty(log, &superblock.shape, stale),
        left => left,
    }
}
