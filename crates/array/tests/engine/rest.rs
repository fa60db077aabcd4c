//! What goes on when nothing goes on: rows are cleaned, the members hear of it, and then nobody does anything.

use super::world::{World, content};
use crate::harness::Kind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::{CacheOptions, CachedArray};
use vellum_base::{BlockDevice, Env, Lba, Nanos, SECTOR_BYTES, Task};
use vellum_sim::Sim;

const MILLISECOND: u64 = 1_000_000;

/// Counts how often somebody asks for the time.
struct Watched {
    env: Arc<dyn Env>,
    asked: Arc<AtomicU64>,
}

impl Env for Watched {
    fn now(&self) -> Nanos {
        self.asked.fetch_add(1, Relaxed);
        self.env.now()
    }
    fn sleep_until(&self, time: Nanos) {
        self.env.sleep_until(time);
    }
    fn charge(&self, cpu: Nanos) {
        self.env.charge(cpu);
    }
    fn spawn(self: Arc<Self>, name: &str, run: Box<dyn FnOnce() + Send>) -> Task {
        self.env.clone().spawn(name, run)
    }
    fn random(&self) -> u64 {
        self.env.random()
    }
}

/// A cache of which some rows are stale.
fn with_stale_rows(idle_after: Nanos, test: impl FnOnce(&World, CachedArray, &AtomicU64)) {
    let sim = Sim::new(5);
    let asked = Arc::new(AtomicU64::new(0));
    let env: Arc<dyn Env> = Arc::new(Watched { env: sim.env(), asked: asked.clone() });
    sim.run(|| {
        let world = World::new(Kind::all()[2], Scheme::KddPaper, env, 5);
        let options = CacheOptions { dirty_high: 0.9, idle_after, ..CacheOptions::default() };
        let cached = world.attach(options);
        put_off_some(&cached);
        test(&world, cached, &asked);
    });
}

fn put_off_some(cached: &CachedArray) {
    for id in [5, 10, 15] {
        (0..4).for_each(|row| cached.write(Lba(row * 20), &content(row * 20, id), false).unwrap());
    }
    assert!(cached.status().stale_rows >= 2, "{:?}", cached.status());
}

fn sleep(cached: &CachedArray, milliseconds: u64) {
    let env = cached.env();
    env.sleep_until(Nanos(env.now().0 + milliseconds * MILLISECOND));
}

/// Whether any row is marked on any member.
fn is_marked(world: &World) -> bool {
    world.rig.disks.iter().any(|disk| {
        let mut bitmap = vec![0; SECTOR_BYTES];
        disk.read(Lba(2), &mut bitmap).unwrap();
        bitmap[32..].iter().any(|byte| *byte != 0)
    })
}

#[test]
fn an_idle_array_tells_its_members_once_which_rows_are_whole_and_then_is_silent() {
    with_stale_rows(Nanos(50 * MILLISECOND), |world, cached, asked| {
        assert!(is_marked(world));
        sleep(&cached, 2000);
        assert_eq!(cached.status().stale_rows, 0);
        assert!(!is_marked(world), "members hear of it without a close");
        let (calls, before) = (world.rig.power.calls(), asked.load(Relaxed));
        sleep(&cached, 3_600_000);
        assert_eq!(world.rig.power.calls(), calls, "idle writes nothing");
        let asked = asked.load(Relaxed) - before;
        assert!(asked < 10, "the cleaner looked for work {asked} times in an hour in which there was none");
        cached.close().unwrap();
    });
}

#[test]
fn a_cleaner_that_rests_is_woken_by_a_write() {
    with_stale_rows(Nanos(50 * MILLISECOND), |_, cached, _| {
        sleep(&cached, 2000);
        put_off_some(&cached);
        sleep(&cached, 2000);
        assert_eq!(cached.status().stale_rows, 0);
    });
}

/// Not when the array is idle, but at once: until then these rows are without redundancy.
#[test]
fn a_cleaner_that_waits_for_idleness_is_woken_by_the_loss_of_a_member() {
    with_stale_rows(Nanos(3_600_000 * MILLISECOND), |_, cached, _| {
        sleep(&cached, 100);
        assert!(cached.status().stale_rows >= 2);
        cached.array().fail(1).unwrap();
        sleep(&cached, 100);
        assert_eq!(cached.status().stale_rows, 0);
    });
}
