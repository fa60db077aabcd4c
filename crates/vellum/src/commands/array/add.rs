//! `array add`.

use super::order::Order;
use super::take::Take;
use super::target::Target;
use crate::failure::Outcome;
use crate::ui::Ui;
use std::path::PathBuf;

/// Take a device in for a lost member; `vellum array rebuild` fills it
#[derive(clap::Args)]
#[command(after_help = "\
A file that is not there is made. The device of the lost member is not named in FILE any more. An
array that is served is rebuilt at once.

Example:
  vellum array add a.toml /dev/sde --erase
  vellum array rebuild a.toml

Exit codes: 0 it is in, 2 usage, or no member is lost, 3 I/O, 4 corrupt, 5 in use, or it holds
another array")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// A file or a block device, relative to where FILE is
    #[arg(value_name = "PATH")]
    device: PathBuf,
    #[command(flatten)]
    take: Take,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        Order::Add { device: self.device, take: self.take }.give(&self.target, ui)
    }
}
