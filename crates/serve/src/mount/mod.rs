//! A device as a mounted file system: FUSE file, loop device, mkfs, mount; and the reverse.
//!
//! States: going up, mounted, going down, gone. Invariants:
//! 1. Every completed step is on a stack. On any error, on drop and on [`Stop`], the stack is undone from the top.
//! 2. Undoing stops at the first step that fails, and can be resumed there.
//! 3. A file system is made only on a device without data, unless the caller insists.

mod remains;
mod tool;

use crate::fuse::{self, FuseMount, FuseOptions};
use crate::reason;
use crate::stop::Stop;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tool::run;
use vellum_base::{Allocation, BlockDevice, Error, Kind, Lba, Result};

/// File systems that can be made and mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// ext4, 4 KiB blocks.
    Ext4,
    /// ext3, 4 KiB blocks.
    Ext3,
    /// XFS, 4 KiB sectors.
    Xfs,
}

/// Whether to make a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Make {
    /// Never; the device must have one.
    Never,
    /// If no sector of the device holds data.
    #[default]
    IfBlank,
    /// Always: existing data on the device are lost.
    Always,
}

/// Options for mounting.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The file system.
    pub file_system: FileSystem,
    /// Whether to make the file system.
    pub make: Make,
    /// Additional arguments for `mkfs`.
    pub make_args: Vec<String>,
    /// Options for `mount -o`, such as `data=journal,noatime`. May be empty.
    pub options: String,
    /// Mount read-only.
    pub read_only: bool,
    /// Path of the FUSE file; `None` for one under `/run`.
    pub file: Option<PathBuf>,
    /// Threads that serve the FUSE file.
    pub threads: usize,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            file_system: FileSystem::Ext4,
            make: Make::default(),
            make_args: Vec::new(),
            options: String::new(),
            read_only: false,
            file: None,
            threads: FuseOptions::default().threads,
        }
    }
}

/// A file system mounted on a device through FUSE and a loop device. Dropping it undoes everything.
pub struct DiskMount {
    target: PathBuf,
    /// Completed steps, the topmost last.
    steps: Vec<Step>,
}

enum Step {
    File(FuseMount),
    Loop { device: PathBuf, file: PathBuf },
    MadeDirectory(PathBuf),
    FileSystem(PathBuf),
}

const DOWN_TRIES: u32 = 10;
const DOWN_PAUSE: Duration = Duration::from_millis(200);

/// Mounts `device` at the directory `target`, which is created if it does not exist. Needs root. A mount left there by
/// a killed server is removed; anything else mounted there is [`Kind::Busy`].
///
/// Errors name the step, and the missing tool or the tool's message. On `stop`, the steps so far are undone, and the
/// error is of [`Kind::Busy`].
pub fn mount(
    device: Arc<dyn BlockDevice>,
    target: &Path,
    options: &MountOptions,
    stop: &Stop,
) -> Result<DiskMount> {
    check(options)?;
    remains::clear_files(Path::new(RUN));
    remains::clear(target)?;
    let info = device.info();
    let read_only = options.read_only || info.read_only;
    let make = match options.make {
        _ if read_only => false,
        Make::Never => false,
        Make::Always => true,
        Make::IfBlank => is_blank(device.as_ref())?,
    };
    let mut mount = DiskMount { target: target.to_path_buf(), steps: Vec::new() };
    let up = mount.go_up(device, options, (read_only, make), stop);
    match up {
        Ok(()) => Ok(mount),
        // The reason is more important than an error of the cleanup, which dropping `mount` tries again.
        Err(e) => {
            let _ = mount.unmount();
            Err(e.context(format!("mount at {}", target.display())))
        }
    }
}

/// Checks that `target` is a directory, or can be created as one; the error says why not.
pub fn check_target(target: &Path) -> Result<()> {
    let failed = |e| Error::io(format!("make the directory {}", target.display()), e);
    match std::fs::create_dir(target) {
        Ok(()) => std::fs::remove_dir(target).map_err(failed),
        Err(_) if target.is_dir() => Ok(()),
        // A mount left by a dead server is removed by [`mount`].
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && target.metadata().is_err() => Ok(()),
        Err(e) => Err(failed(e)),
    }
}

impl FileSystem {
    /// Its name, as `mount -t` takes it.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Ext3 => "ext3",
            FileSystem::Xfs => "xfs",
        }
    }

    /// The file system called `name`.
    pub fn from_name(name: &str) -> Result<FileSystem> {
        [FileSystem::Ext4, FileSystem::Ext3, FileSystem::Xfs]
            .into_iter()
            .find(|fs| fs.name() == name)
            .ok_or_else(|| {
                Error::invalid(format!("'{name}' is not a file system we make: ext4, ext3 or xfs"))
            })
    }

    fn make_args(self, overwrite: bool, trim: bool) -> Vec<&'static str> {
        let force = match self {
            _ if !overwrite => &[][..],
            FileSystem::Xfs => &["-f"],
            FileSystem::Ext4 | FileSystem::Ext3 => &["-F"],
        };
        let shape = match self {
            FileSystem::Xfs => &["-q", "-s", "size=4096"],
            FileSystem::Ext4 | FileSystem::Ext3 => &["-q", "-b", "4096"],
        };
        let keep = match self {
            _ if trim => &[][..],
            FileSystem::Xfs => &["-K"],
            FileSystem::Ext4 | FileSystem::Ext3 => &["-E", "nodiscard"],
        };
        [force, shape, keep].concat()
    }
}

impl DiskMount {
    /// Where the file system is.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// The loop device below it, while it is attached.
    pub fn loop_device(&self) -> Option<&Path> {
        self.steps.iter().find_map(|step| match step {
            Step::Loop { device, .. } => Some(device.as_path()),
            _ => None,
        })
    }

    /// Undoes all steps, the file system first. Retries for a few seconds while it is in use, then fails with
    /// [`Kind::Busy`] or the tool's message; it can be called again to continue. Does nothing when all is undone.
    pub fn unmount(&mut self) -> Result<()> {
        while let Some(step) = self.steps.last_mut() {
            down(step)?;
            self.steps.pop();
        }
        Ok(())
    }

    /// Undoes all steps even if it is in use, after a sync. The directory is free at once; later operations on files
    /// still open fail, and the kernel releases the loop device when the last of them is closed.
    pub fn abandon(mut self) -> Result<()> {
        // What cannot be synced now could not be synced later either.
        let _ = std::fs::File::open(&self.target).map(rustix::fs::syncfs);
        self.let_go()
    }

    /// Detaches all layers. The kernel releases each of them with its last user.
    fn let_go(&mut self) -> Result<()> {
        let mut gone = Ok(());
        for step in self.steps.drain(..).rev() {
            gone = gone.and(match step {
                Step::FileSystem(target) => run("umount", &["--lazy".as_ref(), target.as_os_str()]).map(drop),
                // A loop device in use is detached when it no longer is.
                Step::Loop { device, file } => detach(&device, &file).or(Ok(())),
                Step::MadeDirectory(path) => std::fs::remove_dir(path).or(Ok(())),
                Step::File(mount) => mount.abandon(),
            });
        }
        gone
    }

    fn go_up(
        &mut self,
        device: Arc<dyn BlockDevice>,
        options: &MountOptions,
        (read_only, make): (bool, bool),
        stop: &Stop,
    ) -> Result<()> {
        let running = || match stop.is_stopped() {
            true => Err(Error::new(Kind::Busy, "told to stop before it was mounted")),
            false => Ok(()),
        };
        running()?;
        self.make_target()?; // first, so that a mistyped name does not cost a mkfs
        let file = options.file.clone().unwrap_or_else(fresh_file);
        let fuse_options = FuseOptions { read_only, threads: options.threads, allow_other: false };
        let trims = device.info().trims;
        let file = fuse::mount(device, &file, &fuse_options)?;
        let path = file.path().to_path_buf();
        self.steps.push(Step::File(file));
        running()?;
        let loop_device = attach(&path, read_only)?;
        self.steps.push(Step::Loop { device: loop_device.clone(), file: path });
        running()?;
        if make {
            make_file_system(&loop_device, trims, options)?;
            running()?;
        }
        mount_file_system(&loop_device, &self.target, options, read_only)?;
        self.steps.push(Step::FileSystem(self.target.clone()));
        Ok(())
    }

    fn make_target(&mut self) -> Result<()> {
        match std::fs::create_dir(&self.target) {
            Ok(()) => self.steps.push(Step::MadeDirectory(self.target.clone())),
            Err(_) if self.target.is_dir() => {}
            Err(e) => return Err(Error::io(format!("make the directory {}", self.target.display()), e)),
        }
        // The mount table has no symbolic links.
        let real = self.target.canonicalize();
        self.target = real.map_err(|e| Error::io(format!("open {}", self.target.display()), e))?;
        Ok(())
    }
}

impl Drop for DiskMount {
    fn drop(&mut self) {
        if self.unmount().is_err() {
            let _ = self.let_go(); // nobody is left to be told
        }
    }
}

fn check(options: &MountOptions) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::new(Kind::Unsupported, "mounting through a loop device needs root"));
    }
    if options.options.split(',').any(|o| matches!(o, "bind" | "rbind" | "move" | "remount" | "loop")) {
        return Err(Error::invalid(format!("'{}' is not for mounting a disk of ours", options.options)));
    }
    Ok(())
}

/// True if no sector of the device holds data.
pub fn is_blank(device: &dyn BlockDevice) -> Result<bool> {
    let end = device.info().sectors;
    let mut at = 0;
    while at < end {
        let (kind, alike) = device.allocation(Lba(at), end - at)?;
        if kind == Allocation::Data {
            return Ok(false);
        }
        at += alike.max(1);
    }
    Ok(true)
}

/// Directory of the files that are created to mount over.
const RUN: &str = "/run";

/// [`remains::clear_files`] relies on the form of this name.
fn fresh_file() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    Path::new(RUN).join(format!("vellum-{}-{count}.disk", std::process::id()))
}

fn attach(file: &Path, read_only: bool) -> Result<PathBuf> {
    let mut args = vec!["--find", "--show", "--direct-io=on", "--sector-size", "4096"];
    if read_only {
        args.push("--read-only");
    }
    let mut args: Vec<_> = args.into_iter().map(AsRef::as_ref).collect();
    args.push(file.as_os_str());
    let said = run("losetup", &args).map_err(|e| e.context("attach a loop device"))?;
    let device = PathBuf::from(said.trim());
    if !device.starts_with("/dev") {
        return Err(Error::new(Kind::Io, format!("losetup named no device but '{}'", said.trim())));
    }
    Ok(device)
}

/// Makes a file system. `mkfs` may trim the device first if that is cheap and there is something to trim.
fn make_file_system(device: &Path, trims: bool, options: &MountOptions) -> Result<()> {
    let (fs, overwrites) = (options.file_system, options.make == Make::Always);
    let own = fs.make_args(overwrites, trims && overwrites);
    let asked = options.make_args.iter().map(String::as_str);
    let mut args: Vec<_> = own.into_iter().chain(asked).map(AsRef::as_ref).collect();
    args.push(device.as_os_str());
    run(&format!("mkfs.{}", fs.name()), &args).map_err(|e| e.context("make a file system"))?;
    Ok(())
}

fn mount_file_system(device: &Path, target: &Path, options: &MountOptions, read_only: bool) -> Result<()> {
    let mode = if read_only { "ro" } else { "rw" };
    let list = match options.options.as_str() {
        "" => mode.to_string(),
        asked => format!("{mode},{asked}"),
    };
    let name = options.file_system.name();
    let mut args: Vec<_> = ["-t", name, "-o", &list, "--"].into_iter().map(AsRef::as_ref).collect();
    args.extend([device.as_os_str(), target.as_os_str()]);
    run("mount", &args).map_err(|e| e.context("mount the file system").because(reason::NOT_MOUNTED))?;
    Ok(())
}

fn down(step: &mut Step) -> Result<()> {
    match step {
        Step::FileSystem(target) => retry(|| match fuse::is_mounted(target)? {
            true => run("umount", &["--".as_ref(), target.as_os_str()]).map(drop),
            false => Ok(()), // somebody was quicker
        }),
        Step::Loop { device, file } => retry(|| detach(device, file)),
        Step::MadeDirectory(path) => match std::fs::remove_dir(&*path) {
            // Not empty: somebody has begun to use it, so it stays.
            Err(e) if e.kind() != std::io::ErrorKind::NotFound && path.read_dir().is_err() => {
                Err(Error::io(format!("remove the directory {}", path.display()), e))
            }
            _ => Ok(()),
        },
        Step::File(mount) => mount.unmount(),
    }
}

/// Detaches the loop device if it is still attached to `file`, and verifies that: `losetup` may defer it silently.
fn detach(device: &Path, file: &Path) -> Result<()> {
    let attached = || {
        let name = device.file_name().unwrap_or_default();
        let backing = std::fs::read(Path::new("/sys/block").join(name).join("loop/backing_file"));
        backing.is_ok_and(|b| b.trim_ascii_end() == file.as_os_str().as_bytes())
    };
    if attached() {
        run("losetup", &["-d".as_ref(), device.as_os_str()])
            .map_err(|e| e.context("detach the loop device"))?;
    }
    match attached() {
        true => Err(Error::new(Kind::Busy, format!("{} is in use and stays attached", device.display()))),
        false => Ok(()),
    }
}

fn retry(mut step: impl FnMut() -> Result<()>) -> Result<()> {
    for _ in 1..DOWN_TRIES {
        match step() {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == Kind::Unsupported => return Err(e), // the tool is missing, and will stay so
            Err(_) => pause(DOWN_PAUSE),
        }
    }
    step()
}

#[expect(clippy::disallowed_methods, reason = "waits for other processes, in real time")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
