//! Power cuts: at every operation of short workloads, at random ones of long ones, and again during recovery.
//!
//! The promise: what was flushed survives; a sector written since holds one of its versions, never a mix,
//! never another sector's; and the ledger equals the device afterwards.

use crate::harness::{Shape, assert_sound, content};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::{BlockDevice, Flash, Kind, Lba, SECTOR_BYTES, Scrambling};
use vellum_disk::Disk;
use vellum_media::coded::{Coded, Coding, Rate};
use vellum_media::nand::Nand;

/// Versions that each sector may have after a crash: the last flushed one first.
struct Oracle {
    versions: Vec<Vec<u32>>,
}

impl Oracle {
    fn new(sectors: u64) -> Oracle {
        Oracle { versions: vec![vec![0]; sectors as usize] }
    }
    fn wrote(&mut self, lba: u64, id: u32) {
        self.versions[lba as usize].push(id);
    }
    fn flushed(&mut self) {
        for v in &mut self.versions {
            v.drain(..v.len() - 1);
        }
    }
    /// After recovery the version on the device is the only one from now on.
    fn settle(&mut self, disk: &Disk, context: &str) {
        let mut all = vec![0; self.versions.len() * SECTOR_BYTES];
        disk.read(Lba(0), &mut all).unwrap_or_else(|e| panic!("{context}: {e}"));
        for (l, versions) in self.versions.iter_mut().enumerate() {
            let found = &all[l * SECTOR_BYTES..][..SECTOR_BYTES];
            let holds = versions.iter().rev().find(|id| content(**id) == *found).copied();
            let id = holds.unwrap_or_else(|| panic!("{context}: sector {l} holds none of {versions:?}"));
            *versions = vec![id];
        }
    }
}

/// One random request. `Err` if the power was cut.
fn step(disk: &Disk, oracle: &mut Oracle, rng: &mut SmallRng, shape: Shape) -> vellum_base::Result<()> {
    let sectors = shape.sectors();
    let id = rng.random_range(1..5000u32);
    let lba = rng.random_range(24..sectors.min(300));
    match rng.random_range(0..20) {
        0..8 => {
            oracle.wrote(lba, id);
            disk.write(Lba(lba), &content(id), false)
        }
        8..13 => {
            let journal = rng.random_range(0..24);
            for at in [journal, lba] {
                oracle.wrote(at, id);
                disk.write(Lba(at), &content(id), false)?;
            }
            Ok(())
        }
        13 => {
            let count = rng.random_range(1..30).min(sectors - lba);
            (lba..lba + count).for_each(|l| oracle.wrote(l, 0));
            if id % 2 == 0 { disk.trim(Lba(lba), count) } else { disk.write_zeroes(Lba(lba), count, false) }
        }
        14..16 => {
            let ids: Vec<u32> = (0..8).map(|i| id + i).collect();
            ids.iter().zip(lba..).for_each(|(id, l)| {
                if l < sectors {
                    oracle.wrote(l, *id)
                }
            });
            let room = (sectors - lba).min(8) as usize;
            let data: Vec<u8> = ids[..room].iter().flat_map(|id| content(*id)).collect();
            disk.write(Lba(lba), &data, false)
        }
        17 => {
            let from = rng.random_range(0..sectors.min(300));
            let count = rng.random_range(1..30).min(from.abs_diff(lba)).min(sectors - lba.max(from));
            for i in 0..count {
                let now = oracle.versions[(from + i) as usize].last().copied().unwrap_or_default();
                oracle.wrote(lba + i, now);
            }
            disk.remap(Lba(from), Lba(lba), count).map(drop)
        }
        16 if shape.dedup.uses_parity() => {
            let all = id % 16 == 0;
            disk.refill_some(id % 64)?;
            if all { disk.dedup_all(|_, _| {}).map(drop) } else { disk.dedup_some(id % 32).map(drop) }
        }
        _ => {
            disk.flush()?;
            oracle.flushed();
            Ok(())
        }
    }
}

/// Runs until the power is cut or the steps are done. True if it was cut.
fn run(disk: &Disk, oracle: &mut Oracle, rng: &mut SmallRng, steps: usize, shape: Shape) -> bool {
    for _ in 0..steps {
        match step(disk, oracle, rng, shape) {
            Ok(()) => {}
            Err(e) if e.kind() == Kind::PowerLost => return true,
            Err(e) => panic!("{e}"),
        }
    }
    false
}

type Device = Coded<Nand>;

/// Every shape with uncoded pages; a third of them with coded pages, too, each in a different way.
fn devices() -> Vec<(Shape, Option<Coding>)> {
    let codings = [
        Coding::PAPER,
        Coding { codeword_bytes: 4096, rate: Rate::R16_17, scrambling: Scrambling::BySector },
        Coding { scrambling: Scrambling::ByPage { period: 4 }, ..Coding::PAPER },
    ];
    let plain = Shape::all().into_iter().map(|shape| (shape, None));
    let coded = Shape::all().into_iter().skip(1).step_by(3).zip(codings.into_iter().cycle());
    plain.chain(coded.map(|(shape, coding)| (shape, Some(coding)))).collect()
}

fn fork(device: &Device) -> Arc<Device> {
    let nand = device.inner().fork().unwrap();
    Arc::new(match device.coding() {
        None => Coded::plain(nand),
        Some(coding) => Coded::new(nand, device.geometry().oob_bytes, *coding).unwrap(),
    })
}

/// Opens after a crash, possibly with another cut during that, until it succeeds.
fn reopen(shape: Shape, flash: &Arc<Device>, mut cut_at: Option<u64>, context: &str) -> Disk {
    loop {
        flash.inner().power_on();
        if let Some(nth) = cut_at.take() {
            flash.inner().power_cut_at(nth);
        }
        match shape.open(flash) {
            Ok(disk) if !flash.inner().is_off() => {
                flash.inner().disarm();
                return disk;
            }
            Ok(_) => {}
            Err(e) if e.kind() == Kind::PowerLost => {}
            Err(e) => panic!("{context}: {e}"),
        }
    }
}

#[test]
fn a_cut_at_every_step_of_a_short_workload_loses_nothing() {
    for (shape, coding) in devices() {
        let flash = Arc::new(shape.coded_flash(5, coding));
        shape.format(&flash);
        for nth in 1.. {
            let flash = fork(&flash);
            let disk = shape.open(&flash).unwrap();
            let mut oracle = Oracle::new(shape.sectors());
            let mut rng = SmallRng::seed_from_u64(77);
            flash.inner().power_cut_at(nth);
            let cut = run(&disk, &mut oracle, &mut rng, 120, shape);
            drop(disk);
            let context = format!("{shape:?}, {coding:?}, cut at operation {nth}");
            let disk = reopen(shape, &flash, None, &context);
            oracle.settle(&disk, &context);
            assert_sound(&disk);
            if !cut {
                assert!(nth > 15, "{context}: the workload must reach the flash");
                break;
            }
        }
    }
}

/// One long history with several crashes, some during recovery.
fn long_life(shape: Shape, coding: Option<Coding>, seed: u64) {
    let flash = Arc::new(shape.coded_flash(seed, coding));
    shape.format(&flash);
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut oracle = Oracle::new(shape.sectors());
    let mut disk = shape.open(&flash).unwrap();
    for life in 0..3 {
        flash.inner().power_cut_at(rng.random_range(1..400));
        run(&disk, &mut oracle, &mut rng, 400, shape);
        drop(disk);
        let context = format!(
            "{shape:?}, {coding:?}, life {life}; replay with VELLUM_SEED={seed} cargo test -p vellum-disk --test main long_lives"
        );
        let again = rng.random_bool(0.5).then(|| rng.random_range(1..6));
        disk = reopen(shape, &flash, again, &context);
        oracle.settle(&disk, &context);
        assert_sound(&disk);
    }
}

#[test]
fn long_lives_with_random_cuts_lose_nothing() {
    let devices = devices();
    vellum_sim::check_on_all_cores(0..10_000, |seed| {
        let (shape, coding) = devices[seed as usize % devices.len()];
        long_life(shape, coding, seed);
    });
}
