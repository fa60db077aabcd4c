//! WOJ (Ni et al.): common parts of its experiments.
//!
//! The set-up is that of woj.txt, section 3.1: ext3 with `data=journal` and a journal of 256 MiB on three SSDs. The
//! prototype computes fingerprints inline on the host, so they are charged to one modelled core of 3.0 GHz at the rates
//! of its Table 1. It keeps dedup metadata in memory, arguing that SSDs have capacitor-backed memory: here every device
//! has 1 MiB of it. File system code and applications cost no time.

pub(super) mod fig2;
pub(super) mod fig3;
pub(super) mod fig5;
pub(super) mod fig6;
pub(super) mod fig7;
pub(super) mod fig8;
pub(super) mod metadata;
mod sweep;
pub(super) mod table1;
pub(super) mod vellum;

use super::{Scale, Setting};
use crate::replay::{self, Mode, ModeResult, ReplayOptions};
use std::ops::Range;
use vellum_base::{Lba, Result, SECTOR_BYTES};
use vellum_media::Preset;
use vellum_trace::generate::ext::{Config, Ext, FileOperation};
use vellum_trace::{ByteLen, RequestSource};

const PAPER: &str = "WOJ: Enabling Write-Once Full-data Journaling in SSDs by Using Weak-Hashing-based Deduplication \
                     (Ni, Wu, Li, Wang, Jiang; 2018)";

/// The paper's names of its configurations, followed by ours, each with its mode.
const NONE: (&str, &str) = ("No_Dedup_DJ", "none+nvram");
const DMDEDUP: (&str, &str) = ("Dmdedup_sha1", "strong:sha1-verify+nvram");
const WOJ: (&str, &str) = ("WOJ_xxh64", "woj-paper:xxh64-head+nvram");
const WOJ_MD5: (&str, &str) = ("WOJ_md5", "woj-paper:md5+nvram");
const WOJ_SHA1: (&str, &str) = ("WOJ_sha1", "woj-paper:sha1+nvram");
const VELLUM: (&str, &str) = ("Vellum journal", "journal+nvram");

/// The three SSDs of Table 2, fastest first.
const SSDS: [(&str, &str); 3] = [("fast", "intel-750"), ("moderate", "intel-520"), ("slow", "intel-x25m")];

/// The preset of the fast SSD.
fn fast() -> Result<Preset> {
    Preset::by_name(SSDS[0].1)
}

/// Operations on files, from the start.
type Operations = Box<dyn Iterator<Item = FileOperation> + Send>;

/// One workload on one device in several configurations.
struct Bench<'a> {
    setting: &'a Setting<'a>,
    preset: Preset,
    file_system: Config,
    configurations: &'a [(&'static str, &'static str)],
}

/// Results of a [`Bench`].
struct Measured {
    written_bytes: u64,
    read_bytes: u64,
    cells: Vec<ModeResult>,
}

impl Bench<'_> {
    fn run(&self, operations: &dyn Fn() -> Result<Operations>) -> Result<Measured> {
        let (mut written, mut read) = (0, 0);
        for operation in operations()? {
            written += u64::from(matches!(operation, FileOperation::Write(..)));
            read += u64::from(matches!(operation, FileOperation::Read(..)));
        }
        let open =
            || -> Result<Box<dyn RequestSource>> { Ok(Box::new(Ext::new(self.file_system, operations()?)?)) };
        Ok(Measured {
            written_bytes: written * SECTOR_BYTES as u64,
            read_bytes: read * SECTOR_BYTES as u64,
            cells: self.replay(&open)?,
        })
    }

    /// The same for requests that the caller has made.
    fn replay(&self, open: &replay::Opener<'_>) -> Result<Vec<ModeResult>> {
        let modes = self.configurations.iter().map(|(_, mode)| Mode::by_name(mode)).collect::<Result<_>>()?;
        let options = ReplayOptions {
            seed: self.setting.seed,
            journals: Some(journals(self.file_system)?),
            ..ReplayOptions::new(modes, self.preset)
        };
        Ok(replay::run(open, &options, self.setting.progress)?.modes)
    }
}

impl Measured {
    /// What the application wrote and read, divided by the time taken, in MB/s.
    fn megabytes_per_second(&self, cell: usize) -> f64 {
        let seconds = self.cells[cell].duration_ns as f64 / 1e9;
        if seconds > 0.0 { (self.written_bytes + self.read_bytes) as f64 / 1e6 / seconds } else { 0.0 }
    }

    /// Bytes programmed to flash per byte written by the application: the paper's write amplification.
    fn write_amplification(&self, cell: usize) -> f64 {
        self.cells[cell].ledger.programmed_bytes as f64 / self.written_bytes.max(1) as f64
    }
}

/// ext3 as in the paper; smaller at small scale, with a journal that still holds many transactions.
fn file_system(setting: &Setting<'_>) -> Config {
    let (device, journal) = match setting.scale {
        Scale::Small => (1 << 30, 32 << 20),
        Scale::Paper => (32 << 30, 256 << 20),
    };
    let (device_bytes, journal_bytes) = (ByteLen(device), ByteLen(journal));
    Config { device_bytes, journal_bytes, seed: setting.seed, ..Config::default() }
}

/// Location of a file system's journal.
fn journals(config: Config) -> Result<Vec<Range<Lba>>> {
    let sector = |bytes: u64| Lba(bytes / SECTOR_BYTES as u64);
    let ranges = Ext::new(config, std::iter::empty())?.journal_ranges();
    Ok(ranges.iter().map(|r| sector(r.offset.0)..sector(r.offset.0 + r.length.0)).collect())
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// Minimum and maximum of some figures, as `1.20 to 3.40`.
fn span(values: impl IntoIterator<Item = f64>) -> (f64, f64, String) {
    let (low, high) =
        values.into_iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (v.min(l), v.max(h)));
    (low, high, format!("{low:.2} to {high:.2}"))
}
