//! Against figures that are known: the ARC paper's OLTP trace.

use std::path::Path;
use vellum_array::cache::{Newest, Recipe, Scheme, Steps};
use vellum_array::{Level, Shape};
use vellum_base::Lba;

/// libCacheSim finds an LRU miss ratio of 0.5753 at 2,000 pages; the ARC paper prints 42.47 % hits.
#[test]
fn lru_of_the_oltp_trace() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces/arc_OLTP.lis.zst");
    let Ok(bytes) = std::fs::read(&path) else {
        eprintln!("skipped: {} is not there", path.display());
        return;
    };
    let text = String::from_utf8(zstd::decode_all(&bytes[..]).unwrap()).unwrap();
    let shape = Shape { level: Level::Raid5, members: 5, chunk_sectors: 16, rows: 1 << 24 };
    let recipe = Recipe { ways: 2000, ..Recipe::new(Scheme::WriteThrough, 2000) };
    let mut policy = recipe.build(&shape).unwrap();
    let (mut steps, mut reads, mut misses) = (Steps::default(), 0u64, 0u64);
    for line in text.lines() {
        let mut words = line.split_whitespace().map(|word| word.parse::<u64>().unwrap());
        let (start, count) = (words.next().unwrap(), words.next().unwrap());
        for lba in start..start + count {
            steps.clear();
            reads += 1;
            misses += u64::from(policy.read(Lba(lba), &mut steps) == Newest::Array);
        }
    }
    assert_eq!(reads, 914_145);
    let ratio = misses as f64 / reads as f64;
    assert!((ratio - 0.5753).abs() < 0.00005, "{ratio}");
}
