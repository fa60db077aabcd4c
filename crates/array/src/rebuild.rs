//! Removing, adding and rebuilding members: a rebuild goes row by row, under load.
//!
//! 1. Of a member being rebuilt, the first rows count, as many as the roster says; writes to later rows skip it. A row
//!    is rebuilt and begins to count under its lock.
//! 2. The number of rows in the superblocks never exceeds what is durable, on the new member and of the data that it
//!    was computed from: all members are flushed before superblocks are written.
//! 3. Nothing is rebuilt from deferred parity. The caller may choose to give up such rows, and sectors that cannot be
//!    computed because another member's cannot be read (give_up.rs).

use crate::access::{Access, What};
use crate::array::Array;
use crate::assemble::{Device, random_id};
use crate::core::{Core, Member};
use crate::give_up::{GiveUp, GivenUp, Held, Known};
use crate::layout::Piece;
use crate::owner::check_unused;
use crate::plan::{Columns, Impossible};
use crate::superblock::State;
use std::ops::Range;
use std::sync::Arc;
use vellum_base::size::format_size;
use vellum_base::{Allocation, Error, Kind, Lba, Result, SECTOR_BYTES};

/// The number of rebuilt rows is stored every this many rows.
const CHECKPOINT_ROWS: u64 = 256;

/// Progress of a rebuild or a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Rows done.
    pub rows: u64,
    /// Rows of the array.
    pub of: u64,
}

/// Outcome of a rebuild.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// All rows are rebuilt, and the member is active. If false, the rebuild was stopped and can be resumed.
    pub complete: bool,
    /// Sectors of the array that were given up. They read as zeros, except perhaps the last ones if the rebuild failed.
    pub lost: Vec<Range<u64>>,
    /// Why the rebuild failed, if sectors had been given up before.
    pub failed: Option<String>,
}

impl Rebuilt {
    /// The outcome of a rebuild that ended with `ended` and gave up `lost` sectors. An error is returned as such only
    /// if nothing was lost: losses must be reported in any case.
    pub(crate) fn of(ended: Result<bool>, lost: Vec<Range<u64>>) -> Result<Rebuilt> {
        match ended {
            Ok(complete) => Ok(Rebuilt { complete, lost, failed: None }),
            Err(error) if lost.is_empty() || error.kind() == Kind::PowerLost => Err(error),
            Err(error) => Ok(Rebuilt { complete: false, lost, failed: Some(error.to_string()) }),
        }
    }
}

impl Array {
    /// Detaches the device of a member that is out.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if the member is not out: call [`Array::fail`] first.
    pub fn remove(&self, role: usize) -> Result<()> {
        let core = self.core();
        core.check_role(role)?;
        core.change_roster(|roster| match roster.table[role].state {
            State::Missing => {
                roster.members[role] = None;
                Ok(())
            }
            _ => Err(Error::invalid(format!("member {role} is in use: fail it first"))),
        })
    }

    /// Adds a device in place of a lost member; returns its role. [`Array::rebuild`] overwrites its content.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if no member is lost or the device is too small, [`Kind::Busy`] if it belongs to another array
    /// and `force` is not set.
    pub fn add(&self, device: Device, force: bool) -> Result<usize> {
        let core = self.core();
        core.check_writable()?;
        let roster = core.roster();
        let lost = (0..roster.table.len()).find(|role| roster.table[*role].state == State::Missing);
        let role = lost.ok_or_else(|| Error::invalid("no member is lost: fail the one to replace first"))?;
        core.check_size(&device)?;
        let is_ours = |found: crate::Superblock| found.array == core.array && found.role == role;
        if !crate::examine(&device).is_ok_and(is_ours) {
            check_unused(&device, "the device", force)?;
        }
        core.blank(&device).map_err(|error| error.context(format!("prepare member {role}")))?;
        let member = Member::new(device, &core.env, self.lanes());
        core.change_roster(|roster| {
            if roster.table[role].state != State::Missing {
                let what = format!("another device was taken in for member {role} meanwhile");
                return Err(Error::new(Kind::Busy, what));
            }
            roster.members[role] = Some(member);
            roster.table[role].id = random_id(&*core.env);
            roster.table[role].state = State::Rebuilding { rows: 0 };
            Ok(())
        })?;
        core.log.refresh_heads(core)?;
        core.stale.write_all(core)?;
        Ok(role)
    }

    /// Rebuilds all added members, one after the other, under load. `go_on` gets the progress and stops the rebuild by
    /// returning false; the next one resumes there, even after a reassembly.
    ///
    /// # Errors
    /// [`Kind::Busy`] if parity of rows is deferred and [`Kind::Io`] if sectors cannot be computed, unless `give_up` is
    /// set; they are in the result then. [`Kind::Invalid`] if there is nothing to rebuild.
    pub fn rebuild(&self, give_up: bool, go_on: impl FnMut(Progress) -> bool) -> Result<Rebuilt> {
        let (mut given, mut nobody_knows) =
            (GivenUp::default(), |_| Ok((Known::new(), Box::new(()) as Held)));
        let ended = self.rebuild_to_end(give_up.then_some(&mut nobody_knows), go_on, &mut given);
        Rebuilt::of(ended, given.lost)
    }

    /// The same; adds what is given up to `given`. Returns true when all is rebuilt.
    pub(crate) fn rebuild_to_end(
        &self,
        mut give_up: Option<GiveUp<'_>>,
        mut go_on: impl FnMut(Progress) -> bool,
        given: &mut GivenUp,
    ) -> Result<bool> {
        let core = self.core();
        let is_rebuilding =
            |role: &usize| matches!(core.roster().table[*role].state, State::Rebuilding { .. });
        let roles: Vec<usize> = (0..core.shape.members).filter(is_rebuilding).collect();
        if roles.is_empty() {
            return Err(Error::invalid("there is nothing to rebuild: add a device for a lost member first"));
        }
        for role in roles {
            if !core.rebuild_member(role, &mut give_up, &mut go_on, given)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Array {
    /// Fails for sectors of a lost member in stale rows, where `is_unknown` says that the deltas of the row are not
    /// known.
    pub(crate) fn check_told(&self, lba: Lba, sectors: u64, is_unknown: impl Fn(u64) -> bool) -> Result<()> {
        let (core, roster) = (self.core(), self.core().roster());
        let is_lost = |piece: &Piece| {
            is_unknown(piece.row)
                && core.stale.has(piece.row)
                && core.lost_columns(&roster, piece.row).has(piece.column)
        };
        match core.shape.pieces(lba, sectors).find(is_lost) {
            None => Ok(()),
            Some(Piece { row, column, offset, sectors }) => {
                let columns = Columns::default().with(column);
                Err(core.refusal(row, columns, offset..offset + sectors, Impossible::StaleAndLost))
            }
        }
    }

    /// Sectors of lost members in stale rows, which only a cache may know. Without one, a rebuild that gives them up
    /// makes them zeros.
    pub(crate) fn lost_sectors(&self, stale: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
        let (core, mut lost) = (self.core(), Vec::new());
        let (roster, all) = (core.roster(), 0..core.shape.chunk_sectors);
        for row in stale {
            let columns = core.lost_columns(&roster, row);
            lost.extend(columns.iter().filter_map(|column| core.array_sectors(row, column, all.clone())));
        }
        lost
    }
}

impl Core {
    /// Fails for a device that is too small to be a member.
    pub fn check_size(&self, device: &Device) -> Result<()> {
        let (sectors, least) = (device.info().sectors, self.plot.member_sectors);
        match sectors < least {
            true => Err(Error::invalid(format!(
                "the device has {}, members have {}: take a larger one",
                format_size(sectors.saturating_mul(SECTOR_BYTES as u64)),
                format_size(least * SECTOR_BYTES as u64)
            ))),
            false => Ok(()),
        }
    }

    /// Zeroes everything outside the data area, durably, so that none of its old content is taken for the array's.
    pub fn blank(&self, device: &Device) -> Result<()> {
        device.write_zeroes(Lba(0), self.plot.data_start, false)?;
        device.write_zeroes(Lba(self.plot.member_sectors - 1), 1, false)?;
        device.flush()
    }

    /// Returns true when the member is complete.
    fn rebuild_member(
        &self,
        role: usize,
        give_up: &mut Option<GiveUp<'_>>,
        go_on: &mut impl FnMut(Progress) -> bool,
        given: &mut GivenUp,
    ) -> Result<bool> {
        loop {
            let rows = match self.roster().table[role].state {
                State::Rebuilding { rows } => rows,
                State::Active => return Ok(true), // Somebody else did it.
                State::Missing => {
                    let why = format!("member {role} went while it was rebuilt: add another device");
                    return Err(Error::new(Kind::Io, why));
                }
            };
            if rows == self.shape.rows {
                break;
            }
            if !go_on(Progress { rows, of: self.shape.rows }) {
                self.write_event()?;
                return Ok(false);
            }
            self.rebuild_row(role, rows, give_up, given)?;
            if (rows + 1) % CHECKPOINT_ROWS == 0 {
                self.write_event()?;
            }
        }
        self.flush_members()?;
        self.change_roster(|roster| {
            if matches!(roster.table[role].state, State::Rebuilding { .. }) {
                roster.table[role].state = State::Active;
            }
            Ok(())
        })?;
        Ok(true)
    }

    /// Rebuilds a row of a member, unless that is out; the row counts then.
    fn rebuild_row(
        &self,
        role: usize,
        row: u64,
        give_up: &mut Option<GiveUp<'_>>,
        given: &mut GivenUp,
    ) -> Result<()> {
        self.check_writable()?;
        match (self.try_rebuild_row(role, row, None, given), give_up) {
            (Err(error), Some(give_up)) if error.kind() != Kind::PowerLost => {
                self.begin_change()?;
                let (known, _held) = give_up(row)?;
                // Asking the cache may have ended in its failure.
                self.begin_change()?;
                self.try_rebuild_row(role, row, Some(&known), given)
            }
            (result, _) => result,
        }
    }

    /// One attempt. What cannot be computed is given up only if `known` is there.
    fn try_rebuild_row(
        &self,
        role: usize,
        row: u64,
        known: Option<&Known>,
        given: &mut GivenUp,
    ) -> Result<()> {
        let _lock = self.lock_row(row);
        // Earlier records may have the member's old content; later ones cover its new content by parity only.
        self.log.settle(self, row)?;
        known.map_or(Ok(()), |known| self.put_back(row, known))?;
        let column = self.shape.column_of(row, role);
        let was_stale = self.stale.has(row);
        let mut told = Known::new();
        let bytes = match (was_stale, known) {
            (true, None) => {
                let (why, count) = (format!("parity of row {row} was put off"), self.stale.count());
                return Err(Error::new(Kind::Busy, format!("{why}, of {count} in all: update it first")));
            }
            (true, Some(known)) => {
                told = self.give_up_unread(row, known, given)?;
                self.chunk_given_up(row, column, known, given)
            }
            (false, _) => self.rebuilt_bytes(row, column, known, given)?,
        };
        if self.write_rebuilt(role, row, bytes)? {
            self.count_row(role, row);
            if was_stale {
                self.resync_given_up(row, &told)?;
            }
        }
        Ok(())
    }

    /// True if the member's chunk at `sector` was never written to.
    fn is_hole(&self, member: Option<&Arc<Member>>, sector: u64) -> bool {
        let sectors = u64::from(self.shape.chunk_sectors);
        let found = member.map(|member| member.device.allocation(Lba(sector), sectors));
        matches!(found, Some(Ok((Allocation::Hole, alike))) if alike >= sectors)
    }

    /// Writes a chunk to the member being rebuilt; false if that failed and the member is out. Zeros are not written
    /// over a hole: files stay sparse, and a fresh array stays blank.
    fn write_rebuilt(&self, role: usize, row: u64, bytes: Vec<u8>) -> Result<bool> {
        let roster = self.roster();
        let sector = self.plot.data_start + self.shape.member_sector(row);
        if bytes.iter().all(|byte| *byte == 0) && self.is_hole(roster.members[role].as_ref(), sector) {
            return Ok(true);
        }
        let write = Access { role, sector, what: What::Write(bytes, false) };
        match self.perform(&roster, vec![write])?.remove(0) {
            Ok(_) => Ok(true),
            Err(error) => self.fail(&roster, role, &error.to_string()).map(|()| false),
        }
    }

    /// Sectors of the array at these offsets of a column; `None` for a parity column.
    pub fn array_sectors(&self, row: u64, column: usize, offsets: Range<u32>) -> Option<Range<u64>> {
        let first = row * self.shape.row_sectors() + column as u64 * u64::from(self.shape.chunk_sectors);
        (column < self.shape.data_columns())
            .then(|| first + u64::from(offsets.start)..first + u64::from(offsets.end))
    }
}
