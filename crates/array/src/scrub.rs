//! Scrub: whether every row's parity says what its data say, and what can be done where not.
//!
//! 1. Only sectors that do not agree are written.
//! 2. In RAID-6 a sector is corrected only if a single column explains every byte of it. Anything else is not known
//!    to be one or the other, and is left alone unless the caller wants parity made anew.
//! 3. Rows that are stale, and rows that lack a member, are passed over and counted.

use crate::array::Array;
use crate::core::{Core, bytes_of};
use crate::log::{Content, Extent};
use crate::plan::Columns;
use crate::rebuild::Progress;
use std::ops::Range;
use vellum_base::{Result, SECTOR_BYTES};
use vellum_codes::parity::{self, Wrong};

/// Most rows that a report names.
const NAMED_MAX: usize = 1000;

/// Sectors corrected with one record.
const EXTENTS_AT_ONCE: usize = 100;

/// What a scrub may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Nothing, but sectors that could not be read and were computed.
    None,
    /// What is known to be wrong (RAID-6).
    Located,
    /// That, and parity where it is not known what is wrong: data are taken to be right, as md's `repair` does.
    Parity,
}

/// What a scrub found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Rows compared.
    pub rows: u64,
    /// Rows passed over because their parity was put off.
    pub stale_rows: u64,
    /// Rows passed over because a member lacks them.
    pub degraded_rows: u64,
    /// Sectors of a row that do not agree.
    pub mismatches: u64,
    /// Of them: a single column was wrong, and is right now.
    pub corrected: u64,
    /// Of them: parity was made anew.
    pub parity_made_anew: u64,
    /// Rows with mismatches, the first thousand.
    pub mismatched_rows: Vec<u64>,
    /// False if it was stopped.
    pub complete: bool,
}

impl Scrubbed {
    /// Takes in what a scrub of other rows has found.
    pub(crate) fn add(&mut self, other: Scrubbed) {
        self.rows += other.rows;
        self.stale_rows += other.stale_rows;
        self.degraded_rows += other.degraded_rows;
        self.mismatches += other.mismatches;
        self.corrected += other.corrected;
        self.parity_made_anew += other.parity_made_anew;
        let room = NAMED_MAX - self.mismatched_rows.len();
        self.mismatched_rows.extend(other.mismatched_rows.into_iter().take(room));
        self.complete &= other.complete;
    }

    /// Mismatches that are still there.
    pub fn left(&self) -> u64 {
        self.mismatches - self.corrected - self.parity_made_anew
    }
}

impl Array {
    /// Compares rows, while requests go on. `go_on` hears of the progress and stops it by false.
    pub fn scrub(
        &self,
        rows: Range<u64>,
        repair: Repair,
        mut go_on: impl FnMut(Progress) -> bool,
    ) -> Result<Scrubbed> {
        let core = self.core();
        let mut report = Scrubbed::default();
        for row in rows.start..rows.end.min(core.shape.rows) {
            if !go_on(Progress { rows: row, of: core.shape.rows }) {
                return Ok(report);
            }
            let _lock = core.lock_row(row);
            core.insist(|| core.scrub_row(row, repair, &mut report))?;
        }
        report.complete = true;
        Ok(report)
    }
}

impl Core {
    /// True when the row is done.
    fn scrub_row(&self, row: u64, repair: Repair, report: &mut Scrubbed) -> Result<bool> {
        let roster = self.roster();
        if self.stale.has(row) {
            report.stale_rows += 1;
            return Ok(true);
        }
        if self.lost_columns(&roster, row).count() > 0 {
            report.degraded_rows += 1;
            return Ok(true);
        }
        let all = 0..self.shape.chunk_sectors;
        let (columns, failed) = self.read_columns(&roster, row, Columns::default(), all.clone())?;
        if let Some(column) = failed {
            self.heal(&roster, row, column, all)?;
            return Ok(false);
        }
        let sums = self.syndromes(&columns);
        let wrong: Vec<u32> = all.filter(|offset| !sums.iter().all(|sum| is_zero_at(sum, *offset))).collect();
        let extents: Vec<Extent> =
            wrong.iter().flat_map(|offset| self.corrections(row, *offset, &columns, &sums, repair)).collect();
        if !extents.is_empty() {
            self.begin_change()?;
        }
        for some in extents.chunks(EXTENTS_AT_ONCE) {
            if !self.log_and_apply(&roster, row, some.to_vec(), true)? {
                return Ok(false);
            }
        }
        report.rows += 1;
        report.mismatches += wrong.len() as u64;
        for offset in &wrong {
            match (self.located(&sums, *offset), repair) {
                (Some(_), Repair::Located | Repair::Parity) => report.corrected += 1,
                (None, Repair::Parity) => report.parity_made_anew += 1,
                _ => {}
            }
        }
        if !wrong.is_empty() && report.mismatched_rows.len() < NAMED_MAX {
            report.mismatched_rows.push(row);
        }
        Ok(true)
    }

    /// What each stored parity differs by from that of the stored data.
    fn syndromes(&self, columns: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let (data, stored) = columns.split_at(self.shape.data_columns());
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut sums = self.parities_of(&data);
        sums.iter_mut().zip(stored).for_each(|(sum, stored)| parity::xor_into(sum, stored));
        sums
    }

    /// The column that is wrong at an offset, if it is one, and if that can be known.
    fn located(&self, sums: &[Vec<u8>], offset: u32) -> Option<Wrong> {
        let [p, q] = sums else { return None };
        parity::locate(sector(p, offset), sector(q, offset), self.shape.data_columns())
    }

    /// What to write to make an offset agree.
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
            (Some(Wrong::Data(column)), _) => vec![corrected(column, &sums[0])],
            (Some(Wrong::P), _) => vec![corrected(data, &sums[0])],
            (Some(Wrong::Q), _) => vec![corrected(data + 1, &sums[1])],
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
