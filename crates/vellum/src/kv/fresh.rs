//! What was at a path before it was opened, so that an opening that comes to nothing leaves nothing.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use vellum_kv::{Directory, DirectoryOptions};

/// A directory as it was.
pub(crate) struct Fresh {
    path: PathBuf,
    /// `None` if it was not there.
    names: Option<BTreeSet<OsString>>,
    read_only: bool,
}

impl Fresh {
    /// Looks at `path`, before an opening that may be one that only reads: that makes nothing.
    pub(crate) fn at(path: &Path, read_only: bool) -> Fresh {
        let names = path.read_dir().map(|entries| entries.flatten().map(|entry| entry.file_name()).collect());
        Fresh { path: path.to_path_buf(), names: names.ok(), read_only }
    }

    /// Removes what an opening that failed has made: all where there was nothing, else the lock. Another process may
    /// have come meanwhile: nothing is removed unless the lock is ours and there is no store. What cannot be removed
    /// harms nobody.
    pub(crate) fn undo(&self) {
        if self.read_only || !self.path.is_dir() {
            return;
        }
        let Ok(_held) = Directory::open(&self.path, DirectoryOptions::default()) else { return };
        if self.path.join("CURRENT").exists() {
            return;
        }
        let was_empty = self.names.as_ref().is_none_or(BTreeSet::is_empty);
        let had = |name: &OsString| self.names.as_ref().is_some_and(|names| names.contains(name));
        let entries = self.path.read_dir().into_iter().flatten().flatten();
        for name in entries.map(|entry| entry.file_name()).filter(|name| !had(name)) {
            let is_made = name == "LOCK" || was_empty && name.to_str().is_some_and(Directory::is_own_name);
            let _ = is_made.then(|| fs::remove_file(self.path.join(name)));
        }
        let _ = self.names.is_none().then(|| fs::remove_dir(&self.path));
    }
}
