//! `array scrub`.

use super::order::{Order, RepairArg};
use super::target::Target;
use crate::failure::Outcome;
use crate::ui::Ui;

/// Compare every row's parity with its data; repair, if asked to
#[derive(clap::Args)]
#[command(after_help = "\
In RAID-6 a single wrong member is known by both parities, and named: --repair located puts it right
and touches nothing else. With one member missing the other parity is compared, and nothing is
repaired. Rows whose parity was put off by a cache, or is made anew after a crash, are counted and
passed over: `vellum array flush` before the scrub has them compared, too.

Example:
  vellum array scrub a.toml
  vellum array scrub a.toml --repair located

Exit codes: 0 all that was compared agrees now, 1 mismatches are left, sectors are lost, rows lack
members so that nothing is left to compare with, or it was stopped, 2 usage, 3 I/O, 4 corrupt, 5 in
use")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// What may be written
    #[arg(long, value_name = "WHAT", default_value = "none")]
    repair: RepairArg,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        Order::Scrub { repair: self.repair }.give(&self.target, ui)
    }
}
