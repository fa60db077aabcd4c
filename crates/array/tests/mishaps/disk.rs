//! A disk that fails as it is told.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Error, Kind, Lba, Result, SECTOR_BYTES};
use vellum_media::RamDisk;

/// What goes wrong from now on.
#[derive(Default)]
pub(super) struct Faults {
    /// No write is done.
    pub writes: bool,
    /// No flush is.
    pub flushes: bool,
    /// Sectors that cannot be read until they are written.
    pub unread: BTreeSet<u64>,
    /// Sectors that can neither be read nor written.
    pub worn_out: BTreeSet<u64>,
    /// Sectors that can be read, and not be written.
    pub unwritten: BTreeSet<u64>,
    /// The change that fails, 1 is the next; 0: none.
    pub nth: u64,
    /// A change that fails is done all the same, and can be read from then on.
    pub lands: bool,
}

impl Faults {
    /// Whether a change of these sectors fails, or a flush, which has none.
    fn check_change(&mut self, sectors: Range<u64>) -> Result<()> {
        let is_among = |some: &BTreeSet<u64>| some.range(sectors.clone()).next().is_some();
        let is_bad = match sectors.is_empty() {
            true => self.flushes,
            false => self.writes || is_among(&self.worn_out) || is_among(&self.unwritten),
        };
        let is_chosen = self.nth == 1;
        self.nth = self.nth.saturating_sub(1);
        if is_bad || is_chosen {
            return Err(Error::new(Kind::Io, "it fails"));
        }
        Ok(())
    }

    fn check_read(&self, sectors: Range<u64>) -> Result<()> {
        let mut bad = self.worn_out.range(sectors.clone()).chain(self.unread.range(sectors));
        bad.next().map_or(Ok(()), |_| Err(Error::new(Kind::Io, "it cannot be read")))
    }
}

/// See the module.
#[derive(Clone)]
pub(super) struct Disk {
    pub inner: Arc<RamDisk>,
    pub faults: Arc<Mutex<Faults>>,
}

impl Disk {
    fn change(&self, sectors: Range<u64>, change: impl FnOnce() -> Result<()>) -> Result<()> {
        let faults = &mut *self.faults.lock();
        let checked = faults.check_change(sectors.clone());
        if checked.is_ok() || faults.lands {
            change()?;
            faults.unread.retain(|sector| !sectors.contains(sector));
        }
        if checked.is_err() && faults.lands {
            faults.unwritten.append(&mut faults.worn_out);
        }
        checked
    }
}

impl BlockDevice for Disk {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        self.faults.lock().check_read(lba.0..lba.0 + (buf.len() / SECTOR_BYTES) as u64)?;
        self.inner.read(lba, buf)
    }
    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        let sectors = lba.0..lba.0 + (data.len() / SECTOR_BYTES) as u64;
        self.change(sectors, || self.inner.write(lba, data, fua))
    }
    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.inner.trim(lba, sectors)
    }
    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.change(lba.0..lba.0 + sectors, || self.inner.write_zeroes(lba, sectors, fua))
    }
    fn flush(&self) -> Result<()> {
        self.change(0..0, || self.inner.flush())
    }
    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.inner.allocation(lba, sectors)
    }
}
