//! Members out and in: remove, add, and the rebuild of what a new member is to hold, row by row, under load.
//!
//! 1. A member that is rebuilt counts for the first rows, as many as the roster says; writes to later rows pass it
//!    over. A row is rebuilt and begins to count under its lock.
//! 2. The superblocks' number of rows is never ahead of what the new member has durably, nor of the data that it was
//!    computed from: all members are flushed before they are written.
//! 3. Nothing is rebuilt from parity that was put off. If the caller gives such rows up, or sectors that cannot be
//!    computed because another member's cannot be read, they are reported, also if the rebuild fails later, with those
//!    that only they could be computed with. Zeros take the place of all of them, and parity at their offset is made
//!    anew, so that nothing is computed that never was. A cache is asked first, and gives what it has of them.

use crate::access::{Access, What, bytes_of};
use crate::array::Array;
use crate::assemble::{Device, random_id};
use crate::core::{Core, Member};
use crate::layout::Piece;
use crate::log::RowChange;
use crate::owner::check_unused;
use crate::plan::{Columns, Impossible};
use crate::superblock::State;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use vellum_base::size::format_size;
use vellum_base::{Allocation, Error, Kind, Lba, Result, SECTOR_BYTES};

/// The number of rows rebuilt is stored each time so many more are.
const CHECKPOINT_ROWS: u64 = 256;

/// How far a rebuild or a scrub is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Rows done.
    pub rows: u64,
    /// Rows of the array.
    pub of: u64,
}

/// Sectors that somebody knows all the same.
pub(crate) type Known = BTreeMap<u64, Vec<u8>>;
/// Keeps others from a row, until it is dropped.
pub(crate) type Held = Box<dyn Send>;
/// Hears of a row of which sectors are to be given up, before they are.
pub(crate) type GiveUp<'a> = &'a mut dyn FnMut(u64) -> Result<(Known, Held)>;

/// What a rebuild came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// All rows are, and the member counts for everything. If not, it was stopped, and can go on later.
    pub complete: bool,
    /// Sectors of the array that are lost: they read as zeros.
    pub lost: Vec<Range<u64>>,
    /// Why it could not go on, if sectors were given up before that.
    pub failed: Option<String>,
}

impl Rebuilt {
    /// What a rebuild came to that had lost these when it ended so. An error is one only if nothing was lost: whoever
    /// asked is to hear of that whatever happens.
    pub(crate) fn of(ended: Result<bool>, lost: Vec<Range<u64>>) -> Result<Rebuilt> {
        match ended {
            Ok(complete) => Ok(Rebuilt { complete, lost, failed: None }),
            Err(error) if lost.is_empty() || error.kind() == Kind::PowerLost => Err(error),
            Err(error) => Ok(Rebuilt { complete: false, lost, failed: Some(error.to_string()) }),
        }
    }
}

impl Array {
    /// Lets go of the device of a member that is out.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if the member is not out: [`Array::fail`] it first.
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

    /// Takes a device in for a lost member; returns its role. What it held is overwritten by [`Array::rebuild`].
    ///
    /// # Errors
    /// [`Kind::Invalid`] if no member is lost or the device is too small, [`Kind::Busy`] if it holds another array
    /// and `force` is not given.
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

    /// Rebuilds all members that were added, one after the other, while requests go on. `go_on` hears of the progress
    /// and stops it by false; it goes on where it stopped, also after a reassembly.
    ///
    /// # Errors
    /// [`Kind::Busy`] if parity of rows was put off, [`Kind::Io`] if sectors cannot be computed, unless `give_up` is
    /// set; they are in the result then. [`Kind::Invalid`] if there is nothing to rebuild.
    pub fn rebuild(&self, give_up: bool, go_on: impl FnMut(Progress) -> bool) -> Result<Rebuilt> {
        let (mut lost, mut nobody_knows) = (Vec::new(), |_| Ok((Known::new(), Box::new(()) as Held)));
        let ended = self.rebuild_to_end(give_up.then_some(&mut nobody_knows), go_on, &mut lost);
        Rebuilt::of(ended, lost)
    }

    /// The same; what is lost is added to `lost`. True when all is rebuilt.
    pub(crate) fn rebuild_to_end(
        &self,
        mut give_up: Option<GiveUp<'_>>,
        mut go_on: impl FnMut(Progress) -> bool,
        lost: &mut Vec<Range<u64>>,
    ) -> Result<bool> {
        let core = self.core();
        let is_rebuilding =
            |role: &usize| matches!(core.roster().table[*role].state, State::Rebuilding { .. });
        let roles: Vec<usize> = (0..core.shape.members).filter(is_rebuilding).collect();
        if roles.is_empty() {
            return Err(Error::invalid("there is nothing to rebuild: add a device for a lost member first"));
        }
        for role in roles {
            if !core.rebuild_member(role, &mut give_up, &mut go_on, lost)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Array {
    /// Refuses sectors whose member is lost, of stale rows of which nobody knows what their parity lacks.
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

    /// Sectors of stale rows whose member is lost: nobody but a cache knows them. Without one a rebuild that gives
    /// them up makes them zeros.
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
    /// Refuses a device that is too small for a member.
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

    /// Zeros all that is not data, so that nothing there is taken for the array's, and makes that durable.
    pub fn blank(&self, device: &Device) -> Result<()> {
        device.write_zeroes(Lba(0), self.plot.data_start, false)?;
        device.write_zeroes(Lba(self.plot.member_sectors - 1), 1, false)?;
        device.flush()
    }

    /// True when it is complete.
    fn rebuild_member(
        &self,
        role: usize,
        give_up: &mut Option<GiveUp<'_>>,
        go_on: &mut impl FnMut(Progress) -> bool,
        lost: &mut Vec<Range<u64>>,
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
            self.rebuild_row(role, rows, give_up, lost)?;
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

    /// Rebuilds a row of a member, which counts then, unless it is out.
    fn rebuild_row(
        &self,
        role: usize,
        row: u64,
        give_up: &mut Option<GiveUp<'_>>,
        lost: &mut Vec<Range<u64>>,
    ) -> Result<()> {
        self.check_writable()?;
        match (self.try_rebuild_row(role, row, None, lost), give_up) {
            (Err(error), Some(give_up)) if error.kind() != Kind::PowerLost => {
                self.begin_change()?;
                let (known, _held) = give_up(row)?;
                // The cache may have failed in that.
                self.begin_change()?;
                self.try_rebuild_row(role, row, Some(&known), lost)
            }
            (result, _) => result,
        }
    }

    /// What cannot be computed is given up if it is said what is known of it.
    fn try_rebuild_row(
        &self,
        role: usize,
        row: u64,
        known: Option<&Known>,
        lost: &mut Vec<Range<u64>>,
    ) -> Result<()> {
        let _lock = self.lock_row(row);
        // Records of before may have the member's old content, and those since know of the new one by parity only.
        self.log.settle(self, row)?;
        known.map_or(Ok(()), |known| self.put_back(row, known))?;
        let column = self.shape.column_of(row, role);
        let was_stale = self.stale.has(row);
        let bytes = match (was_stale, known) {
            (true, None) => {
                let (why, count) = (format!("parity of row {row} was put off"), self.stale.count());
                return Err(Error::new(Kind::Busy, format!("{why}, of {count} in all: update it first")));
            }
            (true, Some(known)) => self.given_up(row, column, known, lost),
            (false, _) => self.rebuilt_bytes(row, column, known, lost)?,
        };
        if self.write_rebuilt(role, row, bytes)? {
            self.count_row(role, row);
            if was_stale {
                self.resync_given_up(row, lost)?;
            }
        }
        Ok(())
    }

    /// A column of a stale row: zeros, but for what is known.
    fn given_up(&self, row: u64, column: usize, known: &Known, lost: &mut Vec<Range<u64>>) -> Vec<u8> {
        let mut bytes = vec![0; bytes_of(self.shape.chunk_sectors)];
        let Some(sectors) = self.array_sectors(row, column, 0..self.shape.chunk_sectors) else {
            return bytes;
        };
        let mut zeros: Vec<Range<u64>> = Vec::new();
        for (sector, to) in sectors.zip(bytes.chunks_mut(SECTOR_BYTES)) {
            match (known.get(&sector), zeros.last_mut()) {
                (Some(content), _) => to.copy_from_slice(content),
                (None, Some(last)) if last.end == sector => last.end += 1,
                (None, _) => zeros.push(sector..sector + 1),
            }
        }
        lost.append(&mut zeros);
        bytes
    }

    /// What a column holds, from the others. Of sectors that cannot be computed it is what is known, or zeros.
    fn rebuilt_bytes(
        &self,
        row: u64,
        column: usize,
        known: Option<&Known>,
        lost: &mut Vec<Range<u64>>,
    ) -> Result<Vec<u8>> {
        let all = 0..self.shape.chunk_sectors;
        let known = match (self.read_surely(row, column, all.clone()), known) {
            (Err(error), Some(known)) if error.kind() != Kind::PowerLost => known,
            (result, _) => return result,
        };
        let sectors = all.map(|offset| match self.read_surely(row, column, offset..offset + 1) {
            Err(error) if error.kind() != Kind::PowerLost => {
                let sector = self.array_sectors(row, column, offset..offset + 1);
                match sector.and_then(|sector| known.get(&sector.start)) {
                    Some(content) => Ok(content.clone()),
                    None => self.give_up_at((row, column, offset), known, lost),
                }
            }
            result => result,
        });
        Ok(sectors.collect::<Result<Vec<_>>>()?.concat())
    }

    /// A sector of a column that cannot be computed: all data at its offset that nobody can tell are zeros from now on.
    fn give_up_at(
        &self,
        (row, column, offset): (u64, usize, u32),
        known: &Known,
        lost: &mut Vec<Range<u64>>,
    ) -> Result<Vec<u8>> {
        let mut bytes = None;
        self.insist(|| {
            bytes = self.try_give_up((row, column, offset), known, lost)?;
            Ok(bytes.is_some())
        })?;
        Ok(bytes.unwrap_or_default())
    }

    /// One try: what the column holds then. What becomes zeros is named before it does. Parity is made anew with a
    /// record, and tells it from then on, also of a member that is not there; then what cannot be read is written.
    fn try_give_up(
        &self,
        (row, column, offset): (u64, usize, u32),
        known: &Known,
        lost: &mut Vec<Range<u64>>,
    ) -> Result<Option<Vec<u8>>> {
        let (roster, data) = (self.roster(), self.shape.data_columns());
        let gone = self.lost_columns(&roster, row).with(column);
        let (mut columns, unread) = self.read_columns(&roster, row, gone, offset..offset + 1)?;
        let lacking = unread.iter().copied().chain(gone.iter());
        let lacking = self.fill_in((row, offset), &mut columns, lacking, known);
        if lacking.count() <= self.shape.level.parities() {
            self.solve(&mut columns, lacking)?;
            return Ok(Some(columns.swap_remove(column)));
        }
        for column in lacking.iter() {
            let sector = self.array_sectors(row, column, offset..offset + 1);
            let named = lost.len().saturating_sub(self.shape.members);
            lost.extend(sector.filter(|sector| !lost[named..].contains(sector)));
        }
        let of_data: Vec<&[u8]> = columns[..data].iter().map(Vec::as_slice).collect();
        let parities = self.parities_of(&of_data);
        columns.splice(data.., parities);
        let is_there = |column: &usize| !gone.has(*column) && !unread.contains(column);
        let parities = (data..self.shape.members).filter(is_there);
        let extents = parities.map(|column| self.extent(row, column, offset, columns[column].clone()));
        let change = RowChange { row, extents: extents.collect() };
        if !change.extents.is_empty() && !self.log_and_apply(&roster, vec![change], true)? {
            return Ok(None);
        }
        for column in unread {
            self.write_unread(&roster, row, (column, offset), columns[column].clone())?;
        }
        Ok(Some(columns.swap_remove(column)))
    }

    /// Sectors at an offset that nobody can tell if this column's cannot be computed: it, if it is of data, and those
    /// of data that cannot be read.
    pub fn lost_at(&self, row: u64, column: usize, offset: u32) -> Result<Vec<Range<u64>>> {
        let roster = self.roster();
        let gone = self.lost_columns(&roster, row).with(column);
        let (_, unread) = self.read_columns(&roster, row, gone, offset..offset + 1)?;
        let lost = unread.into_iter().fold(gone, Columns::with);
        Ok(lost.iter().filter_map(|column| self.array_sectors(row, column, offset..offset + 1)).collect())
    }

    /// Whether nothing was ever written to a member's chunk at `sector`.
    fn is_hole(&self, member: Option<&Arc<Member>>, sector: u64) -> bool {
        let sectors = u64::from(self.shape.chunk_sectors);
        let found = member.map(|member| member.device.allocation(Lba(sector), sectors));
        matches!(found, Some(Ok((Allocation::Hole, alike))) if alike >= sectors)
    }

    /// Writes a chunk to the member that is rebuilt; false if that failed and it is out. Zeros are not written where
    /// nothing was: a file stays sparse, and an array blank that never was written to.
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

    /// Makes parity anew of a row that has zeros where it was given up: data that cannot be read are zeros, too, since
    /// only that parity would tell them. The row stays stale where another column of data is lost, until that is given
    /// up in turn.
    fn resync_given_up(&self, row: u64, lost: &mut Vec<Range<u64>>) -> Result<()> {
        let roster = self.roster();
        if self.lost_columns(&roster, row).iter().any(|column| column < self.shape.data_columns()) {
            return Ok(());
        }
        for (column, offset) in self.unread_data(&roster, row)? {
            lost.extend(self.array_sectors(row, column, offset..offset + 1));
            self.write_unread(&roster, row, (column, offset), vec![0; SECTOR_BYTES])?;
        }
        match self.insist(|| self.try_resync(row)) {
            Err(error) if error.kind() != Kind::PowerLost => self.check_writable(),
            result => result,
        }
    }

    /// Writes data sectors that are known back to where they cannot be read. The caller holds the row.
    pub fn put_back(&self, row: u64, known: &Known) -> Result<()> {
        let roster = self.roster();
        for (sector, content) in known {
            let piece = self.shape.pieces(Lba(*sector), 1).next().expect("one sector");
            let (column, offset) = (piece.column, piece.offset);
            if roster.with_row(self.shape.member_of(row, column), row).is_none() {
                continue;
            }
            let access = self.read_of(row, column, offset..offset + 1);
            if let Err(cause) = self.perform(&roster, vec![access])?.remove(0) {
                self.write_back(&roster, row, (column, offset), content.clone(), &cause)?;
            }
        }
        Ok(())
    }

    /// Sectors of the array at some offsets of a column, if it is one of data.
    pub fn array_sectors(&self, row: u64, column: usize, offsets: Range<u32>) -> Option<Range<u64>> {
        let first = row * self.shape.row_sectors() + column as u64 * u64::from(self.shape.chunk_sectors);
        (column < self.shape.data_columns())
            .then(|| first + u64::from(offsets.start)..first + u64::from(offsets.end))
    }
}
