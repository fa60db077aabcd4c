//! Rot, and devices that misreport what they stored.

use super::*;

#[test]
fn rot_damages_exactly_the_sectors_of_the_page() {
    for shape in Shape::all() {
        let (flash, disk, oracle) = lived(shape, 7, 900);
        let mut rng = SmallRng::seed_from_u64(3);
        let pages = written_pages(&flash);
        let mut hit = 0;
        for n in 0..12 {
            let page = pages[rng.random_range(0..pages.len())];
            match n % 2 {
                0 => flash.spoil(page).unwrap(),
                _ => match flash.flip_bit(page, rng.random_range(0..1 << 17)) {
                    Ok(()) | Err(FlashError::Uncorrectable(_)) => {}
                    Err(e) => panic!("{e}"),
                },
            }
            let context = format!("{shape:?}, rot {n} in {page}");
            let damaged = oracle.damaged(&disk, &context);
            let report = disk.check(true, |_, _| {}).unwrap();
            assert_eq!(report.damaged_sectors.iter().copied().collect::<BTreeSet<_>>(), damaged, "{context}");
            assert_eq!(report.damaged_count, damaged.len() as u64, "{context}");
            hit = damaged.len();
        }
        assert!(hit > 0, "{shape:?}: some page with data must be hit");
        // Sectors are intact again once overwritten.
        for lba in oracle.damaged(&disk, "before the cure") {
            disk.write(Lba(lba), &content(4000), false).unwrap();
            assert!(read(&disk, lba) == content(4000));
        }
    }
}

/// Damage stays damage when collection moves it, and after another opening.
#[test]
fn damage_stays_visible_through_collection_and_reopening() {
    for shape in Shape::all() {
        let (flash, disk, mut oracle) = lived(shape, 9, 900);
        let mut rng = SmallRng::seed_from_u64(5);
        let pages = written_pages(&flash);
        (0..4).for_each(|_| flash.spoil(pages[rng.random_range(0..pages.len())]).unwrap());
        let damaged = oracle.damaged(&disk, "at first");
        let safe: Vec<u64> = (24..sectors(shape)).filter(|l| !damaged.contains(l)).collect();
        for _ in 0..1500 {
            let lba = safe[rng.random_range(0..safe.len())];
            oracle.write(&disk, lba, rng.random_range(1..5000)).unwrap();
        }
        let context = format!("{shape:?}");
        assert_eq!(oracle.damaged(&disk, &context), damaged, "{context}");
        disk.close().unwrap();
        drop(disk);
        match shape.open(&flash) {
            Ok(disk) => assert_eq!(oracle.damaged(&disk, &context), damaged, "{context}, opened again"),
            // An unreadable log slot may hold more than sectors: that requires `repair`.
            Err(e) => assert_eq!(e.kind(), Kind::Corrupt, "{context}: {e}"),
        }
    }
}

/// Every page in turn rots while the disk is closed, or has crashed: sectors are right or damaged, never outdated. (The
/// last page of a block that was not closed cannot be distinguished from a torn one.)
fn rot_while_down(closes: bool) {
    for shape in Shape::all() {
        let (flash, disk, oracle) = lived(shape, 11, 400);
        if closes {
            disk.close().unwrap();
        }
        drop(disk);
        let mut refused = 0;
        let mut pages = written_pages(&flash);
        pages.retain(|page| closes || page.page + 1 < flash.report(page.block).pages_written);
        for page in &pages {
            let rotten = Arc::new(flash.fork().unwrap());
            rotten.spoil(*page).unwrap();
            match shape.open(&rotten) {
                Ok(disk) => drop(oracle.damaged(&disk, &format!("{shape:?}, {page} rotten"))),
                Err(e) => {
                    assert_eq!(e.kind(), Kind::Corrupt, "{shape:?}, {page} rotten: {e}");
                    refused += 1;
                }
            }
        }
        // After a clean close only metadata is that important.
        assert!(!closes || refused * 4 < pages.len(), "{shape:?}: {refused} of {} pages", pages.len());
    }
}

#[test]
fn rot_of_a_closed_disk_never_brings_back_old_versions() {
    rot_while_down(true);
}

#[test]
fn rot_of_a_crashed_disk_never_brings_back_old_versions() {
    rot_while_down(false);
}

fn bit_error_device(shape: Shape, seed: u64, bit_errors: BitErrors) -> (Arc<Nand>, Disk) {
    let wear = Wear { bit_errors: Some(bit_errors), ..Wear::default() };
    let params = NandParams { wear, ..shape.params(seed) };
    let flash = Arc::new(Nand::ram(tiny(shape.page_bytes), params).unwrap());
    format(shape, &flash);
    let disk = shape.open(&flash).unwrap();
    (flash, disk)
}

#[test]
fn scrub_refreshes_what_had_to_be_corrected() {
    for shape in Shape::all() {
        let errors = BitErrors { rate_fresh: 4e-4, rate_rated: 4e-4, correctable: 18, alike_factor: 1.0 };
        let (_flash, disk) = bit_error_device(shape, 1, errors);
        let mut oracle = Oracle::new(shape);
        let mut rng = SmallRng::seed_from_u64(1);
        (0..500).for_each(|_| step(&disk, &mut oracle, &mut rng).unwrap());
        let before = disk.ledger();
        let report = disk.scrub(|_, _| {}).unwrap();
        assert!(report.is_clean() && report.refreshed > 0, "{shape:?}: {report:?}");
        let moved = disk.ledger().since(&before).programmed_by(vellum_base::Cause::Refresh);
        assert_eq!(moved, report.refreshed * SECTOR_BYTES as u64, "{shape:?}");
        oracle.assert_newest(&disk, &format!("{shape:?}"));
        assert_sound(&disk);
    }
}

/// Flash that is worn everywhere is scrubbed in repeated passes, without host writes that would cause collection.
#[test]
fn scrubbing_a_quiet_worn_disk_says_what_it_moves_and_leaves_room() {
    for shape in Shape::all() {
        let errors = BitErrors { rate_fresh: 4e-4, rate_rated: 4e-4, correctable: 18, alike_factor: 1.0 };
        let (_flash, disk) = bit_error_device(shape, 2, errors);
        let all = sectors(shape);
        (0..all).for_each(|lba| disk.write(Lba(lba), &content(1 + lba as u32), false).unwrap());
        disk.flush().unwrap();
        let before = disk.ledger();
        let mut moved = 0;
        for pass in 0..8 {
            let report = disk.scrub(|_, _| {}).unwrap();
            assert!(report.is_clean(), "{shape:?}, pass {pass}: {report:?}");
            assert!(report.refreshed < report.slots_read / 2, "{shape:?}, pass {pass}: {report:?}");
            moved += report.refreshed;
            let programmed = disk.ledger().since(&before).programmed_by(vellum_base::Cause::Refresh);
            assert_eq!(programmed, moved * SECTOR_BYTES as u64, "{shape:?}, pass {pass}");
        }
        assert!(moved > 0, "{shape:?}");
        (0..all).for_each(|lba| disk.write(Lba(lba), &content(5000 + lba as u32), false).unwrap());
        disk.flush().unwrap();
        (0..all).for_each(|lba| assert!(read(&disk, lba) == content(5000 + lba as u32), "{shape:?}, {lba}"));
        assert_sound(&disk);
        disk.close().unwrap();
    }
}

#[test]
fn uncorrectable_bits_are_damage_even_while_collecting() {
    vellum_sim::check(0..24, |seed| {
        let shape = shape_of(seed);
        let errors = BitErrors { rate_fresh: 4e-5, rate_rated: 5e-5, correctable: 2, alike_factor: 1.0 };
        let (flash, disk) = bit_error_device(shape, seed, errors);
        let mut oracle = Oracle::new(shape);
        let mut rng = SmallRng::seed_from_u64(seed);
        for _ in 0..2500 {
            step(&disk, &mut oracle, &mut rng).unwrap_or_else(|e| panic!("{shape:?}: {e}"));
        }
        let damaged = oracle.damaged(&disk, &format!("{shape:?}, seed {seed}"));
        assert!(flash.counters().reads_uncorrectable > 0, "{shape:?}: {damaged:?}");
    });
}

/// The device reports a program as done, but stored nothing, or elsewhere.
fn lied_to(seed: u64, misdirected: bool) {
    let shape = shape_of(seed);
    let (flash, disk, mut oracle) = lived(shape, seed, 300);
    let mut rng = SmallRng::seed_from_u64(seed);
    let pages = written_pages(&flash);
    let to = pages[rng.random_range(0..pages.len())];
    let fault = if misdirected { Fault::ProgramMisdirected { to } } else { Fault::ProgramLost };
    flash.arm(rng.random_range(1..20), fault);
    for _ in 0..60 {
        match step(&disk, &mut oracle, &mut rng) {
            Ok(()) => {}
            Err(e) => assert_eq!(e.kind(), Kind::Corrupt, "{shape:?}, seed {seed}: {e}"),
        }
    }
    oracle.damaged(&disk, &format!("{shape:?}, seed {seed}"));
}

#[test]
fn lost_programs_never_read_as_something_else() {
    vellum_sim::check(0..120, |seed| lied_to(seed, false));
}

#[test]
fn misdirected_programs_never_read_as_something_else() {
    vellum_sim::check(0..120, |seed| lied_to(seed, true));
}
