//! A new version of an array's file before it takes effect: written and synced beside the file, so that there is room
//! to name what the array is changed to.
//!
//! 1. It is durable beside the file before anything else changes, and replaces it by a single rename; a crash leaves
//!    the old or the new version. Dropped before that, it leaves nothing.
//! 2. If the path is a symbolic link, its target is replaced. Mode and owner are kept.

use super::ArrayFile;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};
use vellum_base::{Error, Result};

/// See the module. Concurrent changes of the file wait.
pub struct Draft {
    named: ArrayFile,
    /// The file written to, and its path; removed if it has not taken effect.
    new: Option<(File, PathBuf)>,
    path: PathBuf,
    _alone: Option<File>,
}

impl Draft {
    /// Writes a new version beside the file.
    pub(super) fn write(named: ArrayFile, path: &Path, alone: Option<File>) -> Result<Draft> {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let new = PathBuf::from(name);
        let file = File::create(&new).map_err(|e| said(&path, e))?;
        let mut draft = Draft { named, new: Some((file, new)), path, _alone: alone };
        draft.keep_mode_and_owner().map_err(|e| said(&draft.path, e))?;
        draft.put()?;
        Ok(draft)
    }

    /// Its contents.
    pub fn named(&self) -> &ArrayFile {
        &self.named
    }

    /// Makes it the file.
    pub fn commit(mut self) -> Result<()> {
        let Some((_file, new)) = &self.new else { return Ok(()) };
        std::fs::rename(new, &self.path).map_err(|e| said(&self.path, e))?;
        self.new = None;
        let directory = self.path.parent().filter(|parent| *parent != Path::new(""));
        let synced =
            File::open(directory.unwrap_or(Path::new("."))).and_then(|directory| directory.sync_all());
        synced.map_err(|e| said(&self.path, e))
    }

    /// Makes it the file, with these contents.
    pub fn commit_as(mut self, named: ArrayFile) -> Result<()> {
        if named != self.named {
            self.named = named;
            self.put()?;
        }
        self.commit()
    }

    fn put(&mut self) -> Result<()> {
        let text = toml::to_string(&self.named).map_err(|e| Error::invalid(e.to_string()))?;
        let Some((file, _)) = &self.new else { return Ok(()) };
        let written = file
            .write_all_at(text.as_bytes(), 0)
            .and_then(|()| file.set_len(text.len() as u64))
            .and_then(|()| file.sync_all());
        written.map_err(|e| said(&self.path, e))
    }

    fn keep_mode_and_owner(&self) -> std::io::Result<()> {
        let (Some((file, _)), Ok(old)) = (&self.new, self.path.metadata()) else { return Ok(()) };
        let new = file.metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            fchown(file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(old.permissions())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some((_, new)) = &self.new {
            let _ = std::fs::remove_file(new);
        }
    }
}

fn said(path: &Path, e: std::io::Error) -> Error {
    Error::io(format!("write {}", path.display()), e)
}
