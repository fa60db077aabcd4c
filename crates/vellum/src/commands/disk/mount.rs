//! `disk mount`: a file system on a disk, in one step.

use super::serve::CommonArgs;
use super::target::Target;
use crate::doors::Door;
use crate::failure::{Failure, Outcome};
use crate::ui::Ui;
use clap::ValueEnum;
use std::path::PathBuf;
use vellum::base::{Error, Kind, Result};
use vellum::serve::mount::{FileSystem, Make, MountOptions};

/// Mount a file system that lives on a disk; makes one if the disk is blank (needs root)
#[derive(clap::Args)]
#[command(
    allow_missing_positional = true,
    after_help = "\
FUSE file, loop device, mkfs and mount in one step; Ctrl-C or umount takes down and closes all of it. A disk that holds data is
never formatted without --format.

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

/// Which file system, and how.
#[derive(clap::Args)]
pub struct FileSystemArgs {
    /// The file system: ext4, ext3 or xfs
    #[arg(long, value_name = "KIND", default_value = "ext4", value_parser = FileSystem::from_name)]
    fs: FileSystem,
    /// What ext3 and ext4 journal [default: the file system's]
    #[arg(long, value_name = "MODE")]
    data: Option<DataMode>,
    /// More options for mkfs, such as "-N 100000 -J size=256"
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    mkfs_options: Option<String>,
    /// More options for mount -o, such as noatime,discard
    #[arg(long, value_name = "OPTIONS")]
    mount_options: Option<String>,
    /// Make a new file system even if the disk holds data, which is lost
    #[arg(long)]
    format: bool,
}

/// ext4's `data=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DataMode {
    /// Data and metadata pass through the journal.
    Journal,
    /// Metadata passes through the journal, data is written first.
    Ordered,
    /// Metadata passes through the journal, data when it likes.
    Writeback,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        check_root()?;
        let door = self.file_system.door(self.dir, self.read_only)?;
        self.common.keep_open(&self.target, door, self.read_only, ui)
    }
}

/// Before anything is opened or made.
pub fn check_root() -> Result<(), Failure> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err(Failure::with_next(
            Error::new(Kind::Unsupported, "mounting a disk needs root"),
            "run it with sudo; without root, serve the disk: vellum disk serve IMG --nbd unix:/tmp/v.sock",
        )),
    }
}

impl FileSystemArgs {
    /// In a few words.
    pub fn describe(&self) -> String {
        let data = self.data.and_then(|mode| mode.to_possible_value());
        let data = data.map(|mode| format!(" data={}", mode.get_name())).unwrap_or_default();
        let more = self.mount_options.as_ref().map(|o| format!(" ({o})")).unwrap_or_default();
        format!("{}{data}{more}", self.fs.name())
    }

    /// The mounted file system as a door.
    pub fn door(&self, dir: PathBuf, read_only: bool) -> Result<Door, Failure> {
        if self.data.is_some() && self.fs == FileSystem::Xfs {
            return Err(Error::invalid("--data is for ext3 and ext4: XFS journals metadata only").into());
        }
        let data = self.data.and_then(|mode| mode.to_possible_value());
        let data = data.map(|mode| format!("data={}", mode.get_name()));
        let list: Vec<&str> = data.as_deref().into_iter().chain(self.mount_options.as_deref()).collect();
        let make_args = self.mkfs_options.iter().flat_map(|o| o.split_whitespace()).map(String::from);
        let options = MountOptions {
            file_system: self.fs,
            make: if self.format { Make::Always } else { Make::IfBlank },
            make_args: make_args.collect(),
            options: list.join(","),
            read_only,
            ..MountOptions::default()
        };
        Ok(Door::Mount { dir, options: Box::new(options) })
    }
}
