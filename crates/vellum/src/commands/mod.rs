//! The commands, one file each.

mod array;
mod dedup_scan;
mod disk;
mod file_system;
pub mod kv;
mod lab;
mod replay;
mod replay_array;
mod ses;
mod tour;

use crate::failure::Outcome;
use crate::ui::Ui;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};

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

Exit codes: 0 done, 1 problems found or a claim does not hold, 2 usage, 3 I/O or environment, 4
corrupt, 5 busy (docs/COMMANDS.md has them all)"
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
    Array(array::Args),
    Kv(kv::Args),
    Debubble(kv::debubble::Args),
    Replay(replay::Args),
    Lab(lab::Args),
    DedupScan(dedup_scan::Args),
    Ses(ses::Args),
}

/// The command that this process was given, such as `vellum array create`.
pub fn given() -> String {
    let cli = Cli::command();
    let (mut at, mut words) = (&cli, vec![cli.get_name()]);
    for word in std::env::args().skip(1).filter(|word| word != "--json") {
        let Some(command) = at.find_subcommand(&word) else { break };
        words.push(command.get_name());
        at = command;
    }
    words.join(" ")
}

/// Adds a hint to an error if `disk` was omitted: `vellum check` is `vellum disk check`.
pub fn suggest(mut error: clap::Error) -> clap::Error {
    let first = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    let unknown = ContextValue::String(first.clone());
    let mut cli = Cli::command();
    let is_of_disk =
        cli.find_subcommand_mut("disk").is_some_and(|disk| disk.find_subcommand(&first).is_some());
    if is_of_disk && error.get(ContextKind::InvalidSubcommand) == Some(&unknown) {
        let meant = ContextValue::Strings(vec![format!("disk {first}")]);
        error.insert(ContextKind::SuggestedSubcommand, meant);
    }
    error
}

impl Cli {
    /// Runs the given command.
    pub fn run(self, ui: &Ui) -> Outcome {
        match self.command {
            Command::Tour(args) => args.run(ui),
            Command::Disk(args) => args.run(ui),
            Command::Array(args) => args.run(ui),
            Command::Kv(args) => args.run(ui),
            Command::Debubble(args) => args.run(ui),
            Command::Replay(args) => args.run(ui),
            Command::Lab(args) => args.run(ui),
            Command::DedupScan(args) => args.run(ui),
            Command::Ses(args) => args.run(ui),
        }
    }
}
