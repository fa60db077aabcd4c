//! One trace replayed in several modes. The JSON form is documented in docs/json/replay.md and stable.

use super::{Arrivals, DeltaModel, Deltas, Hardware, Kept, Made, Mode, Times, Totals, Workload, time};
use crate::Progress;
use crate::replay::Devices;
use serde::Serialize;
use vellum_array::{Level, Shape};
use vellum_base::{Error, Result};
use vellum_media::{HddModel, Preset};
use vellum_trace::{ByteLen, RequestSource};

/// How a trace is replayed.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Policies to compare.
    pub modes: Vec<Mode>,
    /// RAID-5 or RAID-6.
    pub level: Level,
    /// Number of disks.
    pub members: usize,
    /// Sectors per chunk.
    pub chunk_sectors: u32,
    /// Size of the cache, as a share of the sectors that the trace touches.
    pub cache_share: f64,
    /// The cache's SSD.
    pub ssd: Preset,
    /// When requests arrive.
    pub arrivals: Arrivals,
    /// Which devices of the trace are replayed.
    pub devices: Devices,
    /// Offset of the trace's first sector.
    pub shift: ByteLen,
    /// How much two versions of a sector differ; None: the default of each mode.
    pub deltas: Option<DeltaModel>,
    /// Seed for the lengths of deltas.
    pub seed: u64,
}

/// What was replayed, and the results.
#[derive(Clone, Debug, Serialize)]
pub struct CacheComparison {
    /// Number of requests.
    pub requests: u64,
    /// Distinct sectors touched, read, and written.
    pub unique_sectors: [u64; 3],
    /// Sectors read and written, counted every time.
    pub sectors: [u64; 2],
    /// RAID level.
    pub level: u8,
    /// Number of disks.
    pub members: usize,
    /// Model of the disks.
    pub disk: &'static str,
    /// The cache's SSD.
    pub ssd: &'static str,
    /// Pages of the cache.
    pub cache_pages: u32,
    /// How much two versions of a sector differ.
    pub deltas: String,
    /// With recorded contents: how many written sectors have content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<Kept>,
    /// Seed of the run.
    pub seed: u64,
    /// Results by mode.
    pub modes: Vec<CacheResult>,
    /// Remarks for the reader.
    pub notes: Vec<String>,
}

/// Results of one mode.
#[derive(Clone, Debug, Serialize)]
pub struct CacheResult {
    /// Its name.
    pub mode: &'static str,
    /// Additional pages held in memory.
    pub window_pages: u64,
    /// Bytes written to flash.
    pub flash_bytes: u64,
    /// What the policy did.
    pub totals: Totals,
    /// Deltas of recorded contents, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deltas: Option<Made>,
    /// How long requests took.
    pub times: Times,
}

/// Replays the trace once in each mode.
///
/// # Errors
/// Those of the trace; [`vellum_base::Kind::Invalid`] for impossible options.
pub fn compare(
    open: &dyn Fn() -> Result<Box<dyn RequestSource>>,
    options: &CacheOptions,
    progress: &dyn Progress,
) -> Result<CacheComparison> {
    if !(options.cache_share > 0.0 && options.cache_share <= 1.0) {
        return Err(Error::invalid("a cache is a share of the touched sectors: more than 0, at most 100 %"));
    }
    progress.begin("survey", 0);
    let workload = match options.deltas {
        Some(DeltaModel::Recorded) => Workload::load_written(open, options.devices, options.shift)?,
        _ => Workload::load(open, options.devices, options.shift)?,
    };
    let hardware =
        Hardware { shape: shape(&workload, options)?, disk: HddModel::SATA_1TB_PLAIN, ssd: options.ssd };
    let cache_pages = ((workload.unique[0] as f64 * options.cache_share) as u32).max(4);
    let mut modes = Vec::new();
    progress.begin("replay", options.modes.len() as u64);
    for mode in &options.modes {
        let mut policy = mode.recipe(cache_pages).build(&hardware.shape)?;
        let mut deltas = Deltas::new(options.deltas.unwrap_or(mode.deltas), options.seed, &workload)?;
        let (totals, times) =
            time(&mut *policy, &workload, &mut deltas, mode.partial, &hardware, options.arrivals)?;
        let window_pages = policy.census().window;
        modes.push(CacheResult {
            mode: mode.name,
            window_pages,
            flash_bytes: totals.flash_bytes(),
            totals,
            deltas: deltas.made(),
            times,
        });
        progress.advance(1);
    }
    let mut comparison = CacheComparison {
        requests: workload.requests.len() as u64,
        unique_sectors: workload.unique,
        sectors: workload.pages,
        level: options.level.number(),
        members: options.members,
        disk: "sata-1tb-plain",
        ssd: options.ssd.name,
        cache_pages,
        deltas: options.deltas.map_or("as each mode has it".into(), DeltaModel::name),
        contents: workload.written.as_ref().map(|written| written.kept()),
        seed: options.seed,
        modes,
        notes: Vec::new(),
    };
    comparison.notes = comparison.remarks();
    Ok(comparison)
}

/// Shape of an array that is large enough for the trace.
fn shape(workload: &Workload, options: &CacheOptions) -> Result<Shape> {
    let CacheOptions { level, members, chunk_sectors, .. } = *options;
    let mut shape = Shape { level, members, chunk_sectors, rows: 1 };
    shape.check()?;
    shape.rows = workload.sectors.div_ceil(shape.row_sectors()).max(1);
    match shape.rows * u64::from(chunk_sectors) <= HddModel::SATA_1TB_PLAIN.sectors {
        true => Ok(shape),
        false => Err(Error::invalid("the trace needs larger disks than the model's: take more --members")),
    }
}
