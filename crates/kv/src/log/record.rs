//! Records of the log. Their encoding does not depend on their place, so that a copied record stays identical. See
//! docs/formats/kv-segment.md.

use crate::bytes::u32_at;
use crate::key::EntryKind;

/// Bytes of a record's head; records begin at multiples of this.
pub(crate) const RECORD_HEAD_BYTES: usize = 8;
/// Most bytes behind a head.
const BODY_BYTES_MAX: usize = (1 << 28) - 1;
/// Bytes that say how long a key is.
const KEY_LENGTH_BYTES: usize = 2;

const MORE: u32 = 1 << 30;
const TWIN: u32 = 1 << 31;
const BUBBLE: u32 = 2;

/// A key and what is to be known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub kind: EntryKind,
    pub key: &'a [u8],
    /// Nothing of a delete.
    pub value: &'a [u8],
    /// Its batch goes on with the next. Counts only in a log.
    pub more: bool,
    /// When it was written, another key with the same hash was there.
    pub twin: bool,
}

/// What is found at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    Record(Record<'a>),
    /// Nothing, on purpose.
    Bubble,
}

/// Bytes that a record takes.
pub(crate) fn record_bytes(kind: EntryKind, key: usize, value: usize) -> usize {
    let body = match kind {
        EntryKind::Put => KEY_LENGTH_BYTES + key + value,
        EntryKind::Delete => key,
    };
    (RECORD_HEAD_BYTES + body).next_multiple_of(RECORD_HEAD_BYTES)
}

impl Record<'_> {
    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        record_bytes(self.kind, self.key.len(), self.value.len())
    }

    /// Appends it. Its key and value are within the limits.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; RECORD_HEAD_BYTES]);
        let kind = match self.kind {
            EntryKind::Put => {
                out.extend_from_slice(&(self.key.len() as u16).to_le_bytes());
                0
            }
            EntryKind::Delete => 1,
        };
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
        let body = out.len() - start - RECORD_HEAD_BYTES;
        assert!(body <= BODY_BYTES_MAX, "a record of {body} bytes");
        let flags = (MORE * u32::from(self.more)) | (TWIN * u32::from(self.twin));
        finish(out, start, body as u32 | kind << 28 | flags, body);
        out.resize(start + self.bytes(), 0);
    }
}

/// Appends a bubble of `bytes`, a multiple of [`RECORD_HEAD_BYTES`].
pub(crate) fn write_bubble(bytes: usize, out: &mut Vec<u8>) {
    assert!(bytes.is_multiple_of(RECORD_HEAD_BYTES), "a bubble of {bytes} bytes");
    let mut left = bytes;
    while left > 0 {
        let body = (left - RECORD_HEAD_BYTES).min(BODY_BYTES_MAX / RECORD_HEAD_BYTES * RECORD_HEAD_BYTES);
        let start = out.len();
        out.extend_from_slice(&[0; RECORD_HEAD_BYTES]);
        finish(out, start, body as u32 | BUBBLE << 28, 0);
        out.resize(start + RECORD_HEAD_BYTES + body, 0);
        left -= RECORD_HEAD_BYTES + body;
    }
}

/// Completes the head at `start`; the checksum covers the head and `checked` bytes behind it.
fn finish(out: &mut [u8], start: usize, word: u32, checked: usize) {
    out[start + 4..start + 8].copy_from_slice(&word.to_le_bytes());
    let crc = vellum_codes::crc32c(&out[start + 4..start + RECORD_HEAD_BYTES + checked]);
    out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
}

/// How many bytes the record with this head takes; `None` if it is no head. Nothing is checked yet.
pub(crate) fn length_of(head: &[u8]) -> Option<usize> {
    let word = u32_at(head.get(..RECORD_HEAD_BYTES)?, 4);
    let (body, kind) = ((word as usize) & BODY_BYTES_MAX, word >> 28 & 3);
    let possible = match kind {
        0 => body >= KEY_LENGTH_BYTES,
        1 => body <= crate::key::KEY_BYTES_MAX,
        _ => kind == BUBBLE && word & (MORE | TWIN) == 0,
    };
    possible.then_some((RECORD_HEAD_BYTES + body).next_multiple_of(RECORD_HEAD_BYTES))
}

/// Bytes behind the head of a record that its checksum covers.
pub(crate) fn checked_bytes(head: &[u8]) -> usize {
    let word = u32_at(head, 4);
    if word >> 28 & 3 == BUBBLE { 0 } else { (word as usize) & BODY_BYTES_MAX }
}

/// Decodes what `bytes` begin with, and how many bytes it takes. `None` if that does not check out, or not all of it
/// is there.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Item<'_>, usize)> {
    let length = length_of(bytes).filter(|length| *length <= bytes.len())?;
    let word = u32_at(bytes, 4);
    let (body, kind) = ((word as usize) & BODY_BYTES_MAX, word >> 28 & 3);
    let body = &bytes[RECORD_HEAD_BYTES..RECORD_HEAD_BYTES + body];
    let record = |kind, key, value| {
        Item::Record(Record { kind, key, value, more: word & MORE != 0, twin: word & TWIN != 0 })
    };
    // Cheap checks come first.
    let item = match kind {
        BUBBLE => Item::Bubble,
        0 => {
            let (head, rest) = body.split_at(KEY_LENGTH_BYTES);
            let (key, value) = rest.split_at_checked(u16::from_le_bytes([head[0], head[1]]) as usize)?;
            record(EntryKind::Put, key, value)
        }
        _ => record(EntryKind::Delete, body, &[]),
    };
    let checked = RECORD_HEAD_BYTES + checked_bytes(bytes);
    (vellum_codes::crc32c(&bytes[4..checked]) == u32_at(bytes, 0)).then_some((item, length))
}

/// What follows one another in `bytes`.
pub(crate) struct Items<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Items<'a> {
    /// From byte `at` on.
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Items<'a> {
        Items { bytes, at }
    }
    /// Where the next begins; behind the last, where that ends.
    pub(crate) fn at(&self) -> usize {
        self.at
    }
    /// True if all was read.
    pub(crate) fn is_done(&self) -> bool {
        self.at >= self.bytes.len()
    }
}

impl<'a> Iterator for Items<'a> {
    /// Where it is, what it is, how many bytes it takes.
    type Item = (usize, Item<'a>, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let (item, length) = decode(self.bytes.get(self.at..)?)?;
        let found = (self.at, item, length);
        self.at += length;
        Some(found)
    }
}

/// Decodes fuzzed bytes, their checksums put right first (see `crate::fuzz`).
pub(crate) fn fuzzed(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    while let Some(length) = bytes.get(at..).and_then(length_of).filter(|length| at + length <= bytes.len()) {
        let (word, checked) = (u32_at(&bytes, at + 4), checked_bytes(&bytes[at..]));
        finish(&mut bytes, at, word, checked);
        at += length;
    }
    let mut items = Items::new(&bytes, 0);
    for (_, item, length) in items.by_ref() {
        if let Item::Record(record) = item {
            assert_eq!(record.bytes(), length);
            let mut again = Vec::new();
            record.write(&mut again);
            assert_eq!(decode(&again), Some((item, length)));
        }
    }
    assert!(items.at() <= bytes.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Parts = (bool, Vec<u8>, Vec<u8>, bool, bool, usize);

    fn all() -> impl Strategy<Value = Vec<Parts>> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..60);
        prop::collection::vec(
            (any::<bool>(), bytes(), bytes(), any::<bool>(), any::<bool>(), 0usize..9),
            0..12,
        )
    }

    fn record((put, key, value, more, twin, _): &Parts) -> Record<'_> {
        let (kind, value) = if *put { (EntryKind::Put, &value[..]) } else { (EntryKind::Delete, &[][..]) };
        Record { kind, key, value, more: *more, twin: *twin }
    }

    fn log_of(all: &[Parts]) -> Vec<u8> {
        let mut out = Vec::new();
        for parts in all {
            record(parts).write(&mut out);
            write_bubble(parts.5 * RECORD_HEAD_BYTES, &mut out);
        }
        out
    }

    proptest! {
        #[test]
        fn records_and_bubbles_round_trip(all in all()) {
            let out = log_of(&all);
            let mut items = Items::new(&out, 0);
            for parts in &all {
                let (at, item, length) = items.next().unwrap();
                prop_assert_eq!((item, length), (Item::Record(record(parts)), record(parts).bytes()));
                prop_assert_eq!(at % RECORD_HEAD_BYTES, 0);
                if parts.5 > 0 {
                    prop_assert_eq!(items.next().unwrap().1, Item::Bubble);
                }
            }
            prop_assert!(items.next().is_none() && items.is_done());
        }

        #[test]
        fn a_flipped_bit_never_gives_another_record(all in all(), at in any::<prop::sample::Index>()) {
            let out = log_of(&all);
            prop_assume!(!out.is_empty());
            let mut bad = out.clone();
            let bit = at.index(bad.len() * 8);
            bad[bit / 8] ^= 1 << (bit % 8);
            let good: Vec<_> = Items::new(&out, 0).collect();
            for (found, expected) in Items::new(&bad, 0).zip(&good) {
                prop_assert_eq!(&found, expected);
            }
        }

        #[test]
        fn hostile_bytes_are_no_records(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            fuzzed(&bytes);
            Items::new(&bytes, 0).for_each(drop);
        }
    }

    #[test]
    fn zeros_are_no_record() {
        assert_eq!(decode(&[0; 64]), None);
        assert_eq!(length_of(&[0; 64]), None);
    }
}
