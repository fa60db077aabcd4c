//! The log of an SSD that cannot be read everywhere.

use super::degraded::{options, put_off, with_world, write};
use super::world::Model;
use crate::harness::Kind;
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::CacheOptions;
use vellum_base::{BlockDevice, Lba};

/// Of the log of an SSD only what counts need be read.
#[test]
fn a_sector_of_the_log_that_does_not_count_empties_no_cache() {
    for with_nvram in [false, true] {
        with_world(Kind::all()[2], Scheme::KddPaper, 10, |world| {
            let world = if with_nvram { world.with_nvram() } else { world };
            let cached = world.attach(options());
            let mut model = Model::new(cached.info().sectors);
            put_off(&cached, &mut model, 8);
            cached.close().unwrap();
            world.ssd.make_unreadable(Lba(3));
            let cached = world.open(&[1], options());
            assert_eq!(cached.status().emptied, None);
            model.assert_holds(&cached, &[], "nothing is lost");
        });
    }
}

/// The last page of the log may be what cannot be read.
#[test]
fn a_log_whose_end_cannot_be_read_does_not_count() {
    with_world(Kind::all()[2], Scheme::KddPaper, 11, |world| {
        let cached = world.attach(options());
        write(&cached, &mut Model::new(cached.info().sectors), 0, 1, true);
        cached.close().unwrap();
        let cached = world.open(&[], options());
        write(&cached, &mut Model::new(cached.info().sectors), 5, 1, true);
        cached.close().unwrap();
        world.ssd.make_unreadable(Lba(2));
        assert!(world.open(&[], options()).status().emptied.unwrap().contains("its last"));
    });
}

/// A cache that may be all that has sectors of a missing member is not emptied but by force.
#[test]
fn a_cache_that_a_missing_member_needs_is_not_emptied_unasked() {
    with_world(Kind::all()[2], Scheme::KddPaper, 12, |world| {
        let cached = world.attach(options());
        let mut model = Model::new(cached.info().sectors);
        put_off(&cached, &mut model, 8);
        cached.close().unwrap();
        world.ssd.make_unreadable(Lba(1));
        assert!(world.foresee(&[1]).is_err());
        let refused = world.try_open(&[1], options()).err().expect("it is all that has them").to_string();
        assert!(refused.contains("by force") && refused.contains("8 rows"), "{refused}");
        let forced = CacheOptions { without_cache: true, ..options() };
        assert!(world.try_open(&[1], forced).unwrap().status().emptied.is_some());
    });
}
