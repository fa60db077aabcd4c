//! The upper interface of the stack: a block device of 4 KiB sectors.

use crate::error::{Error, Kind, Result};
use crate::units::{Lba, SECTOR_BYTES};
use std::sync::Arc;

/// A block device with sectors of [`SECTOR_BYTES`]. All methods may be called by several tasks at once.
///
/// After [`BlockDevice::flush`] returns, every write (and trim, and write-zeroes) that was acknowledged before
/// the flush began survives any crash. Without a flush, each sector has either its old or its new contents after a
/// crash: never a mixture, never those of another sector. Ranges outside the device are [`crate::Kind::Invalid`].
/// After a failed flush the device is poisoned: it can be read, but refuses writes. The exception is a flush that fails
/// with [`crate::Kind::NoSpace`]: nothing is lost, the writes are just not durable yet, and the flush may be retried
/// once there is room.
pub trait BlockDevice: Send + Sync {
    /// Size and capabilities.
    fn info(&self) -> DeviceInfo;

    /// Reads `buf.len()` bytes, a multiple of the sector size. Sectors never written read as zeros.
    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()>;

    /// Writes whole sectors. With `fua` the write is durable when the call returns.
    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()>;

    /// Discards the contents: the sectors read as zeros. [`DeviceInfo::trims`] tells whether this is cheap.
    fn trim(&self, lba: Lba, sectors: u64) -> Result<()>;

    /// Makes the sectors read as zeros. No sectors are programmed for it if [`DeviceInfo::trims`] is true.
    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()>;

    /// Hints that the sectors will not be read before they are written again: until then their contents are undefined,
    /// also after a crash. Nothing is written for it; a device that ignores such hints returns [`Kind::Unsupported`].
    fn discard(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.info().check_range(lba, sectors)?;
        Err(Error::new(Kind::Unsupported, "the device has no use for what is not needed any more"))
    }

    /// Copies `sectors` sectors from `from` to `to` by mapping both to the same stored data; the effect is that of
    /// writing the same bytes. The ranges must not overlap. Returns how many sectors share their data; the others were
    /// copied. A device that cannot share data between sectors returns [`Kind::Unsupported`].
    fn remap(&self, from: Lba, to: Lba, sectors: u64) -> Result<u64> {
        self.info().check_remap(from, to, sectors)?;
        Err(Error::new(Kind::Unsupported, "the device cannot have one copy for several sectors"))
    }

    /// True if [`BlockDevice::remap`] is supported.
    fn remaps(&self) -> bool {
        false
    }

    /// Makes all operations acknowledged so far durable.
    fn flush(&self) -> Result<()>;

    /// How the sectors from `lba` are allocated: the kind of the first, and the length of the run of that kind,
    /// including the first (at least 1, at most `sectors`).
    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)>;
}

/// A reference-counted device is itself a device.
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

/// Size and capabilities of a [`BlockDevice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Size in sectors.
    pub sectors: u64,
    /// True if nothing can be written.
    pub read_only: bool,
    /// True if trimming or zeroing a long range costs only a small part of writing it. If false, both still work, but
    /// write every sector, so they should be used only if zeros are needed.
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

    /// Checks that a buffer is a number of whole sectors within the device; returns that number.
    pub fn check_buffer(&self, lba: Lba, bytes: usize) -> Result<u64> {
        if !bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(Error::invalid(format!("{bytes} bytes are not whole 4 KiB sectors")));
        }
        let sectors = (bytes / SECTOR_BYTES) as u64;
        self.check_range(lba, sectors)?;
        Ok(sectors)
    }
}

/// How a sector is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Data is stored.
    Data,
    /// Written as zeros; occupies no flash.
    Zero,
    /// Never written, or trimmed. Reads as zeros.
    Hole,
}
