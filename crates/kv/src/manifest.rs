//! The manifest: appends edits, and begins a new manifest when the current one is full.
//!
//! 1. An edit is durable when [`Manifest::append`] returns.
//! 2. The first edit after opening begins a new manifest, so that nothing is appended after a torn tail.
//! 3. If there is no room, nothing was changed: the edit may be appended again.
//! 4. The counters in an edit include the bytes of the edit itself, if the medium counts manifests.

use crate::bytes::u32_at;
use crate::journal::{
    AREA_HEAD_BYTES, Area, AreaKind, Edit, FRAME_HEAD_BYTES, Framer, MARK_BYTES, Previous, Records,
    salvage_records, store_of,
};
use crate::media::{AreaWriter, Media};
use crate::reason;
use crate::repair::known;
use std::sync::Arc;
use vellum_base::{Cause, Error, Kind, Result};

/// Version that is written: a manifest says how many older versions a table has.
const VERSION: u32 = 7;
/// Versions that are read, too. In 1 no table points into a log; in 1 and 2 areas are of version 1. In 4 only tables
/// have sums, before it nothing has. Up to 5 a manifest in NVRAM has whole keys, however long.
const EARLIER: [u32; 6] = [1, 2, 3, 4, 5, 6];
const CURRENT_BYTES: usize = 28;

/// A manifest in a file may take one part in `ROOM_PARTS` of the room on the file system, or `EDITS_BYTES_MIN`: each
/// that is begun takes a few syncs.
const ROOM_PARTS: u64 = 64;
const EDITS_BYTES_MIN: u64 = 64 << 10;

/// CURRENT, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Current {
    pub manifest: u64,
    pub store: u64,
    version: u32,
}

impl Current {
    pub(crate) fn new(manifest: u64, store: u64) -> Current {
        Current { manifest, store, version: VERSION }
    }

    /// What CURRENT says; `None` if there is no store.
    pub(crate) fn of(media: &dyn Media) -> Result<Option<Current>> {
        media.current()?.map(|bytes| Current::decode(&bytes)).transpose()
    }

    /// The same where there must be a store.
    pub(crate) fn of_store(media: &dyn Media) -> Result<Current> {
        Current::of(media)?.ok_or_else(|| Error::corrupt("CURRENT is missing"))
    }

    /// If an earlier program wrote CURRENT, an edit sets it anew before anything else is written: such programs do not
    /// know what follows. Without room for that the store opens all the same.
    pub(crate) fn upgrade(self, install: impl FnOnce() -> Result<()>) -> Result<()> {
        if self.version == VERSION {
            return Ok(());
        }
        install().or_else(|error| if error.kind() == Kind::NoSpace { Ok(()) } else { Err(error) })
    }

    pub(crate) fn encode(self) -> [u8; CURRENT_BYTES] {
        let mut out = [0; CURRENT_BYTES];
        out[..4].copy_from_slice(b"VKCU");
        out[8..12].copy_from_slice(&self.version.to_le_bytes());
        out[12..20].copy_from_slice(&self.manifest.to_le_bytes());
        out[20..].copy_from_slice(&self.store.to_le_bytes());
        let crc = vellum_codes::crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Current> {
        if bytes.starts_with(b"MANIFEST-") {
            let what = "CURRENT is one of LevelDB or RocksDB, whose stores this program does not read";
            return Err(Error::new(Kind::Unsupported, what).because(reason::FOREIGN_STORE));
        }
        if bytes.len() != CURRENT_BYTES || &bytes[..4] != b"VKCU" {
            return Err(Error::corrupt("CURRENT is not one of ours"));
        }
        if u32_at(bytes, 4) != vellum_codes::crc32c(&bytes[8..]) {
            return Err(Error::corrupt("CURRENT: checksum does not match"));
        }
        let version = u32_at(bytes, 8);
        if version != VERSION && !EARLIER.contains(&version) {
            let what = format!("CURRENT has version {version}; this program knows versions up to {VERSION}");
            return Err(Error::new(Kind::Unsupported, what));
        }
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Ok(Current { manifest: u64_at(12), store: u64_at(20), version })
    }
}

/// Creates an empty store: a manifest that begins with `first`, then CURRENT.
pub(crate) fn create(
    media: &Arc<dyn Media>,
    store: u64,
    comparator: &'static str,
    first: Edit,
) -> Result<Current> {
    // An earlier creation may have been interrupted.
    media.areas()?.into_iter().try_for_each(|area| media.remove_area(area))?;
    let first = || Edit { next_number: Some(2), ..first };
    Manifest::new(media.clone(), store, comparator, None).append(&Edit::default(), first, || 1)?;
    Current::of(&**media)?.ok_or_else(|| Error::new(Kind::Io, "the store that was just made is gone"))
}

/// All edits of the current manifest.
pub(crate) fn read(media: &dyn Media, current: Current) -> Result<Vec<Edit>> {
    read_of(media, current.manifest, Some(current.store))
}

/// All edits of a manifest; an error if it is known to belong to another store.
pub(crate) fn read_of(media: &dyn Media, number: u64, store: Option<u64>) -> Result<Vec<Edit>> {
    edits_in(number, store, &media.read_area(Area::manifest(number))?)
}

/// All edits of the manifest that has these bytes.
pub(crate) fn edits_in(number: u64, store: Option<u64>, bytes: &[u8]) -> Result<Vec<Edit>> {
    let area = Area::manifest(number);
    let Some(mut records) = Records::open(area, store, bytes)? else {
        return Err(Error::corrupt(format!("{area} is torn")));
    };
    records.check_store(store)?;
    let mut edits = Vec::new();
    while let Some((seq, payload)) = records.next()? {
        if seq != edits.len() as u64 {
            return Err(Error::corrupt(format!("{area}: edit {seq} where {} belongs", edits.len())));
        }
        edits.push(Edit::decode(payload).map_err(|e| e.context(area))?);
    }
    match edits.first() {
        Some(first) if first.comparator.is_some() => Ok(edits),
        _ => Err(Error::corrupt(format!("{area} lacks its first edit"))),
    }
}

/// Edits of a damaged manifest, as far as they decode; of the store with this number, if its head does not say. An
/// error if it cannot be read now.
pub(crate) fn read_what_can_be(media: &dyn Media, number: u64, store: Option<u64>) -> Result<Vec<Edit>> {
    let area = Area::manifest(number);
    let bytes = known(media.read_area(area))?.unwrap_or_default();
    let records = salvage_records(area, store, &bytes).unwrap_or_default().into_iter();
    Ok(records.filter_map(|(_, edit)| Edit::decode(edit).ok()).collect())
}

/// The number of the store that left these areas: what CURRENT says, else the newest manifest that does, else the
/// newest log. An error if that cannot be read now: an older one may be of another store.
pub(crate) fn store_of_remains(media: &dyn Media, areas: &[Area]) -> Result<Option<u64>> {
    if let Ok(Some(bytes)) = known(media.current())?
        && let Ok(current) = Current::decode(&bytes)
    {
        return Ok(Some(current.store));
    }
    let mut newest_first: Vec<Area> = areas.to_vec();
    newest_first.sort_by_key(|area| std::cmp::Reverse((area.kind == AreaKind::Manifest, area.number)));
    for area in newest_first {
        let store = known(media.read_area(area))?.ok().and_then(|bytes| store_of(area, &bytes));
        if store.is_some() {
            return Ok(store);
        }
    }
    Ok(None)
}

/// See the module.
pub(crate) struct Manifest {
    media: Arc<dyn Media>,
    store: u64,
    /// Name of the order of keys.
    comparator: &'static str,
    /// The current manifest; `None` while a store is being created.
    number: Option<u64>,
    open: Option<Open>,
}

struct Open {
    area: Arc<dyn AreaWriter>,
    framer: Framer,
    bytes: u64,
    /// Size at which a new manifest is begun.
    bytes_max: u64,
    edits: u64,
}

impl Manifest {
    /// Of a new store with the number `store`, or of one that has `number` in force.
    pub(crate) fn new(
        media: Arc<dyn Media>,
        store: u64,
        comparator: &'static str,
        number: Option<u64>,
    ) -> Manifest {
        Manifest { media, store, comparator, number, open: None }
    }

    /// The number of the store.
    pub(crate) fn store(&self) -> u64 {
        self.store
    }

    /// Makes `edit` durable. If a new manifest has to be begun, `number` supplies its number, and `whole` the complete
    /// state after the edit as its first edit. Both edits contain the counters so far.
    pub(crate) fn append(
        &mut self,
        edit: &Edit,
        whole: impl FnOnce() -> Edit,
        number: impl FnOnce() -> u64,
    ) -> Result<()> {
        let payload = self.counted(edit, MARK_BYTES + FRAME_HEAD_BYTES);
        if let Some(open) = &mut self.open {
            let mut out = Vec::with_capacity(payload.len() + 64);
            open.framer.mark(&mut out, open.edits, open.bytes);
            open.framer.data(&mut out, open.edits, &payload);
            if open.bytes + out.len() as u64 <= open.bytes_max {
                open.area.append(open.bytes, &out)?;
                open.area.sync()?;
                open.bytes += out.len() as u64;
                open.edits += 1;
                return Ok(());
            }
        }
        self.begin(whole(), number())
    }

    /// An edit that counts itself, and `with_it` bytes that are written with it, where a manifest is a file. In NVRAM
    /// it is brief, so that it has room for tables however long their keys are.
    fn counted(&self, edit: &Edit, with_it: usize) -> Vec<u8> {
        if !self.media.shape().areas_are_files {
            return edit.clone().brief().encode();
        }
        let mut payload = edit.encode();
        loop {
            let length = payload.len();
            let lifetime = edit.lifetime.clone().plus(Cause::StoreMetadata, (length + with_it) as u64);
            payload = Edit { lifetime, ..edit.clone() }.encode();
            if payload.len() <= length {
                return payload;
            }
        }
    }

    fn begin(&mut self, mut whole: Edit, number: u64) -> Result<()> {
        whole.comparator = Some(self.comparator.to_string());
        whole.next_number = whole.next_number.max(Some(number + 1));
        let area = Area { kind: AreaKind::Manifest, number };
        let framer = Framer::new(area, self.store);
        let mut out = Vec::new();
        framer.head(&mut out, 0, Previous::default());
        framer.data(&mut out, 0, &self.counted(&whole, AREA_HEAD_BYTES + FRAME_HEAD_BYTES + CURRENT_BYTES));
        let current = Current::new(number, self.store);
        let begin = || {
            let writer = self.media.create_area(area)?;
            writer.append(0, &out)?;
            writer.sync()?;
            self.media.set_current(&current.encode())?;
            Ok(writer)
        };
        let writer = begin().inspect_err(|error: &Error| {
            if error.kind() == Kind::NoSpace {
                // What cannot be removed now is removed when the store is opened again.
                let _ = self.media.remove_area(area);
            }
        })?;
        let before = self.number.replace(number);
        let bytes = out.len() as u64;
        let bytes_max = self.bytes_max(bytes);
        self.open = Some(Open { area: writer, framer, bytes, bytes_max, edits: 1 });
        match before {
            Some(before) => self.media.remove_area(Area::manifest(before)),
            None => Ok(()),
        }
    }

    /// Size at which the next manifest is begun; the first edit of this one, the complete state, has `whole` bytes.
    fn bytes_max(&self, whole: u64) -> u64 {
        let (shape, room) = (self.media.shape(), self.media.room_bytes());
        match shape.areas_are_files {
            // A file may be longer: if the complete state is long, it must not be rewritten with every edit. Where
            // there is little room, edits must not take much of it.
            true => {
                let part = room.map_or(u64::MAX, |room| (room / ROOM_PARTS).max(EDITS_BYTES_MIN));
                part.min(shape.manifest_bytes).max(2 * whole)
            }
            false => shape.manifest_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Directory, DirectoryOptions};

    #[test]
    fn a_long_manifest_is_not_written_anew_with_each_edit() {
        let dir = tempfile::tempdir().unwrap();
        let media = Directory::open(dir.path(), DirectoryOptions::default()).unwrap();
        let mut manifest = Manifest::new(media, 1, crate::journal::COMPARATOR, None);
        let long =
            || Edit { segments_gone: (0..500_000).map(|n| n + (1 << 40)).collect(), ..Edit::default() };
        let edit = Edit { log_floor: Some(1), ..Edit::default() };
        manifest.append(&edit, long, || 1).unwrap();
        manifest.append(&edit, || panic!("it is written anew"), || 2).unwrap();
    }
}
