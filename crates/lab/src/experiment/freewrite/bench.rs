//! Fills and updates a store in virtual time, and measures that.

use super::collect;
use super::keys::{Keys, Request};
use super::machine::{Kind, Machine, options};
use std::sync::Arc;
use vellum_base::{Cause, Env, Flash, LedgerSnapshot, Nanos, Result};
use vellum_kv::{Batch, Durability, Lifetime, Map, Options, ReuseOptions, Store};
use vellum_sim::{Sim, SimConfig};
use vellum_trace::generate::kv::Values;

const STACK_BYTES: usize = 256 << 10;
const CORES: usize = 6;
/// A store that did nothing for this long has settled.
const SETTLED: Nanos = Nanos::from_ms(2000);
/// Number of points in the course of a run.
const POINTS: u64 = 100;
pub(super) const KEY_BYTES: u64 = 8;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub kind: Kind,
    pub keys: Keys,
    pub value_bytes: usize,
    /// Total size of keys and values of all records.
    pub bytes: u64,
    pub reuse: ReuseOptions,
}

/// The results.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// Time until the last request was answered, or all was collected.
    pub seconds: f64,
    /// Number of records put, or collected.
    pub puts: u64,
    /// Time at each hundredth of the puts, and the number of puts by then.
    pub course: Vec<(f64, u64)>,
    pub user_bytes: u64,
    /// Until the store had settled, like all that follows.
    pub disk: LedgerSnapshot,
    /// Bytes programmed to flash, for any cause.
    pub programmed_bytes: u64,
    /// What the store did until then.
    pub did: Lifetime,
    /// Size of its tables at the end.
    pub table_bytes: u64,
}

impl Measured {
    pub(super) fn puts_per_second(&self) -> f64 {
        self.puts as f64 / self.seconds
    }

    /// Host data that the disk stored: what dmdedup would have written.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.disk.programmed_by(Cause::HostData)
    }

    /// Bytes kept, in percent of bytes emitted.
    pub(super) fn kept_percent(&self) -> f64 {
        100.0 * self.did.reuse().kept_bytes as f64 / self.did.emitted_bytes().max(1) as f64
    }

    /// Bubbles, in percent of bytes emitted.
    pub(super) fn padding_percent(&self) -> f64 {
        self.did.reuse().padding_share(self.did.emitted_bytes()) * 100.0
    }
}

/// Carries out a run.
pub(super) fn run(run: &Run, seed: u64) -> Result<Measured> {
    let sim = Sim::with(SimConfig { cores: CORES, stack_bytes: STACK_BYTES, ..SimConfig::new(seed) });
    let env: Arc<dyn Env> = sim.env();
    let named = |e: vellum_base::Error| {
        e.context(format!(
            "{} keys, values of {} bytes, {}",
            run.keys.name(),
            run.value_bytes,
            run.reuse.mode.name()
        ))
    };
    let in_world = match run.kind {
        Kind::Collect => collect::in_world,
        Kind::Paper | Kind::Disk => in_world,
    };
    sim.run(|| in_world(run, &env, seed)).map_err(named)
}

fn in_world(run: &Run, env: &Arc<dyn Env>, seed: u64) -> Result<Measured> {
    let machine = Machine::new(run.kind, run.bytes, env, seed)?;
    let options = Options { reuse: run.reuse, ..options(run.kind, run.bytes) };
    let store = Store::open(machine.media.clone(), env.clone(), options)?;
    let start = env.now();
    let since = |env: &Arc<dyn Env>| (env.now() - start).as_secs_f64();
    let records = run.bytes / (run.value_bytes as u64 + KEY_BYTES);
    let each = (run.keys.puts(records) / POINTS).max(1);
    let mut course = Vec::new();
    let puts = fill(&store, run.keys, run.value_bytes, (records, seed), |puts| {
        if puts % each == 0 {
            course.push((since(env), puts));
        }
    })?;
    let seconds = since(env);
    settle(env, || (store.stat().since_opened, store.stat().ledger));
    machine.disk.close()?;
    let counters = machine.flash.counters();
    let page_bytes = u64::from(machine.flash.geometry().page_bytes);
    let stat = store.stat();
    let measured = Measured {
        seconds,
        puts,
        course,
        user_bytes: stat.since_opened.user_bytes(),
        table_bytes: stat.levels.iter().map(|level| level.bytes).sum(),
        disk: machine.disk.ledger(),
        programmed_bytes: counters.pages_programmed * page_bytes,
        did: stat.since_opened,
    };
    store.close()?;
    Ok(measured)
}

/// Writes the requests of `keys` for this many records to a store, one by one; calls `hear` with the number of each put
/// before writing it. Returns the number of puts.
pub(super) fn fill(
    store: &dyn Map,
    keys: Keys,
    value_bytes: usize,
    (records, seed): (u64, u64),
    mut hear: impl FnMut(u64),
) -> Result<u64> {
    let mut values = Values::new(value_bytes, 1.0, seed)?;
    let (mut batch, mut value, mut puts) = (Batch::new(), Vec::new(), 0);
    for request in keys.requests(records, seed)? {
        batch.clear();
        match request {
            Request::Put(key) => {
                values.value(key, &mut value);
                batch.put(&key.to_be_bytes(), &value)?;
                puts += 1;
                hear(puts);
            }
            Request::Delete(key) => batch.delete(&key.to_be_bytes())?,
        }
        store.write(&batch, Durability::Buffered)?;
    }
    Ok(puts)
}

/// Waits until a store has settled: until what it has `done` no longer changes.
pub(super) fn settle<T: PartialEq>(env: &Arc<dyn Env>, done: impl Fn() -> T) {
    loop {
        let before = done();
        env.sleep_until(env.now() + SETTLED);
        if done() == before {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_base::Avoided;
    use vellum_kv::{Caps, Reuse};

    const RUN: Run = Run {
        kind: Kind::Disk,
        keys: Keys::ClusteredUpdates,
        value_bytes: 512,
        bytes: 12 << 20,
        reuse: ReuseOptions {
            mode: Reuse::Relink,
            caps: Caps { bubble: 0.125, global: 0.05 },
            unit_bytes: None,
            island_bytes_min: None,
        },
    };

    #[test]
    fn a_run_is_the_same_twice_and_all_bytes_are_accounted_for() {
        for kind in [Kind::Paper, Kind::Collect, Kind::Disk] {
            let mode = if kind == Kind::Disk { Reuse::Relink } else { Reuse::Bubbles };
            let reuse = ReuseOptions { mode, ..RUN.reuse };
            let [a, b] = [1, 1].map(|seed| run(&Run { kind, reuse, ..RUN }, seed).unwrap());
            assert_eq!((a.seconds, a.programmed_bytes), (b.seconds, b.programmed_bytes), "{kind:?}");
            assert_eq!(a.disk.programmed_total(), a.programmed_bytes, "{kind:?}");
            let spared = a.disk.avoided_by(Avoided::Remap) + a.disk.avoided_by(Avoided::Duplicate);
            assert!(spared * 100 > a.did.reuse().kept_bytes * 97, "{kind:?}: {:?}", a.did.reuse());
            assert!(
                a.did.reuse().kept_bytes > 0 && a.padding_percent() <= 5.0,
                "{kind:?}: {:?}",
                a.did.reuse()
            );
        }
    }
}
