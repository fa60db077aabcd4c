//! A disk that answers every call with an error from some moment on: it is out with the first call that finds it, it is
//! not asked again and again, and nothing is lost as long as parity makes up for it.

use crate::engine::world::World;
use crate::harness::{Kind, Oracle, Rig, Slow, content, filled};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::{CacheOptions, CachedArray};
use vellum_array::{Array, Device, Options, State, assemble};
use vellum_base::{BlockDevice, Kind as ErrorKind, Lba, Result, SECTOR_BYTES};
use vellum_sim::Sim;

/// What is in front of the disks.
enum Front {
    Bare(Array),
    Cached(Box<CachedArray>),
}

impl Front {
    fn array(&self) -> &Array {
        match self {
            Front::Bare(array) => array,
            Front::Cached(cached) => cached.array(),
        }
    }

    fn device(&self) -> &dyn BlockDevice {
        match self {
            Front::Bare(array) => array,
            Front::Cached(cached) => &**cached,
        }
    }

    fn close(self) -> Result<()> {
        match self {
            Front::Bare(array) => array.close(),
            Front::Cached(cached) => cached.close(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Cache {
    None,
    InMemory,
    WithNvram,
}

/// What finds that the disk is dead: something of every disk.
#[derive(Clone, Copy, Debug)]
enum Finds {
    Read,
    SmallWrites,
    LongWrite,
    Zeroes,
    Flush,
}

/// All sectors are written, and one in every row once more: its parity is put off if there is a cache.
fn filled_twice(device: &dyn BlockDevice, row_sectors: u64) -> Oracle {
    let mut oracle = filled(device);
    for round in [1000, 2000] {
        write_some(device, &mut oracle, row_sectors, round);
    }
    oracle
}

fn write_some(device: &dyn BlockDevice, oracle: &mut Oracle, row_sectors: u64, round: u32) {
    for lba in (0..device.info().sectors).step_by(row_sectors as usize) {
        device.write(Lba(lba), &content(round + lba as u32), false).unwrap();
        oracle.wrote(lba, round + lba as u32);
    }
}

fn find(finds: Finds, device: &dyn BlockDevice, oracle: &mut Oracle, row_sectors: u64) {
    let sectors = device.info().sectors;
    match finds {
        Finds::Read => {
            let mut row = vec![0; row_sectors as usize * SECTOR_BYTES];
            (0..sectors)
                .step_by(row_sectors as usize)
                .for_each(|lba| device.read(Lba(lba), &mut row).unwrap());
        }
        Finds::SmallWrites => write_some(device, oracle, row_sectors, 3000),
        Finds::LongWrite => {
            let data: Vec<u8> = (1..sectors as u32).flat_map(|l| content(l + 5000)).collect();
            device.write(Lba(1), &data, false).unwrap();
            (1..sectors).for_each(|l| oracle.wrote(l, l as u32 + 5000));
        }
        Finds::Zeroes => {
            device.write_zeroes(Lba(1), sectors - 3, false).unwrap();
            (1..sectors - 2).for_each(|l| oracle.wrote(l, 0));
        }
        Finds::Flush => device.flush().unwrap(),
    }
}

/// One after the other as many disks die as parity makes up for, and then one more.
fn die(kind: Kind, cache: Cache, finds: Finds) {
    let sim = Sim::new(3);
    let env: Arc<dyn vellum_base::Env> = sim.env();
    sim.run(|| {
        let context = format!("{kind:?}, {cache:?}, {finds:?}");
        let world = World::new(kind, Scheme::KddPaper, env.clone(), 3);
        let world = if let Cache::WithNvram = cache { world.with_nvram() } else { world };
        let disks = &world.rig.disks;
        let seen: Vec<Arc<Slow>> = disks.iter().map(|disk| Slow::over(disk.clone(), &env)).collect();
        let devices: Vec<Device> = seen.iter().map(|disk| disk.clone() as Device).collect();
        let options = Options::default();
        let array = assemble(&devices, world.rig.log_device().as_ref(), env.clone(), options).unwrap();
        let row_sectors = array.status().shape.row_sectors();
        let front = match cache {
            Cache::None => Front::Bare(array),
            _ => Front::Cached(Box::new(world.attach_to(array, CacheOptions::default()))),
        };
        let mut oracle = filled_twice(front.device(), row_sectors);
        let mut dead = Vec::new();
        for role in (0..kind.members).rev().take(kind.level.parities()) {
            disks[role].fail_from(1);
            let calls = |seen: &Slow| seen.reads.load(Relaxed) + seen.writes.load(Relaxed);
            let before = calls(&seen[role]);
            find(finds, front.device(), &mut oracle, row_sectors);
            let asked = calls(&seen[role]) - before;
            assert_eq!(front.array().status().members[role].state, State::Missing, "{context}");
            assert!(asked <= CALLS_MAX, "{context}: it was asked {asked} times");
            front.device().flush().unwrap();
            oracle.assert_reads_back(front.device(), &context);
            dead.push(role);
        }
        write_some(front.device(), &mut oracle, row_sectors, 7000);
        front.device().flush().unwrap();
        front.close().unwrap();
        let array = world.rig.assemble(&dead);
        oracle.assert_reads_back(&array, &format!("{context}, without {dead:?}"));
        disks[0].fail_from(1);
        let error = array.write_zeroes(Lba(0), array.info().sectors, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{context}: {error}");
        assert!(array.flush().is_err(), "{context}");
        let mut all = vec![0; array.info().sectors as usize * SECTOR_BYTES];
        assert!(array.read(Lba(0), &mut all).is_err(), "{context}");
    });
}

/// Calls that are on their way to a dead disk when the first one fails, and one that writes back what was not read.
const CALLS_MAX: u64 = 12;

#[test]
fn a_disk_that_answers_nothing_is_out_at_once_and_costs_nothing() {
    for kind in Kind::all() {
        for cache in [Cache::None, Cache::InMemory, Cache::WithNvram] {
            let all = [Finds::Read, Finds::SmallWrites, Finds::LongWrite, Finds::Zeroes, Finds::Flush];
            all.into_iter().for_each(|finds| die(kind, cache, finds));
        }
    }
}

/// It dies while the array is found again: it is not asked for every sector of its log.
#[test]
fn a_disk_that_dies_while_the_array_is_assembled_is_asked_for_little_and_costs_nothing() {
    let mut died_later = 0;
    for kind in Kind::all() {
        for nth in 1..30 {
            let sim = Sim::new(nth);
            let env: Arc<dyn vellum_base::Env> = sim.env();
            died_later += sim.run(|| {
                let (rig, role) = (Rig::new(kind, env.clone(), nth), nth as usize % kind.members);
                let array = rig.assemble(&[]);
                let mut oracle = filled_twice(&array, array.status().shape.row_sectors());
                array.flush().unwrap();
                drop(array);
                rig.disks[role].fail_from(nth);
                let dying = Slow::over(rig.disks[role].clone(), &env);
                let mut devices = rig.devices(&[role]);
                devices.push(dying.clone());
                let options = Options::default();
                let found = assemble(&devices, rig.log_device().as_ref(), env.clone(), options);
                let asked = dying.reads.load(Relaxed) + dying.writes.load(Relaxed);
                let context = format!("{kind:?}, {role} dies at call {nth}");
                assert!(asked <= nth + 40, "{context}: it was asked {asked} times");
                let Ok(array) = found else { return 0 }; // What it is was not read.
                oracle.assert_reads_back(&array, &context);
                array.write(Lba(0), &content(7), false).unwrap();
                array.flush().unwrap();
                assert_eq!(array.status().members[role].state, State::Missing, "{context}");
                1
            });
        }
    }
    assert!(died_later > 150, "only {died_later} died later than at its superblock");
}
