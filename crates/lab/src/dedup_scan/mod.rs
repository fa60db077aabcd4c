//! How much of existing data deduplication would remove: the SES-Dedup paper's Figure 1 (redundancy by chunk size) and
//! Table III (skew of duplicates) for directory trees, disk images and block devices. Read-only.
//!
//! One thread walks; the others read each file once and fingerprint it at all chunk sizes at once (`chunks`).
//! Fingerprints are counted in tables of bounded memory (`census`), from which [`figures`] are derived.
//! docs/decisions/0009 has the definitions, and what the paper leaves open.
//!
//! Invariants:
//! 1. The result is a function of the files, the seed and the options except `threads`, not of the order of reading.
//! 2. Memory for fingerprints stays within the limit; beyond it a sample is counted, and the result says so.
//! 3. What cannot be read is counted and named, and is not in the figures, except for the pieces of a file before the
//!    one that failed.

mod census;
mod charts;
mod chunks;
mod counts;
pub mod figures;
mod queue;
mod reader;
mod trouble;
mod walk;

pub(crate) use census::Counted;
pub use figures::{ChunkFigures, CopiesFigures, TableFigures};
pub use trouble::{LeftOut, Unread};

use crate::Progress;
use census::Census;
use chunks::Hasher;
use queue::Queue;
use serde::Serialize;
use std::path::PathBuf;
use trouble::Troubles;
use vellum_base::{Error, Result};

/// The chunk sizes, in bytes, each twice the previous one.
pub const CHUNK_BYTES: [u64; SIZES] = [2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10];
/// How many chunk sizes there are.
pub const SIZES: usize = 5;
/// Minimum memory for fingerprints, in bytes: the samples of less mean little.
pub const MEMORY_MIN_BYTES: u64 = 1 << 20;

/// How to scan.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// Number of reading threads; one more walks.
    pub threads: usize,
    /// Maximum memory for fingerprints, in bytes; see [`MEMORY_MIN_BYTES`].
    pub memory_bytes: u64,
    /// How the last chunk of a file is treated.
    pub tails: Tails,
    /// Enter other file systems that are mounted below.
    pub cross: bool,
    /// Key of the fingerprints, which also determines the sample.
    pub seed: u64,
}

/// How the last chunk of a file is treated if the file does not fill it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tails {
    /// It is a chunk padded with zeros, as a file system stores it.
    Padded,
    /// It is not counted.
    LeftOut,
}

/// Result of a scan. The JSON form is documented in docs/json/dedup-scan.md and stable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scan {
    /// Number of files and devices in the figures.
    pub files: u64,
    /// Their bytes.
    pub file_bytes: u64,
    /// Of these, bytes in holes, which were not read.
    pub hole_bytes: u64,
    /// How tails were treated.
    pub tails: Tails,
    /// Key of the fingerprints.
    pub seed: u64,
    /// What is not in the figures.
    pub left_out: LeftOut,
    /// What could not be read, ordered by path; at most 1000 entries.
    pub unread: Vec<Unread>,
    /// The figures, by chunk size.
    pub sizes: Vec<ChunkFigures>,
}

impl Tails {
    /// Number of chunks of `chunk_bytes` in `bytes` of a file, or of a piece that begins at a chunk boundary.
    fn chunks(self, bytes: u64, chunk_bytes: u64) -> u64 {
        match self {
            Tails::Padded => bytes.div_ceil(chunk_bytes),
            Tails::LeftOut => bytes / chunk_bytes,
        }
    }
}

/// Scans directory trees, images and block devices as one set of data. `progress` counts bytes. Fails only if a path
/// cannot be opened at all (`Io`), or is none of these (`Invalid`).
pub fn scan(paths: &[PathBuf], options: &ScanOptions, progress: &dyn Progress) -> Result<Scan> {
    if options.threads == 0 {
        return Err(Error::invalid("a scan needs a thread"));
    }
    if options.memory_bytes < MEMORY_MIN_BYTES {
        return Err(Error::invalid(format!("a scan needs at least {MEMORY_MIN_BYTES} bytes of memory")));
    }
    let roots = walk::roots(paths)?;
    let shared = Shared {
        queue: Queue::new(),
        census: Census::new(options.memory_bytes),
        hasher: Hasher::new(options.seed),
        tails: options.tails,
        troubles: Troubles::default(),
        progress,
    };
    progress.begin("scanning", 0);
    let (walked, read) = shared.run(roots, options);
    Ok(shared.conclude(options, walked, read))
}

/// State shared by the threads of a scan.
struct Shared<'a> {
    queue: Queue,
    census: Census,
    hasher: Hasher,
    tails: Tails,
    troubles: Troubles,
    progress: &'a dyn Progress,
}

impl Shared<'_> {
    /// Walks and reads. Uses plain threads: this is not an engine, it reads files and does not depend on time.
    fn run(&self, roots: Vec<walk::Root>, options: &ScanOptions) -> (LeftOut, reader::Done) {
        std::thread::scope(|scope| {
            let reader = || {
                let guard = queue::EndOnPanic(&self.queue);
                let done = reader::run(self);
                std::mem::forget(guard);
                done
            };
            let readers: Vec<_> = (0..options.threads).map(|_| scope.spawn(reader)).collect();
            let guard = queue::EndOnPanic(&self.queue);
            let walked = walk::run(roots, options.cross, self);
            self.queue.end();
            std::mem::forget(guard);
            let done = readers.into_iter().map(|r| r.join().expect("a reader does not panic"));
            (walked, done.fold(reader::Done::default(), reader::Done::plus))
        })
    }

    fn conclude(self, options: &ScanOptions, walked: LeftOut, read: reader::Done) -> Scan {
        let (vanished, unreadable, unread) = self.troubles.list();
        Scan {
            files: read.files,
            file_bytes: read.file_bytes,
            hole_bytes: read.hole_bytes,
            tails: options.tails,
            seed: options.seed,
            left_out: LeftOut { vanished, unreadable, ..walked },
            unread,
            sizes: self.census.counted().iter().map(ChunkFigures::of).collect(),
        }
    }
}
