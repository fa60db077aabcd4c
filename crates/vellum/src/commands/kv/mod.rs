//! Commands for key-value stores: filling, querying, maintenance.

mod advice;
mod batch;
pub mod bench;
mod checkpoint;
mod compact;
mod compressing;
pub mod debubble;
mod del;
mod drop;
mod dump;
mod get;
mod ingest;
mod input;
mod lines;
mod load;
pub mod notation;
mod open;
mod put;
mod repair;
mod reusing;
mod scan;
mod space;
pub mod stat;
mod target;
mod verify;
mod walk;

use crate::failure::Outcome;
use crate::ui::Ui;
use clap::Subcommand;

/// Use and look after key-value stores
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
PATH is a directory, or a flash image (`open --flash`). A store has one writer, or any number of
readers. Keys and values are bytes: \\\\, \\t, \\n, \\r and \\xHH stand for those that are no text, on
the command line, in files, and in what is printed; with --hex all are hexadecimal. A key may be
empty, and has at most 65535 bytes; a value has at most 8 MiB in a directory (4 MiB in a log store);
both have less on small devices and images.

Example:
  vellum kv put s recto right
  vellum kv scan s --prefix re

Exit codes: 0 done, 1 no such key, 2 usage, 3 I/O or environment, 4 corrupt, 5 open elsewhere"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Open(open::Args),
    Get(get::Args),
    Put(put::Args),
    Del(del::Args),
    Scan(scan::Args),
    Batch(batch::Args),
    Load(load::Args),
    Ingest(ingest::Args),
    Dump(dump::Args),
    Stat(stat::Args),
    Verify(verify::Args),
    Repair(repair::Args),
    Checkpoint(checkpoint::Args),
    Compact(compact::Args),
    Drop(drop::Args),
    Bench(bench::Args),
}

impl Args {
    /// Runs the given command.
    pub fn run(self, ui: &Ui) -> Outcome {
        match self.command {
            Command::Open(args) => args.run(ui),
            Command::Get(args) => args.run(ui),
            Command::Put(args) => args.run(ui),
            Command::Del(args) => args.run(ui),
            Command::Scan(args) => args.run(ui),
            Command::Batch(args) => args.run(ui),
            Command::Load(args) => args.run(ui),
            Command::Ingest(args) => args.run(ui),
            Command::Dump(args) => args.run(ui),
            Command::Stat(args) => args.run(ui),
            Command::Verify(args) => args.run(ui),
            Command::Repair(args) => args.run(ui),
            Command::Checkpoint(args) => args.run(ui),
            Command::Compact(args) => args.run(ui),
            Command::Drop(args) => args.run(ui),
            Command::Bench(args) => args.run(ui),
        }
    }
}
