//! A log on its own device: which array it belongs to, and reading it (docs/formats/array.md).
//!
//! 1. A device is accepted only if it is the array's log as it was left: its epoch is the one in the superblocks, or
//!    the next, if the power was lost before they recorded that. Another array's log, a blank device, an earlier copy
//!    and a truncated one are refused.
//! 2. Heads, bitmap and, after a crash, the ring must be entirely readable: nothing is guessed. After a close no record
//!    is valid: then an unreadable ring is zeroed, even if the array is refused afterwards.
//! 3. The ring is as long as the head says, even on a larger device.

use super::HEADS;
use super::record::{Head, largest_record};
use super::replay::{Found, records_of};
use crate::access::{What, call};
use crate::assemble::hex;
use crate::bitmap::{self, Bitmap};
use crate::layout::Shape;
use crate::superblock::{Id, Superblock};
use vellum_base::size::format_size;
use vellum_base::{BlockDevice, Error, Kind, Lba, Result, SECTOR_BYTES};

/// 256 MiB: the ring is read whole at assembly, and no more than that is ever in flight.
const RING_SECTORS_MAX: u32 = 1 << 16;
/// A ring has room for this many of the largest records.
pub(crate) const RECORDS_MIN: u32 = 4;

/// Formats the log device of a new array of this shape.
pub(crate) fn format_device(device: &dyn BlockDevice, array: &Id, epoch: u64, shape: &Shape) -> Result<()> {
    let (rows, ring_sectors) = (shape.rows, ring_length(device, shape));
    let used = HEADS + bitmap::sectors_of(rows) as u64 + u64::from(ring_sectors);
    device.write_zeroes(Lba(0), used, false)?;
    // A superblock's copy may be there.
    device.write_zeroes(Lba(device.info().sectors - 1), 1, false)?;
    let empty = vec![0; SECTOR_BYTES - bitmap::HEAD];
    for sector in 0..bitmap::sectors_of(rows) {
        device.write(Lba(HEADS + sector as u64), &bitmap::encode(array, sector, &empty), false)?;
    }
    device.flush()?;
    let head = Head { epoch, previous: 0, oldest: 1, generation: 0, ring_sectors, unread: 0 };
    device.write(Lba(0), &head.encode(array), true)
}

/// A log device as it was left, except for its bitmap.
pub(crate) struct Left {
    /// Has the length of the ring.
    pub head: Head,
    ring: Vec<u8>,
    /// It was made empty in place of one that is missing or unreadable, whose content is unknown.
    pub is_made: bool,
}

impl Left {
    /// The records to be replayed.
    pub fn found(self, array: &Id) -> Found {
        let records = [(0, records_of(array, &self.head, &self.ring))].into();
        Found { head: Some(self.head), records, ..Found::default() }
    }
}

/// The array whose log is on the device, if there is one.
pub(crate) fn owner(device: &dyn BlockDevice) -> Option<Id> {
    let heads = call(device, 0, What::Read(HEADS as usize * SECTOR_BYTES)).ok()?;
    heads.chunks(SECTOR_BYTES).find_map(Head::owner)
}

/// Reads the log device of an array: stale rows into their bitmap, and the ring. The ring of an array that was closed
/// need not be readable; if it is not, it is zeroed, which is the only write here.
///
/// # Errors
/// [`Kind::Invalid`] if it is not the array's log as it was left, [`Kind::Corrupt`] if it cannot be read entirely.
pub(crate) fn read_device(device: &dyn BlockDevice, array: &Superblock, stale: &Bitmap) -> Result<Left> {
    let mut head = read_stale(device, &array.array, array.log_epoch, stale)?;
    if head.ring_sectors == 0 {
        head.ring_sectors = ring_room(device, stale.sectors());
    }
    let first = HEADS + stale.sectors() as u64;
    let ring_sectors = head.ring_sectors.into();
    let ring = match read(device, first, ring_sectors, "its ring of records") {
        // No record is valid after a close. Writing the ring lets the drive remap its unreadable sectors.
        Err(error) if array.clean && error.kind() != Kind::PowerLost => {
            call(device, first, What::Zero(ring_sectors, true)).map_err(|_| error)?;
            Vec::new()
        }
        ring => ring?,
    };
    Ok(Left { head, ring, is_made: false })
}

/// Makes a device an empty log in place of a missing one. Which rows were stale is unknown, so all are.
pub(crate) fn make_empty(device: &dyn BlockDevice, shape: &Shape, stale: &Bitmap) -> Result<Left> {
    stale.fill();
    // Existing heads must not take precedence over the new ones.
    call(device, 0, What::Zero(HEADS, true))?;
    let ring_sectors = ring_length(device, shape);
    let head = Head { epoch: 0, previous: 0, oldest: 1, generation: 0, ring_sectors, unread: 0 };
    Ok(Left { head, ring: Vec::new(), is_made: true })
}

/// Length of a new log's ring.
fn ring_length(device: &dyn BlockDevice, shape: &Shape) -> u32 {
    let records = largest_record(shape.chunk_sectors, shape.members).saturating_mul(RECORDS_MIN);
    ring_room(device, bitmap::sectors_of(shape.rows)).min(RING_SECTORS_MAX.max(records))
}

/// Room for a ring after the bitmap.
fn ring_room(device: &dyn BlockDevice, bitmap_sectors: usize) -> u32 {
    let sectors = device.info().sectors.saturating_sub(HEADS + bitmap_sectors as u64);
    sectors.min(u32::MAX.into()) as u32
}

/// Reads the head and stale rows from the log device whose epoch is `known` to the superblocks. Errors as for
/// [`read_device`].
pub(crate) fn read_stale(device: &dyn BlockDevice, array: &Id, known: u64, stale: &Bitmap) -> Result<Head> {
    let head = head_of(device, array, known)?;
    check_length(device, &head, stale)?;
    let bitmap = read(device, HEADS, stale.sectors() as u64, "its bitmap of stale rows")?;
    match stale.merge(array, &bitmap) {
        None => Ok(head),
        Some(sector) => {
            let sector = HEADS + sector as u64;
            let what = format!("sector {sector}, of its bitmap of stale rows, is not valid");
            Err(unusable(Kind::Corrupt, &what))
        }
    }
}

fn head_of(device: &dyn BlockDevice, array: &Id, known: u64) -> Result<Head> {
    let heads = read(device, 0, HEADS, "its heads")?;
    let ours = heads.chunks(SECTOR_BYTES).filter_map(|sector| Head::decode(sector, array));
    if let Some(head) = ours.max_by_key(|head| head.generation) {
        return match head.epoch == known || head.previous == known {
            true => Ok(head),
            false => Err(unusable(Kind::Invalid, "it is an earlier copy of the array's log")),
        };
    }
    let other = heads.chunks(SECTOR_BYTES).find_map(Head::owner);
    let what = other.map_or_else(
        || format!("it is no log of array {}", hex(array)),
        |other| format!("it is the log of array {}, this is {}", hex(&other), hex(array)),
    );
    Err(unusable(Kind::Invalid, &what))
}

/// Fails for a truncated device: records beyond its end are lost, and nothing would show that older ones are outdated.
fn check_length(device: &dyn BlockDevice, head: &Head, stale: &Bitmap) -> Result<()> {
    let (has, ring) = (device.info().sectors, u64::from(head.ring_sectors));
    let says = HEADS + stale.sectors() as u64 + ring;
    if ring == 0 || has >= says {
        return Ok(());
    }
    let size = |sectors: u64| format_size(sectors * SECTOR_BYTES as u64);
    let what = format!("it was cut short: it has {}, its head says {}", size(has), size(says));
    Err(unusable(Kind::Invalid, &what))
}

fn read(device: &dyn BlockDevice, first: u64, sectors: u64, what: &str) -> Result<Vec<u8>> {
    call(device, first, What::Read(sectors as usize * SECTOR_BYTES)).map_err(|error| match error.kind() {
        Kind::PowerLost => error,
        _ => unusable(Kind::Corrupt, &format!("{what} cannot be read: {error}")),
    })
}

fn unusable(kind: Kind, what: &str) -> Error {
    let next = "name the right device, or force it: it is made an empty log, and the parity of all rows counts as stale";
    Error::new(kind, format!("the log device: {what}; {next}"))
}
