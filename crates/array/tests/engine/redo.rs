//! Sectors that are written again after a cut: more than are written at once, while bases cannot be read, a member
//! fails, or the power goes once more. What was acknowledged is in the NVRAM, so it is there, flushed or not.

use super::world::{DATA_START, Model, World, content};
use crate::harness::{Kind, Rig};
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::CacheOptions;
use vellum_base::{BlockDevice, Env, Lba};
use vellum_media::RamDisk;
use vellum_sim::Sim;

const WRITTEN: u64 = 150;
const PAGES: u64 = 400;

fn options() -> CacheOptions {
    CacheOptions { dirty_high: 0.95, dirty_low: 0.9, stale_rows_max: u64::MAX, ..CacheOptions::default() }
}

/// Each of many sectors written twice, of which nothing was flushed: the power goes.
fn cut(env: &Arc<dyn Env>, kind: Kind, seed: u64) -> World {
    let rig = Rig::of_sectors(256 + 64 * u64::from(kind.chunk_sectors) + 1, kind, env.clone(), seed);
    let ssd = RamDisk::new(DATA_START + PAGES + 1, &rig.power);
    let nvram = RamDisk::new(512, &rig.power);
    let scheme = Scheme::KddPaper;
    let world = World { rig, ssd, nvram: Some(nvram), scheme, seen: Default::default() };
    let cached = world.attach(options());
    for id in [1, 2] {
        (0..WRITTEN).for_each(|lba| cached.write(Lba(lba), &content(lba, id), false).unwrap());
        if id == 1 {
            cached.flush().unwrap();
        }
    }
    world.rig.power.cut_at(1);
    drop(cached);
    world.after_cut(seed + 1)
}

/// Every sector has its newest version, but that `doubtful` of them may have the one before; so do they without any
/// member once rows are clean.
fn assert_newest(world: &World, without: &[usize], doubtful: usize, context: &str) {
    let cached = world.try_open(without, options()).unwrap();
    assert_eq!(cached.status().emptied, None, "{context}");
    let mut model = Model::new(cached.info().sectors);
    (0..WRITTEN).for_each(|lba| [1, 2].into_iter().for_each(|id| model.wrote(lba, id)));
    model.settle(&cached, &[], context);
    let older = (0..WRITTEN).filter(|lba| model.last(*lba) == 1).count();
    assert!(older <= doubtful, "{context}: {older} sectors are older");
    cached.clean_all(|_| true).unwrap();
    model.assert_holds(&cached, &[], context);
    cached.close().unwrap();
    if without.is_empty() {
        world.assert_parity(&mut model, context);
    }
}

fn each(mut test: impl FnMut(&Arc<dyn Env>, Kind, u64, &str)) {
    for (seed, kind) in (0..).zip(Kind::all()) {
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| test(&env, kind, seed, &format!("{kind:?}")));
    }
}

#[test]
fn more_sectors_than_at_once_are_written_again() {
    each(|env, kind, seed, context| {
        let world = cut(env, kind, seed);
        let before = world.rig.power.calls();
        let cached = world.open(&[], options());
        assert!(world.rig.power.calls() - before > 64, "{context}: many are written again");
        drop(cached);
        assert_newest(&world, &[], 0, context);
    });
}

#[test]
fn a_base_that_cannot_be_read_costs_its_sector_s_newest_version_at_most() {
    each(|env, kind, seed, context| {
        let world = cut(env, kind, seed);
        let unreadable: BTreeSet<u64> =
            (0..5).map(|nth| DATA_START + (seed * 13 + nth * 29) % WRITTEN).collect();
        unreadable.iter().for_each(|sector| world.ssd.make_unreadable(Lba(*sector)));
        assert_newest(&world, &[], unreadable.len(), context);
    });
}

#[test]
fn a_member_that_fails_meanwhile_costs_nothing() {
    each(|env, kind, seed, context| {
        let world = cut(env, kind, seed);
        let member = seed as usize % kind.members;
        // Behind what assembling asks of it.
        world.rig.disks[member].fail_from(40);
        drop(world.try_open(&[], options()));
        assert_newest(&world, &[member], 0, context);
    });
}

#[test]
fn a_cut_at_any_call_of_it_is_another_cut() {
    each(|env, kind, seed, context| {
        let calls = {
            let world = cut(env, kind, seed);
            let before = world.rig.power.calls();
            drop(world.open(&[], options()));
            world.rig.power.calls() - before
        };
        for nth in (1..calls).step_by(7) {
            let world = cut(env, kind, seed);
            world.rig.power.cut_at(nth);
            assert!(world.try_open(&[], options()).is_err() || world.rig.power.is_off(), "{context}");
            let world = world.after_cut(seed + nth);
            assert_newest(&world, &[], 0, &format!("{context}, cut again at call {nth}"));
        }
    });
}
