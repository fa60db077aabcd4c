//! `replay --array`: one workload with several SSD caches of an array, side by side.

use crate::text;
use vellum::array::Level;
use vellum::base::{Error, Result, SECTOR_BYTES};
use vellum::lab::array_cache::{CacheComparison, DeltaModel};
use vellum::{Share, Size};

/// Default modes.
pub const DEFAULT_MODES: &str = "nossd,wa,wt,larc,leavo,kdd-50,kdd-25,kdd-12,kdd";

/// Options that have no effect on an array.
const OF_A_DISK: [&str; 8] = ["queue_depth", "size", "op", "core", "fill", "overwrite", "content", "journal"];

/// The array and its cache.
#[derive(clap::Args)]
pub struct ArrayArgs {
    /// Compare caches of an array instead: raid5 or raid6. Modes are then nossd, wa, wt, larc, leavo, kdd-50, kdd-25,
    /// kdd-12, kdd, and kdd-nvram: kdd whose cache outlives a power cut, so that it keeps nothing in memory alone.
    /// --device is the SSD, and requests come at the trace's times (--speed)
    #[arg(long, value_name = "LEVEL", value_parser = parse_level, conflicts_with_all = OF_A_DISK)]
    pub array: Option<Level>,
    /// Disks of the array
    #[arg(long, value_name = "N", default_value_t = 5, requires = "array")]
    pub members: usize,
    /// Chunk of the array
    #[arg(long, value_name = "SIZE", default_value = "64KiB", requires = "array")]
    chunk: Size,
    /// The cache, as a share of the sectors that the trace touches
    #[arg(long, value_name = "SHARE", default_value = "20%", requires = "array")]
    pub cache: Share,
    /// Where the trace's first sector begins, for partitions that are not aligned (CloudPhysics: 32256)
    #[arg(long, value_name = "BYTES", default_value = "0", requires = "array")]
    pub shift: Size,
    /// How much two versions of a sector differ, in place of what each mode's name says: measured (of real page images:
    /// many small changes, some pages with new contents), gaussian:SHARE around a mean, or recorded (what the codec
    /// makes of the trace's own contents: `disk record --bytes`)
    #[arg(long, value_name = "MODEL", value_parser = parse_deltas, requires = "array")]
    pub deltas: Option<DeltaModel>,
}

impl ArrayArgs {
    /// Sectors per chunk.
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

fn parse_deltas(text: &str) -> Result<DeltaModel> {
    match text.split_once(':') {
        None if text == "measured" => Ok(DeltaModel::Measured),
        None if text == "recorded" => Ok(DeltaModel::Recorded),
        Some(("gaussian", share)) => match share.parse::<Share>()?.0 {
            mean if mean <= 1.0 => Ok(DeltaModel::Gaussian { mean }),
            _ => {
                Err(Error::invalid(format!("versions differ by {share}: at most all of a sector does, 100%")))
            }
        },
        _ => Err(Error::invalid(format!("no model of deltas '{text}': measured, recorded, or gaussian:25%"))),
    }
}

/// For display: figures as rows, modes as columns.
pub fn render(comparison: &CacheComparison) -> String {
    format!("{}\n\n{}", comparison.setup(), text::outcome::table(&comparison.table()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_differ_by_a_sector_at_most() {
        assert_eq!(parse_deltas("gaussian:100%").unwrap(), DeltaModel::Gaussian { mean: 1.0 });
        assert!(parse_deltas("gaussian:200%").unwrap_err().to_string().contains("at most all of a sector"));
    }
}
