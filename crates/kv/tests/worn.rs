//! Flash with blocks that are bad, fail or wear, and devices that say that they are full.

use crate::harness::{repair, small};
use crate::image;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use vellum_base::{BlockAddr, Cause, Env, Flash, Geometry, IoClass, Kind, Nanos, RealEnv};
use vellum_kv::media::{Intent, Parallelism, Schedule, Tables};
use vellum_kv::{FlashMedia, Map, Media, Options, Store};
use vellum_media::Timed;
use vellum_media::image::{Image, ImageParams};
use vellum_media::nand::{Fault, Nand, NandParams};
use vellum_media::timing::Timing;
use vellum_sim::Sim;

const FLUSH: Intent =
    Intent { cause: Cause::Flush, class: IoClass::UrgentCompaction, parallelism: Parallelism::Full };

fn geometry(channels: u32, blocks_per_die: u32) -> Geometry {
    Geometry {
        channels,
        dies_per_channel: 1,
        blocks_per_die,
        pages_per_block: 18,
        page_bytes: 4096,
        oob_bytes: 0,
    }
}

/// Formatted, with these blocks bad: die and superblock of each.
fn flash_without(geometry: Geometry, bad: impl IntoIterator<Item = (u32, u32)>) -> Arc<Nand> {
    let nand = Nand::ram(geometry, NandParams { nvram_bytes: 1 << 20, ..NandParams::default() }).unwrap();
    for (die, index) in bad {
        nand.arm(1, Fault::EraseFails);
        nand.erase(IoClass::Background, geometry.block_on(die, index), Nanos::ZERO).unwrap_err();
    }
    FlashMedia::format(&nand).unwrap();
    Arc::new(nand)
}

#[test]
fn flash_that_has_no_good_block_left_refuses_what_is_written_and_nothing_fails() {
    let flash = flash_without(geometry(4, 10), (0..4).flat_map(|die| (0..10).map(move |index| (die, index))));
    let media = FlashMedia::open(flash, RealEnv::new()).unwrap();
    assert_eq!(media.tables_free(), 0);
    let store = Store::open(media, RealEnv::new(), small()).unwrap();
    let refused = (0..5000u32).find_map(|n| store.put(&n.to_be_bytes(), &[1; 500]).err());
    assert_eq!(refused.unwrap().kind(), Kind::NoSpace);
    assert_eq!(store.get(&0u32.to_be_bytes()).unwrap(), Some(vec![1; 500]), "it is in the NVRAM");
}

/// Values may be an eighth of a whole superblock, and there is one that has no room for that.
#[test]
fn a_superblock_of_few_good_blocks_is_left_alone() {
    let flash = flash_without(geometry(4, 60), (0..3).map(|die| (die, 7)));
    let open = || {
        let media = FlashMedia::open(flash.clone(), RealEnv::new()).unwrap();
        Store::open(media, RealEnv::new(), small()).unwrap()
    };
    let store = open();
    for round in 0..12 {
        for n in 0..10u32 {
            store.put(&n.to_be_bytes(), &[round; 30 << 10]).unwrap();
            store.flush().unwrap();
        }
        store.compact().unwrap();
    }
    store.close().unwrap();
    let store = open();
    assert!((0..10u32).all(|n| store.get(&n.to_be_bytes()).unwrap().is_some_and(|value| value[0] == 11)));
    assert_eq!(flash.report(flash.geometry().block_on(3, 7)).pages_written, 0);
}

#[test]
fn superblocks_with_bad_blocks_wear_as_others_do() {
    let geometry = geometry(8, 20);
    let flash = flash_without(geometry, (0..3).map(|die| (die, 3)));
    let media = FlashMedia::open(flash.clone(), RealEnv::new()).unwrap();
    for number in 1..=600 {
        let mut table = media.create_table(number, FLUSH).unwrap();
        table.append(&[7; 64 << 10]).unwrap();
        table.finish(0).unwrap();
        media.erase_table(number).unwrap();
    }
    let erases =
        (0..geometry.blocks_per_die).map(|index| flash.report(geometry.block_on(5, index)).erase_count);
    let (least, most) = (erases.clone().min().unwrap(), erases.max().unwrap());
    assert!(most - least <= 3, "{least} to {most} erases");
}

/// What is said of one erase block is damaged: it counts as bad, and full.
#[test]
fn damage_to_what_is_said_of_one_block_costs_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let params = ImageParams { nvram_bytes: 2 << 20, ..ImageParams::new(geometry(8, 60)) };
    FlashMedia::format(&Image::create(&path, &params).unwrap()).unwrap();
    let env: Arc<dyn Env> = RealEnv::new();
    let options = || Options { memtable_bytes: 4 << 20, ..small() };
    let open = || -> Arc<dyn Media> {
        FlashMedia::open(Arc::new(Image::open(&path, false).unwrap()), env.clone()).unwrap()
    };
    let key = |n: u32| n.to_be_bytes();
    let store = Store::open(open(), env.clone(), options()).unwrap();
    (0..300).for_each(|n| store.put(&key(n), &[n as u8; 1000]).unwrap());
    store.flush().unwrap();
    store.close().unwrap();
    let written = |flash: &dyn Flash| {
        let blocks = (0..flash.geometry().blocks()).map(BlockAddr);
        blocks.filter(|block| flash.report(*block).pages_written > 0).nth(3).unwrap()
    };
    let block = written(&Image::open(&path, false).unwrap());
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let (mut byte, at) = ([0], 16384 + (2 << 20) + u64::from(block.0) * 16);
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    repair(&open(), &env, &options()).unwrap();
    let store = Store::open(open(), env.clone(), options()).unwrap();
    let left = (0..300).filter(|n| store.get(&key(*n)).unwrap().is_some()).count();
    assert!(left > 200, "{left} of 300 are left");
}

/// With seven of twenty free no erase is as urgent as a client's read.
#[test]
fn erases_are_urgent_while_free_superblocks_are_few_and_no_longer() {
    let geometry = Geometry { pages_per_block: 8, ..geometry(1, 20) };
    let nand = flash_without(geometry, []);
    let sim = Sim::new(1);
    let env = sim.env();
    let timing = Timing {
        read: Nanos::from_us(50),
        program: Nanos::from_us(600),
        erase: Nanos::from_ms(3),
        suspend: Nanos::from_us(20),
        channel_bytes_per_second: 400_000_000,
    };
    let flash = Arc::new(Timed::new(nand.clone(), timing, env.clone()));
    let free = || (0..20).filter(|at| nand.report(geometry.block_on(0, *at)).pages_written == 0).count();
    sim.run(|| {
        let media = FlashMedia::open_scheduled(flash.clone(), env.clone(), Schedule::Priority).unwrap();
        for number in 1..=17 {
            let mut table = media.create_table(number, FLUSH).unwrap();
            table.append(&[7; 4096]).unwrap();
            table.finish(0).unwrap();
        }
        let reader = media.open_table(17).unwrap();
        (1..=12).for_each(|number| media.erase_table(number).unwrap());
        while free() < 7 {
            env.sleep_until(env.now() + Nanos::from_us(100));
        }
        let erased = nand.counters().blocks_erased;
        env.sleep_until(reader.read(0, &mut [0; 4096], IoClass::Foreground).unwrap());
        let before = nand.counters().blocks_erased - erased;
        assert!(before <= 1, "{before} erases went before a client's read");
    });
}

/// A sync that finds the host full has perhaps changed something: it ends the store, and is no refusal.
#[test]
fn a_sync_that_fails_for_room_is_no_refusal() {
    let mut failed = 0;
    for nth in 1.. {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        image::make(&path, 1 << 20);
        let env: Arc<dyn Env> = RealEnv::new();
        let flash = Arc::new(Image::open(&path, false).unwrap());
        let media = FlashMedia::open(flash.clone(), env.clone()).unwrap();
        let store = Store::open(media, env.clone(), small()).unwrap();
        store.put(b"a", b"1").unwrap();
        store.flush().unwrap();
        let mut ingest = store.ingest().unwrap();
        (0..20u32).for_each(|n| ingest.put(&n.to_be_bytes(), &[1; 1000]).unwrap());
        flash.inner().arm(nth, Fault::Host { errno: 28 });
        let done = ingest.finish();
        flash.inner().disarm();
        drop((store, flash));
        let store = Store::open(image::media(&path, false).unwrap(), env, small()).unwrap();
        let is_there = store.get(&3u32.to_be_bytes()).unwrap().is_some();
        match done {
            Ok(_) => {
                assert!(is_there);
                break;
            }
            Err(error) if error.kind() == Kind::NoSpace => assert!(!is_there, "call {nth}: {error}"),
            Err(_) => failed += 1,
        }
    }
    assert!(failed > 0);
}
