//! Prints a replay: figures as rows, modes as columns.

use super::{Align, Table, bytes};
use std::collections::BTreeSet;
use vellum::base::Nanos;
use vellum::lab::replay::{Comparison, Latency, ModeResult, Setup};

/// What was replayed, then the table, then remarks for the reader.
pub fn render(comparison: &Comparison) -> String {
    let modes = &comparison.modes;
    let mut columns = vec![Align::Left];
    columns.extend(modes.iter().map(|_| Align::Right));
    let mut figures = Figures { table: Table::new(&columns), modes };
    figures.row("", |m| m.mode.clone());
    figures.row("host sectors written", |m| m.host_sectors_written.to_string());
    figures.row("flash programmed", |m| bytes(m.ledger.programmed_bytes));
    for cause in keys(modes, |m| m.ledger.programmed.keys().copied().collect()) {
        figures.row(&format!("  {}", cause.replace('_', " ")), |m| amount(m.ledger.programmed.get(cause)));
    }
    figures.row("avoided", |m| bytes(m.ledger.avoided_bytes));
    for reason in keys(modes, |m| m.ledger.avoided.keys().copied().collect()) {
        figures.row(&format!("  {}", reason.replace('_', " ")), |m| amount(m.ledger.avoided.get(reason)));
    }
    figures.row("write amplification", |m| format!("{:.3}", m.ledger.write_amplification));
    figures.row("home writes removed", |m| {
        m.home.removed_percent().map_or("-".into(), |percent| format!("{percent:.2}%"))
    });
    figures.row("throughput", |m| format!("{:.1} MB/s", m.throughput_bytes_per_second / 1e6));
    figures.row("write latency p99", |m| p99(&m.latency.write));
    figures.row("sync latency p99", |m| p99(&m.latency.sync));
    figures.row("read latency p99", |m| p99(&m.latency.read));
    figures.row("erases", |m| m.erases.to_string());
    figures.row("fingerprint tables", |m| bytes(m.dedup_memory_bytes));
    figures.row("wrong sectors", |m| m.wrong_sectors.to_string());
    let notes: String = comparison.notes.iter().map(|note| format!("\nnote: {note}\n")).collect();
    format!("{}\n{}{notes}", setup(&comparison.setup), figures.table.render(""))
}

struct Figures<'a> {
    table: Table,
    modes: &'a [ModeResult],
}

impl Figures<'_> {
    fn row(&mut self, name: &str, of: impl Fn(&ModeResult) -> String) {
        let cells = std::iter::once(name.to_string()).chain(self.modes.iter().map(of));
        self.table.row(cells);
    }
}

fn setup(setup: &Setup) -> String {
    let requests = &setup.requests;
    format!(
        "{} on {} of flash ({}), {} requests: {} writes, {} reads, {} flushes, {} trims; journals of {} {}; seed {}\n",
        bytes(setup.device_bytes),
        bytes(setup.flash_bytes),
        setup.preset,
        requests.read + requests.write + requests.trim + requests.write_zeroes + requests.flush,
        requests.write,
        requests.read,
        requests.flush,
        requests.trim,
        bytes(setup.journal_bytes),
        setup.journals,
        setup.seed
    )
}

/// All keys of any mode.
fn keys(modes: &[ModeResult], of: impl Fn(&ModeResult) -> Vec<&'static str>) -> BTreeSet<&'static str> {
    modes.iter().flat_map(of).collect()
}

fn amount(of: Option<&u64>) -> String {
    of.map_or("-".into(), |amount| bytes(*amount))
}

fn p99(latency: &Latency) -> String {
    match latency.count {
        0 => "-".into(),
        _ => Nanos(latency.latency_ns_p99).to_string(),
    }
}
