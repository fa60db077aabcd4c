//! A device limited to the size that its cache has used so far: it may have grown since, and the position of the second
//! half depends on the size.

use super::region::half_sectors;
use crate::assemble::Device;
use std::sync::Arc;
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Lba, Result};

/// The first sectors of a device.
struct Fitted {
    device: Device,
    sectors: u64,
}

/// Limits a device to two halves of this many sectors, if it has more; 0 does not limit it.
pub fn fitted(device: &Device, half: u32) -> Device {
    match half {
        half if half > 0 && u64::from(half) < half_sectors(&**device) => {
            Arc::new(Fitted { device: device.clone(), sectors: u64::from(half) * 2 })
        }
        _ => device.clone(),
    }
}

impl BlockDevice for Fitted {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { sectors: self.sectors, ..self.device.info() }
    }

    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        self.info().check_buffer(lba, buf.len())?;
        self.device.read(lba, buf)
    }

    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        self.info().check_buffer(lba, data.len())?;
        self.device.write(lba, data, fua)
    }

    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.info().check_range(lba, sectors)?;
        self.device.trim(lba, sectors)
    }

    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.info().check_range(lba, sectors)?;
        self.device.write_zeroes(lba, sectors, fua)
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.info().check_range(lba, sectors)?;
        self.device.allocation(lba, sectors)
    }
}
