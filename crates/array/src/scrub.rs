//! Scrub: compares every row's parity with its data, and repairs mismatches as far as possible.
//!
//! 1. Only sectors that mismatch are written.
//! 2. In RAID-6 a sector is corrected only if an error in a single column explains every byte of the mismatch. Any
//!    other mismatch is ambiguous, and is left alone unless the caller wants parity recomputed.
//! 3. Rows that are stale are skipped and counted, and so are rows that lack as many members as there are parities. The
//!    data of a stale row are read; unreadable sectors are lost. A RAID-6 row that lacks one member is compared by the
//!    remaining parity: mismatches are reported, but cannot be located, and nothing is written.
//! 4. Sectors that no redundancy can bring back are reported as lost; the other offsets of their row are compared.

use crate::access::bytes_of;
use crate::array::Array;
use crate::core::{Core, Roster};
use crate::log::{Content, Extent, RowChange};
use crate::plan::Columns;
use crate::rebuild::Progress;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use vellum_base::{Kind, Result, SECTOR_BYTES};
use vellum_codes::parity::{self, Wrong};

/// Most rows, or runs of sectors, that a report lists.
const NAMED_MAX: usize = 1000;

/// Sectors corrected with one record.
const EXTENTS_AT_ONCE: usize = 100;

/// What a scrub may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Nothing, except that unreadable sectors which can be computed are written back.
    None,
    /// Sectors that are known to be wrong (RAID-6).
    Located,
    /// Those, and parity where the wrong column is not known: data are assumed to be right, as md's `repair` does.
    Parity,
}

/// Result of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Rows compared.
    pub rows: u64,
    /// Of these, rows compared by one parity, because a member lacks them (RAID-6).
    pub one_parity_rows: u64,
    /// Rows skipped because their parity is deferred.
    pub stale_rows: u64,
    /// Rows skipped because members lack them, so that there is nothing to compare with.
    pub degraded_rows: u64,
    /// Offsets, in sectors of a chunk, at which a row is inconsistent.
    pub mismatches: u64,
    /// Of these, the ones where a single column was wrong and has been corrected.
    pub corrected: u64,
    /// Of these, the ones where parity was recomputed.
    pub parity_made_anew: u64,
    /// Rows with mismatches; the first thousand.
    pub mismatched_rows: Vec<u64>,
    /// Members that were found to be wrong (RAID-6), by role.
    pub wrong_members: BTreeMap<usize, WrongMember>,
    /// Sectors of the array that can be neither read nor computed.
    pub lost_sectors: u64,
    /// The ranges of these, ascending; the first thousand.
    pub lost: Vec<Range<u64>>,
    /// False if the scrub was stopped or failed.
    pub complete: bool,
    /// Why it failed, if rows had been compared before.
    pub failed: Option<String>,
}

/// Wrong sectors of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrongMember {
    /// Their number.
    pub sectors: u64,
    /// Their rows; the first thousand.
    pub rows: Vec<u64>,
}

impl WrongMember {
    fn add(&mut self, sectors: u64, rows: &[u64]) {
        self.sectors += sectors;
        name(&mut self.rows, rows);
    }
}

/// Adds items to a list up to its limit.
fn name<T: Clone>(named: &mut Vec<T>, some: &[T]) {
    let room = NAMED_MAX.saturating_sub(named.len());
    named.extend(some.iter().take(room).cloned());
}

impl Scrubbed {
    /// Scrubs these rows one by one; `of` is the total for the progress. If a row fails, the findings up to it are
    /// returned.
    pub(crate) fn of_rows(
        rows: Range<u64>,
        of: u64,
        mut go_on: impl FnMut(Progress) -> bool,
        scrub_one: impl Fn(u64) -> Result<Scrubbed>,
    ) -> Result<Scrubbed> {
        let mut all = Scrubbed { complete: true, ..Scrubbed::default() };
        for row in rows.clone() {
            all.complete = go_on(Progress { rows: row, of });
            if !all.complete {
                break;
            }
            match scrub_one(row) {
                Ok(found) => all.add(found),
                Err(error) if row == rows.start || error.kind() == Kind::PowerLost => return Err(error),
                Err(error) => {
                    (all.complete, all.failed) = (false, Some(format!("row {row}: {error}")));
                    break;
                }
            }
        }
        Ok(all)
    }

    /// Adds the findings of other rows.
    fn add(&mut self, other: Scrubbed) {
        self.rows += other.rows;
        self.one_parity_rows += other.one_parity_rows;
        self.stale_rows += other.stale_rows;
        self.degraded_rows += other.degraded_rows;
        self.mismatches += other.mismatches;
        self.corrected += other.corrected;
        self.parity_made_anew += other.parity_made_anew;
        name(&mut self.mismatched_rows, &other.mismatched_rows);
        for (role, wrong) in other.wrong_members {
            self.wrong_members.entry(role).or_default().add(wrong.sectors, &wrong.rows);
        }
        self.lost_sectors += other.lost_sectors;
        name(&mut self.lost, &other.lost);
        self.complete &= other.complete;
    }

    /// Adds the lost sectors of a row.
    fn add_lost(&mut self, sectors: &BTreeSet<u64>) {
        self.lost_sectors += sectors.len() as u64;
        for sector in sectors {
            match self.lost.last_mut() {
                Some(run) if run.end == *sector => run.end += 1,
                _ => self.lost.push(*sector..sector + 1),
            }
        }
    }

    /// Mismatches that were not repaired.
    pub fn left(&self) -> u64 {
        self.mismatches - self.corrected - self.parity_made_anew
    }
}

impl Array {
    /// Compares rows under load. `go_on` gets the progress and stops the scrub by returning false.
    pub fn scrub(
        &self,
        rows: Range<u64>,
        repair: Repair,
        go_on: impl FnMut(Progress) -> bool,
    ) -> Result<Scrubbed> {
        let of = self.core().shape.rows;
        let scrub_one = |row| self.scrub_one(row, repair).map(|found| found.report);
        Scrubbed::of_rows(rows.start..rows.end.min(of), of, go_on, scrub_one)
    }

    /// Compares a row.
    pub(crate) fn scrub_one(&self, row: u64, repair: Repair) -> Result<RowScrubbed> {
        let mut found = RowScrubbed::default();
        found.report.complete = true;
        let _lock = self.core().lock_row(row);
        self.core().insist(|| self.core().scrub_row(row, repair, &mut found))?;
        Ok(found)
    }
}

/// Findings in one row.
#[derive(Default)]
pub(crate) struct RowScrubbed {
    pub report: Scrubbed,
    /// Offsets with repairable mismatches, and whether the wrong column is known.
    wrong: Vec<(u32, bool)>,
}

impl RowScrubbed {
    /// Offsets at which a repair writes.
    pub fn to_repair(&self, repair: Repair) -> Vec<u32> {
        let is_repaired = |is_located: bool| match repair {
            Repair::None => false,
            Repair::Located => is_located,
            Repair::Parity => true,
        };
        self.wrong.iter().filter(|(_, is_located)| is_repaired(*is_located)).map(|(at, _)| *at).collect()
    }
}

/// What can be neither read nor computed in a row.
#[derive(Default)]
struct Unknown {
    offsets: BTreeSet<u32>,
    /// The data sectors at those offsets, by sector of the array.
    sectors: BTreeSet<u64>,
}

impl Core {
    /// Returns true when the row is done.
    fn scrub_row(&self, row: u64, repair: Repair, found: &mut RowScrubbed) -> Result<bool> {
        let (roster, report) = (self.roster(), &mut found.report);
        if self.stale.has(row) {
            report.stale_rows += 1;
            let unread = self.unread_data(&roster, row)?.into_iter();
            let sectors =
                unread.filter_map(|(column, offset, _)| self.array_sectors(row, column, offset..offset + 1));
            report.add_lost(&sectors.flatten().collect());
            return Ok(true);
        }
        let lost = self.lost_columns(&roster, row);
        if lost.count() >= self.shape.level.parities() {
            report.degraded_rows += 1;
            return Ok(true);
        }
        let all = 0..self.shape.chunk_sectors;
        let (mut columns, failed) = self.read_columns(&roster, row, lost, all.clone())?;
        let mut unknown = Unknown::default();
        for column in failed {
            columns[column] = self.heal_what_can_be(&roster, row, column, &mut unknown)?;
        }
        if self.roster().event != roster.event {
            return Ok(false);
        }
        let (sums, repair) = match lost.iter().next() {
            None => (self.syndromes(&columns), repair),
            Some(lost) => (vec![self.one_syndrome(columns.clone(), lost)?], Repair::None),
        };
        let known = all.filter(|offset| !unknown.offsets.contains(offset));
        let wrong: Vec<u32> =
            known.filter(|offset| !sums.iter().all(|sum| is_zero_at(sum, *offset))).collect();
        let extents: Vec<Extent> =
            wrong.iter().flat_map(|offset| self.corrections(row, *offset, &columns, &sums, repair)).collect();
        if !extents.is_empty() {
            self.begin_change()?;
        }
        for some in extents.chunks(EXTENTS_AT_ONCE) {
            if !self.log_and_apply(&roster, vec![RowChange { row, extents: some.to_vec() }], true)? {
                return Ok(false);
            }
        }
        if lost.count() == 0 {
            let is_located = |offset: &u32| (*offset, self.located(&sums, *offset).is_some());
            found.wrong = wrong.iter().map(is_located).collect();
        }
        report.one_parity_rows += lost.count() as u64;
        report.add_lost(&unknown.sectors);
        self.tell(row, &wrong, &sums, repair, report);
        Ok(true)
    }

    /// Reads a column sector by sector, healing what can be healed; the rest is zeros, and noted in `unknown`.
    fn heal_what_can_be(
        &self,
        roster: &Roster,
        row: u64,
        column: usize,
        unknown: &mut Unknown,
    ) -> Result<Vec<u8>> {
        let sectors = (0..self.shape.chunk_sectors).map(|offset| {
            match self.heal(roster, row, column, offset..offset + 1) {
                Err(error) if error.kind() != Kind::PowerLost => {
                    self.check_writable()?;
                    unknown.offsets.insert(offset);
                    unknown.sectors.extend(self.lost_at(row, column, offset)?.into_iter().flatten());
                    Ok(vec![0; SECTOR_BYTES])
                }
                result => result,
            }
        });
        Ok(sectors.collect::<Result<Vec<_>>>()?.concat())
    }

    /// Adds a compared row to the report.
    fn tell(&self, row: u64, wrong: &[u32], sums: &[Vec<u8>], repair: Repair, report: &mut Scrubbed) {
        report.rows += 1;
        report.mismatches += wrong.len() as u64;
        let mut located = BTreeMap::<usize, u64>::new();
        for offset in wrong {
            let column = self.located(sums, *offset).map(|wrong| self.column_of(wrong));
            match (column, repair) {
                (Some(_), Repair::Located | Repair::Parity) => report.corrected += 1,
                (None, Repair::Parity) => report.parity_made_anew += 1,
                _ => {}
            }
            if let Some(column) = column {
                *located.entry(self.shape.member_of(row, column)).or_default() += 1;
            }
        }
        if !wrong.is_empty() {
            name(&mut report.mismatched_rows, &[row]);
        }
        for (role, sectors) in located {
            report.wrong_members.entry(role).or_default().add(sectors, &[row]);
        }
    }

    fn column_of(&self, wrong: Wrong) -> usize {
        match wrong {
            Wrong::Data(column) => column,
            Wrong::P => self.shape.data_columns(),
            Wrong::Q => self.shape.data_columns() + 1,
        }
    }

    /// The same for a row that lacks one column: a remaining parity compared with its value computed from everything
    /// else.
    fn one_syndrome(&self, mut columns: Vec<Vec<u8>>, lost: usize) -> Result<Vec<u8>> {
        let last = self.shape.members - 1;
        let compared = if lost == last { last - 1 } else { last };
        let mut sum = columns[compared].clone();
        self.solve(&mut columns, Columns::default().with(lost).with(compared))?;
        parity::xor_into(&mut sum, &columns[compared]);
        Ok(sum)
    }

    /// Difference between each stored parity and the parity of the stored data.
    fn syndromes(&self, columns: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let (data, stored) = columns.split_at(self.shape.data_columns());
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut sums = self.parities_of(&data);
        sums.iter_mut().zip(stored).for_each(|(sum, stored)| parity::xor_into(sum, stored));
        sums
    }

    /// The column that is wrong at an offset, if it is a single one that can be determined.
    fn located(&self, sums: &[Vec<u8>], offset: u32) -> Option<Wrong> {
        let [p, q] = sums else { return None };
        parity::locate(sector(p, offset), sector(q, offset), self.shape.data_columns())
    }

    /// The writes that make an offset consistent.
    fn corrections(
        &self,
        row: u64,
        offset: u32,
        columns: &[Vec<u8>],
        sums: &[Vec<u8>],
        repair: Repair,
    ) -> Vec<Extent> {
        let data = self.shape.data_columns();
        let corrected = |column: usize, sum: &[u8]| {
            let mut bytes = sector(&columns[column], offset).to_vec();
            parity::xor_into(&mut bytes, sector(sum, offset));
            let (role, sector) = self.place(row, column, offset);
            Extent { role, sector, content: Content::Bytes(bytes) }
        };
        match (self.located(sums, offset), repair) {
            (_, Repair::None) => Vec::new(),
            (Some(wrong), _) => {
                let sum = if wrong == Wrong::Q { &sums[1] } else { &sums[0] };
                vec![corrected(self.column_of(wrong), sum)]
            }
            (None, Repair::Located) => Vec::new(),
            (None, Repair::Parity) => {
                (data..).zip(sums).map(|(column, sum)| corrected(column, sum)).collect()
            }
        }
    }
}

fn sector(bytes: &[u8], offset: u32) -> &[u8] {
    &bytes[bytes_of(offset)..bytes_of(offset) + SECTOR_BYTES]
}

fn is_zero_at(sum: &[u8], offset: u32) -> bool {
    vellum_codes::is_zero(sector(sum, offset))
}
