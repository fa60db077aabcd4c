//! A member is out: what is durable, and what a cut costs then.

use super::world::{DEFERRING, Model, World, content};
use crate::harness::Kind;
use std::sync::Arc;
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::{CacheOptions, CachedArray};
use vellum_base::{BlockDevice, Env, Lba, Nanos};
use vellum_sim::Sim;

/// No row is cleaned but when somebody needs it.
fn options() -> CacheOptions {
    CacheOptions { dirty_high: 0.9, idle_after: Nanos(1 << 60), ..CacheOptions::default() }
}

fn with_world(kind: Kind, scheme: Scheme, seed: u64, test: impl FnOnce(World)) {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| test(World::new(kind, scheme, env.clone(), seed)));
}

/// Writes a version of a sector.
fn write(cached: &CachedArray, model: &mut Model, lba: u64, id: u32, fua: bool) {
    model.wrote(lba, id);
    cached.write(Lba(lba), &content(lba, id), fua).unwrap();
}

/// A row whose parity was put off is made whole for a write, or a row of zeros, that is durable when it is answered.
#[test]
fn a_write_to_a_stale_row_that_is_to_be_durable_outlives_a_cut_without_a_member() {
    for (seed, kind) in (0..).zip(Kind::all()) {
        for (scheme, zeros) in DEFERRING.iter().flat_map(|scheme| [(*scheme, false), (*scheme, true)]) {
            with_world(kind, scheme, seed, |world| {
                let cached = world.attach(options());
                let shape = cached.array().status().shape;
                let mut model = Model::new(shape.sectors());
                [5, 10, 15].into_iter().for_each(|id| write(&cached, &mut model, 0, id, false));
                assert_eq!(cached.array().stale_rows(0, 10), [0], "{kind:?}, {scheme:?}");
                cached.flush().unwrap();
                let role = shape.member_of(0, 0);
                cached.array().fail(role).unwrap();
                if zeros {
                    (0..shape.row_sectors()).for_each(|lba| model.wrote(lba, 0));
                    cached.write_zeroes(Lba(0), shape.row_sectors(), true).unwrap();
                } else {
                    write(&cached, &mut model, 0, 20, true);
                }
                drop(cached);
                let cached = world.after_cut(seed).open(&[role], options());
                model.assert_holds(&cached, &[], &format!("{kind:?}, {scheme:?}, zeros: {zeros}"));
            });
        }
    }
}
