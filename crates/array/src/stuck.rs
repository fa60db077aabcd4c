//! Sectors that could not be read, and then not be written, either.
//!
//! 1. No change goes to one of them: its record could not be carried through, and if the array cannot do without their
//!    member, no assembly could replay it. The member is out first, or the change is refused.
//! 2. One is known until it takes a write, or the array is opened anew. It is tried again before a change is refused.

use crate::access::{Access, What};
use crate::core::{Core, Roster};
use crate::superblock::Id;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use vellum_base::sync::Mutex;
use vellum_base::{Error, Kind, Result, SECTOR_BYTES};

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

    /// Sectors take no write: their member is out, if the array can do without it. Else it is an error, and no end. Who
    /// died and was not asked since is out first: superblocks that miss both would end the array.
    pub fn fail_or_refuse(&self, seen: &Roster, role: usize, sectors: Range<u64>, why: &str) -> Result<()> {
        self.flush_members()?;
        match self.fail_if_spare(seen, role, why)? {
            true => Ok(()),
            false => Err(takes_no_write(role, sectors, why)),
        }
    }

    /// Before sectors of members are written: who has one among them that takes no write is out, and it is to be tried
    /// anew (false), or it is refused if the array cannot do without.
    pub fn check_takes(
        &self,
        roster: &Roster,
        places: impl IntoIterator<Item = (usize, Range<u64>)>,
    ) -> Result<bool> {
        if self.stuck.0.lock().is_empty() {
            return Ok(true);
        }
        for (role, sectors) in places {
            while let Some(sector) = self.stuck.first(roster.table[role].id, sectors.clone()) {
                if let Err(error) = self.write_anew(roster, (role, sector))? {
                    self.fail_or_refuse(roster, role, sector..sector + 1, &error.to_string())?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Writes what is read, or computed if it cannot be read. The caller holds the row.
    fn write_anew(&self, roster: &Roster, (role, sector): (usize, u64)) -> Result<Result<()>> {
        let read = Access { role, sector, what: What::Read(SECTOR_BYTES) };
        let bytes = match self.perform(roster, vec![read])?.remove(0) {
            Ok(bytes) => bytes,
            Err(gone) if gone.kind() == Kind::Gone => return Ok(Err(gone)),
            Err(unread) => {
                let (row, column, offset) = self.placed_at(role, sector);
                match self.recover(roster, row, column, offset..offset + 1) {
                    Err(lost) if lost.kind() != Kind::PowerLost => return Ok(Err(unread)),
                    recovered => recovered?,
                }
            }
        };
        self.write_unread(roster, (role, sector), bytes)
    }
}

/// What a member does not do, and what to do about it.
pub(crate) fn takes_no_write(role: usize, Range { start, end }: Range<u64>, why: &str) -> Error {
    let what = format!(
        "member {role} takes no write at its sectors {start}..{end} ({why}): copy its device to a healthy one, with \
         ddrescue, say, and open the array with the copy"
    );
    Error::new(Kind::Io, what)
}
