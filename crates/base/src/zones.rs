//! [`Zones`]: devices, partitions and files whose big pieces are written front to back and given up whole.

use crate::{Error, Kind, Result};

/// A device made of zones.
///
/// 1. A zone is written from its start, in whole units, each write where the last one ended: at its write pointer.
/// 2. Only [`Zones::reset`] empties a zone.
/// 3. What was written or reset is safe from a power cut when [`Zones::sync`] returned afterwards. Of what came later
///    any part may survive, torn.
/// 4. Implementations check the rules, and answer [`crate::Kind::Invalid`] to who breaks them.
pub trait Zones: Send + Sync {
    /// Its measures.
    fn shape(&self) -> ZonesShape;
    /// What is known of a zone.
    fn report(&self, zone: u32) -> ZoneReport;
    /// Writes whole units at the write pointer.
    fn write(&self, zone: u32, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Writes, at the write pointer, whole units that are also in zone `from`, without storing them a second time.
    /// Returns for how many bytes that was so; the others were copied. A device that cannot have one copy in two
    /// places answers [`crate::Kind::Unsupported`].
    fn remap(&self, zone: u32, offset: u64, from: (u32, u64), bytes: u64) -> Result<u64> {
        let _ = (zone, offset, from, bytes);
        Err(Error::new(Kind::Unsupported, "the device cannot have one copy in two places"))
    }
    /// True if [`Zones::remap`] is more than [`crate::Kind::Unsupported`].
    fn remaps(&self) -> bool {
        false
    }
    /// Reads below the write pointer: whole units.
    fn read(&self, zone: u32, offset: u64, out: &mut [u8]) -> Result<()>;
    /// Nothing more will be written to the zone before its reset: the device need not keep it open.
    fn finish(&self, zone: u32) -> Result<()>;
    /// Empties a zone.
    fn reset(&self, zone: u32) -> Result<()>;
    /// Makes everything before it safe.
    fn sync(&self) -> Result<()>;
}

/// Measures of a zoned device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZonesShape {
    /// Number of zones.
    pub zones: u32,
    /// Bytes that can be written to each.
    pub zone_bytes: u64,
    /// Bytes that reads and writes are multiples of.
    pub unit_bytes: u32,
    /// Most zones that may be written in part at a time, if there is a limit.
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
