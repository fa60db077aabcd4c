//! What a server that was killed leaves behind: a file system on a loop device on a dead FUSE file.
//!
//! Only that is taken away: a file system whose loop device stands on a file that answers "transport endpoint is
//! not connected". Everything else that is mounted is somebody's.

use super::tool::run;
use super::{detach, retry};
use crate::fuse;
use rustix::fs::{major, minor};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vellum_base::{Error, Kind, Result};

/// Takes the remains at `target` away. [`Kind::Busy`] if what is mounted there is alive.
pub(super) fn clear(target: &Path) -> Result<()> {
    // What cannot be looked up is not mounted; mounting there will say what is wrong with it.
    while fuse::is_mounted(target).unwrap_or(false) {
        let Some((device, file)) = loop_below(target).filter(|(_, file)| fuse::is_dead(file)) else {
            return Err(Error::new(
                Kind::Busy,
                format!("something is mounted at {} already", target.display()),
            ));
        };
        run("umount", &["--lazy".as_ref(), "--".as_ref(), target.as_os_str()])
            .map_err(|e| e.context("clear what a killed server left"))?;
        // If somebody still has a file open there, the kernel detaches when he closes it.
        let _ = retry(|| detach(&device, &file));
        fuse::clear_stale(&file)?;
        if file.parent() == Some(Path::new("/run")) {
            let _ = std::fs::remove_file(&file); // made for the mount, empty
        }
    }
    Ok(())
}

/// The loop device that carries what is mounted at `target`, and the file it stands on.
fn loop_below(target: &Path) -> Option<(PathBuf, PathBuf)> {
    let device = std::fs::metadata(target).ok()?.dev();
    let block = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let block = Path::new(&block).canonicalize().ok()?;
    let file = std::fs::read(block.join("loop/backing_file")).ok()?;
    let file = Path::new(OsStr::from_bytes(file.trim_ascii_end())).to_path_buf();
    Some((Path::new("/dev").join(block.file_name()?), file))
}
