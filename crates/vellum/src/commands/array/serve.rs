//! `array serve`: an array over NBD or as a file; what is to be rebuilt is rebuilt meanwhile.

use super::control::Control;
use super::held::Held;
use super::target::{Shown, Target};
use crate::doors::{check_reach, endpoint_text, nbd_uri, parse_endpoint};
use crate::failure::{Failure, Outcome, Verdict};
use crate::mounting;
use crate::reported::Reported;
use crate::ui::{Ui, say};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use vellum::array::cache::engine::CachedArray;
use vellum::base::{BlockDevice, Error};
use vellum::serve::fuse::{self, FuseOptions};
use vellum::serve::nbd::{Server, ServerOptions};
use vellum::serve::{Endpoint, Stop};

/// Offer an array over NBD, or as a file that loop devices and VMs can use
#[derive(clap::Args)]
#[command(after_help = "\
Runs until Ctrl-C. Other commands on the array (detail, fail, remove, add, rebuild, scrub, flush,
detach-cache) work meanwhile, through a socket beside FILE. Members that are added are rebuilt at
once.

Example:
  vellum array serve a.toml --nbd unix:/run/a.sock
  vellum array serve a.toml --fuse ./array.raw

Exit codes: 0 ended by a signal and closed, 2 usage, 3 I/O or environment, 4 corrupt, 5 a member or the socket is in use")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    door: DoorArgs,
    /// Let TCP sockets be reached from other machines; nothing is encrypted
    #[arg(long)]
    allow_remote: bool,
}

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
        if let Some(endpoint) = &self.door.nbd {
            check_reach(endpoint, self.allow_remote)?;
        }
        let stop = Stop::on_signals()?;
        let held = Arc::new(Held::assemble(&self.target, ui, true)?);
        let control = Control::start(&held, &self.target.file, ui)?;
        let served = self.hold(held.array(), &stop, ui);
        drop(control);
        let status = held.shown();
        let held = Arc::into_inner(held).ok_or_else(|| Error::invalid("the array is still in use"))?;
        let closed = held.close();
        served?;
        closed?;
        ui.event(&Closed { status }, || "closed\n".to_string());
        Ok(Verdict::Fine)
    }

    fn hold(&self, array: &Arc<CachedArray>, stop: &Stop, ui: &Ui) -> Result<(), Failure> {
        let name = self.target.file.display().to_string();
        let tell = {
            let name = name.clone();
            move |failure: String| say(format!("{name}: {failure}"))
        };
        let device: Arc<dyn BlockDevice> = Arc::new(Reported::new(array.clone(), tell));
        let ready = |door, at: String, hint: String| {
            let ready = Ready { array: name.clone(), door, at };
            ui.event(&ready, || format!("{} is at {} ({hint}); Ctrl-C ends it\n", ready.array, ready.at));
        };
        match (&self.door.nbd, &self.door.fuse) {
            (Some(endpoint), _) => {
                let description = "vellum array".to_string();
                let options = ServerOptions { description, ..ServerOptions::default() };
                let server = Server::bind(endpoint, options, device)?;
                let hint = format!("try: nbdinfo '{}'", nbd_uri(server.endpoint()));
                ready("nbd", endpoint_text(server.endpoint()), hint);
                Ok(server.run(stop)?)
            }
            (_, Some(file)) => {
                let mounted = fuse::mount(device, file, &FuseOptions::default())?;
                let path = mounted.path().to_path_buf();
                let at = path.display().to_string();
                let hint = format!("try: losetup --find --show --direct-io=on {at}");
                ready("fuse", at, hint);
                mounting::hold(mounted, &path, stop, ui)
            }
            _ => Err(Error::invalid("say where: --nbd or --fuse").into()),
        }
    }
}
