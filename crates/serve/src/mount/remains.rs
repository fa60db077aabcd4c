//! Mounts left behind by a killed server: a file system on a loop device on a dead FUSE file.
//!
//! Only these are removed: file systems whose loop device is attached to a file that answers "transport endpoint is not
//! connected". Every other mount belongs to somebody else. Empty files that such mounts were made over are removed as
//! well, if their processes do not exist any more.

use super::tool::run;
use super::{detach, retry};
use crate::fuse;
use rustix::fs::{major, minor};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vellum_base::{Error, Kind, Result};

/// Removes the remains at `target`. [`Kind::Busy`] if the mount there is alive.
pub(super) fn clear(target: &Path) -> Result<()> {
    // What cannot be looked up is not mounted; mounting there will report what is wrong with it.
    while fuse::is_mounted(target).unwrap_or(false) {
        let Some((device, file)) = loop_below(target).filter(|(_, file)| fuse::is_dead(file)) else {
            return Err(Error::new(
                Kind::Busy,
                format!("something is mounted at {} already", target.display()),
            ));
        };
        run("umount", &["--lazy".as_ref(), "--".as_ref(), target.as_os_str()])
            .map_err(|e| e.context("clear what a killed server left"))?;
        // If a file there is still open, the kernel detaches the loop device when it is closed.
        let _ = retry(|| detach(&device, &file));
        fuse::clear_stale(&file)?;
        if file.parent() == Some(Path::new(super::RUN)) {
            let _ = std::fs::remove_file(&file); // made for the mount, empty
        }
    }
    Ok(())
}

/// Removes files in `dir` that our mounts were made over and whose processes do not exist any more. One that is still
/// mounted, dead or alive, is not an empty file.
pub(super) fn clear_files(dir: &Path) {
    let ours = rustix::process::geteuid().as_raw();
    let has_gone = |id: u32| !Path::new(&format!("/proc/{id}")).exists();
    let is_empty = |found: std::fs::Metadata| found.is_file() && found.len() == 0 && found.uid() == ours;
    for file in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let is_left = process_of(&file.file_name()).is_some_and(has_gone);
        if is_left && file.path().symlink_metadata().is_ok_and(is_empty) {
            let _ = std::fs::remove_file(file.path());
        }
    }
}

/// The process that created a file, from its name, `vellum-PROCESS-NUMBER.disk`.
fn process_of(name: &OsStr) -> Option<u32> {
    let (id, number) = name.to_str()?.strip_prefix("vellum-")?.strip_suffix(".disk")?.split_once('-')?;
    number.parse::<u64>().ok().and(id.parse().ok())
}

/// The loop device below the mount at `target`, and the file that it is attached to.
fn loop_below(target: &Path) -> Option<(PathBuf, PathBuf)> {
    let device = std::fs::metadata(target).ok()?.dev();
    let block = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let block = Path::new(&block).canonicalize().ok()?;
    let file = std::fs::read(block.join("loop/backing_file")).ok()?;
    let file = Path::new(OsStr::from_bytes(file.trim_ascii_end())).to_path_buf();
    Some((Path::new("/dev").join(block.file_name()?), file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_files_of_processes_that_have_gone_are_removed() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = child.id();
        child.wait().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let own = std::process::id();
        let kept = [
            format!("vellum-{own}-0.disk"),
            format!("vellum-{gone}-1.disk"),
            format!("vellum-{gone}-x.disk"),
            format!("vellum-{gone}.disk"),
            format!("other-{gone}-0.disk"),
        ];
        for name in kept.iter().chain([&format!("vellum-{gone}-0.disk")]) {
            let content = if name.ends_with("-1.disk") { "somebody's" } else { "" };
            std::fs::write(dir.path().join(name), content).unwrap();
        }
        clear_files(dir.path());
        let mut left: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        let mut kept = kept.map(std::ffi::OsString::from);
        kept.sort();
        assert_eq!(left, kept);
    }
}
