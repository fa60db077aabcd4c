//! `disk check`: checks consistency, and that everything is readable.

use super::target::open_to_read;
use crate::failure::{Outcome, Verdict};
use crate::text::{bytes, first_ranges};
use crate::ui::Ui;
use serde::Serialize;
use std::path::PathBuf;
use vellum::disk::{CheckReport, DedupReport};
use vellum::media::Image;

/// Compare a disk's map, its ledger, its flash and its image, and read every sector; changes nothing
#[derive(clap::Args)]
#[command(after_help = "\
A disk that was not closed is recovered in memory, then checked; its image stays as it is.

Example:
  vellum disk check d.vellum
  vellum disk check d.vellum --no-read

Exit codes: 0 clean, 1 problems found, 2 usage, 3 I/O, 4 too corrupt to open, 5 in use")]
pub struct Args {
    /// The disk's image
    #[arg(value_name = "IMG")]
    image: PathBuf,
    /// Check the structures only, do not read every sector
    #[arg(long)]
    no_read: bool,
}

/// docs/json/check.md
#[derive(Serialize)]
pub struct Checked<'a> {
    image: String,
    clean: bool,
    #[serde(flatten)]
    report: &'a CheckReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    dedup: Option<DedupReport>,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let stack = open_to_read(&self.image, ui)?;
        let mut report = stack.disk().check(!self.no_read, ui.progress("check"))?;
        report.problems.extend(Image::problems(&self.image)?.problems);
        stack.close()?;
        let checked = Checked::new(self.image.display().to_string(), &report);
        ui.result(&checked, || checked.describe());
        Ok(checked.verdict())
    }
}

impl<'a> Checked<'a> {
    pub fn new(image: String, report: &'a CheckReport) -> Checked<'a> {
        Checked { image, clean: report.is_clean(), report, dedup: None }
    }

    /// Adds the results of a search for copies.
    pub fn with_dedup(self, dedup: Option<DedupReport>) -> Checked<'a> {
        Checked { dedup, ..self }
    }

    pub fn verdict(&self) -> Verdict {
        if self.clean { Verdict::Fine } else { Verdict::Problems }
    }

    /// One line if all is well, otherwise what is wrong and what to do.
    pub fn describe(&self) -> String {
        let report = self.report;
        let mut text = format!("{}: {} slots read", self.image, report.slots_read);
        if report.refreshed > 0 {
            text.push_str(&format!(", {} moved because bits were failing", report.refreshed));
        }
        if let Some(dedup) = &self.dedup {
            text.push_str(&format!(
                ", {} sectors now share what others store, which frees {}",
                dedup.sectors_remapped,
                bytes(dedup.bytes_freed)
            ));
            if dedup.slots_left_out > 0 {
                text.push_str(&format!(", {} slots left out for want of memory", dedup.slots_left_out));
            }
        }
        if report.bits_corrected > 0 {
            text.push_str(&format!(", {} wrong bits put right", report.bits_corrected));
        }
        if self.clean {
            return text + ", clean\n";
        }
        text.push('\n');
        for problem in &report.problems {
            text.push_str(&format!("  {problem}\n"));
        }
        if report.damaged_count > 0 {
            let (count, ranges) = (report.damaged_count, first_ranges(&report.damaged_ranges));
            text.push_str(&format!(
                "  {count} sectors cannot be read (each range without its end): {ranges}\n"
            ));
        }
        if !report.problems.is_empty() {
            text.push_str(&format!(
                "next: keep a copy of the image, then: vellum disk repair {}\n",
                self.image
            ));
        }
        if report.damaged_count > 0 {
            text.push_str(
                "next: what those sectors held is gone, and no repair brings it back: restore the files in them from a \
                 backup; a sector that is written anew or trimmed is whole again\n",
            );
        }
        text
    }
}
