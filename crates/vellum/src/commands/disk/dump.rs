//! `disk dump`: prints all metadata as text.

use super::target::open_flash;
use crate::failure::{Failure, Outcome, Verdict};
use crate::ui::Ui;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use vellum::base::{Error, Kind, RealEnv};
use vellum::disk::tools;
use vellum::whole_file::{OWNER_ONLY, create_file};

/// Write all metadata of a disk as text, which `disk restore` takes back
#[derive(clap::Args)]
#[command(after_help = "\
Nothing is written to the image, also if the disk was not closed. The text is lines of JSON
(docs/formats/disk-dump.md), with or without --json; it holds where everything is, not the contents.

Example:
  vellum disk dump d.vellum --to d.dump
  vellum disk dump d.vellum | less

Exit codes: 0 dumped, 2 usage, 3 I/O, 4 too corrupt to open, 5 in use")]
pub struct Args {
    /// The disk's image
    #[arg(value_name = "IMG")]
    image: PathBuf,
    /// The file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long, requires = "to")]
    force: bool,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let flash = open_flash(&self.image, true)?;
        let progress = ui.progress("dump");
        let Some(path) = &self.to else {
            let mut out = BufWriter::new(std::io::stdout().lock());
            let dumped = tools::dump(flash, RealEnv::new(), &mut out, progress)
                .and_then(|_| out.flush().map_err(|e| Error::io("write the dump", e)));
            return match dumped {
                Err(e) if is_gone(&e) => Ok(Verdict::Fine),
                other => Ok(other.map(|()| Verdict::Fine)?),
            };
        };
        let file = create(path, self.force)?;
        let mut out = BufWriter::new(&file);
        let report = tools::dump(flash, RealEnv::new(), &mut out, progress)?;
        let written = out.flush().and_then(|()| file.sync_all());
        written.map_err(|e| Error::io(format!("write {}", path.display()), e))?;
        ui.result(&report, || {
            format!("{}: {} lines, {} sectors mapped\n", path.display(), report.lines, report.mapped_sectors)
        });
        Ok(Verdict::Fine)
    }
}

/// True if the reader has closed the pipe: `vellum disk dump d | head`.
fn is_gone(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Creates a file that only its owner can read, for the contents of a disk or a store. An existing one is kept unless
/// `force`d.
pub fn create(path: &Path, force: bool) -> Result<File, Failure> {
    create_file(path, force, OWNER_ONLY).map_err(not_replaced)
}

/// A failure to create a file.
pub fn not_replaced(error: Error) -> Failure {
    match error.kind() {
        Kind::Invalid => Failure::with_next(error, "choose another name, or say --force to replace it"),
        _ => error.into(),
    }
}
