//! `kv open`: creates or recovers a store.

use super::stat::Figures;
use super::target::{Strict, WriteTarget};
use crate::failure::{Outcome, Verdict};
use crate::text;
use crate::ui::Ui;
use serde::Serialize;
use std::path::PathBuf;
use vellum::Size;
use vellum::kv::ZoneMedia;

/// Make a store if there is none; recover it if it was not closed
#[derive(clap::Args)]
#[command(after_help = "\
Every other command recovers a store, too; this one does nothing else, and says what is in it.

With --device, tables are on a partition, on a file of fixed size, or on a zoned device; PATH keeps
the log and the name of the device, so that no other command needs to be told. With --flash, PATH
is one file: a flash image that holds all of the store, as an SSD does that gives a store its
flash. The other commands take it for PATH as they take a directory.

On a device a table takes a zone, and merging takes zones while it writes: of 64 zones or more about
three fifths hold keys and values, of 16 a fifth, and 8 are the least (decision 20). A copy of PATH
alone opens nothing, for the tables are the original's: copy the device, too, and name that copy
with --device, once. To give PATH the device itself, name that. If PATH has lost the name of its
device (the file ZONES), --device puts it back. What is killed is no store: run it again.

A log ends at the first record that does not check out: what is behind was torn off as the power
went. What was synced is never taken for that: it is damage, and an error. With --strict, so is all
that other records follow; `vellum kv repair` finds them.

Example:
  vellum kv open s
  vellum kv open s --strict
  sudo vellum kv open s --device /dev/nvme0n1p3
  vellum kv open s.flash --flash 1GiB

Exit codes: 0 open and closed again, 2 usage, 3 I/O, 4 corrupt, 5 open elsewhere")]
pub struct Args {
    #[command(flatten)]
    target: WriteTarget,
    /// A device or file for the tables of a new store, which has to be blank; of one that is there: where they are now
    #[arg(long, value_name = "DEV")]
    device: Option<PathBuf>,
    /// Bytes of a table on it; a zoned device has its own [default: 64MiB; of a device below 8GiB about a 128th of it]
    #[arg(long, value_name = "SIZE", requires = "device", conflicts_with = "flash")]
    zone: Option<Size>,
    /// Make PATH a flash image with so much room for tables
    #[arg(long, value_name = "SIZE", conflicts_with = "device")]
    flash: Option<Size>,
    /// Use the device although it is not blank: what it holds is LOST
    #[arg(long, requires = "device", conflicts_with = "flash")]
    force: bool,
    #[command(flatten)]
    strict: Strict,
}

/// A device with fewer zones is remarked on.
const ZONES_FEW: u64 = 64;

/// docs/json/kv.md
#[derive(Serialize)]
struct Opened {
    path: String,
    made: bool,
    #[serde(flatten)]
    figures: Figures,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let made = self.target.is_new();
        if self.device.is_none() {
            self.target.check_finished()?;
        }
        if let Some(device) = self.device.as_ref().filter(|_| !made) {
            self.zone.map_or(Ok(()), |zone| self.target.check_zone(zone))?;
            self.target.move_to(device)?;
        }
        if let Some(device) = self.device.as_ref().filter(|_| made) {
            let (zones, zone_bytes) = self.target.format_on(device, self.zone, self.force)?;
            if (1..ZONES_FEW).contains(&zones) && zone_bytes > ZoneMedia::ZONE_BYTES_MIN {
                ui.remark(format!(
                    "note: {} has {zones} zones, most of which merging keeps for itself: smaller ones (--zone) leave \
                     more room",
                    device.display()
                ));
            }
        }
        let (image, store) = match self.flash {
            Some(room) => {
                let (image, store) = self.target.begin_image(room, self.strict)?;
                (Some(image), store)
            }
            None => (None, self.target.open_if_strict(self.strict)?),
        };
        let figures = Figures::of(&store);
        store.close().map_err(|e| self.target.advise(e))?;
        image.map_or(Ok(()), |image| self.target.finish_image(image))?;
        let opened = Opened { path: self.target.name(), made, figures };
        ui.result(&opened, || match made {
            true => format!("{}: a new store\n", opened.path),
            false => text::kv::figures(&opened.figures),
        });
        Ok(Verdict::Fine)
    }
}
