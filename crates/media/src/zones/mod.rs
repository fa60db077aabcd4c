//! Devices made of zones ([`vellum_base::Zones`]): a partition or a file cut into them, the kernel's zoned block
//! devices, any block device of ours, and a double in memory that checks every rule and loses power.

mod block;
mod ioctl;
mod pointers;
mod ram;
mod raw;
mod zoned;

pub use block::BlockZones;
pub use ram::{RamZones, RamZonesParams};
pub use raw::RawDevice;
pub(crate) use raw::open_alone;
pub use zoned::ZonedDevice;

use std::path::Path;
use std::sync::Arc;
use vellum_base::{Result, Zones};

/// Opens what `path` is: a host-managed zoned block device, or a partition or a file, cut into zones of `zone_bytes`.
pub fn open_device(path: &Path, zone_bytes: u64, read_only: bool) -> Result<Arc<dyn Zones>> {
    Ok(match (zoned::is_zoned(path), read_only) {
        (true, false) => Arc::new(ZonedDevice::open(path)?),
        (true, true) => Arc::new(ZonedDevice::open_read_only(path)?),
        (false, false) => Arc::new(RawDevice::open(path, zone_bytes)?),
        (false, true) => Arc::new(RawDevice::open_read_only(path, zone_bytes)?),
    })
}
