//! A log on a device of its own: whose it is, and what it says (docs/formats/array.md).
//!
//! 1. What is named as the log device is the array's log as it was left: its epoch is the one that the superblocks
//!    have, or the one behind it, if the power went before they had that. Another array's, a blank device and an
//!    earlier copy are refused.
//! 2. Heads, bitmap and ring must be readable whole: what they would have said is not guessed.

use super::HEADS;
use super::record::Head;
use super::replay::{Found, records_of};
use crate::access::{What, call};
use crate::assemble::hex;
use crate::bitmap::{self, Bitmap};
use crate::core::Core;
use crate::superblock::Id;
use vellum_base::{BlockDevice, Error, Kind, Lba, Result, SECTOR_BYTES};

/// An empty log for a new array of so many rows.
pub(crate) fn format_device(device: &dyn BlockDevice, array: &Id, epoch: u64, rows: u64) -> Result<()> {
    device.write_zeroes(Lba(0), device.info().sectors, false)?;
    let empty = vec![0; SECTOR_BYTES - bitmap::HEAD];
    for sector in 0..bitmap::sectors_of(rows) {
        device.write(Lba(HEADS + sector as u64), &bitmap::encode(array, sector, &empty), false)?;
    }
    device.flush()?;
    let head = Head { epoch, previous: 0, oldest: 1, generation: 0 };
    device.write(Lba(0), &head.encode(array), true)
}

/// The array whose log a device is, if it is one.
pub(crate) fn owner(device: &dyn BlockDevice) -> Option<Id> {
    let heads = call(device, 0, What::Read(HEADS as usize * SECTOR_BYTES)).ok()?;
    heads.chunks(SECTOR_BYTES).find_map(Head::owner)
}

/// Reads all of the array's log device: stale rows into their bitmap, and what the ring holds.
///
/// # Errors
/// [`Kind::Invalid`] if it is not the array's log as it was left, [`Kind::Corrupt`] if it cannot be read whole.
pub(crate) fn read_device(core: &Core, device: &dyn BlockDevice) -> Result<Found> {
    let head = read_stale(device, &core.array, core.roster().log_epoch, &core.stale)?;
    let ring = HEADS + core.stale.sectors() as u64;
    let stored = read(device, ring, device.info().sectors.saturating_sub(ring), "its ring of records")?;
    Ok(Found { records: records_of(core, &head, &stored), head })
}

/// Reads stale rows only, from the log device whose epoch the superblocks have. Errors as of [`read_device`].
pub(crate) fn read_stale(device: &dyn BlockDevice, array: &Id, known: u64, stale: &Bitmap) -> Result<Head> {
    let head = head_of(device, array, known)?;
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
