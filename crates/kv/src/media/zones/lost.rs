//! A directory whose file ZONES is lost: tells by the tables themselves whether they are on a device.

use super::ZoneMedia;
use super::home::Note;
use super::homes::find_tables;
use super::label::{Label, TableEnd, TableHead, ZONE_UNIT_BYTES};
use super::label::{find_label, unit_of};
use crate::media::Directory;
use vellum_base::{Error, Result, Zones};

impl ZoneMedia {
    /// Bytes of a zone, as the label on a raw device says; an error if it has none. The label is found however the
    /// device is cut into zones.
    pub fn zone_bytes_on(zones: &dyn Zones, device: &str) -> Result<u64> {
        Ok(label_on(zones, device)?.zone_bytes)
    }

    /// Writes the file ZONES of `directory` anew if it is lost or damaged, as [`ZoneMedia::move_to`] does if it is not.
    /// Nothing else in the directory says on which device its tables are. So the device must have all `tables`, of
    /// which numbers and bytes are given ([`Glance::tables`](crate::Glance)); and none at all if that is empty,
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

fn label_on(zones: &dyn Zones, device: &str) -> Result<Label> {
    find_label(zones, |_| true)?.ok_or_else(|| Error::corrupt(format!("{device} has no tables of a store")))
}

/// True if the zone holds a finished table of this number and length.
fn is_table(zones: &dyn Zones, zone: u32, label: Label, (table, bytes): (u64, u64)) -> Result<bool> {
    let head = unit_of(zones, zone, 0)?.and_then(|unit| TableHead::decode(&unit));
    let unit = ZONE_UNIT_BYTES as u64;
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
