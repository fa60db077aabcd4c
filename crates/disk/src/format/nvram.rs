//! NVRAM image: the open page and the open log slot, saved by a flush without programming them.

use super::bytes::{get_u16, get_u32, get_u64, put};
use super::log_slot::LogSlot;
use super::oob::{OOB_ENTRY_BYTES, Oob};
use super::root::{LEDGER_BYTES, LIFE_BYTES, LifeCounters, decode_ledger, encode_ledger};
use super::{NO_SLOT, SEQ_END};
use vellum_base::{Geometry, LedgerSnapshot, SECTOR_BYTES, SlotAddr};

const MAGIC: &[u8; 8] = b"VELLUMN\0";
const LIFE_AT: usize = 64 + LEDGER_BYTES;
const HEADER_BYTES: usize = LIFE_AT + LIFE_BYTES;
const STAGED_BYTES: usize = OOB_ENTRY_BYTES + SECTOR_BYTES;

/// Bytes of one of the two areas, for pages of `slots_per_page`.
pub(crate) const fn area_bytes(slots_per_page: u32) -> usize {
    2 * SECTOR_BYTES + SECTOR_BYTES * slots_per_page as usize
}

/// See docs/formats/disk.md.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NvramImage {
    pub uuid: [u8; 16],
    pub generation: u64,
    pub durable_seq: u64,
    /// Open page: block, page.
    pub open: Option<(u32, u32)>,
    pub staged: Vec<(Oob, Vec<u8>)>,
    pub log: Vec<u8>,
    pub ledger: LedgerSnapshot,
    pub life: LifeCounters,
}

/// The address used to encode the entries of an image.
const IN_NVRAM: SlotAddr = SlotAddr(NO_SLOT);

impl NvramImage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let length = HEADER_BYTES + self.staged.len() * STAGED_BYTES + self.log.len();
        let mut b = vec![0; length];
        let (block, page) = self.open.unwrap_or((u32::MAX, 0));
        put(&mut b, 0, MAGIC);
        put(&mut b, 12, &(length as u32).to_le_bytes());
        put(&mut b, 16, &self.uuid);
        put(&mut b, 32, &self.generation.to_le_bytes());
        put(&mut b, 40, &self.durable_seq.to_le_bytes());
        put(&mut b, 48, &block.to_le_bytes());
        put(&mut b, 52, &page.to_le_bytes());
        put(&mut b, 56, &(self.staged.len() as u16).to_le_bytes());
        put(&mut b, 58, &(self.log.len() as u16).to_le_bytes());
        encode_ledger(&self.ledger, &mut b[64..]);
        self.life.encode(&mut b[LIFE_AT..]);
        let mut at = HEADER_BYTES;
        for (oob, data) in &self.staged {
            oob.encode(IN_NVRAM, &mut b[at..]);
            put(&mut b, at + OOB_ENTRY_BYTES, data);
            at += STAGED_BYTES;
        }
        put(&mut b, at, &self.log);
        let crc = vellum_codes::crc32c(&b[12..]);
        put(&mut b, 8, &crc.to_le_bytes());
        b
    }

    /// True if the image can belong to a disk on this flash.
    pub(crate) fn fits(&self, geometry: &Geometry) -> bool {
        let open = self
            .open
            .is_none_or(|(block, page)| block < geometry.blocks() && page < geometry.pages_per_block);
        let log = LogSlot::decode(&self.log).is_none_or(|log| log.base_seq <= self.durable_seq);
        let lengths =
            self.staged.len() < geometry.slots_per_page().max(2) as usize && self.log.len() <= SECTOR_BYTES;
        open && log && lengths
    }

    pub(crate) fn decode(b: &[u8]) -> Option<NvramImage> {
        if b.len() < HEADER_BYTES || &b[..8] != MAGIC {
            return None;
        }
        let length = get_u32(b, 12) as usize;
        let b = b.get(..length).filter(|b| b.len() >= HEADER_BYTES)?;
        let (staged, log_length) = (get_u16(b, 56) as usize, get_u16(b, 58) as usize);
        if length != HEADER_BYTES + staged * STAGED_BYTES + log_length
            || vellum_codes::crc32c(&b[12..]) != get_u32(b, 8)
            || get_u64(b, 32).max(get_u64(b, 40)) >= SEQ_END
        {
            return None;
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&b[16..32]);
        let slots = b[HEADER_BYTES..HEADER_BYTES + staged * STAGED_BYTES].chunks_exact(STAGED_BYTES);
        Some(NvramImage {
            uuid,
            generation: get_u64(b, 32),
            durable_seq: get_u64(b, 40),
            open: (get_u32(b, 48) != u32::MAX).then(|| (get_u32(b, 48), get_u32(b, 52))),
            staged: slots
                .map(|s| Some((Oob::decode(s, IN_NVRAM)?, s[OOB_ENTRY_BYTES..].to_vec())))
                .collect::<Option<_>>()?,
            log: b[length - log_length..].to_vec(),
            ledger: decode_ledger(&b[64..])?,
            life: LifeCounters::decode(&b[LIFE_AT..])?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::oob::SlotKind;
    use super::*;
    use vellum_base::Cause;

    #[test]
    fn images_round_trip_and_torn_ones_are_refused() {
        let oob = Oob { seq: 4, id: 1, data_crc: 2, kind: SlotKind::Data, cause: Cause::HostData };
        let image = NvramImage {
            uuid: [1; 16],
            generation: 9,
            durable_seq: 5,
            open: Some((3, 4)),
            staged: vec![(oob, vec![7; SECTOR_BYTES])],
            log: vec![1, 2, 3],
            ledger: super::super::root::sample().ledger,
            life: LifeCounters { opened: 3, ..LifeCounters::default() },
        };
        let bytes = image.encode();
        assert!(bytes.len() <= area_bytes(2));
        assert_eq!(NvramImage::decode(&bytes), Some(image));
        for cut in [0, 10, 63, 400, bytes.len() - 1] {
            let mut torn = bytes.clone();
            torn[cut..].fill(0xEE);
            assert_eq!(NvramImage::decode(&torn), None, "cut at {cut}");
        }
    }
}
