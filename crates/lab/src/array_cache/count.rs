//! Counts the actions of a policy.

use super::asked::Asked;
use super::deltas::Deltas;
use super::workload::Workload;
use serde::Serialize;
use vellum_array::cache::{Policy, Step, Steps, Why};
use vellum_base::SECTOR_BYTES;

/// Actions of a policy. Sectors and pages are of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Sectors read.
    pub reads: u64,
    /// Sectors read that were in the cache.
    pub read_hits: u64,
    /// Sectors written.
    pub writes: u64,
    /// Sectors written that were in the cache.
    pub write_hits: u64,
    /// Pages written to flash after reads that missed.
    pub fill_pages: u64,
    /// Pages written to flash for writes that missed.
    pub allocate_pages: u64,
    /// Pages written to flash for writes that hit.
    pub update_pages: u64,
    /// Delta pages written to flash.
    pub delta_pages: u64,
    /// Bytes of the deltas in them, without headers.
    pub delta_bytes: u64,
    /// Pages written to flash that were only in memory before.
    pub promote_pages: u64,
    /// Pages of the metadata log written to flash.
    pub log_pages: u64,
    /// Segments of flash vacated in order to be rewritten.
    pub segments_vacated: u64,
    /// Pages read from flash.
    pub flash_reads: u64,
    /// Sectors read from the array.
    pub array_reads: u64,
    /// Sectors written to the array with their parity.
    pub array_writes: u64,
    /// Sectors written to the array without updating their parity.
    pub put_off: u64,
    /// Rows whose parity was updated later.
    pub rows_cleaned: u64,
    /// Sectors of those rows.
    pub sectors_cleaned: u64,
}

impl Totals {
    /// Total pages written to flash.
    pub fn flash_pages(&self) -> u64 {
        let data = self.fill_pages + self.allocate_pages + self.update_pages + self.promote_pages;
        data + self.delta_pages + self.log_pages
    }

    /// Total bytes written to flash.
    pub fn flash_bytes(&self) -> u64 {
        self.flash_pages() * SECTOR_BYTES as u64
    }

    /// Share of reads and writes that hit.
    pub fn hit_ratio(&self) -> f64 {
        (self.read_hits + self.write_hits) as f64 / (self.reads + self.writes).max(1) as f64
    }

    /// Share of reads that hit.
    pub fn read_hit_ratio(&self) -> f64 {
        self.read_hits as f64 / self.reads.max(1) as f64
    }

    /// Share of metadata in the pages written to flash.
    pub fn log_share(&self) -> f64 {
        self.log_pages as f64 / self.flash_pages().max(1) as f64
    }

    /// Adds the steps of a request.
    #[inline]
    pub(super) fn add(&mut self, steps: &Steps) {
        for step in &steps.list {
            match step {
                Step::ReadPage(_) | Step::ReadDeltas(_) => self.flash_reads += 1,
                Step::ReadArray(_) => self.array_reads += 1,
                Step::WriteArray(_) => self.array_writes += 1,
                Step::WriteWithoutParity(_) => self.put_off += 1,
                Step::WritePage { why: Why::Fill, .. } => self.fill_pages += 1,
                Step::WritePage { why: Why::Allocate, .. } => self.allocate_pages += 1,
                Step::WritePage { why: Why::Update, .. } => self.update_pages += 1,
                Step::CommitDeltas { from, count, .. } => {
                    self.delta_pages += 1;
                    let staged = &steps.staged[*from as usize..][..*count as usize];
                    self.delta_bytes += staged.iter().map(|delta| u64::from(delta.bytes)).sum::<u64>();
                }
                Step::CommitLog { .. } => self.log_pages += 1,
                Step::UpdateParity { count, .. } => {
                    self.rows_cleaned += 1;
                    self.sectors_cleaned += u64::from(*count);
                }
                Step::Promote { .. } => self.promote_pages += 1,
                Step::Vacate { .. } => self.segments_vacated += 1,
                Step::Stage(_) | Step::Unstage(_) | Step::Note(_) | Step::Discard(_) => {}
                Step::Hold { .. } | Step::Refresh(_) => {}
            }
        }
    }
}

/// Runs the whole workload through a policy. `partial`: a partial write changes only the bytes that it covers.
pub fn count(policy: &mut dyn Policy, workload: &Workload, deltas: &mut Deltas, partial: bool) -> Totals {
    let mut asked = Asked::new(policy, deltas, partial);
    for (at, request) in workload.requests.iter().enumerate() {
        request.touched(at).for_each(|touched| asked.ask(request.kind, touched));
    }
    asked.totals
}
