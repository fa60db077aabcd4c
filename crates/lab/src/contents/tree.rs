//! Surveys directory trees and files, in the order of their names.
//!
//! Unlike [`crate::dedup_scan`] it keeps the order, which a workload needs, and reads with one thread.

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
const BUFFER_BYTES: usize = 1 << 20;

/// The regular files below `paths`, or those named themselves, each once, until `bytes_max` are full. Symbolic links
/// below are not followed, other file systems not entered; what cannot be read is left out.
pub fn survey(about: &str, paths: &[PathBuf], bytes_max: u64, progress: &dyn Progress) -> Result<Contents> {
    progress.begin(about, 0);
    let contents = Contents { about: about.into(), ..Contents::default() };
    let left = (bytes_max / CHUNK_BYTES[0]).min(u32::MAX.into()) as usize;
    let mut survey = Survey {
        contents,
        left,
        seen: FixedMap::default(),
        met: FixedSet::default(),
        buffer: vec![0; BUFFER_BYTES],
    };
    for path in paths {
        let meta = path.metadata().map_err(|e| Error::io(path.display(), e))?;
        survey.walk(path, meta.dev(), progress);
    }
    Ok(survey.contents)
}

struct Survey {
    contents: Contents,
    /// Chunks that are still wanted.
    left: usize,
    seen: FixedMap<u128, u32>,
    /// Device and inode of files with several names.
    met: FixedSet<(u64, u64)>,
    buffer: Vec<u8>,
}

impl Survey {
    fn walk(&mut self, root: &Path, device: u64, progress: &dyn Progress) {
        let mut stack = vec![root.to_path_buf()];
        while let Some(path) = stack.pop() {
            let Ok(meta) = (if path == root { path.metadata() } else { path.symlink_metadata() }) else {
                continue;
            };
            if meta.is_dir() && meta.dev() == device {
                let Ok(entries) = path.read_dir() else { continue };
                let mut below: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
                below.sort_unstable_by(|a, b| b.cmp(a));
                stack.extend(below);
            } else if meta.is_file() && (meta.nlink() == 1 || self.met.insert((meta.dev(), meta.ino()))) {
                self.file(&path, progress);
                if self.left == 0 {
                    return;
                }
            }
        }
    }

    /// A file that ends with an error is surveyed as far as it could be read.
    fn file(&mut self, path: &Path, progress: &dyn Progress) {
        let Ok(mut file) = File::open(path) else { return };
        let before = self.contents.chunks.len();
        while self.left > 0 {
            let got = fill(&mut file, &mut self.buffer);
            let chunks = got.div_ceil(CHUNK).min(self.left);
            self.buffer[got..got.next_multiple_of(CHUNK)].fill(0);
            for i in 0..chunks {
                let number = self.number(i);
                self.contents.chunks.push(number);
            }
            self.left -= chunks;
            progress.advance(got as u64);
            if got < BUFFER_BYTES {
                break;
            }
        }
        let chunks = self.contents.chunks.len() - before;
        if chunks > 0 {
            self.contents.files.push(chunks as u32);
        }
    }

    fn number(&mut self, chunk: usize) -> u32 {
        let bytes = &self.buffer[chunk * CHUNK..][..CHUNK];
        if vellum_codes::is_zero(bytes) {
            return ZERO;
        }
        let next = self.seen.len() as u32 + 1;
        *self.seen.entry(xxh3_128(bytes)).or_insert(next)
    }
}

/// As much as there is, and can be read.
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
