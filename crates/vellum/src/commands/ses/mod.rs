//! Scramblers of drives: learning them from raw dumps (ses-dedup.txt, section III).

mod dump;
mod learn;
mod write;

use crate::failure::Outcome;
use crate::ui::Ui;
use clap::Subcommand;
use std::path::PathBuf;
use vellum::ses::{LbaList, Pattern};

/// Learn the scrambler of a drive: write known patterns, dump raw bytes, learn from them
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
A drive scrambles what it stores, so equal sectors have unequal error-correcting codes. Write known
patterns, dump the raw bytes, and what the scrambler does follows from them. Then a host can
scramble, too, and its data are stored plain.

Example:
  vellum disk create d.vellum --size 1GiB --scrambler lba
  vellum ses write d.vellum --lba spread
  vellum ses dump d.vellum --lba spread --to d.toml
  vellum ses learn d.toml --to learned.toml
  vellum disk serve d.vellum --nbd unix:/run/v.sock --ses host --scrambler-file learned.toml

Exit codes: 0 done, 2 usage, 3 I/O, 4 corrupt, or no scrambler that fits, 5 in use"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Write(write::Args),
    Dump(dump::Args),
    Learn(learn::Args),
}

/// Sectors of a disk, and the pattern in them.
#[derive(clap::Args)]
struct Sectors {
    /// The disk's image
    #[arg(value_name = "IMG")]
    image: PathBuf,
    /// Which sectors: such as 0-1023,4096; or spread, enough of them to learn from
    #[arg(long, value_name = "LIST")]
    lba: LbaList,
    /// The pattern that they hold, or get: zero, ones, lba or hex:BYTES
    #[arg(long, value_name = "PATTERN", default_value = "lba")]
    pattern: Pattern,
}

impl Args {
    /// Runs the given command.
    pub fn run(self, ui: &Ui) -> Outcome {
        match self.command {
            Command::Write(args) => args.run(ui),
            Command::Dump(args) => args.run(ui),
            Command::Learn(args) => args.run(ui),
        }
    }
}
