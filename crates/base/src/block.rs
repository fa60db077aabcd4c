//! The upper seam: a disk of 4 KiB sectors.

use crate::error::{Error, Kind, Result};
use crate::units::{Lba, SECTOR_BYTES};
use std::sync::Arc;

/// A block device of [`SECTOR_BYTES`] sectors. Every call may come from many tasks at once.
///
/// After [`BlockDevice::flush`] returns, every write (and trim, and write-zeroes) that was acknowledged before
/// the flush began survives any crash. Without a flush each sector is, after a crash, old or new: never mixed,
/// never another's. Ranges outside the device are [`crate::Kind::Invalid`]. After a flush that failed the device is
/// poisoned: it reads, and refuses writes. Not so after one that failed with [`crate::Kind::NoSpace`]: nothing was
/// lost, what it was to make durable is not yet, and it may be called again when there is room.
pub trait BlockDevice: Send + Sync {
    /// Size and abilities.
    fn info(&self) -> DeviceInfo;

    /// Reads `buf.len()` bytes, a multiple of the sector size. Sectors never written read as zeros.
    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()>;

    /// Writes whole sectors. With `fua` it is durable when the call returns.
    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()>;

    /// Forgets the contents: the sectors read as zeros. [`DeviceInfo::trims`] says whether that is worth asking for.
    fn trim(&self, lba: Lba, sectors: u64) -> Result<()>;

    /// Makes the sectors read as zeros, without programming any where [`DeviceInfo::trims`].
    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()>;

    /// Says that nobody will read the sectors before they are written again: they may read as anything until then,
    /// after a crash, too. Nothing is written for it; a device that has no use for it answers [`Kind::Unsupported`].
    fn discard(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.info().check_range(lba, sectors)?;
        Err(Error::new(Kind::Unsupported, "the device has no use for what is not needed any more"))
    }

    /// Makes the sectors from `to` hold what those from `from` hold, as a write of the same bytes would, without
    /// storing them a second time; the ranges do not overlap. Returns for how many sectors that was so; the others were
    /// copied. A device that cannot have one copy for several sectors answers [`Kind::Unsupported`].
    fn remap(&self, from: Lba, to: Lba, sectors: u64) -> Result<u64> {
        self.info().check_remap(from, to, sectors)?;
        Err(Error::new(Kind::Unsupported, "the device cannot have one copy for several sectors"))
    }

    /// True if [`BlockDevice::remap`] is more than [`Kind::Unsupported`].
    fn remaps(&self) -> bool {
        false
    }

    /// Makes everything acknowledged so far durable.
    fn flush(&self) -> Result<()>;

    /// How the sectors from `lba` are allocated: the kind of the first, and how many alike follow
    /// (at least 1, at most `sectors`).
    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)>;
}

/// A shared device is a device.
impl<D: BlockDevice + ?Sized> BlockDevice for Arc<D> {
    fn info(&self) -> DeviceInfo {
        (**self).info()
    }
    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        (**self).read(lba, buf)
    }
    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        (**self).write(lba, data, fua)
    }
    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        (**self).trim(lba, sectors)
    }
    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        (**self).write_zeroes(lba, sectors, fua)
    }
    fn discard(&self, lba: Lba, sectors: u64) -> Result<()> {
        (**self).discard(lba, sectors)
    }
    fn remap(&self, from: Lba, to: Lba, sectors: u64) -> Result<u64> {
        (**self).remap(from, to, sectors)
    }
    fn remaps(&self) -> bool {
        (**self).remaps()
    }
    fn flush(&self) -> Result<()> {
        (**self).flush()
    }
    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        (**self).allocation(lba, sectors)
    }
}

/// Size and abilities of a [`BlockDevice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Size in sectors.
    pub sectors: u64,
    /// True if nothing can be written.
    pub read_only: bool,
    /// True if long ranges are trimmed, or made zeros, at a small part of what writing them costs. Where it is false
    /// both are right, too, but write every sector: only whoever needs zeros there should ask for them.
    pub trims: bool,
}

impl DeviceInfo {
    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.sectors * SECTOR_BYTES as u64
    }

    /// Refuses a range that does not lie within the device.
    pub fn check_range(&self, lba: Lba, sectors: u64) -> Result<()> {
        match lba.0.checked_add(sectors) {
            Some(end) if end <= self.sectors => Ok(()),
            _ => Err(Error::invalid(format!(
                "{lba} + {sectors} sectors is outside the device of {} sectors",
                self.sectors
            ))),
        }
    }

    /// Refuses ranges that do not lie within the device, or overlap.
    pub fn check_remap(&self, from: Lba, to: Lba, sectors: u64) -> Result<()> {
        self.check_range(from, sectors)?;
        self.check_range(to, sectors)?;
        match from.0.abs_diff(to.0) >= sectors {
            true => Ok(()),
            false => Err(Error::invalid(format!("{from} and {to} are closer than {sectors} sectors"))),
        }
    }

    /// Refuses a buffer that is not whole sectors within the device; returns its length in sectors.
    pub fn check_buffer(&self, lba: Lba, bytes: usize) -> Result<u64> {
        if !bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(Error::invalid(format!("{bytes} bytes are not whole 4 KiB sectors")));
        }
        let sectors = (bytes / SECTOR_BYTES) as u64;
        self.check_range(lba, sectors)?;
        Ok(sectors)
    }
}

/// What lies behind a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Data is stored.
    Data,
    /// Written as zeros; takes no flash.
    Zero,
    /// Never written, or trimmed. Reads as zeros.
    Hole,
}
