//! A reader thread: opens files, skips holes, fingerprints data.

use super::Shared;
use super::census::Tally;
use super::chunks::GROUP_BYTES;
use super::queue::{Open, PIECE_BYTES, Work};
use rustix::fs::{Advice, OFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::num::NonZero;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes read at a time: few enough to be in the core's own cache when they are hashed.
const BUFFER_BYTES: usize = 8 * GROUP_BYTES as usize;
/// The system is asked to read ahead more than this.
const ADVISE_BYTES: u64 = 128 << 10;

/// Totals of readers.
#[derive(Clone, Copy, Default)]
pub struct Done {
    /// Files and devices read.
    pub files: u64,
    /// Bytes in them, holes included.
    pub file_bytes: u64,
    /// Bytes of holes.
    pub hole_bytes: u64,
}

impl Done {
    /// The sum of two readers' totals.
    pub fn plus(self, other: Done) -> Done {
        Done {
            files: self.files + other.files,
            file_bytes: self.file_bytes + other.file_bytes,
            hole_bytes: self.hole_bytes + other.hole_bytes,
        }
    }
}

/// Opens a path that the user named.
pub fn open_named(path: &Path) -> Result<Open> {
    let file = open(path, OFlags::CLOEXEC)?;
    let meta = file.metadata()?;
    let bytes = match meta.is_file() {
        true => meta.len(),
        false => rustix::fs::seek(&file, SeekFrom::End(0))?,
    };
    Ok(opened(path, file, bytes, &meta))
}

/// Processes work until all is done.
pub fn run(shared: &Shared<'_>) -> Done {
    let mut reader = Reader {
        shared,
        tally: shared.census.tally(shared.tails),
        buffer: vec![0; BUFFER_BYTES],
        done: Done::default(),
        advanced: 0,
    };
    while let Some(work) = shared.queue.take() {
        match work {
            Work::Files(files) => {
                files.iter().for_each(|path| reader.file(path));
                shared.queue.opened();
            }
            Work::Piece(file, begin, end) => reader.piece_of_large(&file, begin, end),
        }
        reader.tell();
    }
    reader.tally.finish();
    reader.done
}

struct Reader<'a, 'b> {
    shared: &'a Shared<'b>,
    tally: Tally<'a>,
    buffer: Vec<u8>,
    done: Done,
    /// Bytes not yet reported to the progress bar.
    advanced: u64,
}

impl Reader<'_, '_> {
    fn file(&mut self, path: &Path) {
        match open_found(path) {
            Err(e) => self.shared.troubles.error(path, &e),
            Ok(file) if file.bytes > PIECE_BYTES => self.shared.queue.push_large(file),
            Ok(file) => {
                self.done.files += 1;
                self.piece(&file, 0, file.bytes);
            }
        }
    }

    fn piece_of_large(&mut self, file: &Open, begin: u64, end: u64) {
        if begin == 0 {
            self.done.files += 1;
        }
        self.piece(file, begin, end);
    }

    fn piece(&mut self, file: &Open, begin: u64, end: u64) {
        if let Err(e) = self.parts(file, begin, end)
            && !file.failed.swap(true, Ordering::Relaxed)
        {
            self.shared.troubles.error(&file.path, &e);
        }
    }

    /// Processes holes and data in turn.
    fn parts(&mut self, file: &Open, begin: u64, end: u64) -> Result<()> {
        let mut at = begin;
        while at < end {
            let (data, data_end) = if file.sparse { next_data(&file.file, at, end)? } else { (at, end) };
            self.tally.add_zeros(data - at);
            self.done.hole_bytes += data - at;
            self.count(data - at);
            self.data(file, data, data_end)?;
            at = data_end;
        }
        Ok(())
    }

    fn data(&mut self, file: &Open, begin: u64, end: u64) -> Result<()> {
        if end - begin > ADVISE_BYTES {
            advise(file, begin, end);
        }
        let mut at = begin;
        while at < end {
            let wanted = BUFFER_BYTES.min((end - at) as usize);
            let got = fill(&file.file, &mut self.buffer[..wanted], at)?;
            for group in self.buffer[..got].chunks(GROUP_BYTES as usize) {
                let tally = &mut self.tally;
                self.shared.hasher.group(group, self.shared.tails, |size, chunk| tally.add(size, chunk));
            }
            self.count(got as u64);
            if got < wanted {
                return Err(Error::new(ErrorKind::UnexpectedEof, "it became shorter while it was read"));
            }
            at += got as u64;
        }
        Ok(())
    }

    fn count(&mut self, bytes: u64) {
        self.done.file_bytes += bytes;
        self.advanced += bytes;
        if self.advanced >= PIECE_BYTES {
            self.tell();
        }
    }

    fn tell(&mut self) {
        self.shared.progress.advance(std::mem::take(&mut self.advanced));
    }
}

/// Opens a file found in a directory. By now it may be something else, which must not block.
fn open_found(path: &Path) -> Result<Open> {
    let file = open(path, OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(ErrorKind::NotFound.into());
    }
    Ok(opened(path, file, meta.len(), &meta))
}

fn opened(path: &Path, file: File, bytes: u64, meta: &Metadata) -> Open {
    let sparse = meta.is_file() && meta.blocks().saturating_mul(512) < bytes;
    Open { path: path.to_path_buf(), file, bytes, sparse, failed: AtomicBool::new(false) }
}

/// Opens a file without updating its access time, if the system permits.
fn open(path: &Path, flags: OFlags) -> Result<File> {
    let with = |flags: OFlags| OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    match with(flags | OFlags::NOATIME) {
        Err(e) if e.raw_os_error() == Some(Errno::PERM.raw_os_error()) => with(flags),
        opened => opened,
    }
}

/// Asks the system to read ahead, except in holes, which would fill its cache with zeros. Errors do not matter.
fn advise(file: &Open, begin: u64, end: u64) {
    let length = NonZero::new(end - begin);
    let _ = rustix::fs::fadvise(&file.file, begin, length, Advice::Sequential);
    let _ = rustix::fs::fadvise(&file.file, begin, length, Advice::WillNeed);
}

/// The next piece with data in `at..end`, extended to whole groups; empty at `end` if there is none.
fn next_data(file: &File, at: u64, end: u64) -> Result<(u64, u64)> {
    let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => data,
        Err(Errno::NXIO) => return Ok((end, end)),
        Err(Errno::INVAL) => return Ok((at, end)), // holes are not supported there
        Err(e) => return Err(e.into()),
    };
    if data >= end {
        return Ok((end, end));
    }
    let hole = rustix::fs::seek(file, SeekFrom::Hole(data))?;
    let data = (data - data % GROUP_BYTES).max(at);
    Ok((data, hole.next_multiple_of(GROUP_BYTES).min(end)))
}

/// Fills the buffer as far as the file goes; returns the number of bytes.
fn fill(file: &File, buffer: &mut [u8], at: u64) -> Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read_at(&mut buffer[got..], at + got as u64) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}
