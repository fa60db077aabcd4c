//! `replay --array`: one workload through SSD caches of an array, side by side.

use crate::text::{Align, Table, bytes};
use vellum::array::Level;
use vellum::base::{Error, Result, SECTOR_BYTES};
use vellum::lab::array_cache::{CacheComparison, CacheResult};
use vellum::{Share, Size};

/// What is compared when nothing is said.
pub const DEFAULT_MODES: &str = "nossd,wa,wt,leavo,kdd-50,kdd-25,kdd-12,kdd";

/// The array and its cache.
#[derive(clap::Args)]
pub struct ArrayArgs {
    /// Compare caches of an array instead: raid5 or raid6. Modes are then nossd, wa, wt, leavo, kdd-50, kdd-25, kdd-12,
    /// kdd, kdd-nvram; --device is the SSD, and requests come at the trace's times (--speed)
    #[arg(long, value_name = "LEVEL", value_parser = parse_level, conflicts_with = "report")]
    pub array: Option<Level>,
    /// Disks of the array
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub members: usize,
    /// Chunk of the array
    #[arg(long, value_name = "SIZE", default_value = "64KiB")]
    chunk: Size,
    /// The cache, as a share of the sectors that the trace touches
    #[arg(long, value_name = "SHARE", default_value = "20%")]
    pub cache: Share,
    /// Where the trace's first sector begins, for partitions that are not aligned (CloudPhysics: 32256)
    #[arg(long, value_name = "BYTES", default_value = "0")]
    pub shift: Size,
}

impl ArrayArgs {
    /// Sectors of a chunk.
    pub fn chunk_sectors(&self) -> Result<u32> {
        let sectors = self.chunk.0 / SECTOR_BYTES as u64;
        match u32::try_from(sectors) {
            Ok(sectors) if self.chunk.0.is_multiple_of(SECTOR_BYTES as u64) => Ok(sectors),
            _ => Err(Error::invalid("a chunk is whole sectors of 4 KiB")),
        }
    }
}

fn parse_level(text: &str) -> Result<Level> {
    match text {
        "raid5" => Ok(Level::Raid5),
        "raid6" => Ok(Level::Raid6),
        _ => Err(Error::invalid(format!("no level '{text}': raid5 or raid6"))),
    }
}

/// For people: figures down, modes across.
pub fn render(comparison: &CacheComparison) -> String {
    let modes = &comparison.modes;
    let mut columns = vec![Align::Left];
    columns.extend(modes.iter().map(|_| Align::Right));
    let mut table = Table::new(&columns);
    let mut row = |name: &str, of: &dyn Fn(&CacheResult) -> String| {
        table.row(std::iter::once(name.to_string()).chain(modes.iter().map(of)));
    };
    let page = |pages: u64| bytes(pages * SECTOR_BYTES as u64);
    let share = |part: u64, whole: u64| format!("{:.1}%", 100.0 * part as f64 / whole.max(1) as f64);
    row("", &|m| m.mode.to_string());
    row("flash written", &|m| bytes(m.flash_bytes));
    row("  after reads that missed", &|m| page(m.totals.fill_pages));
    row("  for writes that missed", &|m| page(m.totals.allocate_pages));
    row("  for writes that hit", &|m| page(m.totals.update_pages));
    row("  out of memory", &|m| page(m.totals.promote_pages));
    row("  deltas", &|m| page(m.totals.delta_pages));
    row("  metadata", &|m| page(m.totals.log_pages));
    row("read hits", &|m| share(m.totals.read_hits, m.totals.reads));
    row("write hits", &|m| share(m.totals.write_hits, m.totals.writes));
    row("parity put off, sectors", &|m| m.totals.put_off.to_string());
    row("rows cleaned", &|m| m.totals.rows_cleaned.to_string());
    row("read response, mean", &|m| format!("{:.2} ms", m.times.reads.mean_ms));
    row("read response, p99", &|m| format!("{:.1} ms", m.times.reads.p99_ms));
    row("write response, mean", &|m| format!("{:.2} ms", m.times.writes.mean_ms));
    row("write response, p99", &|m| format!("{:.1} ms", m.times.writes.p99_ms));
    row("disks at work", &|m| format!("{:.1}%", 100.0 * m.times.disks_busy));
    row("memory for pages", &|m| page(m.window_pages));
    format!("{}\n{}", setup(comparison), table.render(""))
}

fn setup(comparison: &CacheComparison) -> String {
    let size = |sectors: u64| bytes(sectors * SECTOR_BYTES as u64);
    let [all, read, written] = comparison.unique_sectors.map(size);
    format!(
        "{} requests touch {all} ({read} read, {written} written) on RAID-{} of {} disks ({}); cache of {} ({}); seed {}\n",
        comparison.requests,
        comparison.level,
        comparison.members,
        comparison.disk,
        size(comparison.cache_pages.into()),
        comparison.ssd,
        comparison.seed
    )
}
