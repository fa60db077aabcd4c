//! A store made from another one: whole, or not at all.
//!
//! It is built in OUT/UNFINISHED, which is not a store, and moved to OUT when it is durable, CURRENT last.
//!
//! States of OUT
//! - *nothing*: it does not exist, or is empty.
//! - *unfinished*: there is no CURRENT, and UNFINISHED is not empty or the only entry. It cannot be opened; building a
//!   store there starts over.
//! - *finished*: anything else. An empty UNFINISHED may be left; a store that loses its CURRENT is not mistaken for an
//!   unfinished one.
//!
//! Invariants
//! 1. The lock of OUT is held while building.
//! 2. Only what is unfinished is removed, and of that only files that belong to a store.

use super::named;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_base::{Error, Kind, Result};
use vellum_kv::media::{Areas, Tables};
use vellum_kv::{Directory, DirectoryOptions, ZoneMedia, check_current, reason};

const UNFINISHED: &str = "UNFINISHED";
const CURRENT: &str = Directory::CURRENT;
const LOCK: &str = "LOCK";

/// See the module. If it is dropped without [`Building::finish`], it removes what was made.
pub struct Building {
    out: PathBuf,
    was_there: bool,
    is_finished: bool,
    _lock: Arc<Directory>,
}

impl Building {
    /// Begins to build a store in the directory `out`, which must not exist, be empty, or be unfinished.
    pub fn begin(out: &Path) -> Result<Building> {
        let was_there = out.exists();
        check_free(out)?;
        let lock = Directory::open(out, DirectoryOptions::default())?;
        // The previous holder of the lock may have finished a store.
        check_free(out)?;
        let building = Building { out: out.to_path_buf(), was_there, is_finished: false, _lock: lock };
        building.clear().map_err(|e| building.said("clear", e))?;
        fs::create_dir(building.path()).map_err(|e| building.said("make a directory in", e))?;
        Ok(building)
    }

    /// Where to build it. The store must be closed before [`Building::finish`].
    pub fn path(&self) -> PathBuf {
        self.out.join(UNFINISHED)
    }

    /// Makes it the store at `out`, durably.
    pub fn finish(mut self) -> Result<()> {
        self.install().map_err(|e| self.said("install", e))?;
        self.is_finished = true;
        Ok(())
    }

    fn install(&self) -> io::Result<()> {
        let (from, out) = (self.path(), File::open(&self.out)?);
        remove(&from.join(LOCK))?;
        for name in names(&from)?.iter().filter(|name| *name != CURRENT) {
            fs::rename(from.join(name), self.out.join(name))?;
        }
        out.sync_all()?;
        fs::rename(from.join(CURRENT), self.out.join(CURRENT))?;
        fs::remove_dir(from)?;
        out.sync_all()?;
        let parent = self.out.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Removes an unfinished store.
    fn clear(&self) -> io::Result<()> {
        let inner = self.path();
        if !inner.is_dir() {
            return Ok(());
        }
        // The inner directory is cleared last: as long as it has contents, the rest is known to be unfinished.
        for directory in [&self.out, &inner] {
            for name in names(directory)?.iter().filter(|name| Directory::is_own_name(name)) {
                // We hold the lock of `out`.
                if directory == &inner || name != LOCK {
                    remove(&directory.join(name))?;
                }
            }
        }
        fs::remove_dir(inner)
    }

    fn said(&self, what: &str, e: io::Error) -> Error {
        Error::io(format!("{what} {}", self.out.display()), e)
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        // What cannot be removed now is removed when a store is built there again. An existing store stays: only making
        // it durable has failed.
        if !self.is_finished && !self.out.join(CURRENT).exists() && self.clear().is_ok() {
            let _ = remove(&self.out.join(LOCK));
            let _ = if self.was_there { Ok(()) } else { fs::remove_dir(&self.out) };
        }
    }
}

/// True if there is a store at `path`: a directory with one, or a file, which may be a flash image.
pub fn is_store(path: &Path) -> bool {
    path.is_file() || path.join(CURRENT).exists()
}

/// The error of opening the directory `path` if it holds a store that has lost the file CURRENT.
pub fn lacks_current(path: &Path) -> Option<Error> {
    let checked = Directory::look(path).and_then(|directory| check_current(&directory));
    let error = checked.err().filter(|error| error.is_because(reason::CURRENT_MISSING))?;
    (!is_unfinished(path)).then(|| named(error, path))
}

/// True if there is a store at `path`, or some of one: tables, logs or manifests without CURRENT.
pub fn has_remains(path: &Path) -> bool {
    let has_files = || {
        let directory = Directory::look(path)?;
        Ok::<_, Error>(!directory.areas()?.is_empty() || !directory.tables()?.is_empty())
    };
    is_store(path) || has_files().unwrap_or(false)
}

/// True if `path` holds a store whose building was interrupted.
pub fn is_unfinished(path: &Path) -> bool {
    let Ok(inside) = names(&path.join(UNFINISHED)) else { return false };
    let is_other = |name: &String| name != LOCK && Directory::is_own_name(name);
    let has_others = || names(path).is_ok_and(|names| names.iter().any(is_other));
    !path.join(CURRENT).exists() && (!inside.is_empty() || !has_others())
}

/// True if `path` was to hold a store with tables on a device of their own, and its creation was interrupted.
pub fn awaits_device(path: &Path) -> bool {
    Directory::look(path).and_then(|directory| ZoneMedia::awaits_store(&directory)).unwrap_or(false)
}

/// True if another process, or this one, is building the unfinished store at `path`.
pub fn is_being_built(path: &Path) -> bool {
    // For a moment it is locked if nobody has it: that would be in the way of those who open a finished store.
    let look = || Directory::open_read_only(path, DirectoryOptions::default());
    (is_unfinished(path) || awaits_device(path)) && look().is_err_and(|error| error.kind() == Kind::Busy)
}

/// Fails if there is anything at `out` other than an unfinished store.
fn check_free(out: &Path) -> Result<()> {
    let there = match names(out) {
        Ok(there) => there,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            return Err(taken(format!("{} is a file, no directory", out.display())));
        }
        Err(e) => return Err(Error::io(format!("list {}", out.display()), e)),
    };
    let unfinished = is_unfinished(out);
    let is_ours =
        |name: &String| name == LOCK || unfinished && (name == UNFINISHED || Directory::is_own_name(name));
    match there.iter().all(is_ours) {
        true => Ok(()),
        false => Err(taken(format!("{} is not empty", out.display()))),
    }
}

fn taken(what: String) -> Error {
    Error::invalid(what).because(crate::reason::PLACE_TAKEN)
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(directory)?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there(path: &Path) -> Vec<String> {
        let mut there = names(path).unwrap_or_default();
        there.sort();
        there
    }

    /// The state left by a process that ends between two renames.
    #[test]
    fn what_was_cut_short_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        fs::create_dir_all(out.join(UNFINISHED)).unwrap();
        for name in ["UNFINISHED/000003.table", "UNFINISHED/CURRENT", "000001.table", LOCK] {
            fs::write(out.join(name), name).unwrap();
        }
        assert!(is_unfinished(&out));
        let building = Building::begin(&out).unwrap();
        assert_eq!(Building::begin(&out).map(drop).unwrap_err().kind(), Kind::Busy, "one builds at a time");
        assert_eq!((there(&out), there(&building.path())), (vec![LOCK.into(), UNFINISHED.into()], vec![]));
        for name in ["000007.table", "CURRENT"] {
            fs::write(building.path().join(name), name).unwrap();
        }
        building.finish().unwrap();
        assert_eq!(there(&out), ["000007.table", "CURRENT", LOCK]);
        assert_eq!(Building::begin(&out).map(drop).unwrap_err().kind(), Kind::Invalid, "a store is there");
    }

    /// A process ended directly after the last rename, long ago, and now CURRENT is lost.
    #[test]
    fn a_store_that_lost_its_current_is_not_taken_for_unfinished() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path();
        fs::create_dir(out.join(UNFINISHED)).unwrap();
        assert!(is_unfinished(out));
        fs::write(out.join("000001.table"), "all there is").unwrap();
        assert!(!is_unfinished(out));
        assert_eq!(Building::begin(out).map(drop).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(there(out), ["000001.table", UNFINISHED]);
    }

    #[test]
    fn what_is_not_finished_leaves_nothing_and_what_is_not_ours_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (out, foreign) = (dir.path().join("out"), dir.path().join("foreign"));
        drop(Building::begin(&out).unwrap());
        assert!(!out.exists());
        fs::create_dir(&out).unwrap();
        drop(Building::begin(&out).unwrap());
        assert_eq!(there(&out), [""; 0], "an empty directory stays one");
        fs::create_dir_all(foreign.join(UNFINISHED)).unwrap();
        fs::write(foreign.join("7.log"), "dear").unwrap();
        assert_eq!(Building::begin(&foreign).map(drop).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(there(&foreign), ["7.log", UNFINISHED]);
    }
}
