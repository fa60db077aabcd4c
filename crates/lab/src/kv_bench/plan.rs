//! Several workloads on one engine, each on a store in a suitable state.
//!
//! A workload that fills a store gets an empty one. Another continues with the existing store if that was filled with
//! the same form of keys; otherwise a store is filled first, which is not measured.

use super::engine::{Engine, EngineKind, Setup};
use super::phase::{self, Latencies, Measured, Phase, Quantiles};
use super::usage::{Usage, others_are_busy};
use crate::Progress;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::{Env, Error, Nanos, Result};
use vellum_trace::generate::kv::{Job, KeyForm, Workload};

/// A store has settled when its process has neither written nor computed for `QUIET`; the wait ends after `QUIET_MAX`.
const QUIET: Nanos = Nanos::from_ms(300);
const QUIET_MAX: Nanos = Nanos::from_ms(120_000);
const LOOK_EVERY: Nanos = Nanos::from_ms(20);

/// Parameters of the runs on each engine.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The workloads, in order.
    pub workloads: Vec<Workload>,
    /// Number of records.
    pub keys: u64,
    /// Requests of a workload that does not fill a store; the number of keys by default.
    pub requests: Option<u64>,
    /// Number of clients.
    pub threads: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Compressed size of a value, as a share of its size.
    pub compressible: f64,
    /// Longest time for a workload that does not fill a store.
    pub time_max: Option<Nanos>,
    /// Seed for everything random.
    pub seed: u64,
}

/// Results of one workload on one engine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PlanReport {
    /// Its name.
    pub workload: String,
    /// Number of requests answered.
    pub requests: u64,
    /// Time taken for them.
    pub seconds: f64,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Further time until the store had finished its background work.
    pub settled_seconds: f64,
    /// Bytes of keys and values that were put.
    pub user_bytes: u64,
    /// Bytes written to the file system until the store had settled; for a store on flash of its own, bytes programmed.
    pub written_bytes: u64,
    /// Bytes of logs and manifests written to NVRAM, by a store on flash of its own.
    pub nvram_bytes: u64,
    /// Of the bytes written, those that dirtied pages or went to a device.
    pub dirtied_bytes: u64,
    /// Processor time, including background work.
    pub cpu_seconds: f64,
    /// Memory at the end, excluding files.
    pub memory_bytes: u64,
    /// Reads that found nothing.
    pub absent: u64,
    /// Latencies of all requests.
    pub all: Quantiles,
    /// Latencies by kind of request.
    pub kinds: BTreeMap<String, Quantiles>,
}

/// Runs a plan on one engine.
pub fn run(
    env: &Arc<dyn Env>,
    kind: EngineKind,
    setup: &Setup,
    plan: &Plan,
    progress: &Arc<dyn Progress + Send + Sync>,
) -> Result<Vec<PlanReport>> {
    let mut runner = Runner { env, kind, setup, plan, progress, store: None };
    let mut reports = Vec::new();
    for workload in &plan.workloads {
        runner.prepare(*workload)?;
        reports.push(runner.measure(*workload)?);
    }
    runner.close()?;
    Ok(reports)
}

struct Runner<'a> {
    env: &'a Arc<dyn Env>,
    kind: EngineKind,
    setup: &'a Setup,
    plan: &'a Plan,
    progress: &'a Arc<dyn Progress + Send + Sync>,
    store: Option<Filled>,
}

/// An open store, and its contents.
struct Filled {
    engine: Arc<dyn Engine>,
    form: KeyForm,
    records: u64,
    /// None of them was left out when it was filled.
    has_all: bool,
}

impl Runner<'_> {
    fn prepare(&mut self, workload: Workload) -> Result<()> {
        match workload.after() {
            None => self.start_anew(workload.key_form()),
            Some(_) if self.store.as_ref().is_some_and(|store| store.form == workload.key_form()) => Ok(()),
            Some(before) => {
                self.start_anew(before.key_form())?;
                let measured = self.phase(before)?;
                self.check(&measured)?;
                self.settle();
                Ok(())
            }
        }
    }

    fn start_anew(&mut self, form: KeyForm) -> Result<()> {
        self.close()?;
        let dir = &self.setup.dir;
        let emptied = match std::fs::remove_dir_all(dir) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
            _ => std::fs::create_dir_all(dir),
        };
        emptied.map_err(|e| Error::io(format!("make {}", dir.display()), e))?;
        let engine = self.kind.open(self.setup, self.env)?;
        self.store = Some(Filled { engine, form, records: 0, has_all: true });
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        self.store.take().map_or(Ok(()), |store| store.engine.close())
    }

    fn phase(&mut self, workload: Workload) -> Result<Measured> {
        let plan = self.plan;
        let store = self.store.as_mut().ok_or_else(|| Error::invalid("no store to begin with"))?;
        let fills = workload.after().is_none();
        let records = if fills { plan.keys } else { store.records };
        let requests = if fills { plan.keys } else { plan.requests.unwrap_or(plan.keys) };
        let seed = plan.seed ^ (workload as u64 + 1) << 32;
        let job = Job { workload, records, requests, tasks: plan.threads, seed };
        let phase = Phase {
            job,
            value_bytes: plan.value_bytes,
            compressible: plan.compressible,
            time_max: plan.time_max.filter(|_| !fills),
        };
        self.progress.begin(workload.name(), requests);
        let progress = self.progress.clone();
        let told: Arc<dyn Fn(u64) + Send + Sync> = Arc::new(move |requests| progress.advance(requests));
        let measured = phase::run(self.env, &store.engine, &phase, &told)?;
        // `fillrandom` draws from all keys, and so does what follows it.
        store.records = if fills { plan.keys } else { store.records + measured.inserted };
        store.has_all &= !fills || phase::fills_all(workload);
        Ok(measured)
    }

    fn check(&self, measured: &Measured) -> Result<()> {
        phase::check(measured, self.store.as_ref().is_some_and(|store| store.has_all))
    }

    fn measure(&mut self, workload: Workload) -> Result<PlanReport> {
        let (before, programmed, in_nvram) = (Usage::now(), self.programmed_bytes(), self.nvram_bytes());
        let measured = self.phase(workload)?;
        self.check(&measured)?;
        let settled = self.settle();
        let used = Usage::now().since(&before);
        let seconds = |time: Nanos| time.0 as f64 / 1e9;
        let kinds = measured.kinds.iter().map(|(kind, times)| (kind.name().to_string(), times.quantiles()));
        Ok(PlanReport {
            workload: workload.name().into(),
            requests: measured.requests,
            seconds: seconds(measured.elapsed),
            requests_per_second: measured.rate(),
            settled_seconds: seconds(settled),
            user_bytes: measured.user_bytes,
            written_bytes: match (programmed, self.programmed_bytes()) {
                (Some(before), Some(after)) => after - before,
                _ => used.written_bytes,
            },
            nvram_bytes: self.nvram_bytes() - in_nvram,
            dirtied_bytes: used.dirtied_bytes,
            cpu_seconds: seconds(used.cpu),
            memory_bytes: used.memory_bytes,
            absent: measured.absent,
            all: Latencies::all(measured.kinds.values()).quantiles(),
            kinds: kinds.collect(),
        })
    }

    fn programmed_bytes(&self) -> Option<u64> {
        self.store.as_ref().and_then(|store| store.engine.programmed_bytes())
    }

    fn nvram_bytes(&self) -> u64 {
        self.store.as_ref().map_or(0, |store| store.engine.nvram_bytes())
    }

    /// Waits until the process is idle; returns how long it had remained busy.
    fn settle(&self) -> Nanos {
        let began = self.env.now();
        let (mut last, mut since) = (Usage::now().written_bytes, began);
        loop {
            let now = self.env.now();
            let written = Usage::now().written_bytes;
            if written != last || others_are_busy() {
                (last, since) = (written, now);
            }
            if now.saturating_sub(since) >= QUIET || now.saturating_sub(began) >= QUIET_MAX {
                return since.saturating_sub(began);
            }
            self.env.sleep_until(Nanos(now.0 + LOOK_EVERY.0));
        }
    }
}
