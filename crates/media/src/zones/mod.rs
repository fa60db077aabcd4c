//! Devices made of zones ([`vellum_base::Zones`]): a partition or a file split into them, the kernel's zoned block
//! devices, any of our block devices, and a test double in memory that enforces every rule and loses power.
//!
//! On devices without stored write pointers, a zone whose start is not blank, or cannot be read, counts as full after
//! opening.

mod block;
pub(crate) mod ioctl;
mod pointers;
mod ram;
mod raw;
mod zoned;

pub use block::BlockZones;
pub use ram::{RamZones, RamZonesParams};
pub use raw::RawDevice;
pub(crate) use raw::{open_alone, open_to_look};
pub use zoned::{ZonedDevice, is_zoned};

use crate::reason;
use std::path::Path;
use std::sync::Arc;
use vellum_base::{Error, Result, SECTOR_BYTES, Zones, ZonesShape};

/// Opens `path`: a host-managed zoned block device, or a partition or a file, split into zones of `zone_bytes`.
pub fn open_device(path: &Path, zone_bytes: u64, read_only: bool) -> Result<Arc<dyn Zones>> {
    Ok(match (zoned::is_zoned(path), read_only) {
        (true, false) => Arc::new(ZonedDevice::open(path)?),
        (true, true) => Arc::new(ZonedDevice::open_read_only(path)?),
        (false, false) => Arc::new(RawDevice::open(path, zone_bytes)?),
        (false, true) => Arc::new(RawDevice::open_read_only(path, zone_bytes)?),
    })
}

/// The shape of `bytes` split into zones of equal size. The rest at the end is not used.
fn equal_zones(bytes: u64, zone_bytes: u64) -> Result<ZonesShape> {
    if zone_bytes == 0 || !zone_bytes.is_multiple_of(SECTOR_BYTES as u64) {
        return Err(unfit(format!("zones of {zone_bytes} bytes: make it a multiple of 4 KiB")));
    }
    let zones = u32::try_from(bytes / zone_bytes)
        .map_err(|_| unfit(format!("zones of {zone_bytes} bytes are too small for {bytes}")))?;
    Ok(ZonesShape { zones, zone_bytes, unit_bytes: SECTOR_BYTES as u32, open_max: None })
}

fn unfit(what: String) -> Error {
    Error::invalid(what).because(reason::ZONES_UNFIT)
}
