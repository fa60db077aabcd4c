//! A workload with a power cut between its halves: what is not kept is made anew, and
//! what was in the cache is missed.
//!
//! 1. Nothing is asked while the power goes, and nothing is answered until the array is open again.
//! 2. Rows that nobody knows are made anew beside the requests of the second half.

use super::below::{Below, Nvram};
use super::clients::{closed_loop, fill};
use super::{EngineRun, Tally};
use crate::array_cache::timed::Clocked;
use std::sync::Arc;
use vellum_array::cache::engine::CachedArray;
use vellum_base::sync::Mutex;
use vellum_base::{Env, Nanos, Result};
use vellum_sim::Sim;

/// The second half is timed in so many parts.
const PARTS: usize = 10;
/// How often it is looked whether rows are whole.
const LOOK_EVERY: Nanos = Nanos::from_ms(20);

/// One half of the workload.
#[derive(Clone, Debug)]
pub struct Half {
    /// Mean response of each part of its requests, in milliseconds; the first half has one part.
    pub means_ms: Vec<f64>,
    /// Share of reads and writes that hit.
    pub hit_ratio: f64,
    /// Pages written to flash.
    pub flash_pages: u64,
}

/// What the engine did.
#[derive(Clone, Debug)]
pub struct CutRun {
    /// Until the power goes.
    pub before: Half,
    /// From when the array is open again.
    pub after: Half,
    /// From the power's return to the array's being open.
    pub opening: Nanos,
    /// Rows that nobody knew then.
    pub unknown_rows: u64,
    /// From then until there were none.
    pub whole_after: Nanos,
}

impl EngineRun<'_> {
    /// All of it; with `cut` the power goes when half of the requests were answered.
    ///
    /// # Errors
    /// What the engine says.
    pub fn run_with_cut(&self, nvram: Nvram, cut: bool) -> Result<CutRun> {
        let sim = Sim::new(self.seed);
        let env: Arc<dyn Env> = sim.env();
        let (all, half) = (self.workload.requests.len(), self.workload.requests.len() / 2);
        sim.run(|| {
            let mut below = Below::new(self, nvram, &env)?;
            let mut device = below.attach(self)?;
            let clocks = closed_loop(&device, self, 0..half, 1, fill)?;
            let mut tally = Tally::of(&device);
            let (before, went) = (Half::new(&clocks, tally), env.now());
            if cut {
                below.power.cut_at(1);
                drop(Arc::into_inner(device).expect("the clients are gone"));
                below = below.after_cut(self.seed + 1)?;
                device = below.open(self)?;
                tally = Tally::default();
            }
            let (opening, unknown_rows) = (env.now() - went, device.status().unknown_rows);
            let whole = when_whole(&device);
            let clocks = closed_loop(&device, self, half..all, PARTS, fill)?;
            let after = Half::new(&clocks, Tally::of(&device).since(tally));
            let whole_after = whole();
            Arc::into_inner(device).expect("nobody else has it").close()?;
            Ok(CutRun { before, after, opening, unknown_rows, whole_after })
        })
    }
}

impl Half {
    fn new(clocks: &[Clocked], tally: Tally) -> Half {
        Half {
            means_ms: clocks.iter().map(|clock| clock.times(0.0).all.mean_ms).collect(),
            hit_ratio: tally.hit_ratio(),
            flash_pages: tally.flash_pages,
        }
    }

    /// Of all its requests: parts are of equal size.
    pub fn mean_ms(&self) -> f64 {
        self.means_ms.iter().sum::<f64>() / self.means_ms.len() as f64
    }
}

/// Looks beside what goes on whether there is a row that nobody knows; ask it, and it waits until there is none, and
/// says how long that took from now.
fn when_whole(device: &Arc<CachedArray>) -> impl FnOnce() -> Nanos + use<> {
    let (env, took) = (device.env(), Arc::new(Mutex::new(Nanos::ZERO)));
    let began = env.now();
    let look = {
        let (env, device, took) = (env.clone(), device.clone(), took.clone());
        move || {
            while device.status().unknown_rows > 0 {
                env.sleep_until(env.now() + LOOK_EVERY);
            }
            *took.lock() = env.now() - began;
        }
    };
    let looking = env.spawn("whole", Box::new(look));
    move || {
        looking.join();
        *took.lock()
    }
}
