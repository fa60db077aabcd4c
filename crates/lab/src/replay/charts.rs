//! Presents a comparison as charts.

use super::comparison::{Comparison, ModeResult};
use crate::report::{Chart, ChartKind};
use std::collections::{BTreeMap, BTreeSet};

const MIB: f64 = (1 << 20) as f64;

impl Comparison {
    /// Charts of programmed and avoided bytes, throughput, and latency.
    pub(crate) fn charts(&self) -> Vec<Chart> {
        let modes: Vec<String> = self.modes.iter().map(|m| m.mode.clone()).collect();
        let chart =
            |title: &str, y: &str, kind| Chart { title: title.into(), x: "mode".into(), y: y.into(), kind };
        let bars = |series| ChartKind::Bars { groups: modes.clone(), series };
        let stacked = |series| ChartKind::Stacked { groups: modes.clone(), series };
        let mut charts = vec![
            chart("Programmed to flash, by cause", "MiB", stacked(self.parts(|m| &m.ledger.programmed))),
            chart(
                "Written by the host and not programmed, by reason",
                "MiB",
                stacked(self.parts(|m| &m.ledger.avoided)),
            ),
        ];
        if self.setup.journal_bytes > 0 {
            let removed = self.modes.iter().map(|m| m.home.removed_percent().unwrap_or(0.0)).collect();
            charts.push(chart(
                "Home writes removed",
                "% of home writes",
                bars(vec![("removed".into(), removed)]),
            ));
        }
        if self.modes.iter().any(|m| m.wrong_sectors > 0) {
            let wrong = self.modes.iter().map(|m| m.wrong_sectors as f64).collect();
            let series = vec![("wrong".to_string(), wrong)];
            charts.push(chart("Sectors that hold wrong bytes afterwards", "sectors", bars(series)));
        }
        let rates = self.modes.iter().map(|m| m.throughput_bytes_per_second / 1e6).collect();
        charts.push(chart(
            "Throughput, modelled",
            "MB/s",
            bars(vec![("host reads and writes".into(), rates)]),
        ));
        let latency = |name: &str, of: fn(&ModeResult) -> u64| {
            (name.to_string(), self.modes.iter().map(|m| of(m) as f64 / 1e3).collect::<Vec<_>>())
        };
        charts.push(chart(
            "99th percentile of latency, modelled",
            "µs",
            bars(vec![
                latency("write", |m| m.latency.write.latency_ns_p99),
                latency("flush or FUA", |m| m.latency.sync.latency_ns_p99),
                latency("read", |m| m.latency.read.latency_ns_p99),
            ]),
        ));
        charts
    }

    /// Each name that occurs in any mode, with its MiB in every mode.
    fn parts(&self, of: fn(&ModeResult) -> &BTreeMap<&'static str, u64>) -> Vec<(String, Vec<f64>)> {
        let names: BTreeSet<&str> = self.modes.iter().flat_map(|m| of(m).keys().copied()).collect();
        let bytes = |name: &str, mode| of(mode).get(name).copied().unwrap_or(0) as f64 / MIB;
        let part = |name: &str| (name.replace('_', " "), self.modes.iter().map(|m| bytes(name, m)).collect());
        names.into_iter().map(part).collect()
    }
}
