//! Which array a device belongs to, checked before it is used for something else.

use crate::assemble::{Device, examine, hex};
use crate::cache::engine::examine_cache;
use crate::cache::engine::nvram::region_owner;
use crate::log::owner as log_owner;
use crate::mark::examine_mark;
use crate::superblock::Id;
use std::fmt;
use vellum_base::{Error, Kind, Result};

/// The role of a device in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The array's id; `None` if it cannot be read.
    pub array: Option<Id>,
    /// The device's part in it.
    pub part: Part,
}

/// Parts that a device can have in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It holds chunks.
    Member,
    /// It is being prepared to take a member's place.
    Copy,
    /// It holds the log that closes the write hole.
    Log,
    /// The cache's SSD.
    Cache,
    /// The NVRAM of the cache, which survives a power loss.
    Nvram,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.part {
            Part::Member => "a member",
            Part::Copy => "a copy of a member",
            Part::Log => "the log",
            Part::Cache => "the cache",
            Part::Nvram => "the NVRAM of the cache",
        };
        match &self.array {
            Some(array) => write!(f, "{part} of array {}", hex(array)),
            None => write!(f, "{part} of an array that cannot be read"),
        }
    }
}

/// What a device belongs to, according to its content.
pub fn owner(device: &Device) -> Option<Owner> {
    let of = |part| move |array| Owner { array: Some(array), part };
    examine(device)
        .map(|found| found.array)
        .map(of(Part::Member))
        .or_else(|_| examine_mark(device).map(|mark| mark.array).map(of(Part::Copy)))
        .or_else(|_| examine_cache(device).map(|found| found.array).map(of(Part::Cache)))
        .ok()
        .or_else(|| log_owner(&**device).map(of(Part::Log)))
        .or_else(|| region_owner(&**device).map(|array| Owner { array, part: Part::Nvram }))
}

/// Fails for a device that belongs to an array, unless forced. An unfinished copy of a member may be overwritten.
pub(crate) fn check_unused(device: &Device, what: &str, force: bool) -> Result<()> {
    match owner(device) {
        Some(owner) if !force && owner.part != Part::Copy => {
            Err(Error::new(Kind::Busy, format!("{what} is {owner}: take another, or force it")))
        }
        _ => Ok(()),
    }
}
