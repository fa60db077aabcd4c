//! Delta pages (docs/formats/array.md).

use super::job::Stored;
use super::sums::{known, stored as stored_sum};
use crate::cache::staging::{DELTA_HEAD_BYTES, DELTA_PAGE_HEAD_BYTES};
use crate::cache::step::{PageNo, Staged};
use crate::superblock::{is_sealed, seal, u16_at, u32_at, u64_at};
use std::sync::Arc;
use vellum_base::{Error, Result, SECTOR_BYTES};
use vellum_codes::crc32c;

const MAGIC: &[u8; 8] = b"VLMDELTA";

/// Flag in a page's head: heads of deltas have the checksums of their bases. Before version 4 they have the upper half
/// of the sector's number there instead.
const WITH_SUMS: u16 = 1;

/// Packs deltas, whose places in the page are given, each with the checksum of its base.
///
/// # Panics
/// If a delta lies outside the page.
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

/// Identifies a delta page in the entries of its bases: 24 bits of its checksum, never 0. An earlier page in the same
/// place has a different value, even if it is valid and has deltas of the same bases.
pub fn check_of(page: &[u8]) -> u32 {
    (crc32c(page) & 0xFF_FFFF).max(1)
}

/// Finds a delta in its page, if this is the page that it was written to; also returns the checksum of its base.
pub fn find(stored: &[u8], tag: u64, wanted: &Stored) -> Result<(Arc<[u8]>, Option<u32>)> {
    if stored.len() != SECTOR_BYTES || &stored[..8] != MAGIC || !is_sealed(stored) {
        return Err(Error::corrupt("it is no page of deltas"));
    }
    if u64_at(stored, 16) != tag {
        return Err(Error::corrupt("its deltas are of an earlier cache"));
    }
    let count = usize::from(u16_at(stored, 12));
    let mut heads = stored[DELTA_PAGE_HEAD_BYTES..].chunks_exact(DELTA_HEAD_BYTES).take(count);
    let has_sums = u16_at(stored, 14) == WITH_SUMS;
    if has_sums && check_of(stored) != wanted.check {
        return Err(Error::corrupt("it is an earlier page of deltas"));
    }
    let is_wanted = |head: &&[u8]| {
        let (lba, place) = (wanted.lba.0, u32::from(u16_at(head, 4)) | u32::from(u16_at(head, 6)) << 12);
        u32_at(head, 0) == wanted.base.0
            && match has_sums {
                true => u32_at(head, 8) == lba as u32,
                false => (u64_at(head, 8), place) == (lba, wanted.check),
            }
    };
    let head =
        heads.find(is_wanted).ok_or_else(|| Error::corrupt("the page of deltas does not have this one"))?;
    let start = usize::from(u16_at(head, 4));
    if start < DELTA_PAGE_HEAD_BYTES + count * DELTA_HEAD_BYTES {
        return Err(Error::corrupt("a delta begins in the head of its page"));
    }
    let bytes = stored.get(start..start + usize::from(u16_at(head, 6)));
    let bytes = bytes.ok_or_else(|| Error::corrupt("a delta ends behind its page"))?;
    Ok((bytes.into(), known(u32_at(head, 12)).filter(|_| has_sums)))
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
        let of =
            |staged: &Staged, check| Stored { home: PageNo(3), check, base: staged.base, lba: staged.lba };
        let check = check_of(&stored);
        for (staged, bytes) in &deltas {
            let wanted = of(staged, check);
            assert_eq!(find(&stored, 77, &wanted).unwrap(), (bytes.clone(), sum(staged.base)));
            assert!(find(&stored, 78, &wanted).is_err());
            assert!(find(&stored, 77, &Stored { lba: Lba(1 << 31), ..wanted }).is_err());
            assert!(find(&stored, 77, &Stored { base: PageNo(0), ..wanted }).is_err());
            assert!(find(&stored, 77, &Stored { check: check ^ 1, ..wanted }).is_err());
        }
        deltas[2].1 = Arc::from(vec![7; 900]);
        let later = encode(77, &deltas, sum);
        assert!(find(&later, 77, &of(&deltas[3].0, check)).is_err(), "of the same bases, at another time");
        stored[4095] ^= 1;
        assert!(find(&stored, 77, &of(&deltas[0].0, check)).is_err(), "torn");
    }

    /// Found by the fuzz target `array_cache_deltas` (1): a sealed page whose delta is the whole page.
    #[test]
    fn what_begins_in_the_head_of_a_page_is_no_delta() {
        let staged = Staged { base: PageNo(9), lba: Lba(5), bytes: 300, offset: 48 };
        let mut stored = encode(77, &[(staged, Arc::from(vec![5; 300]))], |_| None);
        for (start, bytes, sound) in
            [(48, 300u16, true), (48, 4048, true), (47, 300, false), (0, 4096, false)]
        {
            stored[DELTA_PAGE_HEAD_BYTES + 4..][..2].copy_from_slice(&u16::to_le_bytes(start));
            stored[DELTA_PAGE_HEAD_BYTES + 6..][..2].copy_from_slice(&bytes.to_le_bytes());
            seal(&mut stored);
            let check = check_of(&stored);
            let wanted = Stored { home: PageNo(3), check, base: staged.base, lba: staged.lba };
            assert_eq!(find(&stored, 77, &wanted).is_ok(), sound, "at {start}, of {bytes}");
        }
    }

    /// Before version 4 an entry had the delta's offset and length where it has 24 bits of a checksum now.
    #[test]
    fn deltas_of_earlier_pages_are_found_by_offset_and_length() {
        let staged = Staged { base: PageNo(9), lba: Lba(1 << 37), bytes: 300, offset: 48 };
        let mut stored = encode(77, &[(staged, Arc::from(vec![5; 300]))], |_| None);
        stored[14] = 0;
        stored[DELTA_PAGE_HEAD_BYTES + 8..][..8].copy_from_slice(&staged.lba.0.to_le_bytes());
        seal(&mut stored);
        let wanted = Stored { home: PageNo(3), check: 48 | 300 << 12, base: staged.base, lba: staged.lba };
        assert_eq!(find(&stored, 77, &wanted).unwrap(), (Arc::from(vec![5; 300]), None));
        assert!(find(&stored, 77, &Stored { check: 48 | 301 << 12, ..wanted }).is_err());
        assert!(find(&stored, 77, &Stored { lba: Lba(0), ..wanted }).is_err());
    }
}
