//! Presents a comparison as aligned text: a row per figure, a column per mode.

use super::comparison::{Comparison, ModeResult, Setup};
use std::collections::BTreeSet;
use std::fmt;
use vellum_base::Nanos;
use vellum_base::size::format_size;

/// A row of the table: name of the figure, and how to format a mode's value.
pub(crate) type Row = (String, Vec<String>);

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.setup)?;
        let heads: Vec<String> = self.modes.iter().map(|m| m.mode.clone()).collect();
        write_aligned(f, &heads, &self.rows())?;
        for note in &self.notes {
            writeln!(f, "* {note}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.requests;
        let journal = match self.journals {
            "none" => "no journal".to_string(),
            from => format!("journal of {} ({from})", format_size(self.journal_bytes)),
        };
        write!(
            f,
            "{} disk on {} of {} flash, {}; {} reads, {} writes, {} flushes; {} pace, depth {}; hashing core {}; seed {}",
            format_size(self.device_bytes),
            format_size(self.flash_bytes),
            self.preset,
            journal,
            r.read,
            r.write,
            r.flush,
            self.pace,
            self.queue_depth,
            self.core,
            self.seed
        )
    }
}

impl Comparison {
    /// The figures, one row each.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut row = |name: &str, value: &dyn Fn(&ModeResult) -> String| {
            rows.push((name.to_string(), self.modes.iter().map(value).collect()));
        };
        row("host sectors written", &|m| grouped(m.host_sectors_written));
        row("flash programmed", &|m| size(m.ledger.programmed_bytes));
        for cause in names(self.modes.iter().flat_map(|m| m.ledger.programmed.keys())) {
            row(&format!("  {}", words(cause)), &|m| {
                size(m.ledger.programmed.get(cause).copied().unwrap_or(0))
            });
        }
        row("avoided", &|m| size(m.ledger.avoided_bytes));
        for reason in names(self.modes.iter().flat_map(|m| m.ledger.avoided.keys())) {
            row(&format!("  {}", words(reason)), &|m| {
                size(m.ledger.avoided.get(reason).copied().unwrap_or(0))
            });
        }
        row("programmed per byte written", &|m| format!("{:.3}", m.ledger.write_amplification));
        row("home writes, sectors", &|m| grouped(m.home.written));
        row("home writes removed", &|m| match m.home.removed_percent() {
            Some(percent) => format!("{percent:.2} %"),
            None => "-".into(),
        });
        row("wrong sectors afterwards", &|m| grouped(m.wrong_sectors));
        row("throughput", &|m| format!("{:.1} MB/s", m.throughput_bytes_per_second / 1e6));
        row("requests", &|m| format!("{}/s", grouped(m.requests_per_second.round() as u64)));
        let of = |kind: usize, m: &ModeResult| [m.latency.read, m.latency.write, m.latency.sync][kind];
        for (kind, name) in ["read", "write", "flush or FUA"].into_iter().enumerate() {
            if self.modes.iter().any(|m| of(kind, m).count > 0) {
                row(&format!("{name} latency p50"), &|m| time(of(kind, m).latency_ns_p50));
                row("  p99", &|m| time(of(kind, m).latency_ns_p99));
                row("  p99.9", &|m| time(of(kind, m).latency_ns_p999));
            }
        }
        row("erases", &|m| grouped(m.erases));
        row("dedup tables", &|m| size(m.dedup_memory_bytes));
        row("log hash", &|m| m.log_hash.clone());
        rows
    }

    /// Remarks on these figures for the reader.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.setup.journal_bytes > 0 {
            notes.push(
                "home writes: sectors written outside the journal since its first transaction; removed: those that \
                 programmed nothing, in percent of them"
                    .into(),
            );
        }
        for m in &self.modes {
            if m.wrong_sectors > 0 {
                notes.push(format!(
                    "{} CORRUPTED {} of {} sectors: it believes a fingerprint of 64 bytes without comparing",
                    m.mode,
                    grouped(m.wrong_sectors),
                    grouped(m.checked_sectors)
                ));
            } else if m.mode.starts_with("strong") && !m.verified {
                notes.push(format!("{} believes its hash without comparing, as dmdedup does", m.mode));
            }
        }
        if self.modes.iter().any(|m| m.mode.starts_with("ecc-paper")) {
            notes.push(
                "ecc-paper keeps few bytes of parity, in which patterns (what a trace has in place of most contents) meet \
                 far more often than real bytes: it saves less here than on a disk"
                    .into(),
            );
        }
        if self.setup.modelled_content_sectors > 0 {
            let model = &self.setup.content;
            let so = match model.as_str() {
                "unique" => {
                    "no two of them are alike, so no mode can save anything on them, and the modes look the same. \
                     --content duplicates:40% makes some alike; vellum disk record keeps fingerprints of contents"
                }
                _ => "that, and not the workload, decides what dedup saves on them",
            };
            notes.push(format!(
                "the trace does not say what {} written sectors hold. By the content model ({model}) {so}",
                grouped(self.setup.modelled_content_sectors)
            ));
        }
        if self.setup.rows_rejected > 0 {
            notes.push(format!("{} rows of the trace were not usable", grouped(self.setup.rows_rejected)));
        }
        notes
    }
}

fn names<'a>(keys: impl Iterator<Item = &'a &'static str>) -> BTreeSet<&'static str> {
    keys.copied().collect()
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}

pub(crate) fn size(bytes: u64) -> String {
    format_size(bytes)
}

fn time(ns: u64) -> String {
    Nanos(ns).to_string()
}

/// `1234567` as `1 234 567`.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

fn write_aligned(f: &mut fmt::Formatter<'_>, heads: &[String], rows: &[Row]) -> fmt::Result {
    let name_width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heads.len())
        .map(|i| rows.iter().map(|(_, cells)| cells[i].len()).chain([heads[i].len()]).max().unwrap_or(0))
        .collect();
    let mut line = |name: &str, cells: &[String]| {
        write!(f, "{name:name_width$}")?;
        for (cell, width) in cells.iter().zip(&widths) {
            write!(f, "  {cell:>width$}")?;
        }
        writeln!(f)
    };
    line("", heads)?;
    rows.iter().try_for_each(|(name, cells)| line(name, cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1 000"), (1_234_567, "1 234 567")] {
            assert_eq!(grouped(n), text);
        }
    }
}
