//! Devices made of zones ([`vellum_base::Zones`]): a partition or a file cut into them, the kernel's zoned block
//! devices, and a double in memory that checks every rule and loses power.

mod ioctl;
mod pointers;
mod ram;
mod raw;
mod zoned;

pub use ram::{RamZones, RamZonesParams};
pub use raw::RawDevice;
pub use zoned::ZonedDevice;
