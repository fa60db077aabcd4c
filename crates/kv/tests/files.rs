//! A store in a directory whose power goes at every call, at random ones of long lives, and again during recovery.

use crate::doubtful::Doubtful;
use crate::harness::{batch_of, small};
use crate::history::{History, Style};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::{Env, Kind, Result};
use vellum_kv::{Directory, DirectoryOptions, Durability, Store};
use vellum_sim::Sim;

const STYLE: Style = Style { keys: 400, value_bytes: 900 };

fn write(store: &Store, history: &mut History, rng: &mut SmallRng, steps: usize) {
    for _ in 0..steps {
        let ops = history.next(rng, 1, &STYLE);
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

pub(crate) fn open(files: &Doubtful, env: &Arc<dyn Env>) -> Result<Store> {
    let options = DirectoryOptions { table_bytes: 256 << 10 };
    Store::open(Directory::on(Arc::new(files.clone()), options), env.clone(), small())
}

/// A life whose power goes at the `nth` call, in which it was `steps` long at most; some of the recoveries are cut,
/// too.
fn life(seed: u64, steps: usize, nth: u64) -> bool {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    let (files, mut history) = (Doubtful::default(), History::default());
    let mut rng = SmallRng::seed_from_u64(seed ^ nth << 32);
    let context = format!("seed {seed}, cut at call {nth}");
    sim.run(|| {
        files.0.lock().left = Some(nth);
        if let Ok(store) = open(&files, &env) {
            write(&store, &mut history, &mut rng, steps);
        }
        let cut = files.0.lock().off;
        for round in 0..3 {
            let context = format!("{context}, round {round}");
            files.0.lock().off = true;
            loop {
                files.0.lock().crash_by_chance(&mut rng);
                files.0.lock().left = (rng.random_range(0..2) == 0).then(|| rng.random_range(1..12));
                match open(&files, &env) {
                    Ok(store) if !files.0.lock().off => {
                        files.0.lock().left = None;
                        history.settle(&store, &context);
                        files.0.lock().left = Some(rng.random_range(1..400));
                        write(&store, &mut history, &mut rng, 300);
                        break;
                    }
                    Ok(_) => {}
                    Err(e) if e.kind() == Kind::PowerLost => {}
                    Err(e) => panic!("{context}: {e}"),
                }
            }
        }
        cut
    })
}

#[test]
fn a_cut_at_every_call() {
    // In life 11 a recovery that was cut had dropped two logs, and left the later one.
    vellum_sim::check(10..12, |seed| {
        let mut nth = 1;
        while life(seed, 500, nth) {
            nth += 1;
        }
        assert!(nth > 300, "seed {seed}: only {nth} calls");
    });
}

#[test]
fn cuts_at_random_calls_of_long_lives() {
    vellum_sim::check(50..250, |seed| {
        life(seed, 3000, 1 + seed * 7919 % 3000);
    });
}
