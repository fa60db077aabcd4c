//! What a rebuild gives up: sectors that cannot be computed, as their member is missing and another's sector cannot be
//! read, or as parity of their row is deferred.
//!
//! 1. Lost sectors are reported before they become zeros, even if the rebuild fails later; so are the other unreadable
//!    sectors at the same offset that depend on them. A cache is asked first and supplies those that it holds.
//! 2. Parity at their offset is recomputed with the zeros, and data and parity are written with one record, so that
//!    nothing that never existed is ever computed from them. An unreadable sector is written first: if it takes no
//!    write, its member is taken out; or, if the array cannot do without, the record is dropped and the rebuild fails.
//! 3. In a row whose parity is deferred nothing can be computed. Its unreadable sectors are written before the rest; if
//!    one takes no write, the rebuild fails before the row changes.

use crate::access::bytes_of;
use crate::core::Core;
use crate::log::{Extent, RowChange};
use crate::plan::Columns;
use crate::stuck::takes_no_write;
use std::collections::BTreeMap;
use std::ops::Range;
use vellum_base::{Kind, Lba, Result, SECTOR_BYTES};

/// How many of the last reported sectors are compared: more than repeated attempts report at an offset, or in a stale
/// row.
const LATELY: usize = 64;

/// Content of sectors that a cache knows, by sector of the array.
pub(crate) type Known = BTreeMap<u64, Vec<u8>>;
/// Keeps others from changing a row until it is dropped.
pub(crate) type Held = Box<dyn Send>;
/// Called before sectors of a row are given up; returns what is known of the row.
pub(crate) type GiveUp<'a> = &'a mut dyn FnMut(u64) -> Result<(Known, Held)>;

/// What has been given up so far.
#[derive(Default)]
pub(crate) struct GivenUp {
    /// Sectors of the array that are zeros now.
    pub lost: Vec<Range<u64>>,
}

impl GivenUp {
    /// Reports a sector unless it was reported recently: an attempt may be repeated.
    fn name(&mut self, sector: Range<u64>) {
        if !self.lost.iter().rev().take(LATELY).any(|named| *named == sector) {
            self.lost.push(sector);
        }
    }
}

impl Core {
    /// Content of a column, computed from the others. Sectors that cannot be computed are taken from `known`, or become
    /// zeros.
    pub fn rebuilt_bytes(
        &self,
        row: u64,
        column: usize,
        known: Option<&Known>,
        given: &mut GivenUp,
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
                    None => self.give_up_at((row, column, offset), known, given),
                }
            }
            result => result,
        });
        Ok(sectors.collect::<Result<Vec<_>>>()?.concat())
    }

    /// Content of a column of a stale row: zeros, except for `known` sectors.
    pub fn chunk_given_up(&self, row: u64, column: usize, known: &Known, given: &mut GivenUp) -> Vec<u8> {
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
        given.lost.append(&mut zeros);
        bytes
    }

    /// Gives up a sector of a column that cannot be computed: all data at its offset that cannot be read or computed
    /// become zeros.
    fn give_up_at(
        &self,
        (row, column, offset): (u64, usize, u32),
        known: &Known,
        given: &mut GivenUp,
    ) -> Result<Vec<u8>> {
        let mut bytes = None;
        self.insist(|| {
            bytes = self.try_give_up((row, column, offset), known, given)?;
            Ok(bytes.is_some())
        })?;
        Ok(bytes.unwrap_or_default())
    }

    /// One attempt: returns the column's content. Everything else at the offset that becomes zeros is in the record,
    /// including unreadable sectors.
    fn try_give_up(
        &self,
        (row, column, offset): (u64, usize, u32),
        known: &Known,
        given: &mut GivenUp,
    ) -> Result<Option<Vec<u8>>> {
        let (roster, data) = (self.begin_change()?, self.shape.data_columns());
        let gone = self.lost_columns(&roster, row).with(column);
        let (mut columns, unread) = self.read_columns(&roster, row, gone, offset..offset + 1)?;
        if self.roster().event != roster.event {
            return Ok(None); // Somebody is gone, whose sector is not one that cannot be read.
        }
        let lacking = unread.iter().copied().chain(gone.iter());
        let lacking = self.fill_in((row, offset), &mut columns, lacking, known);
        if lacking.count() <= self.shape.level.parities() {
            self.solve(&mut columns, lacking)?;
            return Ok(Some(columns.swap_remove(column)));
        }
        let lost = lacking.iter().filter_map(|column| self.array_sectors(row, column, offset..offset + 1));
        lost.for_each(|sector| given.name(sector));
        let of_data: Vec<&[u8]> = columns[..data].iter().map(Vec::as_slice).collect();
        let parities = self.parities_of(&of_data);
        columns.splice(data.., parities);
        let is_written = |column: &usize| !gone.has(*column) && (*column >= data || unread.contains(column));
        let written = (0..self.shape.members).filter(is_written);
        let extents: Vec<Extent> =
            written.map(|column| self.extent(row, column, offset, columns[column].clone())).collect();
        // Only one unreadable sector may be left untested: preferably one known to be stuck. Others that are stuck take
        // their member out, or the change is refused.
        let is_known = |column: &&usize| self.is_stuck(&roster, self.place(row, **column, offset));
        let unread = unread.iter().find(is_known).or(unread.first());
        let unread = unread.map(|column| (self.place(row, *column, offset), columns[*column].clone()));
        let first = unread.as_ref().map(|(place, _)| *place);
        let others = extents.iter().map(Extent::place);
        let others = others.filter(|(role, sectors)| Some((*role, sectors.start)) != first);
        if !self.check_takes(&roster, others, 0)? {
            return Ok(None);
        }
        let first =
            || unread.map_or(Ok(()), |(place, bytes)| self.write_or_fail(&roster, place, bytes).map(drop));
        let done = self.log_and_apply_after(&roster, vec![RowChange { row, extents }], true, first)?;
        Ok(done.then(|| columns.swap_remove(column)))
    }

    /// The sectors that are lost at an offset if this column cannot be computed: its own, if it is a data column, and
    /// all other data sectors that cannot be read.
    pub fn lost_at(&self, row: u64, column: usize, offset: u32) -> Result<Vec<Range<u64>>> {
        let roster = self.roster();
        let gone = self.lost_columns(&roster, row).with(column);
        let (_, unread) = self.read_columns(&roster, row, gone, offset..offset + 1)?;
        let lost = unread.into_iter().fold(gone, Columns::with);
        Ok(lost.iter().filter_map(|column| self.array_sectors(row, column, offset..offset + 1)).collect())
    }

    /// Replaces unreadable data of a stale row by what is known, or by zeros, as they cannot be computed. Returns the
    /// new content. Fails for a sector that takes no write, even if its member could be spared: without that member
    /// other stale rows would lose data.
    pub fn give_up_unread(&self, row: u64, known: &Known, given: &mut GivenUp) -> Result<Known> {
        let (roster, mut told) = (self.begin_change()?, Known::new());
        for (column, offset, cause) in self.unread_data(&roster, row)? {
            let Some(lost) = self.array_sectors(row, column, offset..offset + 1) else { continue };
            let bytes = known.get(&lost.start).cloned().unwrap_or_else(|| {
                given.name(lost.clone());
                vec![0; SECTOR_BYTES]
            });
            let (role, sector) = self.place(row, column, offset);
            let written = self.write_unread(&roster, (role, sector), bytes.clone())?;
            written
                .map_err(|e| takes_no_write(role, sector..sector + 1, &format!("{cause}; written: {e}")))?;
            told.insert(lost.start, bytes);
        }
        Ok(told)
    }

    /// Recomputes parity of a row in which sectors were given up; `told` has the content of those. The row stays stale
    /// while another data column is lost, until that is given up in turn.
    pub fn resync_given_up(&self, row: u64, told: &Known) -> Result<()> {
        let roster = self.roster();
        if self.lost_columns(&roster, row).iter().any(|column| column < self.shape.data_columns()) {
            return Ok(());
        }
        self.insist(|| {
            let roster = self.begin_change()?;
            let extents = self.parity_of_data(&roster, row, told)?;
            self.finish_parity(&roster, row, extents)
        })
    }

    /// Writes known data sectors back where they cannot be read. Failures are ignored, as the content stays known. The
    /// caller holds the row.
    pub fn put_back(&self, row: u64, known: &Known) -> Result<()> {
        let roster = self.roster();
        for (sector, content) in known {
            let piece = self.shape.pieces(Lba(*sector), 1).next().expect("one sector");
            if roster.with_row(self.shape.member_of(row, piece.column), row).is_none() {
                continue;
            }
            let access = self.read_of(row, piece.column, piece.offset..piece.offset + 1);
            if self.perform(&roster, vec![access])?.remove(0).is_ok() {
                continue;
            }
            let place = self.place(row, piece.column, piece.offset);
            let _ = self.write_unread(&roster, place, content.clone())?;
        }
        Ok(())
    }
}
