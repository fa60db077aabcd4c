//! Collecting keeps up with whoever overwrites, or they wait.

use super::harness::{open_with, small};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use vellum_kv::log::Options;
use vellum_kv::{Directory, DirectoryOptions, Map};

/// Segments are so small here that a collection is mostly syncs: overwriting is faster than it.
#[test]
fn garbage_does_not_grow_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { collect_max: 1, ..small() };
    let slack = 12 * options.segment_bytes; // what collecting may be behind by, is being written, and is collected
    let store =
        open_with(Directory::open(dir.path(), DirectoryOptions::default()).unwrap(), options).unwrap();
    let mut rng = SmallRng::seed_from_u64(1);
    for n in 0..200_000u32 {
        store.put(&rng.random_range(0..20_000u32).to_be_bytes(), &[7; 100]).unwrap();
        if n % 500 == 0 {
            let stat = store.stat();
            // Collecting is to leave 40 % garbage, and may leave twice as many bytes as that.
            let most = (2.0 / 0.6 * stat.live_bytes as f64) as u64 + slack;
            let all = stat.live_bytes + stat.garbage_bytes;
            assert!(all < most, "{all} bytes where {most} are the most");
        }
    }
    println!("{:?} stalls", store.stat().since_opened.stalls());
}
