//! Front doors, through which a disk or an array is served, from opening to closing.

use crate::failure::Failure;
use crate::live::Live;
use crate::mounting;
use crate::reported::Reported;
use crate::text;
use crate::ui::{Ui, say};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use vellum::base::{BlockDevice, Error, LedgerSnapshot, Result};
use vellum::disk::LedgerStat;
use vellum::serve::fuse::{self, FuseOptions};
use vellum::serve::mount::{self, MountOptions};
use vellum::serve::nbd::{Server, ServerOptions};
use vellum::serve::{Endpoint, Stop};
use vellum::{Deduper, ScrubEvery, Scrubber, Stack};

/// What is served through a door.
pub struct Served<'a> {
    /// `disk` or `array`; also the name of the command for it.
    pub what: &'static str,
    /// Its name on the command line.
    pub name: &'a str,
}

/// How a disk or an array is accessed.
pub enum Door {
    /// NBD clients.
    Nbd { endpoint: Endpoint, options: ServerOptions },
    /// A file.
    Fuse { file: PathBuf, options: FuseOptions },
    /// A mounted file system.
    Mount { dir: PathBuf, options: Box<MountOptions> },
}

impl Door {
    /// NBD with default options.
    pub fn nbd(endpoint: Endpoint, read_only: bool) -> Door {
        Door::Nbd { endpoint, options: ServerOptions { read_only, ..ServerOptions::default() } }
    }

    /// A file with default options.
    pub fn fuse(file: PathBuf, read_only: bool) -> Door {
        Door::Fuse { file, options: FuseOptions { read_only, ..FuseOptions::default() } }
    }

    /// Refuses an unusable place, before the device to be served is opened.
    pub fn check(&self) -> Result<()> {
        match self {
            Door::Nbd { endpoint, .. } => endpoint.check(),
            Door::Fuse { file, .. } => fuse::check(file),
            Door::Mount { dir, .. } => mount::check_target(dir),
        }
    }

    /// Opens it to `device` and holds it open until a signal. `ready` is called with its kind, its place, and a hint.
    pub fn hold(
        self,
        device: Arc<dyn BlockDevice>,
        served: &Served,
        ready: impl FnOnce(&'static str, String, String),
        stop: &Stop,
        ui: &Ui,
    ) -> Result<(), Failure> {
        let name = served.name.to_string();
        let tell = move |failure: String| say(format!("{name}: {failure}"));
        let device: Arc<dyn BlockDevice> = Arc::new(Reported::new(device, tell));
        match self {
            Door::Nbd { endpoint, mut options } => {
                options.description = format!("vellum {}", served.what);
                let server = Server::bind(&endpoint, options, device)?;
                let hint = format!("try: nbdinfo '{}'", nbd_uri(server.endpoint()));
                ready("nbd", endpoint_text(server.endpoint()), hint);
                Ok(server.run(stop)?)
            }
            Door::Fuse { file, options } => {
                let mounted = fuse::mount(device, &file, &options)?;
                let path = mounted.path().to_path_buf();
                let at = path.display().to_string();
                let hint = format!("try: losetup --find --show --direct-io=on {at}");
                ready("fuse", at, hint);
                mounting::hold(mounted, &path, stop, ui)
            }
            Door::Mount { dir, options } => {
                let fs = options.file_system;
                let mounted = mount::mount(device.clone(), &dir, &options, stop)
                    .map_err(|e| mounting::advise(e, &*device, fs, served, &dir))?;
                let target = mounted.target().to_path_buf();
                ready("mount", target.display().to_string(), format!("mounted as {}", fs.name()));
                mounting::hold(mounted, &target, stop, ui)
            }
        }
    }
}

/// docs/json/serve.md: the first line.
#[derive(Serialize)]
#[serde(tag = "event", rename = "ready")]
struct Ready {
    disk: String,
    door: &'static str,
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<String>,
}

/// docs/json/serve.md: the last line.
#[derive(Serialize)]
#[serde(tag = "event", rename = "closed")]
struct Closed {
    disk: String,
    ledger: LedgerStat,
}

/// A named disk, and who may query its figures.
pub struct Offer<'a> {
    pub stack: &'a Stack,
    pub name: String,
    pub metrics: Option<Endpoint>,
    /// Interval of the background scrub.
    pub scrub_every: ScrubEvery,
}

impl Offer<'_> {
    /// Opens the door to `device` (the disk, or a device in front of it) and holds it open until a signal.
    pub fn hold(
        &self,
        door: Door,
        device: Arc<dyn BlockDevice>,
        stop: &Stop,
        ui: &Ui,
    ) -> Result<(), Failure> {
        let scrubber = match self.scrub_every.0 {
            Some(every) if !self.stack.device().info().read_only => Some(Scrubber::start(self.stack, every)?),
            _ => None,
        };
        let _deduper = Deduper::start(self.stack)?;
        let _live = Live::start(self.stack, &self.name, self.metrics.as_ref(), scrubber.as_ref(), ui)?;
        let served = Served { what: "disk", name: &self.name };
        door.hold(device, &served, |door, at, hint| self.ready(ui, door, at, &hint), stop, ui)
    }

    fn ready(&self, ui: &Ui, door: &'static str, at: String, hint: &str) {
        let metrics = self.metrics.as_ref().map(endpoint_text);
        let ready = Ready { disk: self.name.clone(), door, at, metrics };
        ui.event(&ready, || format!("{} is at {} ({hint}); Ctrl-C ends it\n", ready.disk, ready.at));
    }
}

/// Closes a disk after its door, however that ended, and reports what the disk did since `before`.
pub fn close(
    stack: Stack,
    name: &str,
    before: &LedgerSnapshot,
    held: Result<(), Failure>,
    ui: &Ui,
) -> Result<(), Failure> {
    let closed = stack.disk().close();
    let ledger = stack.disk().ledger().since(before);
    let gone = stack.close();
    held?;
    closed.and(gone)?;
    let named = LedgerStat::new(&ledger, ledger.programmed_total());
    ui.event(&Closed { disk: name.to_string(), ledger: named }, || {
        format!(
            "closed {name}: the host wrote {}, {} were programmed, {} avoided (write amplification {:.3})\n",
            text::bytes(ledger.host_written_bytes),
            text::bytes(ledger.programmed_total()),
            text::bytes(ledger.avoided_total()),
            ledger.waf()
        )
    });
    Ok(())
}

/// Parses `unix:PATH` or `tcp:ADDRESS:PORT`.
pub fn parse_endpoint(text: &str) -> Result<Endpoint> {
    let bad = || {
        Error::invalid(format!(
            "'{text}' is no place to listen; write unix:/run/v.sock or tcp:127.0.0.1:10809"
        ))
    };
    match text.split_once(':').ok_or_else(bad)? {
        ("unix", path) if !path.is_empty() => Ok(Endpoint::Unix(path.into())),
        ("tcp", address) => address.parse().map(Endpoint::Tcp).map_err(|_| bad()),
        _ => Err(bad()),
    }
}

/// Refuses to listen where strangers could connect, unless allowed: there is no encryption.
pub fn check_reach(endpoint: &Endpoint, allow_remote: bool) -> Result<(), Failure> {
    match endpoint {
        Endpoint::Tcp(address) if !address.ip().is_loopback() && !allow_remote => Err(Failure::with_next(
            Error::invalid(format!("{address} can be reached from other machines, and nothing is encrypted")),
            "listen on 127.0.0.1 and tunnel (ssh -L), or say --allow-remote on a network you trust",
        )),
        _ => Ok(()),
    }
}

/// Formats it as [`parse_endpoint`] parses it.
pub fn endpoint_text(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Unix(path) => format!("unix:{}", path.display()),
        Endpoint::Tcp(address) => format!("tcp:{address}"),
    }
}

/// The URI for NBD clients.
pub fn nbd_uri(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Unix(path) => format!("nbd+unix:///?socket={}", path.display()),
        Endpoint::Tcp(address) => format!("nbd://{address}"),
    }
}
