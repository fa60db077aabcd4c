//! A loop device on nbdfuse on a disk served over NBD: the closest that tests come to a kernel's own client.

use super::host::{sh, try_sh, wait_until};
use crate::support::Home;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Tools for a bridge, in addition to those for mounting.
pub const BRIDGE_TOOLS: &[&str] = &["nbdfuse", "losetup", "mount", "umount"];

/// How the loop device is made.
pub struct Way {
    /// Logical sector size of the loop device.
    pub sector_bytes: u32,
    /// Offset of the part of the disk; it extends to the disk's end if the size is `None`.
    pub offset_bytes: u64,
    pub size_bytes: Option<u64>,
    /// Use [`FILE_DOOR`] instead, and a device without trim and write-zeroes, as many are: zeros arrive as ordinary
    /// writes.
    pub plain_writes: bool,
}

impl Default for Way {
    fn default() -> Way {
        Way { sector_bytes: 4096, offset_bytes: 0, size_bytes: None, plain_writes: false }
    }
}

/// How disks are served in these tests.
pub const NBD_DOOR: &str = "--nbd unix:v.sock";

/// The same, as a file.
pub const FILE_DOOR: &str = "--fuse file";

/// URI for clients of [`NBD_DOOR`].
pub fn uri(home: &Home) -> String {
    format!("nbd+unix:///?socket={}", home.path("v.sock").display())
}

/// The loop device, and a directory to mount it at. Detached when dropped.
pub struct Bridge {
    nbdfuse: Child,
    dir: PathBuf,
    /// Path of the loop device.
    pub device: String,
    mounted: PathBuf,
}

impl Bridge {
    /// A bridge to what is served at [`NBD_DOOR`]; mounts at `mnt`.
    pub fn new(home: &Home, way: &Way) -> Bridge {
        let (dir, mounted) = (home.path("nbd"), home.path("mnt"));
        for dir in [&dir, &mounted] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let mut command = Command::new("nbdfuse");
        command.arg(&dir).stdin(Stdio::null());
        if way.plain_writes {
            // The first partition of a disk that nbdkit presents around the file.
            let filters = ["--filter=nozero", "--filter=partition"];
            command
                .args(["[", "nbdkit", "--exit-with-parent"])
                .args(filters)
                .args(["partitioning", "partition=1"]);
            command.arg(home.path("file")).arg("]");
        } else {
            command.arg(uri(home));
        }
        let nbdfuse = command.spawn().unwrap();
        let mut bridge = Bridge { nbdfuse, dir, device: String::new(), mounted };
        let file = bridge.dir.join("nbd");
        wait_until("nbdfuse", || std::fs::metadata(&file).is_ok_and(|f| f.len() > 0));
        bridge.device = attach(&file, way);
        bridge
    }

    /// Mounts with `mount -t FS -o OPTIONS`.
    #[track_caller]
    pub fn mount(&self, fs: &str, options: &str) {
        sh(&format!("mount -t {fs} -o {options} {} {}", self.device, self.mounted.display()));
    }

    /// Unmounts.
    #[track_caller]
    pub fn unmount(&self) {
        sh(&format!("umount {}", self.mounted.display()));
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // Works with a dead server, too: each layer is released after its last user.
        take_down(&self.mounted);
        if !self.device.is_empty() {
            try_sh(&format!("losetup -d {}", self.device));
        }
        take_down(&self.dir);
        let _ = self.nbdfuse.kill();
        let _ = self.nbdfuse.wait();
    }
}

/// A loop device on a file.
pub struct Loop(pub String);

impl Drop for Loop {
    fn drop(&mut self) {
        try_sh(&format!("losetup -d {}", self.0));
    }
}

/// Attaches a loop device to a file of ours.
#[track_caller]
pub fn attach(file: &Path, way: &Way) -> String {
    let size = way.size_bytes.map(|bytes| format!("--sizelimit {bytes}")).unwrap_or_default();
    let said = sh(&format!(
        "losetup --find --show --direct-io=on --sector-size {} --offset {} {size} {}",
        way.sector_bytes,
        way.offset_bytes,
        file.display()
    ));
    said.trim().to_string()
}

fn take_down(dir: &Path) {
    if try_sh(&format!("mountpoint -q {}", dir.display())).0 || std::fs::metadata(dir).is_err() {
        try_sh(&format!("umount {0} || umount -l {0}", dir.display()));
    }
}
