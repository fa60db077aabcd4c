//! A directory whose file ZONES is lost: tells by the tables themselves whether they are on a device.

use super::home::Note;
use super::label::{Label, TableEnd, TableHead, UNIT_BYTES};
use super::{LABEL_ZONE, LABELS_AT, ZoneMedia, find_tables};
use crate::media::Directory;
use crate::media::patient::twice;
use vellum_base::{Error, Result, Zones};

impl ZoneMedia {
    /// Bytes of a zone, as the label on a raw device says; an error if it has none. The label is found however the
    /// device is cut into zones.
    pub fn zone_bytes_on(zones: &dyn Zones, device: &str) -> Result<u64> {
        Ok(label_on(zones, device)?.zone_bytes)
    }

    /// Writes the file ZONES of `directory` anew if it is lost or damaged, as [`ZoneMedia::move_to`] does if it is not.
    /// Nothing else in the directory says on which device its tables are. So the device must have all `tables`, of
    /// which numbers and bytes are given ([`Glance::tables`](crate::Glance::tables)); and none at all if that is empty,
    /// as they would be erased as leftovers.
    pub fn restore(
        directory: &Directory,
        zones: &dyn Zones,
        device: &str,
        tables: &[(u64, u64)],
    ) -> Result<()> {
        let (label, shape) = (label_on(zones, device)?, zones.shape());
        if label.zone_bytes != shape.zone_bytes || label.zones > shape.zones {
            return Err(Error::corrupt(format!("{device} is shorter than it was, or cut into other zones")));
        }
        let there = find_tables(zones, label)?.tables;
        if tables.is_empty() && !there.is_empty() {
            let what = "has tables, and the directory names none: they may be another store's";
            return Err(Error::corrupt(format!("{device} {what}")));
        }
        for (number, bytes) in tables {
            let zone = there.get(number);
            if !zone.map_or(Ok(false), |zone| is_table(zones, *zone, label, (*number, *bytes)))? {
                return Err(Error::corrupt(format!("{device} does not hold table {number} of this store")));
            }
        }
        Note::new(device, label.id, label.zone_bytes).set(directory)
    }
}

/// The first label on the device that can be read.
fn label_on(zones: &dyn Zones, device: &str) -> Result<Label> {
    let mut unreadable = None;
    for at in LABELS_AT {
        match twice(|| unit_of(zones, LABEL_ZONE, at)) {
            Ok(unit) => {
                if let Some(label) = unit.and_then(|unit| Label::decode(&unit)) {
                    return Ok(label);
                }
            }
            Err(error) => unreadable = Some(error),
        }
    }
    Err(unreadable.unwrap_or_else(|| Error::corrupt(format!("{device} has no tables of a store"))))
}

/// True if the zone holds a finished table of this number and length.
fn is_table(zones: &dyn Zones, zone: u32, label: Label, (table, bytes): (u64, u64)) -> Result<bool> {
    let head = unit_of(zones, zone, 0)?.and_then(|unit| TableHead::decode(&unit));
    let unit = UNIT_BYTES as u64;
    let Some(end_at) = bytes.checked_next_multiple_of(unit).and_then(|bytes| bytes.checked_add(unit)) else {
        return Ok(false);
    };
    let marks_end = head.is_some_and(|head| head.marks_end) && end_at < label.zone_bytes;
    Ok(match marks_end {
        true => {
            let end = unit_of(zones, zone, end_at)?.and_then(|unit| TableEnd::decode(&unit));
            end == Some(TableEnd { id: label.id, table, bytes: end_at - unit })
        }
        false => head.is_some() && end_at <= zones.report(zone).written,
    })
}

/// A unit of a zone, if it was written.
fn unit_of(zones: &dyn Zones, zone: u32, at: u64) -> Result<Option<[u8; UNIT_BYTES]>> {
    if zones.report(zone).written < at.saturating_add(UNIT_BYTES as u64) {
        return Ok(None);
    }
    let mut unit = [0; UNIT_BYTES];
    zones.read(zone, at, &mut unit)?;
    Ok(Some(unit))
}
