//! Against figures that are known: the ARC paper's OLTP trace.

use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;
use vellum_array::cache::{Newest, Recipe, Scheme, Steps};
use vellum_array::{Level, Shape};
use vellum_base::Lba;

/// libCacheSim finds an LRU miss ratio of 0.5753 at 2,000 pages; the ARC paper prints 42.47 % hits.
#[test]
fn lru_of_the_oltp_trace() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces/arc_OLTP.lis.zst");
    let Ok(bytes) = std::fs::read(&path) else {
        // Not by `eprintln`, which nobody sees of a test that passes.
        let said = format!("SKIPPED lru_of_the_oltp_trace: {} is not there\n", path.display());
        return std::io::stderr().write_all(said.as_bytes()).unwrap();
    };
    let text = String::from_utf8(zstd::decode_all(&bytes[..]).unwrap()).unwrap();
    let lbas = text.lines().flat_map(|line| {
        let mut words = line.split_whitespace().map(|word| word.parse::<u64>().unwrap());
        let (start, count) = (words.next().unwrap(), words.next().unwrap());
        start..start + count
    });
    let (reads, misses) = misses_of(2000, lbas);
    assert_eq!(reads, 914_145);
    let ratio = misses as f64 / reads as f64;
    assert!((ratio - 0.5753).abs() < 0.00005, "{ratio}");
}

/// The same policy beside the obvious LRU list, miss for miss, on skewed reads that anybody can make.
#[test]
fn lru_of_a_skewed_trace_is_the_obvious_one() {
    let pages = 200;
    let mut state = 7u64;
    let mut lba = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = (state >> 11) as f64 / (1u64 << 53) as f64;
        (uniform.powi(3) * 3000.0) as u64
    };
    let lbas: Vec<u64> = (0..60_000).map(|_| lba()).collect();
    let (mut list, mut expected) = (VecDeque::new(), 0);
    for lba in &lbas {
        match list.iter().position(|held| held == lba) {
            Some(at) => drop(list.remove(at)),
            None => expected += 1,
        }
        list.push_front(*lba);
        list.truncate(pages as usize);
    }
    assert!((30_000..50_000).contains(&expected), "{expected}");
    assert_eq!(misses_of(pages, lbas.into_iter()), (60_000, expected));
}

/// Reads of a cache of one set, and how many of them missed.
fn misses_of(pages: u16, lbas: impl Iterator<Item = u64>) -> (u64, u64) {
    let shape = Shape { level: Level::Raid5, members: 5, chunk_sectors: 16, rows: 1 << 24 };
    let recipe = Recipe { ways: pages, ..Recipe::new(Scheme::WriteThrough, pages.into()) };
    let mut policy = recipe.build(&shape).unwrap();
    let (mut steps, mut reads, mut misses) = (Steps::default(), 0, 0);
    for lba in lbas {
        steps.clear();
        reads += 1;
        misses += u64::from(policy.read(Lba(lba), &mut steps) == Newest::Array);
    }
    (reads, misses)
}
