//! Surveys directory trees and files, in order of their names.
//!
//! Unlike [`crate::dedup_scan`], this preserves the order, which a workload needs, and reads with one thread.

use super::{Contents, ZERO};
use crate::Progress;
use crate::dedup_scan::CHUNK_BYTES;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vellum_base::hash::{FixedMap, FixedSet};
use vellum_base::{Error, Result};
use xxhash_rust::xxh3::xxh3_128;

const CHUNK: usize = CHUNK_BYTES[0] as usize;
const PIECE_BYTES: usize = 1 << 20;

/// Surveys the regular files below `paths`, as [`each_piece`] finds them.
pub fn survey(about: &str, paths: &[PathBuf], bytes_max: u64, progress: &dyn Progress) -> Result<Contents> {
    progress.begin(about, 0);
    let contents = Contents { about: about.into(), ..Contents::default() };
    let mut survey = Survey { contents, seen: FixedMap::default() };
    each_piece(paths, bytes_max, &mut |piece, begins| {
        survey.piece(piece, begins);
        progress.advance(piece.len() as u64);
    })?;
    Ok(survey.contents)
}

/// Visits the bytes of the regular files below `paths`, or named there, each file once, until `bytes_max` have been
/// visited. `visit` is passed pieces of a MiB, the last of a file padded with zeros to a whole chunk, and whether the
/// piece is the first of its file. Symbolic links below `paths` are not followed, and other file systems not entered.
/// What cannot be read is left out.
pub fn each_piece(paths: &[PathBuf], bytes_max: u64, visit: &mut dyn FnMut(&[u8], bool)) -> Result<()> {
    let mut walk = Walk { left: bytes_max, met: FixedSet::default(), buffer: vec![0; PIECE_BYTES], visit };
    for path in paths {
        let meta = path.metadata().map_err(|e| Error::io(path.display(), e))?;
        walk.tree(path, meta.dev());
    }
    Ok(())
}

struct Walk<'a> {
    /// Bytes left to visit.
    left: u64,
    /// Device and inode of files with several links.
    met: FixedSet<(u64, u64)>,
    buffer: Vec<u8>,
    visit: &'a mut dyn FnMut(&[u8], bool),
}

impl Walk<'_> {
    fn tree(&mut self, root: &Path, device: u64) {
        let mut stack = vec![root.to_path_buf()];
        while let Some(path) = stack.pop().filter(|_| self.left > 0) {
            let found = if path == root { path.metadata() } else { path.symlink_metadata() };
            let Ok(meta) = found else { continue };
            if meta.is_dir() && meta.dev() == device {
                let Ok(entries) = path.read_dir() else { continue };
                let mut below: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
                below.sort_unstable_by(|a, b| b.cmp(a));
                stack.extend(below);
            } else if meta.is_file() && (meta.nlink() == 1 || self.met.insert((meta.dev(), meta.ino()))) {
                self.file(&path);
            }
        }
    }

    /// If reading fails, the file is visited as far as it could be read.
    fn file(&mut self, path: &Path) {
        let Ok(mut file) = File::open(path) else { return };
        let mut begins = true;
        while self.left > 0 {
            let got = fill(&mut file, &mut self.buffer);
            let whole = got.next_multiple_of(CHUNK);
            self.buffer[got..whole].fill(0);
            let wanted = self.left.min(whole as u64) as usize / CHUNK * CHUNK;
            if wanted > 0 {
                (self.visit)(&self.buffer[..wanted], begins);
            }
            self.left = if wanted < whole { 0 } else { self.left - wanted as u64 };
            begins = false;
            if got < PIECE_BYTES {
                return;
            }
        }
    }
}

struct Survey {
    contents: Contents,
    seen: FixedMap<u128, u32>,
}

impl Survey {
    fn piece(&mut self, piece: &[u8], begins: bool) {
        if begins {
            self.contents.files.push(0);
        }
        for chunk in piece.chunks_exact(CHUNK) {
            let number = self.number(chunk);
            self.contents.chunks.push(number);
        }
        if let Some(file) = self.contents.files.last_mut() {
            *file += (piece.len() / CHUNK) as u32;
        }
    }

    fn number(&mut self, bytes: &[u8]) -> u32 {
        if vellum_codes::is_zero(bytes) {
            return ZERO;
        }
        let next = self.seen.len() as u32 + 1;
        *self.seen.entry(xxh3_128(bytes)).or_insert(next)
    }
}

/// Reads as much as possible into the buffer; returns the number of bytes.
fn fill(file: &mut File, buffer: &mut [u8]) -> usize {
    let mut got = 0;
    while got < buffer.len() {
        match file.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    got
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_in_order_once_and_are_cut_at_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("b")).unwrap();
        std::fs::write(at("a"), vec![1; 5000]).unwrap();
        std::fs::write(at("b/c"), [vec![1; 2048], vec![0; 2048], vec![2; 2048]].concat()).unwrap();
        std::fs::write(at("d"), b"").unwrap();
        std::fs::write(at("e"), vec![3; PIECE_BYTES + 1]).unwrap();
        std::fs::hard_link(at("a"), at("z")).unwrap();
        std::os::unix::fs::symlink(at("e"), at("y")).unwrap();
        let all = survey("x", &[directory.path().into()], u64::MAX, &()).unwrap();
        assert_eq!(all.files, [3, 3, PIECE_BYTES as u32 / 2048 + 1]);
        assert_eq!(all.chunks[..7], [1, 1, 2, 1, ZERO, 3, 4]);
        let cut = survey("x", &[directory.path().into()], 9000, &()).unwrap();
        assert_eq!((cut.files, cut.chunks), (vec![3, 1], vec![1, 1, 2, 1]));
        assert!(survey("x", &[at("none")], 1, &()).is_err());
    }
}
