//! Prints a comparison of key-value engines.

use super::{Align, Table, bytes};
use crate::commands::kv::bench::{Bench, Figures, Modelled};
use std::fmt::Write;
use vellum::lab::kv_bench::device::DeviceReport;

/// The set-up, then a line for each workload and engine.
pub fn render(bench: &Bench) -> String {
    let mut text = format!(
        "{} keys, values of {} bytes, {} thread{}, durability {}, compression {}; memory {} x {} and {} of cache\n\
         {} round{}; medians; load of the machine {:.1} before, {:.1} after\n",
        bench.keys,
        bench.value_bytes,
        bench.threads,
        plural(bench.threads),
        bench.durability,
        bench.compression,
        bench.memtables,
        bytes(bench.memtable_bytes),
        bytes(bench.cache_bytes),
        bench.rounds,
        plural(bench.rounds.into()),
        bench.load_before,
        bench.load_after
    );
    for engine in &bench.engines {
        let _ = match (&engine.version, &engine.absent) {
            (Some(version), _) if (engine.memtable_bytes as u64) < bench.memtable_bytes => {
                let most = bytes(engine.memtable_bytes as u64);
                writeln!(
                    text,
                    "{} {version}, memtables of {most}: its NVRAM has no room for more",
                    engine.name
                )
            }
            (Some(version), _) => writeln!(text, "{} {version}", engine.name),
            (_, Some(why)) => writeln!(text, "{} is not here: {why}", engine.name),
            _ => Ok(()),
        }; // cannot fail
    }
    text + "\n" + &table(&bench.results)
}

fn table(results: &[Figures]) -> String {
    const COLUMNS: [&str; 13] = [
        "",
        "",
        "1000/s",
        "(min",
        "max)",
        "x rocksdb",
        "x leveldb",
        "p50 us",
        "p99",
        "p99.9",
        "written",
        "cpu us",
        "memory",
    ];
    let mut align = vec![Align::Left; 2];
    align.resize(COLUMNS.len(), Align::Right);
    let mut table = Table::new(&align);
    table.row(COLUMNS);
    let mut before = "";
    for figures in results {
        let workload = if figures.workload == before { "" } else { &figures.workload };
        before = &figures.workload;
        table.row(row(workload, figures));
    }
    table.render("")
}

/// Bytes written for each of the user's, and those that NVRAM took besides.
fn written(figures: &Figures) -> String {
    let times = |bytes: u64| bytes as f64 / figures.user_bytes as f64;
    match (figures.user_bytes, figures.nvram_bytes) {
        (0, _) => bytes(figures.written_bytes),
        (_, 0) => format!("{:.2} x", times(figures.written_bytes)),
        (_, in_nvram) => format!("{:.2} + {:.2} NVRAM x", times(figures.written_bytes), times(in_nvram)),
    }
}

fn row(workload: &str, figures: &Figures) -> Vec<String> {
    let thousands = |rate: f64| format!("{:.0}", rate / 1e3);
    let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
    let ratio = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
    vec![
        workload.to_string(),
        figures.engine.to_string(),
        thousands(figures.requests_per_second),
        thousands(figures.requests_per_second_min),
        thousands(figures.requests_per_second_max),
        ratio(figures.ratio_to_rocksdb),
        ratio(figures.ratio_to_leveldb),
        us(figures.latency_ns_p50),
        us(figures.latency_ns_p99),
        us(figures.latency_ns_p999),
        written(figures),
        format!("{:.1}", figures.cpu_ns_per_request / 1e3),
        bytes(figures.memory_bytes),
    ]
}

/// The modelled device, then a line for each workload and store.
pub fn render_modelled(bench: &Modelled) -> String {
    let Modelled { channels, pages_per_block, keys, value_bytes, threads, cache_bytes, .. } = *bench;
    let mut text = format!(
        "{channels} channels, superblocks of {}; {keys} keys, values of {value_bytes} bytes, {threads} client{}, {} of cache\n\
         times are virtual: the same every time; flash is what the board programmed, for each byte of keys and values\n\n",
        bytes(u64::from(channels * pages_per_block) * 8192),
        plural(threads),
        bytes(cache_bytes as u64)
    );
    const COLUMNS: [&str; 11] =
        ["", "", "1000/s", "load s", "p50 us", "p99", "p99.9", "flash", "GC eff.", "hits", "waited s"];
    let mut align = vec![Align::Left; 2];
    align.resize(COLUMNS.len(), Align::Right);
    let mut table = Table::new(&align);
    table.row(COLUMNS);
    let mut before = "";
    for report in &bench.results {
        let workload = if report.workload == before { "" } else { report.workload };
        before = report.workload;
        table.row(modelled_row(workload, report));
    }
    text += &table.render("");
    text
}

fn modelled_row(workload: &str, report: &DeviceReport) -> Vec<String> {
    let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
    let share = |share: f64| format!("{:.1} %", share * 100.0);
    // A load has no requests after it.
    let of_requests = |text: String| if report.run_seconds > 0.0 { text } else { "-".into() };
    vec![
        workload.into(),
        report.system.into(),
        of_requests(format!("{:.1}", report.requests_per_second / 1e3)),
        format!("{:.2}", report.load_seconds),
        of_requests(us(report.latency_ns_p50)),
        of_requests(us(report.latency_ns_p99)),
        of_requests(us(report.latency_ns_p999)),
        format!("{:.2} x", report.programmed_bytes as f64 / report.user_bytes.max(1) as f64),
        report.gc_efficiency.map_or("-".into(), share),
        of_requests(share(report.cache_hit_share)),
        format!("{:.2}", report.waited_seconds),
    ]
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
