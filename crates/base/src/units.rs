//! Addresses and times, each a type of its own so that no bare number crosses a public interface.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Bytes in a sector, the host-visible unit.
pub const SECTOR_BYTES: usize = 4096;

/// Address of a host-visible 4 KiB sector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lba(pub u64);

impl Lba {
    /// The sector `count` after this one.
    pub const fn offset(self, count: u64) -> Lba {
        Lba(self.0 + count)
    }
    /// Index into a table with one entry a sector.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Address of an erase block: `index_in_die * dies + die`, so that a superblock (same index on every die)
/// is a contiguous range of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockAddr(pub u32);

impl BlockAddr {
    /// The page `page` of this block.
    pub const fn page(self, page: u32) -> PageAddr {
        PageAddr { block: self, page }
    }
    /// Index into a table with one entry a block.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Address of a flash page, the unit of programming.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PageAddr {
    /// The erase block that holds the page.
    pub block: BlockAddr,
    /// Index within the block.
    pub page: u32,
}

/// Address of a slot: one sector-sized piece of a flash page. A 16 KiB page has four.
/// Slots are numbered through the device: `(block * pages_per_block + page) * slots_per_page + slot`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SlotAddr(pub u32);

impl SlotAddr {
    /// Index into a table with one entry a slot.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A time since the environment's start, or a length of time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The beginning, and "no time at all".
    pub const ZERO: Nanos = Nanos(0);

    /// `us` microseconds.
    pub const fn from_us(us: u64) -> Nanos {
        Nanos(us * 1_000)
    }
    /// `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }
    /// `s` seconds, rounded to a nanosecond.
    pub fn from_secs_f64(s: f64) -> Nanos {
        Nanos((s * 1e9).round() as u64)
    }
    /// In seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// The time to move `bytes` at `bytes_per_second`.
    pub const fn transfer(bytes: u64, bytes_per_second: u64) -> Nanos {
        Nanos((bytes as u128 * 1_000_000_000 / bytes_per_second as u128) as u64)
    }
    /// `self - earlier`, or zero.
    pub const fn saturating_sub(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0 + other.0)
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        self.0 += other.0;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0 - other.0)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n < 1_000 => write!(f, "{n}ns"),
            n if n < 1_000_000 => write!(f, "{:.1}us", n as f64 / 1e3),
            n if n < 1_000_000_000 => write!(f, "{:.1}ms", n as f64 / 1e6),
            n => write!(f, "{:.2}s", n as f64 / 1e9),
        }
    }
}

impl fmt::Display for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sector {}", self.0)
    }
}

impl fmt::Display for BlockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "erase block {}", self.0)
    }
}

impl fmt::Display for PageAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {} of erase block {}", self.page, self.block.0)
    }
}
