//! Failing programs: wherever it happens, even while a checkpoint is written, nothing is lost.

use crate::harness::{Shape, assert_sound, content, read};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::{BlockDevice, Lba, RealEnv};
use vellum_disk::{Disk, Options};
use vellum_media::nand::{Fault, Nand};

/// Writes with a checkpoint every few events, while the `nth` program fails; then verifies everything.
fn one_failure(shape: Shape, formatted: &Nand, nth: u64) {
    let context = format!("{shape:?}, program {nth} fails");
    let flash = Arc::new(formatted.fork().unwrap());
    let options = Options { checkpoint_events: 24, ..shape.options() };
    let disk = Disk::open(flash.clone(), RealEnv::new(), options).unwrap();
    let mut rng = SmallRng::seed_from_u64(nth);
    let mut oracle = vec![0; shape.sectors() as usize];
    flash.arm(nth, Fault::ProgramFails);
    for step in 0..400 {
        let lba = if step % 4 == 0 { rng.random_range(0..24) } else { rng.random_range(24..200) };
        let id = rng.random_range(1..5000);
        disk.write(Lba(lba), &content(id), false).unwrap_or_else(|e| panic!("{context}: {e}"));
        oracle[lba as usize] = id;
    }
    disk.flush().unwrap();
    drop(disk);
    let disk = shape.open(&flash).unwrap_or_else(|e| panic!("{context}: {e}"));
    for (lba, id) in (0..).zip(&oracle) {
        assert!(read(&disk, lba) == content(*id), "{context}: sector {lba}");
    }
    assert_sound(&disk);
}

#[test]
fn a_program_that_fails_loses_nothing() {
    for shape in Shape::all().into_iter().filter(|shape| shape.page_bytes > 4096) {
        let formatted = shape.flash(5);
        shape.format(&formatted);
        (1..160).for_each(|nth| one_failure(shape, &formatted, nth));
    }
}

#[test]
fn every_opening_that_found_no_clean_close_is_counted() {
    for shape in Shape::all() {
        let flash = shape.flash(1);
        shape.format(&flash);
        for round in 0..3 {
            let disk = shape.open(&flash).unwrap();
            disk.write(Lba(30), &content(3 + round), false).unwrap();
            disk.flush().unwrap();
            drop(disk); // killed
        }
        let disk = shape.open(&flash).unwrap();
        assert_eq!((disk.stat().smart.power_cycles, disk.stat().smart.unsafe_shutdowns), (4, 3), "{shape:?}");
    }
}
