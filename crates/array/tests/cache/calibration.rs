//! Against figures that are known (the ARC paper's OLTP trace), and against the obvious lists.

use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;
use vellum_array::cache::{Newest, Policy, Recipe, Scheme, Step, Steps};
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
    // Likewise; `benches/array_traces_rows.py` reads it.
    let said = format!("LRU of the OLTP trace, 2000 pages: {misses} of {reads} reads missed\n");
    std::io::stderr().write_all(said.as_bytes()).unwrap();
    assert!((ratio - 0.5753).abs() < 0.00005, "{ratio}");
}

/// The same policy beside the obvious LRU list, miss for miss, on skewed reads that anybody can make.
#[test]
fn lru_of_a_skewed_trace_is_the_obvious_one() {
    let pages = 200;
    let lbas = skewed();
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

/// LARC beside two obvious lists, request for request: every third is a write, and a while most requests go where none
/// went before, or to few sectors, so that the ghost list has its most room, its least, and what is in between.
#[test]
fn larc_of_a_skewed_trace_is_two_obvious_lists() {
    let pages = 200;
    let mut policy = one_set(Scheme::Larc, pages);
    let mut lists = Larc { pages: pages.into(), room: 20.0, ..Larc::default() };
    let (mut steps, mut rooms) = (Steps::default(), (f64::MAX, 0f64));
    for (at, lba) in skewed().into_iter().enumerate() {
        let lba = match at / 10_000 % 3 {
            1 if at % 10 > 0 => 1_000_000 + at as u64,
            2 => lba % 150,
            _ => lba,
        };
        let (hit, comes_in) = lists.request(lba);
        rooms = (rooms.0.min(lists.room), rooms.1.max(lists.room));
        steps.clear();
        let found = policy.newest(Lba(lba)) != Newest::Array;
        let is_write = at % 3 == 0;
        if is_write {
            policy.write(Lba(lba), None, &mut steps)
        } else {
            policy.read(Lba(lba), &mut steps);
        }
        let written = steps.list.iter().any(|step| matches!(step, Step::WritePage { .. }));
        assert_eq!((found, written), (hit, comes_in || hit && is_write), "request {at}");
    }
    assert!(rooms.0 < 21.0 && rooms.1 > 170.0, "{rooms:?}");
}

/// Huang et al., MSST 2013, algorithm 1: newest in front.
#[derive(Default)]
struct Larc {
    pages: usize,
    cached: VecDeque<u64>,
    ghosts: VecDeque<u64>,
    room: f64,
}

impl Larc {
    /// Whether the cache has it, and whether it comes in.
    fn request(&mut self, lba: u64) -> (bool, bool) {
        let pages = self.pages as f64;
        let is_cached = forget(&mut self.cached, lba);
        if is_cached {
            self.room = (pages * 0.1).max(self.room - pages / (pages - self.room));
            self.cached.push_front(lba);
            return (true, false);
        }
        self.room = (pages * 0.9).min(self.room + pages / self.room);
        if forget(&mut self.ghosts, lba) {
            self.cached.push_front(lba);
            self.cached.truncate(self.pages);
            return (false, true);
        }
        self.ghosts.push_front(lba);
        self.ghosts.truncate(self.room as usize);
        (false, false)
    }
}

fn forget(list: &mut VecDeque<u64>, lba: u64) -> bool {
    list.iter().position(|held| *held == lba).and_then(|at| list.remove(at)).is_some()
}

/// Sectors of which few are asked for often.
fn skewed() -> Vec<u64> {
    let mut state = 7u64;
    let mut lba = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = (state >> 11) as f64 / (1u64 << 53) as f64;
        (uniform.powi(3) * 3000.0) as u64
    };
    (0..60_000).map(|_| lba()).collect()
}

/// A policy with one set of so many pages.
fn one_set(scheme: Scheme, pages: u16) -> Box<dyn Policy> {
    let shape = Shape { level: Level::Raid5, members: 5, chunk_sectors: 16, rows: 1 << 24 };
    Recipe { ways: pages, ..Recipe::new(scheme, pages.into()) }.build(&shape).unwrap()
}

/// Reads of a cache of one set, and how many of them missed.
fn misses_of(pages: u16, lbas: impl Iterator<Item = u64>) -> (u64, u64) {
    let mut policy = one_set(Scheme::WriteThrough, pages);
    let (mut steps, mut reads, mut misses) = (Steps::default(), 0, 0);
    for lba in lbas {
        steps.clear();
        reads += 1;
        misses += u64::from(policy.read(Lba(lba), &mut steps) == Newest::Array);
    }
    (reads, misses)
}
