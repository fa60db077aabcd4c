//! `disk restore`: restores metadata from a dump.

use super::target::open_flash;
use crate::failure::{Failure, Outcome, Verdict};
use crate::ui::Ui;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use vellum::base::{Error, Kind, RealEnv};
use vellum::disk::tools;

/// Put the metadata of a dump back: the disk is again what it was when the dump was made
#[derive(clap::Args)]
#[command(after_help = "\
What was written after the dump was made is forgotten, so this wants --forget-newer. It refuses,
and writes nothing, if a sector that the dump lists is gone from the flash.

Example:
  vellum disk restore d.vellum --from d.dump --forget-newer

Exit codes: 0 restored, 2 usage or a dump of another disk, 3 I/O, 4 the dump is damaged or this
flash does not hold what it names, 5 in use")]
pub struct Args {
    /// The disk's image
    #[arg(value_name = "IMG")]
    image: PathBuf,
    /// The dump; - for standard input
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Yes, forget what was written since the dump was made
    #[arg(long)]
    forget_newer: bool,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        if !self.forget_newer {
            return Err(Failure::with_next(
                Error::invalid("restoring forgets what was written since the dump was made"),
                "keep a copy of the image, then add --forget-newer",
            ));
        }
        let name = self.from.display();
        let mut dump: Box<dyn BufRead> = if self.from.as_os_str() == "-" {
            Box::new(std::io::stdin().lock())
        } else {
            let file = File::open(&self.from).map_err(|e| Error::io(format!("open {name}"), e))?;
            Box::new(BufReader::new(file))
        };
        let flash = open_flash(&self.image, false)?;
        let restored = tools::restore(&mut dump, flash.clone(), RealEnv::new());
        let closed = vellum::stack::close_flash(flash);
        let report = restored.map_err(|e| {
            let image = self.image.display();
            let next = match e.kind() {
                Kind::Invalid => format!(
                    "nothing was written; take the image the dump was made of, or a dump of this one \
                     (vellum disk stat {image} and the dump's first line name their disk)"
                ),
                _ => format!("nothing was written; a newer dump may fit, or: vellum disk repair {image}"),
            };
            Failure::with_next(e.context(format!("restore {image} from {name}")), next)
        })?;
        closed?;
        ui.result(&report, || {
            format!(
                "{}: {} sectors mapped, {} slots checked, {} programmed anew; forgotten: {} writes, {} log slots\n",
                self.image.display(),
                report.mapped_sectors,
                report.slots_checked,
                report.slots_programmed,
                report.newer_writes_lost,
                report.newer_log_slots_lost
            )
        });
        Ok(Verdict::Fine)
    }
}
