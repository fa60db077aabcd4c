//! Flash that anybody may have written: heads of the NVRAM and its areas, copies of CURRENT, and tags of superblocks,
//! with the checksums that they need. Nothing panics or takes much memory. Beside the tests, a target for fuzzing.

use std::sync::Arc;
use vellum_base::{BlockAddr, Env, Flash, Geometry, IoClass, Nvram, RealEnv, Source};
use vellum_codes::crc32c;
use vellum_kv::{FlashMedia, Glance, Media, Options, Store, repair};
use vellum_media::nand::{Nand, NandParams};

const GEOMETRY: Geometry = Geometry {
    channels: 2,
    dies_per_channel: 2,
    blocks_per_die: 3,
    pages_per_block: 4,
    page_bytes: 4096,
    oob_bytes: 0,
};
const NVRAM_BYTES: usize = 64 << 10;
/// A tag, with its bitmap of four dies (docs/formats/kv-flash.md).
const TAG_BYTES: usize = 41;

/// Takes numbers off the front of `bytes`; 0 where there are none.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Small, mostly, or of any size.
    fn u64(&mut self) -> u64 {
        match self.u8() {
            255 => u64::from_le_bytes([(); 8].map(|()| self.u8())),
            small => small.into(),
        }
    }
}

fn seal(bytes: &mut [u8], until: usize) {
    let crc = crc32c(&bytes[8..until]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// Writes over what formatting left, some of it in places that count.
fn write_nvram(nvram: &dyn Nvram, numbers: &mut Numbers<'_>) {
    let mut bytes = vec![0; NVRAM_BYTES];
    nvram.read(0, &mut bytes).unwrap();
    let (manifest_bytes, log_bytes) = (4096, (NVRAM_BYTES - 4096 - 2 * 4096) / 6 / 4096 * 4096);
    let slots = (0..2).map(|slot| 4096 + slot * manifest_bytes);
    let slots: Vec<usize> =
        slots.chain((0..6).map(|slot| 4096 + 2 * manifest_bytes + slot * log_bytes)).collect();
    for _ in 0..numbers.u8() % 24 {
        let (what, number, other) = (numbers.u8(), numbers.u64(), numbers.u64());
        match what % 16 {
            0 => bytes[8 + number as usize % 24] = other as u8,
            1..5 => {
                let copy = &mut bytes[[1024, 2048][number as usize % 2]..][..81];
                copy[..4].copy_from_slice(b"VKCC");
                copy[8..16].copy_from_slice(&other.to_le_bytes());
                copy[16] = numbers.u8();
                copy[17..].iter_mut().for_each(|byte| *byte = numbers.u8());
                copy[17..21].copy_from_slice(b"VKCU");
                seal(&mut copy[17..45], 28);
                seal(copy, 81);
            }
            5..12 => {
                let slot = &mut bytes[slots[number as usize % slots.len()]..][..24];
                slot[..4].copy_from_slice(b"VKAR");
                slot[8] = numbers.u8() % 3;
                slot[16..24].copy_from_slice(&other.to_le_bytes());
                seal(slot, 24);
            }
            _ => bytes[number as usize % NVRAM_BYTES] = other as u8,
        }
    }
    seal(&mut bytes[..32], 32);
    nvram.write(0, &bytes).unwrap();
}

/// Programs each block with pages that say they are tags, and others.
fn write_tags(flash: &Nand, numbers: &mut Numbers<'_>) {
    for block in (0..GEOMETRY.blocks()).map(BlockAddr) {
        for page in 0..u32::from(numbers.u8()) % (GEOMETRY.pages_per_block + 1) {
            let mut bytes = vec![0; 4096];
            bytes[..4].copy_from_slice(b"VKSB");
            // A version that nobody knows ends it all.
            let version = numbers.u8();
            bytes[8] = if version < 250 { 1 + version % 2 } else { version };
            (bytes[12], bytes[13]) = (1 + numbers.u8() % 8 % 3, numbers.u8() % 16 % 3);
            for at in [16, 24, 32] {
                let number = numbers.u64().to_le_bytes();
                bytes[at..at + 8].copy_from_slice(&number);
            }
            bytes[40] = if numbers.u8().is_multiple_of(2) { 15 } else { numbers.u8() };
            seal(&mut bytes, TAG_BYTES);
            bytes[TAG_BYTES..].iter_mut().step_by(511).for_each(|byte| *byte = numbers.u8());
            flash.program(IoClass::Foreground, block.page(page), &[Source::Bytes(&bytes)], &[]).unwrap();
        }
    }
}

/// Opens flash that `bytes` describe, reads what it says is there, and repairs it.
/// Returns how many tables it seems to have.
pub fn open_hostile(bytes: &[u8]) -> usize {
    let nand = Nand::ram(GEOMETRY, NandParams { nvram_bytes: NVRAM_BYTES, ..NandParams::default() }).unwrap();
    FlashMedia::format(&nand).unwrap();
    let mut numbers = Numbers(bytes);
    write_nvram(nand.nvram().unwrap(), &mut numbers);
    write_tags(&nand, &mut numbers);
    let (flash, env): (_, Arc<dyn Env>) = (Arc::new(nand), RealEnv::new());
    let mut nvram = vec![0; NVRAM_BYTES];
    flash.nvram().unwrap().read(0, &mut nvram).unwrap();
    let _ = Glance::of_nvram(&nvram);
    let Ok(media) = FlashMedia::open(flash.clone(), env.clone()) else { return 0 };
    let media: Arc<dyn Media> = media;
    let tables = media.tables().unwrap_or_default();
    for table in &tables {
        let Ok(table) = media.open_table(*table) else { continue };
        for at in [0, 4096, table.bytes().unwrap_or(0).saturating_sub(100)] {
            let _ = table.read(at, &mut [0; 100], IoClass::Foreground);
        }
    }
    let options = Options { memtable_bytes: 4 << 10, cache_bytes: 64 << 10, ..Options::default() };
    let read_only = Options { read_only: true, ..options.clone() };
    drop(Store::open(media.clone(), env.clone(), read_only));
    drop(repair(&media, &env, &options));
    drop(media);
    if let Ok(media) = FlashMedia::open(flash, env.clone()) {
        drop(Store::open(media, env, options));
    }
    tables.len()
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn flash_that_anybody_wrote_panics_nobody() {
        let with_tables = std::cell::Cell::new(0);
        vellum_sim::check(0..4000, |seed| {
            let mut rng = SmallRng::seed_from_u64(seed);
            let bytes: Vec<u8> = (0..rng.random_range(0..800)).map(|_| rng.random()).collect();
            with_tables.set(with_tables.get() + u32::from(super::open_hostile(&bytes) > 0));
        });
        assert!(with_tables.get() > 400, "only {with_tables:?} had a table");
    }
}
