//! Commands for disks: creation, use, maintenance.

mod check;
mod create;
mod dump;
mod inspect;
mod mount;
mod record;
mod repair;
mod restore;
mod scrub;
mod serve;
mod ses;
mod stat;
mod target;

pub use dump::{create as create_file, not_replaced};
pub use target::{Risk, open_image, open_to_read};

use crate::failure::Outcome;
use crate::ui::Ui;
use clap::Subcommand;

/// Make disks on virtual flash, use them as block devices, look after them
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Example:
  vellum disk create d.vellum --size 16GiB
  vellum disk serve d.vellum --nbd unix:/run/v.sock

Exit codes: 0 done, 1 problems found, 2 usage, 3 I/O or environment, 4 corrupt, 5 busy"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Create(create::Args),
    Mount(mount::Args),
    Serve(serve::Args),
    Record(record::Args),
    Stat(stat::Args),
    Check(check::Args),
    Scrub(scrub::Args),
    Dump(dump::Args),
    Restore(restore::Args),
    Repair(repair::Args),
    Inspect(inspect::Args),
}

impl Args {
    /// Runs the given command.
    pub fn run(self, ui: &Ui) -> Outcome {
        match self.command {
            Command::Create(args) => args.run(ui),
            Command::Mount(args) => args.run(ui),
            Command::Serve(args) => args.run(ui),
            Command::Record(args) => args.run(ui),
            Command::Stat(args) => args.run(ui),
            Command::Check(args) => args.run(ui),
            Command::Scrub(args) => args.run(ui),
            Command::Dump(args) => args.run(ui),
            Command::Restore(args) => args.run(ui),
            Command::Repair(args) => args.run(ui),
            Command::Inspect(args) => args.run(ui),
        }
    }
}
