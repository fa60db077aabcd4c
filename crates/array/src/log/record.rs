//! Stored form of the log's records and heads (docs/formats/array.md).

use crate::access::{Access, What};
use crate::superblock::{Id, id_at, is_sealed, seal, u16_at, u32_at, u64_at};
use std::borrow::Cow;
use std::ops::Range;
use vellum_base::SECTOR_BYTES;

const RECORD_MAGIC: &[u8; 8] = b"VLMLOGRC";
const HEAD_MAGIC: &[u8; 8] = b"VLMLOGHD";
const VERSION: u32 = 1;
const EXTENTS: usize = 64;
const EXTENT: usize = 16;
/// Most extents of a record: a write has at most three per member; parity updates and scrubs limit theirs.
pub(crate) const EXTENTS_MAX: usize = (SECTOR_BYTES - EXTENTS) / EXTENT;

/// New content of sectors of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub role: usize,
    /// First sector, counted from the start of the member.
    pub sector: u64,
    pub content: Content,
}

impl Extent {
    /// The member's role, and the sectors.
    pub fn place(&self) -> (usize, Range<u64>) {
        (self.role, self.sector..self.sector + u64::from(self.content.sectors()))
    }

    /// The call that writes them.
    pub fn write(self, fua: bool) -> Access {
        let what = match self.content {
            Content::Bytes(bytes) => What::Write(bytes, fua),
            Content::Zeros(sectors) => What::Zero(sectors.into(), fua),
        };
        Access { role: self.role, sector: self.sector, what }
    }
}

/// Content of an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Whole sectors.
    Bytes(Vec<u8>),
    /// This many sectors of zeros.
    Zeros(u32),
}

impl Content {
    /// How many sectors.
    pub fn sectors(&self) -> u32 {
        match self {
            Content::Bytes(bytes) => (bytes.len() / SECTOR_BYTES) as u32,
            Content::Zeros(sectors) => *sectors,
        }
    }
}

impl Extent {
    /// Merges extents of bytes that are adjacent on a member, to bound their number. Sorts by member and sector.
    pub fn joined(mut extents: Vec<Extent>) -> Vec<Extent> {
        extents.sort_by_key(|extent| (extent.role, extent.sector));
        let mut joined: Vec<Extent> = Vec::with_capacity(extents.len());
        for extent in extents {
            if let Some(last) = joined.last_mut()
                && (last.role, last.sector + u64::from(last.content.sectors()))
                    == (extent.role, extent.sector)
                && let (Content::Bytes(bytes), Content::Bytes(more)) = (&mut last.content, &extent.content)
            {
                bytes.extend_from_slice(more);
                continue;
            }
            joined.push(extent);
        }
        joined
    }
}

/// A change of one row, to be repeated after a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub epoch: u64,
    pub sequence: u64,
    /// A bit for each role that gets this record.
    pub participants: u64,
    pub extents: Cow<'a, [Extent]>,
}

/// Sectors of a record with these extents.
pub(crate) fn record_sectors(extents: &[Extent]) -> u32 {
    1 + extents.iter().map(|extent| payload_sectors(&extent.content)).sum::<u32>()
}

/// Most sectors of a record: one with all chunks of a row.
pub(crate) fn largest_record(chunk_sectors: u32, members: usize) -> u32 {
    chunk_sectors.saturating_mul(members as u32).saturating_add(1)
}

fn payload_sectors(content: &Content) -> u32 {
    match content {
        Content::Bytes(_) => content.sectors(),
        Content::Zeros(_) => 0,
    }
}

impl Record<'_> {
    /// Encodes the record.
    pub fn encode(&self, array: &Id) -> Vec<u8> {
        assert!(self.extents.len() <= EXTENTS_MAX, "who makes a record keeps to what fits");
        let sectors = record_sectors(&self.extents);
        let mut out = vec![0; SECTOR_BYTES];
        out.reserve_exact((sectors as usize - 1) * SECTOR_BYTES);
        out[..8].copy_from_slice(RECORD_MAGIC);
        out[12..16].copy_from_slice(&(sectors - 1).to_le_bytes());
        out[16..32].copy_from_slice(array);
        out[32..40].copy_from_slice(&self.epoch.to_le_bytes());
        out[40..48].copy_from_slice(&self.sequence.to_le_bytes());
        out[48..56].copy_from_slice(&self.participants.to_le_bytes());
        out[56..60].copy_from_slice(&(self.extents.len() as u32).to_le_bytes());
        for (i, extent) in self.extents.iter().enumerate() {
            let at = EXTENTS + i * EXTENT;
            out[at..at + 2].copy_from_slice(&(extent.role as u16).to_le_bytes());
            out[at + 2] = u8::from(matches!(extent.content, Content::Zeros(_)));
            out[at + 4..at + 8].copy_from_slice(&extent.content.sectors().to_le_bytes());
            out[at + 8..at + 16].copy_from_slice(&extent.sector.to_le_bytes());
        }
        for extent in self.extents.iter() {
            if let Content::Bytes(bytes) = &extent.content {
                out.extend_from_slice(bytes);
            }
        }
        seal(&mut out);
        out
    }

    /// Decodes the record at the beginning of `ring`, if there is one of this array and epoch; also returns how many
    /// sectors it takes.
    pub fn decode(ring: &[u8], array: &Id, epoch: u64) -> Option<(Record<'static>, usize)> {
        let head = ring.get(..SECTOR_BYTES)?;
        if &head[..8] != RECORD_MAGIC || id_at(head, 16) != *array || u64_at(head, 32) != epoch {
            return None;
        }
        let sectors = (u32_at(head, 12) as usize).checked_add(1)?;
        let stored = ring.get(..sectors.checked_mul(SECTOR_BYTES)?)?;
        let count = u32_at(head, 56) as usize;
        if count > EXTENTS_MAX || !is_sealed(stored) {
            return None;
        }
        let mut payload = &stored[SECTOR_BYTES..];
        let extents = (0..count).map(|i| extent(&head[EXTENTS + i * EXTENT..], &mut payload));
        let extents = extents.collect::<Option<Vec<_>>>()?.into();
        let record = Record { epoch, sequence: u64_at(head, 40), participants: u64_at(head, 48), extents };
        Some((record, sectors))
    }
}

fn extent(stored: &[u8], payload: &mut &[u8]) -> Option<Extent> {
    let sectors = u32_at(stored, 4);
    let content = match stored[2] {
        0 => {
            let (bytes, rest) = payload.split_at_checked((sectors as usize).checked_mul(SECTOR_BYTES)?)?;
            *payload = rest;
            Content::Bytes(bytes.to_vec())
        }
        1 => Content::Zeros(sectors),
        _ => return None,
    };
    Some(Extent { role: usize::from(u16_at(stored, 0)), sector: u64_at(stored, 8), content })
}

/// A head: says which records of a ring are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub epoch: u64,
    /// The previous epoch, for superblocks that do not have this one yet.
    pub previous: u64,
    pub oldest: u64,
    pub generation: u64,
    /// Length of the ring; 0 in heads of older versions, which do not record it.
    pub ring_sectors: u32,
    /// A bit for each role whose ring could not be read entirely; it is not trusted until a cache has learned of it.
    pub unread: u64,
}

impl Head {
    /// Encodes the head.
    pub fn encode(&self, array: &Id) -> Vec<u8> {
        let mut out = vec![0; SECTOR_BYTES];
        out[..8].copy_from_slice(HEAD_MAGIC);
        out[12..16].copy_from_slice(&VERSION.to_le_bytes());
        out[16..32].copy_from_slice(array);
        out[32..40].copy_from_slice(&self.epoch.to_le_bytes());
        out[40..48].copy_from_slice(&self.oldest.to_le_bytes());
        out[48..56].copy_from_slice(&self.generation.to_le_bytes());
        out[56..64].copy_from_slice(&self.previous.to_le_bytes());
        out[64..68].copy_from_slice(&self.ring_sectors.to_le_bytes());
        out[68..76].copy_from_slice(&self.unread.to_le_bytes());
        seal(&mut out);
        out
    }

    /// The array that a head belongs to; `None` if the sector is not a head.
    pub fn owner(sector: &[u8]) -> Option<Id> {
        Head::decode(sector, &id_at(sector, 16)).map(|_| id_at(sector, 16))
    }

    /// Decodes a head of this array.
    pub fn decode(sector: &[u8], array: &Id) -> Option<Head> {
        let ours = &sector[..8] == HEAD_MAGIC && u32_at(sector, 12) == VERSION && id_at(sector, 16) == *array;
        let head = Head {
            epoch: u64_at(sector, 32),
            oldest: u64_at(sector, 40),
            generation: u64_at(sector, 48),
            previous: u64_at(sector, 56),
            ring_sectors: u32_at(sector, 64),
            unread: u64_at(sector, 68),
        };
        // With a greater generation the numbers might run out.
        (ours && is_sealed(sector) && head.generation < u64::MAX / 2).then_some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record<'static> {
        let extents = vec![
            Extent { role: 2, sector: 700, content: Content::Bytes(vec![3; 2 * SECTOR_BYTES]) },
            Extent { role: 0, sector: 9, content: Content::Zeros(16) },
            Extent { role: 1, sector: 1 << 40, content: Content::Bytes(vec![4; SECTOR_BYTES]) },
        ];
        Record { epoch: 77, sequence: 5, participants: 0b10, extents: extents.into() }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_no_other_array_s() {
        let stored = record().encode(&[1; 16]);
        assert_eq!(stored.len(), 4 * SECTOR_BYTES);
        assert_eq!(Record::decode(&stored, &[1; 16], 77), Some((record(), 4)));
        assert_eq!(Record::decode(&stored, &[2; 16], 77), None);
        assert_eq!(Record::decode(&stored, &[1; 16], 78), None, "of an epoch before");
        assert_eq!(Record::decode(&stored[..3 * SECTOR_BYTES], &[1; 16], 77), None, "cut off");
    }

    #[test]
    fn a_head_is_read_as_it_was_written_and_an_older_one_does_not_say_how_long_the_ring_is() {
        let head =
            Head { epoch: 7, previous: 6, oldest: 5, generation: 4, ring_sectors: u32::MAX, unread: 3 };
        let mut stored = head.encode(&[1; 16]);
        assert_eq!(Head::decode(&stored, &[1; 16]), Some(head));
        assert_eq!(Head::decode(&stored, &[2; 16]), None);
        stored[64..68].fill(0);
        assert_eq!(Head::decode(&stored, &[1; 16]), None, "of another ring");
        seal(&mut stored);
        assert_eq!(Head::decode(&stored, &[1; 16]), Some(Head { ring_sectors: 0, ..head }));
    }

    #[test]
    fn a_torn_record_is_none() {
        let stored = record().encode(&[1; 16]);
        for sector in 1..4 {
            let mut torn = stored.clone();
            torn[sector * SECTOR_BYTES..][..SECTOR_BYTES].fill(0);
            assert_eq!(Record::decode(&torn, &[1; 16], 77), None, "sector {sector} is old");
        }
    }
}
