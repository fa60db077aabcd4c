//! Parity as a fingerprint: duplicates found in-line and later, within a budget, and despite forgeries.

use crate::harness::{Sector, assert_sound, read, tiny};
use crate::policies::{load, mke2fs};
use std::sync::Arc;
use vellum_base::{
    Avoided, BlockAddr, BlockDevice, Cause, Env, Flash, Geometry, Kind, Lba, Nanos, PageAddr, RealEnv,
    SECTOR_BYTES,
};
use vellum_codes::ecc::Code;
use vellum_codes::pattern::Pattern;
use vellum_disk::{CpuModel, DedupMode, DedupWhen, Disk, Format, Options};
use vellum_media::nand::{Nand, NandParams};
use vellum_media::timing::{Timed, Timing};
use vellum_sim::Sim;

const SECTOR: u64 = SECTOR_BYTES as u64;

fn unique(id: u64) -> Sector {
    let mut sector = [0; SECTOR_BYTES];
    Pattern::unique(id).fill(&mut sector);
    sector
}

fn put(disk: &Disk, lba: u64, data: &Sector) {
    disk.write(Lba(lba), data, false).unwrap();
}

fn flash_of(page_bytes: u32) -> Arc<Nand> {
    Arc::new(Nand::ram(tiny(page_bytes), NandParams::default()).unwrap())
}

fn options(when: DedupWhen) -> Options {
    Options { dedup_when: when, ..Options::default() }
}

fn fresh(dedup: DedupMode, when: DedupWhen) -> (Arc<Nand>, Disk) {
    let flash = flash_of(16384);
    Disk::format(flash.clone(), RealEnv::new(), &Format { dedup, ..Format::new(1500) }).unwrap();
    let disk = Disk::open(flash.clone(), RealEnv::new(), options(when)).unwrap();
    (flash, disk)
}

/// Sectors avoided in-line and later, and host sectors programmed.
fn counts(disk: &Disk) -> (u64, u64, u64) {
    let ledger = disk.ledger();
    let avoided = |reason| ledger.avoided_by(reason) / SECTOR;
    (
        avoided(Avoided::Duplicate),
        avoided(Avoided::DuplicateOffline),
        ledger.programmed_by(Cause::HostData) / SECTOR,
    )
}

/// Checks that after a flush and a crash `sectors` hold `contents` in turn, repeatedly.
fn assert_survives(flash: Arc<Nand>, disk: Disk, sectors: u64, contents: u64) {
    disk.flush().unwrap();
    drop(disk);
    let disk = Disk::open(flash, RealEnv::new(), Options::default()).unwrap();
    (0..sectors).for_each(|i| assert!(read(&disk, i) == unique(i % contents)));
    assert_sound(&disk);
}

#[test]
fn any_copy_is_found_while_it_is_written_and_survives() {
    for dedup in [DedupMode::Ecc, DedupMode::EccPaper] {
        let (flash, disk) = fresh(dedup, DedupWhen::Inline);
        (0..50).for_each(|i| put(&disk, 100 + i, &unique(i)));
        (0..50).for_each(|i| put(&disk, 700 + i, &unique(i)));
        disk.flush().unwrap();
        // The paper keeps so little of the parity that a few fingerprints collide.
        let least = if dedup == DedupMode::Ecc { 50 } else { 40 };
        let (inline, _, programmed) = counts(&disk);
        assert!(inline >= least && programmed == 100 - inline, "{dedup:?}: {inline}, {programmed}");
        (0..25).for_each(|i| put(&disk, 100 + i, &unique(1000 + i)));
        disk.flush().unwrap();
        drop(disk);
        let disk = Disk::open(flash, RealEnv::new(), Options::default()).unwrap();
        for i in 0..50 {
            let first = if i < 25 { 1000 + i } else { i };
            assert!(read(&disk, 100 + i) == unique(first) && read(&disk, 700 + i) == unique(i));
        }
        assert_sound(&disk);
    }
}

#[test]
fn a_run_is_found_with_a_table_that_holds_a_fraction_of_it() {
    let (flash, disk) = fresh(DedupMode::Ecc, DedupWhen::Inline);
    drop(disk);
    let run = |share: f64, dedup| {
        let flash = flash.fork().unwrap();
        let flash = Arc::new(flash);
        Disk::format(flash.clone(), RealEnv::new(), &Format { dedup, ..Format::new(1500) }).unwrap();
        let options = Options { dedup_table_share: share, ..options(DedupWhen::Inline) };
        let disk = Disk::open(flash, RealEnv::new(), options).unwrap();
        (0..600).for_each(|i| put(&disk, i, &unique(i)));
        (0..600).for_each(|i| put(&disk, 800 + i, &unique(i)));
        disk.flush().unwrap();
        assert_sound(&disk);
        counts(&disk).0
    };
    let (ours, papers) = (run(0.02, DedupMode::Ecc), run(0.02, DedupMode::EccPaper));
    assert!(ours > 500 && papers < 100, "{ours} and {papers} of 600");
}

#[test]
fn what_was_passed_by_is_found_later() {
    let (flash, disk) = fresh(DedupMode::Ecc, DedupWhen::Offline);
    (0..60).for_each(|i| put(&disk, i, &unique(i % 20)));
    assert_eq!((counts(&disk), disk.stat().dedup_waiting_sectors), ((0, 0, 60), 60));
    let (before, valid) = (flash.counters().pages_programmed, disk.stat().valid_bytes);
    while disk.dedup_some(7).unwrap() > 0 {}
    assert_eq!((counts(&disk).1, disk.stat().dedup_waiting_sectors), (40, 0));
    assert_eq!(flash.counters().pages_programmed, before, "remaps are recorded in memory so far");
    assert_eq!(disk.stat().valid_bytes, valid - 40 * SECTOR);
    assert_survives(flash, disk, 60, 20);
}

#[test]
fn an_overwritten_sector_is_no_longer_marked() {
    let (_, disk) = fresh(DedupMode::Ecc, DedupWhen::Offline);
    (0..40).for_each(|i| put(&disk, i, &unique(i)));
    disk.trim(Lba(0), 10).unwrap();
    disk.write_zeroes(Lba(10), 10, false).unwrap();
    (20..30).for_each(|i| put(&disk, i, &unique(100 + i)));
    assert_eq!(disk.stat().dedup_waiting_sectors, 20);
}

#[test]
fn marks_lost_in_a_crash_are_made_up_for_by_a_scrub() {
    for page_bytes in [4096, 16384] {
        let flash = flash_of(page_bytes);
        let format = Format { dedup: DedupMode::Ecc, ..Format::new(400) };
        Disk::format(flash.clone(), RealEnv::new(), &format).unwrap();
        let disk = Disk::open(flash.clone(), RealEnv::new(), options(DedupWhen::Offline)).unwrap();
        (0..300).for_each(|i| put(&disk, i, &unique(i % 100)));
        disk.flush().unwrap();
        drop(disk);
        let disk = Disk::open(flash.clone(), RealEnv::new(), options(DedupWhen::Both)).unwrap();
        assert_eq!(disk.stat().dedup_waiting_sectors, 0);
        let report = disk.dedup_all(|_, _| {}).unwrap();
        assert_eq!((report.sectors_remapped, report.bytes_freed), (200, 200 * SECTOR), "{report:?}");
        assert_eq!(disk.dedup_all(|_, _| {}).unwrap().sectors_remapped, 0, "nothing is left to do");
        assert_survives(flash, disk, 300, 100);
    }
}

#[test]
fn a_scrub_reads_no_data_where_nothing_is_equal() {
    let (_, disk) = fresh(DedupMode::Ecc, DedupWhen::Offline);
    (0..1000).for_each(|i| put(&disk, i, &unique(i)));
    disk.flush().unwrap();
    let report = disk.dedup_all(|_, _| {}).unwrap();
    assert_eq!((report.slots_seen, report.slots_compared, report.sectors_remapped), (1000, 0, 0));
}

#[test]
fn a_place_has_254_owners_and_the_rest_find_another() {
    for when in [DedupWhen::Inline, DedupWhen::Offline] {
        let (_, disk) = fresh(DedupMode::Ecc, when);
        (0..1000).for_each(|i| put(&disk, i, &unique(5)));
        while disk.dedup_some(100).unwrap() > 0 {}
        disk.dedup_all(|_, _| {}).unwrap();
        let (inline, offline, _) = counts(&disk);
        assert_eq!(inline + offline, 1000 - 1000u64.div_ceil(254), "{when:?}");
        (0..1000).for_each(|i| assert!(read(&disk, i) == unique(5)));
        assert_sound(&disk);
    }
}

/// Different contents with the same parity and the same checksum: all sums of some that the linear code and the CRC map
/// to zero.
pub(crate) fn forged(count: usize) -> Vec<Sector> {
    let signature = |sector: &Sector| {
        let mut parity = [0u8; 128];
        Code::paper().encode(sector, &mut parity);
        let mut bits = parity[..32].to_vec();
        bits.extend((vellum_codes::crc32c(sector) ^ vellum_codes::crc32c(&[0; SECTOR_BYTES])).to_le_bytes());
        bits
    };
    let mut basis: Vec<(Sector, Vec<u8>)> = Vec::new();
    let mut null = Vec::new();
    for bit in 0.. {
        let mut vector = [0; SECTOR_BYTES];
        vector[bit / 8] = 1 << (bit % 8);
        let mut bits = signature(&vector);
        for (other, others) in &basis {
            let lead = (0..288).find(|i| others[i / 8] >> (i % 8) & 1 == 1).unwrap();
            if bits[lead / 8] >> (lead % 8) & 1 == 1 {
                vector.iter_mut().zip(other).for_each(|(a, b)| *a ^= b);
                bits.iter_mut().zip(others).for_each(|(a, b)| *a ^= b);
            }
        }
        match bits.iter().all(|byte| *byte == 0) {
            true => null.push(vector),
            false => basis.push((vector, bits)),
        }
        if 1 << null.len() > count {
            break;
        }
    }
    let start = unique(1);
    let sum = |which: usize| {
        let mut sector = start;
        let chosen = null.iter().enumerate().filter(|(i, _)| which >> i & 1 == 1);
        chosen.for_each(|(_, vector)| sector.iter_mut().zip(vector).for_each(|(a, b)| *a ^= b));
        sector
    };
    (0..count).map(sum).collect()
}

#[test]
fn forged_duplicates_are_never_taken_for_each_other_and_cost_little() {
    let forged = forged(200);
    let parity_of = |sector: &Sector| {
        let mut parity = [0; 128];
        Code::paper().encode(sector, &mut parity);
        parity
    };
    assert!(forged.windows(2).all(|two| two[0] != two[1]
        && parity_of(&two[0]) == parity_of(&two[1])
        && vellum_codes::crc32c(&two[0]) == vellum_codes::crc32c(&two[1])));
    for dedup in [DedupMode::Ecc, DedupMode::EccPaper] {
        for when in [DedupWhen::Inline, DedupWhen::Offline] {
            let (flash, disk) = fresh(dedup, when);
            let before = flash.counters().pages_read;
            (0..).zip(&forged).for_each(|(lba, sector)| put(&disk, lba, sector));
            while disk.dedup_some(64).unwrap() > 0 {}
            let reads = flash.counters().pages_read - before;
            assert!(reads <= 8 * 200, "{dedup:?}, {when:?}: {reads} reads");
            let report = disk.dedup_all(|_, _| {}).unwrap();
            assert!(report.slots_compared <= 200 && report.sectors_remapped == 0, "{report:?}");
            (0..).zip(&forged).for_each(|(lba, sector)| assert!(read(&disk, lba) == *sector));
            assert_eq!(counts(&disk).0 + counts(&disk).1, 0);
            assert_sound(&disk);
        }
    }
}

/// With limited memory a scrub reads spare areas more often, and skips slots forged to have too many equal checksums.
#[test]
fn a_scrub_keeps_to_its_memory() {
    let scrub = |slots: u64, content: &dyn Fn(u64) -> Sector| {
        let (flash, disk) = fresh(DedupMode::None, DedupWhen::Inline);
        (0..200).for_each(|lba| put(&disk, lba, &content(lba)));
        disk.close().unwrap();
        let options = Options { dedup_scan_bytes: 8 * slots, ..Options::default() };
        let disk = Disk::open(flash, RealEnv::new(), options).unwrap();
        let report = disk.dedup_all(|_, _| {}).unwrap();
        (0..200).for_each(|lba| assert!(read(&disk, lba) == content(lba)));
        assert_sound(&disk);
        report
    };
    let plain = scrub(100, &|lba| unique(lba % 100));
    assert_eq!((plain.slots_seen, plain.slots_left_out, plain.sectors_remapped), (200, 0, 100), "{plain:?}");
    let forged = forged(200);
    let crowd = scrub(100, &|lba| forged[lba as usize]);
    assert_eq!((crowd.slots_seen, crowd.slots_left_out, crowd.slots_compared), (200, 100, 100), "{crowd:?}");
    assert_eq!(crowd.sectors_remapped, 0);
}

#[test]
fn a_flood_of_contents_takes_no_more_memory() {
    let (_, disk) = fresh(DedupMode::Ecc, DedupWhen::Inline);
    let before = disk.stat().memory.dedup_bytes;
    (0..6000).for_each(|i| put(&disk, i % 1500, &unique(i)));
    assert_eq!(disk.stat().memory.dedup_bytes, before);
    assert!(before <= 1500 * 15 / 100 * 7 + 64 + 1500 / 8 + 8, "{before}");
}

fn pages_with_data(flash: &Nand) -> Vec<PageAddr> {
    let pages = |block: BlockAddr| (0..flash.report(block).pages_written).map(move |p| block.page(p));
    (0..flash.geometry().blocks()).map(BlockAddr).flat_map(pages).collect()
}

#[test]
fn a_copy_that_cannot_be_read_is_no_copy() {
    let (flash, disk) = fresh(DedupMode::Ecc, DedupWhen::Inline);
    let roots = pages_with_data(&flash);
    (0..40).for_each(|i| put(&disk, i, &unique(i)));
    disk.flush().unwrap();
    pages_with_data(&flash)
        .iter()
        .filter(|page| !roots.contains(page))
        .for_each(|p| flash.spoil(*p).unwrap());
    (0..40).for_each(|i| put(&disk, 100 + i, &unique(i)));
    disk.flush().unwrap();
    assert_eq!(counts(&disk), (0, 0, 80));
    (0..40).for_each(|i| assert!(read(&disk, 100 + i) == unique(i)));
    let mut out = [0; SECTOR_BYTES];
    assert_eq!(disk.read(Lba(3), &mut out).unwrap_err().kind(), Kind::Corrupt);
    let report = disk.dedup_all(|_, _| {}).unwrap();
    assert_eq!(report.sectors_remapped, 0, "{report:?}");
    assert_eq!(disk.read(Lba(3), &mut out).unwrap_err().kind(), Kind::Corrupt, "damage stays damage");
}

/// Shared contents, marks and remaps while every erase block is being collected over and over.
#[test]
fn copies_in_blocks_that_are_being_collected() {
    for when in [DedupWhen::Inline, DedupWhen::Offline] {
        let (_, disk) = fresh(DedupMode::Ecc, when);
        let mut holds = vec![0u64; 1500];
        let mut x = 7u64;
        for n in 0..20_000u64 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (lba, id) = ((x >> 33) % 1500, if n % 3 == 0 { (x >> 20) % 40 } else { 1000 + n });
            put(&disk, lba, &unique(id));
            holds[lba as usize] = id;
            if n % 50 == 0 {
                disk.dedup_some(40).unwrap();
            }
            if n % 5000 == 0 {
                disk.dedup_all(|_, _| {}).unwrap();
            }
        }
        (0..)
            .zip(&holds)
            .filter(|(_, id)| **id != 0)
            .for_each(|(l, id)| assert!(read(&disk, l) == unique(*id)));
        assert_sound(&disk);
    }
}

/// A controller of one slow core, in virtual time: returns the duplicates found in-line, and those still marked.
fn in_virtual_time(hash: Nanos, core_share: f64, wait_max: Nanos) -> (u64, u64) {
    let timing = Timing {
        read: Nanos::from_us(25),
        program: Nanos::from_us(260),
        erase: Nanos::from_ms(2),
        suspend: Nanos::from_us(20),
        channel_bytes_per_second: 400_000_000,
    };
    let nand = flash_of(16384);
    Disk::format(nand.clone(), RealEnv::new(), &Format { dedup: DedupMode::Ecc, ..Format::new(1500) })
        .unwrap();
    let sim = Sim::new(3);
    let env = sim.env();
    let flash = Arc::new(Timed::new(nand, timing, env.clone()));
    sim.run(move || {
        let options = Options {
            dedup_when: DedupWhen::Both,
            dedup_table_share: 1.0,
            dedup_core_share: core_share,
            dedup_wait_max: wait_max,
            cpu: CpuModel { hash, request: Nanos::ZERO },
            ..Options::default()
        };
        let disk = Disk::open(flash, env.clone() as Arc<dyn Env>, options).unwrap();
        (0..700).for_each(|i| put(&disk, i, &unique(i)));
        while disk.dedup_some(16).unwrap() > 0 {} // idle time: all contents are known now
        (0..700).for_each(|i| put(&disk, 700 + i, &unique(i)));
        let (inline, waiting) = (counts(&disk).0, disk.stat().dedup_waiting_sectors);
        while disk.dedup_some(16).unwrap() > 0 {}
        disk.dedup_all(|_, _| {}).unwrap();
        assert_eq!(counts(&disk).0 + counts(&disk).1, 700, "sooner or later all are found");
        (0..1400).for_each(|i| assert!(read(&disk, i) == unique(i % 700)));
        (inline, waiting)
    })
}

#[test]
fn the_budget_decides_how_much_is_found_in_line() {
    let us = Nanos::from_us;
    let generous = in_virtual_time(us(1), 1.0, us(100_000));
    // The disk draws its seed: sometimes a set of the table is too full for an entry.
    assert!(generous.0 >= 680 && generous.1 == 0, "{generous:?}");
    let slow = in_virtual_time(us(220), 0.2, us(100_000));
    assert!(slow.0 > 10 && slow.0 < 350 && slow.1 > 350, "a slow hash: {slow:?}");
    let faster = in_virtual_time(us(14), 0.2, us(100_000));
    assert!(faster.0 > slow.0, "{faster:?} {slow:?}");
    let hurried = in_virtual_time(us(1), 1.0, us(10));
    assert!(hurried.0 < 350, "no read takes 10 us: {hurried:?}");
}

/// The maximum number of copies of its group descriptors, of three, that a file system loses with a single page of
/// flash. `None` if there is no mkfs.
fn descriptors_lost_with_a_page(dedup: DedupMode, when: DedupWhen, keep_copies: bool) -> Option<usize> {
    let geometry = Geometry { blocks_per_die: 320, ..tiny(4096) };
    let flash = Arc::new(Nand::ram(geometry, NandParams::default()).unwrap());
    let format = Format { dedup, keep_copies, ..Format::new(8192) };
    Disk::format(flash.clone(), RealEnv::new(), &format).unwrap();
    let disk = Disk::open(flash.clone(), RealEnv::new(), options(when)).unwrap();
    let image = mke2fs(&["-t", "ext4", "-b", "4096", "-g", "2048"])?;
    load(&disk, &image);
    while disk.dedup_some(100).unwrap() > 0 {}
    disk.flush().unwrap(); // the file system is found now
    disk.dedup_all(|_, _| {}).unwrap();
    let descriptors = image[SECTOR_BYTES..][..SECTOR_BYTES].to_vec();
    let groups = [0u64, 1, 3].map(|group| group * 2048 + 1);
    groups
        .iter()
        .for_each(|lba| assert!(read(&disk, *lba)[..] == descriptors, "a backup is where it is looked for"));
    put(&disk, 5, &descriptors.clone().try_into().unwrap());
    disk.flush().unwrap();
    assert_eq!(disk.stat().kept_sectors.is_some_and(|kept| kept > 3), keep_copies);
    assert_sound(&disk);
    disk.close().unwrap();
    drop(disk);
    let mut page = vec![0; SECTOR_BYTES];
    let holds = |flash: &Nand, at: PageAddr, page: &mut Vec<u8>| {
        flash.read(vellum_base::IoClass::Background, at, 0, page, &mut []).is_ok() && *page == descriptors
    };
    let pages: Vec<PageAddr> =
        pages_with_data(&flash).into_iter().filter(|at| holds(&flash, *at, &mut page)).collect();
    let lost = pages.iter().map(|at| {
        let flash = Arc::new(flash.fork().unwrap());
        flash.spoil(*at).unwrap();
        let disk = Disk::open(flash, RealEnv::new(), Options { read_only: true, ..options(when) }).unwrap();
        let mut out = [0; SECTOR_BYTES];
        groups.iter().filter(|lba| disk.read(Lba(**lba), &mut out).is_err()).count()
    });
    lost.max()
}

#[test]
fn copies_that_a_file_system_keeps_on_purpose_are_kept_if_that_is_asked_for() {
    for (dedup, when) in [
        (DedupMode::Ecc, DedupWhen::Inline),
        (DedupMode::Ecc, DedupWhen::Offline),
        (DedupMode::Strong(vellum_codes::HashKind::Sha1), DedupWhen::Inline),
        (DedupMode::Journal, DedupWhen::Inline),
    ] {
        let Some(lost) = descriptors_lost_with_a_page(dedup, when, false) else { return };
        assert_eq!(lost, 3, "{dedup:?}, {when:?}: one page has all");
        assert_eq!(descriptors_lost_with_a_page(dedup, when, true), Some(1), "{dedup:?}, {when:?}");
    }
}
