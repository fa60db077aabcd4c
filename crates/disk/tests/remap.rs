//! Remaps that the host asks for.

use crate::harness::{Shape, assert_sound, content, read};
use vellum_base::{BlockDevice, Kind, Lba};

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
