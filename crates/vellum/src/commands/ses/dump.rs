//! `ses dump`: dumps raw bytes of a disk's flash.

use super::Sectors;
use crate::commands::disk::{create_file, open_to_read};
use crate::failure::{Failure, Outcome, Verdict};
use crate::report_file;
use crate::ui::Ui;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use vellum::base::Error;
use vellum::ses;

/// Dump what the flash of a disk holds for sectors, as it lies in the cells
#[derive(clap::Args)]
#[command(after_help = "\
Neither descrambled nor corrected: what a chip reader would find. Nothing is written to the image.
The dump is a manifest and beside it a file of raw bytes (docs/formats/ses-dump.md), from which
`vellum ses learn` learns.

Example:
  vellum ses dump d.vellum --lba spread --pattern lba --to d.toml
  vellum ses dump d.vellum --lba 5000-5015 --pattern hex:55aa --fresh --to fresh.toml

Exit codes: 0 dumped, 2 usage or sectors that hold something else, 3 I/O, 4 corrupt, 5 in use")]
pub struct Args {
    #[command(flatten)]
    sectors: Sectors,
    /// The manifest to write; the bytes go to a file of that name and .bin
    #[arg(long, value_name = "MANIFEST")]
    to: PathBuf,
    /// Mark them as fresh: to prove what was learned, never to learn from
    #[arg(long)]
    fresh: bool,
    /// Replace the files if they exist
    #[arg(long)]
    force: bool,
}

/// docs/json/ses-dump.md
#[derive(Serialize)]
struct Answer {
    manifest: String,
    file: String,
    pattern: String,
    sectors: u64,
    not_on_flash: u64,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let mut file = self.to.clone().into_os_string();
        file.push(".bin");
        let file = PathBuf::from(file);
        report_file::check(&self.to, self.force)?;
        report_file::check(&file, self.force)?;
        let stack = open_to_read(&self.sectors.image, ui)?;
        let lbas = self.sectors.lba.on(stack.device().info().sectors)?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let dump = ses::dump(&stack, &lbas, &self.sectors.pattern, self.fresh, &name).map_err(|e| {
            let next = "write it first: vellum ses write IMG --lba LIST --pattern lba, which differs from sector to sector";
            Failure::with_next(e, next)
        })?;
        self.write(&file, &dump.bytes)?;
        self.write(&self.to, dump.manifest.to_text().as_bytes())?;
        let answer = Answer {
            manifest: self.to.display().to_string(),
            file: file.display().to_string(),
            pattern: self.sectors.pattern.to_string(),
            sectors: dump.sectors,
            not_on_flash: dump.not_on_flash,
        };
        ui.result(&answer, || {
            let left_out = match answer.not_on_flash {
                0 => String::new(),
                n => format!("; {n} left out, which have no slot of flash to themselves"),
            };
            format!("{}: {} sectors raw in {}{left_out}\n", answer.manifest, answer.sectors, answer.file)
        });
        Ok(Verdict::Fine)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), Failure> {
        let mut file = create_file(path, self.force)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        Ok(written.map_err(|e| Error::io(format!("write {}", path.display()), e))?)
    }
}
