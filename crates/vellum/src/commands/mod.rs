//! The commands, one file each.

mod dedup_scan;
mod disk;
mod lab;
mod replay;
mod ses;
mod tour;

use crate::failure::Outcome;
use crate::ui::Ui;
use clap::{Parser, Subcommand};

/// A flash storage stack that writes flash as little as it can, and accounts for every byte.
#[derive(Parser)]
#[command(
    name = "vellum",
    version,
    arg_required_else_help = true,
    after_help = "\
Example:
  vellum tour
  vellum disk create d.vellum --size 16GiB
  sudo vellum disk mount d.vellum ./mnt --data journal

Exit codes: 0 done, 1 problems found or a claim does not hold, 2 usage, 3 I/O or environment, 4 corrupt, 5 busy
(docs/COMMANDS.md has them all)"
)]
pub struct Cli {
    /// Print results as JSON (docs/json says what is in them)
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Tour(tour::Args),
    Disk(disk::Args),
    Replay(replay::Args),
    Lab(lab::Args),
    DedupScan(dedup_scan::Args),
    Ses(ses::Args),
}

impl Cli {
    /// Runs the command that was asked for.
    pub fn run(self, ui: &Ui) -> Outcome {
        match self.command {
            Command::Tour(args) => args.run(ui),
            Command::Disk(args) => args.run(ui),
            Command::Replay(args) => args.run(ui),
            Command::Lab(args) => args.run(ui),
            Command::DedupScan(args) => args.run(ui),
            Command::Ses(args) => args.run(ui),
        }
    }
}
