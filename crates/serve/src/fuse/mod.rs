//! A device as a file: a FUSE mount over a regular file, so that `losetup`, `qemu` and anything else that takes a disk
//! image can use it. No libfuse is needed.
//!
//! States of a mount: mounted, unmounted. Invariants:
//! 1. The mount made by [`mount()`] is unmounted when [`FuseMount`] is dropped; if the file below it was created for
//!    that, it is removed.
//! 2. A mount never covers a live one. The remains of a server that died are removed.
//! 3. The file is always opened for direct I/O: nothing between its users and the device caches or reorders.

mod file;
mod table;

pub(crate) use table::{clear_stale, is_dead};

use crate::Stop;
use crate::bytes::ByteDevice;
use file::DiskFile;
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vellum_base::{BlockDevice, Error, Kind, Result};

/// Options for mounting.
#[derive(Clone, Copy, Debug)]
pub struct FuseOptions {
    /// Refuse writes even if the device would take them.
    pub read_only: bool,
    /// Threads that serve the file, each with its own channel to the kernel.
    pub threads: usize,
    /// Let users other than the one who mounts open the file.
    pub allow_other: bool,
}

impl Default for FuseOptions {
    fn default() -> FuseOptions {
        FuseOptions { read_only: false, threads: 2, allow_other: false }
    }
}

/// A device mounted as a file. Dropping it unmounts.
pub struct FuseMount {
    path: PathBuf,
    session: Option<BackgroundSession>,
    made_file: bool,
}

/// How often, and at what interval, unmounting is tried while the file is in use.
const UNMOUNT_TRIES: u32 = 60;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(50);

/// Mounts `device` as the file `path`, which is created if it does not exist and must be empty if it does.
///
/// [`Kind::Busy`] if something is mounted there; the mount of a dead server is removed first.
pub fn mount(device: Arc<dyn BlockDevice>, path: &Path, options: &FuseOptions) -> Result<FuseMount> {
    if options.threads == 0 {
        return Err(Error::invalid("a FUSE mount needs at least one thread"));
    }
    let path = table::absolute(path)?;
    table::clear_stale(&path)?;
    let made_file = prepare_file(&path)?;
    match start(device, &path, options) {
        Ok(session) => Ok(FuseMount { path, session: Some(session), made_file }),
        Err(e) => {
            if made_file {
                let _ = std::fs::remove_file(&path); // the first error is the one to tell
            }
            Err(e)
        }
    }
}

/// Checks that a device could be mounted as `path`; the error says why not. Leaves no new file behind.
pub fn check(path: &Path) -> Result<()> {
    let path = table::absolute(path)?;
    table::clear_stale(&path)?;
    match prepare_file(&path)? {
        true => std::fs::remove_file(&path).map_err(|e| Error::io(format!("remove {}", path.display()), e)),
        false => Ok(()),
    }
}

/// True if something is mounted at `path`, alive or dead.
pub fn is_mounted(path: &Path) -> Result<bool> {
    table::is_mounted(&table::absolute(path)?)
}

/// Waits for `stop`, or until nothing is mounted at `path` any more, as somebody else unmounted it. True in the second
/// case.
pub fn wait_until_gone(path: &Path, stop: &Stop) -> Result<bool> {
    table::wait_until_gone(&table::absolute(path)?, stop)
}

impl FuseMount {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Unmounts. [`Kind::Busy`] if the file stays open for several seconds; it stays mounted then. Does nothing if it
    /// is unmounted already.
    pub fn unmount(&mut self) -> Result<()> {
        if self.session.is_none() {
            return Ok(());
        }
        for _ in 1..UNMOUNT_TRIES {
            match unmount_once(&self.path) {
                Err(e) if e.kind() == Kind::Busy => pause(UNMOUNT_PAUSE),
                other => return other.and_then(|()| self.finish()),
            }
        }
        unmount_once(&self.path).and_then(|()| self.finish())
    }

    /// Unmounts even if the file is open: it disappears at once, and later operations by its users fail.
    pub fn abandon(mut self) -> Result<()> {
        match unmount_once(&self.path) {
            Err(e) if e.kind() == Kind::Busy => {}
            other => return other.and_then(|()| self.finish()),
        }
        if rustix::mount::unmount(&self.path, UnmountFlags::FORCE | UnmountFlags::DETACH).is_ok() {
            return self.finish();
        }
        // Only root can end the connection; otherwise it ends with this process.
        fusermount(&self.path, &["-u", "-z"])?;
        self.session = None;
        self.remove_file();
        Ok(())
    }

    /// Waits for the threads after the unmount, and removes the file below.
    fn finish(&mut self) -> Result<()> {
        let ended = match self.session.take() {
            Some(session) => session.join(),
            None => Ok(()),
        };
        self.remove_file();
        match ended {
            // A thread was taking a request, usually the kernel's notice that a file was closed, at the moment of the
            // unmount.
            Err(e) if e.raw_os_error() == Some(Errno::CONNABORTED.raw_os_error()) => Ok(()),
            other => other.map_err(|e| Error::io(format!("serve {}", self.path.display()), e)),
        }
    }

    fn remove_file(&mut self) {
        if std::mem::take(&mut self.made_file) {
            let _ = std::fs::remove_file(&self.path); // an empty file left behind harms nobody
        }
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        if self.unmount().is_err() && self.session.take().is_some() {
            // Still in use: detach it from the name space; its threads serve until the last user closes the file.
            let _ = rustix::mount::unmount(&self.path, UnmountFlags::DETACH);
            self.remove_file();
        }
    }
}

/// Prepares the file to mount over; true if it was created.
fn prepare_file(path: &Path) -> Result<bool> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() == 0 => Ok(false),
        Ok(_) => Err(Error::invalid(format!(
            "{} exists and is not an empty file; mounting there would hide it",
            path.display()
        ))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .map(|_| true)
            .map_err(|e| Error::io(format!("make {} to mount over", path.display()), e)),
        Err(e) => Err(Error::io(format!("look at {}", path.display()), e)),
    }
}

fn start(device: Arc<dyn BlockDevice>, path: &Path, options: &FuseOptions) -> Result<BackgroundSession> {
    let device = ByteDevice::new(device);
    let read_only = options.read_only || device.read_only();
    let mut config = Config::default();
    config.n_threads = Some(options.threads);
    config.clone_fd = options.threads > 1;
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.mount_options = vec![
        MountOption::FSName("vellum".into()),
        MountOption::Subtype("vellum".into()),
        MountOption::DefaultPermissions,
        if read_only { MountOption::RO } else { MountOption::RW },
    ];
    let failed = |e: std::io::Error| {
        let hint = "is /dev/fuse there, and for users other than root fusermount3?";
        Error::io(format!("mount a FUSE file at {} ({hint})", path.display()), e)
    };
    let session = Session::new(DiskFile::new(device, read_only), path, &config).map_err(failed)?;
    std::thread::scope(|threads| {
        let spawn = || {
            // The kernel must not wait for us to write back pages when a page is written back to us through the loop
            // device. Threads inherit this setting; without the privilege for it we continue.
            let _ = rustix::process::configure_io_flusher_behavior(true);
            session.spawn()
        };
        threads.spawn(spawn).join().expect("the starting thread does not panic")
    })
    .map_err(failed)
}

fn unmount_once(path: &Path) -> Result<()> {
    let here = || format!("unmount {}", path.display());
    match rustix::mount::unmount(path, UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        // Somebody else has unmounted it already.
        Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(Errno::BUSY) => Err(Error::new(Kind::Busy, format!("{}: the file is open", here()))),
        Err(Errno::PERM) => fusermount(path, &["-u"]),
        Err(e) => Err(Error::io(here(), e.into())),
    }
}

/// Runs the tool that users other than root unmount with.
fn fusermount(path: &Path, how: &[&str]) -> Result<()> {
    let out = std::process::Command::new("fusermount3").args(how).arg("--").arg(path).output();
    let out = out.map_err(|e| Error::io("run fusermount3", e))?;
    let said = String::from_utf8_lossy(&out.stderr);
    // That something is in use, such tools say in words only.
    match out.status.success() {
        true => Ok(()),
        false if said.contains("busy") => Err(Error::new(Kind::Busy, said.trim().to_string())),
        false => Err(Error::new(Kind::Io, format!("fusermount3 {}: {}", path.display(), said.trim()))),
    }
}

#[expect(clippy::disallowed_methods, reason = "waits for other processes, in real time")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
