//! Scramblers of drives: learn them from raw dumps (ses-dedup.txt, section III).

mod learn;

use crate::failure::Outcome;
use crate::ui::Ui;
use clap::Subcommand;

/// Learn the scrambler of a drive from raw dumps of known patterns
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
A drive scrambles what it stores, so equal sectors have unequal error-correcting codes. Write known patterns, dump the raw
bytes, and what the scrambler does follows from them.

Example:
  vellum ses learn d.toml --to learned.toml

Exit codes: 0 done, 2 usage, 3 I/O, 4 no scrambler that fits"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Learn(learn::Args),
}

impl Args {
    /// Runs the command that was asked for.
    pub fn run(self, ui: &Ui) -> Outcome {
        match self.command {
            Command::Learn(args) => args.run(ui),
        }
    }
}
