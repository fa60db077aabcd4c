//! Summary of the rounds: medians and spread of each engine, and ratios to the peers.

use serde::Serialize;
use vellum::lab::kv_bench::{EngineKind, PlanReport};

/// docs/json/kv.md
#[derive(Debug, Default, Serialize)]
pub struct Bench {
    pub keys: u64,
    pub value_bytes: usize,
    pub threads: usize,
    pub durability: String,
    pub compression: &'static str,
    pub memtable_bytes: u64,
    pub memtables: usize,
    pub cache_bytes: u64,
    pub rounds: u16,
    pub load_before: f64,
    pub load_after: f64,
    pub engines: Vec<Announced>,
    pub results: Vec<Figures>,
    /// Reports from which the figures are computed.
    #[serde(skip)]
    pub reports: Vec<(EngineKind, PlanReport)>,
}

/// A requested engine.
#[derive(Debug, Serialize)]
pub struct Announced {
    pub name: &'static str,
    pub version: Option<String>,
    /// Why it is not available.
    pub absent: Option<String>,
    /// Size of a memtable: less than requested if the engine has a lower limit.
    pub memtable_bytes: usize,
}

/// One workload on one engine: medians over the rounds, except where stated otherwise.
#[derive(Debug, Serialize)]
pub struct Figures {
    pub workload: String,
    pub engine: &'static str,
    pub requests_per_second: f64,
    pub requests_per_second_min: f64,
    pub requests_per_second_max: f64,
    /// Median ratio to the peer's best configuration in the same round. Mapped tables compete only with mapped files.
    pub ratio_to_rocksdb: Option<f64>,
    pub ratio_to_leveldb: Option<f64>,
    pub latency_ns_p50: u64,
    pub latency_ns_p99: u64,
    pub latency_ns_p999: u64,
    pub user_bytes: u64,
    pub written_bytes: u64,
    pub nvram_bytes: u64,
    pub settled_seconds: f64,
    pub cpu_ns_per_request: f64,
    pub memory_bytes: u64,
    /// Every round, in order.
    pub rounds: Vec<PlanReport>,
}

impl Bench {
    /// Records an engine; false if it is not available.
    pub fn announce(&mut self, kind: EngineKind, memtable_bytes: usize) -> bool {
        let (version, absent) = match kind.version() {
            Ok(version) => (Some(version), None),
            Err(e) => (None, Some(e.to_string())),
        };
        let here = version.is_some();
        let memtable_bytes = kind.memtable_bytes(memtable_bytes);
        self.engines.push(Announced { name: kind.name(), version, absent, memtable_bytes });
        here
    }

    /// Adds an engine's reports of a round.
    pub fn add(&mut self, kind: EngineKind, reports: Vec<PlanReport>) {
        self.reports.extend(reports.into_iter().map(|report| (kind, report)));
    }

    /// Computes the figures from all reports.
    pub fn finish(&mut self) {
        let mut seen = Vec::new();
        for (kind, report) in &self.reports {
            if !seen.contains(&(report.workload.clone(), *kind)) {
                seen.push((report.workload.clone(), *kind));
            }
        }
        let mut workloads: Vec<String> = Vec::new();
        for (workload, _) in &seen {
            if !workloads.contains(workload) {
                workloads.push(workload.clone());
            }
        }
        for workload in workloads {
            for kind in EngineKind::ALL.into_iter().filter(|kind| seen.contains(&(workload.clone(), *kind))) {
                self.results.push(self.figures(&workload, kind));
            }
        }
    }

    fn rounds(&self, workload: &str, kind: EngineKind) -> Vec<&PlanReport> {
        let of = self.reports.iter().filter(|(of, report)| *of == kind && report.workload == workload);
        of.map(|(_, report)| report).collect()
    }

    fn figures(&self, workload: &str, kind: EngineKind) -> Figures {
        let rounds = self.rounds(workload, kind);
        let of = |value: fn(&PlanReport) -> f64| median(rounds.iter().map(|report| value(report)).collect());
        let rates = || rounds.iter().map(|report| report.requests_per_second);
        Figures {
            workload: workload.into(),
            engine: kind.name(),
            requests_per_second: median(rates().collect()),
            requests_per_second_min: rates().fold(f64::MAX, f64::min),
            requests_per_second_max: rates().fold(0.0, f64::max),
            ratio_to_rocksdb: self.ratio(workload, kind, "rocksdb-"),
            ratio_to_leveldb: self.ratio(workload, kind, "leveldb-"),
            latency_ns_p50: of(|r| r.all.latency_ns_p50 as f64) as u64,
            latency_ns_p99: of(|r| r.all.latency_ns_p99 as f64) as u64,
            latency_ns_p999: of(|r| r.all.latency_ns_p999 as f64) as u64,
            user_bytes: of(|r| r.user_bytes as f64) as u64,
            written_bytes: of(|r| r.written_bytes as f64) as u64,
            nvram_bytes: of(|r| r.nvram_bytes as f64) as u64,
            settled_seconds: of(|r| r.settled_seconds),
            cpu_ns_per_request: of(|r| r.cpu_seconds * 1e9 / r.requests.max(1) as f64),
            memory_bytes: of(|r| r.memory_bytes as f64) as u64,
            rounds: rounds.into_iter().cloned().collect(),
        }
    }

    /// The median over rounds of the ratio to the rate of the peer's best configuration in the same round.
    fn ratio(&self, workload: &str, kind: EngineKind, peer: &str) -> Option<f64> {
        if kind.name().starts_with(peer) {
            return None;
        }
        let ours = self.rounds(workload, kind);
        let is_setting = |of: &EngineKind| of.name().starts_with(peer) && kind.competes_with(*of);
        let settings: Vec<_> = EngineKind::ALL.into_iter().filter(is_setting).collect();
        let ratios = ours.iter().enumerate().filter_map(|(round, ours)| {
            let best = settings.iter().filter_map(|kind| Some(*self.rounds(workload, *kind).get(round)?));
            let best = best.map(|report| report.requests_per_second).fold(0.0, f64::max);
            (best > 0.0).then(|| ours.requests_per_second / best)
        });
        let ratios: Vec<f64> = ratios.collect();
        (!ratios.is_empty()).then(|| median(ratios))
    }
}

/// The median; of an even number of values, the mean of the middle two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => 0.0,
        (len, middle) if len % 2 == 0 => (values[middle - 1] + values[middle]) / 2.0,
        (_, middle) => values[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(workload: &str, rate: f64) -> PlanReport {
        PlanReport { workload: workload.into(), requests_per_second: rate, ..PlanReport::default() }
    }

    #[test]
    fn ratios_are_to_the_better_setting_of_the_same_round() {
        let mut bench = Bench::default();
        for (ours, default, tuned) in [(300.0, 100.0, 50.0), (200.0, 50.0, 100.0), (900.0, 100.0, 10.0)] {
            bench.add(EngineKind::RocksDbDefault, vec![report("fillseq", default)]);
            bench.add(EngineKind::Vellum, vec![report("fillseq", ours)]);
            bench.add(EngineKind::RocksDbTuned, vec![report("fillseq", tuned)]);
        }
        bench.finish();
        let [vellum, default, tuned] = &bench.results[..] else { panic!("three") };
        assert_eq!(
            (vellum.engine, default.engine, tuned.engine),
            ("vellum", "rocksdb-default", "rocksdb-tuned")
        );
        assert_eq!((vellum.ratio_to_rocksdb, vellum.ratio_to_leveldb), (Some(3.0), None));
        assert_eq!(default.ratio_to_rocksdb, None);
        assert_eq!((vellum.requests_per_second, vellum.requests_per_second_max), (300.0, 900.0));
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), 2.5);
    }
}
