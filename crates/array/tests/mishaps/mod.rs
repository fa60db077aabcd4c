//! Arrays to which anything happens, in any order: disks that take no writes or no flushes, fail single calls, or have
//! sectors that cannot be read, or not be written either; members out, in, rebuilt and replaced; openings amid all
//! that, the end of an array, cuts of the power. Whatever it was: who is well again is an array that can be opened,
//! and every sector holds what was acknowledged.

mod clients;
mod disk;
mod host;
mod steps;
mod world;

use crate::harness::Kind;

/// One client, and one thing after the other.
#[test]
fn whatever_fails_nothing_that_was_acknowledged_is_lost() {
    vellum_sim::check(0..120, |seed| steps::run(kind_of(seed), seed));
}

/// Clients write all the time, with calls that take long, while things happen.
#[test]
fn whatever_fails_under_load_nothing_that_was_acknowledged_is_lost() {
    vellum_sim::check(0..165, |seed| clients::run(kind_of(seed), seed));
}

/// Each kind with and without cuts of the power.
fn kind_of(seed: u64) -> Kind {
    let kinds = Kind::all();
    kinds[(seed / 2) as usize % kinds.len()]
}
