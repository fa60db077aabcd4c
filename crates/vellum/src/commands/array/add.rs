//! `array add`.

use super::target::{Shown, Target};
use crate::failure::{Failure, Outcome, Verdict};
use crate::ui::Ui;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum::array::{Device, State, examine};
use vellum::array_file::ArrayFile;
use vellum::base::{BlockDevice, Error, SECTOR_BYTES};
use vellum::media::FileDisk;

/// Take a device in for a lost member; `vellum array rebuild` fills it
#[derive(clap::Args)]
#[command(after_help = "\
A file that is not there is made. The device of the lost member is not named in FILE any more.

Example:
  vellum array add a.toml /dev/sde --erase
  vellum array rebuild a.toml

Exit codes: 0 it is in, 2 usage, or no member is lost, 3 I/O, 4 corrupt, 5 in use, or it holds another array")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// A file or a block device
    #[arg(value_name = "PATH")]
    device: PathBuf,
    /// Take a device that is there already: what it holds is lost
    #[arg(long)]
    erase: bool,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let mut named = ArrayFile::load(&self.target.file)?;
        named.members = self.kept(&named)?;
        let array = self.target.assemble(ui)?;
        if !array.status().members.iter().any(|member| member.state == State::Missing) {
            return Err(Failure::with_next(
                Error::invalid("no member is lost"),
                "take out the one to replace first: vellum array fail",
            ));
        }
        let device = self.open(&array.status())?;
        array.add(device, self.erase)?;
        named.members.push(self.device.clone());
        named.save(&self.target.file, true)?;
        let shown = Shown::of(&array.status());
        array.close()?;
        ui.result(&shown, || shown.describe());
        Ok(Verdict::Fine)
    }

    /// Paths that are still of use: not those of devices that are stale, gone, or the new one's.
    fn kept(&self, named: &ArrayFile) -> Result<Vec<PathBuf>, Failure> {
        let devices = named.open(&self.target.file)?;
        let found: Vec<_> = devices
            .members
            .iter()
            .filter_map(|(path, device)| Some((path.clone(), examine(device).ok()?)))
            .collect();
        let newest = found.iter().max_by_key(|(_, found)| found.event).map(|(_, found)| found.clone());
        let counts = |role: usize| newest.as_ref().is_some_and(|n| n.table[role].state != State::Missing);
        let kept = found.into_iter().filter(|(path, found)| counts(found.role) && *path != self.device);
        Ok(kept.map(|(path, _)| path).collect())
    }

    fn open(&self, status: &vellum::array::Status) -> Result<Device, Failure> {
        let base = self.target.file.parent().unwrap_or(Path::new(""));
        let path = base.join(&self.device);
        if path.symlink_metadata().is_err() {
            let bytes = status.member_sectors * SECTOR_BYTES as u64;
            return Ok(Arc::new(FileDisk::create(&path, bytes)?));
        }
        if !self.erase {
            let error = Error::invalid(format!(
                "{} is there already, and what it holds would be lost",
                path.display()
            ));
            return Err(Failure::with_next(error, "say --erase if that is meant"));
        }
        let disk = FileDisk::open(&path)?;
        disk.info().check_range(vellum::base::Lba(0), 1)?;
        Ok(Arc::new(disk))
    }
}
