//! Writes to one row: read what the plan says, make the new parity, log, write in place.

use crate::core::{Access, Core, Roster, What, bytes_of};
use crate::layout::Band;
use crate::log::{Appended, Content, Extent};
use crate::plan::{Columns, Impossible, Mode, Plan, plan};
use std::ops::Range;
use vellum_base::{Error, Kind, Result, SECTOR_BYTES};
use vellum_codes::parity;

/// An operation that has begun anew so often for members that fail is given up: there are not so many members.
const ATTEMPTS_MAX: usize = 200;

/// What to write to some data sectors of a row.
pub(crate) struct RowWrite<'a> {
    pub row: u64,
    /// Data sectors within the row.
    pub sectors: Range<u64>,
    pub bytes: &'a [u8],
    pub fua: bool,
}

/// New content of a column at some offsets.
pub(crate) struct Change {
    pub column: usize,
    pub offset: u32,
    pub bytes: Vec<u8>,
}

/// What has been read of a band, by column.
type Old = Vec<Option<Vec<u8>>>;

impl Core {
    /// Writes into a row.
    pub fn write_row(&self, write: &RowWrite<'_>) -> Result<()> {
        let _lock = self.lock_row(write.row);
        self.insist(|| self.try_write(write))
    }

    /// Zeros a whole row; its parity is zero, too. Nothing but a header is logged.
    pub fn zero_row(&self, row: u64, fua: bool) -> Result<()> {
        let _lock = self.lock_row(row);
        self.insist(|| {
            self.begin_change()?;
            let roster = self.roster();
            let extents = (0..self.shape.members).filter_map(|column| {
                let (role, sector) = self.place(row, column, 0);
                let content = Content::Zeros(self.shape.chunk_sectors);
                roster.with_row(role, row).map(|_| Extent { role, sector, content })
            });
            let done = self.log_and_apply(&roster, row, extents.collect(), fua)?;
            if done {
                self.stale.clear(row);
            }
            Ok(done)
        })
    }

    /// Tries until done; a try ends early when a member failed or a sector was healed.
    pub fn insist(&self, mut attempt: impl FnMut() -> Result<bool>) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            if attempt()? {
                return Ok(());
            }
        }
        Err(Error::new(Kind::Io, "members fail again and again: look at the devices below the array"))
    }

    fn try_write(&self, write: &RowWrite<'_>) -> Result<bool> {
        self.begin_change()?;
        let roster = self.roster();
        let lost = self.lost_columns(&roster, write.row);
        let stale = self.stale.has(write.row);
        let bands = self.shape.bands(write.sectors.clone());
        let plans = bands.into_iter().map(|band| {
            let planned = plan(&self.shape, &band, lost, stale)
                .map_err(|why| self.refusal(write.row, lost, band.offsets.clone(), why))?;
            Ok((band, planned))
        });
        let plans = plans.collect::<Result<Vec<(Band, Plan)>>>()?;
        let Some(olds) = self.read_bands(&roster, write.row, &plans)? else { return Ok(false) };
        let mut changes = Vec::new();
        for ((band, plan), old) in plans.iter().zip(olds) {
            changes.extend(self.changes_of(write, band, plan, old, lost)?);
        }
        let extents = self.extents(write.row, join(changes));
        self.log_and_apply(&roster, write.row, extents, write.fua)
    }

    /// An error for people: it names the sectors of these columns at these offsets, those of data first of all.
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
                "their parity was put off and a member is lost: a cache that has them brings them back when it is \
                 flushed; without one they are lost, and a rebuild that gives them up (--give-up) makes them zeros"
            }
        };
        Error::new(Kind::Io, format!("{what}: {text}"))
    }

    /// Reads what the plans say, all at once. `None` if something failed that is healed, or whose member is out now.
    fn read_bands(&self, roster: &Roster, row: u64, plans: &[(Band, Plan)]) -> Result<Option<Vec<Old>>> {
        let reads: Vec<(usize, usize)> = plans
            .iter()
            .enumerate()
            .flat_map(|(i, (_, plan))| plan.reads.iter().map(move |c| (i, *c)))
            .collect();
        let accesses = reads.iter().map(|(i, column)| {
            let offsets = &plans[*i].0.offsets;
            self.read_of(row, *column, offsets.clone())
        });
        let results = self.perform(roster, accesses.collect())?;
        let mut olds: Vec<Old> = plans.iter().map(|_| vec![None; self.shape.members]).collect();
        let mut whole = true;
        for ((i, column), result) in reads.into_iter().zip(results) {
            match result {
                Ok(bytes) => olds[i][column] = Some(bytes),
                Err(_) => {
                    self.heal(roster, row, column, plans[i].0.offsets.clone())?;
                    whole = false;
                }
            }
        }
        Ok(whole.then_some(olds))
    }

    /// The call that reads a column at some offsets.
    pub fn read_of(&self, row: u64, column: usize, offsets: Range<u32>) -> Access {
        let (role, sector) = self.place(row, column, offsets.start);
        Access { role, sector, what: What::Read(bytes_of(offsets.end - offsets.start)) }
    }

    /// New content of the written columns that are there, and of parity.
    fn changes_of(
        &self,
        write: &RowWrite<'_>,
        band: &Band,
        plan: &Plan,
        mut old: Old,
        lost: Columns,
    ) -> Result<Vec<Change>> {
        let data = self.shape.data_columns();
        let parities = match (plan.parity.is_empty(), plan.mode) {
            (true, _) => Vec::new(),
            (_, Mode::ReadModify) => self.parity_by_deltas(write, band, plan, &mut old),
            (_, Mode::Reconstruct) => self.parity_anew(write, band, &old),
            (_, Mode::Recover) => {
                self.recover_band(band, &mut old, lost)?;
                self.parity_anew(write, band, &old)
            }
        };
        let offset = band.offsets.start;
        let written = band.columns.clone().filter(|column| !lost.has(*column));
        let mut changes: Vec<Change> = written
            .map(|column| Change { column, offset, bytes: self.new_bytes(write, band, column).to_vec() })
            .collect();
        for (column, bytes) in (data..).zip(parities) {
            if plan.parity.contains(&column) {
                changes.push(Change { column, offset, bytes });
            }
        }
        Ok(changes)
    }

    /// What the write puts into a column at the band's offsets.
    fn new_bytes<'a>(&self, write: &RowWrite<'a>, band: &Band, column: usize) -> &'a [u8] {
        let in_row = column as u64 * u64::from(self.shape.chunk_sectors) + u64::from(band.offsets.start);
        let start = (in_row - write.sectors.start) as usize * SECTOR_BYTES;
        &write.bytes[start..start + bytes_of(band.sectors())]
    }

    /// P and Q, changed by what the written columns change by. Those not planned are left empty.
    fn parity_by_deltas(
        &self,
        write: &RowWrite<'_>,
        band: &Band,
        plan: &Plan,
        old: &mut Old,
    ) -> Vec<Vec<u8>> {
        let data = self.shape.data_columns();
        let mut parities: Vec<Vec<u8>> =
            (data..self.shape.members).map(|column| old[column].take().unwrap_or_default()).collect();
        for column in band.columns.clone() {
            let mut delta = old[column].take().expect("planned and read");
            parity::xor_into(&mut delta, self.new_bytes(write, band, column));
            for parity_column in &plan.parity {
                add_delta(&mut parities[parity_column - data], *parity_column - data, &delta, column);
            }
        }
        parities
    }

    /// P and Q of all data: the new ones, and the others as they were read.
    fn parity_anew(&self, write: &RowWrite<'_>, band: &Band, old: &Old) -> Vec<Vec<u8>> {
        let columns: Vec<&[u8]> = (0..self.shape.data_columns())
            .map(|column| match band.columns.contains(&column) {
                true => self.new_bytes(write, band, column),
                false => old[column].as_deref().expect("planned and read"),
            })
            .collect();
        self.parities_of(&columns)
    }

    /// P, or P and Q, of all data columns.
    pub fn parities_of(&self, columns: &[&[u8]]) -> Vec<Vec<u8>> {
        let empty = || vec![0; columns[0].len()];
        match self.shape.level.parities() {
            1 => {
                let mut p = empty();
                parity::p(columns, &mut p);
                vec![p]
            }
            _ => {
                let (mut p, mut q) = (empty(), empty());
                parity::pq(columns, &mut p, &mut q);
                vec![p, q]
            }
        }
    }

    fn recover_band(&self, band: &Band, old: &mut Old, lost: Columns) -> Result<()> {
        let bytes = bytes_of(band.sectors());
        let mut columns: Vec<Vec<u8>> =
            old.drain(..).map(|column| column.unwrap_or_else(|| vec![0; bytes])).collect();
        let lost: Vec<usize> = lost.iter().collect();
        parity::recover(&mut columns, self.shape.level.parities(), &lost)
            .map_err(|error| Error::new(Kind::Io, error.to_string()))?;
        *old = columns.into_iter().map(Some).collect();
        Ok(())
    }

    fn extents(&self, row: u64, changes: Vec<Change>) -> Vec<Extent> {
        let extents = changes.into_iter().map(|Change { column, offset, bytes }| {
            let (role, sector) = self.place(row, column, offset);
            Extent { role, sector, content: Content::Bytes(bytes) }
        });
        extents.collect()
    }

    /// The record, then the change in place. False if it must be tried anew.
    pub fn log_and_apply(&self, roster: &Roster, row: u64, extents: Vec<Extent>, fua: bool) -> Result<bool> {
        let ticket = match self.log.append(self, roster, row, &extents)? {
            Appended::Durable(ticket) => ticket,
            Appended::Again => return Ok(false),
        };
        let writes = extents.into_iter().map(|Extent { role, sector, content }| {
            let what = match content {
                Content::Bytes(bytes) => What::Write(bytes, fua),
                Content::Zeros(sectors) => What::Zero(sectors.into(), fua),
            };
            Access { role, sector, what }
        });
        self.intend(row)?;
        let result = self.change_all(roster, writes.collect());
        match result {
            Ok(()) => self.intended(row),
            // The array has ended, and some of the row may be new, some old: nothing is computed from it.
            Err(_) => self.stale.doubt(row),
        }
        self.log.complete(ticket);
        result.map(|()| true)
    }
}

/// Adds a data column's delta to a parity, 0 for P and 1 for Q.
pub(crate) fn add_delta(to: &mut [u8], parity: usize, delta: &[u8], column: usize) {
    match parity {
        0 => parity::xor_into(to, delta),
        _ => parity::add_scaled(to, delta, column),
    }
}

/// Joins changes of one column that follow each other: one write instead of two.
fn join(mut changes: Vec<Change>) -> Vec<Change> {
    changes.sort_by_key(|change| (change.column, change.offset));
    let mut joined: Vec<Change> = Vec::with_capacity(changes.len());
    for change in changes {
        match joined.last_mut() {
            Some(last)
                if last.column == change.column
                    && last.offset as usize + last.bytes.len() / SECTOR_BYTES == change.offset as usize =>
            {
                last.bytes.extend_from_slice(&change.bytes);
            }
            _ => joined.push(change),
        }
    }
    joined
}
