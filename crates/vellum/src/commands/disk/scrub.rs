//! `disk scrub`: reads everything and moves what is about to fail; finds what is stored more than once.

use super::check::Checked;
use super::target::{Risk, open_image};
use crate::failure::Outcome;
use crate::ui::Ui;
use std::path::PathBuf;

/// Read every sector and move those whose bits begin to fail; find copies, if asked to
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  vellum disk scrub d.vellum
  vellum disk scrub d.vellum --dedup

Exit codes: 0 all could be read, 1 some could not, 2 usage, 3 I/O, 4 too corrupt to open, 5 in use")]
pub struct Args {
    /// The disk's image
    #[arg(value_name = "IMG")]
    image: PathBuf,
    /// Then find what is stored more than once, and store it once
    #[arg(long)]
    dedup: bool,
    #[command(flatten)]
    risk: Risk,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let stack = open_image(&self.image, false, &self.risk, ui)?;
        let report = stack.disk().scrub(ui.progress("scrub"))?;
        let dedup = match self.dedup {
            true => Some(stack.disk().dedup_all(ui.progress("dedup"))?),
            false => None,
        };
        stack.close()?;
        let checked = Checked::new(self.image.display().to_string(), &report).with_dedup(dedup);
        ui.result(&checked, || checked.describe());
        Ok(checked.verdict())
    }
}
