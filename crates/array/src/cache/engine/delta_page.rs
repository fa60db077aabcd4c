//! A page of deltas (docs/formats/array.md).

use super::sums::{known, stored as stored_sum};
use crate::cache::staging::{DELTA_HEAD_BYTES, DELTA_PAGE_HEAD_BYTES};
use crate::cache::step::{PageNo, Staged};
use crate::superblock::{is_sealed, seal, u16_at, u32_at, u64_at};
use std::sync::Arc;
use vellum_base::{Error, Result, SECTOR_BYTES};

const MAGIC: &[u8; 8] = b"VLMDELTA";

/// In the head of a page: heads of deltas have the sums of their bases, where those before version 4 had the upper half
/// of the sector's number.
const WITH_SUMS: u16 = 1;

/// Packs deltas whose places in the page were chosen, each with the sum of its base.
///
/// # Panics
/// If they do not lie where there is room.
pub fn encode(tag: u64, deltas: &[(Staged, Arc<[u8]>)], sum: impl Fn(PageNo) -> Option<u32>) -> Vec<u8> {
    let mut out = vec![0; SECTOR_BYTES];
    out[..8].copy_from_slice(MAGIC);
    out[12..14].copy_from_slice(&(deltas.len() as u16).to_le_bytes());
    out[14..16].copy_from_slice(&WITH_SUMS.to_le_bytes());
    out[16..24].copy_from_slice(&tag.to_le_bytes());
    for (at, (staged, bytes)) in deltas.iter().enumerate() {
        let head = &mut out[DELTA_PAGE_HEAD_BYTES + at * DELTA_HEAD_BYTES..][..DELTA_HEAD_BYTES];
        head[..4].copy_from_slice(&staged.base.0.to_le_bytes());
        head[4..6].copy_from_slice(&staged.offset.to_le_bytes());
        head[6..8].copy_from_slice(&staged.bytes.to_le_bytes());
        head[8..12].copy_from_slice(&(staged.lba.0 as u32).to_le_bytes());
        head[12..].copy_from_slice(&stored_sum(sum(staged.base)).to_le_bytes());
        out[usize::from(staged.offset)..][..bytes.len()].copy_from_slice(bytes);
    }
    seal(&mut out);
    out
}

/// The delta that lies there, if the page says so, too; and the sum of its base.
pub fn find(stored: &[u8], tag: u64, wanted: &Staged) -> Result<(Arc<[u8]>, Option<u32>)> {
    if stored.len() != SECTOR_BYTES || &stored[..8] != MAGIC || !is_sealed(stored) {
        return Err(Error::corrupt("it is no page of deltas"));
    }
    if u64_at(stored, 16) != tag {
        return Err(Error::corrupt("its deltas are of an earlier cache"));
    }
    let count = usize::from(u16_at(stored, 12));
    let mut heads = stored[DELTA_PAGE_HEAD_BYTES..].chunks_exact(DELTA_HEAD_BYTES).take(count);
    let has_sums = u16_at(stored, 14) == WITH_SUMS;
    let is_wanted = |head: &&[u8]| {
        let lba = if has_sums { wanted.lba.0 & u64::from(u32::MAX) } else { wanted.lba.0 };
        let found = if has_sums { u32_at(head, 8).into() } else { u64_at(head, 8) };
        (u32_at(head, 0), found) == (wanted.base.0, lba)
            && (u16_at(head, 4), u16_at(head, 6)) == (wanted.offset, wanted.bytes)
    };
    let (start, end) = (usize::from(wanted.offset), usize::from(wanted.offset) + usize::from(wanted.bytes));
    match (heads.find(is_wanted), stored.get(start..end)) {
        (Some(head), Some(bytes)) => Ok((bytes.into(), known(u32_at(head, 12)).filter(|_| has_sums))),
        _ => Err(Error::corrupt("the page of deltas has another delta there")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_base::Lba;

    #[test]
    fn deltas_are_found_where_they_were_put_and_nowhere_else() {
        let lengths = [0u16, 1, 900, 2500];
        let mut offset = (DELTA_PAGE_HEAD_BYTES + lengths.len() * DELTA_HEAD_BYTES) as u16;
        let mut deltas = Vec::new();
        for (i, bytes) in lengths.into_iter().enumerate() {
            let staged = Staged { base: PageNo(i as u32 + 9), lba: Lba(1 << 37), bytes, offset };
            deltas.push((staged, Arc::from(vec![i as u8 + 1; usize::from(bytes)])));
            offset += bytes;
        }
        let sum = |page: PageNo| (page.0 != 10).then_some(page.0 * 7);
        let mut stored = encode(77, &deltas, sum);
        for (staged, bytes) in &deltas {
            assert_eq!(find(&stored, 77, staged).unwrap(), (bytes.clone(), sum(staged.base)));
            assert!(find(&stored, 77, &Staged { lba: Lba(1 << 31), ..*staged }).is_err());
            assert!(find(&stored, 78, staged).is_err());
            assert!(find(&stored, 77, &Staged { bytes: staged.bytes + 1, ..*staged }).is_err());
            assert!(find(&stored, 77, &Staged { base: PageNo(0), ..*staged }).is_err());
        }
        stored[4095] ^= 1;
        assert!(find(&stored, 77, &deltas[0].0).is_err(), "torn");
    }
}
