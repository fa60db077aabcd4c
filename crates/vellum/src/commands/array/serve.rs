//! `array serve`: an array over NBD or as a file, with rebuilds in the background.

use super::control::Control;
use super::held::Held;
use super::losses::Losses;
use super::replace::Copying;
use super::service::{FUSE_THREADS, Service};
use super::target::{Shown, Target};
use crate::doors::{Door, Served, check_reach, parse_endpoint};
use crate::failure::{Outcome, Verdict};
use crate::ui::Ui;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use vellum::base::Error;
use vellum::serve::fuse::FuseOptions;
use vellum::serve::nbd::ServerOptions;
use vellum::serve::{Endpoint, Stop};

/// Offer an array over NBD, or as a file that loop devices and VMs can use
#[derive(clap::Args)]
#[command(after_help = "\
Runs until Ctrl-C. Other commands on the array (detail, fail, remove, add, rebuild, scrub, flush,
detach-cache) work meanwhile, through a socket beside FILE. Members that are added are rebuilt at
once. Up to 16 requests of one NBD connection are done at once, in any order; clients that want more
at work open several.

Example:
  vellum array serve a.toml --nbd unix:/run/a.sock
  vellum array serve a.toml --fuse ./array.raw

Exit codes: 0 ended by a signal and closed, 2 usage, 3 I/O or environment, 4 corrupt, 5 a member or
the socket is in use")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    door: DoorArgs,
    /// Let TCP sockets be reached from other machines; nothing is encrypted
    #[arg(long)]
    allow_remote: bool,
    #[command(flatten)]
    service: Service,
}

/// Concurrent requests of one NBD client that wait for disks.
const NBD_AT_ONCE: usize = 16;

/// NBD or FUSE.
#[derive(clap::Args)]
#[group(id = "array-door", required = true, multiple = false)]
struct DoorArgs {
    /// Serve NBD at unix:PATH or tcp:ADDRESS:PORT
    #[arg(long, value_name = "WHERE", value_parser = parse_endpoint)]
    nbd: Option<Endpoint>,
    /// Appear as this file
    #[arg(long, value_name = "FILE")]
    fuse: Option<PathBuf>,
}

/// docs/json/array.md: the first line.
#[derive(Serialize)]
#[serde(tag = "event", rename = "ready")]
struct Ready {
    array: String,
    door: &'static str,
    at: String,
}

/// docs/json/array.md: the last line.
#[derive(Serialize)]
#[serde(tag = "event", rename = "closed")]
struct Closed {
    status: Shown,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let door = match (self.door.nbd, self.door.fuse) {
            (Some(endpoint), _) => {
                check_reach(&endpoint, self.allow_remote)?;
                let options = ServerOptions { at_once: NBD_AT_ONCE, ..ServerOptions::default() };
                Door::Nbd { endpoint, options }
            }
            (_, Some(file)) => {
                let options = FuseOptions { threads: FUSE_THREADS, ..FuseOptions::default() };
                Door::Fuse { file, options }
            }
            _ => return Err(Error::invalid("say where: --nbd or --fuse").into()),
        };
        keep_open(&self.target, self.service, door, ui)
    }
}

/// Serves an array through a door until a signal, then closes both. Accepts orders meanwhile.
pub fn keep_open(target: &Target, service: Service, door: Door, ui: &Ui) -> Outcome {
    door.check().map_err(|error| target.in_use(error))?;
    let stop = Stop::on_signals()?;
    let held = Arc::new(Held::assemble(target, ui, Some(service))?);
    let losses = Losses::watch(&held)?;
    let copying = Copying::resume(&held)?;
    let control = Control::start(&held, &target.file, ui)?;
    let name = target.file.display().to_string();
    let ready = |door, at: String, hint: String| {
        let ready = Ready { array: name.clone(), door, at };
        ui.event(&ready, || format!("{} is at {} ({hint}); Ctrl-C ends it\n", ready.array, ready.at));
    };
    let served = Served { what: "array", name: &name };
    let served = door.hold(held.array().clone(), &served, ready, &stop, ui);
    held.begin_to_close();
    drop((control, copying, losses));
    let status = held.shown();
    let held = Arc::into_inner(held).ok_or_else(|| Error::invalid("the array is still in use"))?;
    let closed = held.close();
    served?;
    closed?;
    ui.event(&Closed { status }, || "closed\n".to_string());
    Ok(Verdict::Fine)
}
