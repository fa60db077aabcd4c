//! `disk stat`: ledger, SMART fields, wear; also for a disk in use.

use super::target::open_to_read;
use crate::failure::{Failure, Outcome, Verdict};
use crate::ui::{Ui, json_line, json_pretty};
use crate::{live, text};
use std::path::{Path, PathBuf};
use vellum::base::{Error, Kind};

/// Show what a disk wrote and why, what it avoided, its SMART fields and its wear
#[derive(clap::Args)]
#[command(after_help = "\
A disk that is being served, mounted or recorded answers through the socket beside its image.

Example:
  vellum disk stat d.vellum
  vellum disk stat d.vellum --watch --json

Exit codes: 0 shown, 2 usage, 3 I/O, 4 the image is corrupt, 5 in use by something that does not
answer")]
pub struct Args {
    /// The disk's image
    #[arg(value_name = "IMG")]
    image: PathBuf,
    /// Show it again every second until interrupted; with --json one line each
    #[arg(long)]
    watch: bool,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        if !self.watch {
            let page = page(&self.image, ui)?;
            ui.print(match ui.json {
                true => pretty(&page)?,
                false => page,
            });
            return Ok(Verdict::Fine);
        }
        ui.watch(|| page(&self.image, ui))?;
        Ok(Verdict::Fine)
    }
}

/// The figures as text, or as a line of JSON, from the process that has the disk open, or else from the image.
fn page(image: &Path, ui: &Ui) -> Result<String, Failure> {
    let name = if ui.json { "/stat.json" } else { "/stat.txt" };
    match open_to_read(image, ui) {
        Ok(stack) => {
            let stat = stack.disk().stat();
            stack.close()?;
            Ok(if ui.json { json_line(&stat) } else { text::stat::render(&stat, None) })
        }
        Err(failure) if failure.error().kind() == Kind::Busy => live::ask(image, name)?.ok_or_else(|| {
            let beside = live::socket(image);
            let error = Error::new(
                Kind::Busy,
                format!("{} is open elsewhere, and nobody answers at {}", image.display(), beside.display()),
            );
            Failure::with_next(error, "ask again when whoever uses it has ended")
        }),
        Err(failure) => Err(failure),
    }
}

fn pretty(line: &str) -> Result<String, Failure> {
    let value: serde_json::Value = serde_json::from_str(line)
        .map_err(|e| Error::new(Kind::Io, format!("the server's figures are not JSON: {e}")))?;
    Ok(json_pretty(&value))
}
