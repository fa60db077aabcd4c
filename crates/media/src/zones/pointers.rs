//! The rules of zones, and their write pointers.

use vellum_base::{Error, Result, ZoneReport, ZonesShape};

/// Write pointers of all zones.
pub(super) struct Pointers {
    shape: ZonesShape,
    reports: Vec<ZoneReport>,
    /// Number of zones that have been written to, and neither finished nor filled.
    open: u32,
}

impl Pointers {
    pub fn new(shape: ZonesShape, reports: Vec<ZoneReport>) -> Pointers {
        let in_part = |r: &&ZoneReport| r.written > 0 && r.written < shape.zone_bytes;
        let open = reports.iter().filter(in_part).count() as u32;
        Pointers { shape, reports, open }
    }

    pub fn report(&self, zone: u32) -> ZoneReport {
        let nothing = ZoneReport { written: self.shape.zone_bytes, is_writable: false };
        self.reports.get(zone as usize).copied().unwrap_or(nothing)
    }

    /// Refuses a write that is not at the pointer, not in whole units, or beyond the end.
    pub fn check_write(&self, zone: u32, offset: u64, bytes: usize) -> Result<()> {
        let report = self.check_zone(zone)?;
        let unit = u64::from(self.shape.unit_bytes);
        let end = offset.saturating_add(bytes as u64);
        if offset != report.written {
            return Err(rule(
                zone,
                format!("a write at {offset}, the write pointer is at {}", report.written),
            ));
        }
        if bytes == 0 || !(bytes as u64).is_multiple_of(unit) {
            return Err(rule(zone, format!("a write of {bytes} bytes, a unit has {unit}")));
        }
        if end > self.shape.zone_bytes {
            return Err(rule(zone, format!("a write to {end}, the zone ends at {}", self.shape.zone_bytes)));
        }
        if offset == 0 && self.shape.open_max.is_some_and(|max| self.open >= max) {
            return Err(rule(zone, format!("{} zones are open, which is the limit", self.open)));
        }
        Ok(())
    }

    pub fn check_read(&self, zone: u32, offset: u64, bytes: usize) -> Result<()> {
        let report = self.reports.get(zone as usize).ok_or_else(|| rule(zone, "no such zone".into()))?;
        match offset.checked_add(bytes as u64) {
            Some(end) if end <= report.written => Ok(()),
            _ => Err(rule(zone, format!("a read of {bytes} bytes at {offset}, beyond the write pointer"))),
        }
    }

    /// Checks that the zone exists and accepts writes and resets.
    pub fn check_zone(&self, zone: u32) -> Result<ZoneReport> {
        match self.reports.get(zone as usize) {
            None => Err(rule(zone, "no such zone".into())),
            Some(report) if !report.is_writable => Err(rule(zone, "it is read-only".into())),
            Some(report) => Ok(*report),
        }
    }

    /// Moves the write pointer.
    pub fn set_written(&mut self, zone: u32, written: u64) {
        let in_part = |written: u64| u32::from(written > 0 && written < self.shape.zone_bytes);
        let report = &mut self.reports[zone as usize];
        self.open = self.open + in_part(written) - in_part(report.written);
        report.written = written;
    }

    pub fn set_read_only(&mut self, zone: u32) {
        self.reports[zone as usize].is_writable = false;
    }
}

fn rule(zone: u32, what: String) -> Error {
    Error::invalid(format!("zone {zone}: {what}"))
}
