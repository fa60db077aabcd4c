//! A workload with a power cut between its halves: what is not kept is reconstructed, and the lost contents of the
//! cache cause misses.
//!
//! 1. No request is under way when the power is cut, and none is answered until the array is open again.
//! 2. Rows of unknown state are reconstructed concurrently with the requests of the second half.

use super::below::{Below, Nvram};
use super::clients::{closed_loop, fill};
use super::{EngineRun, Tally};
use crate::array_cache::timed::Clocked;
use std::sync::Arc;
use vellum_array::cache::engine::CachedArray;
use vellum_base::sync::Mutex;
use vellum_base::{Env, Nanos, Result};
use vellum_sim::Sim;

/// Number of parts in which the second half is timed.
const PARTS: usize = 10;
/// Interval at which rows of unknown state are checked for.
const LOOK_EVERY: Nanos = Nanos::from_ms(20);

/// One half of the workload.
#[derive(Clone, Debug)]
pub struct Half {
    /// Mean response time of each part of its requests, in milliseconds; the first half has one part.
    pub means_ms: Vec<f64>,
    /// Share of reads and writes that hit.
    pub hit_ratio: f64,
    /// Pages written to flash.
    pub flash_pages: u64,
}

/// Result of a run with a cut.
#[derive(Clone, Debug)]
pub struct CutRun {
    /// Until the power cut.
    pub before: Half,
    /// After the array is open again.
    pub after: Half,
    /// From the return of power until the array is open.
    pub opening: Nanos,
    /// Rows of unknown state at that time.
    pub unknown_rows: u64,
    /// From then until there were none.
    pub whole_after: Nanos,
}

impl EngineRun<'_> {
    /// Runs the workload; if `cut`, the power is cut when half of the requests have been answered.
    ///
    /// # Errors
    /// Those of the engine.
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

    /// Mean over all its requests: parts are of equal size.
    pub fn mean_ms(&self) -> f64 {
        self.means_ms.iter().sum::<f64>() / self.means_ms.len() as f64
    }
}

/// Checks in the background whether there are rows of unknown state. The returned function waits until there are none,
/// and returns how long that took from now.
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
