//! A file that is there under its name when it is whole, and not before: who replaces the dump of yesterday has that
//! until today's is safe.

use crate::commands::disk::create_file;
use crate::failure::Failure;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// See the module. Nothing is left of one that is dropped before it is finished.
pub struct WholeFile {
    file: File,
    /// What it is called while it is written, and will be. None of a pipe or a device, which is written as it is.
    names: Option<(PathBuf, PathBuf)>,
    /// One that came to be there meanwhile is replaced, too.
    replaces: bool,
}

impl WholeFile {
    /// Begins a file at `path`, that its owner alone can read. An old one is kept unless it is to be replaced.
    pub fn begin(path: &Path, force: bool) -> Result<WholeFile, Failure> {
        let is_there = path.symlink_metadata().is_ok();
        if is_there && (!force || !path.is_file()) {
            return Ok(WholeFile { file: create_file(path, force)?, names: None, replaces: force });
        }
        // What a link leads to is replaced, not the link.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let part = path.with_file_name(format!(".vellum-{}.part", std::process::id()));
        match create_file(&part, true) {
            Ok(file) => Ok(WholeFile { file, names: Some((part, path)), replaces: force }),
            // The file may be written to, and its directory not.
            Err(_) if is_there => {
                Ok(WholeFile { file: create_file(&path, force)?, names: None, replaces: force })
            }
            Err(failure) => Err(failure),
        }
    }

    /// To write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes it safe, and gives it its name.
    pub fn finish(mut self) -> io::Result<()> {
        let Some((part, path)) = &self.names else {
            return if self.file.metadata()?.is_file() { self.file.sync_all() } else { Ok(()) };
        };
        self.file.sync_all()?;
        match std::fs::hard_link(part, path) {
            Ok(()) => std::fs::remove_file(part)?,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && !self.replaces => return Err(e),
            // It is there, or there are no links.
            Err(_) => std::fs::rename(part, path)?,
        }
        let place = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(place.unwrap_or(Path::new(".")))?.sync_all()?;
        self.names = None;
        Ok(())
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some((part, _)) = &self.names {
            // If this fails it stays, and is in nobody's way.
            let _ = std::fs::remove_file(part);
        }
    }
}
