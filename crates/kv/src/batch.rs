//! A batch of writes, applied atomically.

use crate::bytes::{Fields, put_varint, varint_len};
use crate::journal::PAYLOAD_BYTES_MAX;
use crate::key::{DEFAULT_KEYSPACE, EntryKind, KEY_BYTES_MAX, check_key};
use crate::lsm::keyspace::{Keyspace, Space};
use crate::options::VALUE_BYTES_MAX;
use crate::reason;
use std::sync::Arc;
use vellum_base::{Error, Result};

/// Upper limit in bytes of a batch ([`Batch::bytes`]), in any store. The limit of a store
/// ([`crate::Map::batch_bytes_max`]) may be lower.
pub const BATCH_BYTES_MAX: usize = PAYLOAD_BYTES_MAX;

/// Puts and deletes that are applied atomically: after a crash all of them are there, or none. Of several for one key
/// the last one counts.
///
/// ```
/// let mut batch = vellum_kv::Batch::new();
/// batch.put(b"k", b"v").unwrap();
/// batch.delete(b"old").unwrap();
/// assert_eq!(batch.len(), 2);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The payload of its log record.
    payload: Vec<u8>,
    count: u32,
    puts: u32,
    /// Bytes of keys and values.
    user_bytes: usize,
    /// Bytes of the largest key that is put, and of the largest value.
    put_key_bytes_max: usize,
    value_bytes_max: usize,
    /// Named keyspaces that the batch writes to.
    spaces: Vec<Arc<Space>>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }
    /// Sets `key` to `value`. A key has at most [`KEY_BYTES_MAX`] bytes, and at most a sixteenth of the bytes of a
    /// table and a quarter of a log; the limit of values depends on the store ([`crate::Map::value_bytes_max`]).
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.entry(EntryKind::Put, DEFAULT_KEYSPACE, key, value)
    }
    /// Removes `key`, if it is there.
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.entry(EntryKind::Delete, DEFAULT_KEYSPACE, key, &[])
    }
    /// Sets `key` in a keyspace, which must belong to the store that the batch is written to.
    pub fn put_in(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        self.entry(EntryKind::Put, keyspace.space.number, key, value)?;
        self.touch(&keyspace.space);
        Ok(())
    }
    /// Removes `key` from a keyspace, if it is there.
    pub fn delete_in(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        self.entry(EntryKind::Delete, keyspace.space.number, key, &[])?;
        self.touch(&keyspace.space);
        Ok(())
    }
    /// Moves what is in the default keyspace to another one.
    pub fn move_to(&mut self, keyspace: &Keyspace) {
        let mut at = 0;
        while let Some((entry, bytes)) = decode_entry(&self.payload[at..]) {
            let space_at = at + bytes - entry.value.len() - entry.key.len();
            if self.payload[space_at] == DEFAULT_KEYSPACE {
                self.payload[space_at] = keyspace.space.number;
            }
            at += bytes;
        }
        self.touch(&keyspace.space);
    }
    /// Number of puts and deletes.
    pub fn len(&self) -> usize {
        self.count as usize
    }
    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    /// Removes all entries and keeps the memory.
    pub fn clear(&mut self) {
        self.payload.clear();
        self.spaces.clear();
        (self.count, self.puts, self.user_bytes) = (0, 0, 0);
        (self.put_key_bytes_max, self.value_bytes_max) = (0, 0);
    }
    /// Bytes that the batch takes in the log, not counting the record header.
    pub fn bytes(&self) -> usize {
        self.payload.len()
    }
    /// Bytes of keys and values: the denominator of write amplification.
    pub fn user_bytes(&self) -> usize {
        self.user_bytes
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }
    /// Bytes of the largest key that is put.
    pub(crate) fn put_key_bytes_max(&self) -> usize {
        self.put_key_bytes_max
    }
    /// Bytes of the largest value.
    pub fn value_bytes_max(&self) -> usize {
        self.value_bytes_max
    }
    /// Named keyspaces that the batch writes to.
    pub(crate) fn spaces(&self) -> &[Arc<Space>] {
        &self.spaces
    }
    /// True if it holds no puts.
    pub(crate) fn only_deletes(&self) -> bool {
        self.puts == 0
    }

    fn touch(&mut self, space: &Arc<Space>) {
        if !self.spaces.iter().any(|known| Arc::ptr_eq(known, space)) {
            self.spaces.push(space.clone());
        }
    }

    fn entry(&mut self, kind: EntryKind, keyspace: u8, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        if value.len() > VALUE_BYTES_MAX {
            let bytes = value.len();
            let what = format!("a value of {bytes} bytes; {VALUE_BYTES_MAX} is the most");
            return Err(Error::invalid(what).because(reason::VALUE_TOO_LONG));
        }
        put_entry(&mut self.payload, kind, (&[keyspace], key), value);
        self.count += 1;
        self.puts += (kind == EntryKind::Put) as u32;
        self.user_bytes += key.len() + value.len();
        if kind == EntryKind::Put {
            self.put_key_bytes_max = self.put_key_bytes_max.max(key.len());
        }
        self.value_bytes_max = self.value_bytes_max.max(value.len());
        Ok(())
    }
}

/// An error if `bytes` exceeds `most`; `what` names the thing in the message.
pub(crate) fn at_most(what: &str, bytes: usize, most: usize) -> Result<()> {
    match bytes > most {
        true => Err(Error::invalid(format!("{what} of {bytes} bytes: {most} is the most here"))),
        false => Ok(()),
    }
}

/// An error with its reason if a value of so many bytes is longer than `most`.
pub(crate) fn check_value_bytes(bytes: usize, most: usize) -> Result<()> {
    at_most("a value", bytes, most).map_err(|error| error.because(reason::VALUE_TOO_LONG))
}

/// An entry of a batch's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchEntry<'a> {
    pub kind: EntryKind,
    /// Internal key: its first byte is the keyspace.
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// Appends an entry. The key is passed in two parts.
pub(crate) fn put_entry(out: &mut Vec<u8>, kind: EntryKind, key: (&[u8], &[u8]), value: &[u8]) {
    let key_len = key.0.len() + key.1.len();
    out.reserve(key_len + value.len() + varint_len(value.len() as u64) + 4);
    out.push(kind as u8);
    put_varint(out, key_len as u64);
    if kind == EntryKind::Put {
        put_varint(out, value.len() as u64);
    }
    out.extend_from_slice(key.0);
    out.extend_from_slice(key.1);
    out.extend_from_slice(value);
}

/// Decodes the entry at the start of `payload`; returns it and its length.
#[inline]
pub(crate) fn decode_entry(payload: &[u8]) -> Option<(BatchEntry<'_>, usize)> {
    let mut fields = Fields::new(payload);
    let kind = EntryKind::from_byte(fields.u8()?)?;
    let key_len = usize::try_from(fields.varint()?).ok()?;
    let value_len = match kind {
        EntryKind::Put => usize::try_from(fields.varint()?).ok()?,
        EntryKind::Delete => 0,
    };
    let key = fields.take(key_len).filter(|key| (1..=KEY_BYTES_MAX + 1).contains(&key.len()))?;
    let value = fields.take(value_len)?;
    Some((BatchEntry { kind, key, value }, payload.len() - fields.left()))
}

/// Counts the entries of a payload read from the medium; an error if one does not decode, or its keyspace is not
/// `known`.
pub(crate) fn check_payload(mut payload: &[u8], known: impl Fn(u8) -> bool) -> Result<u64> {
    let mut count = 0;
    while !payload.is_empty() {
        let Some((entry, len)) = decode_entry(payload) else {
            return Err(Error::corrupt("a batch does not decode"));
        };
        if !known(entry.key[0]) {
            return Err(Error::corrupt(format!("an entry of keyspace {}, which is not there", entry.key[0])));
        }
        payload = &payload[len..];
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn batches_round_trip(ops in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..300), prop::collection::vec(any::<u8>(), 0..300)), 0..10)) {
            let mut batch = Batch::new();
            for (put, key, value) in &ops {
                if *put { batch.put(key, value).unwrap() } else { batch.delete(key).unwrap() }
            }
            prop_assert_eq!(check_payload(batch.payload(), |k| k == 0).unwrap(), ops.len() as u64);
            let mut rest = batch.payload();
            for (put, key, value) in &ops {
                let (entry, len) = decode_entry(rest).unwrap();
                rest = &rest[len..];
                prop_assert_eq!(&entry.key[1..], &key[..]);
                prop_assert_eq!(entry.value, if *put { &value[..] } else { &[] });
                prop_assert_eq!(entry.kind == EntryKind::Put, *put);
            }
        }

        #[test]
        fn hostile_batches_are_errors(bytes in prop::collection::vec(any::<u8>(), 1..60)) {
            let _ = check_payload(&bytes, |_| true);
        }
    }

    #[test]
    fn keys_have_a_limit() {
        let mut batch = Batch::new();
        batch.put(&[0; KEY_BYTES_MAX], b"").unwrap();
        assert!(batch.put(&[0; KEY_BYTES_MAX + 1], b"").is_err() && batch.delete(&[0; 1 << 20]).is_err());
        assert_eq!(batch.len(), 1);
    }
}
