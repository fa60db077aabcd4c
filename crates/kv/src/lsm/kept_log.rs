//! Logs that are kept because tables of level 0 point to values in them (docs/decisions/0026).
//!
//! Invariants
//! 1. A log is synced before the manifest names a table that points into it.
//! 2. It is removed when no current table points into it, and the last holder of one that did has dropped it. It is
//!    listed in [`crate::obsolete::Obsolete`], and removed before that table is erased.
//! 3. Values are verified by their checksums each time they are read, after being copied to memory of the store; cached
//!    ones were verified.

use crate::bytes::{Fields, put_varint, u32_at};
use crate::journal::{Area, LogPart};
use crate::lsm::cache::CacheKey;
use crate::lsm::table::{Library, Object};
use crate::lsm::units::Units;
use crate::media::{AreaReader, Mapping, Media};
use crate::options::CachePolicy;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use vellum_base::sync::Mutex;
use vellum_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::{Error, Result};

/// Smaller values are kept in the table: a pointer would save little, and costs a read.
pub(crate) const POINTED_BYTES_MIN: usize = 48;

/// The place of a value in a log. See docs/formats/kv-table.md.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pointer {
    pub log: u64,
    pub offset: u64,
    pub bytes: u64,
    pub crc: u32,
}

impl Pointer {
    /// A pointer to `value`, which is at `offset` of `log`.
    pub(crate) fn to(value: &[u8], log: u64, offset: u64) -> Pointer {
        Pointer { log, offset, bytes: value.len() as u64, crc: vellum_codes::crc32c(value) }
    }

    /// Encodes it to `out`, which is cleared first.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        [self.log, self.offset, self.bytes].into_iter().for_each(|number| put_varint(out, number));
        out.extend_from_slice(&self.crc.to_le_bytes());
    }

    pub(crate) fn decode(stored: &[u8]) -> Result<Pointer> {
        Pointer::read(stored).ok_or_else(|| Error::corrupt("a pointer into a log does not decode"))
    }

    fn read(stored: &[u8]) -> Option<Pointer> {
        let mut fields = Fields::new(stored);
        let (log, offset, bytes) = (fields.varint()?, fields.varint()?, fields.varint()?);
        let crc = u32_at(fields.take(4)?, 0);
        offset.checked_add(bytes).filter(|_| fields.is_empty())?;
        Some(Pointer { log, offset, bytes, crc })
    }

    /// Its key in the cache. Pointed values are at least `POINTED_BYTES_MIN` long, so no two begin in the same unit of
    /// that size. `None` if the offset is too large.
    pub(crate) fn place(&self) -> Option<CacheKey> {
        let unit = u32::try_from(self.offset / POINTED_BYTES_MIN as u64).ok()?;
        Some(CacheKey { table: self.log, unit })
    }

    /// End of the value.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    /// An error unless these bytes are the value.
    pub(crate) fn check(&self, value: &[u8]) -> Result<()> {
        match vellum_codes::crc32c(value) == self.crc {
            true => Ok(()),
            false => Err(Error::corrupt(format!(
                "the value at byte {} of log {}: checksum does not match",
                self.offset, self.log
            ))),
        }
    }
}

/// A log that tables point into.
pub(crate) struct KeptLog {
    pub number: u64,
    /// Length of the file.
    pub bytes: u64,
    reader: Arc<dyn AreaReader>,
    /// See [`crate::Options::map_files`].
    map: Option<Arc<Mapping>>,
    /// Cache keys of its values.
    cached: Units,
    library: Arc<Library>,
    is_obsolete: AtomicBool,
}

impl KeptLog {
    /// Marks it obsolete, as no current table points into it: it is removed when nobody holds it any more.
    pub(crate) fn retire(&self) {
        self.is_obsolete.store(true, Relaxed);
    }

    /// Reads at `offset`.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.reader.read(offset, out).map_err(|e| e.context(format!("log {}", self.number)))
    }

    /// The same at several offsets, which are waited for together.
    pub(crate) fn read_all(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        self.reader.read_all(reads).map_err(|e| e.context(format!("log {}", self.number)))
    }

    /// True if it is mapped, and can be copied from there without waiting for the device, or could a moment ago.
    pub(crate) fn is_at_hand(&self) -> bool {
        self.map.as_ref().is_some_and(|map| map.is_sound() && map.was_resident())
    }

    /// Reads and verifies a value into `out`, which is cleared first.
    pub(crate) fn value(&self, pointer: &Pointer, out: &mut Vec<u8>) -> Result<()> {
        self.check_place(pointer)?;
        out.clear();
        out.resize(pointer.bytes as usize, 0);
        self.read(pointer.offset, out)?;
        pointer.check(out)
    }

    /// The same for a client: uses the mapping or the cache, as the value may be read again.
    pub(crate) fn get(&self, pointer: &Pointer, out: &mut Vec<u8>) -> Result<()> {
        self.check_place(pointer)?;
        if let Some(copied) = self.copy_mapped(pointer, out) {
            return copied;
        }
        let (cache, place) = (&self.library.cache, pointer.place());
        let place = place.filter(|_| cache.can_hold(pointer.bytes as usize));
        let cached = place.and_then(|place| cache.get(place));
        if let Some(value) = cached.as_ref().and_then(|object| object.value_of(pointer)) {
            out.clear();
            out.extend_from_slice(value);
            return Ok(());
        }
        self.library.pointed_reads.add(1);
        self.value(pointer, out)?;
        if let Some(place) = place.filter(|place| cache.admits(*place, out.len())) {
            self.cached.mark(place.unit as usize);
            cache.insert(place, Arc::new(Object::Value { pointer: *pointer, bytes: out[..].into() }));
        }
        Ok(())
    }

    /// The same for who merges: past the cache.
    pub(crate) fn copy(&self, pointer: &Pointer, out: &mut Vec<u8>) -> Result<()> {
        self.copy_mapped(pointer, out).unwrap_or_else(|| self.value(pointer, out))
    }

    /// Copies a value from where the kernel has it, and checks it; `None` if that is not to be had, or not any more.
    fn copy_mapped(&self, pointer: &Pointer, out: &mut Vec<u8>) -> Option<Result<()>> {
        let map = self.map.as_ref()?;
        let value = self.mapped(pointer)?;
        out.clear();
        out.extend_from_slice(value);
        let checked = pointer.check(out);
        map.is_sound().then_some(checked)
    }

    /// The value, where the kernel has it, if the log is mapped and that is at hand: to be copied, and checked then.
    pub(crate) fn mapped(&self, pointer: &Pointer) -> Option<&[u8]> {
        self.map.as_ref()?.at_hand(pointer.offset as usize..pointer.end() as usize)
    }

    /// The same, at hand or not.
    pub(crate) fn in_map(&self, pointer: &Pointer) -> Option<&[u8]> {
        self.map.as_ref()?.get(pointer.offset as usize..pointer.end() as usize)
    }

    /// An error unless the log reaches so far.
    pub(crate) fn check_place(&self, pointer: &Pointer) -> Result<()> {
        match pointer.end() <= self.bytes {
            true => Ok(()),
            false => Err(Error::corrupt(format!(
                "a pointer to byte {} of log {}, which has {}",
                pointer.offset, self.number, self.bytes
            ))),
        }
    }
}

impl Drop for KeptLog {
    fn drop(&mut self) {
        if self.is_obsolete.load(Relaxed) {
            if self.library.policy == CachePolicy::CompactionAware {
                self.library.cache.remove_units(self.number, self.cached.iter());
            }
            self.library.obsolete.add_log(self.number);
        }
    }
}

/// Those that are open: tables that point into one log share it.
#[derive(Default)]
pub(crate) struct KeptLogs {
    open: Mutex<BTreeMap<u64, Weak<KeptLog>>>,
}

impl KeptLogs {
    /// The log that a table counts on.
    pub(crate) fn open(library: &Arc<Library>, media: &dyn Media, part: LogPart) -> Result<Arc<KeptLog>> {
        let mut open = library.kept_logs.open.lock();
        let log = match open.get(&part.number).and_then(Weak::upgrade) {
            Some(log) => log,
            None => {
                let reader = media.open_area(Area::log(part.number))?;
                let (number, bytes, library) = (part.number, reader.bytes()?, library.clone());
                let map = library.map_files.then(|| reader.map()).flatten();
                let units = bytes as usize / POINTED_BYTES_MIN + 1;
                let (cached, is_obsolete) = (Units::of(units), AtomicBool::new(false));
                Arc::new(KeptLog { number, bytes, reader, map, cached, library, is_obsolete })
            }
        };
        open.retain(|_, log| log.strong_count() > 0);
        open.insert(part.number, Arc::downgrade(&log));
        drop(open);
        match part.bytes <= log.bytes {
            true => Ok(log),
            false => Err(Error::corrupt(format!(
                "log {} has {} bytes, of which the table needs {}",
                log.number, log.bytes, part.bytes
            ))),
        }
    }
}

/// Any bytes as a pointer.
pub(crate) fn fuzzed(bytes: &[u8]) {
    if let Ok(pointer) = Pointer::decode(bytes) {
        let mut again = Vec::new();
        pointer.encode(&mut again);
        assert_eq!(Pointer::decode(&again).expect("what was decoded"), pointer);
        assert!(pointer.end() >= pointer.offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pointers_round_trip(log in any::<u64>(), offset in 0..1u64 << 40, value in prop::collection::vec(any::<u8>(), 0..99)) {
            let (pointer, mut out) = (Pointer::to(&value, log, offset), vec![9; 3]);
            pointer.encode(&mut out);
            prop_assert_eq!(Pointer::decode(&out).unwrap(), pointer);
            prop_assert!(pointer.check(&value).is_ok());
            for cut in 0..out.len() {
                prop_assert!(Pointer::decode(&out[..cut]).is_err());
            }
            out.push(0);
            prop_assert!(Pointer::decode(&out).is_err());
        }

        #[test]
        fn hostile_pointers_are_errors_or_pointers(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            fuzzed(&bytes);
        }
    }

    #[test]
    fn one_bit_of_a_value_is_seen() {
        let pointer = Pointer::to(b"vellum", 7, 99);
        let error = pointer.check(b"vellun").unwrap_err();
        assert!(error.to_string().contains("byte 99 of log 7"), "{error}");
    }
}
