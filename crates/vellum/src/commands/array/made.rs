//! Files created by a command: if it fails they are removed, so that the same command can be run again.

use crate::failure::Failure;
use std::io;
use std::path::{Path, PathBuf};
use vellum::base::size::format_size;
use vellum::base::{Error, SECTOR_BYTES};
use vellum::media::FileDisk;

/// Removes the created files when it is dropped, unless they are kept.
#[derive(Default)]
pub struct Made(Vec<PathBuf>);

impl Made {
    /// Creates a file for a device. Existing files are never removed.
    pub fn device(&mut self, path: &Path, bytes: u64) -> Result<FileDisk, Failure> {
        if bytes < SECTOR_BYTES as u64 {
            let what =
                format!("{} would have {}, less than a sector of 4KiB", path.display(), format_size(bytes));
            return Err(Error::invalid(what).into());
        }
        let made = FileDisk::create(path, bytes).map_err(not_made)?;
        self.note(path);
        Ok(made)
    }

    /// Notes that this file was created.
    pub fn note(&mut self, path: &Path) {
        self.0.push(path.to_path_buf());
    }

    /// Whether this file was created.
    pub fn has(&self, path: &Path) -> bool {
        self.0.iter().any(|made| made == path)
    }

    /// Keeps what was created so far, since it is in use.
    pub fn keep(&mut self) {
        self.0.clear();
    }
}

/// Failure to create a file.
fn not_made(error: Error) -> Failure {
    let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<io::Error>());
    match cause.map(io::Error::kind) {
        Some(io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput) => Failure::with_next(
            error,
            "no file can be as large there: give a smaller size (--size; of a cache with `create`, --cache-size)",
        ),
        _ => error.into(),
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}
