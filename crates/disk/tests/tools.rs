//! The offline tools: dump and restore, repair, inspect.

use crate::harness::{Shape, assert_sound, content, read, tiny};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use vellum_base::{BlockAddr, BlockDevice, Flash, Lba, PageAddr, RealEnv, SECTOR_BYTES};
use vellum_disk::tools::{
    IdentitySource, RepairOptions, RepairReport, SectorList, dump, inspect, inspect_page, repair, restore,
};
use vellum_disk::{Disk, Format};
use vellum_media::nand::Nand;

/// Contents of each sector, oldest first; 0 is never written.
type Versions = Vec<Vec<u32>>;

/// A history with overwrites, shared and packed sectors, trims, collection and checkpoints.
fn live(shape: Shape, flash: &Arc<Nand>, seed: u64, steps: u32) -> (Disk, Versions) {
    shape.format(flash);
    let disk = shape.open(flash).unwrap();
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut versions = vec![vec![0]; shape.sectors() as usize];
    for step in 0..steps {
        let (lba, id) = (rng.random_range(24..390u64), rng.random_range(1..9000u32));
        match rng.random_range(0..12) {
            0..6 => put(&disk, &mut versions, lba, id),
            6..9 => {
                put(&disk, &mut versions, rng.random_range(0..24), id);
                put(&disk, &mut versions, lba, id);
            }
            9 => {
                let count = rng.random_range(1..20);
                disk.trim(Lba(lba), count).unwrap();
                (lba..lba + count).for_each(|l| versions[l as usize].push(0));
            }
            _ if step % 7 == 0 => disk.flush().unwrap(),
            _ => put(&disk, &mut versions, lba, id | 7),
        }
    }
    (disk, versions)
}

fn put(disk: &Disk, versions: &mut Versions, lba: u64, id: u32) {
    disk.write(Lba(lba), &content(id), false).unwrap();
    versions[lba as usize].push(id);
}

fn assert_holds(disk: &Disk, versions: &Versions, context: &str) {
    for (lba, ids) in versions.iter().enumerate() {
        let newest = content(*ids.last().unwrap());
        assert!(read(disk, lba as u64) == newest, "{context}: sector {lba}");
    }
}

fn dump_text(flash: &Arc<Nand>) -> String {
    let mut text = Vec::new();
    dump(flash.clone(), RealEnv::new(), &mut text, |_, _| {}).unwrap();
    String::from_utf8(text).unwrap()
}

/// Makes every page with a slot of `kind` unreadable; returns how many.
fn spoil(flash: &Nand, kind: &str) -> usize {
    let geometry = *flash.geometry();
    let mut spoiled = 0;
    for block in (0..geometry.blocks()).map(BlockAddr) {
        for page in (0..flash.report(block).pages_written).map(|p| block.page(p)) {
            if inspect_page(flash, page).unwrap().slots.iter().any(|slot| slot.kind == kind) {
                flash.spoil(page).unwrap();
                spoiled += 1;
            }
        }
    }
    spoiled
}

/// Lines that a restore reproduces exactly.
fn lasting_lines(dump: &str) -> Vec<&str> {
    let lasting = ["\"life\"", "\"map\"", "\"log\""];
    let is_lasting = |line: &&str| lasting.iter().any(|kind| line.starts_with(&format!("{{\"line\":{kind}")));
    dump.lines().filter(is_lasting).collect()
}

#[test]
fn a_dump_brings_back_a_disk_whose_roots_are_gone() {
    for shape in Shape::all() {
        let flash = shape.flash(1);
        let (disk, versions) = live(shape, &flash, 11, 1500);
        disk.close().unwrap();
        drop(disk);
        let before = flash.counters();
        let text = dump_text(&flash);
        assert_eq!(flash.counters().pages_programmed, before.pages_programmed, "a dump writes nothing");
        assert!(spoil(&flash, "root") > 0);
        assert!(shape.open(&flash).is_err(), "{shape:?}: without roots there is no disk");
        let report = restore(&mut text.as_bytes(), flash.clone(), RealEnv::new()).unwrap();
        assert_eq!((report.newer_writes_lost, report.newer_log_slots_lost), (0, 0));
        let again = dump_text(&flash);
        if !shape.nvram {
            assert_eq!(lasting_lines(&text), lasting_lines(&again), "{shape:?}");
        }
        let disk = shape.open(&flash).unwrap();
        assert_holds(&disk, &versions, &format!("{shape:?}"));
        assert_sound(&disk);
        live_on(&disk, versions, &format!("{shape:?}"));
    }
}

/// Checks that a restored disk continues to work: it is filled and collected.
fn live_on(disk: &Disk, mut versions: Versions, context: &str) {
    let mut rng = SmallRng::seed_from_u64(3);
    for _ in 0..3000 {
        let lba = rng.random_range(0..versions.len() as u64);
        put(disk, &mut versions, lba, rng.random_range(1..9000));
    }
    disk.flush().unwrap();
    assert_holds(disk, &versions, context);
    assert_sound(disk);
}

#[test]
fn a_crashed_disk_is_dumped_without_writing() {
    for (nth, shape) in Shape::all().into_iter().enumerate() {
        let flash = shape.flash(2);
        let (disk, _) = live(shape, &flash, 5, 700);
        disk.flush().unwrap();
        flash.power_cut_at(3 + nth as u64);
        for lba in 0..200 {
            if disk.write(Lba(lba), &content(lba as u32 * 8 + 5), false).is_err() {
                break;
            }
        }
        drop(disk);
        flash.power_on();
        let before = flash.counters();
        let text = dump_text(&flash);
        assert_eq!(flash.counters().pages_programmed, before.pages_programmed);
        assert_eq!(flash.counters().blocks_erased, before.blocks_erased);
        // The same disk, opened and restored, on two forks.
        let (opened, restored) = (Arc::new(flash.fork().unwrap()), Arc::new(flash.fork().unwrap()));
        restore(&mut text.as_bytes(), restored.clone(), RealEnv::new()).unwrap();
        let (a, b) = (shape.open(&opened).unwrap(), shape.open(&restored).unwrap());
        for lba in 0..shape.sectors() {
            assert!(read(&a, lba) == read(&b, lba), "{shape:?}: sector {lba}");
        }
        assert_sound(&b);
    }
}

#[test]
fn restore_refuses_what_the_flash_no_longer_holds() {
    let shape = Shape::all()[1];
    let flash = shape.flash(1);
    let (disk, _) = live(shape, &flash, 11, 600);
    disk.close().unwrap();
    let text = dump_text(&flash);
    for round in 0..12 {
        for lba in 0..shape.sectors() {
            disk.write(Lba(lba), &content((lba * 8 + round + 3) as u32 | 7), false).unwrap();
        }
    }
    disk.close().unwrap();
    drop(disk);
    let before = flash.counters();
    let error = restore(&mut text.as_bytes(), flash.clone(), RealEnv::new()).unwrap_err().to_string();
    assert!(error.contains("was erased since the dump was made") && error.contains("more"), "{error}");
    assert_eq!(flash.counters().pages_programmed, before.pages_programmed, "nothing was written");
    let one_spoiled = |pages: &mut dyn Iterator<Item = PageAddr>| {
        let flash = Arc::new(flash.fork().unwrap());
        let text = dump_text(&flash);
        let data = |page: &PageAddr| inspect_page(&*flash, *page).unwrap().slots[0].kind == "data";
        pages.filter(data).for_each(|page| flash.spoil(page).unwrap());
        restore(&mut text.as_bytes(), flash, RealEnv::new()).map(|_| ())
    };
    assert!(one_spoiled(&mut std::iter::empty()).is_ok());
    let mut all = (0..40).flat_map(|b| (0..16).map(move |p| BlockAddr(b).page(p)));
    assert!(one_spoiled(&mut all).is_err());
}

#[test]
fn dumps_cut_short_or_changed_are_refused() {
    let shape = Shape::all()[4];
    let flash = shape.flash(1);
    let (disk, _) = live(shape, &flash, 8, 300);
    disk.close().unwrap();
    drop(disk);
    let text = dump_text(&flash);
    let before = flash.counters().pages_programmed;
    let refuse =
        |text: &str| restore(&mut text.as_bytes(), flash.clone(), RealEnv::new()).unwrap_err().to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert!(refuse(&lines[..lines.len() - 1].join("\n")).contains("without its last line"));
    let without_one: Vec<&str> =
        lines.iter().copied().enumerate().filter(|(i, _)| *i != 9).map(|(_, l)| l).collect();
    assert!(refuse(&without_one.join("\n")).contains("checksum"));
    assert!(refuse(&text.replace("\"version\":1", "\"version\":9")).contains("version 9"));
    assert!(refuse(&"x".repeat(1 << 20)).contains("line 1"));
    let mut rng = SmallRng::seed_from_u64(1);
    for _ in 0..400 {
        let mut bytes = text.clone().into_bytes();
        let at = rng.random_range(0..bytes.len());
        bytes[at] = rng.random_range(32..127);
        if bytes != text.as_bytes() {
            assert!(restore(&mut &bytes[..], flash.clone(), RealEnv::new()).is_err(), "byte {at}");
        }
    }
    assert_eq!(flash.counters().pages_programmed, before);
}

fn repaired(flash: &Arc<Nand>, identity: Option<Format>) -> RepairReport {
    let before = flash.counters();
    let dry = repair(
        flash.clone(),
        RealEnv::new(),
        &RepairOptions { identity: identity.clone(), write: false },
        |_, _| {},
    );
    let dry = dry.unwrap();
    assert_eq!((dry.written, flash.counters().pages_programmed), (false, before.pages_programmed));
    let wet =
        repair(flash.clone(), RealEnv::new(), &RepairOptions { identity, write: true }, |_, _| {}).unwrap();
    assert_eq!((wet.written, wet.recovered_sectors), (true, dry.recovered_sectors));
    wet
}

#[test]
fn repair_of_a_whole_disk_changes_nothing() {
    for shape in Shape::all() {
        let flash = shape.flash(4);
        let (disk, versions) = live(shape, &flash, 21, 1500);
        disk.close().unwrap();
        drop(disk);
        let report = repaired(&flash, None);
        assert!(report.is_whole(), "{shape:?}: {report:?}");
        assert_eq!(report.identity_from, IdentitySource::Root);
        let disk = shape.open(&flash).unwrap();
        assert_holds(&disk, &versions, &format!("{shape:?}"));
        assert_sound(&disk);
        live_on(&disk, versions, &format!("{shape:?}"));
    }
}

#[test]
fn repair_without_any_root_finds_everything() {
    for shape in Shape::all() {
        for given in [true, false] {
            let flash = shape.flash(4);
            let (disk, versions) = live(shape, &flash, 22, 1200);
            disk.flush().unwrap();
            drop(disk); // not closed
            spoil(&flash, "root");
            let identity = given.then(|| Format { dedup: shape.dedup, ..Format::new(shape.sectors()) });
            let report = repaired(&flash, identity);
            assert_eq!(
                (report.damaged_sectors.count, report.lost_sectors.count),
                (0, 0),
                "{shape:?}: {report:?}"
            );
            assert_eq!(
                report.identity_from,
                [IdentitySource::Deduced, IdentitySource::Given][usize::from(given)]
            );
            let disk = shape.open(&flash).unwrap();
            assert!(disk.info().sectors >= 400);
            for (lba, ids) in versions.iter().enumerate().take(disk.info().sectors as usize) {
                assert!(read(&disk, lba as u64) == content(*ids.last().unwrap()), "{shape:?}: sector {lba}");
            }
            assert_sound(&disk);
        }
    }
}

fn lists(list: &SectorList, sector: u64) -> bool {
    list.ranges.iter().any(|(first, count)| (*first..first + count).contains(&sector))
}

/// After any damage a repaired disk opens, and every sector has its newest version, or reads as an error and is listed,
/// or has an older version of its own and is listed as stale.
#[test]
fn repair_of_a_damaged_disk_never_lies() {
    let shapes = Shape::all();
    let (doubtful, gone) = (AtomicU32::new(0), AtomicU32::new(0));
    vellum_sim::check(0..240, |seed| {
        let shape = shapes[seed as usize % shapes.len()];
        let flash = shape.flash(seed);
        let mut rng = SmallRng::seed_from_u64(seed);
        let (disk, versions) = live(shape, &flash, seed, rng.random_range(100..2500));
        disk.flush().unwrap();
        if rng.random() {
            disk.close().unwrap();
        }
        drop(disk);
        let written: Vec<PageAddr> = (0..flash.geometry().blocks())
            .map(BlockAddr)
            .flat_map(|b| (0..flash.report(b).pages_written).map(move |p| b.page(p)))
            .collect();
        for _ in 0..rng.random_range(1..12) {
            let page = written[rng.random_range(0..written.len())];
            match rng.random() {
                true => flash.spoil(page).unwrap(),
                false => flash.flip_bit(page, rng.random()).unwrap_or(()),
            }
        }
        if rng.random() {
            spoil(&flash, ["root", "map_node", "log_node", "directory", "log"][rng.random_range(0..5)]);
        }
        let identity = Format { dedup: shape.dedup, uuid: [1; 16], ..Format::new(shape.sectors()) };
        let report = repaired(&flash, Some(identity));
        let disk = shape.open(&flash).unwrap_or_else(|e| panic!("{shape:?}, seed {seed}: {e}"));
        for (lba, ids) in versions.iter().enumerate() {
            let context = format!("{shape:?}, seed {seed}, sector {lba}, {ids:?}");
            let mut found = [0; SECTOR_BYTES];
            let unreadable = disk.read(Lba(lba as u64), &mut found).is_err();
            let lba = lba as u64;
            let listed = lists(&report.damaged_sectors, lba) || lists(&report.lost_sectors, lba);
            assert_eq!(unreadable, listed, "{context}");
            if !unreadable && found != content(*ids.last().unwrap()) {
                doubtful.fetch_add(1, Relaxed);
                assert!(ids.iter().any(|id| content(*id) == found), "{context}: another's bytes");
                assert!(lists(&report.stale_sectors, lba), "{context}: an old version, unsaid");
            }
            gone.fetch_add(unreadable.into(), Relaxed);
        }
        let check = disk.check(false, |_, _| {}).unwrap();
        assert!(check.is_clean(), "{shape:?}, seed {seed}: {check:?}");
    });
    if std::env::var_os("VELLUM_SEED").is_none() {
        let felt = (doubtful.into_inner(), gone.into_inner());
        assert!(felt.0 > 0 && felt.1 > 0, "the damage must be felt: {felt:?} old versions and errors");
    }
}

/// The newest writes are lost with their pages, and so is the root that covers them: nothing else records them.
#[test]
fn repair_says_that_newer_versions_may_be_gone() {
    let mut felt = 0;
    for shape in Shape::all() {
        let flash = shape.flash(5);
        let (disk, _) = live(shape, &flash, 41, 600);
        disk.close().unwrap();
        drop(disk);
        let before = written_pages(&flash);
        let disk = shape.open(&flash).unwrap();
        (0..40).for_each(|lba| disk.write(Lba(lba), &content(8_000 + lba as u32), false).unwrap());
        disk.close().unwrap();
        drop(disk);
        let new: Vec<PageAddr> = written_pages(&flash).into_iter().filter(|p| !before.contains(p)).collect();
        new.iter().for_each(|page| flash.spoil(*page).unwrap());
        let report = repaired(&flash, None);
        assert!(report.newer_may_be_gone && report.unreadable_pages > 0, "{shape:?}: {report:?}");
        let disk = shape.open(&flash).unwrap();
        for lba in 0..40 {
            let mut found = [0; SECTOR_BYTES];
            if disk.read(Lba(lba), &mut found).is_ok() && found != content(8_000 + lba as u32) {
                felt += 1;
                assert!(lists(&report.stale_sectors, lba), "{shape:?}: sector {lba} is old, unsaid");
            }
        }
    }
    assert!(felt > 0, "no old version came back");
}

/// If the checkpoint is intact and nothing follows it, a page that rots affects only its own sectors.
#[test]
fn repair_blames_a_rotten_page_for_its_own_sectors_only() {
    for shape in Shape::all() {
        let flash = shape.flash(6);
        let (disk, versions) = live(shape, &flash, 42, 900);
        disk.close().unwrap();
        drop(disk);
        let mut felt = 0;
        for page in written_pages(&flash) {
            let kinds = inspect_page(&*flash, page).unwrap();
            if !kinds.slots.iter().any(|s| s.kind == "data")
                || kinds.slots.iter().any(|s| s.kind != "data" && s.kind != "padding")
            {
                continue;
            }
            let rotten = Arc::new(flash.fork().unwrap());
            rotten.spoil(page).unwrap();
            let options = RepairOptions { write: true, identity: None };
            let report = repair(rotten.clone(), RealEnv::new(), &options, |_, _| {}).unwrap();
            let doubts = (report.newer_may_be_gone, report.stale_sectors.count, report.damaged_sectors.count);
            assert_eq!(doubts, (false, 0, 0), "{shape:?}, {page}: {report:?}");
            let disk = shape.open(&rotten).unwrap();
            for (lba, ids) in (0u64..).zip(&versions) {
                let mut found = [0; SECTOR_BYTES];
                let is_lost = lists(&report.lost_sectors, lba);
                assert_eq!(disk.read(Lba(lba), &mut found).is_err(), is_lost, "{shape:?}, {page}");
                assert!(is_lost || found == content(*ids.last().unwrap()), "{shape:?}, {page}, sector {lba}");
            }
            felt += report.lost_sectors.count;
        }
        assert!(felt > 0, "{shape:?}");
    }
}

fn written_pages(flash: &Nand) -> Vec<PageAddr> {
    let blocks = (0..flash.geometry().blocks()).map(BlockAddr);
    blocks.flat_map(|b| (0..flash.report(b).pages_written).map(move |p| b.page(p))).collect()
}

#[test]
fn inspect_finds_what_is_there() {
    let shape = Shape::all()[10];
    let flash = shape.flash(1);
    assert!(inspect(&*flash).unwrap().roots.is_empty());
    let (disk, _) = live(shape, &flash, 31, 900);
    disk.flush().unwrap();
    let used = disk.stat().memory;
    drop(disk);
    let found = inspect(&*flash).unwrap();
    assert_eq!(found.sectors_max, shape.sectors());
    assert_eq!(found.roots[0].sectors, shape.sectors());
    assert!(found.roots.is_sorted_by_key(|r| std::cmp::Reverse(r.seq)));
    let tree = found.tree.unwrap();
    assert_eq!((tree.map_nodes, tree.directories, tree.unreadable), (1, 1, 0));
    assert!(tree.log_nodes == 1 && tree.log_slots > 0, "{tree:?}");
    let nvram = found.nvram.unwrap();
    assert!(nvram.is_used && nvram.durable_seq > found.roots[0].seq, "{nvram:?}");
    let (claimed, measured) = (found.memory_bytes.unwrap(), (used.map_bytes + used.other_bytes) as u64);
    assert!(claimed.abs_diff(measured) < measured / 3, "claims {claimed} bytes, takes {measured}");
    let root = inspect_page(&*flash, BlockAddr(found.roots[0].block).page(found.roots[0].page)).unwrap();
    assert_eq!(
        (root.slots[0].kind, root.slots[0].seq, root.slots[0].checks_out),
        ("root", found.roots[0].seq, true)
    );
    assert_eq!(root.slots[1].kind, "nothing");
    assert!(inspect_page(&*flash, BlockAddr(4000).page(0)).is_err());
    assert!(inspect(&Nand::ram(tiny(4096), Default::default()).unwrap()).unwrap().nvram.is_none());
}
