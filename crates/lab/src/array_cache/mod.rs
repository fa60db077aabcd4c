//! SSD caches of an array side by side: a workload is run through the policies of `vellum-array`, counted, and timed on
//! modelled disks and an SSD (docs/decisions/0023-array-cache.md).
//!
//! 1. Every mode sees the same requests, and the same delta for the n-th write. With recorded contents it sees the same
//!    contents, and deltas are relative to what the mode has cached.
//! 2. Steps are counted as the policy returns them; nothing here depends on a particular policy.

mod asked;
mod compare;
mod count;
mod deltas;
mod engine;
mod figures;
mod recorded;
mod timed;
mod workload;
mod written;

pub use asked::Touched;
pub use compare::{CacheComparison, CacheOptions, CacheResult, compare};
pub use count::{Totals, count};
pub use deltas::{DeltaModel, Deltas};
pub use engine::{CutRun, EngineRun, Half, Nvram, Ran};
pub use figures::NEXT_RECORD;
pub use recorded::Made;
pub use timed::{Arrivals, Hardware, Response, Times, time};
pub use workload::{PageKind, PageRequest, Workload};
pub use written::{Kept, Written};

use vellum_array::cache::{Recipe, Scheme};
use vellum_base::{Error, Result};

/// A policy, and the contents that it is run with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mode {
    /// Its name on the command line.
    pub name: &'static str,
    /// Which policy.
    pub scheme: Scheme,
    /// How much two versions of a sector differ.
    pub deltas: DeltaModel,
    /// True if a partial write changes only the bytes that it covers.
    pub partial: bool,
    /// False for a cache that survives a power cut, and so holds nothing in volatile memory alone (vellum mode).
    pub window: bool,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 10] = [
        Mode::paper("nossd", Scheme::NoSsd, 0.12),
        Mode::paper("wa", Scheme::WriteAround, 0.12),
        Mode::paper("wt", Scheme::WriteThrough, 0.12),
        Mode::paper("larc", Scheme::Larc, 0.12),
        Mode::paper("leavo", Scheme::Leavo, 0.12),
        Mode::paper("kdd-50", Scheme::KddPaper, 0.50),
        Mode::paper("kdd-25", Scheme::KddPaper, 0.25),
        Mode::paper("kdd-12", Scheme::KddPaper, 0.12),
        Mode { partial: true, window: false, ..Mode::paper("kdd-nvram", Scheme::Kdd, 0.12) },
        Mode { partial: true, ..Mode::paper("kdd", Scheme::Kdd, 0.12) },
    ];

    const fn paper(name: &'static str, scheme: Scheme, mean: f64) -> Mode {
        Mode { name, scheme, deltas: DeltaModel::Gaussian { mean }, partial: false, window: true }
    }

    /// The mode with this name.
    pub fn by_name(name: &str) -> Result<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name == name).ok_or_else(|| {
            let names: Vec<_> = Mode::ALL.iter().map(|mode| mode.name).collect();
            Error::invalid(format!("no cache mode '{name}'; there are {}", names.join(", ")))
        })
    }

    /// Parses a comma-separated list of distinct names.
    pub fn list(names: &str) -> Result<Vec<Mode>> {
        let mut modes: Vec<Mode> = Vec::new();
        for name in names.split(',').map(str::trim) {
            let mode = Mode::by_name(name)?;
            if modes.contains(&mode) {
                return Err(Error::invalid(format!("cache mode '{name}' is named twice")));
            }
            modes.push(mode);
        }
        Ok(modes)
    }

    /// Recipe for its cache, with this many pages.
    pub fn recipe(&self, pages: u32) -> Recipe {
        let recipe = Recipe::new(self.scheme, pages);
        if self.window { recipe } else { Recipe { window: 0, ..recipe } }
    }
}
