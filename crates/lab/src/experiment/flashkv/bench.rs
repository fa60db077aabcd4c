//! Runs a store under load in virtual time: load phase, run phase, and the results. Its clients are those that
//! benchmark stores on a host (`kv_bench::phase`).

use super::board::Board;
use super::system::{CORES, Machine, System};
use crate::kv_bench::kept::Ours;
use crate::kv_bench::phase::{self, Latencies, Phase, Quantiles};
use std::sync::Arc;
use vellum_base::{Env, Error, Flash, Nanos, RealEnv, Result};
use vellum_kv::{Durability, Store, StoreStat};
use vellum_sim::{Sim, SimConfig};
use vellum_trace::generate::kv::{Job, Workload};

/// Stack size of the store's tasks.
const STACK_BYTES: usize = 256 << 10;
/// A store that wrote nothing for this long has settled.
const SETTLED: Nanos = Nanos::from_ms(2000);

/// The load on a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub workload: Workload,
    pub records: u64,
    pub requests: u64,
    pub value_bytes: usize,
    pub clients: usize,
    pub cache_bytes: usize,
    /// Wait for compaction between load and requests.
    pub settle: bool,
}

/// The results.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub load: Nanos,
    pub run: Nanos,
    pub requests: u64,
    /// Bytes programmed to the flash, for any cause.
    pub programmed_bytes: u64,
    /// Bytes of the erase blocks erased, and how many of these were moved before.
    pub erased_bytes: u64,
    pub moved_bytes: u64,
    pub stat: StoreStat,
    /// Latency of all requests of the run phase, in virtual time.
    pub latency: Quantiles,
    /// Hit ratio of the cache in the run phase.
    pub hit_share: f64,
    /// Wall time of the run phase.
    pub run_wall: Nanos,
    /// Hash over all events: equal for equal runs.
    pub events_hash: u64,
}

impl Measured {
    pub(crate) fn ops_per_second(&self) -> f64 {
        self.requests as f64 / self.run.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Time of load and run together.
    pub(crate) fn seconds(&self) -> f64 {
        (self.load + self.run).as_secs_f64()
    }

    /// Share of recycled pages that were invalid.
    pub(crate) fn gc_efficiency(&self) -> Option<f64> {
        (self.erased_bytes > 0).then(|| 1.0 - self.moved_bytes as f64 / self.erased_bytes as f64)
    }
}

/// Loads a store, then runs the workload.
pub(crate) fn run(system: System, board: &Board, load: &Load, seed: u64) -> Result<Measured> {
    let sim = Sim::with(SimConfig { cores: CORES, stack_bytes: STACK_BYTES, ..SimConfig::new(seed) });
    let env: Arc<dyn Env> = sim.env();
    let result = sim.run(|| in_world(system, board, load, seed, &env));
    let measured = result.map_err(|e| e.context(format!("{}, {}", system.name(), load.workload.name())))?;
    Ok(Measured { events_hash: sim.log_hash(), ..measured })
}

fn in_world(system: System, board: &Board, load: &Load, seed: u64, env: &Arc<dyn Env>) -> Result<Measured> {
    let machine = Machine::new(system, board, env.clone(), seed)?;
    let options = system.options(board, load.cache_bytes);
    let store = Store::open(machine.media.clone(), env.clone(), options)?;
    let engine = Arc::new(Ours { store, durability: Durability::Buffered, uncalled: true });
    let store = &engine.store;
    let start = env.now();
    let filling = Load { workload: Workload::YcsbLoad, requests: load.records, ..*load };
    requests(&engine, env, &filling, seed)?;
    let loaded = env.now();
    if load.settle {
        settle(store, env);
    }
    let (began, before, wall) = (env.now(), store.stat(), RealEnv::new());
    let latency = match load.requests {
        0 => Quantiles::default(),
        _ => requests(&engine, env, load, seed ^ 1)?,
    };
    let end = env.now();
    let stat = store.stat();
    let hits = stat.cache_hits - before.cache_hits;
    let lookups = (hits + stat.cache_misses - before.cache_misses).max(1);
    let counters = machine.board.counters();
    let geometry = *machine.board.geometry();
    let measured = Measured {
        load: loaded - start,
        run: end - began,
        requests: load.requests,
        programmed_bytes: counters.pages_programmed * u64::from(geometry.page_bytes),
        erased_bytes: counters.blocks_erased * geometry.block_bytes(),
        moved_bytes: machine.moved_bytes(),
        latency,
        hit_share: hits as f64 / lookups as f64,
        stat,
        run_wall: wall.now(),
        events_hash: 0,
    };
    let engine = Arc::into_inner(engine).ok_or_else(|| Error::invalid("a client still has the store"))?;
    engine.store.close()?;
    machine.close()?;
    Ok(measured)
}

/// Waits until the store has finished compacting.
fn settle(store: &Store, env: &Arc<dyn Env>) {
    let done = |stat: StoreStat| {
        (
            stat.since_opened.flushes(),
            stat.since_opened.compactions(),
            stat.since_opened.moves(),
            stat.ledger.programmed_total(),
        )
    };
    loop {
        let before = done(store.stat());
        env.sleep_until(env.now() + SETTLED);
        if done(store.stat()) == before {
            return;
        }
    }
}

/// Runs all clients concurrently to completion; returns the latencies. Every requested record has been put before.
fn requests(engine: &Arc<Ours<Store>>, env: &Arc<dyn Env>, load: &Load, seed: u64) -> Result<Quantiles> {
    let Load { workload, records, requests, clients, value_bytes, .. } = *load;
    let job = Job { workload, records, requests, tasks: clients, seed };
    let what = Phase { job, value_bytes, compressible: 1.0, time_max: None };
    let measured = phase::run(env, engine, &what, &(Arc::new(|_| ()) as Arc<dyn Fn(u64) + Send + Sync>))?;
    phase::check(&measured, true)?;
    Ok(Latencies::all(measured.kinds.values()).quantiles())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOARD: Board = Board { channels: 8, pages_per_block: 32, blocks_per_die: 60 };
    const LOAD: Load = Load {
        workload: Workload::YcsbA,
        records: 20_000,
        requests: 10_000,
        value_bytes: 1000,
        clients: 4,
        cache_bytes: 4 << 20,
        settle: false,
    };

    #[test]
    fn every_system_answers_every_request_the_same_way_twice() {
        for system in System::ALL {
            let measured = [1, 2].map(|_| run(system, &BOARD, &LOAD, 3).unwrap());
            let [a, b] = measured.map(|m| (m.load, m.run, m.programmed_bytes, m.events_hash));
            assert_eq!(a, b, "{}", system.name());
            assert!(a.2 > 20_000 * 1000 && a.1 > Nanos::ZERO, "{}: {a:?}", system.name());
        }
    }

    #[test]
    fn writers_are_slowed_down_before_they_have_to_wait() {
        let board = Board { blocks_per_die: 400, ..BOARD };
        let load = Load { records: 100_000, requests: 0, ..LOAD };
        let told = run(System::Vellum, &board, &load, 3).unwrap();
        let (since, took) = (told.stat.since_opened, told.load);
        let (stalls, stalled_ns) = since.stalls();
        // Otherwise they wait at each flush, all of this time.
        assert!(since.flushes() > 40 && stalls * 5 < since.flushes(), "{stalls} in {}", since.flushes());
        assert!(stalled_ns * 10 < took.0 && since.slowed_ns() > took.0, "{stalled_ns} ns of {took:?}");
    }
}
