//! `ses write`: writes known patterns to a disk.

use super::Sectors;
use crate::commands::disk::{Risk, open_image};
use crate::failure::{Failure, Outcome, Verdict};
use crate::ui::Ui;
use serde::Serialize;
use vellum::base::{Error, Kind};
use vellum::ses::write_pattern;

/// Write a known pattern to sectors of a disk
#[derive(clap::Args)]
#[command(after_help = "\
What the sectors held is lost. The pattern lba is the one to choose: it differs from sector to
sector, so that nothing is deduplicated or elided, and all of it reaches the flash.

Example:
  vellum ses write d.vellum --lba spread --pattern lba --overwrite

Exit codes: 0 written, 2 usage, 3 I/O, 4 corrupt, 5 in use")]
pub struct Args {
    #[command(flatten)]
    sectors: Sectors,
    /// Overwrite sectors that hold data
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    risk: Risk,
}

/// docs/json/ses-write.md
#[derive(Serialize)]
struct Answer {
    image: String,
    pattern: String,
    sectors: u64,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let stack = open_image(&self.sectors.image, false, &self.risk, ui)?;
        let written = self.write(&stack);
        let closed = stack.close().map_err(Failure::from);
        let answer = written.and_then(|answer| closed.map(|()| answer))?;
        ui.result(&answer, || {
            format!("{}: {} sectors hold {}\n", answer.image, answer.sectors, answer.pattern)
        });
        Ok(Verdict::Fine)
    }

    fn write(&self, stack: &vellum::Stack) -> Result<Answer, Failure> {
        let device = stack.device();
        let lbas = self.sectors.lba.on(device.info().sectors)?;
        for lba in &lbas {
            let (allocation, _) = device.allocation(*lba, 1)?;
            if allocation == vellum::base::Allocation::Data && !self.overwrite {
                return Err(Failure::with_next(
                    Error::new(Kind::Invalid, format!("{lba} holds data")),
                    "name other sectors, or say --overwrite to lose what they hold",
                ));
            }
        }
        write_pattern(&*device, &lbas, &self.sectors.pattern)?;
        let image = self.sectors.image.display().to_string();
        Ok(Answer { image, pattern: self.sectors.pattern.to_string(), sectors: lbas.len() as u64 })
    }
}
