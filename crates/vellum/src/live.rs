//! Figures of a disk that is open in another process, through a Unix socket beside its image.
//!
//! The socket of `d.vellum` is `d.vellum.sock`. It serves three pages over HTTP: `/metrics` for Prometheus, and
//! `/stat.json` and `/stat.txt` as shown by `vellum disk stat`. Only the owner may connect.

use crate::text;
use crate::ui::{Ui, json_line, say};
use serde::Serialize;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vellum::base::{Error, Kind, Result, Task};
use vellum::disk::DiskStat;
use vellum::serve::metrics::Metrics;
use vellum::serve::{Endpoint, Stop};
use vellum::{ScrubStat, Scrubber, Stack, metrics};

/// A longer answer is not from our server.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// docs/json/stat.md: figures of a disk and of its background scrub.
#[derive(Serialize)]
struct Figures {
    #[serde(flatten)]
    disk: DiskStat,
    #[serde(skip_serializing_if = "Option::is_none")]
    scrub: Option<ScrubStat>,
}

/// Serves the figures of an open disk until it is dropped.
pub struct Live {
    stop: Stop,
    tasks: Vec<Task>,
}

impl Live {
    /// Listens at the socket beside the image, and at `asked` if given.
    pub fn start(
        stack: &Stack,
        name: &str,
        asked: Option<&Endpoint>,
        scrubber: Option<&Scrubber>,
        ui: &Ui,
    ) -> Result<Live> {
        let mut live = Live { stop: Stop::new()?, tasks: Vec::new() };
        if let Some(image) = stack.image() {
            let beside = Endpoint::Unix(socket(image));
            // The disk works without: a path too long, or a directory that cannot be written, is no reason to stop.
            if let Err(e) = live.answer(stack, name, &beside, scrubber) {
                ui.remark(format!("note: `vellum disk stat` will not work while this runs: {e}"));
            }
        }
        if let Some(endpoint) = asked {
            live.answer(stack, name, endpoint, scrubber)?;
        }
        Ok(live)
    }

    fn answer(
        &mut self,
        stack: &Stack,
        name: &str,
        endpoint: &Endpoint,
        scrubber: Option<&Scrubber>,
    ) -> Result<()> {
        let (disk, watch) = (stack.disk().clone(), scrubber.map(Scrubber::watch));
        let figures = move || Figures { disk: disk.stat(), scrub: watch.as_ref().map(|watch| watch()) };
        let (page, json, human) = (figures.clone(), figures.clone(), figures);
        let name = name.to_string();
        let prometheus = move || {
            let Figures { disk, scrub } = page();
            metrics::prometheus(&name, &disk, scrub.as_ref())
        };
        let server = Metrics::bind(endpoint, prometheus)?
            .page("/stat.json", "application/json", move || json_line(&json()))
            .page("/stat.txt", "text/plain; charset=utf-8", move || human_stat(&human()));
        let stop = self.stop.clone();
        let run = move || {
            if let Err(e) = server.run(&stop) {
                say(format!("note: no more figures from here: {e}"));
            }
        };
        self.tasks.push(stack.env().clone().spawn("figures", Box::new(run)));
        Ok(())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop.stop();
        self.tasks.drain(..).for_each(Task::join);
    }
}

/// The socket beside an image: if several names lead to the image, beside the file itself.
pub fn socket(image: &Path) -> PathBuf {
    let mut name = file_itself(image).into_os_string();
    name.push(".sock");
    PathBuf::from(name)
}

/// Target of a symbolic link, if `image` is one. Relative to the current directory if that is shorter: names of sockets
/// are limited.
fn file_itself(image: &Path) -> PathBuf {
    match image.canonicalize() {
        Ok(file) if image.is_symlink() => {
            let near = std::env::current_dir()
                .ok()
                .and_then(|here| Some(file.strip_prefix(here).ok()?.to_path_buf()));
            near.unwrap_or(file)
        }
        _ => image.to_path_buf(),
    }
}

/// Requests a page from the process that has `image` open. `None` if there is none.
pub fn ask(image: &Path, page: &str) -> Result<Option<String>> {
    let path = socket(image);
    let here = || format!("ask {}", path.display());
    let mut stream = match UnixStream::connect(&path) {
        Ok(stream) => stream,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => return Ok(None),
        Err(e) => return Err(Error::io(here(), e)),
    };
    let mut answer = String::new();
    let asked = stream
        .set_read_timeout(Some(ANSWER_LIMIT))
        .and_then(|()| write!(stream, "GET {page} HTTP/1.0\r\n\r\n"))
        .and_then(|()| stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer));
    asked.map_err(|e| Error::io(here(), e))?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(Some(body.to_string())),
        _ => Err(Error::new(Kind::Io, format!("{}: what answers there is not a disk of ours", here()))),
    }
}

fn human_stat(figures: &Figures) -> String {
    text::stat::render(&figures.disk, figures.scrub.as_ref())
}
