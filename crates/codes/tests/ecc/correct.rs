//! Wrong bits: which are corrected, and that none are corrected wrongly.

use super::oracle::{self, Random, bits, flip_in};
use proptest::prelude::*;
use vellum_codes::ecc::{CORRECTED_SURELY, Code, Corrected, Uncorrectable};

/// Flips these bits, corrects the codeword, and returns whether that restored it. Also checks the result.
fn is_corrected(code: &Code, (data, parity): &(Vec<u8>, Vec<u8>), wrong: &[usize]) -> bool {
    let (mut d, mut p) = (data.clone(), parity.clone());
    wrong.iter().for_each(|bit| flip_in(&mut d, &mut p, *bit));
    let (read_d, read_p) = (d.clone(), p.clone());
    match code.correct(&mut d, &mut p) {
        Ok(corrected) => {
            assert!(d == *data && p == *parity, "{code:?}: {wrong:?} became another codeword");
            let bits = wrong.len() as u32;
            assert_eq!(corrected, Corrected { bits, worst: bits });
            true
        }
        Err(error) => {
            assert_eq!(error, Uncorrectable { first: 0, codewords: 1 });
            assert!(d == read_d && p == read_p, "{code:?}: what cannot be corrected was changed");
            false
        }
    }
}

#[test]
fn every_single_wrong_bit_is_corrected() {
    for code in Code::all() {
        let codeword = oracle::random(code, &mut Random(1));
        let step = code.data_bytes() / 1024;
        for bit in (0..bits(code)).step_by(step) {
            assert!(is_corrected(code, &codeword, &[bit]), "{code:?}: {bit}");
        }
    }
}

/// Moving both of two wrong bits by the same shift gives an equivalent problem. So it is enough that the first is bit 0
/// of each word, and the second any other bit. A random shift of each pair makes the test cover other positions too.
#[test]
fn every_two_wrong_bits_are_corrected() {
    let code = Code::paper();
    let (word_bits, mut random) = (64 * code.lanes(), Random(2));
    let codeword = oracle::random(code, &mut random);
    let turned = |bit: usize, by: usize| {
        let (word, lane, place) = (bit / word_bits, bit % word_bits / 64 + by / 64, bit % 64 + by % 64);
        word * word_bits + lane % code.lanes() * 64 + place % 64
    };
    for first in (0..bits(code)).step_by(word_bits) {
        for second in first + 1..bits(code) {
            let by = random.below(word_bits);
            let wrong = [turned(first, by), turned(second, by)];
            assert!(is_corrected(code, &codeword, &wrong), "{wrong:?}");
        }
    }
}

#[test]
fn up_to_three_wrong_bits_are_corrected_in_every_code() {
    let mut random = Random(3);
    for code in Code::all() {
        let codeword = oracle::random(code, &mut random);
        for i in 0..1500 {
            let wrong = random.distinct(1 + i % CORRECTED_SURELY, bits(code));
            assert!(is_corrected(code, &codeword, &wrong), "{code:?}: {wrong:?}");
        }
    }
}

/// Three wrong bits of a codeword with eight ones: the other five bits are the next best explanation.
#[test]
fn three_wrong_bits_are_corrected_where_it_is_closest() {
    let mut random = Random(4);
    for code in Code::all() {
        let codeword = oracle::random(code, &mut random);
        for _ in 0..300 {
            let bit = random.below(8 * code.data_bytes());
            let mut light = vec![bit];
            light.extend(oracle::column(code, bit).into_iter().map(|row| 8 * code.data_bytes() + row));
            let wrong: Vec<usize> = random.distinct(3, 8).into_iter().map(|i| light[i]).collect();
            assert!(is_corrected(code, &codeword, &wrong), "{code:?}: {wrong:?}");
        }
    }
}

/// Half of a codeword with eight ones: the other half is equally likely, and neither is chosen.
#[test]
fn of_two_equal_explanations_neither_is_taken() {
    let (code, mut random) = (Code::paper(), Random(5));
    let codeword = oracle::random(code, &mut random);
    for i in 0..40 {
        let bit = random.below(8 * code.data_bytes());
        let mut half: Vec<usize> = oracle::column(code, bit);
        half.iter_mut().for_each(|row| *row += 8 * code.data_bytes());
        half.truncate(3 + i % 2);
        half.extend((i % 2 == 0).then_some(bit));
        assert!(!is_corrected(code, &codeword, &half), "{half:?}");
    }
}

/// More wrong bits than are always corrected: at least as many patterns as listed are corrected, none wrongly.
#[test]
fn heavier_errors_are_mostly_corrected_and_never_wrongly() {
    // Wrong bits, and the least number of 100 random patterns that are corrected.
    let known: [(&str, &[(usize, usize)]); 9] = [
        ("1KiB-32/33", &[(4, 99), (6, 99), (8, 95), (10, 70), (20, 0), (500, 0)]),
        ("1KiB-16/17", &[(8, 99), (16, 99), (24, 70), (500, 0)]),
        ("1KiB-8/9", &[(24, 99), (48, 99), (500, 0)]),
        ("2KiB-32/33", &[(8, 99), (12, 95), (100, 0)]),
        ("2KiB-16/17", &[(32, 99), (200, 0)]),
        ("2KiB-8/9", &[(64, 99), (500, 0)]),
        ("4KiB-32/33", &[(24, 95), (200, 0)]),
        ("4KiB-16/17", &[(64, 99), (500, 0)]),
        ("4KiB-8/9", &[(128, 99), (1000, 0)]),
    ];
    let mut random = Random(6);
    for (name, counts) in known {
        let code = Code::by_name(name).unwrap();
        let codeword = oracle::random(code, &mut random);
        for (count, least) in counts {
            let patterns = (0..100).map(|_| random.distinct(*count, bits(code)));
            let corrected = patterns.filter(|wrong| is_corrected(code, &codeword, wrong)).count();
            println!("{name}: {corrected} of 100 patterns of {count} wrong bits corrected");
            assert!(corrected >= *least, "{name}: {corrected} of 100 patterns of {count}");
        }
    }
}

#[test]
fn what_was_never_a_codeword_is_refused_and_left_alone() {
    for code in Code::all() {
        let (mut data, mut parity) = (vec![0; code.data_bytes()], vec![0; code.parity_bytes()]);
        for seed in 0..20 {
            let mut random = Random(100 + seed);
            random.fill(&mut data);
            random.fill(&mut parity);
            let before = (data.clone(), parity.clone());
            assert!(code.correct(&mut data, &mut parity).is_err(), "{code:?}");
            assert!(before == (data.clone(), parity.clone()));
        }
    }
}

#[test]
fn codewords_are_corrected_one_by_one() {
    let (code, mut random) = (Code::paper(), Random(7));
    let mut data = vec![0; 4 * code.data_bytes()];
    random.fill(&mut data);
    let mut parity = vec![0; code.parity_bytes_of(data.len())];
    code.encode(&data, &mut parity);
    let (right_data, right_parity) = (data.clone(), parity.clone());
    data[5] ^= 1;
    data[1024 + 7] ^= 3;
    parity[3 * 32] ^= 0x80;
    assert_eq!(code.correct(&mut data, &mut parity), Ok(Corrected { bits: 4, worst: 2 }));
    assert!(data == right_data && parity == right_parity);
    assert_eq!(code.correct(&mut data, &mut parity), Ok(Corrected::default()));

    data[0] ^= 1;
    random.fill(&mut data[1024..2048]);
    random.fill(&mut data[3072..]);
    let error = code.correct(&mut data, &mut parity).unwrap_err();
    assert_eq!(error, Uncorrectable { first: 1, codewords: 2 });
    assert!(error.to_string().contains("2 codewords"), "{error}");
    assert!(data[..1024] == right_data[..1024], "the first is corrected all the same");
}

proptest! {
    /// Adjacent wrong bits, as left by a bad column or a torn write.
    #[test]
    fn bursts_are_corrected_or_refused(which in 0..9usize, at: u64, burst in 1u64..1 << 24) {
        let code = &Code::all()[which];
        let codeword = oracle::random(code, &mut Random(at));
        let at = at as usize % bits(code);
        let spots = (0..24).filter(|i| burst >> i & 1 == 1).map(|i| at + i).filter(|bit| *bit < bits(code));
        let wrong: Vec<usize> = spots.collect();
        let corrected = is_corrected(code, &codeword, &wrong);
        prop_assert!(corrected || wrong.len() > CORRECTED_SURELY);
    }
}
