//! The end of a segment: its hint and its foot are written behind its records.

use super::foot::{Foot, Origin, Sums};
use super::hint::{self, Note, SEGMENT_UNIT_BYTES};
use super::segment::READ_BYTES;
use crate::journal::SegmentMeta;
use crate::media::TableWriter;
use crate::sum::sum_with;
use vellum_base::Result;

/// Ends a segment whose `data_bytes` were written up to `tail`: writes that, its hint, and its foot. Returns what the
/// manifest is to say of it, with the sum; it is safe then.
pub(crate) fn finish(
    mut table: Box<dyn TableWriter>,
    mut tail: Vec<u8>,
    notes: &[Note],
    (meta, origin): (SegmentMeta, Origin),
    seed: u64,
    written_bubbles: u64,
) -> Result<SegmentMeta> {
    let data_end = meta.data_bytes.next_multiple_of(SEGMENT_UNIT_BYTES as u64);
    tail.resize(tail.len().next_multiple_of(SEGMENT_UNIT_BYTES), 0);
    let from = tail.len();
    hint::write(notes, &mut tail);
    let hint_sum = tail[from..].chunks(SEGMENT_UNIT_BYTES).fold(0, sum_with);
    let hint_units = ((tail.len() - from) / SEGMENT_UNIT_BYTES) as u64;
    let sums = meta.sum.map(|records| Sums { records, hint: hint_sum });
    let SegmentMeta { data_bytes, records, bubble_bytes, .. } = meta;
    let meta = SegmentMeta {
        order: origin.order,
        bytes: data_end + (hint_units + 1) * SEGMENT_UNIT_BYTES as u64,
        ..meta
    };
    Foot { seed, data_bytes, records, bubble_bytes, hint_units, origin: Some(origin), sums }.write(&mut tail);
    tail.chunks(READ_BYTES).try_for_each(|piece| table.append(piece))?;
    table.finish(written_bubbles)?;
    Ok(meta)
}
