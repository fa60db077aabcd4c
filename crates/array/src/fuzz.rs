//! Entry points for fuzzing the decoders of everything stored on devices, with arbitrary bytes. Magic numbers and
//! checksums are made valid first, so that the code behind them is reached.

use crate::bitmap::{Bitmap, encode};
use crate::cache::engine::nvram::{HalfHead, State, Whose, decode_batch, encode_batch, replay};
use crate::cache::engine::{CacheSuperblock, LogPage, Stored, delta_page};
use crate::cache::step::PageNo;
use crate::log::{decode_head, decode_record};
use crate::superblock::{Superblock, id_at, is_sealed, seal, u64_at};
use vellum_base::{Lba, SECTOR_BYTES};

/// A sector that begins with `magic`, holds these bytes, and has a valid checksum.
fn sector(magic: &[u8; 8], bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0; SECTOR_BYTES];
    let kept = bytes.len().min(SECTOR_BYTES - 12);
    out[..8].copy_from_slice(magic);
    out[12..12 + kept].copy_from_slice(&bytes[..kept]);
    seal(&mut out);
    out
}

/// Superblocks of members.
pub fn superblock(bytes: &[u8]) {
    let _ = Superblock::decode(bytes);
    if let Ok(found) = Superblock::decode(&sector(b"VLMARRAY", bytes)) {
        assert_eq!(Superblock::decode(&found.encode()).expect("what is written is read"), found);
    }
}

/// Sectors of a bitmap: bits that are set are counted, and none beyond its end.
pub fn bitmap(bytes: &[u8]) {
    let stored = sector(b"VLMBITMP", bytes);
    let array = id_at(&stored, 16);
    let bitmap = Bitmap::new(2, 40_000);
    bitmap.merge(&array, &[stored, encode(&array, 1, &vec![0x80; SECTOR_BYTES - 32])].concat());
    assert!(bitmap.count() >= bitmap.ones(0, usize::MAX).len() as u64);
}

/// Records and heads of the log that closes the write hole.
pub fn log(bytes: &[u8]) {
    decode_head(&sector(b"VLMLOGHD", bytes));
    let mut ring = bytes.to_vec();
    ring.resize(ring.len().next_multiple_of(SECTOR_BYTES).max(SECTOR_BYTES), 0);
    ring[..8].copy_from_slice(b"VLMLOGRC");
    let sectors = ring.len() / SECTOR_BYTES;
    ring[12..16].copy_from_slice(&((sectors - 1) as u32).to_le_bytes());
    seal(&mut ring);
    if let Some(taken) = decode_record(&ring, &id_at(&ring, 16), u64_at(&ring, 32)) {
        assert!((1..=sectors).contains(&taken));
    }
}

/// Superblocks of caches.
pub fn cache_superblock(bytes: &[u8]) {
    let _ = CacheSuperblock::decode(bytes);
    if let Ok(found) = CacheSuperblock::decode(&sector(b"VLMCACHE", bytes)) {
        assert_eq!(CacheSuperblock::decode(&found.encode()).expect("what is written is read"), found);
    }
}

/// Pages of a cache's metadata log.
pub fn cache_log(bytes: &[u8]) {
    let _ = LogPage::decode(bytes);
    if let Ok(found) = LogPage::decode(&sector(b"VLMCLOGP", bytes)) {
        assert_eq!(LogPage::decode(&found.encode()).expect("what is written is read"), found);
    }
}

/// Pages of deltas, and the search for a delta in them.
pub fn cache_deltas(bytes: &[u8]) {
    let stored = sector(b"VLMDELTA", bytes);
    assert!(is_sealed(&stored));
    let field = |at: usize| u64_at(&stored, at);
    for at in (32..SECTOR_BYTES - 16).step_by(16).take(8) {
        let wanted = Stored {
            home: PageNo(0),
            check: if stored[14] == 1 {
                delta_page::check_of(&stored)
            } else {
                (field(at) >> 32) as u32 & 0xFF_FFFF
            },
            base: PageNo(field(at) as u32),
            lba: Lba(field(at + 8)),
        };
        if let Ok((delta, _)) = delta_page::find(&stored, field(16), &wanted) {
            assert!(delta.len() < SECTOR_BYTES);
            let _ = vellum_codes::delta::apply(&delta, &mut vec![0; SECTOR_BYTES]);
        }
    }
}

/// Halves of an NVRAM: batches of records. The state that they replay to must survive encoding and another replay.
pub fn cache_nvram(bytes: &[u8]) {
    let _ = HalfHead::decode(&sector(b"VLMCNVRM", bytes));
    let _ = decode_batch(bytes, 7);
    let mut half = Vec::new();
    encode_batch(7, bytes, &mut half);
    half.resize(half.len().next_multiple_of(SECTOR_BYTES), 0);
    let head = HalfHead { whose: Whose::default(), generation: 7, log: (0, 0), bytes: 0, mark: 7 };
    let Ok(state) = replay(&head, &half) else { return };
    let mut again = State { log: state.log, ..State::default() };
    state.records().iter().for_each(|record| again.apply(record));
    assert_eq!(again, state);
}
