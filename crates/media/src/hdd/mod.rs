//! A timing model of hard disks: a decorator that delays the calls of a block device as a drive would.
//!
//! A call changes the device below at once and returns when the drive would be done: a sleep in virtual time, pacing in
//! production. The drive has no write cache, so a flush costs only the controller's overhead, and FUA nothing. Trims
//! and zeroing are served as writes.

mod model;

pub use model::{Drive, HddModel};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::sync::Mutex;
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Env, Error, Lba, Nanos, Result, SECTOR_BYTES};

/// A block device as slow as a hard disk.
pub struct Hdd<D> {
    inner: D,
    env: Arc<dyn Env>,
    drive: Mutex<Drive>,
    reads: AtomicU64,
    writes: AtomicU64,
}

/// Statistics of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HddReport {
    /// Reads served.
    pub reads: u64,
    /// Writes served.
    pub writes: u64,
    /// Time it was busy.
    pub busy: Nanos,
}

impl<D: BlockDevice> Hdd<D> {
    /// Puts a drive of this model in front of `inner`.
    ///
    /// # Errors
    /// [`vellum_base::Kind::Invalid`] if `inner` is larger than the drive.
    pub fn new(inner: D, env: Arc<dyn Env>, model: HddModel) -> Result<Hdd<D>> {
        if inner.info().sectors > model.sectors {
            let (has, of) = (inner.info().sectors, model.sectors);
            return Err(Error::invalid(format!("a device of {has} sectors on a drive of {of}")));
        }
        let drive = Mutex::new(Drive::new(model));
        Ok(Hdd { inner, env, drive, reads: AtomicU64::new(0), writes: AtomicU64::new(0) })
    }

    /// Its statistics so far.
    pub fn report(&self) -> HddReport {
        HddReport {
            reads: self.reads.load(Relaxed),
            writes: self.writes.load(Relaxed),
            busy: self.drive.lock().busy,
        }
    }

    /// Sleeps until the drive would be done with a request. Returns at once for one of no sectors.
    fn serve(&self, lba: Lba, sectors: u64, is_write: bool) {
        if sectors == 0 {
            return;
        }
        let counter = if is_write { &self.writes } else { &self.reads };
        counter.fetch_add(1, Relaxed);
        let done = self.drive.lock().serve(self.env.now(), lba.0, sectors, is_write);
        self.env.sleep_until(done);
    }

    fn answer(&self) {
        let done = self.drive.lock().answer(self.env.now());
        self.env.sleep_until(done);
    }
}

impl<D: BlockDevice> BlockDevice for Hdd<D> {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { trims: false, ..self.inner.info() }
    }

    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        self.inner.read(lba, buf)?;
        self.serve(lba, (buf.len() / SECTOR_BYTES) as u64, false);
        Ok(())
    }

    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        self.inner.write(lba, data, fua)?;
        self.serve(lba, (data.len() / SECTOR_BYTES) as u64, true);
        Ok(())
    }

    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.inner.trim(lba, sectors)?;
        self.serve(lba, sectors, true);
        Ok(())
    }

    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.inner.write_zeroes(lba, sectors, fua)?;
        self.serve(lba, sectors, true);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()?;
        self.answer();
        Ok(())
    }

    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.inner.allocation(lba, sectors)
    }
}
