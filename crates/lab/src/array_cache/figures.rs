//! Presents a comparison as a table and as charts.

use super::{CacheComparison, CacheResult, Kept, Made};
use crate::experiment::Table;
use crate::report::{Chart, ChartKind};
use vellum_base::SECTOR_BYTES;

/// A component of what a mode wrote to flash.
type Part = (&'static str, fn(&CacheResult) -> u64);

/// Why pages were written.
const CAUSES: [Part; 6] = [
    ("after reads that missed", |m| m.totals.fill_pages),
    ("for writes that missed", |m| m.totals.allocate_pages),
    ("for writes that hit", |m| m.totals.update_pages),
    ("out of memory", |m| m.totals.promote_pages),
    ("deltas", |m| m.totals.delta_pages),
    ("metadata", |m| m.totals.log_pages),
];

/// Disks that are busy for at least this share of the time cannot keep up with the requests.
const OVERLOADED: f64 = 0.95;

/// How to obtain a trace with contents.
pub const NEXT_RECORD: &str = "`vellum disk record --bytes` records a trace that has them all";

impl CacheComparison {
    /// One line on what was replayed, and on what.
    pub fn setup(&self) -> String {
        let [all, read, written] = self.unique_sectors.map(size);
        format!(
            "{} requests touch {all} ({read} read, {written} written) on RAID-{} of {} disks ({}); cache of {} ({}); \
             contents: {}{}; seed {}",
            self.requests,
            self.level,
            self.members,
            self.disk,
            size(self.cache_pages.into()),
            self.ssd,
            self.deltas,
            self.contents.map_or(String::new(), Kept::tell),
            self.seed
        )
    }

    /// Table with figures as rows and modes as columns.
    pub fn table(&self) -> Table {
        let names = self.modes.iter().map(|m| m.mode.to_string());
        let mut table = Table::new("All figures", std::iter::once(String::new()).chain(names));
        let mut row = |name: &str, of: &dyn Fn(&CacheResult) -> String| {
            table.rows.push(std::iter::once(name.to_string()).chain(self.modes.iter().map(of)).collect());
        };
        let share = |part: u64, whole: u64| format!("{:.1}%", 100.0 * part as f64 / whole.max(1) as f64);
        row("flash written", &|m| size(m.totals.flash_pages()));
        for (cause, pages) in CAUSES {
            row(&format!("  {cause}"), &|m| size(pages(m)));
        }
        if self.contents.is_some() {
            let length = |mean: f64| format!("{:.1}% of a sector", 100.0 * mean);
            row("mean delta", &|m| m.deltas.and_then(|made| made.mean_share).map_or("-".into(), length));
            let had_a_base = |m: &CacheResult| m.deltas.filter(|made| made.bases > 0);
            let none = |made: Made| format!("{} of bases", share(made.none, made.bases));
            row("no delta", &|m| had_a_base(m).map_or("-".into(), none));
        }
        row("read hits", &|m| share(m.totals.read_hits, m.totals.reads));
        row("write hits", &|m| share(m.totals.write_hits, m.totals.writes));
        row("parity put off, sectors", &|m| m.totals.put_off.to_string());
        row("rows cleaned", &|m| m.totals.rows_cleaned.to_string());
        let time = |of: u64, text: String| if of == 0 { "-".to_string() } else { text };
        row("read response, mean", &|m| time(m.totals.reads, format!("{:.2} ms", m.times.reads.mean_ms)));
        row("read response, p99", &|m| time(m.totals.reads, format!("{:.1} ms", m.times.reads.p99_ms)));
        row("write response, mean", &|m| time(m.totals.writes, format!("{:.2} ms", m.times.writes.mean_ms)));
        row("write response, p99", &|m| time(m.totals.writes, format!("{:.1} ms", m.times.writes.p99_ms)));
        row("disks at work", &|m| format!("{:.1}%", 100.0 * m.times.disks_busy));
        row("memory for pages", &|m| size(m.window_pages));
        table
    }

    /// Remarks for the reader.
    pub(super) fn remarks(&self) -> Vec<String> {
        [self.overloaded(), self.fingerprinted()].into_iter().flatten().collect()
    }

    /// Names the modes whose response times mean little, because requests came faster than the disks can serve them.
    fn overloaded(&self) -> Option<String> {
        let of = self.modes.iter().filter(|mode| mode.times.disks_busy >= OVERLOADED);
        let modes: Vec<&str> = of.map(|mode| mode.mode).collect();
        (!modes.is_empty()).then(|| {
            format!(
                "the disks of {} are overloaded (at work at least {:.0}% of the time): their response times say how long \
                 requests queue, and grow with the trace; --speed below this one's gives the disks more time",
                modes.join(", "),
                100.0 * OVERLOADED
            )
        })
    }

    /// Warns that deltas of recorded contents mean little for sectors whose bytes are not in the trace.
    fn fingerprinted(&self) -> Option<String> {
        let Kept { real, fingerprints, unknown } = self.contents?;
        (fingerprints + unknown > 0).then(|| {
            format!(
                "of {} of {} written sectors the trace does not have the bytes: their deltas are nearly whole sectors, or \
                 none; {NEXT_RECORD}",
                fingerprints + unknown,
                real + fingerprints + unknown
            )
        })
    }

    /// Charts of flash writes, hits, and response times.
    pub fn charts(&self) -> Vec<Chart> {
        let groups: Vec<String> = self.modes.iter().map(|m| m.mode.to_string()).collect();
        let of = |value: &dyn Fn(&CacheResult) -> f64| self.modes.iter().map(value).collect::<Vec<f64>>();
        let chart =
            |title: &str, y: &str, kind| Chart { title: title.into(), x: "mode".into(), y: y.into(), kind };
        let mb = |pages: u64| (pages * SECTOR_BYTES as u64) as f64 / 1e6;
        let written = CAUSES.map(|(cause, pages)| (cause.to_string(), of(&|m| mb(pages(m)))));
        let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
        let hits = vec![
            ("reads".to_string(), of(&|m| percent(m.totals.read_hits, m.totals.reads))),
            ("writes".to_string(), of(&|m| percent(m.totals.write_hits, m.totals.writes))),
        ];
        let times = vec![
            ("reads".to_string(), of(&|m| m.times.reads.mean_ms)),
            ("writes".to_string(), of(&|m| m.times.writes.mean_ms)),
        ];
        vec![
            chart(
                "Flash written",
                "MB",
                ChartKind::Stacked { groups: groups.clone(), series: written.into() },
            ),
            chart("Hits", "%", ChartKind::Bars { groups: groups.clone(), series: hits }),
            chart("Mean response", "ms", ChartKind::Bars { groups, series: times }),
        ]
    }
}

impl Kept {
    /// For display, after the name of the model.
    fn tell(self) -> String {
        let all = self.real + self.fingerprints + self.unknown;
        format!(" (real bytes of {} of {all} written sectors)", self.real)
    }
}

/// Size of some pages in the largest binary unit.
fn size(pages: u64) -> String {
    crate::replay::size(pages * SECTOR_BYTES as u64)
}
