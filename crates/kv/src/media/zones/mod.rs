//! A store on a raw or zoned device: a table is a zone; log, manifest and CURRENT are in a directory beside it.
//!
//! Invariants
//! 1. Each zone other than the label's is in exactly one of these states: free (reset before its next table, unless
//!    blank); home of a table, finished or not; nameless (neither its head nor its end says which table it holds, or it
//!    could not be reset); out of use (the device refuses writes to it).
//! 2. Nothing is written to a device before its label was compared with the note in the directory.
//! 3. If two tables share bytes, the device keeps count: either zone may be reset.
//! 4. No more zones are partly written (open) than the device allows, including those left open before this opening.
//!    When another one is needed, one of the latter is finished, which does not change its contents.
//! 5. A zone is reset only by [`erase_table`](super::Tables::erase_table), when its writer is dropped, or when a new
//!    table takes it, or could not begin in it.

mod ends;
mod home;
mod label;
mod lost;
mod media;
mod reader;
mod writer;

pub use home::ZoneHome;

use super::patient::twice;
use super::{Areas, Directory, Media, Tables, ZONES};
use crate::journal::{Area, AreaKind, Edit, salvage_records};
use crate::reason;
use home::Note;
use label::{Label, TableHead, ZONE_UNIT_BYTES};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Cause, Error, Kind, Ledger, Result, Zones, ZonesShape};

/// Zone that the label is in.
const LABEL_ZONE: u32 = 0;
/// Offsets of its two copies, as a store without a label is lost. Earlier versions wrote only the first.
const LABELS_AT: [u64; 2] = [0, ZONE_UNIT_BYTES as u64];
/// Most bytes of the first manifest of a store: it names nothing.
const FIRST_MANIFEST_BYTES_MAX: usize = 512;
/// What is to become the file ZONES.
const ZONES_NEW: &str = "ZONES.new";
/// Fewest zones that may be open at a time: a flush, a merge, and an ingest, or a segment, one being collected, and one
/// on its way to a table.
const OPEN_MIN: u32 = 3;

/// A raw or zoned device, and a directory, as the home of a store.
///
/// ```
/// use std::sync::Arc;
/// use vellum_base::RealEnv;
/// use vellum_kv::{Directory, Map, Options, Store, ZoneMedia};
/// use vellum_media::RawDevice;
///
/// let dir = tempfile::tempdir().unwrap();
/// let device = dir.path().join("device");
/// std::fs::File::create(&device).unwrap().set_len(64 << 20).unwrap();
///
/// let directory = Directory::open(&dir.path().join("store"), Default::default())?;
/// let zones = Arc::new(RawDevice::open(&device, 4 << 20)?);
/// ZoneMedia::format(&directory, &*zones, &device.display().to_string(), [7; 16], false)?;
/// let media = ZoneMedia::open(directory, zones)?;
/// let store = Store::open(media, RealEnv::new(), Options { memtable_bytes: 3 << 20, ..Options::default() })?;
/// store.put(b"parchment", b"dear")?;
/// store.close()?;
/// # Ok::<(), vellum_base::Error>(())
/// ```
pub struct ZoneMedia {
    inner: Arc<Inner>,
}

struct Inner {
    directory: Arc<Directory>,
    zones: Arc<dyn Zones>,
    id: [u8; 16],
    homes: Mutex<Homes>,
}

#[derive(Default)]
struct Homes {
    tables: BTreeMap<u64, u32>,
    /// Zones that hold something unidentified, or that could not be reset. If a table that the manifest names is in
    /// one, opening it by number fails before these zones are reset.
    nameless: Vec<u32>,
    /// Those that have been free longest come first, to even out wear.
    free: VecDeque<u32>,
    /// Number of tables being written, each in an open zone.
    written: u32,
    /// Partly written zones that nobody writes to any more.
    left_open: Vec<u32>,
}

impl Homes {
    /// Notes that nobody writes to the zone any more; if it is partly written, the device still counts it as open.
    fn note_open(&mut self, zone: u32, zones: &dyn Zones) {
        if (1..zones.shape().zone_bytes).contains(&zones.report(zone).written) {
            self.left_open.push(zone);
        }
    }
}

impl ZoneMedia {
    /// Fewest zones of a device: the label, a table on each of three levels, and what a merge of them writes.
    pub const ZONES_MIN: u32 = 8;
    /// Least size of a zone. In some of less than 80 KiB there is no room for the largest key and value that the store
    /// takes: it would fail for good at the next flush. Below 36 KiB that happens with any.
    pub const ZONE_BYTES_MIN: u64 = 128 << 10;

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

    /// Records that the tables of the store in `directory` are now on `zones`, found at path `device`, and belong to
    /// this directory. For use after both were copied, the device got another path, or the directory was restored from
    /// a backup. If the original of a copied directory is still in use with the same device, its store is lost.
    pub fn move_to(directory: &Directory, zones: &dyn Zones, device: &str) -> Result<()> {
        let Note { id, home, .. } = Note::needed(directory)?;
        label_of(zones, id, device)?;
        Note::new(device, id, home.zone_bytes).set(directory)
    }

    /// The device with the tables of the store in `directory`; `None` if they are in the directory itself.
    pub fn home_of(directory: &Directory) -> Result<Option<ZoneHome>> {
        Ok(Note::of(directory)?.map(|note| note.home))
    }

    /// True if [`ZoneMedia::format`] prepared `directory`, or was cut short as it did, and no store was created there.
    pub fn awaits_store(directory: &Directory) -> Result<bool> {
        let is_noted = directory.note(ZONES)?.is_some() || directory.note(ZONES_NEW)?.is_some();
        Ok(is_noted && directory.current()?.is_none() && is_without_store(directory)?)
    }

    /// Opens what [`ZoneMedia::format`] prepared. An error if `directory` is a copy of the one it prepared; see
    /// [`ZoneMedia::move_to`].
    pub fn open(directory: Arc<Directory>, zones: Arc<dyn Zones>) -> Result<Arc<ZoneMedia>> {
        let note = Note::needed(&directory)?;
        note.check_directory(&directory)?;
        let id = note.id;
        let label = label_of(&*zones, id, &note.home.device)?;
        // Zones that were reset just before the store was last closed must not reappear beside what is written now.
        zones.sync()?;
        let homes = Mutex::new(find_tables(&*zones, label)?);
        let inner = Arc::new(Inner { directory, zones, id, homes });
        inner.name_by_ends()?;
        Ok(Arc::new(ZoneMedia { inner }))
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
fn is_without_store(directory: &Directory) -> Result<bool> {
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

/// The label of a store's device. One that was extended since has zones that are not used.
fn label_of(zones: &dyn Zones, id: [u8; 16], device: &str) -> Result<Label> {
    let shape = zones.shape();
    let is_own =
        |label: &Label| (label.id, label.zone_bytes) == (id, shape.zone_bytes) && label.zones <= shape.zones;
    find_label(zones, is_own)?.ok_or_else(|| {
        let what =
            "is not the device that the tables of this store are on, is shorter, or is cut into other zones";
        Error::corrupt(format!("{device} {what}"))
    })
}

/// The first label that is wanted; an error if there is none, and one of the copies cannot be read.
fn find_label(zones: &dyn Zones, is_wanted: impl Fn(&Label) -> bool) -> Result<Option<Label>> {
    let mut unreadable = Ok(None);
    for at in LABELS_AT {
        match twice(|| unit_of(zones, LABEL_ZONE, at)) {
            Ok(unit) => {
                let label = unit.and_then(|unit| Label::decode(&unit)).filter(&is_wanted);
                if label.is_some() {
                    return Ok(label);
                }
            }
            Err(error) => unreadable = Err(error),
        }
    }
    unreadable
}

/// A unit of a zone, if the zone exists and the unit was written.
fn unit_of(zones: &dyn Zones, zone: u32, at: u64) -> Result<Option<[u8; ZONE_UNIT_BYTES]>> {
    let is_there = zone < zones.shape().zones;
    if !is_there || zones.report(zone).written < at.saturating_add(ZONE_UNIT_BYTES as u64) {
        return Ok(None);
    }
    let mut unit = [0; ZONE_UNIT_BYTES];
    zones.read(zone, at, &mut unit)?;
    Ok(Some(unit))
}

/// Decodes fuzzed bytes as all that a device and its directory begin with (see `crate::fuzz`).
pub(crate) fn fuzzed(bytes: &[u8]) {
    label::fuzzed(bytes);
    home::fuzzed(bytes);
}

fn find_tables(zones: &dyn Zones, label: Label) -> Result<Homes> {
    let (mut homes, mut unit) = (Homes::default(), [0; ZONE_UNIT_BYTES]);
    for zone in LABEL_ZONE + 1..label.zones {
        let report = zones.report(zone);
        if report.is_writable && (1..zones.shape().zone_bytes).contains(&report.written) {
            homes.left_open.push(zone);
        }
        let head = match report.written >= ZONE_UNIT_BYTES as u64 {
            true => twice(|| zones.read(zone, 0, &mut unit)).map(|()| TableHead::decode(&unit)),
            false => Ok(None),
        };
        let head = match head {
            Err(e) if e.kind() == Kind::PowerLost => return Err(e),
            Err(_) => {
                homes.nameless.push(zone);
                continue;
            }
            Ok(head) => head.filter(|head| head.id == label.id),
        };
        match head {
            Some(head) => {
                if let Some(twin) = homes.tables.insert(head.table, zone) {
                    let what =
                        format!("zones {twin} and {zone} both say that they hold table {}", head.table);
                    return Err(Error::corrupt(what));
                }
            }
            None if report.is_writable => homes.free.push_back(zone),
            None => {}
        }
    }
    Ok(homes)
}

impl Inner {
    fn ledger(&self) -> &Ledger {
        self.directory.ledger_shared()
    }

    /// A free zone, blank, with the head of `table`. One that cannot be reset, or takes no head, is set aside while
    /// there are others; unless it may have the head: with another zone for the table there would be two.
    fn begin(&self, table: u64) -> Result<u32> {
        loop {
            let zone = self.take(table)?;
            let Err(error) = self.begin_in(zone, table) else { return Ok(zone) };
            if error.kind() != Kind::Io {
                self.give_up(table);
                return Err(error);
            }
            self.set_aside(table);
            let homes = &mut *self.homes.lock();
            homes.written -= 1;
            homes.note_open(zone, &*self.zones);
            if homes.free.is_empty() {
                return Err(error);
            }
        }
    }

    /// Makes a zone blank, and writes the head. [`Kind::Io`] if it surely has none.
    fn begin_in(&self, zone: u32, table: u64) -> Result<()> {
        if self.zones.report(zone).written > 0 {
            self.zones.reset(zone)?;
        }
        let is_blank = || self.zones.reset(zone).and_then(|()| self.zones.sync()).is_ok();
        self.write_head(zone, table).map_err(|error| match error.kind() {
            Kind::Io if !is_blank() => Error::new(Kind::Poisoned, error.to_string()).because(error.reason()),
            _ => error,
        })
    }

    /// A free zone, if one more may be open.
    fn take(&self, table: u64) -> Result<u32> {
        let homes = &mut *self.homes.lock();
        let no_space = |what: String| Err(Error::new(Kind::NoSpace, what));
        let Some(zone) = homes.free.front().copied() else {
            return no_space(
                "no zone is free. Delete something and compact, or move to a larger device".into(),
            );
        };
        let open_max = self.open_max();
        homes.left_open.retain(|open| *open != zone);
        if homes.written as usize >= open_max {
            let written = homes.written;
            return no_space(format!(
                "{written} tables are being written, as many as the device has zones open"
            ));
        }
        let mut stuck = Vec::new();
        while homes.written as usize + homes.left_open.len() + stuck.len() >= open_max {
            let Some(open) = homes.left_open.pop() else { break };
            match self.zones.finish(open) {
                Err(e) if e.kind() == Kind::Io => stuck.push(open),
                finished => finished?,
            }
        }
        homes.left_open.extend(stuck);
        homes.free.pop_front();
        homes.tables.insert(table, zone);
        homes.written += 1;
        Ok(zone)
    }

    /// Gives up a table that was not finished. A zone that cannot be reset now is reset when it is taken; if it is not,
    /// the next opening erases the table.
    fn give_up(&self, table: u64) {
        if self.erase(table).is_err() {
            self.free_as_it_is(table);
        }
        self.homes.lock().written -= 1;
    }

    fn set_aside(&self, table: u64) {
        let homes = &mut *self.homes.lock();
        homes.nameless.extend(homes.tables.remove(&table));
    }

    fn free_as_it_is(&self, table: u64) {
        let homes = &mut *self.homes.lock();
        let Some(zone) = homes.tables.remove(&table) else { return };
        homes.free.push_back(zone);
        homes.note_open(zone, &*self.zones);
    }

    fn write_head(&self, zone: u32, table: u64) -> Result<()> {
        self.zones.write(zone, 0, &TableHead { id: self.id, table, marks_end: true }.encode())?;
        self.ledger().programmed(Cause::StoreMetadata, ZONE_UNIT_BYTES as u64);
        Ok(())
    }

    /// What cannot be reset now either stays as it is, until the next opening: nobody needs it.
    fn erase_nameless(&self) -> Result<()> {
        let nameless = self.homes.lock().nameless.clone();
        for zone in nameless {
            let is_writable = self.zones.report(zone).is_writable;
            match is_writable.then(|| self.zones.reset(zone)) {
                Some(Err(e)) if e.kind() == Kind::Io => continue,
                reset => reset.unwrap_or(Ok(()))?,
            }
            let homes = &mut *self.homes.lock();
            homes.nameless.retain(|other| *other != zone);
            homes.left_open.retain(|open| *open != zone);
            homes.free.extend(is_writable.then_some(zone));
        }
        Ok(())
    }

    /// Tables whose head cannot be read are found by their end: the first readable end in a zone is of the table that
    /// was finished there last, or else of an older one. An older one is left over: no manifest counts on it.
    fn name_by_ends(&self) -> Result<()> {
        let nameless = std::mem::take(&mut self.homes.lock().nameless);
        for zone in nameless {
            let end = self.first_end(zone)?;
            let homes = &mut *self.homes.lock();
            match end.filter(|end| !homes.tables.contains_key(&end.table)) {
                Some(end) => drop(homes.tables.insert(end.table, zone)),
                None => homes.nameless.push(zone),
            }
        }
        Ok(())
    }

    fn erase(&self, table: u64) -> Result<()> {
        let Some(zone) = self.homes.lock().tables.get(&table).copied() else { return Ok(()) };
        let is_writable = self.zones.report(zone).is_writable;
        if is_writable {
            self.zones.reset(zone)?;
        }
        let homes = &mut *self.homes.lock();
        homes.left_open.retain(|open| *open != zone);
        homes.tables.remove(&table);
        homes.free.extend(is_writable.then_some(zone));
        Ok(())
    }

    /// Most tables that are being written.
    fn open_max(&self) -> usize {
        self.zones.shape().open_max.map_or(usize::MAX, |max| max as usize)
    }

    /// Most bytes of a table.
    fn capacity(&self) -> u64 {
        self.zones.shape().zone_bytes - ZONE_UNIT_BYTES as u64
    }
}
