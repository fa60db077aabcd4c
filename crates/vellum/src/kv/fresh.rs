//! What was at a path before it was opened, so that a failed opening leaves nothing.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};
use vellum_kv::{Directory, DirectoryOptions};

/// Previous state of a directory.
pub(crate) struct Fresh {
    path: PathBuf,
    /// `None` if it did not exist. If it could not be listed, nothing is known, and nothing undone.
    names: io::Result<Option<BTreeSet<OsString>>>,
    read_only: bool,
}

impl Fresh {
    /// Records the state of `path` before it is opened. An opening that only reads creates nothing.
    pub(crate) fn at(path: &Path, read_only: bool) -> Fresh {
        let listed =
            path.read_dir().and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
        let names = match listed {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            listed => listed.map(Some),
        };
        Fresh { path: path.to_path_buf(), names, read_only }
    }

    /// Removes what a failed opening has created: everything if there was nothing before, otherwise the lock. Another
    /// process may have opened it meanwhile: nothing is removed unless we get the lock and there is no store. What
    /// cannot be removed does no harm.
    pub(crate) fn undo(&self) {
        let Ok(names) = &self.names else { return };
        if self.read_only || !self.path.is_dir() {
            return;
        }
        let Ok(_held) = Directory::open(&self.path, DirectoryOptions::default()) else { return };
        if self.path.join(Directory::CURRENT).exists() {
            return;
        }
        let was_empty = names.as_ref().is_none_or(BTreeSet::is_empty);
        let had = |name: &OsString| names.as_ref().is_some_and(|names| names.contains(name));
        let entries = self.path.read_dir().into_iter().flatten().flatten();
        for name in entries.map(|entry| entry.file_name()).filter(|name| !had(name)) {
            let is_made = name == "LOCK" || was_empty && name.to_str().is_some_and(Directory::is_own_name);
            let _ = is_made.then(|| fs::remove_file(self.path.join(name)));
        }
        let _ = names.is_none().then(|| fs::remove_dir(&self.path));
    }
}
