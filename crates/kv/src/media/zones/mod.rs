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
mod format;
mod home;
mod homes;
mod label;
mod lost;
mod media;
mod reader;
mod writer;

pub use home::ZoneHome;

use super::{Directory, Media, ZONES};
use format::is_without_store;
use home::Note;
use homes::{Inner, find_tables};
use label::label_of;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Result, Zones};

/// What is to become the file ZONES.
const ZONES_NEW: &str = "ZONES.new";

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

impl ZoneMedia {
    /// Fewest zones of a device: the label, a table on each of three levels, and what a merge of them writes.
    pub const ZONES_MIN: u32 = 8;
    /// Least size of a zone. In some of less than 80 KiB there is no room for the largest key and value that the store
    /// takes: it would fail for good at the next flush. Below 36 KiB that happens with any.
    pub const ZONE_BYTES_MIN: u64 = 128 << 10;

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

/// Decodes fuzzed bytes as all that a device and its directory begin with (see `crate::fuzz`).
pub(crate) fn fuzzed(bytes: &[u8]) {
    label::fuzzed(bytes);
    home::fuzzed(bytes);
}
