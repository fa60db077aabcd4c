//! Keystreams of any bytes: no panic, and a learned scrambler reproduces all of them.
//!
//! The input is split into samples of 34 bytes, the first two of which are the address. If the first byte is odd, the
//! keystreams come from a scrambler instead, with a wrong bit at a position given by the second byte if that is odd.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vellum_codes::scrambler::{BitOrder, Lfsr, Scrambler, SeedMap, learn};

fuzz_target!(|bytes: &[u8]| {
    let [kind, wrong, rest @ ..] = bytes else { return };
    let mut samples: Vec<(u64, Vec<u8>)> = rest
        .chunks_exact(34)
        .map(|sample| (u64::from(u16::from_le_bytes([sample[0], sample[1]])), sample[2..].to_vec()))
        .collect();
    if kind % 2 == 1 {
        let lfsr = Lfsr::new(1 + u32::from(kind >> 1) % 64, 1).unwrap_or(Lfsr::X32);
        let scrambler = Scrambler::new(lfsr, BitOrder::MsbFirst, SeedMap::mixed(u64::from(*wrong), 16));
        for (address, keystream) in &mut samples {
            keystream.fill(0);
            scrambler.xor_into(*address, keystream).unwrap();
        }
        let count = samples.len().max(1);
        if let Some((_, keystream)) = samples.get_mut(usize::from(*wrong) % count) {
            keystream[usize::from(*wrong) % 32] ^= wrong & 1;
        }
    }
    let views: Vec<(u64, &[u8])> =
        samples.iter().map(|(address, keystream)| (*address, &keystream[..])).collect();
    if let Ok(learned) = learn(&views) {
        assert!(learned.checks >= 2);
        for (address, mut keystream) in samples {
            learned.scrambler.xor_into(address, &mut keystream).unwrap();
            assert!(keystream.iter().all(|byte| *byte == 0));
        }
    }
});
