//! A store under a load, in virtual time: load phase, run phase, and what they came to.

use super::board::Board;
use super::system::{CORES, Machine, System};
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Env, Error, Flash, Nanos, RealEnv, Result, Task};
use vellum_kv::{Batch, Bounds, Durability, Map, Store, StoreStat};
use vellum_sim::{Sim, SimConfig};
use vellum_trace::generate::kv::{Job, KeyForm, Kind, KvRequest, Stream, Values, Workload};

/// Stacks of the store's tasks.
const STACK_BYTES: usize = 256 << 10;
/// A store that wrote nothing for so long has nothing left to do.
const SETTLED: Nanos = Nanos::from_ms(2000);

/// What is asked of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub workload: Workload,
    pub records: u64,
    pub requests: u64,
    pub value_bytes: usize,
    pub clients: usize,
    pub cache_bytes: usize,
    /// Compaction is waited for between load and requests.
    pub settle: bool,
}

/// What it came to.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub load: Nanos,
    pub run: Nanos,
    pub requests: u64,
    /// Bytes programmed to the flash, whatever for.
    pub programmed_bytes: u64,
    /// Bytes of erase blocks that were erased, and what of them was moved before.
    pub erased_bytes: u64,
    pub moved_bytes: u64,
    pub stat: StoreStat,
    /// Lookups in the cache that hit, in the run phase.
    pub hit_share: f64,
    /// Wall time of the run phase.
    pub run_wall: Nanos,
    /// Over every event: the same run gives the same.
    pub events_hash: u64,
}

impl Measured {
    pub(crate) fn ops_per_second(&self) -> f64 {
        self.requests as f64 / self.run.as_secs_f64()
    }

    /// Load and run.
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
    let store = Arc::new(Store::open(machine.media.clone(), env.clone(), options)?);
    let start = env.now();
    let filling = Load { workload: Workload::YcsbLoad, requests: load.records, ..*load };
    phase(&store, env, &filling, seed)?;
    let loaded = env.now();
    if load.settle {
        settle(&store, env);
    }
    let (began, before, wall) = (env.now(), store.stat(), RealEnv::new());
    if load.requests > 0 {
        phase(&store, env, load, seed ^ 1)?;
    }
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
        hit_share: hits as f64 / lookups as f64,
        stat,
        run_wall: wall.now(),
        events_hash: 0,
    };
    let store = Arc::into_inner(store).ok_or_else(|| Error::invalid("a client still has the store"))?;
    store.close()?;
    machine.close()?;
    Ok(measured)
}

/// Waits until the store has compacted what it wants to.
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

/// All clients at once, to their ends.
fn phase(store: &Arc<Store>, env: &Arc<dyn Env>, load: &Load, seed: u64) -> Result<()> {
    let Load { workload, records, requests, clients, .. } = *load;
    let streams = Job { workload, records, requests, tasks: clients, seed }.streams()?;
    let failure: Arc<Mutex<Option<Error>>> = Arc::default();
    let mut tasks = Vec::new();
    for (number, stream) in streams.into_iter().enumerate() {
        let values = Values::new(load.value_bytes, 1.0, seed ^ number as u64)?;
        let (store, failure) = (store.clone(), failure.clone());
        let client = Client { store, keys: workload.key_form(), values, batch: Batch::new() };
        let body = move || {
            if let Err(error) = client.run(stream) {
                failure.lock().get_or_insert(error);
            }
        };
        tasks.push(env.clone().spawn("client", Box::new(body)));
    }
    tasks.into_iter().for_each(Task::join);
    let failed = failure.lock().take();
    failed.map_or(Ok(()), Err)
}

struct Client {
    store: Arc<Store>,
    keys: KeyForm,
    values: Values,
    batch: Batch,
}

impl Client {
    fn run(mut self, stream: Stream) -> Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for KvRequest { kind, record, records } in stream {
            self.keys.key(record, &mut key);
            match kind {
                Kind::Read => self.get(record, &key, &mut value)?,
                Kind::Update | Kind::Insert => self.put(record, &key, &mut value)?,
                Kind::ReadModifyWrite => {
                    self.get(record, &key, &mut value)?;
                    self.put(record, &key, &mut value)?;
                }
                Kind::Scan => {
                    let mut iter = self.store.iter(Bounds::from(&key))?;
                    iter.seek_to_first()?;
                    for _ in 0..records {
                        if !iter.is_valid() {
                            break;
                        }
                        iter.next()?;
                    }
                }
            }
        }
        Ok(())
    }

    fn get(&self, record: u64, key: &[u8], value: &mut Vec<u8>) -> Result<()> {
        match self.store.get_into(key, value)? && self.values.is_of(record, value) {
            true => Ok(()),
            false => Err(Error::corrupt(format!("record {record} is not there, or another's"))),
        }
    }

    fn put(&mut self, record: u64, key: &[u8], value: &mut Vec<u8>) -> Result<()> {
        self.values.value(record, value);
        self.batch.clear();
        self.batch.put(key, value)?;
        self.store.write(&self.batch, Durability::Buffered)
    }
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
}
