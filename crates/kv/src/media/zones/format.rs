//! Preparing a device for the tables of a new store.

use super::ZoneMedia;
use super::home::Note;
use super::label::{LABEL_ZONE, LABELS_AT, Label, find_label};
use crate::journal::{Area, AreaKind, Edit, salvage_records};
use crate::media::{Areas, Directory, Media, Tables};
use crate::reason;
use vellum_base::{Error, Result, Zones, ZonesShape};

/// Fewest zones that may be open at a time: a flush, a merge, and an ingest, or a segment, one being collected, and one
/// on its way to a table.
const OPEN_MIN: u32 = 3;

/// Most bytes of the first manifest of a store: it names nothing.
const FIRST_MANIFEST_BYTES_MAX: usize = 512;

impl ZoneMedia {
    /// Prepares `zones` for the tables of a new store in `directory`, which records `device`, the path by which to open
    /// them. `id` must be random. A device that is not blank is refused unless `force` is set; its contents are
    /// destroyed then. If this was cut short, or no store was created since, it can be repeated, on the same device
    /// unless `force` is set.
    pub fn format(
        directory: &Directory,
        zones: &dyn Zones,
        device: &str,
        id: [u8; 16],
        force: bool,
    ) -> Result<()> {
        let shape = zones.shape();
        check_shape(&shape, device)?;
        if directory.current()?.is_some() || !is_without_store(directory)? {
            let what = "there is a store in this directory already";
            return Err(Error::invalid(what).because(reason::STORE_EXISTS));
        }
        // If it is damaged, nothing is known of an earlier formatting.
        let earlier = Note::of(directory).unwrap_or(None);
        if let Some(note) = earlier.as_ref().filter(|note| !force && note.home.device != device) {
            let what = format!("the tables of this directory are on {}, or were to be", note.home.device);
            return Err(Error::invalid(what).because(reason::DEVICE_OTHER));
        }
        let begun = earlier.filter(|note| is_begun(note, directory, zones).unwrap_or(false));
        let is_blank = (0..shape.zones).all(|zone| zones.report(zone).written == 0);
        if !force && !is_blank && begun.is_none() {
            let what = format!("{device} is not blank: formatting it would destroy what it holds");
            return Err(Error::invalid(what).because(reason::DEVICE_NOT_BLANK));
        }
        // The device has this label until it is reset: if that is cut short again, too, the two still agree.
        let id = begun.map_or(id, |note| note.id);
        // Before the device is changed, so that a directory whose formatting was cut short tells.
        Note::new(device, id, shape.zone_bytes).set(directory)?;
        begin(zones, id)
    }
}

/// An error if a store could not live on such zones.
fn check_shape(shape: &ZonesShape, device: &str) -> Result<()> {
    let ZonesShape { zones, zone_bytes, open_max, .. } = shape;
    let open_few = open_max.filter(|max| *max < OPEN_MIN);
    let (bytes_min, zones_min) = (ZoneMedia::ZONE_BYTES_MIN, ZoneMedia::ZONES_MIN);
    let what = match open_few {
        _ if *zone_bytes < bytes_min => format!(
            "has zones of {zone_bytes} bytes: a store needs {bytes_min}, as a zone holds a table, and that its largest \
             entries"
        ),
        _ if *zones < zones_min => {
            format!("has {zones} zones of {zone_bytes} bytes: a store needs {zones_min}")
        }
        Some(open_max) => format!("takes writes to {open_max} zones at a time: a store needs {OPEN_MIN}"),
        None => return Ok(()),
    };
    Err(Error::invalid(format!("{device} {what}")).because(reason::ZONES_UNFIT))
}

/// True if nothing in the directory is of a store that was created. A manifest alone is of one that was not, unless it
/// names a table: those are on the device.
pub(super) fn is_without_store(directory: &Directory) -> Result<bool> {
    Ok(match directory.areas()?[..] {
        [] => directory.tables()?.is_empty(),
        [first] => {
            first.kind == AreaKind::Manifest && directory.tables()?.is_empty() && is_first(directory, first)?
        }
        _ => false,
    })
}

/// True if a manifest may be the first of a store whose creation was cut short: it names no table, as far as it can be
/// read, and is not longer than such a one.
fn is_first(directory: &Directory, manifest: Area) -> Result<bool> {
    let bytes = directory.read_area(manifest)?;
    let names_nothing = |payload: &[u8]| {
        Edit::decode(payload).is_ok_and(|edit| edit.added.is_empty() && edit.segments.is_empty())
    };
    let edits = salvage_records(manifest, None, &bytes)?;
    Ok(bytes.len() <= FIRST_MANIFEST_BYTES_MAX && edits.iter().all(|(_, payload)| names_nothing(payload)))
}

/// True if all that there is on the device is the label that an earlier formatting for this directory wrote.
fn is_begun(note: &Note, directory: &Directory, zones: &dyn Zones) -> Result<bool> {
    let is_own = note.check_directory(directory).is_ok();
    let is_rest_blank = (LABEL_ZONE + 1..zones.shape().zones).all(|zone| {
        let report = zones.report(zone);
        report.written == 0 || !report.is_writable
    });
    Ok(is_own && is_rest_blank && find_label(zones, |label| label.id == note.id)?.is_some())
}

/// Makes all zones blank, and writes the label.
fn begin(zones: &dyn Zones, id: [u8; 16]) -> Result<()> {
    let shape = zones.shape();
    for zone in 0..shape.zones {
        if zones.report(zone).written > 0 && zones.report(zone).is_writable {
            zones.reset(zone)?;
        }
    }
    let label = Label::new(id, &shape).encode();
    LABELS_AT.iter().try_for_each(|at| zones.write(LABEL_ZONE, *at, &label))?;
    zones.finish(LABEL_ZONE)?;
    zones.sync()
}
