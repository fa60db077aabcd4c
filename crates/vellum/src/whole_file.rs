//! A file that appears under its name only when it is complete: replacing yesterday's dump keeps that until today's is
//! durable.
//!
//! Until then it has no name, so that nothing is left of it however its process ends; on file systems without unnamed
//! files (NFS, some of FUSE) its name begins with a dot.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, linkat, open, renameat_with};
use rustix::io::Errno;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use vellum_base::{Env, Error, RealEnv, Result};

/// Permissions of a file that only its owner can read.
pub const OWNER_ONLY: u32 = 0o600;
/// Permissions of other files; the umask takes away from them.
pub const ORDINARY: u32 = 0o666;

/// Open files of this process, by descriptor.
const OPENED: &str = "/proc/self/fd";

/// See the module. If it is dropped before it is finished, nothing is left of it.
pub struct WholeFile {
    file: File,
    /// None for a pipe or a device, which is written to directly.
    place: Option<Place>,
}

/// Final location of a file.
struct Place {
    path: PathBuf,
    /// Temporary name, in the same directory.
    part: PathBuf,
    has_name: bool,
    /// A file that appeared there in the meantime is replaced as well.
    replaces: bool,
}

impl WholeFile {
    /// Begins a file at `path` with these permissions. An existing one is kept unless `force`d. Where that is a pipe or
    /// a device, or its directory takes no other file, it is written to directly.
    pub fn begin(path: &Path, force: bool, mode: u32) -> Result<WholeFile> {
        let in_place = || Ok(WholeFile { file: create_file(path, force, mode)?, place: None });
        let is_there = path.symlink_metadata().is_ok();
        if is_there && (!force || !path.is_file()) {
            return in_place();
        }
        WholeFile::beside(path, force, mode).or_else(|error| if is_there { in_place() } else { Err(error) })
    }

    /// The same, but what is there is never written to.
    pub fn beside(path: &Path, force: bool, mode: u32) -> Result<WholeFile> {
        match path.symlink_metadata().is_ok() {
            true if !force => return Err(Error::invalid(format!("{} exists already", path.display()))),
            true if !path.is_file() => {
                let what = format!("{} is not a regular file, so it is not replaced", path.display());
                return Err(Error::invalid(what));
            }
            _ => {}
        }
        // The target of a link is replaced, not the link.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        // Others who write there may have the same process number, in another container.
        let part = format!(".vellum-{}-{:08x}.part", std::process::id(), RealEnv::new().random() as u32);
        let part = path.with_file_name(part);
        let mut place = Place { path, part, has_name: false, replaces: force };
        if let Ok(file) = place.unnamed(mode) {
            return Ok(WholeFile { file, place: Some(place) });
        }
        match OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(&place.part) {
            Ok(file) => {
                place.has_name = true;
                Ok(WholeFile { file, place: Some(place) })
            }
            Err(e) => Err(Error::io(format!("create {}", place.path.display()), e)),
        }
    }

    /// The file to write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The same file once more, with the same locks.
    pub fn again(&self) -> Result<File> {
        self.file.try_clone().map_err(|e| Error::io("open it once more", e))
    }

    /// Makes it durable, and gives it its name.
    pub fn finish(mut self) -> io::Result<()> {
        match &mut self.place {
            Some(place) => {
                self.file.sync_all()?;
                place.name(&self.file)?;
                File::open(place.directory())?.sync_all()
            }
            None if self.file.metadata()?.is_file() => self.file.sync_all(),
            None => Ok(()),
        }
    }
}

/// Creates a file with these permissions, directly under its name. An existing one is kept unless `force`d.
pub fn create_file(path: &Path, force: bool, mode: u32) -> Result<File> {
    let name = path.display();
    let mut how = OpenOptions::new();
    how.write(true).create_new(!force).create(force).truncate(false).mode(mode);
    let file = how.open(path).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => Error::invalid(format!("{name} exists already")),
        _ => Error::io(format!("create {name}"), e),
    })?;
    empty(&file, mode).map_err(|e| Error::io(format!("replace {name}"), e))?;
    Ok(file)
}

/// Truncates an existing file, and first removes others' permission to read what will be written. A pipe or a terminal
/// is left unchanged.
fn empty(file: &File, mode: u32) -> io::Result<()> {
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Ok(());
    }
    if meta.mode() & 0o077 & !mode != 0 {
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    file.set_len(0)
}

impl Place {
    fn directory(&self) -> &Path {
        let place = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        place.unwrap_or(Path::new("."))
    }

    fn unnamed(&self, mode: u32) -> io::Result<File> {
        // Needed to give it its name.
        Path::new(OPENED).metadata()?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        Ok(File::from(open(self.directory(), flags, Mode::from_raw_mode(mode))?))
    }

    /// Gives a file its final name, and removes the temporary one.
    fn name(&mut self, file: &File) -> io::Result<()> {
        match self.link(file, &self.path) {
            Ok(()) if self.has_name => std::fs::remove_file(&self.part)?,
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && !self.replaces => return Err(e),
            // The name exists, or links are not supported.
            Err(_) => {
                if !self.has_name {
                    self.link(file, &self.part)?;
                    self.has_name = true;
                }
                match self.replaces {
                    true => std::fs::rename(&self.part, &self.path)?,
                    false => self.rename_to_new()?,
                }
            }
        }
        self.has_name = false;
        Ok(())
    }

    /// An error if the name exists.
    fn rename_to_new(&self) -> io::Result<()> {
        match renameat_with(CWD, &self.part, CWD, &self.path, RenameFlags::NOREPLACE) {
            // Where that is not supported the name is taken first, so that nobody else's file is replaced.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                OpenOptions::new().write(true).create_new(true).open(&self.path)?;
                std::fs::rename(&self.part, &self.path).inspect_err(|_| {
                    let _ = std::fs::remove_file(&self.path);
                })
            }
            renamed => Ok(renamed?),
        }
    }

    fn link(&self, file: &File, path: &Path) -> io::Result<()> {
        if self.has_name {
            return std::fs::hard_link(&self.part, path);
        }
        let opened = format!("{OPENED}/{}", file.as_raw_fd());
        Ok(linkat(CWD, opened, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.has_name {
            // If this fails the file stays, which does no harm.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As on a file system without unnamed files.
    fn place(dir: &Path, replaces: bool) -> Place {
        let place = Place { path: dir.join("whole"), part: dir.join(".part"), has_name: true, replaces };
        std::fs::write(&place.part, "new").unwrap();
        place
    }

    #[test]
    fn what_appeared_meanwhile_is_replaced_only_if_it_may_be() {
        let dir = tempfile::tempdir().unwrap();
        place(dir.path(), false).rename_to_new().unwrap();
        let path = dir.path().join("whole");
        std::fs::write(&path, "of somebody else").unwrap();
        let error = place(dir.path(), false).rename_to_new().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"of somebody else");
        let mut place = place(dir.path(), true);
        let file = File::open(&place.part).unwrap();
        place.name(&file).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert!(!place.part.exists());
    }
}
