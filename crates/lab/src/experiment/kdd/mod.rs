//! KDD's evaluation (kdd.txt, section IV), on workloads modelled on its Table I: its traces cannot be shipped.

pub(crate) mod counted;
pub(crate) mod engine;
pub(crate) mod fio;
pub(crate) mod metadata;
pub(crate) mod nvram;
pub(crate) mod timed;
pub(crate) mod tour;
mod workloads;

use super::{Scale, Setting};
use crate::array_cache::{Arrivals, Deltas, Hardware, Mode, Times, Totals, Workload, count, time};
use vellum_array::{Level, Shape};
use vellum_base::Result;
use vellum_media::{HddModel, Preset};

const PAPER: &str = "KDD: Improving RAID Performance Using an Endurable SSD Cache (ICPP 2016)";
/// Note for all of these experiments.
const NOTE: &str = "Not the paper's traces but workloads with the unique pages, requests and read ratios of its Table I. How soon pages come again, and how fast new ones come, \
                    is measured on what there is of such traces: the head of Financial1, and a cut of MSR. The others come again by a Zipf distribution (1.4 for all four: \
                    flash writes come nearest to the paper's), which the paper does not say; nor does it say when cleaning begins: here at 80 % of a set. \
                    Delta lengths are Gaussian around the mean named, and whole deltas with a head each go into a delta page";
/// The SSD of the paper's machine: 120 GB, SATA.
const SSD: &str = "intel-520";

/// The cache of the paper's machine.
const CACHE_BYTES: u64 = 1_000_000_000;

/// Pages of a cache of this share of the workload's pages.
fn pages(workload: &Workload, share: f64) -> u32 {
    (workload.unique[0] as f64 * share) as u32
}

/// RAID-5 of five disks with chunks of 64 KiB, as in the paper.
fn shape(sectors: u64) -> Shape {
    let (members, chunk_sectors) = (5, 16);
    let row = (members as u64 - 1) * u64::from(chunk_sectors);
    Shape { level: Level::Raid5, members, chunk_sectors, rows: sectors.div_ceil(row).max(1) }
}

/// Counts a workload in a mode.
fn counted(mode: &Mode, workload: &Workload, pages: u32, seed: u64) -> Result<Totals> {
    let mut policy = mode.recipe(pages).build(&shape(workload.sectors))?;
    Ok(count(&mut *policy, workload, &mut Deltas::new(mode.deltas, seed, workload)?, mode.partial))
}

/// Times a workload in a mode, on disks without look-ahead and write cache.
fn timed(
    mode: &Mode,
    workload: &Workload,
    pages: u32,
    arrivals: Arrivals,
    seed: u64,
) -> Result<(Totals, Times)> {
    let shape = shape(workload.sectors);
    let hardware = Hardware { shape, disk: HddModel::SATA_1TB_PLAIN, ssd: Preset::by_name(SSD)? };
    let mut policy = mode.recipe(pages).build(&shape)?;
    time(
        &mut *policy,
        workload,
        &mut Deltas::new(mode.deltas, seed, workload)?,
        mode.partial,
        &hardware,
        arrivals,
    )
}

/// How many times smaller than in the paper requests and pages are.
fn divisor(setting: &Setting<'_>) -> u64 {
    match setting.scale {
        Scale::Small => 20,
        Scale::Paper => 1,
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Minimum and maximum of some shares.
fn range(shares: impl IntoIterator<Item = f64>) -> (f64, f64) {
    shares.into_iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)))
}
