//! P and Q, scaling, and deltas, on one core and in cache. Rates are of data, as of bytes read.
//!
//! `cargo bench -p vellum-codes --bench parity`

use divan::Bencher;
use divan::counter::BytesCount;
use vellum_codes::delta;
use vellum_codes::parity::{self, Simd};

fn main() {
    divan::main();
}

const PAGE: usize = 4096;

fn noise(bytes: usize, mut state: u64) -> Vec<u8> {
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// (data blocks, KiB a block): a RAID-6 of six members at a chunk, and a sector a member.
#[divan::bench(args = [(4, 64), (8, 16), (4, 4)])]
fn p_and_q(bencher: Bencher, (blocks, kib): (usize, usize)) {
    both(bencher, Simd::best(), blocks, kib);
}

#[divan::bench(args = [(4, 64)])]
fn p_and_q_portable(bencher: Bencher, (blocks, kib): (usize, usize)) {
    both(bencher, Simd::Portable, blocks, kib);
}

fn both(bencher: Bencher, simd: Simd, blocks: usize, kib: usize) {
    let data: Vec<_> = (0..blocks).map(|i| noise(kib << 10, i as u64)).collect();
    let views: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let (mut p, mut q) = (vec![0; kib << 10], vec![0; kib << 10]);
    bencher
        .counter(BytesCount::new((blocks * kib) << 10))
        .bench_local(|| parity::pq_with(simd, divan::black_box(&views), &mut p, &mut q));
}

#[divan::bench]
fn p_only(bencher: Bencher) {
    let data: Vec<_> = (0..4).map(|i| noise(64 << 10, i)).collect();
    let views: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut p = vec![0; 64 << 10];
    bencher
        .counter(BytesCount::new(4usize << 16))
        .bench_local(|| parity::p(divan::black_box(&views), &mut p));
}

#[divan::bench]
fn add_scaled_to_q(bencher: Bencher) {
    let (delta, mut q) = (noise(64 << 10, 1), noise(64 << 10, 2));
    bencher
        .counter(BytesCount::new(1usize << 16))
        .bench_local(|| parity::add_scaled(&mut q, divan::black_box(&delta), 3));
}

/// What changes of a page: a counter in its head; a row of 100 bytes and the head; a quarter, in runs of 64; single
/// bytes.
const CHANGES: [&str; 4] = ["head", "row", "quarter", "scattered"];

fn changed(page: &[u8], what: &str) -> Vec<u8> {
    let mut new = page.to_vec();
    let runs: Vec<(usize, usize)> = match what {
        "head" => vec![(24, 8)],
        "row" => vec![(24, 8), (2100, 100)],
        "quarter" => (0..16).map(|i| (i * 256 + 13, 64)).collect(),
        _ => (0..200).map(|i| (i * 20 + 3, 1)).collect(),
    };
    for (at, length) in runs {
        new[at..at + length].iter_mut().for_each(|byte| *byte ^= 0x5A);
    }
    new
}

#[divan::bench(args = CHANGES)]
fn delta_encode_and_apply(bencher: Bencher, what: &str) {
    let old = noise(PAGE, 7);
    let new = changed(&old, what);
    let (mut out, mut page) = (Vec::with_capacity(2 * PAGE), old.clone());
    bencher.bench_local(|| {
        out.clear();
        delta::encode(divan::black_box(&old), &new, PAGE, &mut out);
        delta::apply(&out, &mut page)
    });
}
