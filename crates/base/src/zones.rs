//! [`Zones`]: devices, partitions and files divided into zones, each written sequentially and reset as a whole.

use crate::{Error, Kind, Result};

/// A device made of zones.
///
/// 1. A zone is written sequentially, in whole units: each write is at its write pointer, where the last one ended.
/// 2. Only [`Zones::reset`] empties a zone.
/// 3. Writes and resets survive a power cut once a later [`Zones::sync`] has returned. Of operations after that sync,
///    any part may survive, torn.
/// 4. Implementations check these rules, and return [`crate::Kind::Invalid`] if one is broken.
pub trait Zones: Send + Sync {
    /// Its dimensions.
    fn shape(&self) -> ZonesShape;
    /// The state of a zone.
    fn report(&self, zone: u32) -> ZoneReport;
    /// Writes whole units at the write pointer.
    fn write(&self, zone: u32, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Appends whole units of zone `from` at the write pointer by sharing the stored data. Returns how many bytes are
    /// shared; the others were copied. A device that cannot share data returns [`crate::Kind::Unsupported`].
    fn remap(&self, zone: u32, offset: u64, from: (u32, u64), bytes: u64) -> Result<u64> {
        let _ = (zone, offset, from, bytes);
        Err(Error::new(Kind::Unsupported, "the device cannot have one copy in two places"))
    }
    /// True if [`Zones::remap`] is supported.
    fn remaps(&self) -> bool {
        false
    }
    /// Reads below the write pointer: whole units.
    fn read(&self, zone: u32, offset: u64, out: &mut [u8]) -> Result<()>;
    /// Nothing more will be written to the zone before its reset: the device need not keep it open.
    fn finish(&self, zone: u32) -> Result<()>;
    /// Empties a zone.
    fn reset(&self, zone: u32) -> Result<()>;
    /// Makes all operations before it durable.
    fn sync(&self) -> Result<()>;
}

/// Dimensions of a zoned device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZonesShape {
    /// Number of zones.
    pub zones: u32,
    /// Bytes that can be written to each.
    pub zone_bytes: u64,
    /// Bytes that reads and writes are multiples of.
    pub unit_bytes: u32,
    /// Most zones that may be partly written at a time, if there is a limit.
    pub open_max: Option<u32>,
}

/// What is known of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneReport {
    /// Bytes below the write pointer; after opening a device that keeps none, all of a zone that is not blank, or
    /// cannot be read where it begins.
    pub written: u64,
    /// False if the device does not take writes to it any more.
    pub is_writable: bool,
}
