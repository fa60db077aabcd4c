//! Devices made of zones ([`vellum_base::Zones`]): a partition or a file cut into them, the kernel's zoned block
//! devices, any block device of ours, and a double in memory that checks every rule and loses power.
//!
//! Where nobody keeps write pointers, a zone that is not blank where it begins, or cannot be read there, counts as full
//! after opening.

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
pub use zoned::ZonedDevice;

use std::path::Path;
use std::sync::Arc;
use vellum_base::{Error, Result, SECTOR_BYTES, Zones, ZonesShape};

/// Opens what `path` is: a host-managed zoned block device, or a partition or a file, cut into zones of `zone_bytes`.
pub fn open_device(path: &Path, zone_bytes: u64, read_only: bool) -> Result<Arc<dyn Zones>> {
    Ok(match (zoned::is_zoned(path), read_only) {
        (true, false) => Arc::new(ZonedDevice::open(path)?),
        (true, true) => Arc::new(ZonedDevice::open_read_only(path)?),
        (false, false) => Arc::new(RawDevice::open(path, zone_bytes)?),
        (false, true) => Arc::new(RawDevice::open_read_only(path, zone_bytes)?),
    })
}

/// So many bytes, cut into zones of equal size. What is left at the end is not used.
fn equal_zones(bytes: u64, zone_bytes: u64) -> Result<ZonesShape> {
    if zone_bytes == 0 || !zone_bytes.is_multiple_of(SECTOR_BYTES as u64) {
        return Err(Error::invalid(format!("zones of {zone_bytes} bytes: make it a multiple of 4 KiB")));
    }
    let zones = u32::try_from(bytes / zone_bytes)
        .map_err(|_| Error::invalid(format!("zones of {zone_bytes} bytes are too small for {bytes}")))?;
    Ok(ZonesShape { zones, zone_bytes, unit_bytes: SECTOR_BYTES as u32, open_max: None })
}
