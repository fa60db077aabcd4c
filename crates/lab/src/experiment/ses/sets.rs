//! The data sets: surveys of real files, and synthetic sets with the paper's figures.

use super::{PAGE_SIZE, synthetic_pages};
use crate::contents::synthetic::Skew;
use crate::contents::{Contents, ZERO, packed, synthetic, tree};
use crate::experiment::{Scale, Setting};
use std::path::PathBuf;
use std::sync::Arc;
use vellum_base::Result;

/// Environment variable that names a directory or image to survey instead of using the recorded surveys.
const VARIABLE: &str = "VELLUM_LAB_DATA";

/// Surveys of a development machine, made by `examples/survey.rs`. Those at the end are not used for workloads: they
/// have almost no duplicates.
static RECORDED: [(&str, &[u8]); 8] = [
    ("headers", include_bytes!("../../../fixtures/headers.contents")),
    ("pythons", include_bytes!("../../../fixtures/pythons.contents")),
    ("image", include_bytes!("../../../fixtures/image.contents")),
    ("state", include_bytes!("../../../fixtures/state.contents")),
    ("documents", include_bytes!("../../../fixtures/documents.contents")),
    ("sources", include_bytes!("../../../fixtures/sources.contents")),
    ("builds", include_bytes!("../../../fixtures/builds.contents")),
    ("archives", include_bytes!("../../../fixtures/archives.contents")),
];

/// Number of recorded sets with enough duplicates for workloads.
const REDUNDANT: usize = 6;

/// Those that a small run omits where every set is run many times: the two largest, and another of those for which
/// in-line search finds all but 2 % (Table IV). The rest includes the set for which it finds the least.
const LEFT_OUT_OF_SMALL: [&str; 3] = ["image", "documents", "sources"];

/// A machine of the paper: share of duplicates among its pages of 8 KiB (Table IV), and their skew (Table III).
pub(super) const PAPERS: [(&str, Skew); 6] = [
    ("laptop1", skew(0.126, 0.176, 0.741)),
    ("laptop2", skew(0.299, 0.138, 0.863)),
    ("desktop1", skew(0.187, 0.158, 0.798)),
    ("desktop2", skew(0.229, 0.149, 0.811)),
    ("desktop3", skew(0.123, 0.188, 0.721)),
    ("desktop4", skew(0.308, 0.127, 0.893)),
];

const fn skew(duplicate_share: f64, hot_share: f64, hot_share_of_duplicates: f64) -> Skew {
    Skew { duplicate_share, hot_share, hot_share_of_duplicates }
}

/// Origin of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Surveyed from real files.
    Real,
    /// Generated from the paper's figures.
    Papers,
}

/// The pages of 8 KiB that a workload writes, in reading order. Zeros are omitted: free space is not written, and
/// drives do not program zeros.
#[derive(Clone)]
pub(super) struct DataSet {
    pub name: String,
    pub origin: Origin,
    pub pages: Arc<[u32]>,
}

impl DataSet {
    /// Share of pages that are a copy of an earlier one.
    pub(super) fn duplicate_share(&self) -> f64 {
        let distinct = self.pages.iter().max().copied().unwrap_or(0);
        1.0 - f64::from(distinct) / self.pages.len().max(1) as f64
    }

    /// The given number of pages, all different.
    pub(super) fn unique(pages: u32) -> DataSet {
        DataSet { name: "unique".into(), origin: Origin::Papers, pages: (1..=pages).collect() }
    }
}

/// All surveys, or one of what the user named.
pub(super) fn surveys(setting: &Setting<'_>) -> Result<Vec<(String, Contents)>> {
    let Some(named) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
        return RECORDED.iter().map(|(name, bytes)| Ok((name.to_string(), packed::decode(bytes)?))).collect();
    };
    let bytes_max = match setting.scale {
        Scale::Small => 512 << 20,
        Scale::Paper => 32 << 30,
    };
    let about = named.display().to_string();
    let contents = tree::survey(&about, &[named], bytes_max, setting.progress)?;
    Ok(vec![("yours".into(), contents)])
}

/// The data sets for workloads, real ones first.
pub(super) fn all(setting: &Setting<'_>) -> Result<Vec<DataSet>> {
    let real = surveys(setting)?.into_iter().take(REDUNDANT).map(|(name, contents)| DataSet {
        name,
        origin: Origin::Real,
        pages: contents.numbers(PAGE_SIZE).into_iter().filter(|number| *number != ZERO).collect(),
    });
    let made = PAPERS.iter().map(|(name, skew)| DataSet {
        name: name.to_string(),
        origin: Origin::Papers,
        pages: synthetic::pages(skew, synthetic_pages(setting), setting.seed).into(),
    });
    Ok(real.chain(made).filter(|set| !set.pages.is_empty()).collect())
}

/// The same, without three of the recorded sets in a small run.
pub(super) fn fewer(setting: &Setting<'_>) -> Result<Vec<DataSet>> {
    let mut sets = all(setting)?;
    if setting.scale == Scale::Small {
        sets.retain(|set| !LEFT_OUT_OF_SMALL.contains(&set.name.as_str()));
    }
    Ok(sets)
}
