//! Whether a file or a block device can zero a long range without writing it.
//!
//! 1. The check changes no content: of a file, it punches a hole beyond the end; of a device, it reads the queue's
//!    attributes.
//! 2. If in doubt the answer is no: callers that rely on a yes would wait for every sector to be written.

use rustix::fs::{FallocateFlags, fallocate, major, minor};
use std::fs::{File, read_to_string};
use std::io::{self, Result};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

const HOLE_BYTES: u64 = 4096;

/// See the module. False for a file that is open for reading only.
pub(crate) fn trims(file: &File) -> Result<bool> {
    let metadata = file.metadata()?;
    match metadata.file_type().is_block_device() {
        true => Ok(queue_trims(&queue_of(metadata.rdev()))),
        false => Ok(punches(file, metadata.len())),
    }
}

/// Punches a hole beyond the end, where nothing is lost; the file system still reports whether it supports holes.
fn punches(file: &File, bytes: u64) -> bool {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, flags, bytes.next_multiple_of(HOLE_BYTES), HOLE_BYTES).is_ok()
}

/// The directory in which the kernel describes a device's request queue: that of the disk for a partition.
fn queue_of(device: u64) -> PathBuf {
    let own = Path::new("/sys/dev/block").join(format!("{}:{}", major(device), minor(device)));
    let queue = own.join("queue");
    if queue.exists() { queue } else { own.join("../queue") }
}

/// Whether a device both unmaps and has a request that zeroes. With only the second it is a disk that writes the zeros
/// itself (`WRITE SAME`). With only the first the content after an unmap is undefined, so zeros have to be written.
fn queue_trims(queue: &Path) -> bool {
    let most = |name: &str| {
        let said =
            read_to_string(queue.join(name)).and_then(|text| text.trim().parse().map_err(io::Error::other));
        said.unwrap_or(0u64)
    };
    most("discard_max_bytes") > 0 && most("write_zeroes_max_bytes") > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_trims_if_its_file_system_punches_holes_and_loses_nothing_by_the_question() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, [7; 10_000]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        assert!(trims(&file).unwrap(), "the file system of the tests has holes");
        assert!(std::fs::read(&path).unwrap() == [7; 10_000]);
        assert!(!trims(&File::open(&path).unwrap()).unwrap(), "not what is only read");
        // A file that can be written, on a file system without holes.
        let own = File::options().read(true).write(true).open("/proc/self/oom_score_adj").unwrap();
        assert!(!trims(&own).unwrap());
    }

    #[test]
    fn a_device_trims_if_it_unmaps_and_then_reads_as_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let says = |discard: &str, zeroes: &str| {
            std::fs::write(dir.path().join("discard_max_bytes"), discard).unwrap();
            std::fs::write(dir.path().join("write_zeroes_max_bytes"), zeroes).unwrap();
            queue_trims(dir.path())
        };
        assert!(says("2147450880\n", "2147450880\n"));
        assert!(!says("0\n", "0\n"), "a hard disk");
        assert!(!says("0\n", "33553920\n"), "a hard disk that repeats a sector by itself");
        assert!(!says("2147450880\n", "0\n"), "a drive that does not promise zeros");
        assert!(!says("many\n", "1\n"));
        assert!(!queue_trims(&dir.path().join("none")), "a kernel that does not say");
    }
}
