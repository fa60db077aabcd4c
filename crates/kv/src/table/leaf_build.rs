//! Collecting the entries of a leaf.

use super::leaf::RESTART_ENTRIES;
use super::object::{self, HEAD_BYTES, ObjectKind};
use crate::bytes::{Fields, put_varint, shared_len, varint_len};
use crate::key::Stamp;

/// Entries in order, encoded as a leaf has them.
#[derive(Default)]
pub(crate) struct LeafBuilder {
    entries: Vec<u8>,
    restarts: Vec<u32>,
    /// Where each entry ends, and the hash of its key.
    marks: Vec<(u32, u64)>,
    last_key: Vec<u8>,
}

impl LeafBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }
    pub(crate) fn count(&self) -> usize {
        self.marks.len()
    }
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
    }
    /// Hashes of the keys, in order.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = u64> {
        self.marks.iter().map(|(_, hash)| *hash)
    }
    /// Bytes of the leaf so far.
    pub(crate) fn bytes(&self) -> usize {
        HEAD_BYTES + self.entries.len() + 4 * self.restarts.len()
    }
    /// Bytes of the payload of the first `count` entries, restarts aside.
    pub(crate) fn bytes_of(&self, count: usize) -> usize {
        count.checked_sub(1).map_or(0, |last| self.marks[last].0 as usize)
    }

    /// Bytes of the leaf with one more entry, at most.
    pub(crate) fn bytes_with(&self, key: &[u8], stamp: Stamp, value: &[u8]) -> usize {
        let restart = self.count().is_multiple_of(RESTART_ENTRIES);
        let shared = if restart { 0 } else { shared_len(&self.last_key, key) };
        let (unshared, value_len) = (key.len() - shared, value.len());
        let head = varint_len(shared as u64) + varint_len(unshared as u64) + varint_len(value_len as u64);
        self.bytes() + 4 * restart as usize + head + varint_len(stamp.0) + unshared + value_len
    }

    pub(crate) fn add(&mut self, key: &[u8], stamp: Stamp, value: &[u8], hash: u64) {
        let mut shared = 0;
        if self.count().is_multiple_of(RESTART_ENTRIES) {
            self.restarts.push(self.entries.len() as u32);
        } else {
            shared = shared_len(&self.last_key, key);
        }
        put_varint(&mut self.entries, shared as u64);
        put_varint(&mut self.entries, (key.len() - shared) as u64);
        put_varint(&mut self.entries, value.len() as u64);
        put_varint(&mut self.entries, stamp.0);
        self.entries.extend_from_slice(&key[shared..]);
        self.entries.extend_from_slice(value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.marks.push((self.entries.len() as u32, hash));
    }

    /// The payload of a leaf of the first `count` entries, into `out`, which is emptied first. Returns its restarts.
    pub(crate) fn payload(&self, count: usize, out: &mut Vec<u8>) -> u16 {
        let restarts = &self.restarts[..count.div_ceil(RESTART_ENTRIES)];
        out.clear();
        out.extend_from_slice(&self.entries[..self.bytes_of(count)]);
        restarts.iter().for_each(|restart| out.extend_from_slice(&restart.to_le_bytes()));
        restarts.len() as u16
    }

    /// Appends the leaf to `out` and starts anew. Returns its units.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>, kind: ObjectKind) -> usize {
        let start = object::begin(out);
        out.extend_from_slice(&self.entries);
        for restart in &self.restarts {
            out.extend_from_slice(&restart.to_le_bytes());
        }
        // A leaf has at most 64 Ki restarts: small entries close it at a few units.
        let units = object::end(out, start, kind, self.restarts.len() as u16);
        self.entries.clear();
        self.restarts.clear();
        self.marks.clear();
        units
    }

    /// Hands out every entry: its number, key, stamp, value, and the key's hash.
    pub(crate) fn each(&self, mut with: impl FnMut(usize, &[u8], Stamp, &[u8], u64)) {
        let (mut start, mut key) = (0, Vec::new());
        for (at, (end, hash)) in self.marks.iter().enumerate() {
            let mut fields = Fields::new(&self.entries[start..*end as usize]);
            let mut number = || fields.varint().expect("written here");
            let (shared, unshared) = (number() as usize, number() as usize);
            let (_, stamp) = (number(), Stamp(number()));
            key.truncate(shared);
            key.extend_from_slice(fields.take(unshared).expect("written here"));
            let value = fields.take(fields.left()).expect("the rest");
            with(at, &key, stamp, value, *hash);
            start = *end as usize;
        }
    }
}
