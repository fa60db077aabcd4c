//! What is not in the figures, and why.

use serde::Serialize;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use vellum_base::sync::Mutex;

/// So many files that could not be read are named; the others are counted.
pub const NAMED: usize = 1000;

/// How many directory entries are not in the figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Further names of files that are in them once.
    pub hard_links: u64,
    /// Symbolic links; they are not followed.
    pub symlinks: u64,
    /// Devices, sockets and pipes.
    pub special: u64,
    /// Directories on which another file system is mounted.
    pub other_file_systems: u64,
    /// Files and directories that were gone when they were to be read.
    pub vanished: u64,
    /// Files and directories that could not be read, or not to their end.
    pub unreadable: u64,
}

/// A file or directory that could not be read, or not to its end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Unread {
    /// Which.
    pub path: String,
    /// What the system said.
    pub why: String,
}

/// Where threads report it.
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
    /// `error` came of reading `path`.
    pub fn error(&self, path: &Path, error: &std::io::Error) {
        match error.kind() {
            ErrorKind::NotFound => self.seen.lock().vanished += 1,
            _ => self.unreadable(path, error.to_string()),
        }
    }

    /// `path` could not be read, or not to its end.
    pub fn unreadable(&self, path: &Path, why: String) {
        let mut seen = self.seen.lock();
        seen.unreadable += 1;
        seen.named.insert(Unread { path: path.display().to_string(), why });
        if seen.named.len() > NAMED {
            // The first by name, not by time: the result must not depend on who came first.
            seen.named.pop_last();
        }
    }

    /// How many vanished, how many could not be read, and which.
    pub fn list(self) -> (u64, u64, Vec<Unread>) {
        let seen = self.seen.into_inner();
        (seen.vanished, seen.unreadable, seen.named.into_iter().collect())
    }
}
