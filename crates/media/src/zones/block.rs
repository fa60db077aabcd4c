//! A block device split into zones of equal size, for a store's tables on one of our [`vellum_base::BlockDevice`]s,
//! which can remap. A zone is blank if its first sector was never written; a reset trims it. Write pointers are not
//! stored.

use super::equal_zones;
use super::pointers::Pointers;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Allocation, BlockDevice, Lba, Result, SECTOR_BYTES, ZoneReport, Zones, ZonesShape};

/// Zones on a block device; see the module.
pub struct BlockZones {
    device: Arc<dyn BlockDevice>,
    shape: ZonesShape,
    pointers: Mutex<Pointers>,
}

impl BlockZones {
    /// Splits `device` into zones of `zone_bytes`, which must be whole sectors. The rest at the end is not used.
    pub fn new(device: Arc<dyn BlockDevice>, zone_bytes: u64) -> Result<BlockZones> {
        let shape = equal_zones(device.info().bytes(), zone_bytes)?;
        let mut reports = Vec::new();
        for zone in 0..shape.zones {
            let first = device.allocation(sector_of(&shape, zone, 0), 1)?.0;
            let written = if first == Allocation::Hole { 0 } else { zone_bytes };
            reports.push(ZoneReport { written, is_writable: !device.info().read_only });
        }
        Ok(BlockZones { device, shape, pointers: Mutex::new(Pointers::new(shape, reports)) })
    }

    fn sector(&self, zone: u32, offset: u64) -> Lba {
        sector_of(&self.shape, zone, offset)
    }
}

fn sector_of(shape: &ZonesShape, zone: u32, offset: u64) -> Lba {
    Lba((u64::from(zone) * shape.zone_bytes + offset) / SECTOR_BYTES as u64)
}

impl Zones for BlockZones {
    fn shape(&self) -> ZonesShape {
        self.shape
    }

    fn report(&self, zone: u32) -> ZoneReport {
        self.pointers.lock().report(zone)
    }

    fn write(&self, zone: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        self.pointers.lock().check_write(zone, offset, bytes.len())?;
        self.device.write(self.sector(zone, offset), bytes, false)?;
        self.pointers.lock().set_written(zone, offset + bytes.len() as u64);
        Ok(())
    }

    fn remap(&self, zone: u32, offset: u64, from: (u32, u64), bytes: u64) -> Result<u64> {
        self.pointers.lock().check_write(zone, offset, bytes as usize)?;
        self.pointers.lock().check_read(from.0, from.1, bytes as usize)?;
        let sectors = bytes / SECTOR_BYTES as u64;
        let shared = self.device.remap(self.sector(from.0, from.1), self.sector(zone, offset), sectors)?;
        self.pointers.lock().set_written(zone, offset + bytes);
        Ok(shared * SECTOR_BYTES as u64)
    }

    fn remaps(&self) -> bool {
        self.device.remaps()
    }

    fn read(&self, zone: u32, offset: u64, out: &mut [u8]) -> Result<()> {
        self.pointers.lock().check_read(zone, offset, out.len())?;
        self.device.read(self.sector(zone, offset), out)
    }

    fn finish(&self, zone: u32) -> Result<()> {
        self.pointers.lock().check_zone(zone).map(drop)
    }

    fn reset(&self, zone: u32) -> Result<()> {
        self.pointers.lock().check_zone(zone)?;
        self.device.trim(self.sector(zone, 0), self.shape.zone_bytes / SECTOR_BYTES as u64)?;
        self.pointers.lock().set_written(zone, 0);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.device.flush()
    }
}
