//! Remaps requested by the host.

use crate::harness::{Shape, assert_sound, content, read};
use vellum_base::{BlockDevice, Flash, Kind, Lba};

/// More sectors than may share a place: some get a copy of their own.
#[test]
fn one_sector_shown_at_many_places() {
    for shape in Shape::all() {
        let flash = shape.flash(1);
        shape.format(&flash);
        let disk = shape.open(&flash).unwrap();
        disk.write(Lba(0), &content(5), false).unwrap();
        let places = 30..shape.sectors().min(330);
        let shared: u64 = places.clone().map(|to| disk.remap(Lba(0), Lba(to), 1).unwrap()).sum();
        let many = places.end - places.start;
        assert!(shared == many || many > 250 && shared > 240, "{shape:?}: {shared} of {many} share");
        disk.write(Lba(0), &content(6), false).unwrap();
        disk.trim(Lba(30), 5).unwrap();
        disk.close().unwrap();
        drop(disk);
        let disk = shape.open(&flash).unwrap();
        assert!(read(&disk, 0) == content(6) && read(&disk, 30) == content(0));
        assert!((35..places.end).all(|at| read(&disk, at) == content(5)), "{shape:?}");
        assert_sound(&disk);
    }
}

#[test]
fn ranges_that_overlap_or_lie_outside_are_refused() {
    let shape = Shape::all()[0];
    let flash = shape.flash(1);
    shape.format(&flash);
    let disk = shape.open(&flash).unwrap();
    let end = shape.sectors();
    for (from, to, sectors) in
        [(5, 7, 3), (7, 5, 3), (5, 5, 1), (end - 1, 0, 2), (0, end - 1, 2), (0, u64::MAX, 1)]
    {
        assert_eq!(
            disk.remap(Lba(from), Lba(to), sectors).unwrap_err().kind(),
            Kind::Invalid,
            "{from} {to} {sectors}"
        );
    }
    assert_eq!(disk.remap(Lba(5), Lba(7), 2).unwrap(), 2);
}

/// The record of a remap contains the checksum of its sector, which is known if that was just read.
#[test]
fn what_was_just_read_is_not_read_again() {
    for shape in Shape::all() {
        let flash = shape.flash(1);
        shape.format(&flash);
        let disk = shape.open(&flash).unwrap();
        (0..16).for_each(|at| disk.write(Lba(at), &content(at as u32 + 1), false).unwrap());
        disk.close().unwrap();
        drop(disk);
        let disk = shape.open(&flash).unwrap();
        assert!((0..8).all(|at| read(&disk, at) == content(at as u32 + 1)), "{shape:?}");
        let reads_of = |mut range: std::ops::Range<u64>| {
            let before = flash.counters().pages_read;
            assert!(range.all(|at| disk.remap(Lba(at), Lba(at + 20), 1).unwrap() == 1), "{shape:?}");
            flash.counters().pages_read - before
        };
        // A policy with journals looks for them again.
        assert!(reads_of(0..8) <= 2, "{shape:?}");
        assert!(reads_of(8..16) > 4, "{shape:?}: what was not read is");
        assert!((0..16).all(|at| read(&disk, at + 20) == content(at as u32 + 1)), "{shape:?}");
        assert_sound(&disk);
    }
}
