//! The calls on members that requests cost, as decision 0022 counts them.

use crate::harness::{Kind, Slow, content};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vellum_array::{Array, Device, Level, LogPlace, Options, assemble, create};
use vellum_base::{BlockDevice, Env, Lba};
use vellum_media::RamDisk;
use vellum_media::ramdisk::Power;
use vellum_sim::Sim;

/// Reads and writes of members while `request` runs.
fn counted(level: Level, members: usize, log: LogPlace, request: impl FnOnce(&Array)) -> (u64, u64) {
    let sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let power = Power::new(1);
        let slow: Vec<_> = (0..members).map(|_| Slow::over(RamDisk::new(2000, &power), &env)).collect();
        let devices: Vec<Device> = slow.iter().map(|d| d.clone() as Device).collect();
        let log_device: Option<Device> =
            (log == LogPlace::Device).then(|| RamDisk::new(2000, &power) as Device);
        let kind = Kind { level, members, chunk_sectors: 16, log };
        create(&devices, log_device.as_ref(), &*env, &kind.format()).unwrap();
        let array = assemble(&devices, log_device.as_ref(), env.clone(), Options::default()).unwrap();
        let now = || {
            let sum = |f: fn(&Slow) -> u64| slow.iter().map(|d| f(d)).sum::<u64>();
            (sum(|d| d.reads.load(Relaxed)), sum(|d| d.writes.load(Relaxed)))
        };
        let before = now();
        request(&array);
        let after = now();
        (after.0 - before.0, after.1 - before.1)
    })
}

fn small_write(array: &Array) {
    array.write(Lba(100), &content(1), false).unwrap();
}

#[test]
fn a_small_write_costs_what_the_decision_says() {
    assert_eq!(counted(Level::Raid5, 5, LogPlace::Device, small_write), (2, 2));
    assert_eq!(counted(Level::Raid5, 5, LogPlace::Members, small_write), (2, 3));
    assert_eq!(counted(Level::Raid6, 8, LogPlace::Device, small_write), (3, 3));
    assert_eq!(counted(Level::Raid6, 8, LogPlace::Members, small_write), (3, 5));
    // Without a log the first write into a region marks it on all members.
    assert_eq!(counted(Level::Raid5, 5, LogPlace::None, small_write), (2, 2 + 5));
}

#[test]
fn a_whole_row_reads_nothing() {
    let row = |array: &Array| {
        let data: Vec<u8> = (1..=64).flat_map(content).collect();
        array.write(Lba(64), &data, false).unwrap();
    };
    assert_eq!(counted(Level::Raid5, 5, LogPlace::Members, row), (0, 6));
    assert_eq!(counted(Level::Raid6, 6, LogPlace::Members, row), (0, 8));
}

#[test]
fn rows_that_are_written_together_are_one_write_on_each_member_and_their_records_too() {
    let three_rows = |array: &Array| {
        let per_row = array.status().shape.row_sectors();
        let data: Vec<u8> = (1..=3 * per_row as u32).flat_map(content).collect();
        array.write(Lba(0), &data, false).unwrap();
    };
    assert_eq!(counted(Level::Raid5, 5, LogPlace::Members, three_rows), (0, 3 + 5));
    // P and Q of three rows are on four members.
    assert_eq!(counted(Level::Raid6, 6, LogPlace::Members, three_rows), (0, 4 + 6));
}

#[test]
fn a_write_over_two_chunks_reads_each_member_once_a_band() {
    // Sectors 8..24 of the row: the end of chunk 0, the beginning of chunk 1; they do not overlap.
    let two = |array: &Array| {
        let data: Vec<u8> = (1..=16).flat_map(content).collect();
        array.write(Lba(8), &data, false).unwrap();
    };
    assert_eq!(counted(Level::Raid5, 5, LogPlace::Device, two), (4, 3));
}

#[test]
fn parity_put_off_costs_one_write_and_its_update_a_read_and_a_write_for_any_number_of_sectors() {
    let update = |array: &Array| {
        let delta = content(1);
        let deltas: Vec<_> =
            [100, 116, 84].map(|l| vellum_array::Delta { lba: Lba(l), bytes: &delta }).into();
        array.parity_update(1, &deltas).unwrap();
    };
    let put_off = |array: &Array| {
        for lba in [100, 116, 84] {
            array.write_without_parity_update(Lba(lba), &content(1), false).unwrap();
        }
    };
    let both = |array: &Array| {
        put_off(array);
        update(array);
    };
    assert_eq!(counted(Level::Raid5, 5, LogPlace::Device, put_off), (0, 3));
    assert_eq!(counted(Level::Raid5, 5, LogPlace::Device, both), (1, 3 + 1));
    assert_eq!(counted(Level::Raid6, 6, LogPlace::Device, both), (2, 3 + 2));
    // Without a log device the row is marked, once, on all members.
    assert_eq!(counted(Level::Raid5, 5, LogPlace::Members, put_off), (0, 3 + 5));
}

#[test]
fn rows_that_are_trimmed_cost_a_record_of_one_sector_each_and_no_data() {
    let sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let power = Power::new(1);
        let slow: Vec<_> = (0..4).map(|_| Slow::over(RamDisk::new(2000, &power), &env)).collect();
        let devices: Vec<Device> = slow.iter().map(|d| d.clone() as Device).collect();
        let kind = Kind { level: Level::Raid5, members: 4, chunk_sectors: 16, log: LogPlace::Members };
        create(&devices, None, &*env, &kind.format()).unwrap();
        let array = assemble(&devices, None, env.clone(), Options::default()).unwrap();
        let shape = array.status().shape;
        array.write(Lba(0), &vec![7; 10 * 4096], true).unwrap();
        let written = || slow.iter().map(|d| d.written.load(Relaxed)).sum::<u64>();
        let before = written();
        array.trim(Lba(0), shape.sectors()).unwrap();
        let (trimmed, heads) = (written() - before, 4 * array.status().log_retirements);
        assert!((shape.rows..=shape.rows + heads).contains(&trimmed), "{trimmed} for {} rows", shape.rows);
        let mut out = vec![1; 10 * 4096];
        array.read(Lba(0), &mut out).unwrap();
        assert!(out == vec![0; 10 * 4096]);
    });
}

#[test]
fn an_array_trims_if_every_member_that_counts_does() {
    let sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let power = Power::new(1);
        let disk = || Slow::over(RamDisk::new(2000, &power), &env);
        let slow: Vec<_> = (0..4).map(|_| disk()).collect();
        let devices: Vec<Device> = slow.iter().map(|d| d.clone() as Device).collect();
        let kind = Kind { level: Level::Raid5, members: 4, chunk_sectors: 16, log: LogPlace::Members };
        create(&devices, None, &*env, &kind.format()).unwrap();
        let array = assemble(&devices, None, env.clone(), Options::default()).unwrap();
        let trims = || array.info().trims;
        assert!(trims());
        // One that does not takes a member's place: what is written meanwhile goes to both.
        let hard = disk();
        hard.trims.store(false, Relaxed);
        assert!(array.replace(2, hard.clone(), false, |_| !trims()).unwrap(), "it was so all the time");
        assert!(!trims());
        array.trim(Lba(0), array.info().sectors).unwrap();
        // Lost, it is not asked any more; another that does comes in its place.
        array.fail(2).unwrap();
        assert!(trims());
        array.remove(2).unwrap();
        array.add(disk(), false).unwrap();
        array.rebuild(false, |_| true).unwrap();
        assert!(trims());
    });
}
