//! A file or a raw device as a block device.
//!
//! 1. Access is exclusive: devices are opened with `O_EXCL`, files are locked. [`FileDisk::look`] bypasses this, but is
//!    read-only.
//! 2. FUA uses the kernel's `RWF_DSYNC`, a flush is `fdatasync`. After either fails nothing more is written: the kernel
//!    may have dropped the data that was to be made durable.
//! 3. Zeros are holes if the file system or the device supports them.
//! 4. A file that has become shorter since it was opened is gone for good: if it were written again, its end would read
//!    as zeros. Each write checks the length before and after. Undetected are a file that is truncated and extended
//!    again between two calls, and a truncation between a check and a write that ends at the old end of the file.

use crate::trims::trims;
use crate::zones::{ioctl, open_alone, open_to_look};
use rustix::fs::{FallocateFlags, SeekFrom as Extent, fallocate, seek};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use std::fs::File;
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Error, Kind, Lba, Result, SECTOR_BYTES};

/// Zeros written by one call where holes are not supported.
static ZEROS: [u8; 256 * 1024] = [0; 256 * 1024];

/// A file or device as a disk; see the module.
pub struct FileDisk {
    file: File,
    path: PathBuf,
    sectors: u64,
    is_read_only: bool,
    trims: bool,
    is_poisoned: AtomicBool,
    is_gone: AtomicBool,
}

impl FileDisk {
    /// Opens a file or a device that nobody else is using. Bytes after the last whole sector are not used.
    pub fn open(path: &Path) -> Result<FileDisk> {
        FileDisk::on(open_alone(path)?, path)
    }

    /// Opens a file or a device read-only, even if it is in use, and without excluding others. A read that races with a
    /// write may return part of it.
    pub fn look(path: &Path) -> Result<FileDisk> {
        Ok(FileDisk { is_read_only: true, ..FileDisk::on(open_to_look(path)?, path)? })
    }

    /// Creates a sparse file of this size. [`Kind::Invalid`] if the path exists.
    pub fn create(path: &Path, bytes: u64) -> Result<FileDisk> {
        let made = File::options().read(true).write(true).create_new(true).open(path);
        let file = made.map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => Error::invalid(format!("{} exists already", path.display())),
            _ => Error::io(format!("create {}", path.display()), e),
        })?;
        let sized = file.set_len(bytes).map_err(|e| Error::io(format!("size {}", path.display()), e));
        sized.and_then(|()| FileDisk::open(path)).inspect_err(|_| {
            let _ = std::fs::remove_file(path); // The error that matters is the first.
        })
    }

    fn on(file: File, path: &Path) -> Result<FileDisk> {
        let bytes = length(&file).map_err(|e| said("measure", path, e))?;
        let trims = trims(&file).map_err(|e| said("ask about", path, e))?;
        Ok(FileDisk {
            file,
            path: path.to_path_buf(),
            sectors: bytes / SECTOR_BYTES as u64,
            is_read_only: false,
            trims,
            is_poisoned: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
        })
    }

    /// Fails, for good, once the file has been found shorter than it was.
    fn check_there(&self) -> Result<()> {
        if self.is_gone.load(Relaxed) {
            return Err(self.gone("it was cut short while it was in use"));
        }
        match length(&self.file) {
            Ok(bytes) if bytes / SECTOR_BYTES as u64 >= self.sectors => Ok(()),
            Ok(bytes) => Err(self.gone(&format!("it was cut short while it was in use, to {bytes} bytes"))),
            Err(e) => Err(self.gone(&e.to_string())),
        }
    }

    fn gone(&self, why: &str) -> Error {
        self.is_gone.store(true, Relaxed);
        Error::new(Kind::Gone, format!("{}: {why}", self.path.display()))
    }

    fn check_writable(&self) -> Result<()> {
        if self.is_read_only {
            return Err(Error::new(Kind::Unsupported, format!("{} is only looked at", self.path.display())));
        }
        self.check_there()?;
        match self.is_poisoned.load(Relaxed) {
            true => {
                Err(Error::new(Kind::Poisoned, format!("a flush of {} failed before", self.path.display())))
            }
            false => Ok(()),
        }
    }

    fn write_all(&self, mut bytes: &[u8], mut offset: u64, fua: bool) -> io::Result<()> {
        let flags = if fua { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
        while !bytes.is_empty() {
            match pwritev2(&self.file, &[IoSlice::new(bytes)], offset, flags) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = &bytes[written..];
                    offset += written as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// The allocation at a sector, and the sector where it ends. All is data if the file cannot tell.
    fn extent(&self, lba: Lba) -> (Allocation, u64) {
        let start = lba.0 * SECTOR_BYTES as u64;
        match seek(&self.file, Extent::Data(start)) {
            Ok(data) if data / SECTOR_BYTES as u64 > lba.0 => (Allocation::Hole, data / SECTOR_BYTES as u64),
            Err(Errno::NXIO) => (Allocation::Hole, self.sectors),
            Ok(data) => match seek(&self.file, Extent::Hole(data)) {
                Ok(hole) => (Allocation::Data, hole.div_ceil(SECTOR_BYTES as u64)),
                Err(_) => (Allocation::Data, self.sectors),
            },
            Err(_) => (Allocation::Data, self.sectors),
        }
    }

    /// Punches a hole, which reads as zeros; fails where that would have to be done by writing.
    fn punch(&self, lba: Lba, sectors: u64) -> rustix::io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, flags, lba.0 * SECTOR_BYTES as u64, sectors * SECTOR_BYTES as u64)
    }

    fn zero(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.info().check_range(lba, sectors)?;
        self.check_writable()?;
        if sectors == 0 {
            return Ok(());
        }
        let (start, bytes) = (lba.0 * SECTOR_BYTES as u64, sectors * SECTOR_BYTES as u64);
        match self.punch(lba, sectors) {
            Ok(()) if fua => self.flush(),
            Ok(()) => self.check_there(),
            Err(_) => {
                let step = ZEROS.len() as u64;
                (0..bytes).step_by(ZEROS.len()).try_for_each(|at| {
                    let zeros = &ZEROS[..step.min(bytes - at) as usize];
                    self.write(Lba((start + at) / SECTOR_BYTES as u64), zeros, fua)
                })
            }
        }
    }
}

impl BlockDevice for FileDisk {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { sectors: self.sectors, read_only: self.is_read_only, trims: self.trims }
    }

    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        self.info().check_buffer(lba, buf.len())?;
        let offset = lba.0 * SECTOR_BYTES as u64;
        if self.is_gone.load(Relaxed) {
            return self.check_there();
        }
        self.file.read_exact_at(buf, offset).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => self.gone("it was cut short while it was in use"),
            _ => said("read", &self.path, e),
        })
    }

    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        self.info().check_buffer(lba, data.len())?;
        self.check_writable()?;
        let offset = lba.0 * SECTOR_BYTES as u64;
        self.write_all(data, offset, fua).map_err(|e| said("write", &self.path, e))?;
        self.check_there()
    }

    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.zero(lba, sectors, false)
    }

    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.zero(lba, sectors, fua)
    }

    fn discard(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.info().check_range(lba, sectors)?;
        self.check_writable()?;
        if sectors == 0 {
            return Ok(());
        }
        let (start, bytes) = (lba.0 * SECTOR_BYTES as u64, sectors * SECTOR_BYTES as u64);
        let result = match ioctl::discard(&self.file, start, bytes) {
            Err(Errno::NOTTY) => self.punch(lba, sectors),
            result => result,
        };
        match result {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                let why = format!("{} cannot unmap what is not needed any more", self.path.display());
                Err(Error::new(Kind::Unsupported, why))
            }
            result => result.map_err(|errno| said("discard sectors of", &self.path, errno.into())),
        }
    }

    fn flush(&self) -> Result<()> {
        self.check_writable()?;
        self.file.sync_data().map_err(|e| {
            self.is_poisoned.store(true, Relaxed);
            said("sync", &self.path, e)
        })?;
        self.check_there()
    }

    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.info().check_range(lba, sectors)?;
        let (kind, end) = self.extent(lba);
        self.check_there()?; // Beyond the end of a file everything is a hole.
        Ok((kind, end.saturating_sub(lba.0).clamp(1, sectors.max(1))))
    }
}

/// The length of a file or a device; 0 for a device that has been unplugged.
fn length(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}

fn said(what: &str, path: &Path, e: io::Error) -> Error {
    Error::io(format!("{what} {}", path.display()), e)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_what_was_written_and_has_one_user() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        let disk = FileDisk::create(&path, 10 * SECTOR_BYTES as u64 + 5).unwrap();
        assert_eq!(disk.info().sectors, 10);
        assert_eq!(FileDisk::create(&path, 4096).err().unwrap().kind(), Kind::Invalid);
        assert_eq!(FileDisk::open(&path).err().unwrap().kind(), Kind::Busy);
        disk.write(Lba(2), &[7; 3 * SECTOR_BYTES], true).unwrap();
        disk.write_zeroes(Lba(3), 1, true).unwrap();
        disk.trim(Lba(9), 1).unwrap();
        assert!(disk.write(Lba(9), &[1; 2 * SECTOR_BYTES], false).is_err(), "beyond the end");
        disk.flush().unwrap();
        drop(disk);
        let disk = FileDisk::open(&path).unwrap();
        let mut out = [9; 5 * SECTOR_BYTES];
        disk.read(Lba(1), &mut out).unwrap();
        let firsts: Vec<u8> = out.chunks(SECTOR_BYTES).map(|sector| sector[0]).collect();
        assert_eq!(firsts, [0, 7, 0, 7, 0]);
    }

    #[test]
    fn what_is_discarded_takes_no_room_and_can_be_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let disk = FileDisk::create(&dir.path().join("d"), 4 << 20).unwrap();
        let blocks = || std::os::unix::fs::MetadataExt::blocks(&disk.file.metadata().unwrap());
        let data = vec![7; 512 * SECTOR_BYTES];
        disk.write(Lba(256), &data, true).unwrap();
        let before = blocks();
        disk.discard(Lba(256), 256).unwrap();
        disk.discard(Lba(900), 0).unwrap();
        assert!(blocks() <= before - 1024, "{} of {before} blocks", blocks());
        assert_eq!(disk.discard(Lba(1000), 25).unwrap_err().kind(), Kind::Invalid);
        let mut out = vec![0; 512 * SECTOR_BYTES];
        disk.read(Lba(256), &mut out).unwrap();
        assert!(out[256 * SECTOR_BYTES..].iter().all(|byte| *byte == 7), "what lies beside is there");
        disk.write(Lba(256), &data, false).unwrap();
        disk.read(Lba(256), &mut out).unwrap();
        assert!(out == data);
    }

    #[test]
    fn a_file_that_is_cut_short_is_gone_for_good_and_never_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        let size = |bytes| File::options().write(true).open(&path).unwrap().set_len(bytes).unwrap();
        let mut out = [0; SECTOR_BYTES];
        type Call = fn(&FileDisk, &mut [u8]) -> Result<()>;
        let calls: [Call; 6] = [
            |disk, out| disk.read(Lba(9), out),
            |disk, _| disk.write(Lba(9), &[1; SECTOR_BYTES], false),
            |disk, _| disk.write(Lba(1), &[1; SECTOR_BYTES], true),
            |disk, _| disk.flush(),
            |disk, _| disk.trim(Lba(9), 1),
            |disk, _| disk.allocation(Lba(9), 1).map(drop),
        ];
        for call in calls {
            let disk = FileDisk::create(&path, 10 * SECTOR_BYTES as u64).unwrap();
            disk.write(Lba(8), &[7; SECTOR_BYTES], false).unwrap();
            disk.read(Lba(9), &mut out).unwrap();
            size(4 * SECTOR_BYTES as u64);
            assert_eq!(call(&disk, &mut out).unwrap_err().kind(), Kind::Gone);
            assert_eq!(path.metadata().unwrap().len(), 4 * SECTOR_BYTES as u64, "nothing was written");
            size(10 * SECTOR_BYTES as u64);
            for again in calls {
                assert_eq!(again(&disk, &mut out).unwrap_err().kind(), Kind::Gone);
            }
            std::fs::remove_file(&path).unwrap();
        }
    }

    /// A pipe without a writer must not be opened, which would block: if one is named by mistake, that is an error.
    #[test]
    fn what_is_no_file_and_no_block_device_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("p");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        for path in [&*pipe, dir.path(), Path::new("/dev/null")] {
            for opened in [FileDisk::open(path), FileDisk::look(path)] {
                let error = opened.map(drop).unwrap_err();
                assert_eq!(error.kind(), Kind::Io);
                assert!(error.to_string().contains("neither a file nor a block device"), "{error}");
            }
        }
    }

    #[test]
    fn a_file_knows_its_holes() {
        let dir = tempfile::tempdir().unwrap();
        let disk = FileDisk::create(&dir.path().join("d"), 1 << 20).unwrap();
        assert_eq!(disk.allocation(Lba(3), 200).unwrap(), (Allocation::Hole, 200));
        disk.write(Lba(64), &[7; 16 * SECTOR_BYTES], false).unwrap();
        // File systems allocate in units of their own: what was written is data, but nothing far from it.
        let (kind, alike) = disk.allocation(Lba(64), 100).unwrap();
        assert!(kind == Allocation::Data && (16..100).contains(&alike), "{kind:?} {alike}");
        let (kind, alike) = disk.allocation(Lba(0), 256).unwrap();
        assert!(kind == Allocation::Hole && (32..=64).contains(&alike), "{kind:?} {alike}");
        assert_eq!(disk.allocation(Lba(200), 56).unwrap(), (Allocation::Hole, 56));
        assert!(disk.allocation(Lba(200), 57).is_err(), "beyond the end");
    }
}
