//! What is not in the figures, and why.

use serde::Serialize;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use vellum_base::sync::Mutex;

/// Number of unreadable files that are named; further ones are only counted.
pub const NAMED: usize = 1000;

/// Number of directory entries that are not in the figures, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Further links to files that are counted once.
    pub hard_links: u64,
    /// Symbolic links, which are not followed.
    pub symlinks: u64,
    /// Devices, sockets and pipes.
    pub special: u64,
    /// Directories on which another file system is mounted.
    pub other_file_systems: u64,
    /// Files and directories that were gone when they were to be read.
    pub vanished: u64,
    /// Files and directories that could not be read completely.
    pub unreadable: u64,
}

/// A file or directory that could not be read completely.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Unread {
    /// Its path.
    pub path: String,
    /// The error.
    pub why: String,
}

/// Collects these from all threads.
#[derive(Default)]
pub struct Troubles {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    vanished: u64,
    unreadable: u64,
    named: BTreeSet<Unread>,
}

impl Troubles {
    /// Reports that reading `path` failed with `error`.
    pub fn error(&self, path: &Path, error: &std::io::Error) {
        match error.kind() {
            ErrorKind::NotFound => self.seen.lock().vanished += 1,
            _ => self.unreadable(path, error.to_string()),
        }
    }

    /// Reports that `path` could not be read completely.
    pub fn unreadable(&self, path: &Path, why: String) {
        let mut seen = self.seen.lock();
        seen.unreadable += 1;
        seen.named.insert(Unread { path: path.display().to_string(), why });
        if seen.named.len() > NAMED {
            // Keeps the first by name, not by time: the result must not depend on the order of threads.
            seen.named.pop_last();
        }
    }

    /// How many files vanished, how many were unreadable, and the list of the latter.
    pub fn list(self) -> (u64, u64, Vec<Unread>) {
        let seen = self.seen.into_inner();
        (seen.vanished, seen.unreadable, seen.named.into_iter().collect())
    }
}
