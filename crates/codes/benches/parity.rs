//! P and Q, scaling, deltas and checksums, on one core and in cache. Rates count the bytes of data read.
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

/// (data blocks, KiB per block): a RAID-6 of six members with a chunk each, and with a sector each.
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
fn checksum(bencher: Bencher) {
    let page = noise(PAGE, 1);
    bencher.counter(BytesCount::new(PAGE)).bench_local(|| vellum_codes::crc32c(divan::black_box(&page)));
}

#[divan::bench]
fn add_scaled_to_q(bencher: Bencher) {
    let (delta, mut q) = (noise(64 << 10, 1), noise(64 << 10, 2));
    bencher
        .counter(BytesCount::new(1usize << 16))
        .bench_local(|| parity::add_scaled(&mut q, divan::black_box(&delta), 3));
}

/// What changes in a page: a counter in its head; a row of 100 bytes and the head; a quarter, in runs of 64 bytes,
/// which the second try does not shorten; single bytes.
const CHANGES: [&str; 4] = ["head", "row", "quarter", "scattered"];

/// Changes with long deltas, which the second try may or may not shorten: text rows replaced, rows moved by an inserted
/// one, a page that was blank, numbers that grew, and incompressible data.
const REWRITES: [&str; 5] = ["rows", "shifted", "blank", "numbers", "noise"];

fn changed(page: &[u8], what: &str) -> Vec<u8> {
    let mut new = page.to_vec();
    let runs: Vec<(usize, usize)> = match what {
        "head" => vec![(24, 8)],
        "row" => vec![(24, 8), (2100, 100)],
        "quarter" => (0..16).map(|i| (i * 256 + 13, 64)).collect(),
        _ => (0..200).map(|i| (i * 20 + 3, 1)).collect(),
    };
    let other = noise(PAGE, 11);
    for (at, length) in runs {
        new[at..at + length].copy_from_slice(&other[at..at + length]);
    }
    new
}

/// Text of randomly chosen words.
fn text(seed: u64) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "flash", "page", "parity", "of", "the", "row", "is", "not", "written", "until", "disk", "and",
        "cache", "delta", "a", "member",
    ];
    let words = noise(PAGE, seed).into_iter().flat_map(|i| [WORDS[usize::from(i % 16)], " "]);
    words.flat_map(str::bytes).take(PAGE).collect()
}

fn rewritten(what: &str) -> (Vec<u8>, Vec<u8>) {
    let old = text(1);
    let new = match what {
        "rows" => [&old[..1000], &text(2)[..2500], &old[3500..]].concat(),
        "shifted" => [&old[..1000], &text(2)[..57], &old[1000..PAGE - 57]].concat(),
        "blank" => return (vec![0; PAGE], old),
        "numbers" => {
            let numbers = |add: &dyn Fn(usize) -> u32| -> Vec<u8> {
                (0..PAGE / 4).flat_map(|i| (1000 + i as u32 * 7 + add(i)).to_le_bytes()).collect()
            };
            let grown = noise(PAGE / 4, 3);
            return (numbers(&|_| 0), numbers(&|i| u32::from(grown[i] % 20)));
        }
        _ => noise(PAGE, 4),
    };
    (old, new)
}

#[divan::bench(args = CHANGES)]
fn delta_encode_and_apply(bencher: Bencher, what: &str) {
    let old = noise(PAGE, 7);
    encode_and_apply(bencher, &old, &changed(&old, what));
}

/// Deltas long enough for the second try.
#[divan::bench(args = REWRITES)]
fn delta_encode_and_apply_long(bencher: Bencher, what: &str) {
    let (old, new) = rewritten(what);
    encode_and_apply(bencher, &old, &new);
}

fn encode_and_apply(bencher: Bencher, old: &[u8], new: &[u8]) {
    let (mut out, mut page) = (Vec::with_capacity(2 * PAGE), old.to_vec());
    bencher.bench_local(|| {
        out.clear();
        delta::encode(divan::black_box(old), new, usize::MAX, &mut out);
        delta::apply(&out, &mut page)
    });
}

/// Time of compression alone, with the compressors considered for the second try, and the size they reach.
#[divan::bench(args = tries())]
fn delta_second_try(bencher: Bencher, of: &Try) {
    let mut zstd = zstd::bulk::Compressor::new(1).expect("memory");
    let mut out = vec![0; 2 * PAGE];
    bencher.bench_local(|| match of.with {
        "lz4" => lz4_flex::block::compress_into(divan::black_box(&of.pairs), &mut out).expect("room"),
        _ => zstd.compress_to_buffer(divan::black_box(&of.pairs), &mut out[..]).expect("room"),
    });
}

struct Try {
    what: &'static str,
    with: &'static str,
    pairs: Vec<u8>,
    packed_bytes: usize,
}

impl std::fmt::Display for Try {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} to {} by {}", self.what, self.pairs.len(), self.packed_bytes, self.with)
    }
}

fn tries() -> impl Iterator<Item = Try> {
    REWRITES.into_iter().flat_map(|what| {
        let (old, new) = rewritten(what);
        let mut pairs = Vec::new();
        delta::encode_once(&old, &new, &mut pairs);
        let lz4 = lz4_flex::block::compress(&pairs).len();
        let zstd = zstd::bulk::compress(&pairs, 1).expect("memory").len();
        [("lz4", lz4), ("zstd", zstd)].map(|(with, packed_bytes)| Try {
            what,
            with,
            pairs: pairs.clone(),
            packed_bytes,
        })
    })
}
