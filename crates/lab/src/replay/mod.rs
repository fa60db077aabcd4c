//! Replays a workload on a fresh [`vellum_disk::Disk`] on modelled flash, once in each mode, in virtual time.
//!
//! 1. The same options and source give the same results, latencies and log hash.
//! 2. Requests for the same sector are never in flight together: the last write in the trace wins.
//! 3. After every run the ledger is compared with the device, and every sector with what was written last.

mod charts;
mod comparison;
mod device;
mod mode;
mod options;
mod oracle;
mod queue;
mod ranges;
mod run;
mod survey;
mod table;

pub use comparison::{Comparison, HomeWrites, Latencies, Latency, ModeResult, RequestCounts, Setup};
pub use mode::Mode;
pub use options::{Core, DEFAULT_PRESET, Devices, Pace, Precondition, ReplayOptions, Search};
pub(crate) use table::size;

pub(crate) use table::grouped;

use crate::Progress;
use device::Sized;
use survey::Survey;
use vellum_base::{Error, Result};
use vellum_trace::RequestSource;
use vellum_trace::models::ContentModel;

/// Opens the workload from its start: called once for each mode, and once before to survey it.
pub type Opener<'a> = dyn Fn() -> Result<Box<dyn RequestSource>> + 'a;

/// Replays the workload once in each mode.
///
/// # Panics
/// If a disk's ledger differs from what its device programmed, or a mode that compares bytes returns wrong ones: both
/// would be bugs of ours.
pub fn run(open: &Opener<'_>, options: &ReplayOptions, progress: &dyn Progress) -> Result<Comparison> {
    check(options)?;
    progress.begin("survey", 0);
    let survey = Survey::of(open, options)?;
    let sized = Sized::new(options.preset, survey.sectors(), options.op_share)?;
    let mut modes = Vec::new();
    for mode in &options.modes {
        progress.begin(&mode.name(), survey.requests_total());
        let source = survey.open(open, options)?;
        let result = run::run(source, *mode, &survey, &sized, options, progress);
        modes.push(result.map_err(|e| e.context(format_args!("replay in mode {}", mode.name())))?);
    }
    Ok(Comparison::new(setup(&survey, &sized, options), modes))
}

fn check(options: &ReplayOptions) -> Result<()> {
    let share = |name: &str, value: f64, max: f64| match value {
        v if v.is_finite() && (0.0..=max).contains(&v) => Ok(()),
        v => Err(Error::invalid(format!("{name} is a share between 0 and {max}, not {v}"))),
    };
    share("over-provisioning", options.op_share, 10.0)?;
    share("the part of the disk to fill", options.precondition.fill_share, 1.0)?;
    share("the part to overwrite", options.precondition.overwrite_share, 100.0)?;
    share("a fingerprint table's share of the sectors", options.search.table_share, 1.0)?;
    match options.pace {
        Pace::Closed { queue_depth: 0 } => Err(Error::invalid("a queue depth is at least 1")),
        Pace::Open { speed } if !speed.is_finite() || speed <= 0.0 => {
            Err(Error::invalid(format!("the speed of an open replay is a positive number, not {speed}")))
        }
        _ if options.modes.is_empty() => Err(Error::invalid("name at least one mode to replay in")),
        _ => Ok(()),
    }
}

fn setup(survey: &Survey, sized: &Sized, options: &ReplayOptions) -> Setup {
    Setup {
        seed: options.seed,
        preset: options.preset.name,
        device_bytes: survey.device_bytes,
        flash_bytes: sized.preset.geometry.capacity_bytes(),
        erase_block_divisor: sized.divisor,
        pace: match options.pace {
            Pace::Closed { .. } => "closed",
            Pace::Open { .. } => "open",
        },
        queue_depth: run::workers(options.pace),
        core: options.core.name(),
        journals: survey.journals_from,
        journal_bytes: survey.journals.iter().map(|r| (r.end - r.start) * 4096).sum(),
        requests: survey.requests,
        content: match options.contents {
            ContentModel::Unique => "unique".into(),
            ContentModel::Duplicates { share, .. } => format!("duplicates:{}%", share * 100.0),
        },
        modelled_content_sectors: survey.modelled_content_sectors,
        rows_rejected: survey.rows_rejected,
    }
}
