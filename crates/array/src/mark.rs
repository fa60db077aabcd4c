//! The mark of a device that is being prepared to take a member's place (docs/formats/array.md): it names the member.
//! Without it, nothing shows that a device is still the one on which an earlier copy was begun.

use crate::assemble::Device;
use crate::superblock::{Id, id_at, is_sealed, seal, u16_at, u32_at};
use vellum_base::{Error, Lba, Result, SECTOR_BYTES};

const MAGIC: &[u8; 8] = b"VLMCOPY\0";
const VERSION: u32 = 1;

/// Stored in sector 0, where the superblock will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The array.
    pub array: Id,
    /// The member to be replaced.
    pub role: usize,
    /// Random, chosen when the device was prepared.
    pub id: Id,
}

impl Mark {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; SECTOR_BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[12..16].copy_from_slice(&VERSION.to_le_bytes());
        out[16..32].copy_from_slice(&self.array);
        out[32..48].copy_from_slice(&self.id);
        out[48..50].copy_from_slice(&(self.role as u16).to_le_bytes());
        seal(&mut out);
        out
    }

    fn decode(sector: &[u8]) -> Option<Mark> {
        (&sector[..8] == MAGIC && u32_at(sector, 12) == VERSION && is_sealed(sector)).then(|| Mark {
            array: id_at(sector, 16),
            role: u16_at(sector, 48).into(),
            id: id_at(sector, 32),
        })
    }
}

/// Reads the mark of a device. Fails if there is none.
pub fn examine_mark(device: &Device) -> Result<Mark> {
    let mut sector = vec![0; SECTOR_BYTES];
    device.info().check_range(Lba(0), 1)?;
    device.read(Lba(0), &mut sector)?;
    Mark::decode(&sector).ok_or_else(|| Error::invalid("it is not marked as a copy of a member"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_and_nothing_else_is_one() {
        let mark = Mark { array: [3; 16], role: 61, id: [9; 16] };
        let stored = mark.encode();
        assert_eq!(Mark::decode(&stored), Some(mark));
        for at in [0, 8, 12, 16, 32, 48, 4095] {
            let mut other = stored.clone();
            other[at] ^= 1;
            assert_eq!(Mark::decode(&other), None, "byte {at}");
        }
    }
}
