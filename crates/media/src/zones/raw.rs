//! A partition or a file, split into zones of equal size.
//!
//! A reset punches a hole over the zone if the device supports that. Otherwise the zone is discarded, if supported, and
//! its first unit is overwritten with zeros. Write pointers are not stored.

use super::pointers::Pointers;
use super::{equal_zones, ioctl};
use crate::reason;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use vellum_base::sync::Mutex;
use vellum_base::{Error, Kind, Result, Syncing, ZoneReport, Zones, ZonesShape};

const UNIT_BYTES: u32 = 4096;

/// Zones on a partition or a file; see the module.
pub struct RawDevice {
    file: File,
    path: PathBuf,
    shape: ZonesShape,
    pointers: Mutex<Pointers>,
    syncing: Syncing,
}

impl RawDevice {
    /// Opens a partition or a file, which must not be in use by others, as zones of `zone_bytes`. The rest at its end
    /// is not used.
    pub fn open(path: &Path, zone_bytes: u64) -> Result<RawDevice> {
        RawDevice::on(open_alone(path)?, path, zone_bytes)
    }

    /// Opens it read-only; others may read it at the same time.
    pub fn open_read_only(path: &Path, zone_bytes: u64) -> Result<RawDevice> {
        RawDevice::on(open_shared(path)?, path, zone_bytes)
    }

    fn on(file: File, path: &Path, zone_bytes: u64) -> Result<RawDevice> {
        let bytes = (&file).seek(SeekFrom::End(0)).map_err(|e| said("measure", path, e))?;
        let shape = equal_zones(bytes, zone_bytes)?;
        let mut reports = Vec::new();
        for zone in 0..shape.zones {
            // An unreadable zone is not blank: a reset rewrites it, which heals most sectors.
            let blank = is_blank(&file, u64::from(zone) * zone_bytes).unwrap_or(false);
            reports.push(ZoneReport { written: if blank { 0 } else { zone_bytes }, is_writable: true });
        }
        let pointers = Mutex::new(Pointers::new(shape, reports));
        Ok(RawDevice { file, path: path.to_path_buf(), shape, pointers, syncing: Syncing::default() })
    }

    fn at(&self, zone: u32, offset: u64) -> u64 {
        u64::from(zone) * self.shape.zone_bytes + offset
    }

    /// Punches a hole over the zone, which then reads as zeros; false if that is not supported.
    fn punch(&self, zone: u32) -> Result<bool> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, self.at(zone, 0), self.shape.zone_bytes) {
            Ok(()) => Ok(true),
            Err(e) if is_refused(e) => Ok(false),
            Err(e) => Err(said("reset a zone of", &self.path, e.into())),
        }
    }

    /// Blanks a zone where holes are not supported. Discards are best effort, and do not promise zeros, so the first
    /// unit is written.
    fn blank(&self, zone: u32) -> Result<()> {
        let _ = ioctl::discard(&self.file, self.at(zone, 0), self.shape.zone_bytes);
        let blank = [0; UNIT_BYTES as usize];
        self.file.write_all_at(&blank, self.at(zone, 0)).map_err(|e| said("write", &self.path, e))
    }
}

/// True if a hole cannot be punched here, or not now: that takes space itself if it splits an extent of the file
/// system.
fn is_refused(error: Errno) -> bool {
    matches!(error, Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOSPC | Errno::DQUOT)
}

impl Zones for RawDevice {
    fn shape(&self) -> ZonesShape {
        self.shape
    }

    fn report(&self, zone: u32) -> ZoneReport {
        self.pointers.lock().report(zone)
    }

    fn write(&self, zone: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        self.pointers.lock().check_write(zone, offset, bytes.len())?;
        self.file.write_all_at(bytes, self.at(zone, offset)).map_err(|e| said("write", &self.path, e))?;
        self.pointers.lock().set_written(zone, offset + bytes.len() as u64);
        Ok(())
    }

    fn read(&self, zone: u32, offset: u64, out: &mut [u8]) -> Result<()> {
        self.pointers.lock().check_read(zone, offset, out.len())?;
        self.file.read_exact_at(out, self.at(zone, offset)).map_err(|e| said("read", &self.path, e))
    }

    fn finish(&self, zone: u32) -> Result<()> {
        self.pointers.lock().check_zone(zone).map(drop)
    }

    fn reset(&self, zone: u32) -> Result<()> {
        self.pointers.lock().check_zone(zone)?;
        if !self.punch(zone)? {
            self.blank(zone)?;
        }
        self.pointers.lock().set_written(zone, 0);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.syncing.run(|| self.file.sync_data().map_err(|e| said("sync", &self.path, e)))
    }
}

/// Opens a file or a block device for reading and writing. [`Kind::Busy`] if the device is mounted, or the file is
/// locked. A device that is set read-only fails now rather than at the first write.
pub(crate) fn open_alone(path: &Path) -> Result<File> {
    let is_device = check_kind(path)?;
    let exclusive = if is_device { OFlags::EXCL } else { OFlags::empty() };
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(exclusive.bits() as i32);
    let file = match options.open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => return Err(busy(path)),
        opened => opened.map_err(|e| said("open", path, e))?,
    };
    if is_device && ioctl::is_read_only(&file).map_err(|e| said("ask about", path, e.into()))? {
        return Err(said("write to", path, std::io::ErrorKind::ReadOnlyFilesystem.into()));
    }
    locked(file.try_lock(), file, path)
}

/// Opens a file or a block device for reading; fails if somebody has it open for writing.
pub(super) fn open_shared(path: &Path) -> Result<File> {
    let file = open_to_look(path)?;
    locked(file.try_lock_shared(), file, path)
}

/// Opens a file or a block device for reading, even if it is being written.
pub(crate) fn open_to_look(path: &Path) -> Result<File> {
    check_kind(path)?;
    File::open(path).map_err(|e| said("open", path, e))
}

/// Whether it is a block device. An error if it is not a file either: opening a pipe could block forever.
fn check_kind(path: &Path) -> Result<bool> {
    let kind = std::fs::metadata(path).map_err(|e| said("open", path, e))?.file_type();
    match kind.is_block_device() {
        false if !kind.is_file() => {
            Err(Error::new(Kind::Io, format!("{} is neither a file nor a block device", path.display())))
        }
        is_device => Ok(is_device),
    }
}

fn locked(how: Result<(), TryLockError>, file: File, path: &Path) -> Result<File> {
    match how {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(busy(path)),
        Err(TryLockError::Error(e)) => Err(said("lock", path, e)),
    }
}

fn busy(path: &Path) -> Error {
    Error::new(Kind::Busy, format!("{} is in use by something else", path.display()))
        .because(reason::DEVICE_IN_USE)
}

pub(super) fn said(what: &str, path: &Path, e: std::io::Error) -> Error {
    Error::io(format!("{what} {}", path.display()), e)
}

fn is_blank(file: &File, at: u64) -> std::io::Result<bool> {
    let mut unit = [0; UNIT_BYTES as usize];
    file.read_exact_at(&mut unit, at)?;
    Ok(unit.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_that_becomes_no_hole_is_blank_where_it_begins() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4 << 14).unwrap();
        let open = || RawDevice::open(file.path(), 1 << 14).unwrap();
        let zones = open();
        zones.write(2, 0, &[7; 1 << 14]).unwrap();
        zones.blank(2).unwrap();
        drop(zones);
        assert_eq!(open().report(2).written, 0);
        let bytes = std::fs::read(file.path()).unwrap();
        assert!(bytes[2 << 14..][..4096] == [0; 4096] && bytes[2 << 14..][4096..1 << 14] == [7; 12288]);
    }

    #[test]
    fn no_room_for_a_hole_is_no_error() {
        assert!([Errno::OPNOTSUPP, Errno::NOSYS, Errno::NOSPC, Errno::DQUOT].into_iter().all(is_refused));
        assert!(![Errno::IO, Errno::NODEV, Errno::PERM].into_iter().any(is_refused));
    }
}
