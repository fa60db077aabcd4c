//! A file that appears under its name only when it is complete: replacing yesterday's dump keeps that until today's is
//! durable.
//!
//! Until then it has no name, so that nothing is left of it however its process ends; on file systems without unnamed
//! files (NFS, some of FUSE) its name begins with a dot.

use crate::commands::disk::create_file;
use crate::failure::Failure;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

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
    /// Begins a file at `path` that only its owner can read. An existing one is kept unless `force`d.
    pub fn begin(path: &Path, force: bool) -> Result<WholeFile, Failure> {
        let is_there = path.symlink_metadata().is_ok();
        if is_there && (!force || !path.is_file()) {
            return Ok(WholeFile { file: create_file(path, force)?, place: None });
        }
        // The target of a link is replaced, not the link.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let part = path.with_file_name(format!(".vellum-{}.part", std::process::id()));
        let mut place = Place { path, part, has_name: false, replaces: force };
        if let Ok(file) = place.unnamed() {
            return Ok(WholeFile { file, place: Some(place) });
        }
        place.has_name = true;
        match create_file(&place.part, true) {
            Ok(file) => Ok(WholeFile { file, place: Some(place) }),
            // The file may be writable while its directory is not.
            Err(_) if is_there => Ok(WholeFile { file: create_file(&place.path, force)?, place: None }),
            Err(failure) => Err(failure),
        }
    }

    /// The file to write to.
    pub fn file(&self) -> &File {
        &self.file
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

impl Place {
    fn directory(&self) -> &Path {
        let place = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        place.unwrap_or(Path::new("."))
    }

    fn unnamed(&self) -> io::Result<File> {
        // Needed to give it its name.
        Path::new(OPENED).metadata()?;
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        Ok(File::from(open(self.directory(), flags, Mode::RUSR | Mode::WUSR)?))
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
                    let _ = std::fs::remove_file(&self.part); // of a process with the same id
                    self.link(file, &self.part)?;
                    self.has_name = true;
                }
                std::fs::rename(&self.part, &self.path)?;
            }
        }
        self.has_name = false;
        Ok(())
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
