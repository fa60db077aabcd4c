//! Keys and stamps, and the order of entries: by key, ascending, then by stamp, newest first.

use std::cmp::Ordering;
use vellum_base::{Error, Result};

/// Largest sequence number.
pub(crate) const SEQ_MAX: u64 = (1 << 60) - 1;

/// Largest key in bytes.
pub const KEY_BYTES_MAX: usize = 65_535;

/// Number of the keyspace of keys that are written without one.
pub(crate) const DEFAULT_KEYSPACE: u8 = 0;
/// Most named keyspaces of a store; also the largest keyspace number.
pub const KEYSPACES_MAX: usize = 254;
/// Longest name of a keyspace in bytes.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 255;

/// What a get looks for: the newest entry of an internal key up to a stamp.
#[derive(Clone, Copy)]
pub(crate) struct LookupKey<'a> {
    pub key: &'a [u8],
    pub stamp: Stamp,
    /// Of the key, for filters.
    pub hash: u64,
}

/// Kind of an entry. The numbers are part of the formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EntryKind {
    /// The key is gone.
    Delete = 0,
    /// The key has a value.
    Put = 1,
}

impl EntryKind {
    pub(crate) fn from_byte(byte: u8) -> Option<EntryKind> {
        match byte {
            0 => Some(EntryKind::Delete),
            1 => Some(EntryKind::Put),
            _ => None,
        }
    }
}

/// Kind of a put that has a pointer in place of its value. Part of the format of tables.
const IN_LOG: u64 = 2;

/// Sequence number and kind of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Stamp(pub u64);

impl Stamp {
    pub(crate) fn new(seq: u64, kind: EntryKind) -> Stamp {
        debug_assert!(seq <= SEQ_MAX);
        Stamp(seq << 4 | kind as u64)
    }
    /// The upper bound of stamps up to `seq`: entries visible at `seq` are those with at most this stamp.
    pub(crate) fn visible_at(seq: u64) -> Stamp {
        Stamp(seq << 4 | 0xF)
    }
    /// The same kind with another sequence number.
    pub(crate) fn of(self, seq: u64) -> Stamp {
        Stamp(seq << 4 | self.0 & 0xF)
    }
    /// The stamp of a put whose value is replaced by a pointer into a log. This kind exists only within tables.
    pub(crate) fn in_log(self) -> Stamp {
        Stamp(self.0 & !0xF | IN_LOG)
    }
    /// True if the entry's value is a pointer.
    #[inline]
    pub(crate) fn is_in_log(self) -> bool {
        self.0 & 0xF == IN_LOG
    }
    /// The stamp as readers of a table see it: an entry with a pointer is a put.
    #[inline]
    pub(crate) fn shown(self) -> Stamp {
        if self.is_in_log() { Stamp(self.0 & !0xF | EntryKind::Put as u64) } else { self }
    }
    pub(crate) fn seq(self) -> u64 {
        self.0 >> 4
    }
    /// `None` if the stamp comes from a newer format.
    pub(crate) fn kind(self) -> Option<EntryKind> {
        EntryKind::from_byte((self.0 & 0xF) as u8)
    }
}

/// The order of entries.
pub(crate) fn compare(a: (&[u8], Stamp), b: (&[u8], Stamp)) -> Ordering {
    a.0.cmp(b.0).then(b.1.cmp(&a.1))
}

/// Calls `then` with the internal key: the keyspace, then `key`. Short keys need no heap allocation. `key` may be
/// longer than entries allow.
#[inline]
pub(crate) fn with_keyspace<T>(keyspace: u8, key: &[u8], then: impl FnOnce(&[u8]) -> T) -> T {
    const SHORT: usize = 64;
    if key.len() < SHORT {
        let mut internal = [keyspace; SHORT];
        internal[1..=key.len()].copy_from_slice(key);
        return then(&internal[..=key.len()]);
    }
    then(&[&[keyspace], key].concat())
}

/// The same for a key that may be that of an entry; an error if it is too long.
#[inline]
pub(crate) fn with_internal<T>(keyspace: u8, key: &[u8], then: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
    check_key(key)?;
    with_keyspace(keyspace, key, then)
}

/// True if the keys are equal. Compares the last bytes first, in which adjacent keys usually differ.
#[inline]
pub(crate) fn are_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.last_chunk::<8>() == b.last_chunk() && a == b
}

/// An error if `key` is too long.
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    match key.len() {
        0..=KEY_BYTES_MAX => Ok(()),
        bytes => {
            Err(Error::invalid(format!("a key of {bytes} bytes; {KEY_BYTES_MAX} is the most a key can have")))
        }
    }
}

/// One of the shortest keys that are at least `last` and below `next`; `last` if `next` is not above it.
pub(crate) fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
    let bytes = separator_bytes(last, next);
    let mut short = last[..bytes].to_vec();
    if bytes < last.len() {
        short[bytes - 1] += 1;
    }
    short
}

/// Length of [`separator`].
pub(crate) fn separator_bytes(last: &[u8], next: &[u8]) -> usize {
    let same = crate::bytes::shared_len(last, next);
    match (last.get(same), next.get(same)) {
        (Some(low), Some(high)) if low < high => {
            // Where it differs it may be one more than `last`, unless that is all of `next`; then somewhere behind.
            let is_next = low + 1 == *high && next.len() == same + 1;
            let from = same + usize::from(is_next);
            let more = last[from..].iter().position(|byte| *byte < u8::MAX);
            more.map_or(last.len(), |more| from + more + 1)
        }
        _ => last.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Keys of bytes that are close to each other, or to the end of what a byte can be.
    fn telling() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 254, 255]), 0..6)
    }

    proptest! {
        #[test]
        fn separators_separate(a in telling(), b in telling()) {
            if a != b {
                let (low, high) = if a < b { (&a, &b) } else { (&b, &a) };
                let s = separator(low, high);
                prop_assert!(s >= *low && s < *high);
                // Those that are shorter are too low or too high: none begins as `low` does and goes on higher.
                let is_between = |s: &[u8]| s >= &low[..] && s < &high[..];
                let bumped = |at: usize| (low[at] < 255).then(|| [&low[..at], &[low[at] + 1]].concat());
                let shortest = (0..low.len()).filter_map(bumped).find(|s| is_between(s));
                prop_assert_eq!(s.len(), shortest.map_or(low.len(), |s| s.len()));
            }
        }
    }

    #[test]
    fn newer_entries_of_a_key_come_first() {
        let (old, new) = (Stamp::new(5, EntryKind::Put), Stamp::new(6, EntryKind::Delete));
        assert_eq!(compare((b"a", new), (b"a", old)), Ordering::Less);
        assert_eq!(compare((b"a", old), (b"b", new)), Ordering::Less);
        assert!(new <= Stamp::visible_at(6) && new > Stamp::visible_at(5));
        assert_eq!((new.seq(), new.kind()), (6, Some(EntryKind::Delete)));
    }
}
