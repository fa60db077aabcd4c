//! `replay`: one workload in several modes, side by side.

use super::replay_array::{self, ArrayArgs};
use crate::failure::{Failure, Outcome, Verdict};
use crate::odd_rows::{WithOddRows, telling};
use crate::report_file::ReportArgs;
use crate::text;
use crate::ui::Ui;
use crate::until_cut::{self, until_cut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum::array::Level;
use vellum::base::{Error, Kind, Result};
use vellum::journal_range::{self, JournalRange};
use vellum::lab::array_cache::{self, Arrivals, CacheOptions};
use vellum::lab::reason::CONTENTS_UNKNOWN;
use vellum::lab::replay::{
    self, Comparison, Core, DEFAULT_PRESET, Devices, Mode, Pace, Precondition, ReplayOptions,
};
use vellum::lab::report::Page;
use vellum::media::Preset;
use vellum::trace::models::ContentModel;
use vellum::trace::reason::SEVERAL_DEVICES;
use vellum::trace::request::{ByteLen, DeviceId};
use vellum::trace::{Format, ReadOptions};
use vellum::{Share, Size};

/// Replay a workload in virtual time through several modes and compare what they write
#[derive(clap::Args)]
#[command(after_help = "\
Formats: vtrace (our own), mqsim, disksim, msr, spc, fio, blkparse, replayer, vscsi, srt; zstd
files are unpacked. A trace that says its format needs no --format.

Example:
  vellum replay w.vtrace --compare none,strong,journal,ecc --report w.html
  vellum replay prxy_0.csv.zst --format msr --only 0 --content duplicates:40% --fill 85%
  vellum replay prxy_0.csv.zst --format msr --only 0 --array raid5 --cache 20% --deltas measured
  vellum replay b.vtrace --array raid5 --compare wt,kdd-12,kdd --deltas recorded

Exit codes: 0 replayed, 2 usage, a trace that needs an option or a report that exists already, 3
I/O, 4 the trace is damaged")]
pub struct Args {
    /// The trace
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Its format, if it does not say so itself
    #[arg(long, value_name = "FORMAT", value_parser = Format::by_name)]
    format: Option<Format>,
    /// Modes to compare: none, strong[:HASH], ecc, ecc-paper, woj-paper[:HASH], journal, with switches such as
    /// journal-pack
    #[arg(long, value_name = "MODES", default_value = DEFAULT_MODES)]
    compare: String,
    #[command(flatten)]
    device: DeviceArgs,
    /// Decides everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Take only this device of a trace of several
    #[arg(long, value_name = "N", conflicts_with = "side_by_side")]
    only: Option<u32>,
    /// Lay the devices of a trace of several side by side
    #[arg(long)]
    side_by_side: bool,
    /// Contents of writes for which the trace has none: unique, or duplicates:SHARE
    #[arg(long, value_name = "MODEL", default_value = "unique", value_parser = parse_contents)]
    content: ContentModel,
    /// Where a journal lies, if the disk is not to find it: OFFSET+LENGTH in bytes; may be repeated
    #[arg(long, value_name = "RANGE")]
    journal: Vec<JournalRange>,
    #[command(flatten)]
    array: ArrayArgs,
    #[command(flatten)]
    report: ReportArgs,
}

/// The modelled device and how it is driven.
#[derive(clap::Args)]
struct DeviceArgs {
    /// Flash device: slc, mlc-1, mlc-2, tlc-modern, open-channel-34, intel-750, intel-520, intel-x25m
    #[arg(long = "device", value_name = "PRESET", default_value = DEFAULT_PRESET, value_parser = Preset::by_name)]
    preset: Preset,
    /// Logical size [default: what the trace says or needs]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Flash beyond the logical size (over-provisioning)
    #[arg(long, value_name = "SHARE", default_value = "12%")]
    op: Share,
    /// Requests in flight
    #[arg(long, value_name = "N", default_value_t = 32)]
    queue_depth: u32,
    /// Issue requests at the trace's times, this many times as fast, instead of as fast as the disk takes them
    #[arg(long, value_name = "FACTOR", conflicts_with = "queue_depth")]
    speed: Option<f64>,
    /// Core that fingerprints: 3.0GHz, 1.2GHz, 400MHz or free
    #[arg(long, value_name = "CORE", default_value = "3.0GHz", value_parser = parse_core)]
    core: Core,
    /// Fill this share of the disk before the replay
    #[arg(long, value_name = "SHARE", default_value = "0%")]
    fill: Share,
    /// Then overwrite this share of it at random, so that garbage collection is at work
    #[arg(long, value_name = "SHARE", default_value = "0%")]
    overwrite: Share,
}

/// Default modes.
pub const DEFAULT_MODES: &str = "none,strong,woj-paper,journal,ecc";

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        if let Some(level) = self.array.array {
            return self.run_array(level, ui);
        }
        let options = self.options()?;
        self.report.check()?;
        let (cut, rows) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let open = || {
            let trace = vellum::trace::open(&self.trace, self.format, ReadOptions::default())?;
            Ok(telling(until_cut(trace, &cut), &self.trace, &rows))
        };
        let mut comparison = replay::run(&open, &options, &ui.bars()).map_err(|error| self.advise(error))?;
        if cut.load(Relaxed) {
            comparison.notes.push(until_cut::NOTE.into());
        }
        let told = WithOddRows::tell(&comparison, &self.trace, &rows.lock(), ui);
        ui.result(&told, || text::comparison::render(&comparison));
        self.report.write(|| self.page(&comparison), ui)?;
        Ok(Verdict::Fine)
    }

    /// Compares caches of an array instead of modes of a disk.
    fn run_array(&self, level: Level, ui: &Ui) -> Outcome {
        let names = if self.compare == DEFAULT_MODES { replay_array::DEFAULT_MODES } else { &self.compare };
        let speed = self.device.speed.unwrap_or(1.0);
        if !(speed.is_finite() && speed > 0.0) {
            return Err(Error::invalid(format!("a speed of {speed} is not possible")).into());
        }
        let options = CacheOptions {
            modes: array_cache::Mode::list(names)?,
            level,
            members: self.array.members,
            chunk_sectors: self.array.chunk_sectors()?,
            cache_share: self.array.cache.0,
            ssd: self.device.preset,
            arrivals: Arrivals::Open { speed },
            devices: self.devices(),
            shift: ByteLen(self.array.shift.0),
            deltas: self.array.deltas,
            seed: self.seed,
        };
        let (cut, rows) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let open = || {
            let trace = vellum::trace::open(&self.trace, self.format, ReadOptions::default())?;
            Ok(telling(until_cut(trace, &cut), &self.trace, &rows))
        };
        self.report.check()?;
        let mut comparison =
            array_cache::compare(&open, &options, &ui.bars()).map_err(|error| self.advise(error))?;
        if cut.load(Relaxed) {
            comparison.notes.push(until_cut::NOTE.into());
        }
        let told = WithOddRows::tell(&comparison, &self.trace, &rows.lock(), ui);
        ui.result(&told, || replay_array::render(&comparison));
        comparison.notes.iter().for_each(|note| ui.remark(format!("note: {note}")));
        let page = || {
            let mut page = Page::new(format!("Replay of {}", self.trace.display()));
            page.caches(&file_name(&self.trace), &comparison, &command_line());
            page
        };
        self.report.write(page, ui)?;
        Ok(Verdict::Fine)
    }

    /// An error that names the trace, with advice for traces: the default advice is for disks.
    fn advise(&self, error: Error) -> Failure {
        let path = self.trace.display().to_string();
        // Errors of the system name it, those in its contents do not.
        let error = if error.to_string().contains(&path) { error } else { error.context(path) };
        let next = match error.kind() {
            _ if error.is_because(SEVERAL_DEVICES) => {
                "--only N takes the device N alone, --side-by-side all of them, one after the other"
            }
            _ if error.is_because(CONTENTS_UNKNOWN) => array_cache::NEXT_RECORD,
            Kind::Invalid if self.array.array.is_some() => {
                "vellum replay --help says what --format, --only, --members, --chunk, --cache and --shift take"
            }
            Kind::Invalid => {
                "vellum replay --help; of a trace, --format NAME says its format, --only N takes one device, --side-by-side all"
            }
            Kind::Corrupt => {
                "look whether --format is right; if it is, the trace is damaged: fetch or record it again"
            }
            Kind::Io => "look at the path of the trace, then run the command again",
            _ => return error.into(),
        };
        Failure::with_next(error, next)
    }

    fn devices(&self) -> Devices {
        match (self.only, self.side_by_side) {
            (Some(device), _) => Devices::Only(DeviceId(device)),
            (None, true) => Devices::SideBySide,
            (None, false) => Devices::Single,
        }
    }

    fn page(&self, comparison: &Comparison) -> Page {
        let mut page = Page::new(format!("Replay of {}", self.trace.display()));
        page.comparison(&file_name(&self.trace), comparison, &command_line());
        page
    }

    fn options(&self) -> Result<ReplayOptions> {
        let device = &self.device;
        let pace = match device.speed {
            Some(speed) if !(speed.is_finite() && speed > 0.0) => {
                return Err(Error::invalid(format!("a speed of {speed} is not possible")));
            }
            Some(speed) => Pace::Open { speed },
            None => Pace::Closed { queue_depth: device.queue_depth },
        };
        Ok(ReplayOptions {
            op_share: device.op.0,
            seed: self.seed,
            pace,
            core: device.core,
            devices: self.devices(),
            device_bytes: device.size.map(|size| ByteLen(size.0)),
            journals: journal_range::named(&self.journal),
            contents: self.content,
            precondition: Precondition { fill_share: device.fill.0, overwrite_share: device.overwrite.0 },
            ..ReplayOptions::new(Mode::list(&self.compare)?, device.preset)
        })
    }
}

/// Command line of this process, for reports.
pub fn command_line() -> String {
    let words = std::env::args().skip(1);
    std::iter::once("vellum".to_string()).chain(words).collect::<Vec<_>>().join(" ")
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn parse_core(text: &str) -> Result<Core> {
    let cores = [Core::Host3GHz, Core::Controller1200MHz, Core::Controller400MHz, Core::Free];
    let found = cores.into_iter().find(|core| core.name() == text);
    found.ok_or_else(|| Error::invalid(format!("no core '{text}': 3.0GHz, 1.2GHz, 400MHz or free")))
}

fn parse_contents(text: &str) -> Result<ContentModel> {
    /// Default number of popular contents, and default popularity of the first.
    const POPULAR: (u64, f64) = (10_000, 1.0);
    match text.split_once(':') {
        None if text == "unique" => Ok(ContentModel::Unique),
        Some(("duplicates", share)) => {
            let share = share.parse::<Share>()?.0;
            Ok(ContentModel::Duplicates { share, contents: POPULAR.0, skew: POPULAR.1 })
        }
        _ => Err(Error::invalid(format!("no content model '{text}': unique, or duplicates:40%"))),
    }
}
