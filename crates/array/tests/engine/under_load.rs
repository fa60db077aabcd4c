//! What is asked for beside requests comes to an end while requests go on.

use super::world::{DEFERRING, World, content};
use crate::harness::Kind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::{CacheOptions, CachedArray};
use vellum_base::{BlockDevice, Env, Lba, Nanos, SECTOR_BYTES, Task};
use vellum_media::RamDisk;
use vellum_sim::Sim;

const CLIENTS: u64 = 8;
/// Hot sectors of each client, each in a row of its own: all of them are in the cache.
const SECTORS: u64 = 2;
/// A client gives up then: what it was to be done beside has not come to an end.
const REQUESTS_MAX: u32 = 3000;

/// Overwrites hot sectors, and reads others, until it is told to stop.
fn client(cached: &CachedArray, client: u64, stop: &AtomicBool) -> bool {
    let mut out = vec![0; SECTOR_BYTES];
    let row_sectors = cached.array().status().shape.row_sectors();
    for id in 1..REQUESTS_MAX {
        if stop.load(Relaxed) {
            return true;
        }
        let lba = (client * SECTORS + u64::from(id) % SECTORS) * row_sectors + client % 3;
        cached.write(Lba(lba), &content(lba, id), false).unwrap();
        cached.read(Lba(cached.info().sectors / 2 + u64::from(id) * 7 % 40), &mut out).unwrap();
    }
    false
}

/// Clients overwrite, then `work` is done, then they are told to stop: they must not have given up before.
fn beside(scheme: Scheme, work: impl Fn(&World, &CachedArray)) {
    let sim = Sim::new(5);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let world = World::new(Kind::all()[0], scheme, env.clone(), 5);
        let options = CacheOptions { idle_after: Nanos(1_000_000_000_000), ..CacheOptions::default() };
        let cached = Arc::new(world.attach(options));
        let (stop, stopped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let tasks = (0..CLIENTS).map(|which| {
            let (cached, stop, stopped) = (cached.clone(), stop.clone(), stopped.clone());
            let run = move || {
                let was_told = client(&cached, which, &stop);
                stopped.fetch_add(was_told.into(), Relaxed);
            };
            env.clone().spawn("client", Box::new(run))
        });
        let tasks: Vec<Task> = tasks.collect();
        env.sleep_until(env.now() + Nanos(3_000_000));
        work(&world, &cached);
        stop.store(true, Relaxed);
        tasks.into_iter().for_each(Task::join);
        assert_eq!(stopped.load(Relaxed), CLIENTS, "{scheme:?}: it took until the load was over");
    });
}

#[test]
fn all_rows_are_cleaned() {
    for scheme in DEFERRING {
        beside(scheme, |_, cached| {
            assert!(cached.status().stale_rows > 0, "{scheme:?}");
            cached.clean_all(|_| true).unwrap();
        });
    }
}

#[test]
fn the_ssd_is_detached_and_nothing_is_stale() {
    for scheme in DEFERRING {
        beside(scheme, |_, cached| {
            cached.detach(|_| true).unwrap();
            assert_eq!(cached.status().stale_rows, 0, "{scheme:?}");
        });
        beside(scheme, |_, cached| {
            cached.detach_by_force(|_| true).unwrap();
            assert_eq!(cached.status().stale_rows, 0, "{scheme:?}");
        });
    }
}

#[test]
fn a_degraded_array_is_flushed() {
    for scheme in DEFERRING {
        beside(scheme, |_, cached| {
            cached.array().fail(1).unwrap();
            (0..3).for_each(|_| cached.flush().unwrap());
        });
    }
}

#[test]
fn a_member_is_failed_and_another_filled() {
    for scheme in DEFERRING {
        beside(scheme, |world, cached| {
            assert!(cached.fail(1, |_| true).unwrap());
            let new = RamDisk::new(world.ssd.info().sectors + 2000, &world.rig.power);
            cached.array().add(world.rig.device(&new), false).unwrap();
            let rebuilt = cached.rebuild(false, |_| true).unwrap();
            assert!(rebuilt.complete && rebuilt.lost.is_empty(), "{scheme:?}");
        });
    }
}
