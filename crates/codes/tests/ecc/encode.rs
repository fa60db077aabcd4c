//! Parity: the same with every instruction set, and linear.

use super::oracle::{self, Random};
use proptest::prelude::*;
use vellum_codes::crc32c;
use vellum_codes::ecc::{Code, Rate, Simd};

/// Data and parity of `count` codewords of noise.
fn noise(code: &Code, count: usize, seed: u64) -> (Vec<u8>, Vec<u8>) {
    let mut data = vec![0; count * code.data_bytes()];
    Random(seed).fill(&mut data);
    let mut parity = vec![0; code.parity_bytes_of(data.len())];
    code.encode(&data, &mut parity);
    (data, parity)
}

#[test]
fn every_way_gives_the_parity_of_the_definition() {
    for code in Code::all() {
        // Seven codewords: groups of four or two, and a rest.
        let (data, _) = noise(code, 7, 3);
        let slow: Vec<u8> =
            data.chunks(code.data_bytes()).flat_map(|data| oracle::parity(code, data)).collect();
        for simd in Simd::ALL.into_iter().filter(|simd| simd.is_available()) {
            for count in 0..=7 {
                let (data, slow) = (&data[..count * code.data_bytes()], &slow[..count * code.parity_bytes()]);
                let mut parity = vec![0xAA; slow.len()];
                code.encode_with(simd, data, &mut parity);
                assert!(parity == slow, "{} with {simd:?}, {count} codewords", code.name());
                assert!(code.check(data, &parity));
            }
        }
    }
}

/// Stored data must remain readable: the parity of fixed noise does not change.
#[test]
fn parity_is_what_it_was() {
    let known = [
        ("1KiB-32/33", 0x84e5_1cfd),
        ("1KiB-16/17", 0xb3ff_ae5d),
        ("1KiB-8/9", 0x06db_121f),
        ("2KiB-32/33", 0x6171_5ef1),
        ("2KiB-16/17", 0x78ca_ef24),
        ("2KiB-8/9", 0xdeb9_1a0e),
        ("4KiB-32/33", 0xc456_780f),
        ("4KiB-16/17", 0x427c_4b53),
        ("4KiB-8/9", 0x3def_6d6f),
    ];
    let now: Vec<_> = Code::all().iter().map(|code| (code.name(), crc32c(&noise(code, 2, 5).1))).collect();
    assert_eq!(now, known);
}

#[test]
fn codes_are_found_by_name_and_by_parameters() {
    let rates = [(Rate::R32_33, 0.97), (Rate::R16_17, 0.941), (Rate::R8_9, 0.889)];
    for (rate, share) in rates {
        for bytes in [1024, 2048, 4096] {
            let code = Code::new(bytes, rate).unwrap();
            assert_eq!(code.data_bytes(), bytes);
            let stored = bytes + code.parity_bytes();
            assert!((bytes as f64 / stored as f64 - share).abs() < 1e-3, "{code:?}");
            assert_eq!(Code::by_name(code.name()).unwrap().name(), code.name());
        }
        assert!(Code::new(512, rate).is_none());
    }
    assert_eq!(Code::paper().parity_bytes_of(4096), 128, "fits out-of-band with a sector");
    assert!(Code::by_name("1KiB-1/2").is_none());
}

proptest! {
    /// Equation 2: the parity of data follows from the parity of the scrambled data and the mask.
    #[test]
    fn the_parity_of_data_follows_from_that_of_scrambled_data(seed: u64, which in 0..9usize, count in 1..4usize) {
        let code = &Code::all()[which];
        let (mut scrambled, of_data) = noise(code, count, seed);
        let (mask, of_mask) = noise(code, count, !seed);
        scrambled.iter_mut().zip(&mask).for_each(|(to, mask)| *to ^= mask);
        let mut parity = vec![0; of_data.len()];
        code.encode(&scrambled, &mut parity);
        prop_assert!(parity != of_data);
        let sum: Vec<u8> = of_data.iter().zip(of_mask).map(|(a, b)| a ^ b).collect();
        prop_assert!(parity == sum);
        code.unmask(&mask, &mut parity);
        prop_assert!(parity == of_data);
    }
}
