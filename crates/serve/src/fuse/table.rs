//! The mount table, and the mounts left behind by servers that died.

use crate::Stop;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use vellum_base::{Error, Kind, Result};

/// `path` with symbolic links resolved in its parent. The last component need not exist, and may be a dead mount, which
/// cannot be examined.
pub(super) fn absolute(path: &Path) -> Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| Error::invalid(format!("{} names no file", path.display())))?;
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = parent.canonicalize().map_err(|e| Error::io(format!("open {}", parent.display()), e))?;
    Ok(parent.join(name))
}

/// True if something is mounted at the absolute `path`.
pub(super) fn is_mounted(path: &Path) -> Result<bool> {
    let table = std::fs::read("/proc/self/mountinfo").map_err(|e| Error::io("read the mount table", e))?;
    Ok(table.split(|b| *b == b'\n').filter_map(mount_point).any(|at| at == path.as_os_str()))
}

/// Waits for `stop`, or until nothing is mounted at the absolute `path` any more. True in the second case.
pub(super) fn wait_until_gone(path: &Path, stop: &Stop) -> Result<bool> {
    let table =
        std::fs::File::open("/proc/self/mountinfo").map_err(|e| Error::io("watch the mount table", e))?;
    while !stop.is_stopped() {
        // The kernel reports changes since the file was last read or polled: so look first, and only then sleep.
        let mut fds = [PollFd::new(stop, PollFlags::IN), PollFd::new(&table, PollFlags::PRI)];
        if !is_mounted(path)? {
            return Ok(true);
        }
        match poll(&mut fds, None) {
            Err(Errno::INTR) | Ok(_) => {}
            Err(e) => return Err(Error::io("watch the mount table", e.into())),
        }
    }
    Ok(false)
}

/// Removes dead FUSE mounts at `path` ("Transport endpoint is not connected"). [`Kind::Busy`] if the mount there is
/// alive.
pub(crate) fn clear_stale(path: &Path) -> Result<()> {
    while is_mounted(path)? {
        if !is_dead(path) {
            let message = format!("something is mounted at {} already", path.display());
            return Err(Error::new(Kind::Busy, message));
        }
        rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
            .map_err(|e| Error::io(format!("clear the dead mount at {}", path.display()), e.into()))?;
    }
    Ok(())
}

/// True if `path` is a FUSE mount whose server has died. The kernel must not answer from its cache, which outlives the
/// server.
pub(crate) fn is_dead(path: &Path) -> bool {
    let how = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    rustix::fs::statx(CWD, path, how, StatxFlags::BASIC_STATS).is_err_and(|e| e == Errno::NOTCONN)
}

/// The mount point: the fifth field of a line of mountinfo, in which a backslash and three octal digits encode a byte.
fn mount_point(line: &[u8]) -> Option<OsString> {
    let field = line.split(|b| *b == b' ').nth(4)?;
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|d| first == b'\\' && d.iter().all(|c| (b'0'..b'8').contains(c)));
        match digits {
            Some(d) => {
                let value = d.iter().fold(0u32, |sum, c| sum * 8 + u32::from(c - b'0'));
                out.push(value as u8);
                rest = &after[3..];
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    Some(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn the_mount_table_is_unescaped() {
        let line = br"36 35 98:0 /mnt1 /a\040b\134c rw,noatime master:1 - ext3 /dev/root rw";
        assert_eq!(mount_point(line).unwrap().as_bytes(), br"/a b\c");
        assert_eq!(mount_point(b"too short"), None);
        assert_eq!(mount_point(br"1 2 3 4 /x\9 y").unwrap().as_bytes(), br"/x\9");
    }

    #[test]
    fn the_root_is_mounted_and_a_fresh_file_is_not() {
        assert!(is_mounted(Path::new("/")).unwrap());
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_mounted(&absolute(&dir.path().join("f")).unwrap()).unwrap());
    }
}
