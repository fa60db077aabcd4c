//! Pages of the log of a cache, which wait for contents that they speak of: nobody waits for them who keeps these from
//! coming, and they come in their order.

use super::degraded::{options, with_world};
use super::rot::logged_sums;
use super::world::{DATA_START, World, content};
use crate::harness::{Hooked, Kind, Rig, no_hook};
use crate::rebuild::replace;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::{CacheFormat, CachedArray};
use vellum_array::{Array, Device, Options, assemble};
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Error, Kind as ErrorKind, Lba, Nanos, Result, SECTOR_BYTES};
use vellum_media::RamDisk;

fn read(cached: &CachedArray, lba: u64) -> Result<()> {
    cached.read(Lba(lba), &mut [0; SECTOR_BYTES])
}

fn hooked(
    disk: &Arc<RamDisk>,
    before_read: impl Fn(&Range<u64>) -> Result<()> + Send + Sync + 'static,
) -> Device {
    Arc::new(Hooked { disk: disk.clone(), before_change: no_hook(), before_read: Box::new(before_read) })
}

fn attach(world: &World, array: Array, ssd: Device, ways: u16) -> Arc<CachedArray> {
    let nvram = world.rig.device(world.nvram.as_ref().unwrap());
    let format = CacheFormat { ways, segment_pages: Some(0), ..CacheFormat::new(Scheme::KddPaper) };
    let cached = CachedArray::attach_with_nvram(array, ssd, Some(nvram), &format, options());
    Arc::new(cached.unwrap())
}

/// A rebuild that gives a row up has it alone, and fills a page of the log; that speaks of a sector of the row, which
/// somebody is reading. True if the page was filled then.
fn gives_up_beside_a_reader(trims: u64) -> bool {
    let mut filled = false;
    with_world(Kind::all()[2], Scheme::KddPaper, 1, |world| {
        let mut world = world.with_nvram().with_pages(4000);
        let env = world.rig.env.clone();
        let (is_armed, held) =
            (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None::<Arc<CachedArray>>)));
        let ssd = {
            let (is_armed, held, env, has_read) =
                (is_armed.clone(), held.clone(), env.clone(), AtomicBool::new(false));
            hooked(&world.ssd, move |range| {
                if !is_armed.load(Relaxed) || range.start < DATA_START {
                    return Ok(());
                }
                if !has_read.swap(true, Relaxed) {
                    let cached = held.lock().clone().unwrap();
                    drop(env.clone().spawn("reader", Box::new(move || drop(read(&cached, 8)))));
                    env.sleep_until(env.now() + Nanos(5_000_000));
                }
                Err(Error::new(ErrorKind::Io, "the page cannot be read"))
            })
        };
        let cached = attach(&world, world.rig.assemble(&[]), ssd, 16);
        *held.lock() = Some(cached.clone());
        let shape = cached.array().status().shape;
        let row = shape.row_sectors();
        (0..8).chain(row..shape.sectors()).for_each(|lba| read(&cached, lba).unwrap());
        (row..row + trims).for_each(|lba| cached.trim(Lba(lba), 1).unwrap());
        env.sleep_until(env.now() + Nanos(10_000_000));
        let before = cached.status().census.log_pages;
        cached.array().write_without_parity_update(Lba(4), &content(4, 2), true).unwrap();
        replace(&mut world.rig, cached.array(), shape.member_of(0, 0));
        is_armed.store(true, Relaxed);
        let _ = cached.rebuild(true, |_| true);
        is_armed.store(false, Relaxed);
        filled = cached.status().census.log_pages > before;
        *held.lock() = None;
    });
    filled
}

#[test]
fn a_row_that_is_given_up_waits_for_no_page_of_the_log() {
    let filled = (100..140).filter(|trims| gives_up_beside_a_reader(*trims)).count();
    assert!(filled > 0, "no page of the log was filled while a row was given up");
}

/// Numbers of the pages that a log holds.
fn sequences(world: &World) -> Vec<u64> {
    let mut sector = [0; SECTOR_BYTES];
    let pages = (1..DATA_START).filter_map(|at| {
        world.ssd.read(Lba(at), &mut sector).unwrap();
        sector.starts_with(b"VLMCLOGP").then(|| u64::from_le_bytes(sector[24..32].try_into().unwrap()))
    });
    pages.collect()
}

/// An array whose next read of a member takes a minute, once that is said.
fn slow_array(world: &World, is_slow: &Arc<AtomicBool>) -> Array {
    let env = &world.rig.env;
    let member = |disk: &Arc<RamDisk>| {
        let (is_slow, env) = (is_slow.clone(), env.clone());
        hooked(disk, move |_| {
            if is_slow.swap(false, Relaxed) {
                env.sleep_until(env.now() + Nanos(60_000_000_000));
            }
            Ok(())
        })
    };
    let members: Vec<Device> = world.rig.disks.iter().map(member).collect();
    assemble(&members, None, env.clone(), Options { lanes: 4, force: false }).unwrap()
}

/// With so many sectors of each member, and so many pages.
fn large(world: World, rows: u64, pages: u64) -> World {
    let rig = Rig::of_sectors(DATA_START + rows * 4 + 1, world.rig.kind, world.rig.env.clone(), 1);
    World { rig, ..world }.with_nvram().with_pages(pages)
}

/// Pages of the log that wait do not fill the NVRAM: reads wait before they come to that.
#[test]
fn reads_beside_one_that_takes_a_minute_do_not_cost_the_cache() {
    with_world(Kind::all()[2], Scheme::KddPaper, 1, |world| {
        let world = large(world, 400, 1280);
        let (env, is_slow) = (world.rig.env.clone(), Arc::new(AtomicBool::new(false)));
        let cached = attach(&world, slow_array(&world, &is_slow), world.rig.device(&world.ssd), 16);
        is_slow.store(true, Relaxed);
        let slow = {
            let cached = cached.clone();
            env.clone().spawn("slow", Box::new(move || drop(read(&cached, 3))))
        };
        env.sleep_until(env.now() + Nanos(1_000_000));
        let began = env.now();
        let mut reads = (0..20).flat_map(|_| 16..cached.info().sectors);
        let is_waiting = |lba| {
            read(&cached, lba).unwrap();
            assert_eq!(cached.status().detached, None);
            env.now().0 - began.0 > 50_000_000_000
        };
        assert!(reads.any(is_waiting), "the log did not wait");
        assert!(reads.take(10_000).all(|lba| read(&cached, lba).is_ok()));
        slow.join();
        assert_eq!(cached.status().detached, None);
    });
}

/// Nor is a page of the log waited for that nobody will write.
#[test]
fn requests_go_on_when_the_ssd_is_gone_and_the_nvram_is_not() {
    for is_lost in [false, true] {
        with_world(Kind::all()[2], Scheme::KddPaper, 1, |world| {
            let world = large(world, 1000, 32_000);
            let cached = attach(&world, world.rig.assemble(&[]), world.rig.device(&world.ssd), 16);
            let all = 0..cached.info().sectors;
            all.clone().for_each(|lba| read(&cached, lba).unwrap());
            match is_lost {
                true => world.ssd.lose(),
                false => assert!(cached.detach_by_force(|_| true).unwrap()),
            }
            all.for_each(|lba| cached.trim(Lba(lba), 1).unwrap());
            assert!(cached.status().detached.is_some());
        });
    }
}

/// One content takes a minute to come, while the log goes around.
#[test]
fn pages_of_the_log_come_in_their_order_however_long_one_takes() {
    for cut_while_slow in [true, false] {
        with_world(Kind::all()[2], Scheme::KddPaper, 1, |world| {
            let world = world.with_nvram().with_pages(2560);
            let (env, is_slow) = (world.rig.env.clone(), Arc::new(AtomicBool::new(false)));
            let cached = attach(&world, slow_array(&world, &is_slow), world.rig.device(&world.ssd), 64);
            let per_row = cached.array().status().shape.row_sectors();
            let hot = per_row..cached.info().sectors;
            let write = |id| hot.clone().try_for_each(|lba| cached.write(Lba(lba), &content(lba, id), false));
            // What stays clean is noted again when its page of the log is given up.
            (8..12).for_each(|lba| read(&cached, lba).unwrap());
            write(1).unwrap();
            env.sleep_until(env.now() + Nanos(50_000_000));
            is_slow.store(true, Relaxed);
            let beside = |run: Box<dyn FnOnce(&CachedArray) + Send>| {
                let cached = cached.clone();
                let task = env.clone().spawn("beside", Box::new(move || run(&cached)));
                env.sleep_until(env.now() + Nanos(1_000_000));
                task
            };
            let reader = beside(Box::new(|cached| drop(read(cached, 3))));
            let trimmer = beside(Box::new(|cached| drop(cached.trim(Lba(3), 1))));
            (2..15).for_each(|round| write(1 + round * 5).unwrap());
            if cut_while_slow {
                world.rig.power.cut_at(1);
                write(77).unwrap_err();
            }
            reader.join();
            trimmer.join();
            env.sleep_until(env.now() + Nanos(50_000_000));
            let logged = if cut_while_slow { Vec::new() } else { sequences(&world) };
            drop(Arc::into_inner(cached).unwrap());
            let mut world = world.after_cut(3);
            for opening in 0..2 {
                let cached = world.open(&[], options());
                let census = cached.status().census;
                assert_eq!(cached.status().emptied, None, "opening {opening}, {logged:?}");
                assert!(census.old > 300, "{census:?}");
                drop(cached);
                world = world.after_cut(4);
            }
            assert!(sequences(&world).iter().max() > Some(&16), "the log did not go around: {logged:?}");
            let (with, without) = logged_sums(&world);
            assert!(
                with > 0 && without == 0,
                "{with} clean pages have a checksum in the log, {without} have none"
            );
        });
    }
}
