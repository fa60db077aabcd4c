//! Detecting, sharing and releasing duplicates; named regressions for the traps of write-once journaling.

use crate::harness::{Sector, Shape, assert_sound, content, read, tiny};
use std::process::Command;
use std::sync::Arc;
use vellum_base::{Avoided, BlockDevice, Cause, Flash, Geometry, Lba, RealEnv, SECTOR_BYTES};
use vellum_codes::HashKind;
use vellum_codes::pattern::Pattern;
use vellum_disk::discover::{FsKind, JournalState};
use vellum_disk::{DedupMode, Disk, Format, Options};
use vellum_media::nand::{Nand, NandParams};

/// A sector of the journal (the host names sectors 0 to 23), and homes.
const SLOT: u64 = 3;
const HOME: u64 = 100;

fn unique(id: u64) -> Sector {
    let mut sector = [0; SECTOR_BYTES];
    Pattern::unique(id).fill(&mut sector);
    sector
}

fn shape(dedup: DedupMode, page_bytes: u32) -> Shape {
    Shape { page_bytes, nvram: false, dedup }
}

fn fresh(dedup: DedupMode, page_bytes: u32) -> (Shape, Arc<Nand>, Disk) {
    let shape = shape(dedup, page_bytes);
    let flash = shape.flash(1);
    shape.format(&flash);
    let disk = shape.open(&flash).unwrap();
    (shape, flash, disk)
}

fn put(disk: &Disk, lba: u64, data: &Sector) {
    disk.write(Lba(lba), data, false).unwrap();
}

/// Sectors that `what` avoided for `reason`, and host sectors it programmed.
fn cost(disk: &Disk, reason: Avoided, what: impl FnOnce()) -> (u64, u64) {
    let before = disk.ledger();
    what();
    disk.flush().unwrap();
    let spent = disk.ledger().since(&before);
    let sector = SECTOR_BYTES as u64;
    (spent.avoided_by(reason) / sector, spent.programmed_by(Cause::HostData) / sector)
}

#[test]
fn a_home_write_of_a_journaled_sector_programs_nothing() {
    for page_bytes in [4096, 16384] {
        let (_, flash, disk) = fresh(DedupMode::Journal, page_bytes);
        put(&disk, SLOT, &unique(1));
        disk.flush().unwrap();
        let before = flash.counters().pages_programmed;
        put(&disk, HOME, &unique(1));
        assert_eq!(flash.counters().pages_programmed, before);
        assert_eq!(disk.ledger().avoided_by(Avoided::JournalCopy), SECTOR_BYTES as u64);
        assert!(read(&disk, HOME) == unique(1));
        assert_sound(&disk);
    }
}

#[test]
fn t10_equal_content_in_many_slots_is_found_while_any_is_left() {
    let (_, _, disk) = fresh(DedupMode::Journal, 4096);
    (3..8).for_each(|slot| put(&disk, slot, &unique(1)));
    for slot in 3..7 {
        put(&disk, slot, &unique(10 + slot));
        let home = HOME + slot;
        assert_eq!(cost(&disk, Avoided::JournalCopy, || put(&disk, home, &unique(1))), (1, 0));
    }
    put(&disk, 7, &unique(20));
    assert_eq!(cost(&disk, Avoided::JournalCopy, || put(&disk, HOME, &unique(1))), (0, 1));
    (3..7).for_each(|slot| assert!(read(&disk, HOME + slot) == unique(1)));
}

#[test]
fn t16_a_slot_overwritten_trimmed_or_zeroed_is_forgotten() {
    let clears: [&dyn Fn(&Disk); 3] =
        [&|disk| put(disk, SLOT, &unique(2)), &|disk| disk.trim(Lba(SLOT), 1).unwrap(), &|disk| {
            disk.write_zeroes(Lba(SLOT), 1, false).unwrap()
        }];
    for clear in clears {
        let (shape, flash, disk) = fresh(DedupMode::Journal, 4096);
        put(&disk, SLOT, &unique(1));
        put(&disk, HOME, &unique(1));
        clear(&disk);
        assert_eq!(cost(&disk, Avoided::JournalCopy, || put(&disk, HOME + 1, &unique(1))), (0, 1));
        assert!(read(&disk, HOME) == unique(1), "the page stays while a home needs it");
        drop(disk);
        let disk = shape.open(&flash).unwrap();
        assert!(read(&disk, HOME) == unique(1) && read(&disk, HOME + 1) == unique(1));
    }
}

#[test]
fn t01_an_escaped_block_is_not_its_journal_copy() {
    let (_, _, disk) = fresh(DedupMode::Journal, 4096);
    let mut home = unique(1);
    home[..4].copy_from_slice(&0xC03B_3998u32.to_be_bytes());
    let mut escaped = home;
    escaped[..4].fill(0);
    put(&disk, SLOT, &escaped);
    assert_eq!(cost(&disk, Avoided::JournalCopy, || put(&disk, HOME, &home)), (0, 1));
    assert!(read(&disk, HOME) == home && read(&disk, SLOT) == escaped);
}

/// Two sectors whose first 64 bytes are equal: the paper's fingerprint cannot tell them apart.
fn look_alikes() -> (Sector, Sector) {
    let (one, mut other) = (unique(1), unique(2));
    other[..64].copy_from_slice(&one[..64]);
    (one, other)
}

#[test]
fn t02_a_sector_never_journaled_is_corrupted_by_the_papers_rule_only() {
    let (journaled, home) = look_alikes();
    for (dedup, lies) in [
        (DedupMode::WojPaper(HashKind::Head64), true),
        (DedupMode::Journal, false),
        (DedupMode::Strong(HashKind::Head64), false),
    ] {
        let (_, _, disk) = fresh(dedup, 4096);
        put(&disk, SLOT, &journaled);
        put(&disk, HOME, &home);
        assert_eq!(read(&disk, HOME) != home, lies, "{dedup:?}");
        assert!(!lies || read(&disk, HOME) == journaled);
    }
}

#[test]
fn t03_forged_fingerprints_share_nothing_unless_trusted() {
    let shape = shape(DedupMode::Strong(HashKind::Head64), 4096);
    let forged = |i: u64| {
        let mut sector = unique(100 + i);
        sector[..64].copy_from_slice(&unique(1)[..64]);
        sector
    };
    for unverified in [false, true] {
        let flash = shape.flash(1);
        shape.format(&flash);
        let options = Options { unverified, ..shape.options() };
        let disk = Disk::open(flash, RealEnv::new(), options).unwrap();
        (0..200).for_each(|i| put(&disk, i, &forged(i % 50)));
        let wrong = (0..200).filter(|i| read(&disk, *i) != forged(i % 50)).count();
        assert_eq!(wrong > 0, unverified, "{wrong} sectors are wrong");
    }
}

#[test]
fn t20_control_blocks_are_not_matched() {
    let (_, _, disk) = fresh(DedupMode::Journal, 4096);
    let mut control = unique(1);
    control[..4].copy_from_slice(&0xC03B_3998u32.to_be_bytes());
    put(&disk, SLOT, &control);
    assert_eq!(cost(&disk, Avoided::JournalCopy, || put(&disk, HOME, &control)), (0, 1));
    assert_eq!(cost(&disk, Avoided::JournalCopy, || put(&disk, SLOT + 1, &unique(5))), (0, 1));
    assert_eq!(
        cost(&disk, Avoided::JournalCopy, || put(&disk, SLOT + 2, &unique(5))),
        (0, 1),
        "a commit is written"
    );
}

/// When a shared page is moved by collection, all its sectors follow, even if a crash follows immediately.
#[test]
fn t13_collection_keeps_every_owner_of_a_shared_page() {
    for dedup in [DedupMode::Journal, DedupMode::Strong(HashKind::Sha256)] {
        for page_bytes in [4096, 16384] {
            let (shape, flash, disk) = fresh(dedup, page_bytes);
            let homes: Vec<u64> = (0..6).map(|i| HOME + 20 * i).collect();
            put(&disk, SLOT, &unique(1));
            homes.iter().for_each(|home| put(&disk, *home, &unique(1)));
            disk.flush().unwrap();
            // The first owner, named in the out-of-band entry, is overwritten.
            put(&disk, SLOT, &unique(2));
            let check = |disk: &Disk, when: &str| {
                for home in &homes {
                    assert!(read(disk, *home) == unique(1), "{shape:?}, {when}: sector {home}");
                }
            };
            let others: Vec<u64> = (24..shape.sectors()).filter(|l| !homes.contains(l)).collect();
            for round in 0..6u64 {
                for (i, lba) in others.iter().enumerate() {
                    put(&disk, *lba, &unique(1000 + round * 10_000 + i as u64));
                    if i % 97 == 0 {
                        let crashed = Arc::new(flash.fork().unwrap());
                        check(&shape.open(&crashed).unwrap(), "after a crash");
                    }
                }
                check(&disk, "live");
            }
            assert!(disk.ledger().programmed_by(Cause::Gc) > 0, "{shape:?}: there must be collection");
            disk.close().unwrap();
            drop(disk);
            let disk = shape.open(&flash).unwrap();
            check(&disk, "opened again");
            assert_sound(&disk);
        }
    }
}

/// The journal frees its space once homes are flushed: from then on the home must not depend on it.
#[test]
fn t14_a_flushed_remap_outlives_the_slot() {
    for page_bytes in [4096, 16384] {
        let (shape, flash, disk) = fresh(DedupMode::Journal, page_bytes);
        put(&disk, SLOT, &unique(1));
        disk.flush().unwrap();
        put(&disk, HOME, &unique(1));
        disk.flush().unwrap();
        put(&disk, SLOT, &unique(2));
        disk.flush().unwrap();
        let crashed = Arc::new(flash.fork().unwrap());
        let disk = shape.open(&crashed).unwrap();
        assert!(read(&disk, HOME) == unique(1) && read(&disk, SLOT) == unique(2));
        assert_sound(&disk);
    }
}

#[test]
fn t15_a_replay_after_a_crash_finds_the_journal_learned() {
    let (shape, flash, disk) = fresh(DedupMode::Journal, 4096);
    (0..10).for_each(|i| put(&disk, i, &unique(i)));
    disk.flush().unwrap();
    drop(disk);
    let disk = shape.open(&flash).unwrap();
    let replay = || (0..10).for_each(|i| put(&disk, HOME + i, &unique(i)));
    assert_eq!(cost(&disk, Avoided::JournalCopy, replay), (10, 0));
}

#[test]
fn a_place_is_shared_by_254_sectors_at_most() {
    let (shape, flash, disk) = fresh(DedupMode::Strong(HashKind::Blake3), 4096);
    let written = || (0..300).for_each(|lba| put(&disk, lba, &unique(1)));
    let (shared, programmed) = cost(&disk, Avoided::Duplicate, written);
    assert_eq!((shared, programmed), (298, 2));
    drop(disk);
    let disk = shape.open(&flash).unwrap();
    (0..300).for_each(|lba| assert!(read(&disk, lba) == unique(1)));
    assert_sound(&disk);
}

#[test]
fn same_content_and_zeros_are_elided_and_counted() {
    let (_, _, disk) = fresh(DedupMode::None, 4096);
    put(&disk, 50, &unique(1));
    assert_eq!(cost(&disk, Avoided::SameContent, || put(&disk, 50, &unique(1))), (1, 0));
    assert_eq!(cost(&disk, Avoided::Zero, || put(&disk, 51, &[0; SECTOR_BYTES])), (1, 0));
    assert_eq!(cost(&disk, Avoided::Zero, || disk.write_zeroes(Lba(60), 5, false).unwrap()), (5, 0));
    assert_eq!(cost(&disk, Avoided::Trim, || disk.trim(Lba(50), 10).unwrap()), (1, 0));
    assert!(read(&disk, 50) == content(0) && read(&disk, 51) == content(0));
}

/// Sectors read from flash by `what`.
fn pages_read(flash: &Nand, what: impl FnOnce()) -> u64 {
    let before = flash.counters().pages_read;
    what();
    flash.counters().pages_read - before
}

#[test]
fn the_same_content_is_skipped_after_opening_again_too() {
    for dedup in [DedupMode::None, DedupMode::Journal, DedupMode::Strong(HashKind::Blake3)] {
        let (shape, flash, disk) = fresh(dedup, 4096);
        // Every third is small enough to be packed, if packing is on.
        let bytes = |lba: u64| if lba.is_multiple_of(3) { content(lba as u32 * 8 + 1) } else { unique(lba) };
        let all = |disk: &Disk| (50..150).for_each(|lba| put(disk, lba, &bytes(lba)));
        all(&disk);
        assert_eq!(cost(&disk, Avoided::SameContent, || all(&disk)), (100, 0), "{dedup:?}");
        for clean in [true, false] {
            if clean {
                disk.close().unwrap();
            }
            let disk = shape.open(&flash).unwrap();
            let before = disk.ledger().programmed_by(Cause::MapLog);
            assert_eq!(cost(&disk, Avoided::SameContent, || all(&disk)), (100, 0), "{dedup:?}, {clean}");
            assert_eq!(disk.ledger().programmed_by(Cause::MapLog), before, "nothing is packed again");
            let again = || assert_eq!(cost(&disk, Avoided::SameContent, || all(&disk)), (100, 0));
            assert!(pages_read(&flash, again) >= 60, "they are compared again: tags are hints");
        }
    }
}

/// A write must not wait for reads that never pay.
#[test]
fn overwriting_old_sectors_with_other_content_reads_little() {
    let (shape, flash, disk) = fresh(DedupMode::None, 4096);
    (0..200).for_each(|lba| put(&disk, lba, &unique(lba)));
    disk.close().unwrap();
    drop(disk);
    let disk = shape.open(&flash).unwrap();
    let read = pages_read(&flash, || (0..200).for_each(|lba| put(&disk, lba, &unique(1000 + lba))));
    assert!((1..20).contains(&read), "{read} reads for 200 writes");
}

#[test]
fn strong_is_a_full_index_again_after_opening() {
    for pack in [false, true] {
        for clean in [true, false] {
            let shape = shape(DedupMode::Strong(HashKind::Sha1), 16384);
            let flash = shape.flash(1);
            shape.format(&flash);
            let open = |read_only| {
                let options = Options { pack: Some(pack), read_only, ..shape.options() };
                Disk::open(flash.clone(), RealEnv::new(), options).unwrap()
            };
            let disk = open(false);
            let bytes = |i: u64| if i.is_multiple_of(3) { content(i as u32 * 8 + 1) } else { unique(i) };
            (0..50).for_each(|i| put(&disk, i, &bytes(i)));
            // Shared places are read once.
            (0..50).for_each(|i| put(&disk, 100 + i, &bytes(i)));
            disk.flush().unwrap();
            if clean {
                disk.close().unwrap();
            }
            drop(disk);
            assert_eq!(open(true).stat().learned_sectors, 0, "who cannot write needs no index");
            let disk = open(false);
            assert_eq!(disk.stat().learned_sectors, 50);
            let copies = || (0..50).for_each(|i| put(&disk, 200 + i, &bytes(i)));
            assert_eq!(cost(&disk, Avoided::Duplicate, copies), (50, 0), "pack {pack}, clean {clean}");
            (0..50).for_each(|i| assert!(read(&disk, 200 + i) == bytes(i)));
            assert_sound(&disk);
        }
    }
}

/// A disk large enough for a file system with a journal.
fn roomy() -> (Arc<Nand>, Disk) {
    let geometry = Geometry { blocks_per_die: 120, pages_per_block: 64, ..tiny(4096) };
    let flash = Arc::new(Nand::ram(geometry, NandParams::default()).unwrap());
    Disk::format(flash.clone(), RealEnv::new(), &Format::new(8192)).unwrap();
    let disk = Disk::open(flash.clone(), RealEnv::new(), Options::default()).unwrap();
    (flash, disk)
}

/// The image made by `mke2fs` with these options; `None`, with a message, if there is no `mke2fs`.
pub(crate) fn mke2fs(options: &[&str]) -> Option<Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    std::fs::File::create(&path).unwrap().set_len(32 << 20).unwrap();
    let path_and_search = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let made = Command::new("mke2fs")
        .env("PATH", path_and_search)
        .args(["-q", "-F"])
        .args(options)
        .arg(&path)
        .output();
    match made {
        Ok(made) if made.status.success() => Some(std::fs::read(&path).unwrap()),
        Ok(made) => panic!("mke2fs: {}", String::from_utf8_lossy(&made.stderr)),
        Err(e) => {
            println!("skipped: mke2fs: {e}");
            None
        }
    }
}

/// Writes an image like mkfs: trims the device, then writes.
pub(crate) fn load(disk: &Disk, image: &[u8]) {
    disk.trim(Lba(0), disk.info().sectors).unwrap();
    for (lba, sector) in (0..).zip(image.chunks_exact(SECTOR_BYTES)) {
        if sector.iter().any(|b| *b != 0) {
            disk.write(Lba(lba), sector, false).unwrap();
        }
    }
    disk.flush().unwrap();
}

fn journal_sectors(disk: &Disk) -> Vec<Lba> {
    let discovery = disk.discovery().unwrap();
    let extents = discovery.journals().flat_map(|(_, journal)| journal.log_extents()).collect::<Vec<_>>();
    extents.into_iter().flat_map(|e| (e.start.0..e.end.0).map(Lba)).collect()
}

#[test]
fn t06_the_journal_is_found_again_when_it_moves_or_goes() {
    let Some(with) = mke2fs(&["-t", "ext4", "-b", "4096", "-J", "size=4"]) else { return };
    let without = mke2fs(&["-t", "ext4", "-b", "4096", "-O", "^has_journal"]).unwrap();
    let bigger = mke2fs(&["-t", "ext4", "-b", "4096", "-J", "size=8"]).unwrap();
    let (flash, disk) = roomy();
    load(&disk, &with);
    let slots = journal_sectors(&disk);
    assert!(slots.len() >= 1000, "{} sectors", slots.len());
    let home = Lba(8000);
    let replays = |disk: &Disk, slot: Lba, id: u64| {
        let written = || {
            put(disk, slot.0, &unique(id));
            put(disk, home.0, &unique(id));
        };
        cost(disk, Avoided::JournalCopy, written).0
    };
    assert_eq!(replays(&disk, slots[500], 1), 1);
    load(&disk, &without);
    assert!(journal_sectors(&disk).is_empty());
    assert_eq!(replays(&disk, slots[500], 2), 0, "no journal is left to copy from");
    load(&disk, &bigger);
    let slots = journal_sectors(&disk);
    assert!(slots.len() >= 2000, "{} sectors", slots.len());
    assert_eq!(replays(&disk, slots[1999], 3), 1);
    drop(disk);
    let disk = Disk::open(flash, RealEnv::new(), Options::default()).unwrap();
    assert_eq!(journal_sectors(&disk), slots);
    assert_eq!(replays(&disk, slots[7], 4), 1);
}

/// The data that discovery depends on may change without moving the journal.
#[test]
fn journals_found_where_they_were_are_not_read_again() {
    let Some(image) = mke2fs(&["-t", "ext4", "-b", "4096", "-J", "size=4"]) else { return };
    let (flash, disk) = roomy();
    load(&disk, &image);
    let slots = journal_sectors(&disk);
    slots.iter().take(500).for_each(|slot| put(&disk, slot.0, &unique(slot.0)));
    disk.flush().unwrap();
    let mut superblock = read(&disk, 0);
    superblock[1024 + 0x68] ^= 1;
    put(&disk, 0, &superblock);
    let uuid = |disk: &Disk| disk.discovery().unwrap().file_systems[0].uuid;
    let before = uuid(&disk);
    let reads = pages_read(&flash, || disk.flush().unwrap());
    assert!(reads < 50, "{reads} pages read");
    assert_ne!(uuid(&disk), before, "it was discovered again");
    let homes = || slots.iter().take(500).for_each(|slot| put(&disk, 4000 + slot.0 % 4000, &unique(slot.0)));
    assert_eq!(cost(&disk, Avoided::JournalCopy, homes), (500, 0));
}

#[test]
fn t04_a_file_system_of_1_kib_blocks_is_said_not_to_gain() {
    let Some(image) = mke2fs(&["-t", "ext4", "-b", "1024"]) else { return };
    let (_flash, disk) = roomy();
    load(&disk, &image);
    let found = disk.discovery().unwrap().file_systems;
    assert_eq!((found[0].kind, found[0].block_bytes), (FsKind::Ext4, 1024));
    let JournalState::NoBenefit { reason } = &found[0].journal else { panic!("{found:?}") };
    assert!(reason.contains("1024") || reason.contains("1 KiB"), "{reason}");
    assert!(disk.stat().file_systems[0].no_benefit.is_some());
}
