//! Page requests per second that the counter of cache policies processes on one core: builds a cache, and runs a
//! workload through it. The workload is FIO's zipf of the KDD paper: 1.6 GB of sectors, skew 1.0001, a quarter of
//! reads; the cache holds a fifth of the sectors.
//!
//! `cargo bench -p vellum-lab --bench array_cache`

use divan::Bencher;
use divan::counter::ItemsCount;
use std::sync::OnceLock;
use vellum_array::{Level, Shape};
use vellum_base::{Lba, Nanos, SECTOR_BYTES};
use vellum_lab::array_cache::{Deltas, Mode, PageKind, PageRequest, Workload, count};
use vellum_trace::generate::{Seeded, Zipf};

const SECTORS: u64 = 400_000;
const REQUESTS: usize = 2_000_000;

fn main() {
    divan::main();
}

fn workload() -> &'static Workload {
    static WORKLOAD: OnceLock<Workload> = OnceLock::new();
    WORKLOAD.get_or_init(|| {
        let (mut rng, zipf) = (Seeded::new(1), Zipf::new(SECTORS, 1.0001).expect("there are sectors"));
        let requests = (0..REQUESTS).map(|_| {
            // Ranks are scattered over all sectors.
            let lba = Lba(zipf.sample(&mut rng).wrapping_mul(0x9E37_79B9_7F4A_7C15) % SECTORS);
            let kind = if rng.below(4) == 0 { PageKind::Read } else { PageKind::Write };
            let page = SECTOR_BYTES as u16;
            PageRequest { time: Nanos(0), lba, sectors: 1, kind, ends: (page, page) }
        });
        Workload { requests: requests.collect(), sectors: SECTORS, ..Workload::default() }
    })
}

#[divan::bench(args = ["wa", "wt", "larc", "leavo", "kdd-12", "kdd"], sample_count = 5, sample_size = 1)]
fn count_page_requests(bencher: Bencher, name: &str) {
    let mode = Mode::by_name(name).expect("one of those that there are");
    let shape = Shape { level: Level::Raid5, members: 5, chunk_sectors: 16, rows: SECTORS / 64 };
    let workload = workload();
    bencher.counter(ItemsCount::new(REQUESTS)).bench_local(|| {
        let mut policy = mode.recipe((SECTORS / 5) as u32).build(&shape).expect("it is large enough");
        let mut deltas = Deltas::new(mode.deltas, 1, workload).expect("lengths are drawn");
        count(&mut *policy, workload, &mut deltas, mode.partial)
    });
}
