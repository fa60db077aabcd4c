//! Random requests to every policy: what is read is the newest version, parity is told exactly what it lacks, and what
//! NVRAM and log hold is the cache.

use super::interpreter::Rig;
use proptest::prelude::*;
use vellum_array::cache::{Recipe, Scheme};
use vellum_array::{Level, Shape};
use vellum_base::Lba;

#[derive(Clone, Debug)]
enum Request {
    Read(u64),
    Write(u64, usize),
    Forget(u64),
    CleanRow(u64),
    Idle,
    Restart,
    AllowDeferring(bool),
}

const SHAPE: Shape = Shape { level: Level::Raid5, members: 4, chunk_sectors: 4, rows: 24 };

fn request() -> impl Strategy<Value = Request> {
    let sectors = SHAPE.sectors();
    // Half of the requests go to a few rows.
    let lba = prop_oneof![0..sectors, 0..SHAPE.row_sectors() * 3];
    let bytes = prop_oneof![0..200usize, 200..4200usize];
    prop_oneof![
        8 => lba.clone().prop_map(Request::Read),
        16 => (lba.clone(), bytes).prop_map(|(lba, bytes)| Request::Write(lba, bytes)),
        1 => lba.prop_map(Request::Forget),
        1 => (0..SHAPE.rows).prop_map(Request::CleanRow),
        1 => Just(Request::Idle),
        1 => Just(Request::Restart),
        1 => prop::bool::weighted(0.7).prop_map(Request::AllowDeferring),
    ]
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let scheme = prop::sample::select(Scheme::ALL.to_vec());
    let sets = (1u32..6, prop::sample::select(vec![4u16, 7, 16, 32]));
    let window = prop::sample::select(vec![0u16, 1, 5, 24]);
    let segments = (4u32..9, prop::sample::select(vec![0u32, 1, 3, 8]));
    (scheme, sets, segments, window, 0..3usize, 0.2..0.95f64, 0.1..1.0f64).prop_map(
        |(scheme, (sets, ways), (segments, segment_pages), window, staging, high, low)| {
            let is_in_place = scheme != Scheme::Kdd || segment_pages == 0;
            let pages = if is_in_place { sets * u32::from(ways) } else { segments * segment_pages };
            Recipe {
                window,
                ways,
                segment_pages,
                log_pages: 0,
                staging_bytes: 4096 << staging,
                dirty_high: high,
                dirty_low: high * low,
                ..Recipe::new(scheme, pages)
            }
        },
    )
}

fn run(rig: &mut Rig, requests: Vec<Request>) {
    for request in requests {
        match request {
            Request::Read(lba) => rig.read(Lba(lba)),
            Request::Write(lba, bytes) => rig.write(Lba(lba), bytes),
            Request::Forget(lba) => rig.forget(Lba(lba)),
            Request::CleanRow(row) => rig.clean_row(row),
            Request::Idle => {
                rig.idle();
            }
            Request::Restart => rig.restart(),
            Request::AllowDeferring(allowed) => rig.policy.allow_deferring(allowed),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn every_policy_reads_the_newest_version(
        recipe in recipe(),
        requests in prop::collection::vec(request(), 1..600),
    ) {
        let mut rig = Rig::new(recipe, SHAPE);
        run(&mut rig, requests);
        rig.restart();
        while rig.idle() {}
        let census = rig.policy.census();
        prop_assert_eq!((census.old, census.new, census.delta), (0, 0, 0));
    }
}

/// Long enough for the log to go round, deltas to be committed and rows to be cleaned, whole ones among them.
#[test]
fn a_long_run_exercises_everything() {
    for scheme in [Scheme::KddPaper, Scheme::Kdd, Scheme::Leavo] {
        let shape = Shape { rows: 400, ..SHAPE };
        let recipe = Recipe { ways: 64, log_pages: 0, ..Recipe::new(scheme, 1024) };
        assert_eq!(recipe.segment_pages, if scheme == Scheme::Kdd { 32 } else { 0 });
        let mut rig = Rig::new(recipe, shape);
        let mut state = 1u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for i in 0..60_000 {
            let rows = if below(2) == 0 { 40 } else { shape.rows };
            let lba = Lba(below(rows * shape.row_sectors()));
            match below(3) {
                0 => rig.read(lba),
                _ => rig.write(lba, below(600) as usize),
            }
            if i % 5000 == 4999 {
                rig.restart();
            }
        }
        let world = &rig.world;
        assert!(world.commits > 20 && world.cleanings > 100, "{} {}", world.commits, world.cleanings);
        assert!(scheme != Scheme::Kdd || world.vacated > 50, "{} segments were given up", world.vacated);
        assert!(scheme != Scheme::KddPaper || world.whole > 0, "a row was made anew from the cache alone");
    }
}

/// After a cut the log's head is the one that its last page was written with.
#[test]
fn the_log_goes_round_though_it_is_cut_after_every_page() {
    for scheme in [Scheme::KddPaper, Scheme::Kdd] {
        let shape = Shape { rows: 400, ..SHAPE };
        let recipe = Recipe { ways: 64, log_pages: 0, window: 0, ..Recipe::new(scheme, 1024) };
        let (mut rig, mut state) = (Rig::new(recipe, shape), 1u64);
        let mut seen = 0;
        while rig.world.commits < 100 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            rig.write(Lba((state >> 33) % shape.sectors()), (state >> 50) as usize % 600);
            if std::mem::replace(&mut seen, rig.world.commits) != rig.world.commits {
                rig.restart();
            }
        }
    }
}

#[test]
fn thresholds_and_sizes_are_checked() {
    let bad = |recipe: Recipe| recipe.build(&SHAPE).err().expect("refused").to_string();
    let good = Recipe::new(Scheme::KddPaper, 64);
    assert!(bad(Recipe { dirty_low: 0.9, ..good }).contains("low <= high"));
    assert!(bad(Recipe { pages: 3, ..good }).contains("4 pages"));
    assert!(bad(Recipe { ways: 0, ..good }).contains("set"));
    assert!(bad(Recipe { segment_pages: 17, ..Recipe::new(Scheme::Kdd, 64) }).contains("4 segments"));
}
