//! Lives of stores whose power goes, again and again, and during recovery.

use crate::doubtful::Doubtful;
use crate::harness::{Compared, batch_of};
use crate::history::{History, Style};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::ops::Range;
use std::sync::Arc;
use vellum_base::{Env, Kind, Result};
use vellum_kv::{Durability, Map, Media};
use vellum_sim::Sim;

/// Media under one switch.
pub(crate) trait Power {
    /// True if it went.
    fn is_off(&self) -> bool;
    /// It goes now, if it did not yet, and comes back; chance decides what is left of what was not safe.
    fn cycle(&self, rng: &mut SmallRng);
    /// Perhaps it will go while a store is opened.
    fn arm_for_recovery(&self, rng: &mut SmallRng);
    /// It will go while a store is written.
    fn arm(&self, rng: &mut SmallRng);
    /// It will not go.
    fn disarm(&self);
}

impl Power for Doubtful {
    fn is_off(&self) -> bool {
        self.0.lock().off
    }
    fn cycle(&self, rng: &mut SmallRng) {
        let mut state = self.0.lock();
        state.off = true;
        state.crash_by_chance(rng);
    }
    fn arm_for_recovery(&self, rng: &mut SmallRng) {
        self.0.lock().left = (rng.random_range(0..2) == 0).then(|| rng.random_range(1..12));
    }
    fn arm(&self, rng: &mut SmallRng) {
        self.0.lock().left = Some(rng.random_range(1..400));
    }
    fn disarm(&self) {
        self.0.lock().left = None;
    }
}

/// Writes until the power goes or the steps are done.
pub(crate) fn write(
    store: &impl Map,
    history: &mut History,
    rng: &mut SmallRng,
    steps: usize,
    style: &Style,
) {
    for _ in 0..steps {
        let ops = history.next(rng, 1, style);
        let durability = match rng.random_range(0..12) {
            0 => Durability::Sync,
            1..7 => Durability::Buffered,
            _ => Durability::None,
        };
        let result = store.write(&batch_of(&ops), durability).and_then(|()| match rng.random_range(0..300) {
            0 => store.flush(),
            _ => Ok(()),
        });
        match result {
            Ok(()) if durability == Durability::Sync => history.promise(),
            Ok(()) => {}
            Err(e) if e.kind() == Kind::PowerLost => return,
            Err(e) => panic!("{e}"),
        }
    }
}

/// Three lives, each opened as often as it takes, and compared.
pub(crate) fn live_on<K: Compared>(
    power: &impl Power,
    open: impl Fn() -> Result<K>,
    history: &mut History,
    rng: &mut SmallRng,
    style: &Style,
    context: &str,
) {
    for round in 0..3 {
        let context = format!("{context}, round {round}");
        let store = loop {
            power.cycle(rng);
            power.arm_for_recovery(rng);
            match open() {
                Ok(store) if !power.is_off() => break store,
                Err(e) if e.kind() != Kind::PowerLost => panic!("{context}: {e}"),
                _ => {}
            }
        };
        power.disarm();
        history.settle(&store, &context);
        power.arm(rng);
        write(&store, history, rng, 300, style);
    }
}

/// A life in a directory whose power goes at the `nth` call, in which it was `steps` long at most; some of the
/// recoveries are cut, too. True if the power went.
pub(crate) fn life_in_directory<K: Compared>(
    (seed, steps, nth): (u64, usize, u64),
    style: &Style,
    open: impl Fn(Arc<dyn Media>, Arc<dyn Env>) -> Result<K>,
) -> bool {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    let files = Doubtful::default();
    let open = || open(files.directory(), env.clone());
    let context = format!("seed {seed}, cut at call {nth}");
    sim.run(|| {
        let (mut rng, mut history) = (SmallRng::seed_from_u64(seed ^ nth << 32), History::default());
        files.0.lock().left = Some(nth);
        if let Ok(store) = open() {
            write(&store, &mut history, &mut rng, steps, style);
        }
        let cut = files.is_off();
        live_on(&files, open, &mut history, &mut rng, style, &context);
        cut
    })
}

/// Lives that end at the first call, the second, and so on, until one ends by itself. Of each seed there are more than
/// `calls_min`.
pub(crate) fn end_at_every_call(seeds: Range<u64>, calls_min: u64, life: impl Fn(u64, u64) -> bool) {
    vellum_sim::check(seeds, |seed| {
        let calls = (1..).take_while(|nth| life(seed, *nth)).count() as u64;
        assert!(calls > calls_min, "seed {seed}: only {calls} calls");
    });
}
