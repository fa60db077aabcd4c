//! Commands for arrays: creation, use, maintenance.

mod add;
mod budget;
mod cache;
mod cache_seen;
mod cache_shown;
mod control;
mod create;
mod detail;
mod devices;
mod fail;
mod held;
mod log_seen;
mod losses;
mod made;
mod mount;
mod nvram_seen;
mod order;
mod rebuild;
mod refused;
mod replace;
mod scrub;
mod serve;
mod service;
mod stale_seen;
mod take;
mod target;
mod unopened;

use crate::failure::Outcome;
use crate::ui::Ui;
use clap::Subcommand;
use vellum::base::Kind;

/// Make RAID-5 and RAID-6 arrays of files or block devices, use them as block devices, look after them
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Example:
  vellum array create a.toml --level 6 --size 1GiB --members d0 d1 d2 d3 d4
  sudo vellum array mount a.toml ./mnt --fs ext4

Exit codes: 0 done, 1 problems found, 2 usage, 3 I/O or environment, 4 corrupt, 5 busy"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Create(create::Args),
    Detail(detail::Args),
    /// The same as detail
    #[command(long_about = detail::ABOUT)]
    Stat(detail::Args),
    Mount(mount::Args),
    Serve(serve::Args),
    Fail(fail::Fail),
    Remove(fail::Remove),
    Add(add::Args),
    Replace(replace::Args),
    Rebuild(rebuild::Args),
    Scrub(scrub::Args),
    AttachCache(cache::Attach),
    DetachCache(cache::Detach),
    Flush(cache::Flush),
}

impl Args {
    /// Runs the given command.
    pub fn run(self, ui: &Ui) -> Outcome {
        self.command
            .run(ui)
            .map_err(|failure| failure.or_next(Kind::Corrupt, CORRUPT).or_next(Kind::NoSpace, NO_SPACE))
    }
}

/// Default advice for corruption.
const CORRUPT: &str =
    "`vellum array detail FILE` shows what each device says; leave a damaged one out and add another";

const NO_SPACE: &str = "free space where that file is, then the same command again; an array whose member has no room takes no writes \
                        until there is some and it is opened again; nothing that was flushed is lost";

impl Command {
    fn run(self, ui: &Ui) -> Outcome {
        match self {
            Command::Create(args) => args.run(ui),
            Command::Detail(args) | Command::Stat(args) => args.run(ui),
            Command::Mount(args) => args.run(ui),
            Command::Serve(args) => args.run(ui),
            Command::Fail(args) => args.run(ui),
            Command::Remove(args) => args.run(ui),
            Command::Add(args) => args.run(ui),
            Command::Replace(args) => args.run(ui),
            Command::Rebuild(args) => args.run(ui),
            Command::Scrub(args) => args.run(ui),
            Command::AttachCache(args) => args.run(ui),
            Command::DetachCache(args) => args.run(ui),
            Command::Flush(args) => args.run(ui),
        }
    }
}
