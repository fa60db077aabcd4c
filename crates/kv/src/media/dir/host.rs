//! A directory of the host.
//!
//! Invariants
//! 1. It is the directory that was opened, whatever becomes of its name or of the process's own directory: names are
//!    looked up in the one that is open.
//! 2. Only who holds the exclusive lock writes.

use super::files::{Files, Handle, Memory};
use super::host_file::{HostFile, unsure};
use super::mapping::HostMemory;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, fstatfs, linkat, openat, renameat, statat, unlinkat};
use rustix::io::{Errno, retry_on_intr};
use std::fs::{File, TryLockError};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_base::{Error, Kind, Result, Syncing};

/// Locked while a store is open.
pub(super) const LOCK: &str = "LOCK";
/// Made to try whether the file system clones.
pub(super) const CLONES: [&str; 2] = ["CLONE.from", "CLONE.to"];
/// Attempts at taking the lock: the file may be removed between opening and locking it.
const LOCK_TRIES: usize = 1000;
/// File systems, by what `statfs` calls them, that number a directory once for all: ext2 to ext4, XFS, btrfs, F2FS,
/// ZFS, NFS, tmpfs. Others make numbers up, some with each mount.
const NUMBERING: [u64; 7] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x2FC1_2FC1, 0x6969, 0x0102_1994];

/// A directory of the host, locked against other stores.
pub(crate) struct HostFiles {
    /// As it was given, for messages.
    path: PathBuf,
    directory: File,
    /// Of names: of logs, tables and notes alike.
    syncing: Syncing,
    lock: Lock,
}

/// Held for as long as the store is open.
enum Lock {
    Exclusive(File),
    Shared(File),
    None,
}

impl Drop for HostFiles {
    fn drop(&mut self) {
        // A process that was forked meanwhile has the file open, too, until it begins another program: closing would
        // not be enough.
        if let Lock::Exclusive(file) | Lock::Shared(file) = &self.lock {
            let _ = file.unlock();
        }
    }
}

impl HostFiles {
    /// Opens `path`, which is made if it is not there.
    pub(crate) fn open(path: &Path) -> Result<HostFiles> {
        make_directory(path).map_err(|e| Error::io(format!("create {}", path.display()), e))?;
        let mut files = HostFiles::unlocked(path)?;
        let lock = files.named_lock(OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND, File::try_lock)?;
        files.lock = Lock::Exclusive(lock);
        Ok(files)
    }

    /// Opens `path` for reading, beside other readers.
    pub(crate) fn open_read_only(path: &Path) -> Result<HostFiles> {
        let mut files = HostFiles::unlocked(path)?;
        match files.named_lock(OFlags::RDONLY, File::try_lock_shared) {
            Ok(lock) => files.lock = Lock::Shared(lock),
            // Nobody has ever opened it to write.
            Err(_) if statat(&files.directory, LOCK, AtFlags::empty()).is_err() => {}
            Err(error) => return Err(error),
        }
        Ok(files)
    }

    /// Opens `path` to look at it, though others may write.
    pub(crate) fn unlocked(path: &Path) -> Result<HostFiles> {
        let directory = File::open(path).map_err(|e| Error::io(format!("open {}", path.display()), e))?;
        Ok(HostFiles { path: path.to_path_buf(), directory, syncing: Syncing::default(), lock: Lock::None })
    }

    fn open_at(&self, name: &str, flags: OFlags) -> std::io::Result<File> {
        let mode = Mode::from_raw_mode(0o666);
        let opened = retry_on_intr(|| openat(&self.directory, name, flags | OFlags::CLOEXEC, mode));
        Ok(File::from(opened?))
    }

    /// The same of a file that is to be written to.
    fn open_to_write(&self, name: &str, flags: OFlags) -> Result<Arc<dyn Handle>> {
        self.check_writable()?;
        self.handle(name, OFlags::RDWR | flags)
    }

    fn handle(&self, name: &str, flags: OFlags) -> Result<Arc<dyn Handle>> {
        Ok(Arc::new(self.file(name, flags)?))
    }

    fn file(&self, name: &str, flags: OFlags) -> Result<HostFile> {
        let path = self.path.join(name);
        match self.open_at(name, flags) {
            Ok(file) => Ok(HostFile::new(file, path)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                Err(Error::corrupt(format!("{} is missing", path.display())))
            }
            Err(e) => Err(not_opened("open", &path, e)),
        }
    }
}

/// Too many open files are as if there were no room: nothing has changed, and there is more when something is closed.
fn not_opened(what: &str, path: &Path, error: std::io::Error) -> Error {
    match Errno::from_io_error(&error) {
        Some(Errno::MFILE | Errno::NFILE) => {
            let what = format!("{what} {}: {error}: raise the limit (ulimit -n)", path.display());
            Error::new(Kind::NoSpace, what)
        }
        _ => Error::io(format!("{what} {}", path.display()), error),
    }
}

/// Makes what is not there of a path; the names are safe then.
fn make_directory(path: &Path) -> std::io::Result<()> {
    let missing = path.ancestors().take_while(|part| !part.as_os_str().is_empty() && !part.exists());
    let missing: Vec<&Path> = missing.collect();
    std::fs::create_dir_all(path)?;
    missing.into_iter().rev().try_for_each(|made| {
        let parent = made.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    })
}

fn locked(path: &Path, result: Result<(), TryLockError>) -> Result<()> {
    match result {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let what = "is open in another process, or in this one, by a store or what came of it";
            Err(Error::new(Kind::Busy, format!("{} {what}", path.display())))
        }
        Err(TryLockError::Error(e)) => Err(Error::io(format!("lock {}", path.display()), e)),
    }
}

impl HostFiles {
    /// The lock of the directory, locked. An opener that failed may have removed the name meanwhile: then others do not
    /// see this lock, and it is opened again.
    fn named_lock(&self, flags: OFlags, lock: impl Fn(&File) -> Result<(), TryLockError>) -> Result<File> {
        let failure = |e| Error::io(format!("lock {}", self.path.display()), e);
        for _ in 0..LOCK_TRIES {
            let file = self.open_at(LOCK, flags).map_err(failure)?;
            locked(&self.path, lock(&file))?;
            match statat(&self.directory, LOCK, AtFlags::empty()) {
                Ok(named) if named.st_ino == file.metadata().map_err(failure)?.ino() => return Ok(file),
                Err(e) if e != Errno::NOENT => return Err(failure(e.into())),
                _ => {}
            }
        }
        let what = format!("{}: others make and remove its lock", self.path.display());
        Err(Error::new(Kind::Busy, what))
    }

    /// Clones the first unit of a file, which is made for that if none is named, into another. It has more than one:
    /// a whole file can be cloned where the blocks of the file system are larger than a unit, and a part cannot.
    fn try_clone(&self, [from, to]: [&str; 2], source: Option<&str>, unit_bytes: u64) -> Result<bool> {
        self.remove(from)?;
        self.remove(to)?;
        let source = match source {
            Some(name) => self.open(name)?,
            None => {
                let made = self.create(from)?;
                made.write(0, &vec![1; 2 * unit_bytes as usize])?;
                made
            }
        };
        match self.create(to)?.clone_range(0, &*source, 0, unit_bytes) {
            Err(e) if e.kind() == Kind::Unsupported => Ok(false),
            tried => tried,
        }
    }
}

impl Files for HostFiles {
    fn check_writable(&self) -> Result<()> {
        match self.lock {
            Lock::Exclusive(_) => Ok(()),
            _ => {
                let what = "was opened to read: open the store with `read_only`, or the directory to write";
                Err(Error::invalid(format!("{} {what}", self.path.display())))
            }
        }
    }

    fn names(&self) -> Result<Vec<String>> {
        let failure = |e: Errno| not_opened("list", &self.path, e.into());
        let entries = Dir::read_from(&self.directory).map_err(failure)?;
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry.map_err(failure)?.file_name().to_str().map(String::from));
        }
        names.retain(|name| ![".", ".."].contains(&name.as_str()));
        names.sort();
        Ok(names)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Handle>> {
        self.open_to_write(name, OFlags::CREATE | OFlags::EXCL)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Handle>> {
        let file = self.file(name, OFlags::RDONLY)?;
        file.read_at_random();
        Ok(Arc::new(file))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        match unlinkat(&self.directory, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            // A lack of room would be read as: nothing has changed, and there is room when something is removed.
            Err(e) => Err(Error::new(Kind::Io, format!("remove {name}: {e}"))),
            Ok(()) => Ok(()),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.check_writable()?;
        let result = renameat(&self.directory, from, &self.directory, to);
        result.map_err(|e| Error::io(format!("rename {from} to {to}"), e.into()))
    }

    fn cut(&self, name: &str, bytes: u64) -> Result<()> {
        let failure = |e| Error::io(format!("cut {name}"), e);
        self.check_writable()?;
        let file = self.open_at(name, OFlags::WRONLY).map_err(failure)?;
        if file.metadata().map_err(failure)?.len() >= bytes {
            file.set_len(bytes).map_err(failure)?;
        }
        Ok(())
    }

    fn write(&self, name: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        self.open_to_write(name, OFlags::empty())?.write(offset, bytes)
    }

    fn memory(&self, name: &str, bytes: usize) -> Option<Box<dyn Memory>> {
        self.check_writable().ok()?;
        let file = self.open_at(name, OFlags::RDWR | OFlags::CREATE).ok()?;
        HostMemory::of(&file, bytes).map(|memory| Box::new(memory) as Box<dyn Memory>)
    }

    fn room_bytes(&self) -> Option<u64> {
        let stat = rustix::fs::fstatvfs(&self.directory).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn clones(&self, source: Option<&str>, unit_bytes: u64) -> Result<bool> {
        let tried = self.try_clone(CLONES, source, unit_bytes);
        CLONES.iter().try_for_each(|name| self.remove(name))?;
        tried
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        // Its name in the directory that is open. Where the system shows no such paths, nothing can be linked.
        Some(PathBuf::from(format!("/proc/self/fd/{}/{name}", self.directory.as_raw_fd())))
    }

    fn link(&self, from: &Path, name: &str) -> Result<bool> {
        // Another file system, or one without links: the table is copied.
        self.check_writable()?;
        Ok(linkat(CWD, from, &self.directory, name, AtFlags::empty()).is_ok())
    }

    fn number(&self) -> Option<u64> {
        let kind = fstatfs(&self.directory).ok()?.f_type as u64;
        NUMBERING.contains(&kind).then_some(self.directory.metadata().ok()?.ino())
    }

    fn sync_names(&self) -> Result<()> {
        self.syncing.run(|| self.directory.sync_all().map_err(|e| unsure(&self.path, &e)))
    }
}
