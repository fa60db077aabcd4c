//! A few seconds of Figure 7, as an introduction to Vellum.

use super::bench::{Load, Measured};
use super::system::System;
use super::{Board, CLIENTS, PAPER, Run, VALUE_BYTES, accounts, run_all};
use crate::experiment::{Experiment, Outcome, Setting, Table};
use crate::report::{Chart, ChartKind};
use vellum_base::Result;
use vellum_trace::generate::kv::Workload;

pub(crate) const CHAPTER: Experiment = Experiment {
    name: "flashkv-tour",
    paper: PAPER,
    figure: "after Figure 7",
    claim: "A key-value store that knows the flash below it writes less and waits less than one on a file system on an SSD",
    small: "24,000 records of 1000 bytes, then 48,000 requests of YCSB A, on 8 channels",
    full: "the same",
    run,
};

const SYSTEMS: [System; 4] = [System::Ext4, System::ParaFs, System::FlashKv, System::Vellum];
const BOARD: Board = Board { channels: 8, pages_per_block: 16, blocks_per_die: 88 };
const RECORDS: u64 = 24_000;

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let load = Load {
        workload: Workload::YcsbA,
        records: RECORDS,
        requests: 2 * RECORDS,
        value_bytes: VALUE_BYTES,
        clients: CLIENTS,
        cache_bytes: RECORDS as usize * VALUE_BYTES / 5,
        settle: false,
    };
    let runs = SYSTEMS.map(|system| Run { system, board: BOARD, load });
    let measured = run_all("Key-value stores", &runs, setting)?;
    let rows = || SYSTEMS.iter().zip(&measured);
    let columns = ["store", "1000 requests/s", "programmed, MB", "GC efficiency, %"];
    let mut table = Table::new("The same requests to four stores, on the same flash", columns);
    table.rows.extend(rows().map(|(system, m)| {
        vec![
            system.name().into(),
            format!("{:.1}", m.ops_per_second() / 1e3),
            format!("{:.0}", m.programmed_bytes as f64 / 1e6),
            m.gc_efficiency().map_or("-".into(), |share| format!("{:.1}", share * 100.0)),
        ]
    }));
    let bars = |value: fn(&Measured) -> f64| {
        rows().map(|(system, m)| (system.name().to_string(), vec![value(m)])).collect()
    };
    let chart = Chart {
        title: "Requests a second".into(),
        x: "YCSB workload".into(),
        y: "1000 requests/s".into(),
        kind: ChartKind::Bars { groups: vec!["A".into()], series: bars(|m| m.ops_per_second() / 1e3) },
    };
    let costs = accounts(&SYSTEMS, std::iter::once((String::new(), measured.clone())));
    Ok(Outcome { tables: vec![table, costs], charts: vec![chart], ..Outcome::default() })
}
