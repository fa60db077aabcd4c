//! Messages about mounts that fail, and unmounting while in use.

use crate::doors::Served;
use crate::failure::Failure;
use crate::ui::Ui;
use std::path::Path;
use std::time::Duration;
use vellum::base::{BlockDevice, Error, Kind, Lba, Result, SECTOR_BYTES};
use vellum::disk::discover::{self, FsKind, Sectors};
use vellum::serve::Stop;
use vellum::serve::fuse::{FuseMount, wait_until_gone};
use vellum::serve::mount::{DiskMount, FileSystem, is_blank};
use vellum::serve::reason::NOT_MOUNTED;

/// Pause between attempts to unmount.
const PAUSE: Duration = Duration::from_millis(500);
/// Users beyond this number are only counted.
const USERS_NAMED_MAX: usize = 5;

/// A mount of either kind.
pub trait Mounted {
    /// Unmounts it; [`Kind::Busy`] if it is in use for longer than a few seconds.
    fn unmount(&mut self) -> Result<()>;
    /// Takes it away from its users.
    fn abandon(self) -> Result<()>;
}

impl Mounted for FuseMount {
    fn unmount(&mut self) -> Result<()> {
        FuseMount::unmount(self)
    }
    fn abandon(self) -> Result<()> {
        FuseMount::abandon(self)
    }
}

impl Mounted for DiskMount {
    fn unmount(&mut self) -> Result<()> {
        DiskMount::unmount(self)
    }
    fn abandon(self) -> Result<()> {
        DiskMount::abandon(self)
    }
}

/// Holds a mount until the first signal, or until it is unmounted by hand.
pub fn hold(mut mounted: impl Mounted, at: &Path, stop: &Stop, ui: &Ui) -> Result<(), Failure> {
    if wait_until_gone(at, stop)? {
        ui.remark(format!("{} was unmounted", at.display()));
        return match mounted.unmount() {
            // Detached (`umount --lazy`), but still in use.
            Err(e) if e.kind() == Kind::Busy => take_down(mounted, at, stop, ui),
            other => Ok(other?),
        };
    }
    take_down(mounted, at, stop, ui)
}

/// Unmounts after the first signal. While it is in use this waits, and names the users; the second signal takes it away
/// from them.
fn take_down(mut mounted: impl Mounted, at: &Path, stop: &Stop, ui: &Ui) -> Result<(), Failure> {
    let again = stop.again()?;
    let mut told = users(at);
    ui.remark(match told.is_empty() {
        true => format!("unmounting {}", at.display()),
        false => waiting(at, &told),
    });
    loop {
        match mounted.unmount() {
            Err(e) if e.kind() == Kind::Busy => {
                if again.wait(Some(PAUSE)) {
                    ui.remark(format!(
                        "taking {} away from whoever uses it: what they wrote is kept, what they do now fails",
                        at.display()
                    ));
                    return Ok(mounted.abandon()?);
                }
                let now = if users(at).is_empty() { e.to_string() } else { users(at) };
                if now != told {
                    ui.remark(waiting(at, &now));
                    told = now;
                }
            }
            other => return Ok(other?),
        }
    }
}

fn waiting(at: &Path, for_whom: &str) -> String {
    format!(
        "unmounting {}: waiting for {for_whom}; a second Ctrl-C takes it away from them, a third kills",
        at.display()
    )
}

/// Processes with current directory or open files below `at`, as far as permitted: `bash (4711), vi (4712)`.
fn users(at: &Path) -> String {
    let Ok(processes) = std::fs::read_dir("/proc") else { return String::new() };
    let ours = std::process::id().to_string();
    let names = processes.flatten().filter_map(|process| {
        let (dir, id) = (process.path(), process.file_name().into_string().ok()?);
        let open = dir.join("fd").read_dir().into_iter().flatten().flatten().map(|file| file.path());
        let mut places = open.chain(["cwd", "root", "exe"].map(|name| dir.join(name)));
        let uses = places.any(|place| std::fs::read_link(place).is_ok_and(|to| to.starts_with(at)));
        let name = || std::fs::read_to_string(dir.join("comm")).unwrap_or_default();
        (uses && id != ours).then(|| format!("{} ({id})", name().trim()))
    });
    let names: Vec<_> = names.collect();
    match names.len().checked_sub(USERS_NAMED_MAX) {
        Some(more @ 1..) => format!("{} and {more} more", names[..USERS_NAMED_MAX].join(", ")),
        _ => names.join(", "),
    }
}

/// Refuses to mount without permission, before anything is opened or created. `what` is `disk` or `array`.
pub fn check_root(what: &str) -> Result<(), Failure> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err(Failure::with_next(
            Error::new(Kind::Unsupported, format!("mounting a file system on the {what} needs root")),
            format!(
                "run it with sudo; without root, serve the {what}: vellum {what} serve FILE --nbd unix:/tmp/v.sock"
            ),
        )),
    }
}

/// Advice for a failed mount.
pub fn advise(
    error: Error,
    device: &dyn BlockDevice,
    asked: FileSystem,
    served: &Served,
    dir: &Path,
) -> Failure {
    match error.is_because(NOT_MOUNTED) {
        true => Failure::with_next(error, other_ways(device, asked, served, dir)),
        false => error.into(),
    }
}

/// What is on the device, and other ways to access it.
fn other_ways(device: &dyn BlockDevice, asked: FileSystem, served: &Served, dir: &Path) -> String {
    let Served { what, name } = served;
    let destroys = format!("--format would make a new one and DESTROY all that is on the {what}");
    let serve = format!("vellum {what} serve {name} --fuse FILE");
    let found = discover::discover(&mut Reading(device)).file_systems;
    let kind = |fs: &discover::FileSystem| fs.kind.name();
    let Some(whole) = found.iter().find(|fs| fs.partition.is_none()) else {
        let partitions: Vec<_> = found.iter().map(kind).collect();
        return format!(
            "the {what} has partitions ({}): {serve}, then losetup --partscan FILE, and mount one of them; {destroys}",
            partitions.join(", ")
        );
    };
    let mountable = match whole.kind {
        FsKind::Ext2 | FsKind::Ext4 => Some(FileSystem::Ext4),
        FsKind::Ext3 => Some(FileSystem::Ext3),
        FsKind::Xfs => Some(FileSystem::Xfs),
        _ => None,
    };
    match (mountable, whole.kind) {
        (Some(fs), _) if fs == asked || (fs, asked) == (FileSystem::Ext3, FileSystem::Ext4) => format!(
            "the {what} does hold {}: look at the mount options; if it is damaged, check it: {serve}, then fsck.{} FILE; {destroys}",
            kind(whole),
            kind(whole)
        ),
        (Some(fs), _) => format!(
            "the {what} holds {}: vellum {what} mount {name} {} --fs {} mounts it; {destroys}",
            kind(whole),
            dir.display(),
            fs.name()
        ),
        (None, FsKind::Blank) if is_blank(device).unwrap_or(false) => format!(
            "the {what} is blank: vellum {what} mount {name} {} without --read-only makes a file system on it",
            dir.display()
        ),
        (None, FsKind::Blank) => format!(
            "no file system is on the {what} that we know; whether anything else is cannot be told. If it is new: vellum \
             {what} mount {name} {} --fs {} --format; if not, look at it first: {serve}; {destroys}",
            dir.display(),
            asked.name()
        ),
        (None, FsKind::Unknown) => format!(
            "there is data on the {what}, but no file system that we know; look at it: {serve}; {destroys}"
        ),
        (None, _) => {
            format!("the {what} holds {}, which is mounted by hand: {serve}; {destroys}", kind(whole))
        }
    }
}

struct Reading<'a>(&'a dyn BlockDevice);

impl Sectors for Reading<'_> {
    fn read(&mut self, lba: Lba, out: &mut [u8; SECTOR_BYTES]) -> Result<()> {
        self.0.read(lba, out)
    }
    fn sectors(&self) -> u64 {
        self.0.info().sectors
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum::media::FileDisk;

    /// For devices that do not report allocation, it claims neither that there is data nor that nothing would be lost.
    #[test]
    fn what_may_be_a_new_array_is_not_said_to_hold_data() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        let (served, dir) = (Served { what: "array", name: "a.toml" }, Path::new("mnt"));
        let next = other_ways(&FileDisk::open(&path).unwrap(), FileSystem::Ext4, &served, dir);
        assert!(!next.contains("there is data"), "{next}");
        assert!(next.contains("If it is new: vellum array mount a.toml mnt --fs ext4 --format"), "{next}");
        assert!(next.contains("DESTROY"), "{next}");
        std::fs::write(&path, vec![5; 1 << 20]).unwrap();
        let next = other_ways(&FileDisk::open(&path).unwrap(), FileSystem::Ext4, &served, dir);
        assert!(next.contains("there is data"), "{next}");
    }
}
