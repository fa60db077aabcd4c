//! `disk serve`: serves a disk over NBD or as a file.

use super::target::Target;
use crate::doors::{self, Door, Offer, check_reach, parse_endpoint};
use crate::failure::{Failure, Outcome, Verdict};
use crate::ui::Ui;
use std::path::PathBuf;
use vellum::base::Error;
use vellum::serve::{Endpoint, Stop};
use vellum::{JournalRange, ScrubEvery};

/// Offer a disk over NBD, or as a file that loop devices and VMs can use
#[derive(clap::Args)]
#[command(after_help = "\
Runs until Ctrl-C. While it runs, `vellum disk stat IMG` asks it for its figures.

Example:
  vellum disk serve d.vellum --nbd unix:/run/v.sock --metrics tcp:127.0.0.1:9633
  vellum disk serve --ram 1GiB --fuse ./disk.raw
  vellum disk serve d.vellum --nbd unix:/run/v.sock --journal 4GiB+1GiB

Exit codes: 0 ended by a signal and closed, 2 usage, 3 I/O or environment, 4 corrupt, 5 the image
or the socket is in use")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    door: DoorArgs,
    #[command(flatten)]
    common: CommonArgs,
    /// Refuse writes
    #[arg(long)]
    read_only: bool,
}

/// NBD or FUSE.
#[derive(clap::Args)]
#[group(id = "door", required = true, multiple = false)]
struct DoorArgs {
    /// Serve NBD at unix:PATH or tcp:ADDRESS:PORT
    #[arg(long, value_name = "WHERE", value_parser = parse_endpoint)]
    nbd: Option<Endpoint>,
    /// Appear as this file
    #[arg(long, value_name = "FILE")]
    fuse: Option<PathBuf>,
}

/// What every command that keeps a disk open takes.
#[derive(clap::Args)]
pub struct CommonArgs {
    /// Offer figures for Prometheus at unix:PATH or tcp:ADDRESS:PORT
    #[arg(long, value_name = "WHERE", value_parser = parse_endpoint)]
    pub metrics: Option<Endpoint>,
    /// Let TCP sockets be reached from other machines; nothing is encrypted
    #[arg(long)]
    pub allow_remote: bool,
    /// Where a journal lies, if the disk is not to find it: OFFSET+LENGTH, such as 4GiB+1GiB; may be repeated
    #[arg(long, value_name = "RANGE")]
    pub journal: Vec<JournalRange>,
    /// Read everything in the background, spread over so long, and move what begins to fail: 7d, 12h, ... or off
    #[arg(long, value_name = "TIME", default_value = "7d")]
    pub scrub_every: ScrubEvery,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let door = match (self.door.nbd, self.door.fuse) {
            (Some(endpoint), _) => Door::nbd(endpoint, self.read_only),
            (_, Some(file)) => Door::fuse(file, self.read_only),
            _ => return Err(Error::invalid("say where: --nbd or --fuse").into()),
        };
        self.common.keep_open(&self.target, door, self.read_only, ui)
    }
}

impl CommonArgs {
    /// Refuses sockets that are reachable by strangers.
    pub fn check(&self, door: &Door) -> Result<(), Failure> {
        if let Door::Nbd { endpoint, .. } = door {
            check_reach(endpoint, self.allow_remote)?;
        }
        self.metrics.as_ref().map_or(Ok(()), |at| check_reach(at, self.allow_remote))
    }

    /// Serves a disk through a door until a signal, then closes both.
    pub fn keep_open(self, target: &Target, door: Door, read_only: bool, ui: &Ui) -> Outcome {
        self.check(&door)?;
        let stop = Stop::on_signals()?;
        let stack = target.open(read_only, &self.journal, ui)?;
        let before = stack.disk().ledger();
        let name = target.name();
        let offer =
            Offer { stack: &stack, name: name.clone(), metrics: self.metrics, scrub_every: self.scrub_every };
        let held = offer.hold(door, stack.device(), &stop, ui);
        doors::close(stack, &name, &before, held, ui)?;
        Ok(Verdict::Fine)
    }
}
