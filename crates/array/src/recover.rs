//! Recovery of unreadable sectors from the other members; the content is written back in place.
//!
//! 1. Nothing is recovered from deferred parity.
//! 2. An unreadable sector that is written back without an error is healed, as drives remap such sectors. If it is
//!    unreadable again later, it is computed and written back on every read. A sector that takes no write costs its
//!    member, if the array can do without and no row is stale: a read must not lose data.
//! 3. A member that is gone, or shorter than before ([`Kind::Gone`]), is taken out at once; nothing is written back to
//!    it.

use crate::access::bytes_of;
use crate::core::{Core, Roster};
use crate::plan::{Columns, Impossible};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use vellum_base::{Error, Kind, Result, SECTOR_BYTES};
use vellum_codes::parity;

impl Core {
    /// Reads a run of sectors of one column, recovering them if necessary. The caller holds the row.
    pub fn read_surely(&self, row: u64, column: usize, offsets: Range<u32>) -> Result<Vec<u8>> {
        let roster = self.roster();
        if roster.with_row(self.shape.member_of(row, column), row).is_none() {
            return self.recover(&roster, row, column, offsets);
        }
        let access = self.read_of(row, column, offsets.clone());
        match self.perform(&roster, vec![access])?.remove(0) {
            Ok(bytes) => Ok(bytes),
            Err(_) => self.heal(&roster, row, column, offsets),
        }
    }

    /// Reads sectors of a present member one by one, recovers the unreadable ones and writes them back. The caller
    /// holds the row. A member that takes no write is taken out if it can be spared.
    pub fn heal(&self, roster: &Roster, row: u64, column: usize, offsets: Range<u32>) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(bytes_of(offsets.end - offsets.start));
        for offset in offsets.clone() {
            let access = self.read_of(row, column, offset..offset + 1);
            let sector = match self.perform(roster, vec![access])?.remove(0) {
                Ok(sector) => sector,
                Err(error) if error.kind() == Kind::Gone => {
                    self.lose_column(roster, row, column, &error)?;
                    return self.recover(roster, row, column, offsets);
                }
                Err(error) => match self.heal_sector(roster, row, column, offset, &error)? {
                    Some(sector) => sector,
                    None => return self.recover(roster, row, column, offsets),
                },
            };
            out.extend_from_slice(&sector);
        }
        Ok(out)
    }

    /// Recovers a sector and writes it back. `None` if that failed and the member is out. A member that the array
    /// cannot do without stays, and so does any member while rows are stale: the recovered content is returned all the
    /// same.
    fn heal_sector(
        &self,
        roster: &Roster,
        row: u64,
        column: usize,
        offset: u32,
        cause: &Error,
    ) -> Result<Option<Vec<u8>>> {
        let bytes = self.recover(roster, row, column, offset..offset + 1)?;
        if self.ended().is_some() {
            return Ok(Some(bytes));
        }
        let place = self.place(row, column, offset);
        let is_out = match self.write_unread(roster, place, bytes.clone())? {
            Ok(()) => false,
            Err(error) => {
                let why = format!("{cause}; written back: {error}");
                match error.kind() {
                    Kind::Gone => self.fail(roster, place.0, &why).map(|()| true)?,
                    _ => self.stale.count() == 0 && self.fail_if_spare(roster, place.0, &why)?,
                }
            }
        };
        Ok((!is_out).then_some(bytes))
    }

    /// Takes out the member of a column, as it is gone. An array that has ended only reads without it.
    fn lose_column(&self, roster: &Roster, row: u64, column: usize, error: &Error) -> Result<()> {
        match self.ended() {
            Some(_) => Ok(()),
            None => self.fail(roster, self.shape.member_of(row, column), &error.to_string()),
        }
    }

    /// Computes a run of one column from the others. The caller holds the row.
    pub fn recover(&self, roster: &Roster, row: u64, column: usize, offsets: Range<u32>) -> Result<Vec<u8>> {
        let lost = self.lost_columns(roster, row).with(column);
        match self.recover_without(roster, row, column, lost, offsets.clone()) {
            Err(error) if error.kind() != Kind::PowerLost && offsets.end - offsets.start > 1 => {
                // Each sector may lack a different column: retry one by one.
                let sectors = offsets.map(|at| self.recover_without(roster, row, column, lost, at..at + 1));
                Ok(sectors.collect::<Result<Vec<_>>>()?.concat())
            }
            result => result,
        }
    }

    /// Recovers without the lost columns, and without others that turn out to be unreadable.
    fn recover_without(
        &self,
        roster: &Roster,
        row: u64,
        column: usize,
        mut lost: Columns,
        offsets: Range<u32>,
    ) -> Result<Vec<u8>> {
        let asked = Columns::default().with(column);
        if self.stale.has(row) {
            return Err(self.refusal(row, asked, offsets, Impossible::StaleAndLost));
        }
        while lost.count() <= self.shape.level.parities() {
            let (mut columns, failed) = self.read_columns(roster, row, lost, offsets.clone())?;
            match failed.first() {
                Some(other) => lost = lost.with(*other),
                None => {
                    self.solve(&mut columns, lost)?;
                    let recovered = columns.swap_remove(column);
                    self.counters
                        .recovered_sectors
                        .fetch_add((recovered.len() / SECTOR_BYTES) as u64, Relaxed);
                    return Ok(recovered);
                }
            }
        }
        Err(self.refusal(row, asked, offsets, Impossible::Lost))
    }

    /// Unreadable data sectors of members that have the row: column, offset and error. A member that is gone is taken
    /// out.
    pub fn unread_data(&self, roster: &Roster, row: u64) -> Result<Vec<(usize, u32, Error)>> {
        let (all, mut unread) = (0..self.shape.chunk_sectors, Vec::new());
        let but = self.parity_columns().fold(self.lost_columns(roster, row), Columns::with);
        let (_, failed) = self.read_columns(roster, row, but, all.clone())?;
        for column in failed {
            let before = unread.len();
            for offset in all.clone() {
                let access = self.read_of(row, column, offset..offset + 1);
                match self.perform(roster, vec![access])?.remove(0) {
                    Ok(_) => {}
                    Err(error) if error.kind() == Kind::Gone => {
                        unread.truncate(before);
                        self.lose_column(roster, row, column, &error)?;
                        break;
                    }
                    Err(error) => unread.push((column, offset, error)),
                }
            }
        }
        Ok(unread)
    }

    /// Computes the lost columns from the others.
    pub fn solve(&self, columns: &mut [Vec<u8>], lost: Columns) -> Result<()> {
        let lost: Vec<usize> = lost.iter().collect();
        parity::recover(columns, self.shape.level.parities(), &lost)
            .map_err(|error| Error::new(Kind::Io, error.to_string()))
    }

    /// Reads all columns except the lost ones. Returns them, with zeros for lost and unreadable ones, and the list of
    /// unreadable ones. A member that is gone is taken out.
    pub fn read_columns(
        &self,
        roster: &Roster,
        row: u64,
        lost: Columns,
        offsets: Range<u32>,
    ) -> Result<(Vec<Vec<u8>>, Vec<usize>)> {
        let present: Vec<usize> = (0..self.shape.members).filter(|column| !lost.has(*column)).collect();
        let accesses = present.iter().map(|column| self.read_of(row, *column, offsets.clone()));
        let results = self.perform(roster, accesses.collect())?;
        let mut columns = vec![vec![0; bytes_of(offsets.end - offsets.start)]; self.shape.members];
        let mut failed = Vec::new();
        for (column, result) in present.into_iter().zip(results) {
            match result {
                Ok(bytes) => columns[column] = bytes,
                Err(error) => {
                    if error.kind() == Kind::Gone {
                        self.lose_column(roster, row, column, &error)?;
                    }
                    failed.push(column);
                }
            }
        }
        Ok((columns, failed))
    }
}
