//! `array mount`: a file system on an array, in one step.

use super::serve::keep_open;
use super::service::{FUSE_THREADS, Service};
use super::target::Target;
use crate::commands::file_system::FileSystemArgs;
use crate::doors::Door;
use crate::failure::Outcome;
use crate::mounting::check_root;
use crate::ui::Ui;
use std::path::PathBuf;
use vellum::serve::mount::MountOptions;

/// Mount a file system that lives on an array; makes one if the array is blank (needs root)
#[derive(clap::Args)]
#[command(after_help = "\
FUSE file, loop device, mkfs and mount in one step; Ctrl-C or umount takes down and closes all of
it. Other commands on the array work meanwhile, as with `serve`. An array that holds data is never
formatted without --format; one of block devices does not tell whether it does, and wants --format
the first time.

Example:
  sudo vellum array mount a.toml ./mnt --fs ext4
  sudo vellum array mount a.toml ./mnt --fs xfs --mount-options noatime

Exit codes: 0 unmounted and closed, 2 usage, 3 not root, a tool failed or I/O, 4 corrupt, 5 in use")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// The directory to mount at; made if it does not exist
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    file_system: FileSystemArgs,
    /// Mount read-only
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    service: Service,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        check_root("array")?;
        let options = MountOptions { threads: FUSE_THREADS, ..self.file_system.options(self.read_only)? };
        let door = Door::Mount { dir: self.dir, options: Box::new(options) };
        keep_open(&self.target, self.service, door, ui)
    }
}
