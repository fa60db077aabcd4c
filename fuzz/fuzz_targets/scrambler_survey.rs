//! Raw dumps of any bytes: no panic, and a learned scrambler fits every piece.
//!
//! After two bytes that select a scrambler, the input is split into pieces of 260 bytes: address, kind, whether it is
//! fresh, and 256 bytes. For even kinds these are the piece. For odd ones the piece is a keystream, with a wrong bit
//! where a set bit follows two others.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vellum_codes::scrambler::{BitOrder, Lfsr, Limits, Scrambler, SeedMap, survey};

fuzz_target!(|bytes: &[u8]| {
    let [kind, seed, rest @ ..] = bytes else { return };
    let lfsr = Lfsr::new(1 + u32::from(*kind) % 64, 1).unwrap_or(Lfsr::X32);
    let order = if seed % 2 == 0 { BitOrder::LsbFirst } else { BitOrder::MsbFirst };
    let scrambler = Scrambler::new(lfsr, order, SeedMap::mixed(u64::from(*seed), 16));
    let pieces = rest.chunks_exact(260).map(|chunk| {
        let address = u64::from(u16::from_le_bytes([chunk[0], chunk[1]]));
        let mut piece = chunk[4..].to_vec();
        if chunk[2] % 2 == 1 {
            piece.iter_mut().for_each(|byte| *byte &= *byte << 1 & *byte << 2);
            scrambler.xor_into(address, &mut piece).unwrap();
        }
        (address, chunk[3] % 8 == 0, piece)
    });
    let pieces: Vec<_> = pieces.collect();
    let of = |fresh: bool| -> Vec<(u64, &[u8])> {
        pieces
            .iter()
            .filter(|piece| piece.1 == fresh)
            .map(|(address, _, piece)| (*address, &piece[..]))
            .collect()
    };
    let limits = Limits { error_rate_max: 0.2, fresh_min: 1 };
    if let Ok(found) = survey(&of(false), &of(true), &limits) {
        assert!(found.checks >= 2 && found.fresh >= 1);
        assert!(found.bits_wrong as f64 <= 0.2 * found.bits as f64);
        assert_eq!(SeedMap::of_facts(found.scrambler.map().facts()).as_ref(), Some(found.scrambler.map()));
    }
});
