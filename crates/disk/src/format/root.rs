//! Root: the anchor of a checkpoint.

use super::SEQ_END;
use super::bytes::{get_u32, get_u64, put};
use crate::options::{DedupMode, Identity};
use vellum_base::{Avoided, Cause, Error, LedgerSnapshot, Result, SECTOR_BYTES};
use vellum_codes::HashKind;

const MAGIC: &[u8; 8] = b"VELLUMD\0";
const VERSION: u32 = 1;
/// Bytes of a ledger in roots and NVRAM images.
pub(crate) const LEDGER_BYTES: usize = 8 * 40;
const LIFE_AT: usize = 88;
const LEDGER_AT: usize = 128;
const CAUSES: usize = 24;
/// Limit of each counter of the ledger in bytes: a quarter of an exbibyte. The sum of forty of them fits in a u64.
const LEDGER_END: u64 = 1 << 58;
const DIRECTORIES_AT: usize = LEDGER_AT + LEDGER_BYTES;
/// Directory addresses that fit in a root: 912, for 3.5 TiB of sectors.
pub(crate) const DIRECTORIES_MAX: usize = (SECTOR_BYTES - DIRECTORIES_AT) / 4;

const _: () = assert!(Cause::COUNT <= CAUSES && Avoided::COUNT <= 14);

/// Lifetime counters of a disk other than bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LifeCounters {
    pub host_commands: u64,
    pub opened: u64,
    pub unsafe_shutdowns: u64,
    pub powered_ns: u64,
}

/// Bytes of life counters in roots and NVRAM images.
pub(crate) const LIFE_BYTES: usize = 4 * 8;

impl LifeCounters {
    pub(super) fn encode(&self, out: &mut [u8]) {
        let values = [self.host_commands, self.opened, self.unsafe_shutdowns, self.powered_ns];
        for (i, value) in values.into_iter().enumerate() {
            put(out, 8 * i, &value.to_le_bytes());
        }
    }

    /// None if one is implausibly large.
    pub(super) fn decode(b: &[u8]) -> Option<LifeCounters> {
        let [host_commands, opened, unsafe_shutdowns, powered_ns] = [0, 8, 16, 24].map(|at| get_u64(b, at));
        let life = LifeCounters { host_commands, opened, unsafe_shutdowns, powered_ns };
        let possible = [host_commands, opened, unsafe_shutdowns, powered_ns].into_iter().all(|n| n < SEQ_END);
        possible.then_some(life)
    }
}

/// See docs/formats/disk.md.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub identity: Identity,
    pub checkpoint_seq: u64,
    pub durable_seq: u64,
    pub log_numbers: u32,
    pub life: LifeCounters,
    pub clean: bool,
    pub ledger: LedgerSnapshot,
    pub directories: Vec<u32>,
}

impl Root {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut b = vec![0; SECTOR_BYTES];
        let id = &self.identity;
        put(&mut b, 0, MAGIC);
        put(&mut b, 8, &VERSION.to_le_bytes());
        put(&mut b, 16, &id.uuid);
        put(&mut b, 32, &id.sectors.to_le_bytes());
        put(&mut b, 40, &self.checkpoint_seq.to_le_bytes());
        put(&mut b, 48, &self.durable_seq.to_le_bytes());
        put(&mut b, 56, &id.seed.to_le_bytes());
        put(&mut b, 64, &self.log_numbers.to_le_bytes());
        put(&mut b, 68, &(self.directories.len() as u32).to_le_bytes());
        let (policy, hash) = mode_bytes(id.dedup);
        put(&mut b, 72, &[policy, hash, u8::from(id.keep_copies)]);
        put(&mut b, 76, &id.spare_blocks.to_le_bytes());
        put(&mut b, 80, &id.tbw_bytes.to_le_bytes());
        self.life.encode(&mut b[LIFE_AT..]);
        b[120] = u8::from(self.clean);
        encode_ledger(&self.ledger, &mut b[LEDGER_AT..]);
        for (i, slot) in self.directories.iter().enumerate() {
            put(&mut b, DIRECTORIES_AT + 4 * i, &slot.to_le_bytes());
        }
        let crc = crc_without_field(&b);
        put(&mut b, 12, &crc.to_le_bytes());
        b
    }

    /// `Ok(None)` if these bytes are no root; an error if they are one of an unknown version.
    pub(crate) fn decode(b: &[u8]) -> Result<Option<Root>> {
        if b.len() != SECTOR_BYTES || &b[..8] != MAGIC || get_u32(b, 12) != crc_without_field(b) {
            return Ok(None);
        }
        let version = get_u32(b, 8);
        if version != VERSION {
            return Err(Error::corrupt(format!(
                "the disk has format version {version}; this program reads version {VERSION}. Use a newer release"
            )));
        }
        let directories = get_u32(b, 68) as usize;
        let Some(dedup) = mode_from_bytes(b[72], b[73]) else { return Ok(None) };
        let Some(ledger) = decode_ledger(&b[LEDGER_AT..]) else { return Ok(None) };
        let Some(life) = LifeCounters::decode(&b[LIFE_AT..]) else { return Ok(None) };
        let counters = [40, 48].map(|at| get_u64(b, at));
        if directories > DIRECTORIES_MAX || counters.into_iter().any(|n| n >= SEQ_END) {
            return Ok(None);
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&b[16..32]);
        Ok(Some(Root {
            identity: Identity {
                uuid,
                sectors: get_u64(b, 32),
                seed: get_u64(b, 56),
                dedup,
                keep_copies: b[74] & 1 == 1,
                spare_blocks: get_u32(b, 76),
                tbw_bytes: get_u64(b, 80),
            },
            checkpoint_seq: get_u64(b, 40),
            durable_seq: get_u64(b, 48),
            log_numbers: get_u32(b, 64),
            life,
            clean: b[120] == 1,
            ledger,
            directories: (0..directories).map(|i| get_u32(b, DIRECTORIES_AT + 4 * i)).collect(),
        }))
    }
}

fn crc_without_field(b: &[u8]) -> u32 {
    vellum_codes::crc32c(&b[16..]) ^ vellum_codes::crc32c(&b[..12]).rotate_left(1)
}

fn mode_bytes(mode: DedupMode) -> (u8, u8) {
    let hash_byte = |h: HashKind| HashKind::ALL.iter().position(|k| *k == h).unwrap_or(0) as u8;
    match mode {
        DedupMode::None => (0, 0),
        DedupMode::Strong(h) => (1, hash_byte(h)),
        DedupMode::Journal => (2, 0),
        DedupMode::WojPaper(h) => (3, hash_byte(h)),
        DedupMode::Ecc => (4, 0),
        DedupMode::EccPaper => (5, 0),
    }
}

fn mode_from_bytes(policy: u8, hash: u8) -> Option<DedupMode> {
    let hash = *HashKind::ALL.get(hash as usize)?;
    Some(match policy {
        0 => DedupMode::None,
        1 => DedupMode::Strong(hash),
        2 => DedupMode::Journal,
        3 => DedupMode::WojPaper(hash),
        4 => DedupMode::Ecc,
        5 => DedupMode::EccPaper,
        _ => return None,
    })
}

pub(crate) fn encode_ledger(ledger: &LedgerSnapshot, out: &mut [u8]) {
    put(out, 0, &ledger.host_read_bytes.to_le_bytes());
    put(out, 8, &ledger.host_written_bytes.to_le_bytes());
    for (i, value) in ledger.programmed.iter().enumerate() {
        put(out, 16 + 8 * i, &value.to_le_bytes());
    }
    for (i, value) in ledger.avoided.iter().enumerate() {
        put(out, 16 + 8 * (CAUSES + i), &value.to_le_bytes());
    }
}

/// `None` if a counter is implausibly large: sums of them must not overflow.
pub(crate) fn decode_ledger(b: &[u8]) -> Option<LedgerSnapshot> {
    if (0..LEDGER_BYTES).step_by(8).any(|at| get_u64(b, at) >= LEDGER_END) {
        return None;
    }
    Some(LedgerSnapshot {
        host_read_bytes: get_u64(b, 0),
        host_written_bytes: get_u64(b, 8),
        programmed: std::array::from_fn(|i| get_u64(b, 16 + 8 * i)),
        avoided: std::array::from_fn(|i| get_u64(b, 16 + 8 * (CAUSES + i))),
    })
}

#[cfg(test)]
pub(crate) fn sample() -> Root {
    let mut ledger = LedgerSnapshot { host_read_bytes: 1, host_written_bytes: 2, ..Default::default() };
    ledger.programmed[Cause::Bubble as usize] = 77;
    ledger.avoided[0] = 5;
    Root {
        identity: Identity {
            uuid: [3; 16],
            sectors: 1 << 22,
            seed: 99,
            dedup: DedupMode::Strong(HashKind::Sha1),
            keep_copies: true,
            spare_blocks: 12,
            tbw_bytes: 1 << 40,
        },
        checkpoint_seq: 1000,
        durable_seq: 1001,
        log_numbers: 4,
        life: LifeCounters { host_commands: 8, opened: 2, unsafe_shutdowns: 1, powered_ns: 55 },
        clean: true,
        ledger,
        directories: vec![7, 8, 9],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_round_trip_and_torn_ones_are_refused() {
        let root = sample();
        let bytes = root.encode();
        assert_eq!(Root::decode(&bytes).unwrap(), Some(root));
        for at in (0..SECTOR_BYTES).step_by(37).chain(0..460) {
            let mut torn = bytes.clone();
            torn[at] ^= 4;
            assert!(!matches!(Root::decode(&torn), Ok(Some(_))), "byte {at}");
        }
    }

    #[test]
    fn an_unknown_version_is_named() {
        let mut bytes = sample().encode();
        put(&mut bytes, 8, &9u32.to_le_bytes());
        let crc = crc_without_field(&bytes);
        put(&mut bytes, 12, &crc.to_le_bytes());
        assert!(Root::decode(&bytes).unwrap_err().to_string().contains("version 9"));
    }
}
