//! The kernel's host-managed zoned block devices: SMR disks, ZNS drives, `null_blk` with `zoned=1`.
//!
//! Writes go around the page cache, which would not keep their order. Conventional zones are not used.

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
/// Bytes written at a time: a bounce buffer of so many is kept.
const WRITE_BYTES: usize = 1 << 20;

/// See the module.
pub struct ZonedDevice {
    /// To read, through the page cache.
    file: File,
    /// To write, past it.
    direct: File,
    path: PathBuf,
    shape: ZonesShape,
    /// Where each sequential zone begins, in bytes.
    starts: Vec<u64>,
    /// From one zone to the next.
    stride_bytes: u64,
    pointers: Mutex<Pointers>,
    bounce: Mutex<Aligned>,
    syncing: Syncing,
}

impl ZonedDevice {
    /// Opens a zoned block device, which nobody else may have in use.
    pub fn open(path: &Path) -> Result<ZonedDevice> {
        let file = open_alone(path)?;
        let direct = open_direct(path)?;
        ZonedDevice::on(file, direct, path)
    }

    /// Opens it for reading only; others may read it meanwhile, too.
    pub fn open_read_only(path: &Path) -> Result<ZonedDevice> {
        let file = open_shared(path)?;
        let again = file.try_clone().map_err(|e| said("open", path, e))?;
        ZonedDevice::on(file, again, path)
    }

    fn on(file: File, direct: File, path: &Path) -> Result<ZonedDevice> {
        let all = ioctl::report(&file).map_err(|e| said("ask for the zones of", path, e.into()))?;
        let zones: Vec<_> = all.into_iter().filter(|zone| zone.is_sequential).collect();
        let Some(first) = zones.first().copied() else {
            let what = format!("{} has no zones: it is an ordinary device", path.display());
            return Err(Error::new(Kind::Unsupported, what));
        };
        let zone_bytes = zones.iter().map(|zone| zone.capacity_bytes).min().unwrap_or(0);
        let zone_bytes = zone_bytes / u64::from(UNIT_BYTES) * u64::from(UNIT_BYTES);
        let open_max = open_limit(path);
        let shape = ZonesShape { zones: zones.len() as u32, zone_bytes, unit_bytes: UNIT_BYTES, open_max };
        let report = |zone: &ioctl::Zone| ZoneReport {
            written: if zone.is_full { zone_bytes } else { zone.written_bytes.min(zone_bytes) },
            is_writable: zone.is_writable,
        };
        Ok(ZonedDevice {
            file,
            direct,
            path: path.to_path_buf(),
            shape,
            starts: zones.iter().map(|zone| zone.start_bytes).collect(),
            stride_bytes: first.length_bytes,
            pointers: Mutex::new(Pointers::new(shape, zones.iter().map(report).collect())),
            bounce: Mutex::new(Aligned::new()),
            syncing: Syncing::default(),
        })
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
            let to = self.starts[zone as usize] + at;
            self.direct.write_all_at(aligned, to).map_err(self.said("write"))?;
            at += piece.len() as u64;
            self.pointers.lock().set_written(zone, at);
        }
        Ok(())
    }

    fn read(&self, zone: u32, offset: u64, out: &mut [u8]) -> Result<()> {
        self.pointers.lock().check_read(zone, offset, out.len())?;
        self.file.read_exact_at(out, self.starts[zone as usize] + offset).map_err(self.said("read"))
    }

    fn finish(&self, zone: u32) -> Result<()> {
        let report = self.pointers.lock().check_zone(zone)?;
        if report.written == 0 || report.written == self.shape.zone_bytes {
            return Ok(());
        }
        let range = (self.starts[zone as usize], self.stride_bytes);
        match ioctl::finish(&self.direct, range.0, range.1) {
            // Kernels before 5.5 cannot; then the zone stays open.
            Err(rustix::io::Errno::NOTTY | rustix::io::Errno::OPNOTSUPP) => return Ok(()),
            done => done.map_err(|e| self.said("finish a zone of")(e.into()))?,
        }
        self.pointers.lock().set_written(zone, self.shape.zone_bytes);
        Ok(())
    }

    fn reset(&self, zone: u32) -> Result<()> {
        self.pointers.lock().check_zone(zone)?;
        ioctl::reset(&self.direct, self.starts[zone as usize], self.stride_bytes)
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

/// Most zones that may be open at a time, as the kernel says; 0 there is no limit.
fn open_limit(path: &Path) -> Option<u32> {
    attribute(path, "max_open_zones")?.parse().ok().filter(|max| *max > 0)
}

/// True for a block device that has to be written zone by zone.
pub(super) fn is_zoned(path: &Path) -> bool {
    attribute(path, "zoned").is_some_and(|zoned| zoned == "host-managed")
}

fn attribute(path: &Path, name: &str) -> Option<String> {
    let device = std::fs::canonicalize(path).ok()?;
    let queue = Path::new("/sys/class/block").join(device.file_name()?).join("queue");
    Some(std::fs::read_to_string(queue.join(name)).ok()?.trim().to_string())
}

/// Bytes where direct I/O wants them: at a multiple of a unit.
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
