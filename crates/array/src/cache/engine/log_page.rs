//! Pages of the metadata log (docs/formats/array.md).

use super::sums::{known, stored as stored_sum};
use crate::cache::metalog::ENTRIES_PER_LOG_PAGE;
use crate::cache::shape::PageState;
use crate::cache::step::{LogEntry, PageNo};
use crate::superblock::{is_sealed, seal, u16_at, u32_at, u64_at};
use vellum_base::{Error, Lba, Result, SECTOR_BYTES};

const MAGIC: &[u8; 8] = b"VLMCLOGP";
const HEAD: usize = 48;
/// Bytes of a stored entry.
pub(super) const ENTRY: usize = 16;
const LBA_BITS: u32 = 38;

/// A page of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPage {
    /// The tag in the superblock.
    pub tag: u64,
    /// Sequence number of the page in the log.
    pub sequence: u64,
    /// Sequence number of the oldest valid page.
    pub head: u64,
    /// At most [`ENTRIES_PER_LOG_PAGE`].
    pub entries: Vec<LogEntry>,
}

impl LogPage {
    /// Encodes the page.
    ///
    /// # Panics
    /// If there are too many entries.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.entries.len() <= ENTRIES_PER_LOG_PAGE, "a page of the log holds so many entries");
        let mut out = vec![0; SECTOR_BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[12..14].copy_from_slice(&(self.entries.len() as u16).to_le_bytes());
        out[16..24].copy_from_slice(&self.tag.to_le_bytes());
        out[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        out[32..40].copy_from_slice(&self.head.to_le_bytes());
        for (at, entry) in self.entries.iter().enumerate() {
            out[HEAD + at * ENTRY..][..ENTRY].copy_from_slice(&encode_entry(entry));
        }
        seal(&mut out);
        out
    }

    /// Decodes a page of the SSD.
    pub fn decode(stored: &[u8]) -> Result<LogPage> {
        if stored.len() != SECTOR_BYTES || &stored[..8] != MAGIC || !is_sealed(stored) {
            return Err(Error::corrupt("it is no page of a cache's log"));
        }
        let count = usize::from(u16_at(stored, 12));
        if count > ENTRIES_PER_LOG_PAGE {
            return Err(Error::corrupt("a page of a cache's log has more entries than there is room for"));
        }
        let entries = stored[HEAD..].chunks(ENTRY).take(count).map(decode_entry).collect::<Result<_>>()?;
        let [tag, sequence, head] = [16, 24, 32].map(|at| u64_at(stored, at));
        Ok(LogPage { tag, sequence, head, entries })
    }
}

/// Encodes an entry, for the log and for NVRAM.
pub(super) fn encode_entry(entry: &LogEntry) -> [u8; ENTRY] {
    let state: u64 = match entry.state {
        PageState::Clean => 1,
        PageState::Old => 2,
        PageState::New => 3,
        PageState::Free | PageState::Delta => 0,
    };
    // Offset 0 is inside the head of a delta page, so a place of 0 means that there is no delta; then the sum is
    // stored.
    let (page, offset, bytes) =
        entry.delta.map_or((stored_sum(entry.sum), 0, 0), |(page, o, b)| (page.0, o, b));
    let place = u32::from(offset) | u32::from(bytes) << 12;
    let mut out = [0; ENTRY];
    out[..4].copy_from_slice(&entry.page.0.to_le_bytes());
    out[4..9].copy_from_slice(&(entry.lba.0 | state << LBA_BITS).to_le_bytes()[..5]);
    out[9..12].copy_from_slice(&place.to_le_bytes()[..3]);
    out[12..].copy_from_slice(&page.to_le_bytes());
    out
}

pub(super) fn decode_entry(stored: &[u8]) -> Result<LogEntry> {
    let sector = u64_at(&[&stored[4..9], &[0; 3]].concat(), 0);
    let place = u32_at(&[&stored[9..12], &[0]].concat(), 0);
    let state = match sector >> LBA_BITS {
        0 => PageState::Free,
        1 => PageState::Clean,
        2 => PageState::Old,
        _ => PageState::New,
    };
    let (page, lba) = (PageNo(u32_at(stored, 0)), Lba(sector & ((1 << LBA_BITS) - 1)));
    let last = u32_at(stored, 12);
    if place == 0 {
        return Ok(LogEntry { page, state, lba, delta: None, sum: known(last) });
    }
    if state != PageState::Old {
        return Err(Error::corrupt("an entry of a cache's log has a delta and is not old"));
    }
    let delta = Some((PageNo(last), (place & 0xFFF) as u16, (place >> 12) as u16));
    Ok(LogEntry { page, state, lba, delta, sum: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_they_were() {
        let entry = |page: u32| LogEntry {
            page: PageNo(page),
            state: [PageState::Free, PageState::Clean, PageState::Old, PageState::New][page as usize % 4],
            lba: Lba(u64::from(page) * 1_000_000_007 % (1 << 38)),
            delta: (page % 4 == 2).then_some((PageNo(page * 3), 4095, page as u16 % 4049)),
            sum: (page % 8 == 1).then_some(page * 1001),
        };
        for count in [0, 1, ENTRIES_PER_LOG_PAGE] {
            let page = LogPage {
                tag: 3,
                sequence: 1 << 40,
                head: 7,
                entries: (0..count as u32).map(entry).collect(),
            };
            let mut stored = page.encode();
            assert_eq!(LogPage::decode(&stored).unwrap(), page);
            stored[4000] ^= 1;
            assert!(LogPage::decode(&stored).is_err());
        }
    }
}
