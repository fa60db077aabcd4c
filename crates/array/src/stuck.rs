//! Sectors that could not be read, and then not be written, either.
//!
//! 1. While the array cannot do without their member no change of rows goes there: its record could not be carried
//!    through, and no assembly could replay it.
//! 2. One is known until it takes a write, or the array is opened anew.

use crate::access::{Access, What};
use crate::core::{Core, Roster};
use crate::log::RowChange;
use crate::superblock::Id;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use vellum_base::sync::Mutex;
use vellum_base::{Error, Kind, Result};

/// By the member's id: another device in its place has none of them.
#[derive(Default)]
pub(crate) struct Stuck(Mutex<BTreeSet<(Id, u64)>>);

impl Stuck {
    /// The first of these sectors that takes no write.
    fn first(&self, member: Id, sectors: Range<u64>) -> Option<u64> {
        let first = self.0.lock().range((member, sectors.start)..(member, sectors.end)).next().copied();
        first.map(|(_, sector)| sector)
    }
}

impl Core {
    /// Writes a sector of a member that could not be read. The inner error: it takes no write, either.
    pub fn write_unread(
        &self,
        roster: &Roster,
        (role, sector): (usize, u64),
        bytes: Vec<u8>,
    ) -> Result<Result<()>> {
        let write = Access { role, sector, what: What::Write(bytes, true) };
        let result = self.perform(roster, vec![write])?.remove(0);
        let (key, mut stuck) = ((roster.table[role].id, sector), self.stuck.0.lock());
        match result {
            Ok(_) => {
                stuck.remove(&key);
                self.counters.healed_sectors.fetch_add(1, Relaxed);
            }
            Err(_) => drop(stuck.insert(key)),
        }
        Ok(result.map(drop))
    }

    /// Sectors take no write: their member is out, if the array can do without it. Else it is an error, and no end.
    pub fn fail_or_refuse(&self, seen: &Roster, role: usize, sectors: Range<u64>, why: &str) -> Result<()> {
        match self.fail_if_spare(seen, role, why)? {
            true => Ok(()),
            false => Err(takes_no_write(role, sectors, why)),
        }
    }

    /// Refuses changes of sectors that take no write, of members that the array cannot do without.
    pub fn check_takes(&self, roster: &Roster, changes: &[RowChange]) -> Result<()> {
        for extent in changes.iter().flat_map(|change| &change.extents) {
            let sectors = extent.sector..extent.sector + u64::from(extent.content.sectors());
            let stuck = self.stuck.first(roster.table[extent.role].id, sectors);
            if let Some(sector) = stuck {
                let why =
                    |error| format!("member {} takes no write at its sector {sector}: {error}", extent.role);
                self.check_spare(roster, extent.role).map_err(|error| Error::new(Kind::Io, why(error)))?;
            }
        }
        Ok(())
    }
}

/// Why it cannot go on, and what to do about it.
pub(crate) fn takes_no_write(role: usize, Range { start, end }: Range<u64>, why: &str) -> Error {
    let what = format!(
        "member {role} takes no write at its sectors {start}..{end} ({why}), and the array cannot do without it: copy \
         its device to a healthy one, with ddrescue, say, and open the array with the copy"
    );
    Error::new(Kind::Io, what)
}
