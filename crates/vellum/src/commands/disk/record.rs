//! `disk record`: records what a host sends to a disk.

use super::dump;
use super::serve::CommonArgs;
use super::target::Target;
use crate::commands::file_system::FileSystemArgs;
use crate::doors::{self, Door, Offer, parse_endpoint};
use crate::failure::{Failure, Outcome, Verdict};
use crate::mounting::check_root;
use crate::text;
use crate::ui::Ui;
use serde::Serialize;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vellum::base::{Error, Result};
use vellum::serve::{Endpoint, Stop};
use vellum::trace::vtrace::Header;
use vellum::trace::{Format, ReadOptions, Recorder, RequestKind, Summary};

/// A recorder that is killed loses at most this much.
const SAVE_EVERY: Duration = Duration::from_secs(2);

/// Record what a file system or a VM sends to a disk, with fingerprints in place of contents, or with all bytes
#[derive(clap::Args)]
#[command(after_help = "\
Runs until Ctrl-C, like `disk serve` or `disk mount`. Contents are kept as fingerprints, except
what is needed to find a file system's journal. With --bytes all that is written is in the trace,
for whoever can read it: `replay --array raid5 --deltas recorded` makes deltas of it. What was
recorded is saved every two seconds: if the recorder is killed, `replay` takes its trace up to
there.

Example:
  sudo vellum disk record --ram 2GiB --mount ./mnt --data journal --to w.vtrace
  vellum disk record d.vellum --nbd unix:/run/v.sock --to w.vtrace --journal 4GiB+1GiB
  vellum replay w.vtrace --compare none,strong,woj-paper,journal
  vellum disk record --ram 2GiB --nbd unix:/run/v.sock --to b.vtrace --bytes

Exit codes: 0 ended by a signal, the trace is whole, 2 usage, 3 I/O or environment, 4 corrupt, 5 in
use")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// The trace to write
    #[arg(long, value_name = "TRACE")]
    to: PathBuf,
    /// Replace the trace if it exists
    #[arg(long)]
    force: bool,
    /// Keep the real bytes of all that is written, in place of fingerprints: the trace is then about as large as that,
    /// compressed
    #[arg(long)]
    bytes: bool,
    /// A name for the trace, for tables [default: its file name]
    #[arg(long)]
    label: Option<String>,
    #[command(flatten)]
    door: DoorArgs,
    #[command(flatten)]
    file_system: FileSystemArgs,
    #[command(flatten)]
    common: CommonArgs,
}

/// docs/json/record.md
#[derive(Serialize)]
#[serde(tag = "event", rename = "recorded")]
struct Recorded {
    trace: String,
    trace_bytes: u64,
    device_bytes: u64,
    requests: u64,
    writes: u64,
    written_bytes: u64,
    reads: u64,
    read_bytes: u64,
    /// Written sectors whose bytes are in the trace.
    kept_sectors: u64,
    flushes: u64,
    trims: u64,
    duration_ns: u64,
}

/// NBD, FUSE or a mounted file system.
#[derive(clap::Args)]
#[group(id = "door", required = true, multiple = false)]
struct DoorArgs {
    /// Mount a file system here, as `disk mount` does (needs root)
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Serve NBD at unix:PATH or tcp:ADDRESS:PORT
    #[arg(long, value_name = "WHERE", value_parser = parse_endpoint)]
    nbd: Option<Endpoint>,
    /// Appear as this file
    #[arg(long, value_name = "FILE")]
    fuse: Option<PathBuf>,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let door = self.open_door()?;
        self.common.check(&door)?;
        if self.target.image.as_deref() == Some(&self.to) {
            return Err(Error::invalid("the trace would overwrite the disk's image").into());
        }
        let stop = Stop::on_signals()?;
        let stack = self.target.open(false, &self.common.journal, ui)?;
        let out = dump::create(&self.to, self.force)?;
        let header = Header { label: self.label(), comment: self.comment(), ..Header::default() };
        let device = stack.device();
        let recorder = Recorder::new(device, stack.env().clone(), BufWriter::new(out), header)?;
        let recorder = Arc::new(if self.bytes { recorder.with_all_bytes() } else { recorder });
        let before = stack.disk().ledger();
        let name = self.target.name();
        let offer = Offer {
            stack: &stack,
            name: name.clone(),
            metrics: self.common.metrics.clone(),
            scrub_every: self.common.scrub_every,
        };
        let (saved, ended) = (recorder.clone(), Stop::new()?);
        let until = ended.clone();
        let save = move || {
            while !until.wait(Some(SAVE_EVERY)) {
                saved.save();
            }
        };
        let saver = stack.env().clone().spawn("trace", Box::new(save));
        let held = offer.hold(door, recorder.clone(), &stop, ui);
        ended.stop();
        saver.join();
        // Whatever happened to the door, the recording is worth keeping.
        let finished = recorder.finish().and_then(|out| sync(out, &self.to)).map_err(Failure::from);
        drop(recorder);
        doors::close(stack, &name, &before, held.and(finished), ui)?;
        let recorded = Recorded::of(&self.to)?;
        ui.event(&recorded, || recorded.describe(self.bytes));
        Ok(Verdict::Fine)
    }

    fn open_door(&self) -> Result<Door, Failure> {
        match (&self.door.mount, &self.door.nbd, &self.door.fuse) {
            (Some(dir), _, _) => {
                check_root("disk")?;
                self.file_system.door(dir.clone(), false)
            }
            (_, Some(endpoint), _) => Ok(Door::nbd(endpoint.clone(), false)),
            (_, _, Some(file)) => Ok(Door::fuse(file.clone(), false)),
            _ => Err(Error::invalid("say what to record: --mount, --nbd or --fuse").into()),
        }
    }

    fn label(&self) -> String {
        let name = || self.to.file_stem().map(|n| n.to_string_lossy().into_owned());
        self.label.clone().or_else(name).unwrap_or_default()
    }

    fn comment(&self) -> String {
        let how = match &self.door.mount {
            Some(_) => self.file_system.describe(),
            None => "block requests of a client".into(),
        };
        let what = if self.bytes { ", with all bytes" } else { "" };
        format!("{how}{what}, recorded by vellum {}", env!("CARGO_PKG_VERSION"))
    }
}

impl Recorded {
    fn of(path: &Path) -> Result<Recorded> {
        let trace = vellum::trace::open(path, Some(Format::Vtrace), ReadOptions::default())?;
        let device_bytes = vellum::trace::RequestSource::device_bytes(&trace).map_or(0, |b| b.0);
        let summary = Summary::of(trace)?;
        let trace_bytes =
            path.metadata().map_err(|e| Error::io(format!("look at {}", path.display()), e))?.len();
        Ok(Recorded {
            trace: path.display().to_string(),
            trace_bytes,
            device_bytes,
            requests: summary.requests_total(),
            writes: summary.requests(RequestKind::Write),
            written_bytes: summary.bytes(RequestKind::Write).0,
            reads: summary.requests(RequestKind::Read),
            read_bytes: summary.bytes(RequestKind::Read).0,
            kept_sectors: summary.contents.zero + summary.contents.verbatim,
            flushes: summary.requests(RequestKind::Flush),
            trims: summary.requests(RequestKind::Trim),
            duration_ns: summary.span.map_or(0, |(first, last)| last.saturating_sub(first).0),
        })
    }

    fn describe(&self, bytes: bool) -> String {
        let next = match bytes {
            true => "--array raid5 --deltas recorded",
            false => "--compare none,strong,woj-paper,journal",
        };
        format!(
            "{}: {} requests ({} writes of {}, {} reads of {}, {} flushes, {} trims) in {:.1} s, {} of trace\n\
             next: vellum replay {} {next}\n",
            self.trace,
            self.requests,
            self.writes,
            text::bytes(self.written_bytes),
            self.reads,
            text::bytes(self.read_bytes),
            self.flushes,
            self.trims,
            self.duration_ns as f64 / 1e9,
            text::bytes(self.trace_bytes),
            self.trace
        )
    }
}

fn sync(out: BufWriter<File>, path: &Path) -> Result<()> {
    let written = out.into_inner().map_err(|e| e.into_error()).and_then(|file| file.sync_all());
    written.map_err(|e| Error::io(format!("write {}", path.display()), e))
}
