//! P and Q compared with schoolbook multiplication, recovery of every pair of losses, location of a wrong block.

use proptest::prelude::*;
use vellum_codes::parity::{self, Simd, Unrecoverable, Wrong};

/// Doubling by the definition.
fn double(element: u8) -> u8 {
    let wide = u16::from(element) << 1;
    (if wide > 255 { wide ^ 0x11d } else { wide }) as u8
}

fn times_power(mut byte: u8, index: usize) -> u8 {
    (0..index).for_each(|_| byte = double(byte));
    byte
}

fn slow_pq(data: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>) {
    let bytes = data[0].len();
    let p = (0..bytes).map(|at| data.iter().fold(0, |sum, block| sum ^ block[at])).collect();
    let q = (0..bytes)
        .map(|at| data.iter().enumerate().fold(0, |sum, (i, block)| sum ^ times_power(block[at], i)))
        .collect();
    (p, q)
}

/// `blocks` different data blocks of `bytes` bytes.
fn noise(blocks: usize, bytes: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut state = seed | 1;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..blocks).map(|_| (0..bytes).map(|_| byte()).collect()).collect()
}

/// A row of data blocks followed by parity.
fn row(blocks: usize, parities: usize, bytes: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut row = noise(blocks, bytes, seed);
    let (p, q) = slow_pq(&row);
    row.push(p);
    row.extend((parities == 2).then_some(q));
    row
}

#[test]
fn every_form_agrees_with_school_multiplication() {
    for (blocks, bytes) in [(1, 1), (2, 31), (3, 128), (4, 4096), (10, 4099), (255, 130)] {
        let data = noise(blocks, bytes, 5);
        let views: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let (p, q) = slow_pq(&data);
        for simd in Simd::ALL.into_iter().filter(|simd| simd.is_available()) {
            let (mut own_p, mut own_q) = (vec![7; bytes], vec![7; bytes]);
            parity::pq_with(simd, &views, &mut own_p, &mut own_q);
            assert!(own_p == p && own_q == q, "{simd:?}, {blocks} blocks of {bytes}");
            let mut sum = vec![0; bytes];
            for (i, block) in data.iter().enumerate() {
                parity::add_scaled_with(simd, &mut sum, block, i);
            }
            assert!(sum == q, "{simd:?}, {blocks} blocks of {bytes}, one after the other");
        }
        let mut own_p = vec![7; bytes];
        parity::p(&views, &mut own_p);
        assert!(own_p == p);
    }
}

#[test]
fn any_two_lost_blocks_come_back_and_any_one_without_q() {
    for blocks in [2, 3, 5, 17] {
        for parities in [1, 2] {
            let whole = row(blocks, parities, 67, 11);
            let all = 0..blocks + parities;
            let mut losses: Vec<Vec<usize>> = all.clone().map(|i| vec![i]).collect();
            losses.push(vec![]);
            if parities == 2 {
                losses.extend(all.clone().flat_map(|x| (x + 1..all.end).map(move |y| vec![x, y])));
            }
            for lost in losses {
                let mut damaged = whole.clone();
                lost.iter().for_each(|i| damaged[*i].fill(0xEE));
                parity::recover(&mut damaged, parities, &lost).unwrap();
                assert!(damaged == whole, "{blocks} blocks, {parities} parities, lost {lost:?}");
            }
        }
    }
}

#[test]
fn more_losses_than_parities_are_refused() {
    let mut five = row(4, 1, 8, 3);
    assert_eq!(parity::recover(&mut five, 1, &[0, 4]), Err(Unrecoverable { lost: 2, parities: 1 }));
    let mut six = row(4, 2, 8, 3);
    assert_eq!(parity::recover(&mut six, 2, &[0, 2, 4]), Err(Unrecoverable { lost: 3, parities: 2 }));
}

#[test]
fn a_single_wrong_block_is_located_and_two_are_not_taken_for_one() {
    let blocks = 6;
    let whole = row(blocks, 2, 64, 9);
    let sums = |row: &[Vec<u8>]| {
        let (mut p, mut q) = slow_pq(&row[..blocks]);
        parity::xor_into(&mut p, &row[blocks]);
        parity::xor_into(&mut q, &row[blocks + 1]);
        parity::locate(&p, &q, blocks)
    };
    assert_eq!(sums(&whole), None, "nothing is wrong");
    for i in 0..blocks + 2 {
        let mut wrong = whole.clone();
        wrong[i][3] ^= 0x40;
        wrong[i][60] ^= 0x99;
        let want = match i - i.min(blocks) {
            0 if i < blocks => Wrong::Data(i),
            0 => Wrong::P,
            _ => Wrong::Q,
        };
        assert_eq!(sums(&wrong), Some(want));
        let other = (i + 1) % (blocks + 2);
        wrong[other][4] ^= 0x01;
        assert_eq!(sums(&wrong), None, "blocks {i} and {other} are wrong");
    }
}

proptest! {
    /// The property that parity updates without the other data blocks rely on.
    #[test]
    fn parity_changes_by_the_deltas(
        blocks in 1usize..12,
        bytes in 1usize..300,
        changes in prop::collection::vec((0usize..12, any::<u64>()), 1..6),
    ) {
        let mut row = row(blocks, 2, bytes, 21);
        for (i, seed) in changes {
            let i = i % blocks;
            let delta = noise(1, bytes, seed).remove(0);
            parity::xor_into(&mut row[i], &delta);
            parity::xor_into(&mut row[blocks], &delta);
            parity::add_scaled(&mut row[blocks + 1], &delta, i);
        }
        let (p, q) = slow_pq(&row[..blocks]);
        prop_assert!(row[blocks] == p && row[blocks + 1] == q);
    }
}
