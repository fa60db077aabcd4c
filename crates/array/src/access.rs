//! Lists of calls on members: what an operation wants done on each.

use std::ops::Range;
use vellum_base::{BlockDevice, Kind, Lba, Result, SECTOR_BYTES};

/// A call on a member.
pub(crate) struct Access {
    pub role: usize,
    /// First sector, counted from the start of the member.
    pub sector: u64,
    pub what: What,
}

/// What to do there. The flag of writes is `fua`: durable before the call returns.
pub(crate) enum What {
    /// Read this many bytes.
    Read(usize),
    /// Write these bytes.
    Write(Vec<u8>, bool),
    /// Zero this many sectors.
    Zero(u64, bool),
    /// Flush the member.
    Flush,
}

/// Makes the call; returns the bytes read, empty for all but reads.
pub(crate) fn call(device: &dyn BlockDevice, sector: u64, what: What) -> Result<Vec<u8>> {
    let at = Lba(sector);
    match what {
        What::Read(bytes) => {
            let mut out = vec![0; bytes];
            device.read(at, &mut out).map(|()| out)
        }
        What::Write(bytes, fua) => device.write(at, &bytes, fua).map(|()| Vec::new()),
        What::Zero(sectors, fua) => device.write_zeroes(at, sectors, fua).map(|()| Vec::new()),
        What::Flush => device.flush().map(|()| Vec::new()),
    }
}

/// Sorts accesses by member and sector and merges writes to adjacent sectors: on a disk, separate ones would each wait
/// for a turn of the platter.
pub(crate) fn joined(mut accesses: Vec<Access>) -> Vec<Access> {
    accesses.sort_by_key(|access| (access.role, access.sector));
    let mut joined: Vec<Access> = Vec::with_capacity(accesses.len());
    for access in accesses {
        let rest = match joined.last_mut() {
            Some(last) => last.take_in(access),
            None => Some(access),
        };
        joined.extend(rest);
    }
    joined
}

impl Access {
    /// The member's role, and the sectors.
    pub fn place(&self) -> (usize, Range<u64>) {
        (self.role, self.sector..self.sector + self.what.sectors())
    }

    /// Appends `next` if it is of the same kind and begins where this ends; otherwise returns it.
    fn take_in(&mut self, next: Access) -> Option<Access> {
        let goes_on = self.role == next.role && self.sector + self.what.sectors() == next.sector;
        match (&mut self.what, next.what) {
            (What::Write(bytes, fua), What::Write(more, next_fua)) if goes_on && *fua == next_fua => {
                bytes.extend_from_slice(&more);
                None
            }
            (What::Zero(sectors, fua), What::Zero(more, next_fua)) if goes_on && *fua == next_fua => {
                *sectors += more;
                None
            }
            (_, what) => Some(Access { what, ..next }),
        }
    }
}

impl What {
    fn sectors(&self) -> u64 {
        match self {
            What::Read(bytes) => (bytes / SECTOR_BYTES) as u64,
            What::Write(bytes, _) => (bytes.len() / SECTOR_BYTES) as u64,
            What::Zero(sectors, _) => *sectors,
            What::Flush => 0,
        }
    }
}

/// Turns a failed read into `None`. Only a lost power stays an error.
pub(crate) fn readable(read: Result<Vec<u8>>) -> Result<Option<Vec<u8>>> {
    match read {
        Err(error) if error.kind() == Kind::PowerLost => Err(error),
        read => Ok(read.ok()),
    }
}

/// Bytes of this many sectors.
pub(crate) fn bytes_of(sectors: u32) -> usize {
    sectors as usize * SECTOR_BYTES
}
