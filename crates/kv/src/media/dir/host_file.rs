//! An open file of the host.
//!
//! Where memory is short, and now and then, reads look first whether the kernel has what they want: so it is known
//! whether reads wait for the device ([`super::waits`]), and of several at once those that wait do so together.

use super::files::Handle;
use super::waits;
use reflink_copy::ReflinkBlockBuilder;
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate, fstatfs};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::{Error, Kind, Result};

/// Most bytes of a write. Linux caches what comes in one write in one piece of memory, as far as it can. Pieces of up
/// to this size it takes from a processor's own list of free ones, larger ones from memory that nobody has touched
/// lately. Measured: larger writes took up to ten times as long (docs/decisions/0019).
pub(super) const WRITE_BYTES: u64 = 32 << 10;

/// How far Linux reads ahead at a time, however long the announced range.
const READ_AHEAD_BYTES: u64 = 128 << 10;

/// The medium failed.
const EIO: i32 = 5;
/// Errors by which a file system says that it never clones, or not these files.
const EPERM: i32 = 1;
const EXDEV: i32 = 18;
const EINVAL: i32 = 22;
const ENOTTY: i32 = 25;
const EOPNOTSUPP: i32 = 95;

/// `statfs` types of file systems that write allocated blocks in place: ext2 to ext4, XFS, tmpfs.
const IN_PLACE: [u64; 3] = [0xEF53, 0x5846_5342, 0x0102_1994];

/// See the module.
pub(super) struct HostFile {
    file: File,
    path: PathBuf,
    /// The file system does not say what is in the page cache.
    is_untold: AtomicBool,
}

impl HostFile {
    /// An open file, and its name for messages.
    pub(super) fn new(file: File, path: PathBuf) -> HostFile {
        HostFile { file, path, is_untold: AtomicBool::new(false) }
    }

    /// Announces that it is read at random. What is read in order is read in large pieces, or announced. Without this
    /// Linux takes reads that are beside each other by chance for the beginning of that, and reads on for as much as
    /// the device is set to.
    pub(super) fn read_at_random(&self) {
        let _ = fadvise(&self.file, 0, None, Advice::Random);
    }

    fn failure(&self, what: &str, e: std::io::Error) -> Error {
        Error::io(format!("{what} {}", self.path.display()), e)
    }

    /// Reads what is in the page cache; false if some of it is not, or the system cannot say.
    fn read_cached(&self, offset: u64, out: &mut [u8]) -> bool {
        if self.is_untold.load(Relaxed) {
            return false;
        }
        let length = out.len();
        let is_read = match preadv2(&self.file, &mut [IoSliceMut::new(out)], offset, ReadWriteFlags::NOWAIT) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.is_untold.store(true, Relaxed);
                return false;
            }
            Ok(0) if length > 0 => return false, // past the end
            Err(error) if error != Errno::AGAIN => return false,
            read => read == Ok(length),
        };
        waits::note(!is_read);
        is_read
    }

    fn read_exact(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        match self.file.read_exact_at(out, offset) {
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(Error::corrupt(format!("{} is shorter than it should be", self.path.display())))
            }
            other => other.map_err(|e| self.failure("read", e)),
        }
    }
}

impl Handle for HostFile {
    fn len(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(|e| self.failure("stat", e))?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        match waits::is_asked_about() && self.read_cached(offset, out) {
            true => Ok(()),
            false => self.read_exact(offset, out),
        }
    }

    fn read_all(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        if !waits::is_asked_about() {
            return reads.iter_mut().try_for_each(|(at, out)| self.read_exact(*at, out));
        }
        let away: Vec<_> = reads
            .iter_mut()
            .filter_map(|(at, out)| (!self.read_cached(*at, out)).then_some((*at, out)))
            .collect();
        if away.len() > 1 {
            away.iter().for_each(|(at, out)| self.announce(*at, out.len() as u64));
        }
        away.into_iter().try_for_each(|(at, out)| self.read_exact(at, out))
    }

    fn write(&self, mut offset: u64, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = WRITE_BYTES - offset % WRITE_BYTES;
            let (piece, rest) = bytes.split_at(bytes.len().min(room as usize));
            self.file.write_all_at(piece, offset).map_err(|e| self.failure("write", e))?;
            (offset, bytes) = (offset + piece.len() as u64, rest);
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| unsure(&self.path, &e))
    }

    fn forget_read(&self) {
        // Where a file system keeps no such bytes, or always keeps what it has, there is nothing else to be done.
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
    }

    fn clone_range(&self, offset: u64, from: &dyn Handle, from_offset: u64, bytes: u64) -> Result<bool> {
        let (Some(from), Some(length)) = (from.host(), NonZeroU64::new(bytes)) else { return Ok(false) };
        let clone = ReflinkBlockBuilder::new(from, &self.file, length);
        match clone.from_offset(from_offset).to_offset(offset).reflink_block() {
            Ok(()) => Ok(true),
            Err(e) => match e.raw_os_error() {
                Some(EIO) => Err(self.failure("clone into", e)),
                // Most file systems cannot, nor can some do it in such pieces, or between these two files.
                Some(EINVAL | EOPNOTSUPP | ENOTTY | EXDEV | EPERM) => {
                    Err(Error::new(Kind::Unsupported, format!("clone into {}: {e}", self.path.display())))
                }
                // One that is full or has too many references will not.
                _ => Ok(false),
            },
        }
    }

    fn take_room(&self, offset: u64, bytes: u64) -> bool {
        let is_taken =
            self.writes_in_place() && fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, bytes).is_ok();
        if !is_taken {
            // A file system with too little room may have allocated what there is.
            let _ = self.file.metadata().and_then(|file| self.file.set_len(file.len()));
        }
        is_taken
    }

    fn writes_in_place(&self) -> bool {
        writes_in_place(&self.file)
    }

    fn cut(&self, bytes: u64) -> Result<()> {
        self.file.set_len(bytes).map_err(|e| self.failure("cut", e))
    }

    fn announce(&self, offset: u64, bytes: u64) {
        let end = offset + bytes;
        for at in (offset..end).step_by(READ_AHEAD_BYTES as usize) {
            // If that fails, reads wait for the device.
            let _ =
                fadvise(&self.file, at, NonZeroU64::new(READ_AHEAD_BYTES.min(end - at)), Advice::WillNeed);
        }
    }

    fn host(&self) -> Option<&File> {
        Some(&self.file)
    }
}

/// True if the file system writes allocated blocks in place: it never runs out of room for them.
pub(super) fn writes_in_place(file: &File) -> bool {
    fstatfs(file).is_ok_and(|stat| IN_PLACE.contains(&(stat.f_type as u64)))
}

/// A failed sync leaves in doubt what is safe, whatever the reason: a lack of room is no better than another.
pub(super) fn unsure(path: &Path, e: &std::io::Error) -> Error {
    Error::new(Kind::Io, format!("sync {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of a file of 64 pages, each with its number in all bytes.
    fn read_all(reads: &[(u64, usize)], is_cached: bool) -> Result<Vec<Vec<u8>>> {
        let file = tempfile::tempfile().unwrap();
        let file = HostFile::new(file, PathBuf::from("pages"));
        (0..64).for_each(|page| file.write(page * 4096, &[page as u8; 4096]).unwrap());
        if !is_cached {
            file.sync().unwrap();
            file.forget_read();
            waits::note(true); // so that it asks
        }
        let mut read: Vec<Vec<u8>> = reads.iter().map(|(_, bytes)| vec![0xFF; *bytes]).collect();
        let mut into: Vec<_> =
            reads.iter().zip(&mut read).map(|((offset, _), out)| (*offset, &mut out[..])).collect();
        file.read_all(&mut into)?;
        Ok(read)
    }

    #[test]
    fn what_is_read_together_is_what_is_read_one_by_one() {
        let reads = [(0, 10), (4090, 12), (40 * 4096 - 1, 8192), (63 * 4096, 4096), (5, 0)];
        for is_cached in [true, false] {
            let read = read_all(&reads, is_cached).unwrap();
            for ((offset, bytes), read) in reads.iter().zip(read) {
                let expected: Vec<u8> =
                    (*offset..*offset + *bytes as u64).map(|byte| (byte / 4096) as u8).collect();
                assert_eq!(read, expected, "{offset}");
            }
            let error = read_all(&[(0, 10), (64 * 4096 - 4, 8)], is_cached).unwrap_err();
            assert!(error.kind() == Kind::Corrupt && error.to_string().contains("shorter"), "{error}");
        }
    }

    #[test]
    fn a_read_that_waits_makes_others_likely_to() {
        let file = HostFile::new(tempfile::tempfile().unwrap(), PathBuf::from("page"));
        file.write(0, &[7; 4096]).unwrap();
        file.sync().unwrap();
        file.forget_read();
        if file.read_cached(0, &mut [0; 99]) || file.is_untold.load(Relaxed) {
            return println!("skipped: the file system keeps all it has in memory, or does not say");
        }
        let mut out = [0; 99];
        file.read(0, &mut out).unwrap();
        assert_eq!(out, [7; 99]);
        assert!(file.read_cached(0, &mut out), "it is in memory now");
        // Other tests read, too, and do not wait.
        let is_noticed = || {
            file.forget_read();
            file.read(0, &mut [0; 99]).unwrap();
            waits::are_likely()
        };
        assert!((0..1000).any(|_| is_noticed()));
    }
}
