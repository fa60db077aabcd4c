//! Stuck sectors: those that could not be read and then took no write either.
//!
//! 1. No change may include a stuck sector: its record could not be carried through, and if the array cannot do without
//!    the member, no assembly could replay it. So the member is taken out before, or the change is refused.
//! 2. A sector is stuck until it takes a write or the array is reopened. It is tested again before a change is refused:
//!    by writing its present content, before there is a record. If that content can be neither read nor computed, the
//!    new content is written instead, after the record is appended; if that fails the record is dropped, unless the
//!    sector turns out to hold the new content. Only one sector per change is tested in this way: if a later one
//!    failed, what was written before would be without its parity.

use crate::access::{Access, What};
use crate::core::{Core, Roster};
use crate::superblock::Id;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use vellum_base::sync::Mutex;
use vellum_base::{Error, Kind, Result, SECTOR_BYTES};

/// Keyed by the member's id, so that a replacement device starts without any.
#[derive(Default)]
pub(crate) struct Stuck(Mutex<BTreeSet<(Id, u64)>>);

impl Core {
    /// Writes a sector that could not be read. The inner error means that it takes no write either.
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

    /// Takes out a member that takes no write, if the array can do without it. Otherwise fails, without ending the
    /// array.
    pub fn fail_or_refuse(&self, seen: &Roster, role: usize, sectors: Range<u64>, why: &Error) -> Result<()> {
        let why = why.to_string();
        match self.fail_if_spare(seen, role, &why)? {
            true => Ok(()),
            false => Err(takes_no_write(role, sectors, &why)),
        }
    }

    /// Called before sectors of members are written. Tests those that are stuck: false if that took a member out and
    /// the operation must be repeated; an error if the array cannot do without the member. Up to `untold` sectors whose
    /// content cannot be determined are left untested.
    pub fn check_takes(
        &self,
        roster: &Roster,
        places: impl IntoIterator<Item = (usize, Range<u64>)>,
        mut untold: usize,
    ) -> Result<bool> {
        for (role, sector) in self.stuck_among(roster, places) {
            let is_in = match self.told(roster, (role, sector))? {
                Ok(bytes) => self.write_or_fail(roster, (role, sector), bytes)?,
                Err(unread) if untold == 0 => {
                    self.fail_or_refuse(roster, role, sector..sector + 1, &unread).map(|()| false)?
                }
                Err(_) => {
                    untold -= 1;
                    true
                }
            };
            if !is_in {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes the new content of the sector that was left untested, before everything else; false if that took its
    /// member out.
    pub fn try_untold(&self, roster: &Roster, writes: &[Access]) -> Result<bool> {
        let stuck = self.stuck_among(roster, writes.iter().map(Access::place));
        let Some((role, sector)) = stuck.first().copied() else { return Ok(true) };
        let to_hold = writes.iter().find_map(|write| {
            let (of, sectors) = write.place();
            let start =
                (of == role && sectors.contains(&sector)).then(|| (sector - sectors.start) as usize)?;
            Some(match &write.what {
                What::Write(bytes, _) => bytes[start * SECTOR_BYTES..][..SECTOR_BYTES].to_vec(),
                _ => vec![0; SECTOR_BYTES],
            })
        });
        let (place, to_hold) = ((role, sector), to_hold.expect("it is among the writes"));
        match self.write_or_fail(roster, place, to_hold.clone()) {
            // The record is not dropped, as the sector has the new content although the write failed: parity must cover
            // it.
            Err(refused) if self.read_again(roster, place)?.is_ok_and(|held| held == to_hold) => {
                Err(self.end(Kind::Io, &format!("{refused}; it has what was written")))
            }
            result => result,
        }
    }

    /// Writes a sector that could not be read. If that fails, its member is taken out (false), or an error is returned
    /// if the array cannot do without it.
    pub fn write_or_fail(&self, roster: &Roster, place: (usize, u64), bytes: Vec<u8>) -> Result<bool> {
        let (role, sector) = place;
        match self.write_unread(roster, place, bytes)? {
            Ok(()) => Ok(true),
            Err(error) => self.fail_or_refuse(roster, role, sector..sector + 1, &error).map(|()| false),
        }
    }

    pub fn is_stuck(&self, roster: &Roster, (role, sector): (usize, u64)) -> bool {
        self.stuck.0.lock().contains(&(roster.table[role].id, sector))
    }

    fn stuck_among(
        &self,
        roster: &Roster,
        places: impl IntoIterator<Item = (usize, Range<u64>)>,
    ) -> Vec<(usize, u64)> {
        let stuck = self.stuck.0.lock();
        if stuck.is_empty() {
            return Vec::new();
        }
        let of = |(role, sectors): (usize, Range<u64>)| {
            let id = roster.table[role].id;
            stuck.range((id, sectors.start)..(id, sectors.end)).map(move |(_, sector)| (role, *sector))
        };
        places.into_iter().flat_map(of).collect()
    }

    fn read_again(&self, roster: &Roster, (role, sector): (usize, u64)) -> Result<Result<Vec<u8>>> {
        let read = Access { role, sector, what: What::Read(SECTOR_BYTES) };
        Ok(self.perform(roster, vec![read])?.remove(0))
    }

    /// The content of a sector, read or computed. The inner error means that neither works. The caller holds the row.
    fn told(&self, roster: &Roster, (role, sector): (usize, u64)) -> Result<Result<Vec<u8>>> {
        let unread = match self.read_again(roster, (role, sector))? {
            Ok(bytes) => return Ok(Ok(bytes)),
            Err(unread) => unread,
        };
        let (row, column, offset) = self.placed_at(role, sector);
        match self.recover(roster, row, column, offset..offset + 1) {
            Err(lost) if lost.kind() != Kind::PowerLost => Ok(Err(unread)),
            recovered => recovered.map(Ok),
        }
    }
}

/// The error for a member that takes no write, with a remedy.
pub(crate) fn takes_no_write(role: usize, Range { start, end }: Range<u64>, why: &str) -> Error {
    let what = format!(
        "member {role} takes no write at its sectors {start}..{end} ({why}): copy its device to a healthy one, with \
         ddrescue, say, and open the array with the copy"
    );
    Error::new(Kind::Io, what)
}
