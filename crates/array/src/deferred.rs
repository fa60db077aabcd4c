//! Deferred parity: the two interfaces of KDD (kdd.txt, section III.A; Lee et al., SAC 2015), and what makes them safe.
//!
//! 1. A row is marked stale in the bitmap before its data change without its parity.
//! 2. The parity of a stale row lacks exactly the deltas of the writes without it; other writes to the row are
//!    read-modify-write. [`Array::parity_update`] with all those deltas makes parity current; [`Array::resync`]
//!    recomputes it from data.
//! 3. No log record of a row is live when the row changes without one: a replay would undo the change.
//! 4. A row stays stale on the members until its data, which may have been written without a record, are durable.

use crate::access::{Access, What, bytes_of};
use crate::array::Array;
use crate::change::add_delta;
use crate::core::{Core, Roster};
use crate::give_up::Known;
use crate::log::{Content, EXTENTS_MAX, Extent, RowChange};
use crate::plan::{Columns, Impossible};
use std::collections::BTreeMap;
use std::ops::Range;
use vellum_base::{Error, Kind, Lba, Result, SECTOR_BYTES};

/// Most runs of sectors that are updated separately, for each parity.
const RUNS_MAX: usize = 100;

/// Difference between a sector's new version and the one that parity covers.
#[derive(Clone, Copy, Debug)]
pub struct Delta<'a> {
    /// The sector.
    pub lba: Lba,
    /// XOR of the two versions, one sector long.
    pub bytes: &'a [u8],
}

impl Array {
    /// Writes sectors of one row in place without updating parity; the row is stale from then on. The caller must keep
    /// the deltas to the previous content and pass them all to [`Array::parity_update`].
    ///
    /// # Errors
    /// [`Kind::Unsupported`] if a member of the row is lost: there would be no redundancy, so write with parity.
    pub fn write_without_parity_update(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        let row = self.one_row(lba, data)?;
        let core = self.core();
        let _lock = core.lock_row(row);
        core.insist(|| {
            core.check_can_defer(&core.roster(), row)?;
            core.try_write_data(lba, data, fua)
        })
    }

    /// The same, whatever is lost or stale, for a cache that has already added the deltas to those it keeps: they cover
    /// what a lost member would have got. Parity must be updated at once.
    pub(crate) fn write_data_only(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        let row = self.one_row(lba, data)?;
        let _lock = self.core().lock_row(row);
        self.core().insist(|| self.core().try_write_data(lba, data, fua))
    }

    fn one_row(&self, lba: Lba, data: &[u8]) -> Result<u64> {
        let sectors = self.bounds().check_buffer(lba, data.len())?;
        let row = self.row_of(lba);
        if sectors == 0 || self.row_of(Lba(lba.0 + sectors - 1)) != row {
            return Err(Error::invalid("parity is put off for sectors of one row at a time"));
        }
        Ok(row)
    }

    /// Adds deltas of a row's sectors to its parity, which is current then. `deltas` must be all that were deferred
    /// since.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if a delta is not of this row or not a sector long.
    pub fn parity_update(&self, row: u64, deltas: &[Delta<'_>]) -> Result<()> {
        self.parity_update_knowing(row, deltas, &Known::new())
    }

    /// The same; `known` has current data sectors of the row, whether their members have them or not.
    pub(crate) fn parity_update_knowing(&self, row: u64, deltas: &[Delta<'_>], known: &Known) -> Result<()> {
        let core = self.core();
        core.check_deltas(row, deltas)?;
        let _lock = core.lock_row(row);
        core.insist(|| core.try_parity_update(row, deltas, known))
    }

    /// Recomputes the parity of a row from its data, which must all be readable.
    pub fn resync(&self, row: u64) -> Result<()> {
        let core = self.core();
        if row >= core.shape.rows {
            return Err(Error::invalid(format!("row {row} is beyond the last, {}", core.shape.rows - 1)));
        }
        core.resync_row(row)
    }

    /// At most `limit` stale rows from `first` on.
    pub fn stale_rows(&self, first: u64, limit: usize) -> Vec<u64> {
        self.core().stale.ones(first, limit)
    }

    /// True if the row's parity is deferred.
    pub fn is_stale(&self, row: u64) -> bool {
        self.core().stale.has(row)
    }

    /// The row of a sector.
    pub fn row_of(&self, lba: Lba) -> u64 {
        lba.0 / self.core().shape.row_sectors()
    }
}

impl Core {
    /// Marks the row stale and writes data to the members that are present, with the row's lock held. A member that
    /// fails is taken out: parity then covers only its old version, and the new one is lost.
    fn try_write_data(&self, lba: Lba, data: &[u8], fua: bool) -> Result<bool> {
        let roster = self.begin_change()?;
        let row = lba.0 / self.shape.row_sectors();
        let mut rest = data;
        let mut writes = Vec::new();
        for piece in self.shape.pieces(lba, (data.len() / SECTOR_BYTES) as u64) {
            let (bytes, behind) = rest.split_at(bytes_of(piece.sectors));
            rest = behind;
            let (role, sector) = self.place(row, piece.column, piece.offset);
            if roster.with_row(role, row).is_some() {
                writes.push(Access { role, sector, what: What::Write(bytes.to_vec(), fua) });
            }
        }
        self.log.settle(self, row)?;
        // A row that is not stale yet must not become so for a write that is then refused.
        let untold = usize::from(self.stale.has(row));
        if !self.check_takes(&roster, writes.iter().map(Access::place), untold)? {
            return Ok(false);
        }
        self.stale.set(self, row)?;
        if !self.try_untold(&roster, &writes)? {
            return Ok(false);
        }
        let roles: Vec<usize> = writes.iter().map(|write| write.role).collect();
        let mut whole = true;
        for (role, result) in roles.into_iter().zip(self.perform(&roster, writes)?) {
            if let Err(error) = result {
                self.fail(&roster, role, &error.to_string())?;
                whole = false;
            }
        }
        Ok(whole)
    }

    fn check_can_defer(&self, roster: &Roster, row: u64) -> Result<()> {
        if self.lost_columns(roster, row).count() > 0 {
            let why = "a member of the row is lost: parity cannot be put off, write with it";
            return Err(Error::new(Kind::Unsupported, why));
        }
        Ok(())
    }

    fn check_deltas(&self, row: u64, deltas: &[Delta<'_>]) -> Result<()> {
        let row_of = |delta: &Delta<'_>| delta.lba.0 / self.shape.row_sectors();
        let wrong = |delta: &&Delta<'_>| row_of(delta) != row || delta.bytes.len() != SECTOR_BYTES;
        if row >= self.shape.rows || deltas.iter().any(|delta| wrong(&delta)) {
            return Err(Error::invalid(format!("deltas must be whole sectors of row {row}")));
        }
        Ok(())
    }

    /// Updates parity, one run of sectors after the other, with a single record. Lost parity columns are skipped.
    fn try_parity_update(&self, row: u64, deltas: &[Delta<'_>], known: &Known) -> Result<bool> {
        let roster = self.begin_change()?;
        if !self.stale.has(row) {
            return Ok(true); // Whoever had the row before made its parity whole.
        }
        let lost = self.lost_columns(&roster, row);
        let mut offsets: Vec<u32> = deltas.iter().map(|delta| self.place_of(delta).1).collect();
        offsets.sort_unstable();
        offsets.dedup();
        let mut extents = Vec::new();
        for run in runs(&offsets) {
            match self.updated_parity(&roster, row, &run, lost, deltas)? {
                Some(updated) => extents.extend(updated),
                None => extents.extend(self.computed_parity(&roster, (row, &run), lost, deltas, known)?),
            }
        }
        if extents.len() > EXTENTS_MAX {
            let what = format!("parity of row {row}: it cannot be read in too many places for one record");
            return Err(Error::new(Kind::Io, what));
        }
        self.finish_parity(&roster, row, extents)
    }

    /// New parity at these offsets; `None` if some of it cannot be read.
    fn updated_parity(
        &self,
        roster: &Roster,
        row: u64,
        run: &Range<u32>,
        lost: Columns,
        deltas: &[Delta<'_>],
    ) -> Result<Option<Vec<Extent>>> {
        let mut updated = Vec::new();
        for column in self.parity_columns().filter(|column| !lost.has(*column)) {
            let access = self.read_of(row, column, run.clone());
            let Ok(mut parity) = self.perform(roster, vec![access])?.remove(0) else { return Ok(None) };
            self.add_deltas(&mut parity, column, run, deltas);
            updated.push(self.extent(row, column, run.start, parity));
        }
        Ok(Some(updated))
    }

    /// The parity columns.
    pub fn parity_columns(&self) -> Range<usize> {
        self.shape.data_columns()..self.shape.members
    }

    /// An extent with new content of a column from this offset on.
    pub fn extent(&self, row: u64, column: usize, offset: u32, bytes: Vec<u8>) -> Extent {
        let (role, sector) = self.place(row, column, offset);
        Extent { role, sector, content: Content::Bytes(bytes) }
    }

    /// Adds those deltas that lie in `run` to a parity column.
    fn add_deltas(&self, parity: &mut [u8], column: usize, run: &Range<u32>, deltas: &[Delta<'_>]) {
        for delta in deltas {
            let (of, offset) = self.place_of(delta);
            if run.contains(&offset) {
                let at = (offset - run.start) as usize * SECTOR_BYTES;
                let parity = &mut parity[at..at + SECTOR_BYTES];
                add_delta(parity, column - self.shape.data_columns(), delta.bytes, of);
            }
        }
    }

    /// The same, offset by offset: parity that cannot be read is computed from the rest of the row. Offsets without a
    /// delta are skipped if they cannot be computed.
    fn computed_parity(
        &self,
        roster: &Roster,
        (row, run): (u64, &Range<u32>),
        lost: Columns,
        deltas: &[Delta<'_>],
        known: &Known,
    ) -> Result<Vec<Extent>> {
        let mut computed = Vec::new();
        for offset in run.clone() {
            match self.parity_at(roster, (row, offset), lost, deltas, known) {
                Ok(parity) => computed.extend(
                    parity.into_iter().map(|(column, bytes)| self.extent(row, column, offset, bytes)),
                ),
                Err(error) => {
                    let changes = deltas.iter().any(|delta| self.place_of(delta).1 == offset);
                    if changes || error.kind() == Kind::PowerLost {
                        return Err(error);
                    }
                    self.check_writable()?;
                }
            }
        }
        Ok(Extent::joined(computed))
    }

    /// New content of the present parity columns at an offset.
    fn parity_at(
        &self,
        roster: &Roster,
        (row, offset): (u64, u32),
        lost: Columns,
        deltas: &[Delta<'_>],
        known: &Known,
    ) -> Result<BTreeMap<usize, Vec<u8>>> {
        let (mut told, mut missing) = (BTreeMap::new(), Columns::default());
        for column in self.parity_columns().filter(|column| !lost.has(*column)) {
            let access = self.read_of(row, column, offset..offset + 1);
            match self.perform(roster, vec![access])?.remove(0) {
                Err(_) => missing = missing.with(column),
                Ok(mut parity) => {
                    self.add_deltas(&mut parity, column, &(offset..offset + 1), deltas);
                    told.insert(column, parity);
                }
            }
        }
        if missing.count() > 0 {
            let unknown = missing.iter().fold(lost, Columns::with);
            let mut columns = self.compute_row_at(roster, (row, offset), unknown, &told, known)?;
            told.extend(missing.iter().map(|column| (column, std::mem::take(&mut columns[column]))));
        }
        Ok(told)
    }

    /// All columns at an offset where those in `unknown` are missing: solved from data, from `known` sectors, and from
    /// the parity columns in `told`, which are current.
    fn compute_row_at(
        &self,
        roster: &Roster,
        (row, offset): (u64, u32),
        unknown: Columns,
        told: &BTreeMap<usize, Vec<u8>>,
        known: &Known,
    ) -> Result<Vec<Vec<u8>>> {
        let but = self.parity_columns().fold(unknown, Columns::with);
        let (mut columns, failed) = self.read_columns(roster, row, but, offset..offset + 1)?;
        told.iter().for_each(|(column, parity)| columns[*column].clone_from(parity));
        let lacking =
            self.fill_in((row, offset), &mut columns, failed.into_iter().chain(unknown.iter()), known);
        if lacking.count() > self.shape.level.parities() {
            return Err(self.refusal(row, lacking, offset..offset + 1, Impossible::Lost));
        }
        self.solve(&mut columns, lacking)?;
        Ok(columns)
    }

    /// Fills in columns that could not be read where their sector is `known`; returns the others.
    pub fn fill_in(
        &self,
        (row, offset): (u64, u32),
        columns: &mut [Vec<u8>],
        unread: impl Iterator<Item = usize>,
        known: &Known,
    ) -> Columns {
        let mut lacking = Columns::default();
        for column in unread {
            let sector = self.array_sectors(row, column, offset..offset + 1);
            match sector.and_then(|sector| known.get(&sector.start)) {
                Some(content) => columns[column].clone_from(content),
                None => lacking = lacking.with(column),
            }
        }
        lacking
    }

    /// Column and offset of a delta.
    fn place_of(&self, delta: &Delta<'_>) -> (usize, u32) {
        let piece = self.shape.pieces(delta.lba, 1).next().expect("one sector");
        (piece.column, piece.offset)
    }

    /// Recomputes parity from data, whatever it was.
    pub fn resync_row(&self, row: u64) -> Result<()> {
        let _lock = self.lock_row(row);
        self.insist(|| self.try_resync(row))
    }

    /// One attempt, with the row's lock held.
    pub fn try_resync(&self, row: u64) -> Result<bool> {
        let roster = self.begin_change()?;
        let extents = self.parity_of_data(&roster, row, &Known::new())?;
        self.finish_parity(&roster, row, extents)
    }

    /// Parity computed from the row's data; `known` replaces sectors that cannot be read.
    pub fn parity_of_data(&self, roster: &Roster, row: u64, known: &Known) -> Result<Vec<Extent>> {
        let lost = self.lost_columns(roster, row);
        let data = self.shape.data_columns();
        let all = 0..self.shape.chunk_sectors;
        if (0..data).any(|column| lost.has(column)) {
            return Err(self.refusal(row, lost, all, Impossible::StaleAndLost));
        }
        let parities: Columns = (data..self.shape.members).collect();
        let (mut columns, failed) = self.read_columns(roster, row, parities, all.clone())?;
        for column in failed {
            let sectors = all.clone().map(|offset| self.read_knowing(roster, row, (column, offset), known));
            columns[column] = sectors.collect::<Result<Vec<_>>>()?.concat();
        }
        let columns: Vec<&[u8]> = columns[..data].iter().map(Vec::as_slice).collect();
        let extents = (data..).zip(self.parities_of(&columns)).filter(|(column, _)| !lost.has(*column));
        let extents = extents.map(|(column, bytes)| self.extent(row, column, 0, bytes));
        Ok(extents.collect())
    }

    /// A data sector, from `known` or read from its member. It cannot be recovered, as parity is about to be
    /// recomputed.
    fn read_knowing(
        &self,
        roster: &Roster,
        row: u64,
        (column, offset): (usize, u32),
        known: &Known,
    ) -> Result<Vec<u8>> {
        let sector = self.array_sectors(row, column, offset..offset + 1);
        if let Some(content) = sector.and_then(|sector| known.get(&sector.start)) {
            return Ok(content.clone());
        }
        let access = self.read_of(row, column, offset..offset + 1);
        self.perform(roster, vec![access])?.remove(0).map_err(|_| {
            let lost = Columns::default().with(column);
            self.refusal(row, lost, offset..offset + 1, Impossible::StaleAndLost)
        })
    }

    /// Writes parity; the row is no longer stale. After a crash it still is, until data that were written without
    /// parity are durable.
    pub fn finish_parity(&self, roster: &Roster, row: u64, extents: Vec<Extent>) -> Result<bool> {
        let done = self.log_and_apply(roster, vec![RowChange { row, extents }], !self.log.is_on(self))?;
        if done {
            self.stale.clear_when_flushed(row);
        }
        Ok(done)
    }
}

/// Consecutive runs in a sorted list; a single one over everything if they are too many for a record.
fn runs(numbers: &[u32]) -> Vec<Range<u32>> {
    let runs: Vec<_> =
        numbers.chunk_by(|a, b| a + 1 == *b).map(|run| run[0]..run[run.len() - 1] + 1).collect();
    match (runs.first(), runs.last()) {
        (Some(first), Some(last)) if runs.len() > RUNS_MAX => {
            std::iter::once(first.start..last.end).collect()
        }
        _ => runs,
    }
}
