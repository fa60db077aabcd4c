//! How a log store is opened, and what options and medium together allow.

use super::segment::START_BYTES;
use crate::freewrite::Caps;
use crate::journal::PAYLOAD_BYTES_MAX;
use crate::media::Media;
use crate::options::{CpuModel, Reuse, VALUE_BYTES_MAX};

/// Most logs of one segment, where the medium does not say less.
const LOGS_MAX: usize = 64;
/// Fewest bytes of a segment.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 64 << 10;

/// How a log store is opened. The defaults suit a directory on a machine with a GiB to spare.
///
/// Memory, at most: eight bytes a key and 128 KiB for the index; a segment that is being written, and as much again
/// while its memory grows, two on their way to tables, one that is collected, and the next; as much as two for where
/// collecting put records; 2 MiB; while a store is opened, 64 KiB a segment. What an allocator keeps comes on top, as
/// in the other engine ([`crate::Options`]).
#[derive(Clone, Debug)]
pub struct Options {
    /// Make the store if there is none.
    pub create_if_missing: bool,
    /// Write nothing to the medium, whatever is found; what would write is refused.
    pub read_only: bool,
    /// Refuse a log that is damaged in its middle, as in the other engine ([`crate::Options::strict_log`]).
    pub strict_log: bool,
    /// Bytes of a segment. Less, where a table or the logs of the medium hold less.
    pub segment_bytes: u64,
    /// Segments are collected if that wins this share of what they take.
    pub garbage_share: f64,
    /// Neighbouring segments that are collected at a time, at most. So many more may be there meanwhile.
    pub collect_max: usize,
    /// What collecting does with units that it need not change.
    pub reuse: Reuse,
    /// How much padding it may leave for that.
    pub caps: Caps,
    /// What is kept as it is consists of whole units of so many bytes, as in the other engine
    /// ([`crate::Options::unit_bytes`]); at least 4 KiB, and at most a sixteenth of a segment.
    pub unit_bytes: Option<u64>,
    /// Fewer unmodified bytes in a row are written anew, as in the other engine
    /// ([`crate::Options::island_bytes_min`]). `None` for what suits the medium.
    pub island_bytes_min: Option<u64>,
    /// What work costs the processor in virtual time.
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
            reuse: Reuse::default(),
            caps: Caps::default(),
            unit_bytes: None,
            island_bytes_min: None,
            cpu: CpuModel::default(),
        }
    }
}

/// What options and medium together allow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Of a segment's table.
    pub segment_bytes: u64,
    pub log_bytes: u64,
    /// Logs that a segment may have.
    pub logs_max: usize,
    /// Segments that may be on their way to tables.
    pub frozen_max: usize,
    pub value_bytes_max: usize,
    pub batch_bytes_max: usize,
}

impl Limits {
    pub(crate) fn new(media: &dyn Media, options: &Options) -> Limits {
        let shape = media.shape();
        // One segment is written, one is on its way, and the logs of one that just arrived are still there.
        let logs_max = ((shape.logs_max - 1) / 2).clamp(1, LOGS_MAX);
        let frozen_max = if shape.logs_max / 4 >= logs_max { 2 } else { 1 };
        let in_logs = (shape.log_bytes / 8 * 7).saturating_mul(logs_max as u64);
        // Where there is little room, or collecting would have none.
        let share = media.all_bytes().map_or(u64::MAX, |bytes| bytes / 32).max(SEGMENT_BYTES_MIN);
        let segment_bytes =
            options.segment_bytes.max(SEGMENT_BYTES_MIN).min(shape.table_bytes).min(in_logs).min(share);
        let bytes = usize::try_from(segment_bytes).unwrap_or(usize::MAX);
        let log = usize::try_from(shape.log_bytes).unwrap_or(usize::MAX);
        Limits {
            segment_bytes,
            log_bytes: shape.log_bytes,
            logs_max,
            frozen_max,
            value_bytes_max: VALUE_BYTES_MAX.min(bytes / 8).min(log / 4),
            batch_bytes_max: ((bytes - START_BYTES) / 4).min(log / 2).min(PAYLOAD_BYTES_MAX),
        }
    }
}
