//! `array scrub`.

use super::target::Target;
use crate::failure::{Outcome, Verdict};
use crate::ui::Ui;
use clap::ValueEnum;
use serde::Serialize;
use std::time::Duration;
use vellum::array::Repair;
use vellum::serve::Stop;

/// Compare every row's parity with its data; repair, if asked to
#[derive(clap::Args)]
#[command(after_help = "\
In RAID-6 a single wrong member is known by both parities: --repair located puts it right and touches nothing else.

Example:
  vellum array scrub a.toml
  vellum array scrub a.toml --repair located

Exit codes: 0 all agrees now, 1 mismatches are left, or it was stopped, 2 usage, 3 I/O, 4 corrupt, 5 in use")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// What may be written
    #[arg(long, value_name = "WHAT", default_value = "none")]
    repair: RepairArg,
}

/// `--repair`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RepairArg {
    /// Only sectors that could not be read and were computed
    None,
    /// What is known to be wrong (RAID-6)
    Located,
    /// That, and parity where it is not known what is wrong: data are taken to be right
    Parity,
}

/// docs/json/array.md
#[derive(Serialize)]
struct Scrubbed {
    complete: bool,
    rows: u64,
    stale_rows: u64,
    degraded_rows: u64,
    mismatches: u64,
    corrected: u64,
    parity_made_anew: u64,
    healed_sectors: u64,
    mismatched_rows: Vec<u64>,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let stop = Stop::on_signals()?;
        let array = self.target.assemble(ui)?;
        let repair = match self.repair {
            RepairArg::None => Repair::None,
            RepairArg::Located => Repair::Located,
            RepairArg::Parity => Repair::Parity,
        };
        let mut progress = ui.progress("scrub");
        let report = array.scrub(0..u64::MAX, repair, |at| {
            progress(at.rows, at.of);
            !stop.wait(Some(Duration::ZERO))
        });
        let healed_sectors = array.status().healed_sectors;
        array.close()?;
        let report = report?;
        let left = report.left();
        let scrubbed = Scrubbed {
            complete: report.complete,
            rows: report.rows,
            stale_rows: report.stale_rows,
            degraded_rows: report.degraded_rows,
            mismatches: report.mismatches,
            corrected: report.corrected,
            parity_made_anew: report.parity_made_anew,
            healed_sectors,
            mismatched_rows: report.mismatched_rows,
        };
        ui.result(&scrubbed, || scrubbed.describe(left));
        Ok(if left == 0 && scrubbed.complete { Verdict::Fine } else { Verdict::Problems })
    }
}

impl Scrubbed {
    fn describe(&self, left: u64) -> String {
        let how = if self.complete { "" } else { "stopped; " };
        format!(
            "{how}{} rows compared, {} stale and {} degraded passed over\n{} sectors did not agree: {} corrected, {} with \
             parity made anew, {left} left; {} healed\n",
            self.rows,
            self.stale_rows,
            self.degraded_rows,
            self.mismatches,
            self.corrected,
            self.parity_made_anew,
            self.healed_sectors
        )
    }
}
