//! Leaves that stay in their superblock on raw flash: answers are the same, the ledger equals the device, what is
//! counted on is what tables list, and a store that is full gets going again.

use crate::harness::{Model, Op, apply, assert_same, batch_of, flash, geometry, packed, repair, small};
use crate::model::history_with;
use crate::rot::noticed;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::{Avoided, BlockAddr, Cause, Env, Flash, Geometry, Kind, RealEnv};
use vellum_kv::media::{Placement, Relinking, Schedule, Sharing};
use vellum_kv::{Caps, FlashMedia, Map, Media, Options, Reuse, ReuseOptions, Store};
use vellum_media::nand::{Fault, Nand, NandParams};
use vellum_sim::Sim;

/// Everything that can stay does, so that there is much to collect.
const ALL: Relinking = Relinking { live_min: 0.0, free_min: 0.0, runs_max: None };

fn key(n: usize) -> Vec<u8> {
    format!("key{n:06}").into_bytes()
}

/// Opens it, with leaves that stay.
fn open(flash: &Arc<Nand>, env: &Arc<dyn Env>, relinking: Relinking) -> (Store, Arc<FlashMedia>) {
    open_with(flash, env, relinking, None)
}

fn open_with(
    flash: &Arc<Nand>,
    env: &Arc<dyn Env>,
    relinking: Relinking,
    schedule: Option<Schedule>,
) -> (Store, Arc<FlashMedia>) {
    let media = match schedule {
        Some(schedule) => FlashMedia::open_scheduled(flash.clone(), env.clone(), schedule),
        None => FlashMedia::open(flash.clone(), env.clone()),
    };
    let media = media.unwrap();
    media.set_relinking(relinking);
    let options = Options { reuse: Reuse::Relink.into(), ..small() };
    (Store::open(media.clone(), env.clone(), options).unwrap(), media)
}

/// Overwrites and deletes of runs of keys.
fn write(store: &Store, model: &mut Model, rng: &mut SmallRng, keys: usize, runs: usize) -> Result<(), Kind> {
    for _ in 0..runs {
        let (start, count) = (rng.random_range(0..keys), rng.random_range(1..40));
        let ops: Vec<Op> = (start..start + count)
            .map(|n| match rng.random_range(0..12) {
                0 => Op::Delete(key(n)),
                _ => Op::Put(key(n), vec![rng.random(); rng.random_range(100..900)]),
            })
            .collect();
        store.write(&batch_of(&ops), Default::default()).map_err(|e| e.kind())?;
        apply(model, &ops);
    }
    Ok(())
}

/// The ledger, the counts and the verification of a store at rest.
fn check(
    store: &Store,
    media: &FlashMedia,
    flash: &Nand,
    programmed_before: u64,
    context: &str,
) -> Placement {
    let page_bytes = flash.geometry().page_bytes as u64;
    let programmed = (flash.counters().pages_programmed - programmed_before) * page_bytes;
    let stat = store.stat();
    assert_eq!(media.ledger().programmed_total(), programmed, "{context}: causes sum to programs");
    assert_eq!(
        media.ledger().avoided_by(Avoided::Remap),
        stat.since_opened.reuse().relinked_bytes,
        "{context}"
    );
    let since = &stat.since_opened;
    assert_eq!(since.linked_bytes(), stat.since_opened.reuse().relinked_bytes, "{context}");
    let merged =
        Cause::ALL.iter().filter(|cause| cause.name().starts_with("compaction_") || **cause == Cause::Bubble);
    let merged: u64 = merged.map(|cause| media.ledger().programmed_by(*cause)).sum();
    assert_eq!(since.emitted_bytes(), merged + since.linked_bytes(), "{context}: collection emits nothing");
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new(), "{context}");
    media.placement().unwrap()
}

/// Flash with pages of so many bytes, of the room of the usual.
fn flash_of_pages(page_bytes: u32) -> Arc<Nand> {
    let whole = geometry();
    let pages_per_block = 2 + (whole.pages_per_block - 2) * whole.page_bytes / page_bytes;
    let geometry = Geometry { page_bytes, pages_per_block, ..whole };
    let nand = Nand::ram(geometry, NandParams { nvram_bytes: 1 << 20, ..NandParams::default() }).unwrap();
    FlashMedia::format(&nand).unwrap();
    Arc::new(nand)
}

#[test]
fn what_stays_is_read_and_counted_whatever_a_page_is() {
    for (seed, page_bytes) in [(1, 4096), (2, 8192), (3, 16384), (4, 8192)] {
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        let flash = flash_of_pages(page_bytes);
        sim.run(|| {
            let (mut rng, mut model) = (SmallRng::seed_from_u64(seed), Model::new());
            let relinking = if seed % 2 == 0 { ALL } else { Relinking::default() };
            let mut relinked = 0;
            for round in 0..3 {
                let context = format!("seed {seed}, pages of {page_bytes}, round {round}");
                let before = flash.counters().pages_programmed;
                let (store, media) = open(&flash, &env, relinking);
                assert_eq!(store.stat().sharing, Sharing::Relink);
                assert_same(&store, &model, &context);
                write(&store, &mut model, &mut rng, 9000, 400).unwrap();
                store.flush().unwrap();
                assert_same(&store, &model, &context);
                check(&store, &media, &flash, before, &context);
                relinked += store.stat().since_opened.reuse().relinked_bytes;
                store.compact().unwrap();
                assert_same(&store, &model, &context);
                check(&store, &media, &flash, before, &context);
                store.close().unwrap();
            }
            assert!(relinked > 1 << 20, "seed {seed}: {relinked} bytes stayed");
        });
    }
}

/// What is written anyway is packed: no bubble is left for it.
#[test]
fn what_would_not_stay_is_packed() {
    let bubbles = [0.0, 2.0].map(|live_min| {
        let (sim, flash) = (Sim::new(6), flash(6));
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let (mut rng, mut model) = (SmallRng::seed_from_u64(6), Model::new());
            let (store, _) = open(&flash, &env, Relinking { live_min, ..ALL });
            write(&store, &mut model, &mut rng, 6000, 300).unwrap();
            store.compact().unwrap();
            assert_same(&store, &model, "compacted");
            let reused = store.stat().since_opened.reuse();
            assert_eq!(reused.relinked_bytes > 0, live_min < 1.0);
            reused.bubble_bytes
        })
    });
    assert!(bubbles[0] > 0 && bubbles[1] == 0, "{bubbles:?}");
}

#[test]
fn a_store_that_relinks_is_an_ordered_map() {
    vellum_sim::check(500..506, |seed| {
        let flash = flash(seed);
        let schedule = [None, Some(Schedule::Priority), Some(Schedule::Noop)][(seed % 3) as usize];
        let base = if seed % 2 == 0 { small() } else { packed() };
        let caps = Caps { bubble: 1.0, global: 1.0 };
        let options = Options { reuse: ReuseOptions { caps, ..Reuse::Relink.into() }, ..base };
        history_with(seed, 8_000, options, || {
            let env = RealEnv::new();
            let media = match schedule {
                Some(schedule) => FlashMedia::open_scheduled(flash.clone(), env, schedule),
                None => FlashMedia::open(flash.clone(), env),
            };
            let media = media.unwrap();
            media.set_relinking(ALL);
            media
        });
    });
}

#[test]
fn superblocks_are_collected_and_the_store_goes_on() {
    for schedule in [None, Some(Schedule::Priority)] {
        let (sim, flash) = (Sim::new(5), flash(5));
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let (mut rng, mut model) = (SmallRng::seed_from_u64(5), Model::new());
            let before = flash.counters().pages_programmed;
            let (store, media) = open_with(&flash, &env, ALL, schedule);
            for round in 0..20 {
                write(&store, &mut model, &mut rng, 8000, 150).unwrap();
                // Where there are queues a compaction may be under way.
                store.flush().unwrap();
                if schedule.is_none() {
                    check(&store, &media, &flash, before, &format!("round {round}"));
                }
            }
            assert_same(&store, &model, "at the end");
            let placement = media.placement().unwrap();
            assert!(placement.collections > 10, "{placement:?}");
            store.close().unwrap();
            let gc = media.ledger().programmed_by(Cause::Gc);
            assert!(gc >= placement.collected_bytes, "{placement:?}, {gc} bytes");
            drop(media);
            let (store, _media) = open_with(&flash, &env, ALL, schedule);
            assert_same(&store, &model, "opened again");
            assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
            store.close().unwrap();
        });
    }
}

/// A store with as many pinned superblocks as there can be, of which some will soon be collected, closed.
fn pinned(seed: u64) -> (Arc<Nand>, Model) {
    let (sim, flash) = (Sim::new(seed), flash(seed));
    let env: Arc<dyn Env> = sim.env();
    let mut model = Model::new();
    sim.run(|| {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (store, media) = open(&flash, &env, ALL);
        let is_full = |told: Placement| told.collections >= 3 && told.free <= 4;
        while !is_full(media.placement().unwrap()) {
            write(&store, &mut model, &mut rng, 7000, 10).unwrap();
        }
        assert!(media.placement().unwrap().pinned > 5);
        store.close().unwrap();
    });
    (flash, model)
}

/// Opens it, perhaps only after another cut.
fn recover(flash: &Arc<Nand>, env: &Arc<dyn Env>, again: Option<u64>) -> (Store, Arc<FlashMedia>) {
    flash.power_on();
    if let Some(nth) = again {
        flash.power_cut_at(nth);
        let media = FlashMedia::open(flash.clone(), env.clone());
        let opened = media.and_then(|media| {
            media.set_relinking(ALL);
            Store::open(media, env.clone(), Options { reuse: Reuse::Relink.into(), ..small() })
        });
        drop(opened);
        flash.disarm();
        flash.power_on();
    }
    open(flash, env, ALL)
}

/// Goes on with a store whose superblocks have to be collected, until `fault` at the `nth` operation. Whether it came,
/// and how often was collected before.
fn life(whole: &Nand, model: &Model, seed: u64, nth: u64, fault: Fault) -> (bool, u64) {
    let context = format!("seed {seed}, {fault:?} at {nth}");
    let (sim, flash) = (Sim::new(seed), Arc::new(whole.fork().unwrap()));
    let env: Arc<dyn Env> = sim.env();
    let (mut rng, mut model) = (SmallRng::seed_from_u64(seed ^ nth), model.clone());
    sim.run(|| {
        let (store, media) = open(&flash, &env, ALL);
        flash.arm(nth, fault);
        let mut doubtful = None;
        for round in 0..20u8 {
            let start = rng.random_range(0..7000);
            let ops: Vec<Op> = (start..start + 30)
                .map(|n| Op::Put(key(n), [&[round; 100][..], &[nth as u8; 600]].concat()))
                .collect();
            match store.write(&batch_of(&ops), Default::default()) {
                Ok(()) => apply(&mut model, &ops),
                Err(e) if e.kind() == Kind::PowerLost => doubtful = Some(ops),
                Err(e) => panic!("{context}: {e}"),
            }
            if flash.is_off() {
                break;
            }
        }
        let collections = media.placement().unwrap().collections;
        drop((store, media));
        let fired = flash.is_off() || flash.counters().program_failures > whole.counters().program_failures;
        flash.disarm();
        let (store, _) = recover(&flash, &env, nth.is_multiple_of(3).then_some(nth % 40 + 1));
        if let Some(Op::Put(key, value)) = doubtful.as_ref().and_then(|ops| ops.first())
            && store.get(key).unwrap().as_ref() == Some(value)
        {
            doubtful.iter().for_each(|ops| apply(&mut model, ops));
        }
        assert_same(&store, &model, &context);
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new(), "{context}");
        write(&store, &mut model, &mut rng, 7000, 20).unwrap_or_else(|e| panic!("{context}: {e:?}"));
        store.close().unwrap_or_else(|e| panic!("{context}: {e}"));
        let (store, _) = open(&flash, &env, ALL);
        assert_same(&store, &model, &format!("{context}, again"));
        (fired, collections)
    })
}

#[test]
fn a_cut_at_every_step_of_merges_and_collections() {
    // Each seed one in so many, so that so many of them together are every step.
    const SEEDS: u64 = 16;
    vellum_sim::check(0..6, |seed| {
        let (flash, model) = pinned(seed);
        let steps = (0..).map(|n| 1 + seed + n * SEEDS);
        let lives = steps.map(|nth| life(&flash, &model, seed, nth, Fault::PowerCut));
        let lives: Vec<u64> = lives.take_while(|(cut, _)| *cut).map(|(_, collections)| collections).collect();
        assert!(lives.len() > 20, "seed {seed}: only {} cuts", lives.len());
        assert!(lives.iter().any(|collections| *collections > 0), "seed {seed}: nothing was collected");
    });
}

#[test]
fn programs_that_fail_while_superblocks_are_collected() {
    vellum_sim::check(20..24, |seed| {
        let (flash, model) = pinned(seed);
        let fired = [1, 40, 90, 200]
            .into_iter()
            .filter(|nth| life(&flash, &model, seed, nth + seed, Fault::ProgramFails).0);
        assert!(fired.count() > 2, "seed {seed}");
    });
}

/// Flips bits of pages of superblocks that tables share, whose own are gone, or that were collected.
#[test]
fn pages_of_what_is_shared_flipped_in_turn() {
    let env: Arc<dyn Env> = RealEnv::new();
    let (whole, model) = pinned(3);
    let (mut seen, mut pages) = (0, 0);
    for block in 0..whole.geometry().blocks() {
        for page in 0..whole.report(BlockAddr(block)).pages_written {
            // One in so many of those between the tags: there are thousands.
            let last = whole.report(BlockAddr(block)).pages_written - 1;
            if page != 0 && page != last && !(block * 7 + page).is_multiple_of(11) {
                continue;
            }
            let fork = Arc::new(whole.fork().unwrap());
            let at = BlockAddr(block).page(page);
            let bit = [5, 8 * 20 + 1, 8 * 36, 8 * 700 + 3, 8 * 4000][(block + page) as usize % 5];
            fork.flip_bit(at, bit).unwrap();
            let context = format!("bit {bit} of {at}");
            let open = || {
                let media = FlashMedia::open(fork.clone(), env.clone())?;
                Store::open(media, env.clone(), Options { reuse: Reuse::Relink.into(), ..small() })
            };
            let is_noticed = noticed(open, &model, &context);
            assert!(!is_noticed || (page != 0 && page != last), "{context}: one tag is enough");
            seen += is_noticed as u32;
            pages += 1;
        }
    }
    // Much of what lies there nobody counts on any more.
    assert!(pages > 300 && seen > pages / 16, "{seen} of {pages} noticed");
}

/// Without what was on a superblock that is lost the store does not open, and a repair saves all else, where it was.
#[test]
fn a_superblock_that_is_lost_is_missed_and_the_rest_is_saved() {
    let env: Arc<dyn Env> = RealEnv::new();
    let (whole, model) = pinned(4);
    let (geometry, mut missed) = (*whole.geometry(), 0);
    for index in (0..geometry.blocks_per_die).step_by(2) {
        let context = format!("superblock {index}");
        let fork = Arc::new(whole.fork().unwrap());
        for block in (0..geometry.dies()).map(|die| geometry.block_on(die, index)) {
            let pages = fork.report(block).pages_written;
            (0..pages).for_each(|page| fork.spoil(block.page(page)).unwrap());
        }
        let open = || FlashMedia::open(fork.clone(), env.clone()).unwrap();
        let options = Options { reuse: Reuse::Relink.into(), ..small() };
        match Store::open(open(), env.clone(), options.clone()) {
            Ok(store) => {
                assert_same(&store, &model, &context);
                continue;
            }
            Err(error) => assert_eq!(error.kind(), Kind::Corrupt, "{context}: {error}"),
        }
        missed += 1;
        let media: Arc<dyn Media> = open();
        let repaired = repair(&media, &env, &options).unwrap_or_else(|e| panic!("{context}: {e}"));
        let lost_its_end = repaired.problems.iter().any(|problem| problem.contains("lost its end"));
        assert!(!lost_its_end && repaired.tables_kept > 0, "{context}: {repaired:?}");
        drop(media);
        let store = Store::open(open(), env.clone(), options).unwrap_or_else(|e| panic!("{context}: {e}"));
        let kept =
            model.iter().filter(|(key, value)| store.get(key).unwrap().as_ref() == Some(*value)).count();
        assert!(kept * 4 > model.len() * 3, "{context}: {kept} of {} kept", model.len());
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new(), "{context}");
    }
    assert!(missed > 5, "{missed}");
}

/// Writes keys in order until the medium is full.
fn fill_up(store: &Store, model: &mut Model, from: usize) -> usize {
    for n in from.. {
        match store.put(&key(n), &[n as u8; 900]) {
            Ok(()) => drop(model.insert(key(n), vec![n as u8; 900])),
            Err(e) if e.kind() == Kind::NoSpace => return n,
            Err(e) => panic!("{e}"),
        }
    }
    unreachable!("it must fill")
}

#[test]
fn a_full_store_of_shared_superblocks_wins_room_back() {
    let priced = Relinking::default();
    for (relinking, part) in [(ALL, 2), (ALL, 4), (ALL, 10), (priced, 3), (priced, 10)] {
        let (sim, flash) = (Sim::new(7), flash(7));
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let (store, media) = open(&flash, &env, relinking);
            let (mut model, mut end) = (Model::new(), 0);
            for round in 0..4 {
                let context = format!("{relinking:?}, one in {part}, round {round}");
                end = fill_up(&store, &mut model, end);
                // Runs of 50, so that what lies between stays where it is.
                let gone = |n: usize| (n / 50 + round).is_multiple_of(part);
                let gone: Vec<usize> =
                    (0..end).filter(|n| gone(*n) && model.contains_key(&key(*n))).collect();
                for n in &gone {
                    store.delete(&key(*n)).unwrap_or_else(|e| panic!("{context}: {e}"));
                    model.remove(&key(*n));
                }
                store.compact().unwrap_or_else(|e| panic!("{context}: {e}"));
                assert_same(&store, &model, &context);
                assert_eq!(media.problems(), Vec::<String>::new(), "{context}");
                let before = model.len();
                end = fill_up(&store, &mut model, end);
                let won = model.len() - before;
                assert!(won * 2 > gone.len(), "{context}: {} deleted, {won} written", gone.len());
            }
            store.close().unwrap();
        });
    }
}
