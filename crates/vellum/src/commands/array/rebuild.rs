//! `array rebuild`.

use super::order::Order;
use super::target::Target;
use crate::failure::Outcome;
use crate::ui::Ui;

/// Fill the members that were added; goes on where it was stopped
#[derive(clap::Args)]
#[command(after_help = "\
Ctrl-C stops it. An array that is served is rebuilt there by itself; then this command shows how
far it is, and its end ends nothing.

Example:
  vellum array rebuild a.toml
  vellum array rebuild a.toml --give-up --json

Exit codes: 0 rebuilt, 1 sectors are lost, or it was stopped, 2 usage, or nothing to do, 3 I/O, 4
corrupt, 5 in use")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// Go on over sectors that cannot be computed: they are lost, and named
    #[arg(long)]
    give_up: bool,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        Order::Rebuild { give_up: self.give_up }.give(&self.target, ui)
    }
}
