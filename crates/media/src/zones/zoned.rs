//! The kernel's host-managed zoned block devices: SMR disks, ZNS drives, `null_blk` with `zoned=1`.
//!
//! Writes bypass the page cache, which would not preserve their order. Conventional zones are not used, nor are zones
//! whose length differs from that of the first, such as the last of a device.

use super::ioctl;
use super::pointers::Pointers;
use super::raw::{open_alone, open_shared, said};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use vellum_base::sync::Mutex;
use vellum_base::{Error, Kind, Result, Syncing, ZoneReport, Zones, ZonesShape};

const UNIT_BYTES: u32 = 4096;
/// Maximum number of bytes per write, and size of the bounce buffer.
const WRITE_BYTES: usize = 1 << 20;

/// A zoned block device; see the module.
pub struct ZonedDevice {
    /// For reading, through the page cache.
    file: File,
    /// For writing, bypassing it.
    direct: File,
    path: PathBuf,
    shape: ZonesShape,
    /// The zones that are used, in their state when the device was opened.
    zones: Vec<ioctl::Zone>,
    pointers: Mutex<Pointers>,
    bounce: Mutex<Aligned>,
    syncing: Syncing,
}

impl ZonedDevice {
    /// Opens a zoned block device, which must not be in use by others.
    pub fn open(path: &Path) -> Result<ZonedDevice> {
        let file = open_alone(path)?;
        let direct = open_direct(path)?;
        ZonedDevice::on(file, direct, path)
    }

    /// Opens it read-only; others may read it at the same time.
    pub fn open_read_only(path: &Path) -> Result<ZonedDevice> {
        let file = open_shared(path)?;
        let again = file.try_clone().map_err(|e| said("open", path, e))?;
        ZonedDevice::on(file, again, path)
    }

    fn on(file: File, direct: File, path: &Path) -> Result<ZonedDevice> {
        let all = ioctl::report(&file).map_err(|e| said("ask for the zones of", path, e.into()))?;
        let zones = alike(all);
        if zones.is_empty() {
            let what = format!("{} has no zones: it is an ordinary device", path.display());
            return Err(Error::new(Kind::Unsupported, what));
        }
        let shape = shape_of(&zones, open_limit(path));
        let reports = zones.iter().map(|zone| report_of(zone, shape.zone_bytes)).collect();
        Ok(ZonedDevice {
            file,
            direct,
            path: path.to_path_buf(),
            shape,
            zones,
            pointers: Mutex::new(Pointers::new(shape, reports)),
            bounce: Mutex::new(Aligned::new()),
            syncing: Syncing::default(),
        })
    }

    fn at(&self, zone: u32, offset: u64) -> u64 {
        self.zones[zone as usize].start_bytes + offset
    }

    fn said(&self, what: &str) -> impl FnOnce(std::io::Error) -> Error {
        let what = format!("{what} {}", self.path.display());
        move |e| Error::io(what, e)
    }
}

impl Zones for ZonedDevice {
    fn shape(&self) -> ZonesShape {
        self.shape
    }

    fn report(&self, zone: u32) -> ZoneReport {
        self.pointers.lock().report(zone)
    }

    fn write(&self, zone: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        self.pointers.lock().check_write(zone, offset, bytes.len())?;
        let mut at = offset;
        for piece in bytes.chunks(WRITE_BYTES) {
            let mut bounce = self.bounce.lock();
            let aligned = bounce.fill(piece);
            let to = self.at(zone, at);
            self.direct.write_all_at(aligned, to).map_err(self.said("write"))?;
            at += piece.len() as u64;
            self.pointers.lock().set_written(zone, at);
        }
        Ok(())
    }

    fn read(&self, zone: u32, offset: u64, out: &mut [u8]) -> Result<()> {
        self.pointers.lock().check_read(zone, offset, out.len())?;
        self.file.read_exact_at(out, self.at(zone, offset)).map_err(self.said("read"))
    }

    fn finish(&self, zone: u32) -> Result<()> {
        let report = self.pointers.lock().check_zone(zone)?;
        let range = self.zones[zone as usize];
        if report.written == 0 || report.written >= range.capacity_bytes {
            return Ok(());
        }
        match ioctl::finish(&self.direct, range.start_bytes, range.length_bytes) {
            // Kernels before 5.5 do not support this; the zone stays open then.
            Err(rustix::io::Errno::NOTTY | rustix::io::Errno::OPNOTSUPP) => return Ok(()),
            done => done.map_err(|e| self.said("finish a zone of")(e.into()))?,
        }
        self.pointers.lock().set_written(zone, self.shape.zone_bytes);
        Ok(())
    }

    fn reset(&self, zone: u32) -> Result<()> {
        self.pointers.lock().check_zone(zone)?;
        let range = self.zones[zone as usize];
        ioctl::reset(&self.direct, range.start_bytes, range.length_bytes)
            .map_err(|e| self.said("reset a zone of")(e.into()))?;
        self.pointers.lock().set_written(zone, 0);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.syncing.run(|| self.direct.sync_data().map_err(self.said("sync")))
    }
}

fn open_direct(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(OFlags::DIRECT.bits() as i32);
    options.open(path).map_err(|e| said("open", path, e))
}

/// Sequential zones of the same length as the first.
fn alike(all: Vec<ioctl::Zone>) -> Vec<ioctl::Zone> {
    let mut zones: Vec<_> = all.into_iter().filter(|zone| zone.is_sequential).collect();
    let length_bytes = zones.first().map_or(0, |first| first.length_bytes);
    zones.retain(|zone| zone.length_bytes == length_bytes);
    zones
}

/// The common shape: a zone has the smallest capacity of all.
fn shape_of(zones: &[ioctl::Zone], open_max: Option<u32>) -> ZonesShape {
    let unit_bytes = u64::from(UNIT_BYTES);
    let capacity_bytes = zones.iter().map(|zone| zone.capacity_bytes).min().unwrap_or(0);
    ZonesShape {
        zones: zones.len() as u32,
        zone_bytes: capacity_bytes / unit_bytes * unit_bytes,
        unit_bytes: UNIT_BYTES,
        open_max,
    }
}

fn report_of(zone: &ioctl::Zone, zone_bytes: u64) -> ZoneReport {
    ZoneReport {
        written: if zone.is_full { zone_bytes } else { zone.written_bytes.min(zone_bytes) },
        is_writable: zone.is_writable,
    }
}

/// The maximum number of partly written zones at a time: the smaller of the kernel's limits on open zones, and on zones
/// that are open or were closed before they were full. 0 means no limit.
fn open_limit(path: &Path) -> Option<u32> {
    let limit = |name| attribute(path, name)?.parse().ok().filter(|max| *max > 0);
    ["max_open_zones", "max_active_zones"].into_iter().filter_map(limit).min()
}

/// True for a block device whose zones must be written sequentially. It is not cut into zones of other sizes.
pub fn is_zoned(path: &Path) -> bool {
    attribute(path, "zoned").is_some_and(|zoned| zoned == "host-managed")
}

fn attribute(path: &Path, name: &str) -> Option<String> {
    let device = std::fs::canonicalize(path).ok()?;
    let queue = Path::new("/sys/class/block").join(device.file_name()?).join("queue");
    Some(std::fs::read_to_string(queue.join(name)).ok()?.trim().to_string())
}

/// A buffer aligned to a unit, as direct I/O requires.
struct Aligned(Vec<u8>);

impl Aligned {
    fn new() -> Aligned {
        Aligned(vec![0; WRITE_BYTES + UNIT_BYTES as usize])
    }

    fn fill(&mut self, bytes: &[u8]) -> &[u8] {
        let skip = self.0.as_ptr().align_offset(UNIT_BYTES as usize);
        let aligned = &mut self.0[skip..skip + bytes.len()];
        aligned.copy_from_slice(bytes);
        aligned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(number: u64, length_kib: u64, capacity_kib: u64) -> ioctl::Zone {
        ioctl::Zone {
            start_bytes: number << 20,
            length_bytes: length_kib << 10,
            capacity_bytes: capacity_kib << 10,
            written_bytes: 0,
            is_sequential: true,
            is_writable: true,
            is_full: false,
        }
    }

    #[test]
    fn zones_of_another_length_and_conventional_ones_are_left_out() {
        let conventional = ioctl::Zone { is_sequential: false, ..zone(0, 1024, 1024) };
        let used = [zone(1, 1024, 1001), zone(2, 1024, 1024)];
        let kept = alike(vec![conventional, used[0], used[1], zone(3, 100, 100)]);
        assert_eq!(kept, used);
        let shape = shape_of(&kept, Some(4));
        assert_eq!((shape.zones, shape.zone_bytes, shape.open_max), (2, 1000 << 10, Some(4)), "whole units");
        assert_eq!(alike(vec![conventional]), []);
    }

    #[test]
    fn reports_are_within_what_fits_in_every_zone() {
        let written = |written_kib: u64, is_full| {
            let zone = ioctl::Zone { written_bytes: written_kib << 10, is_full, ..zone(1, 1024, 1024) };
            report_of(&zone, 1000 << 10).written >> 10
        };
        let all = [(0, false), (8, false), (1004, false), (1024, true), (0, true)];
        assert_eq!(all.map(|(kib, is_full)| written(kib, is_full)), [0, 8, 1000, 1000, 1000]);
    }
}
