//! How a log store is opened, and what options and medium together allow.

use super::segment::START_BYTES;
use crate::batch::{Batch, at_most, check_value_bytes};
use crate::freewrite::ReuseOptions;
use crate::journal::PAYLOAD_BYTES_MAX;
use crate::media::{Media, ReadOnly};
use crate::options::{CpuModel, VALUE_BYTES_MAX};
use crate::reason;
use std::sync::Arc;
use vellum_base::{Error, Kind, Result};

/// Most logs of one segment, where the medium does not say less.
const SEGMENT_LOGS_MAX: usize = 64;
/// Fewest bytes of a segment.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 64 << 10;

/// How a log store is opened. The defaults suit a directory on a machine with a GiB of memory to spare.
///
/// Memory, at most: 8 bytes per key and 128 KiB for the index; 8 segments: one being written, as much again while its
/// buffer grows, two waiting to be written to tables, one being collected, the next one, and as much as two for the new
/// places of collected records; 2 MiB; while the store is being opened, 64 KiB per segment. What the allocator keeps is
/// added to that, as for [`crate::Options`]. On flash and zones a segment counts as long as the longest that is there:
/// a store may have been opened with longer ones before.
#[derive(Clone, Debug)]
pub struct Options {
    /// Make the store if there is none.
    pub create_if_missing: bool,
    /// Never write to the medium, not even to recover. Operations that would write return an error.
    pub read_only: bool,
    /// Refuse to open a store whose log is damaged in the middle; see [`crate::Options::strict_log`].
    pub strict_log: bool,
    /// Size of a segment in bytes. Smaller where a table or the logs of the medium cannot hold as much, or the medium
    /// is small.
    pub segment_bytes: u64,
    /// Neighbouring segments are collected if that frees at least this fraction of their bytes, from 0 to 1. Writers
    /// wait while the store has more than twice as many bytes as it would have then, and eight segments.
    pub garbage_share: f64,
    /// Most neighbouring segments that are collected at a time. Up to as many more exist until that is done.
    pub collect_max: usize,
    /// What collection does with units that it does not have to change. A unit has at least 4 KiB, and at most a
    /// sixteenth of a segment.
    pub reuse: ReuseOptions,
    /// Modelled processor time of work, in virtual time.
    pub cpu: CpuModel,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            create_if_missing: true,
            read_only: false,
            strict_log: false,
            segment_bytes: 32 << 20,
            garbage_share: 0.4,
            collect_max: 8,
            reuse: ReuseOptions::default(),
            cpu: CpuModel::default(),
        }
    }
}

/// What options and medium together allow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Of a segment's table.
    pub segment_bytes: u64,
    /// Of the largest table.
    pub table_bytes: u64,
    pub log_bytes: u64,
    /// Most logs of one segment.
    pub logs_max: usize,
    /// Most segments that wait to be written to tables.
    pub frozen_max: usize,
    pub value_bytes_max: usize,
    pub batch_bytes_max: usize,
}

impl Limits {
    pub(crate) fn new(media: &dyn Media, options: &Options) -> Limits {
        let shape = media.shape();
        // One segment is being written, one is waiting, and the logs of one that was just written still exist.
        let logs_max = ((shape.logs_max - 1) / 2).clamp(1, SEGMENT_LOGS_MAX);
        // One table is written for each of them, one for the next segment, one for the present, and one by collecting.
        let has_tables = media.tables_written_max() >= 4;
        let frozen_max = if shape.logs_max / 4 >= logs_max && has_tables { 2 } else { 1 };
        let in_logs = (shape.log_bytes / 8 * 7).saturating_mul(logs_max as u64);
        // Segments are small on a small medium, or collection would have no room.
        let share = media.all_bytes().map_or(u64::MAX, |bytes| bytes / 32).max(SEGMENT_BYTES_MIN);
        let segment_bytes =
            options.segment_bytes.max(SEGMENT_BYTES_MIN).min(shape.table_bytes).min(in_logs).min(share);
        let bytes = usize::try_from(segment_bytes).unwrap_or(usize::MAX);
        let log = usize::try_from(shape.log_bytes).unwrap_or(usize::MAX);
        Limits {
            segment_bytes,
            table_bytes: shape.table_bytes,
            log_bytes: shape.log_bytes,
            logs_max,
            frozen_max,
            value_bytes_max: VALUE_BYTES_MAX.min(bytes / 8).min(log / 4),
            batch_bytes_max: ((bytes - START_BYTES) / 4).min(log / 2).min(PAYLOAD_BYTES_MAX),
        }
    }

    /// An error if a value of so many bytes is too long: [`Kind::NoSpace`] if it would not be with more room on
    /// `media`, as segments are small on a small medium.
    pub(crate) fn check_value(&self, bytes: usize, media: &Arc<dyn Media>, options: &Options) -> Result<()> {
        let most = self.value_bytes_max;
        check_value_bytes(bytes, most).map_err(|error| {
            // A read-only medium does not say how much room there is.
            if bytes > Limits::new(&ReadOnly(media.clone()), options).value_bytes_max {
                return error;
            }
            let what =
                format!("a value of {bytes} bytes: with as little room as there is here, {most} is the most");
            Error::new(Kind::NoSpace, what).because(reason::VALUE_TOO_LONG)
        })
    }

    /// An error if a batch, or an entry of it, exceeds its limit.
    pub(crate) fn check_batch(&self, batch: &Batch) -> Result<()> {
        if !batch.spaces().is_empty() {
            return Err(Error::invalid("a log store has no keyspaces but the default one"));
        }
        check_value_bytes(batch.value_bytes_max(), self.value_bytes_max)?;
        // Records are rounded up, and a little longer than entries.
        at_most("a batch", batch.bytes() + 16 * batch.len(), self.batch_bytes_max)
    }

    /// What a segment's table has room for at least: half of what others have, as where half of the blocks of a
    /// superblock are bad, less a list.
    pub(crate) fn table_bytes_min(&self) -> u64 {
        self.segment_bytes / 4
    }
}
