//! Writes to rows: read according to plan, compute parity, log, write in place.
//!
//! A request for several rows goes through these steps for all of them together, as far as their records fit into the
//! log (a *stretch*): so the data for one member are a single write, and so are its records.

use crate::access::{Access, What, bytes_of, joined};
use crate::change::{NewData, Old};
use crate::core::{Core, ROW_LOCKS, Roster};
use crate::layout::Band;
use crate::log::{Appended, Content, Extent, RowChange, largest_record};
use crate::plan::{Columns, Impossible, Plan, plan};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use vellum_base::{Error, Kind, Lba, Result, SECTOR_BYTES};

/// An operation that was restarted this often because of failing members gives up: there are not that many members.
const ATTEMPTS_MAX: usize = 200;

/// Most rows of a stretch: fewer than there are locks.
const ROWS_MAX: u64 = ROW_LOCKS as u64 / 4;

/// A write to a row.
pub(crate) struct RowWrite<'a> {
    pub row: u64,
    /// Data sectors, counted from the start of the row.
    pub sectors: Range<u64>,
    /// Their content; `None` zeroes the whole row.
    pub bytes: Option<&'a [u8]>,
}

/// Columns that can be neither read nor computed in the rows being written.
#[derive(Default)]
struct Unread {
    /// Columns, by row and first offset of the written band.
    columns: BTreeMap<(u64, u32), Columns>,
    /// Rows that are written sector by sector, as different columns may be unreadable at each offset of a band.
    singly: BTreeSet<u64>,
}

/// What to read of a row, and how to compute its parity.
struct RowPlan {
    lost: Columns,
    bands: Vec<(Band, Plan)>,
}

impl Core {
    /// Most rows of a stretch.
    pub fn rows_together(&self, of_zeros: bool) -> u64 {
        let record = if of_zeros { 1 } else { largest_record(self.shape.chunk_sectors, self.shape.members) };
        self.log.rows_together(self, record).min(ROWS_MAX)
    }

    /// Writes sectors of at most that many rows; zeros if there are no bytes.
    pub fn write_stretch(&self, lba: Lba, sectors: u64, bytes: Option<&[u8]>, fua: bool) -> Result<()> {
        let zeros = self.zeros_of_parts(lba, sectors, bytes);
        let mut rest = bytes;
        let writes = self.shape.rows_of(lba, sectors).map(|(row, sectors)| {
            let count = (sectors.end - sectors.start) as usize * SECTOR_BYTES;
            let bytes = match &mut rest {
                Some(rest) => rest.split_off(..count),
                None if sectors == (0..self.shape.row_sectors()) => None,
                None => zeros.get(..count),
            };
            RowWrite { row, sectors, bytes }
        });
        let writes: Vec<RowWrite<'_>> = writes.collect();
        let (Some(first), Some(last)) = (writes.first(), writes.last()) else { return Ok(()) };
        let _locks = self.lock_rows(first.row..last.row + 1);
        let mut unread = Unread::default();
        self.insist(|| self.try_write(&writes, &mut unread, fua))
    }

    /// A buffer of zeros for rows that are zeroed only in part.
    fn zeros_of_parts(&self, lba: Lba, sectors: u64, bytes: Option<&[u8]>) -> Vec<u8> {
        let counts = self.shape.rows_of(lba, sectors).map(|(_, sectors)| sectors.end - sectors.start);
        let longest = counts.filter(|count| bytes.is_none() && *count < self.shape.row_sectors()).max();
        vec![0; longest.unwrap_or(0) as usize * SECTOR_BYTES]
    }

    /// Repeats attempts until one is done; an attempt returns false if a member failed or a sector was healed. The
    /// caller holds the rows.
    pub fn insist(&self, mut attempt: impl FnMut() -> Result<bool>) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            if attempt()? {
                return Ok(());
            }
        }
        Err(Error::new(Kind::Io, "members fail again and again: look at the devices below the array"))
    }

    fn try_write(&self, writes: &[RowWrite<'_>], unread: &mut Unread, fua: bool) -> Result<bool> {
        let roster = self.begin_change()?;
        let plans = writes.iter().map(|write| self.plan_of(&roster, write, unread));
        let plans = plans.collect::<Result<Vec<_>>>()?;
        let Some(olds) = self.read_bands(&roster, writes, &plans, unread)? else { return Ok(false) };
        let changes = writes.iter().zip(&plans).zip(olds).map(|((write, plan), olds)| {
            let RowWrite { row, sectors, bytes } = write;
            let Some(bytes) = bytes else {
                return Ok(RowChange { row: *row, extents: self.zeros(&roster, *row) });
            };
            let new = NewData { row: *row, start: sectors.start, bytes };
            let mut extents = Vec::new();
            for ((band, of_band), old) in plan.bands.iter().zip(olds) {
                extents.extend(self.new_extents(&new, band, of_band, old, plan.lost)?);
            }
            if unread.singly.contains(row) {
                extents = Extent::joined(extents);
            }
            Ok(RowChange { row: *row, extents })
        });
        let changes = changes.collect::<Result<Vec<_>>>()?;
        let done = self.log_and_apply(&roster, changes, fua)?;
        if done {
            let zeroed = writes.iter().filter(|write| write.bytes.is_none());
            zeroed.for_each(|write| self.stale.clear(write.row));
        }
        Ok(done)
    }

    /// Plans the write of a row. A row that is zeroed needs no plan: its parity is zero, too.
    fn plan_of(&self, roster: &Roster, write: &RowWrite<'_>, unread: &Unread) -> Result<RowPlan> {
        let lost = self.lost_columns(roster, write.row);
        if write.bytes.is_none() {
            return Ok(RowPlan { lost, bands: Vec::new() });
        }
        let stale = self.stale.has(write.row);
        let mut bands = self.shape.bands(write.sectors.clone());
        if unread.singly.contains(&write.row) {
            bands = bands.iter().flat_map(Band::by_sector).collect();
        }
        let bands = bands.into_iter().map(|band| {
            let unread = unread.columns.get(&(write.row, band.offsets.start)).copied().unwrap_or_default();
            let planned = plan(&self.shape, &band, lost, unread, stale)
                .map_err(|why| self.refusal(write.row, lost, band.offsets.clone(), why))?;
            Ok((band, planned))
        });
        Ok(RowPlan { lost, bands: bands.collect::<Result<Vec<_>>>()? })
    }

    /// Zeros in all present chunks of the row. Their record is only a header.
    fn zeros(&self, roster: &Roster, row: u64) -> Vec<Extent> {
        let extents = (0..self.shape.members).filter_map(|column| {
            let (role, sector) = self.place(row, column, 0);
            let content = Content::Zeros(self.shape.chunk_sectors);
            roster.with_row(role, row).map(|_| Extent { role, sector, content })
        });
        extents.collect()
    }

    /// The error for people: names the sectors of these columns at these offsets, or the parity if no data column is
    /// among them.
    pub fn refusal(&self, row: u64, columns: Columns, offsets: Range<u32>, why: Impossible) -> Error {
        let lost = columns.iter().filter_map(|column| self.array_sectors(row, column, offsets.clone()));
        let named: Vec<String> = lost.map(|lost| format!("{}..{}", lost.start, lost.end)).collect();
        let what = match named.is_empty() {
            true => format!("parity of row {row}"),
            false => format!("sectors {}", named.join(", ")),
        };
        let text = match why {
            Impossible::Lost => "more members are lost than parity makes up for",
            Impossible::StaleAndLost => {
                "their parity was put off, or is in doubt, and a member is lost: a cache that has them brings them back \
                 when it is flushed; without one they are lost, and a rebuild that gives them up (--give-up) makes them zeros"
            }
        };
        Error::new(Kind::Io, format!("{what}: {text}"))
    }

    /// Reads according to the plans, all at once; returns content by row and band. `None` if a member was taken out, or
    /// if something unreadable was found: the write must be planned again.
    fn read_bands(
        &self,
        roster: &Roster,
        writes: &[RowWrite<'_>],
        plans: &[RowPlan],
        unread: &mut Unread,
    ) -> Result<Option<Vec<Vec<Old>>>> {
        let mut reads = Vec::new();
        for (i, plan) in plans.iter().enumerate() {
            for (j, (band, planned)) in plan.bands.iter().enumerate() {
                reads.extend(planned.reads.iter().map(|column| (i, j, *column, band)));
            }
        }
        let accesses = reads
            .iter()
            .map(|(i, _, column, band)| self.read_of(writes[*i].row, *column, band.offsets.clone()));
        let results = self.perform(roster, accesses.collect())?;
        let nothing = |plan: &RowPlan| vec![vec![None; self.shape.members]; plan.bands.len()];
        let mut olds: Vec<Vec<Old>> = plans.iter().map(nothing).collect();
        let mut whole = true;
        for ((i, j, column, band), result) in reads.into_iter().zip(results) {
            match result {
                Ok(bytes) => olds[i][j][column] = Some(bytes),
                Err(_) => {
                    let (row, lost) = (writes[i].row, plans[i].lost);
                    match self.heal(roster, row, column, band.offsets.clone()) {
                        Ok(bytes) => olds[i][j][column] = Some(bytes),
                        Err(error) => {
                            self.do_without(row, column, band, lost, unread, error)?;
                            whole = false;
                        }
                    }
                    whole &= self.roster().event == roster.event;
                }
            }
        }
        Ok(whole.then_some(olds))
    }

    /// Notes a column that can be neither read nor computed, so that the next attempt does without. If the band cannot
    /// be written then, its sectors are tried one by one; if it is a single sector, the error is returned.
    fn do_without(
        &self,
        row: u64,
        column: usize,
        band: &Band,
        lost: Columns,
        unread: &mut Unread,
        error: Error,
    ) -> Result<()> {
        if error.kind() == Kind::PowerLost {
            return Err(error);
        }
        if band.sectors() > 1 && unread.singly.contains(&row) {
            return Ok(()); // Which of its sectors it is, the next try says.
        }
        let known = unread.columns.entry((row, band.offsets.start)).or_default();
        *known = known.with(column);
        match plan(&self.shape, band, lost, *known, self.stale.has(row)) {
            Ok(_) => Ok(()),
            Err(_) if band.sectors() > 1 => {
                unread.singly.insert(row);
                unread.columns.retain(|(of, _), _| *of != row);
                Ok(())
            }
            Err(_) => Err(error),
        }
    }

    /// The call that reads a column at some offsets.
    pub fn read_of(&self, row: u64, column: usize, offsets: Range<u32>) -> Access {
        let (role, sector) = self.place(row, column, offsets.start);
        Access { role, sector, what: What::Read(bytes_of(offsets.end - offsets.start)) }
    }

    /// Appends the records, then writes in place. False if the attempt must be repeated.
    pub fn log_and_apply(&self, roster: &Roster, changes: Vec<RowChange>, fua: bool) -> Result<bool> {
        let extents = changes.iter().flat_map(|change| &change.extents);
        // One stuck sector with unknown content may remain: it is tested after the record is appended.
        if !self.check_takes(roster, extents.map(Extent::place), 1)? {
            return Ok(false);
        }
        self.log_and_apply_after(roster, changes, fua, || Ok(()))
    }

    /// The same, with `first` called between the two. If that fails nothing changes in place, and the records are
    /// dropped.
    pub fn log_and_apply_after(
        &self,
        roster: &Roster,
        changes: Vec<RowChange>,
        fua: bool,
        first: impl FnOnce() -> Result<()>,
    ) -> Result<bool> {
        let ticket = match self.log.append(self, roster, &changes)? {
            Appended::Durable(ticket) => ticket,
            Appended::Again => return Ok(false),
        };
        let rows: Vec<u64> = changes.iter().map(|change| change.row).collect();
        rows.iter().try_for_each(|row| self.intend(*row))?;
        let extents = changes.into_iter().flat_map(|change| change.extents);
        let writes: Vec<Access> = extents.map(|extent| extent.write(fua)).collect();
        let result = first()
            .and_then(|()| self.try_untold(roster, &writes))
            .and_then(|_| self.change_all(roster, joined(writes)));
        let is_refused = result.is_err() && self.check_writable().is_ok();
        rows.iter().for_each(|row| match result {
            // The array has ended, and the row may be partly new and partly old: nothing may be computed from its
            // parity.
            Err(_) if !is_refused => self.stale.doubt(*row),
            _ => self.intended(*row),
        });
        self.log.complete(ticket);
        if is_refused {
            rows.iter().try_for_each(|row| self.log.settle(self, *row))?;
        }
        result.map(|()| true)
    }
}
