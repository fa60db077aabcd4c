//! What requests take on modelled hard disks: the paper's array, five SATA drives of 1 TB, look-ahead and write cache
//! off, chunks of 64 KiB (kdd.txt, section IV.B).

use crate::harness::{Kind, content, rng};
use rand::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_array::{Array, Device, Level, LogPlace, Options, assemble, create};
use vellum_base::{BlockDevice, Env, Lba, Nanos, Task};
use vellum_media::hdd::{Hdd, HddModel};
use vellum_media::ramdisk::{Power, RamDisk};
use vellum_sim::Sim;

const MEMBER_SECTORS: u64 = 200_000_000;

/// An array of drives; the log's device, if there is one, takes no time.
fn array_of_drives(level: Level, members: usize, log: LogPlace, env: &Arc<dyn Env>) -> Array {
    let power = Power::new(1);
    let plain: Vec<_> = (0..members).map(|_| RamDisk::new(MEMBER_SECTORS, &power)).collect();
    let log_device: Option<Device> = (log == LogPlace::Device).then(|| RamDisk::new(5000, &power) as Device);
    let kind = Kind { level, members, chunk_sectors: 16, log };
    let undelayed: Vec<Device> = plain.iter().map(|disk| disk.clone() as Device).collect();
    create(&undelayed, log_device.as_ref(), &**env, &kind.format()).unwrap();
    let drive = |disk: &Arc<RamDisk>| {
        Arc::new(Hdd::new(disk.clone(), env.clone(), HddModel::SATA_1TB_PLAIN).unwrap()) as Device
    };
    let drives: Vec<Device> = plain.iter().map(drive).collect();
    assemble(&drives, log_device.as_ref(), env.clone(), Options::default()).unwrap()
}

/// Mean time of a request in milliseconds, of `clients` at once that make 40 each.
fn mean_ms(
    level: Level,
    members: usize,
    log: LogPlace,
    clients: u64,
    request: impl Fn(&Array, u64) + Copy + Send + 'static,
) -> f64 {
    const REQUESTS: u64 = 40;
    let sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let array = Arc::new(array_of_drives(level, members, log, &env));
        let begin = env.now();
        let client = |seed| {
            let array = array.clone();
            let run = move || {
                let mut rng = rng(seed);
                let sectors = array.info().sectors;
                (0..REQUESTS).for_each(|_| request(&array, rng.random_range(0..sectors)));
            };
            env.clone().spawn("client", Box::new(run))
        };
        (0..clients).map(client).collect::<Vec<_>>().into_iter().for_each(Task::join);
        (env.now() - begin).0 as f64 / 1e6 / REQUESTS as f64
    })
}

fn read(array: &Array, lba: u64) {
    array.read(Lba(lba), &mut [0; 4096]).unwrap();
}

fn write(array: &Array, lba: u64) {
    array.write(Lba(lba), &content(1), false).unwrap();
}

fn put_off(array: &Array, lba: u64) {
    array.write_without_parity_update(Lba(lba), &content(1), false).unwrap();
}

/// The small-write problem, and what puts it off: ratios, with the figures printed.
#[test]
fn a_small_write_takes_a_turn_more_and_a_log_on_the_members_two_seeks_more() {
    let (five, six) = (Level::Raid5, Level::Raid6);
    let read = mean_ms(five, 5, LogPlace::Device, 1, read);
    let nvram = mean_ms(five, 5, LogPlace::Device, 1, write);
    let members = mean_ms(five, 5, LogPlace::Members, 1, write);
    let raid6 = mean_ms(six, 6, LogPlace::Device, 1, write);
    let put_off = mean_ms(five, 5, LogPlace::Device, 1, put_off);
    println!(
        "one client, 4 KiB at random, ms: read {read:.1}, write with the log in NVRAM {nvram:.1} (RAID-6 {raid6:.1}), on \
         members {members:.1}, without parity {put_off:.1}"
    );
    let turn = HddModel::SATA_1TB.turn().0 as f64 / 1e6;
    assert!(nvram > read + 0.8 * turn && nvram < 2.5 * read, "read, then a whole turn");
    assert!(members > nvram + turn, "to the ring and back");
    assert!((0.9 * nvram..1.5 * nvram).contains(&raid6));
}

#[test]
fn sixteen_clients_get_twice_the_writes_if_parity_is_put_off() {
    let writes = |request: fn(&Array, u64)| mean_ms(Level::Raid5, 5, LogPlace::Device, 16, request);
    let (with, without, reads) = (writes(write), writes(put_off), writes(read));
    println!(
        "16 clients, 4 KiB at random, ms: write {with:.1}, without parity {without:.1}, read {reads:.1}"
    );
    assert!(without < with, "{without} and {with}");
    assert!(reads < 0.5 * with);
}

#[test]
fn time_is_the_same_in_every_run() {
    let once = || Nanos((mean_ms(Level::Raid5, 5, LogPlace::Members, 4, write) * 1e6) as u64);
    assert_eq!(once(), once());
}

/// What four clients write in sequence, 1 MiB at a time, in MB/s. A record fits into a request four times.
fn sequential_rate(log: LogPlace) -> f64 {
    const REQUESTS: u64 = 160;
    let sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let array = Arc::new(array_of_drives(Level::Raid5, 5, log, &env));
        let next = Arc::new(AtomicU64::new(0));
        let begin = env.now();
        let client = |_| {
            let (array, next) = (array.clone(), next.clone());
            let run = move || {
                let mine = || Some(next.fetch_add(1, Relaxed)).filter(|request| *request < REQUESTS);
                std::iter::from_fn(mine)
                    .for_each(|i| array.write(Lba(i << 8), &[7; 1 << 20], false).unwrap());
            };
            env.clone().spawn("client", Box::new(run))
        };
        (0..4).map(client).collect::<Vec<_>>().into_iter().for_each(Task::join);
        (REQUESTS << 20) as f64 / 1e6 / (env.now() - begin).as_secs_f64()
    })
}

/// Each member gets one write for four rows, and its records in one: a write for each row would wait a turn of the
/// platter each time.
#[test]
fn rows_in_sequence_are_written_together() {
    let [nvram, members] = [LogPlace::Device, LogPlace::Members].map(sequential_rate);
    println!("4 clients, 1 MiB in sequence, MB/s: with the log in NVRAM {nvram:.0}, on members {members:.0}");
    assert!(nvram > 100.0 && members > 45.0, "{nvram} and {members}");
}
