//! `--fs` and related options: a file system on a disk or an array.

use crate::doors::Door;
use crate::failure::Failure;
use clap::ValueEnum;
use std::path::PathBuf;
use vellum::base::Error;
use vellum::serve::mount::{FileSystem, Make, MountOptions};

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
    /// Make a new file system even if there is data, which is lost
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

impl FileSystemArgs {
    /// A short description.
    pub fn describe(&self) -> String {
        let data = self.data.and_then(|mode| mode.to_possible_value());
        let data = data.map(|mode| format!(" data={}", mode.get_name())).unwrap_or_default();
        let more = self.mount_options.as_ref().map(|o| format!(" ({o})")).unwrap_or_default();
        format!("{}{data}{more}", self.fs.name())
    }

    /// The door that mounts the file system.
    pub fn door(&self, dir: PathBuf, read_only: bool) -> Result<Door, Failure> {
        Ok(Door::Mount { dir, options: Box::new(self.options(read_only)?) })
    }

    /// Mount options.
    pub fn options(&self, read_only: bool) -> Result<MountOptions, Failure> {
        if self.data.is_some() && self.fs == FileSystem::Xfs {
            return Err(Error::invalid("--data is for ext3 and ext4: XFS journals metadata only").into());
        }
        let data = self.data.and_then(|mode| mode.to_possible_value());
        let data = data.map(|mode| format!("data={}", mode.get_name()));
        let list: Vec<&str> = data.as_deref().into_iter().chain(self.mount_options.as_deref()).collect();
        let make_args = self.mkfs_options.iter().flat_map(|o| o.split_whitespace()).map(String::from);
        Ok(MountOptions {
            file_system: self.fs,
            make: if self.format { Make::Always } else { Make::IfBlank },
            make_args: make_args.collect(),
            options: list.join(","),
            read_only,
            ..MountOptions::default()
        })
    }
}
