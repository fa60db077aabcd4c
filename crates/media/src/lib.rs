//! Storage media: virtual NAND flash in memory ([`nand`]) or in a file ([`image`]), the error-correcting code of its
//! pages ([`coded`]), its timing model ([`timing`]), and named devices ([`presets`]); zoned and raw devices
//! ([`zones`]); a file or a raw device as a disk ([`file_disk`]), the timing model of a hard disk ([`hdd`]), and a disk
//! in memory that injects faults ([`ramdisk`]).
//!
//! Everything here implements [`vellum_base::Flash`], [`vellum_base::Zones`] or [`vellum_base::BlockDevice`] and
//! enforces its rules. Nothing here knows of mapping, deduplication or keys.

pub mod coded;
pub mod file_disk;
pub mod hdd;
pub mod image;
pub mod nand;
mod one_of;
pub mod presets;
pub mod ramdisk;
pub mod reason;
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
