//! Copies of a store in a directory, each with one file harmed.

use crate::doubtful::Doubtful;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use vellum_kv::media::Files;

/// The files of a store, by name.
pub(crate) fn files_of(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| !file.ends_with("LOCK"));
    files.sort();
    files
}

pub(crate) fn ends_with(file: &Path, ending: &str) -> bool {
    file.to_string_lossy().ends_with(ending)
}

/// True if it holds no records, but says what does.
pub(crate) fn is_manifest(file: &Path) -> bool {
    ends_with(file, ".manifest") || file.ends_with("CURRENT")
}

/// Copies files, but for one.
pub(crate) fn copy_of(files: &[PathBuf], but: Option<&PathBuf>) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in files.iter().filter(|file| Some(*file) != but) {
        std::fs::copy(file, copy.path().join(file.file_name().unwrap())).unwrap();
    }
    copy
}

/// What a killed process leaves of a store that is open: what was there at one moment.
pub(crate) fn copy_of_open(dir: &Path) -> TempDir {
    let current = || fs::read(dir.join("CURRENT")).unwrap();
    loop {
        let (before, files, copy) = (current(), files_of(dir), tempfile::tempdir().unwrap());
        let copied = files
            .iter()
            .try_for_each(|file| fs::copy(file, copy.path().join(file.file_name().unwrap())).map(drop));
        match copied {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Ok(()) if files_of(dir) != files || current() != before => {}
            other => return other.map(|()| copy).unwrap(),
        }
    }
}

/// A copy of the files without manifest and CURRENT.
pub(crate) fn bereft(dir: &Path) -> TempDir {
    let copy = copy_of_open(dir);
    for file in files_of(copy.path()) {
        if is_manifest(&file) {
            fs::remove_file(file).unwrap();
        }
    }
    copy
}

/// Names and bytes of the files of a store.
pub(crate) fn stored(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let name = |file: &PathBuf| file.file_name().unwrap().to_str().unwrap().to_string();
    files_of(dir).iter().map(|file| (name(file), fs::read(file).unwrap())).collect()
}

/// A directory with these files, whose power can go, or that can be full.
pub(crate) fn doubtful(stored: &[(String, Vec<u8>)]) -> Doubtful {
    let all = Doubtful::default();
    for (name, bytes) in stored {
        let file = all.create(name).unwrap();
        file.write(0, bytes).unwrap();
        file.sync().unwrap();
    }
    all.sync_names().unwrap();
    all
}

/// Copies files, with other bytes in one, or without it.
pub(crate) fn copy_with(files: &[PathBuf], other: &PathBuf, bytes: Option<&[u8]>) -> TempDir {
    let copy = copy_of(files, Some(other));
    if let Some(bytes) = bytes {
        std::fs::write(copy.path().join(other.file_name().unwrap()), bytes).unwrap();
    }
    copy
}

/// Flips a bit in each third sector, of tables in each so many: shows which file, the copy, and what was done.
pub(crate) fn each_flipped(dir: &Path, in_tables: usize, mut show: impl FnMut(&Path, &Path, &str)) {
    let files = files_of(dir);
    for file in &files {
        let good = std::fs::read(file).unwrap();
        let step = if ends_with(file, ".table") { in_tables } else { 3 };
        for sector in (0..good.len().div_ceil(512)).step_by(step) {
            let mut bad = good.clone();
            let at = (sector * 512 + 37).min(good.len() - 1);
            bad[at] ^= 1;
            let copy = copy_with(&files, file, Some(&bad));
            show(file, copy.path(), &format!("byte {at} of {}", file.display()));
        }
    }
}

/// Each file missing, cut in half, empty, or noise from its half on.
pub(crate) fn each_spoiled(dir: &Path, mut show: impl FnMut(&Path, &Path, &str)) {
    let files = files_of(dir);
    for file in &files {
        let good = std::fs::read(file).unwrap();
        let (mut noise, half) = (good.clone(), good.len() / 2);
        noise[half..].iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 37) as u8);
        for (what, bytes) in [
            ("missing", None),
            ("cut", Some(&good[..half])),
            ("empty", Some(&[][..])),
            ("noise", Some(&noise[..])),
        ] {
            let copy = copy_with(&files, file, bytes);
            show(file, copy.path(), &format!("{} {what}", file.display()));
        }
    }
}
