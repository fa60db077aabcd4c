//! Drives with other scramblers, filled with zeros and read: some can be learned, the others are rejected.

use proptest::prelude::*;
use vellum_codes::scrambler::{
    BitOrder, Learned, Lfsr, NotLearned, Scrambler, SeedMap, UnknownAddress, learn,
};

/// What a drive stores at an address for a sector of zeros.
type Drive<'a> = &'a dyn Fn(u64) -> Vec<u8>;

fn learn_from(drive: Drive<'_>, addresses: impl IntoIterator<Item = u64>) -> Result<Learned, NotLearned> {
    let samples: Vec<(u64, Vec<u8>)> = addresses.into_iter().map(|a| (a, drive(a))).collect();
    let samples: Vec<(u64, &[u8])> = samples.iter().map(|(a, stream)| (*a, &stream[..])).collect();
    learn(&samples)
}

/// Zero, the powers of two up to 2^39, and some others.
fn good_addresses() -> Vec<u64> {
    let others = [3, 1000, 77_777, 123_456_789_012];
    [0].into_iter().chain((0..40).map(|bit| 1 << bit)).chain(others).collect()
}

fn assert_foretells(learned: &Learned, drive: Drive<'_>, addresses: impl IntoIterator<Item = u64>) {
    for address in addresses {
        let mut page = drive(address);
        learned.scrambler.xor_into(address, &mut page).unwrap();
        assert!(page.iter().all(|byte| *byte == 0), "address {address}");
    }
}

/// A 16-bit register in Galois form that outputs the most significant bit first: `x¹⁶ + x⁵ + x⁴ + x³ + 1`.
fn galois(mut register: u16, length: usize) -> Vec<u8> {
    let mut bit = || {
        let out = register >> 15;
        register = (register << 1) ^ (out * 0b11_1001);
        out as u8
    };
    (0..length).map(|_| (0..8).fold(0, |byte, _| byte << 1 | bit())).collect()
}

#[test]
fn a_drive_that_seeds_by_lba_is_learned() {
    let scrambler = Scrambler::new(Lfsr::X32, BitOrder::LsbFirst, SeedMap::mixed(9, 64));
    let drive = |address| {
        let mut page = vec![0; 4096];
        scrambler.xor_into(address, &mut page).unwrap();
        page
    };
    let learned = learn_from(&drive, good_addresses()).unwrap();
    assert_eq!((learned.scrambler.lfsr(), learned.checks), (Lfsr::X32, 4));
    assert_eq!(learned.scrambler.map().period(), None);
    assert_foretells(&learned, &drive, (0..200).map(|i| i * 5_432_109_876));
    let unknown = learned.scrambler.xor_into(1 << 40, &mut [0; 64]);
    assert_eq!(unknown, Err(UnknownAddress { address: 1 << 40 }), "no sample has told that bit");
}

#[test]
fn drives_that_seed_by_the_page_within_a_period_are_learned() {
    for period in [64, 128, 256u64] {
        // Seeded by XORs of shifts of the page number, as in hardware, and a constant.
        let drive = |page: u64| galois(((page % period) as u16) << 3 ^ (page % period) as u16 ^ 0xACE1, 1024);
        let learned = learn_from(&drive, 0..600).unwrap();
        assert_eq!(learned.scrambler.lfsr().degree(), 16);
        assert_eq!(learned.scrambler.order(), BitOrder::MsbFirst);
        assert_eq!(learned.scrambler.map().period(), Some(period));
        assert_foretells(&learned, &drive, 600..1024);
    }
}

/// The keystreams of consecutive addresses may come from only a part of the register: `x⁵ + x⁴ + x² + 1` has factors.
#[test]
fn registers_that_fall_into_parts_are_put_together() {
    let lfsr = Lfsr::new(5, 0b1_0101).unwrap();
    let mut columns = [0; 64];
    columns[..5].copy_from_slice(&[1, 2, 4, 8, 16]);
    let scrambler = Scrambler::new(lfsr, BitOrder::LsbFirst, SeedMap::new(0, &columns));
    let drive = |address| {
        let mut page = vec![0; 64];
        scrambler.xor_into(address, &mut page).unwrap();
        page
    };
    let learned = learn_from(&drive, 0..32).unwrap();
    assert_eq!(learned.scrambler.lfsr(), lfsr);
    assert_foretells(&learned, &drive, 0..32);
}

#[test]
fn what_does_not_fit_is_refused() {
    let times = |address: u64| galois((address as u16).wrapping_mul(40_503) | 1, 64);
    assert!(
        matches!(learn_from(&times, 0..64), Err(NotLearned::SeedNotAffine { .. })),
        "products are not affine"
    );

    let noise = |address| {
        let mut state = address + 1;
        let mut next = || {
            state = u64::wrapping_mul(state, 0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            (state >> 56) as u8
        };
        (0..64).map(|_| next()).collect()
    };
    assert_eq!(learn_from(&noise, 0..64).unwrap_err(), NotLearned::NoRegister { address: 0 });

    // One page that was not written with zeros, among others that were.
    let written = |address: u64| {
        let mut page = galois(address as u16 | 0x100, 64);
        page[40] ^= u8::from(address == 17);
        page
    };
    let error = learn_from(&written, 0..64).unwrap_err();
    assert_eq!(error, NotLearned::NoRegister { address: 17 });
    assert!(error.to_string().contains("address 17"), "{error}");

    assert_eq!(learn_from(&|_| vec![0; 64], 0..64).unwrap_err(), NotLearned::NotScrambled);
    assert_eq!(learn_from(&|_| vec![1; 31], 5..6).unwrap_err(), NotLearned::TooShort { address: 5 });
    assert_eq!(learn(&[]).unwrap_err(), NotLearned::TooFewSamples { more: 3 });
}

#[test]
fn what_nothing_confirms_is_refused() {
    let drive = |page: u64| galois(page as u16 ^ 0xACE1, 64);
    let powers = [0, 1, 2, 4, 8, 16];
    assert_eq!(learn_from(&drive, powers).unwrap_err(), NotLearned::TooFewSamples { more: 2 });
    assert_eq!(
        learn_from(&drive, powers.into_iter().chain([3])).unwrap_err(),
        NotLearned::TooFewSamples { more: 1 }
    );
    assert_eq!(learn_from(&drive, powers.into_iter().chain([3, 31])).unwrap().checks, 2);
}

proptest! {
    /// Any register with any affine map can be learned.
    #[test]
    fn every_scrambler_is_learned(degree in 1u32..=64, feedback: u64, seed: u64, msb: bool) {
        let lfsr = Lfsr::new(degree, (feedback | 1) & u64::MAX >> (64 - degree)).unwrap();
        let order = if msb { BitOrder::MsbFirst } else { BitOrder::LsbFirst };
        let scrambler = Scrambler::new(lfsr, order, SeedMap::mixed(seed, 64));
        let drive = |address| {
            let mut page = vec![0; 256];
            scrambler.xor_into(address, &mut page).unwrap();
            page
        };
        let learned = learn_from(&drive, good_addresses()).unwrap();
        prop_assert!(learned.scrambler.lfsr().degree() <= degree);
        assert_foretells(&learned, &drive, [5, 999, 1 << 39 | 12_345]);
    }

    /// A dump may contain any bytes.
    #[test]
    fn any_bytes_are_learned_or_refused(pages in proptest::collection::vec((0u64..40, proptest::collection::vec(0u8..3, 0..40)), 0..20)) {
        let samples: Vec<(u64, &[u8])> = pages.iter().map(|(address, page)| (*address, &page[..])).collect();
        if let Ok(learned) = learn(&samples) {
            for (address, page) in &pages {
                let mut page = page.clone();
                learned.scrambler.xor_into(*address, &mut page).unwrap();
                prop_assert!(page.iter().all(|byte| *byte == 0));
            }
        }
    }
}
