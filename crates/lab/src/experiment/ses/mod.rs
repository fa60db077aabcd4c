//! SES-Dedup (Yan et al.): common parts of its experiments.
//!
//! The set-up is that of ses-dedup.txt, section V.A: the SSD of Table II with the chips of Table I, pages of 8 KiB, and
//! on a controller's core of 400 MHz SHA-256 in 226.5 us and descrambling of the parity in 14.5 us per page. FIO writes
//! the pages of a data set to random places of a drive, each place once. What the paper leaves open is in bench.rs.

mod bench;
pub(super) mod compression;
pub(super) mod fig1;
pub(super) mod fig2;
pub(super) mod fig4;
pub(super) mod fig5;
mod sets;
pub(super) mod table3;
pub(super) mod table4;

use crate::experiment::Scale;
use crate::experiment::Setting;

const PAPER: &str =
    "SES-Dedup: a Case for Low-Cost ECC-based SSD Deduplication (Yan, Jiang, Jiang, Tan, Luo; 2019)";

/// The chips of Table I, and their presets.
const CHIPS: [(&str, &str); 3] = [("SLC", "slc"), ("MLC-1", "mlc-1"), ("MLC-2", "mlc-2")];

/// The paper's page, and its index among the chunk sizes of a scan.
const PAGE_BYTES: u64 = 8192;
const PAGE_SIZE: usize = 2;

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Minimum and maximum of some shares.
fn span(shares: impl IntoIterator<Item = f64>) -> (f64, f64, String) {
    let (low, high) =
        shares.into_iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (v.min(l), v.max(h)));
    (low, high, format!("{:.1} to {:.1} %", low * 100.0, high * 100.0))
}

/// Number of pages of a synthetic data set.
fn synthetic_pages(setting: &Setting<'_>) -> u32 {
    match setting.scale {
        Scale::Small => 1 << 14,
        // An eighth of the paper's drive: modelled flash holds all bytes in memory.
        Scale::Paper => 1 << 19,
    }
}

/// The modes for the paper's drive, for its deduplication, and for ours.
const NONE: &str = "none+nvram";
const PAPERS: &str = "ecc-paper+nvram";
const OURS: &str = "ecc+nvram";
