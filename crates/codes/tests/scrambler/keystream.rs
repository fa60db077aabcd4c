//! Keystreams: the same as computed bit by bit, for any register, length and bit order.

use proptest::prelude::*;
use vellum_codes::scrambler::{BitOrder, Lfsr, Scrambler, SeedMap};

/// The keystream, computed one bit at a time.
fn slow(lfsr: Lfsr, order: BitOrder, state: u64, length: usize) -> Vec<u8> {
    let mut bits: Vec<u64> = (0..lfsr.degree()).map(|i| state >> i & 1).collect();
    for t in 0..8 * length {
        let sum = (0..lfsr.degree() as usize).filter(|i| lfsr.feedback() >> i & 1 == 1).map(|i| bits[t + i]);
        bits.push(sum.sum::<u64>() % 2);
    }
    let place = |i: usize| if order == BitOrder::LsbFirst { i } else { 7 - i };
    let byte =
        |bits: &[u64]| bits.iter().enumerate().fold(0, |byte, (i, bit)| byte | (*bit as u8) << place(i));
    bits.chunks(8).take(length).map(byte).collect()
}

proptest! {
    #[test]
    fn keystreams_are_those_of_the_register(
        degree in 1u32..=64, feedback: u64, seed: u64, address: u64, length in 0..9000usize, msb: bool,
    ) {
        let lfsr = Lfsr::new(degree, (feedback | 1) & u64::MAX >> (64 - degree)).unwrap();
        let order = if msb { BitOrder::MsbFirst } else { BitOrder::LsbFirst };
        let scrambler = Scrambler::new(lfsr, order, SeedMap::mixed(seed, 64));
        let mut data: Vec<u8> = (0..length).map(|i| i as u8).collect();
        scrambler.xor_into(address, &mut data).unwrap();
        let state = scrambler.map().state(address).unwrap();
        let expected = slow(lfsr, order, state, length).into_iter().enumerate().map(|(i, byte)| byte ^ i as u8);
        prop_assert!(expected.eq(data.iter().copied()));
        scrambler.xor_into(address, &mut data).unwrap();
        prop_assert!(data.iter().enumerate().all(|(i, byte)| *byte == i as u8));
    }
}

#[test]
fn ordinary_sectors_of_neighbours_get_different_noise() {
    for lfsr in [Lfsr::X32, Lfsr::X64] {
        let scrambler = Scrambler::new(lfsr, BitOrder::LsbFirst, SeedMap::mixed(1, 64));
        let mut streams: Vec<[u8; 4096]> = Vec::new();
        for address in 0..64 {
            let mut stream = [0; 4096];
            scrambler.xor_into(address, &mut stream).unwrap();
            let ones: u32 = stream.iter().map(|byte| byte.count_ones()).sum();
            assert!((15_800..16_968).contains(&ones), "address {address}: {ones} ones");
            for other in &streams {
                let same = stream.iter().zip(other).filter(|(a, b)| a == b).count();
                assert!(same < 60, "{same} bytes alike");
            }
            streams.push(stream);
        }
    }
}

#[test]
fn registers_that_are_none_are_refused() {
    for (degree, feedback) in [(0, 1), (65, 1), (4, 0b10), (4, 0b1_0001), (64, 2)] {
        assert_eq!(Lfsr::new(degree, feedback), None, "{degree} {feedback:b}");
    }
    assert_eq!(Lfsr::new(64, 0b11011), Some(Lfsr::X64));
}

#[test]
fn states_repeat_with_the_period_of_the_map() {
    let map = SeedMap::mixed(5, 7);
    assert_eq!(map.period(), Some(128));
    assert_eq!(map.state(3), map.state(3 + 128));
    assert_ne!(map.state(3), map.state(3 + 64));
    assert_eq!(SeedMap::mixed(5, 64).period(), None);
    assert_eq!(SeedMap::new(9, &[0; 64]).period(), Some(1), "one state for all");
}
