//! `disk mount`: a file system on a disk, in one step.

use super::serve::CommonArgs;
use super::target::Target;
use crate::commands::file_system::FileSystemArgs;
use crate::failure::Outcome;
use crate::mounting::check_root;
use crate::ui::Ui;
use std::path::PathBuf;

/// Mount a file system that lives on a disk; makes one if the disk is blank (needs root)
#[derive(clap::Args)]
#[command(
    allow_missing_positional = true,
    after_help = "\
FUSE file, loop device, mkfs and mount in one step; Ctrl-C or umount takes down and closes all of
it. A disk that holds data is never formatted without --format.

Example:
  sudo vellum disk mount d.vellum ./mnt --fs ext4 --data journal
  sudo vellum disk mount --ram 1GiB ./scratch
  sudo vellum disk mount d.vellum ./mnt --fs ext4 --journal 4GiB+1GiB

Exit codes: 0 unmounted and closed, 2 usage, 3 not root, a tool failed or I/O, 4 corrupt, 5 in use"
)]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// The directory to mount at; made if it does not exist
    #[arg(value_name = "DIR", required = true)]
    dir: PathBuf,
    #[command(flatten)]
    file_system: FileSystemArgs,
    #[command(flatten)]
    common: CommonArgs,
    /// Mount read-only
    #[arg(long)]
    read_only: bool,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        check_root("disk")?;
        let door = self.file_system.door(self.dir, self.read_only)?;
        self.common.keep_open(&self.target, door, self.read_only, ui)
    }
}
