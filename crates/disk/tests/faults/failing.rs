//! Programs and erases that fail, alone and together with power cuts.

use super::*;
use crate::harness::Steady;

/// A history with up to eight failing operations.
fn live_with_failures(seed: u64) -> usize {
    let shape = shape_of(seed);
    let flash = shape.flash(seed);
    format(shape, &flash);
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut oracle = Oracle::new(shape);
    let mut disk = shape.open(&flash).unwrap();
    for part in 0..8 {
        let fault = if rng.random() { Fault::ProgramFails } else { Fault::EraseFails };
        flash.arm(rng.random_range(1..if fault == Fault::EraseFails { 8 } else { 60 }), fault);
        for _ in 0..150 {
            step(&disk, &mut oracle, &mut rng).unwrap_or_else(|e| panic!("{shape:?}, part {part}: {e}"));
        }
        flash.disarm();
        let context = format!("{shape:?}, seed {seed}, part {part}");
        oracle.assert_newest(&disk, &context);
        assert_sound(&disk);
        if part % 3 == 2 {
            disk.close().unwrap();
            drop(disk);
            disk = shape.open(&flash).unwrap_or_else(|e| panic!("{context}: {e}"));
            oracle.assert_newest(&disk, &context);
            assert_sound(&disk);
        }
    }
    bad_blocks(&flash)
}

#[test]
fn failing_programs_and_erases_lose_nothing() {
    let hits = AtomicUsize::new(0);
    vellum_sim::check(0..48, |seed| {
        hits.fetch_add(live_with_failures(seed), Relaxed);
    });
    // A single seed may have none.
    assert!(vellum_sim::seed_from_env().is_some() || hits.into_inner() > 2, "the faults must hit");
}

/// Random failures of programs and erases on a device with factory bad blocks, until the spare is used up.
fn wear_out(seed: u64) {
    let shape = shape_of(seed);
    let wear = Wear { program_failure: 0.004, erase_failure: 0.01, bit_errors: None };
    let params = NandParams { factory_bad_share: 0.05, wear, ..shape.params(seed) };
    let flash = Arc::new(Nand::ram(tiny(shape.page_bytes), params).unwrap());
    let factory = bad_blocks(&flash);
    let sectors = vellum_disk::sectors_max(&tiny(shape.page_bytes), factory as u32 + 3);
    let make = Format { dedup: shape.dedup, uuid: [1; 16], ..Format::new(sectors) };
    Disk::format(flash.clone(), RealEnv::new(), &make).unwrap();
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut oracle = Oracle { versions: vec![vec![0]; sectors as usize] };
    let disk = shape.open(&flash).unwrap();
    let refusal = (0..40_000).find_map(|_| step(&disk, &mut oracle, &mut rng).err());
    let refusal = refusal.unwrap_or_else(|| panic!("{shape:?}, seed {seed}: the spare must run out"));
    assert_eq!(refusal.kind(), Kind::NoSpace, "{shape:?}, seed {seed}: {refusal}");
    assert!(bad_blocks(&flash) > factory);
    after_the_spare_is_gone(shape, seed, &flash, disk, oracle);
}

/// Everything can still be read, trimmed, and read after another opening.
fn after_the_spare_is_gone(shape: Shape, seed: u64, flash: &Arc<Nand>, disk: Disk, mut oracle: Oracle) {
    let context = format!("{shape:?}, seed {seed}, {} bad blocks", bad_blocks(flash));
    let mut now = oracle.clone();
    now.settle(&disk, &context);
    let report = disk.check(true, |_, _| {}).unwrap();
    assert!(report.is_clean(), "{context}: {report:?}");
    let half = oracle.versions.len() as u64 / 2;
    now.trim(&disk, half, half).unwrap_or_else(|e| panic!("{context}: trim: {e}"));
    now.assert_newest(&disk, &context);
    match disk.flush() {
        Ok(()) => oracle = now,
        Err(e) => assert_eq!(e.kind(), Kind::NoSpace, "{context}: flush: {e}"),
    }
    oracle.versions[half as usize..].iter_mut().for_each(|v| v.push(0));
    drop(disk);
    let disk = shape.open(flash).unwrap_or_else(|e| panic!("{context}: {e}"));
    oracle.settle(&disk, &context);
    assert_sound(&disk);
}

#[test]
fn when_the_spare_is_used_up_reads_and_trims_go_on() {
    vellum_sim::check(0..36, wear_out);
}

/// Erases fail until a write finds no room; then the flash works again, and three quarters of the disk are trimmed.
fn recover_by_trimming(seed: u64) {
    let shape = shape_of(seed);
    let flash = shape.flash(seed);
    format(shape, &flash);
    let disk = shape.open(&flash).unwrap();
    let mut oracle = Oracle::new(shape);
    let mut rng = SmallRng::seed_from_u64(seed);
    let context = format!("{shape:?}, seed {seed}");
    let refusal = (0..40_000).find_map(|n| {
        if n % 40 == 0 {
            flash.arm(1, Fault::EraseFails);
        }
        step(&disk, &mut oracle, &mut rng).err()
    });
    let refusal = refusal.unwrap_or_else(|| panic!("{context}: the spare must run out"));
    assert_eq!(refusal.kind(), Kind::NoSpace, "{context}: {refusal}");
    flash.disarm();
    oracle.settle(&disk, &context);
    let (kept, end) = (oracle.versions.len() as u64 / 4, oracle.versions.len() as u64);
    oracle.trim(&disk, kept, end - kept).unwrap();
    disk.flush().unwrap_or_else(|e| panic!("{context}: flush: {e}"));
    oracle.flushed();
    let rewritten = 24..kept;
    for n in 0..2_000 {
        let lba = rng.random_range(rewritten.clone());
        oracle.write(&disk, lba, n * 8 + 5).unwrap_or_else(|e| panic!("{context}: write {n}: {e}"));
    }
    oracle.assert_newest(&disk, &context);
    assert_sound(&disk);
}

#[test]
fn a_disk_that_ran_out_of_spare_goes_on_once_it_is_trimmed() {
    vellum_sim::check(0..8, recover_by_trimming);
}

/// Programs fail until none succeeds: the page whose slots are then only in memory and NVRAM survives reopenings.
fn restart_without_a_page(seed: u64) {
    let shape = shape_of(seed);
    let flash = shape.flash(seed);
    format(shape, &flash);
    let mut disk = shape.open(&flash).unwrap();
    let mut oracle = Oracle::new(shape);
    let mut rng = SmallRng::seed_from_u64(seed);
    let context = format!("{shape:?}, seed {seed}");
    let refusal = (0..40_000).find_map(|n| {
        if n > 200 {
            flash.arm(1, Fault::ProgramFails);
        }
        step(&disk, &mut oracle, &mut rng).err()
    });
    let refusal = refusal.unwrap_or_else(|| panic!("{context}: the spare must run out"));
    assert_eq!(refusal.kind(), Kind::NoSpace, "{context}: {refusal}");
    for _ in 0..3 {
        drop(disk);
        flash.arm(1, Fault::ProgramFails);
        disk = shape.open(&flash).unwrap_or_else(|e| panic!("{context}: {e}"));
        flash.disarm();
        oracle.settle(&disk, &context);
        assert_sound(&disk);
    }
}

#[test]
fn a_disk_without_a_page_left_opens() {
    vellum_sim::check(0..400, restart_without_a_page);
}

/// Failing operations and power cuts in one history.
fn cut_with_failures(seed: u64) {
    let shape = shape_of(seed);
    let flash = shape.flash(seed);
    format(shape, &flash);
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut oracle = Oracle::new(shape);
    for life in 0..6 {
        let context = format!("{shape:?}, seed {seed}, life {life}");
        let disk = loop {
            flash.power_on();
            if rng.random_bool(0.3) {
                flash.power_cut_at(rng.random_range(1..6));
            }
            match shape.open(&flash) {
                Ok(disk) if !flash.is_off() => break disk,
                Ok(_) => {}
                Err(e) if e.kind() == Kind::PowerLost => {}
                Err(e) => panic!("{context}: {e}"),
            }
        };
        flash.disarm();
        oracle.settle(&disk, &context);
        assert_sound(&disk);
        let fault = if rng.random() { Fault::ProgramFails } else { Fault::EraseFails };
        flash.arm(rng.random_range(1..if fault == Fault::EraseFails { 4 } else { 30 }), fault);
        let cut_at = rng.random_range(1..60);
        flash.power_cut_at(cut_at);
        for _ in 0..400 {
            match step(&disk, &mut oracle, &mut rng) {
                Ok(()) => {}
                Err(e) if e.kind() == Kind::PowerLost => break,
                Err(e) => panic!("{context}: {e}"),
            }
        }
    }
}

#[test]
fn cuts_together_with_failures_lose_nothing_flushed() {
    vellum_sim::check(0..400, cut_with_failures);
}

/// Found once in 6,000 runs: a block whose only page was torn, half erased while the disk was opened. The page was no
/// longer the last written one as reported, and by then older than the flushed data: it was trusted without being read.
#[test]
fn regression_2_a_torn_page_in_a_half_erased_block() {
    cut_with_failures(6633);
}

/// A full disk, flushed to NVRAM after every write. The power is cut six times, while the page is being programmed
/// whose first slots are in NVRAM: soon after opening, so that the disk has no time to regain the room taken by the
/// opening, and half of the time again during the opening.
fn cut_a_full_disk(shape: (u32, u32, u32, u32), full_percent: u64, seed: u64) {
    let context = format!("{shape:?}, {full_percent} % full, seed {seed}");
    let (dies, blocks_per_die, pages_per_block, page_bytes) = shape;
    let (dies_per_channel, oob_bytes) = (1, 32 * page_bytes / 4096);
    let geometry =
        Geometry { channels: dies, dies_per_channel, blocks_per_die, pages_per_block, page_bytes, oob_bytes };
    let params = NandParams { seed, nvram_bytes: 1 << 20, ..NandParams::default() };
    let flash = Arc::new(Nand::ram(geometry, params).unwrap());
    let sectors = vellum_disk::sectors_max(&geometry, 0) * full_percent / 100;
    Disk::format(flash.clone(), Steady::new(1), &Format::new(sectors)).unwrap();
    let open = || Disk::open(flash.clone(), Steady::new(1), Options::default());
    let mut disk = open().unwrap();
    let mut oracle = Oracle { versions: vec![vec![0]; sectors as usize] };
    let mut rng = SmallRng::seed_from_u64(seed);
    (0..sectors).for_each(|lba| oracle.write(&disk, lba, lba as u32 * 8 + 5).unwrap());
    for n in 0..8_000 {
        oracle.write(&disk, rng.random_range(0..sectors), n * 8 + 3).unwrap();
    }
    disk.flush().unwrap();
    oracle.flushed();
    let mut n = 8_000;
    for within in [200, 4, 4, 40, 2, 8] {
        flash.power_cut_at(rng.random_range(1..=within));
        let lost = loop {
            n += 1;
            match oracle.write(&disk, rng.random_range(0..sectors), n * 8 + 4).and_then(|()| disk.flush()) {
                Ok(()) => oracle.flushed(),
                Err(e) => break e,
            }
        };
        assert_eq!(lost.kind(), Kind::PowerLost, "{context}: {lost}");
        drop(disk);
        flash.power_on();
        if rng.random() {
            flash.power_cut_at(rng.random_range(1..12));
            drop(open());
            flash.disarm();
            flash.power_on();
        }
        disk = open().unwrap_or_else(|e| panic!("{context}: {e}"));
        oracle.settle(&disk, &context);
    }
    assert_sound(&disk);
}

#[test]
fn what_nvram_holds_of_a_torn_page_is_not_collected_before_it_is_rescued() {
    let shapes = [(2, 20, 16, 16384), (1, 60, 32, 8192), (1, 40, 16, 16384), (4, 30, 8, 16384)];
    for shape in shapes {
        vellum_sim::check(0..24, |seed| cut_a_full_disk(shape, if seed % 4 < 2 { 100 } else { 85 }, seed));
    }
}
