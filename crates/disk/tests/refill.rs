//! A disk that was closed knows its contents again, once it had idle time.

use crate::ecc::forged;
use crate::harness::{Sector, assert_sound, read, tiny};
use std::sync::Arc;
use vellum_base::{Avoided, BlockDevice, Cause, Flash, Lba, RealEnv, SECTOR_BYTES, Scrambling};
use vellum_codes::pattern::Pattern;
use vellum_disk::{DedupMode, DedupWhen, Disk, Format, Options};
use vellum_media::coded::{Coded, Coding};
use vellum_media::nand::{Nand, NandParams};

type Device = Arc<Coded<Nand>>;

const RUN: u64 = 400;

fn unique(id: u64) -> Sector {
    let mut sector = [0; SECTOR_BYTES];
    Pattern::unique(id).fill(&mut sector);
    sector
}

fn put(disk: &Disk, lba: u64, id: u64) {
    disk.write(Lba(lba), &unique(id), false).unwrap();
}

fn device(scrambling: Option<Scrambling>) -> Device {
    let geometry = tiny(16384);
    let nand = |geometry| Nand::ram(geometry, NandParams::default()).unwrap();
    Arc::new(match scrambling {
        None => Coded::plain(nand(geometry)),
        Some(scrambling) => {
            let coding = Coding { scrambling, ..Coding::PAPER };
            Coded::new(nand(coding.geometry_below(&geometry).unwrap()), geometry.oob_bytes, coding).unwrap()
        }
    })
}

fn open(flash: &Device, dedup_table_share: f64) -> Disk {
    let options = Options { dedup_when: DedupWhen::Inline, dedup_table_share, ..Options::default() };
    Disk::open(flash.clone(), RealEnv::new(), options).unwrap()
}

/// A disk with a run of contents and a copy of its first half, closed; with garbage collected in between.
fn filled(scrambling: Option<Scrambling>, dedup: DedupMode) -> Device {
    let flash = device(scrambling);
    Disk::format(flash.clone(), RealEnv::new(), &Format { dedup, ..Format::new(1500) }).unwrap();
    let disk = open(&flash, 1.0);
    (0..RUN).for_each(|i| put(&disk, i, i));
    (0..RUN / 2).for_each(|i| put(&disk, 500 + i, i));
    (0..5000).for_each(|i| put(&disk, 1400 + i % 97, 10_000 + i));
    disk.close().unwrap();
    flash
}

/// Number of sectors of a copy of the run that needed no program.
fn found(disk: &Disk) -> u64 {
    let before = disk.ledger();
    (0..RUN).for_each(|i| put(disk, 900 + i, i));
    disk.flush().unwrap();
    (0..RUN).for_each(|i| assert!(read(disk, 900 + i) == unique(i)));
    disk.ledger().since(&before).avoided_by(Avoided::Duplicate) / SECTOR_BYTES as u64
}

#[test]
fn what_was_stored_before_is_found_after_an_idle_while() {
    let kinds =
        [None, Some(Scrambling::Off), Some(Scrambling::BySector), Some(Scrambling::ByPage { period: 8 })];
    for scrambling in kinds {
        let flash = filled(scrambling, DedupMode::Ecc);
        let fresh = open(&flash, 0.15);
        assert!(found(&fresh) < RUN / 10, "nothing is known at first");
        assert_sound(&fresh);
        drop(fresh);

        let flash = filled(scrambling, DedupMode::Ecc);
        let disk = open(&flash, 0.15);
        let programmed = flash.counters().pages_programmed;
        let (mut left, mut steps) = (u64::MAX, 0);
        while left > 0 {
            let now = disk.refill_some(16).unwrap();
            assert!(now < left, "{now}: every step gets on");
            (left, steps) = (now, steps + 1);
        }
        assert!(steps > 2 && disk.stat().learned_sectors >= RUN, "{steps}");
        assert_eq!(flash.counters().pages_programmed, programmed, "nothing is programmed");
        let found = found(&disk);
        assert!(found > RUN * 9 / 10, "{scrambling:?}: {found}");
        assert_sound(&disk);
    }
}

#[test]
fn what_was_written_meanwhile_keeps_its_entry_and_what_was_trimmed_gets_none() {
    let flash = filled(Some(Scrambling::BySector), DedupMode::Ecc);
    let disk = open(&flash, 1.0);
    disk.refill_some(3).unwrap();
    (0..100).for_each(|i| put(&disk, i, 50_000 + i));
    disk.trim(Lba(100), 50).unwrap();
    disk.trim(Lba(600), 50).unwrap();
    let before = disk.stat().learned_sectors;
    while disk.refill_some(5).unwrap() > 0 {}
    assert!(disk.stat().learned_sectors > before);
    (0..100).for_each(|i| put(&disk, 900 + i, 50_000 + i));
    (0..50).for_each(|i| put(&disk, 1100 + i, 100 + i));
    disk.flush().unwrap();
    let ledger = disk.ledger();
    let avoided = ledger.avoided_by(Avoided::Duplicate) / SECTOR_BYTES as u64;
    assert!((RUN / 2 + 95..=RUN / 2 + 100).contains(&avoided), "{avoided}");
    assert!(ledger.programmed_by(Cause::HostData) > 0);
    (0..100).for_each(|i| assert!(read(&disk, 900 + i) == unique(50_000 + i)));
    (0..50).for_each(|i| assert!(read(&disk, 1100 + i) == unique(100 + i)));
    assert_sound(&disk);
}

#[test]
fn what_waited_when_the_disk_was_closed_is_looked_at_after_all() {
    for scrambling in [None, Some(Scrambling::BySector)] {
        let flash = device(scrambling);
        let format = Format { dedup: DedupMode::Ecc, ..Format::new(1500) };
        Disk::format(flash.clone(), RealEnv::new(), &format).unwrap();
        let open = |dedup_when| {
            let options = Options { dedup_when, ..Options::default() };
            Disk::open(flash.clone(), RealEnv::new(), options).unwrap()
        };
        let disk = open(DedupWhen::Offline);
        (0..600).for_each(|i| put(&disk, i, i % 200));
        assert_eq!(disk.stat().dedup_waiting_sectors, 600);
        disk.close().unwrap();
        drop(disk);

        let disk = open(DedupWhen::Inline);
        while disk.refill_some(16).unwrap() > 0 {}
        assert_eq!(disk.stat().dedup_waiting_sectors, 0, "who always looks marks nothing");
        drop(disk);
        let disk = open(DedupWhen::Both);
        while disk.refill_some(16).unwrap() > 0 {
            while disk.dedup_some(16).unwrap() > 0 {}
        }
        while disk.dedup_some(16).unwrap() > 0 {}
        let merged = disk.ledger().avoided_by(Avoided::DuplicateOffline) / SECTOR_BYTES as u64;
        assert!(merged > 360, "{merged} of 400");
        disk.flush().unwrap();
        (0..600).for_each(|i| assert!(read(&disk, i) == unique(i % 200)));
        assert_sound(&disk);
    }
}

#[test]
fn forged_contents_cost_a_few_reads_each_and_are_never_shared() {
    let flash = device(Some(Scrambling::BySector));
    Disk::format(flash.clone(), RealEnv::new(), &Format { dedup: DedupMode::Ecc, ..Format::new(1500) })
        .unwrap();
    let (forged, disk) = (forged(200), open(&flash, 1.0));
    (0..).zip(&forged).for_each(|(lba, sector)| disk.write(Lba(lba), sector, false).unwrap());
    disk.close().unwrap();
    drop(disk);
    let options = Options { dedup_when: DedupWhen::Both, ..Options::default() };
    let disk = Disk::open(flash.clone(), RealEnv::new(), options).unwrap();
    let before = flash.counters().pages_read;
    while disk.refill_some(16).unwrap() > 0 || disk.dedup_some(16).unwrap() > 0 {}
    let reads = flash.counters().pages_read - before;
    assert!(reads <= 8 * 200, "{reads} reads");
    (0..).zip(&forged).for_each(|(lba, sector)| assert!(read(&disk, lba) == *sector));
    assert_eq!(disk.ledger().avoided_by(Avoided::DuplicateOffline), 0);
    assert_sound(&disk);
}

#[test]
fn other_modes_have_nothing_to_fill() {
    for dedup in [DedupMode::None, DedupMode::Journal, DedupMode::EccPaper] {
        let flash = filled(Some(Scrambling::Off), dedup);
        let disk = open(&flash, 0.15);
        assert_eq!((disk.refill_some(100).unwrap(), disk.stat().learned_sectors), (0, 0), "{dedup:?}");
    }
}
