//! Things that keep bytes: virtual NAND flash in memory ([`nand`]) or in a file ([`image`]), the code on its pages
//! ([`coded`]), the time it takes ([`timing`]), and devices by name ([`presets`]); zoned and raw devices ([`zones`]);
//! a file or a raw device as a disk ([`file_disk`]), how long a hard disk takes ([`hdd`]), a disk in memory that
//! fails as told ([`ramdisk`]).
//!
//! Everything here implements [`vellum_base::Flash`], [`vellum_base::Zones`] or [`vellum_base::BlockDevice`] and
//! checks its rules. Nothing here knows mapping, dedup or keys.

pub mod coded;
pub mod file_disk;
pub mod hdd;
pub mod image;
pub mod nand;
mod one_of;
pub mod presets;
pub mod ramdisk;
pub mod timing;
mod trims;
pub mod zones;

pub use coded::{Coded, Coding};
pub use file_disk::FileDisk;
pub use hdd::{Drive, Hdd, HddModel};
pub use image::{Image, ImageParams, Mended};
pub use nand::{Nand, NandParams, Wear};
pub use presets::Preset;
pub use ramdisk::RamDisk;
pub use timing::{Timed, Timing};
pub use zones::{BlockZones, RamZones, RawDevice, ZonedDevice};
