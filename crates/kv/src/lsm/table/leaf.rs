//! Leaves: sorted entries with shared prefixes, under one checksum, in whole units.
//!
//! Invariants of a leaf that [`Leaf::check`] accepted
//! 1. Its checksum matched, and every restart lies within the entries.
//! 2. Nothing else is trusted: an entry that does not decode is an error when it is reached, never a panic.

use super::buffer::Buffer;
use super::object::{Codec, Head, OBJECT_HEAD_BYTES, ObjectKind};
use super::pack::unpack;
use crate::bytes::{Fields, shared_len, u32_at};
use crate::key::Stamp;
use vellum_base::{Error, Result};

/// Entries from one restart to the next.
pub(crate) const RESTART_ENTRIES: usize = 8;

/// Where the parts of a leaf are in its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    /// End of the entries, start of the restarts.
    entries_end: usize,
    restarts: usize,
}

/// An entry within a leaf's bytes. Its key is prefix-compressed: see `shared`.
#[derive(Clone, Copy)]
pub(crate) struct RawEntry<'a> {
    /// Bytes of the key that are shared with the previous key.
    pub shared: usize,
    /// The remaining bytes of the key.
    pub suffix: &'a [u8],
    pub stamp: Stamp,
    pub value: &'a [u8],
    /// Offsets of this entry and of the next one.
    pub offset: usize,
    pub next: usize,
}

pub(super) fn broken() -> Error {
    Error::corrupt("leaf: an entry does not decode")
}

impl Leaf {
    /// Checks the leaf at the start of `bytes`.
    pub(crate) fn check(bytes: &[u8], kind: ObjectKind) -> Result<Leaf> {
        let head = Head::parse(bytes)?;
        head.check(bytes, kind)?;
        match head.codec {
            Codec::None => Leaf::shape(&head, bytes),
            _ => Err(Error::corrupt("leaf: compressed where none is")),
        }
    }

    /// Checks the data leaf at the start of `bytes`. If it is compressed, the leaf is that of its unpacked bytes, which
    /// are returned, too.
    pub(crate) fn open(bytes: &[u8]) -> Result<(Leaf, Option<Buffer>)> {
        let head = Head::parse(bytes)?;
        head.check(bytes, ObjectKind::Data)?;
        if head.codec == Codec::None {
            return Ok((Leaf::shape(&head, bytes)?, None));
        }
        let mut plain = Buffer::new(OBJECT_HEAD_BYTES + head.plain);
        unpack(head.codec, &bytes[OBJECT_HEAD_BYTES..head.length], &mut plain[OBJECT_HEAD_BYTES..])?;
        Ok((Leaf::shape(&head, &plain)?, Some(plain)))
    }

    /// The data leaf at the start of `bytes`; `None` if it is compressed. Checksum and restarts are not verified again
    /// if it `was_checked`.
    pub(crate) fn plain(bytes: &[u8], was_checked: bool) -> Result<Option<Leaf>> {
        let head = Head::parse(bytes)?;
        if head.codec != Codec::None {
            return Ok(None);
        }
        if was_checked {
            head.fits(bytes, ObjectKind::Data)?;
            return Leaf::parts(&head).map(Some);
        }
        head.check(bytes, ObjectKind::Data)?;
        Leaf::shape(&head, bytes).map(Some)
    }

    /// The parts of an uncompressed leaf, by its head.
    fn parts(head: &Head) -> Result<Leaf> {
        let restarts = head.restarts as usize;
        let Some(entries) = head.plain.checked_sub(restarts * 4).filter(|e| restarts > 0 && *e > 0) else {
            return Err(Error::corrupt("leaf: impossible shape"));
        };
        Ok(Leaf { entries_end: OBJECT_HEAD_BYTES + entries, restarts })
    }

    /// The same, with its restarts verified.
    fn shape(head: &Head, bytes: &[u8]) -> Result<Leaf> {
        let leaf = Leaf::parts(head)?;
        let offsets = (0..leaf.restarts).map(|i| leaf.restart(bytes, i));
        if leaf.restart(bytes, 0) != OBJECT_HEAD_BYTES || offsets.into_iter().any(|o| o >= leaf.entries_end) {
            return Err(Error::corrupt("leaf: a restart points outside"));
        }
        Ok(leaf)
    }

    /// Where the entries of restart `index` begin.
    #[inline]
    fn restart(&self, bytes: &[u8], index: usize) -> usize {
        OBJECT_HEAD_BYTES.saturating_add(u32_at(bytes, self.entries_end + 4 * index) as usize)
    }

    /// Number of entries in a leaf written by us, or up to seven more.
    pub(crate) fn entries_about(&self) -> usize {
        self.restarts * RESTART_ENTRIES
    }

    /// The entry at `offset`; `None` at the end.
    #[inline]
    pub(crate) fn entry<'a>(&self, bytes: &'a [u8], offset: usize) -> Result<Option<RawEntry<'a>>> {
        if offset >= self.entries_end {
            return Ok(None);
        }
        self.decode(bytes, offset).map(Some).ok_or_else(broken)
    }

    #[inline]
    fn decode<'a>(&self, bytes: &'a [u8], offset: usize) -> Option<RawEntry<'a>> {
        let mut fields = Fields::new(bytes.get(offset..self.entries_end)?);
        let shared = fields.varint()? as usize;
        let unshared = fields.varint()? as usize;
        let value_len = fields.varint()? as usize;
        let stamp = Stamp(fields.varint()?);
        let suffix = fields.take(unshared)?;
        let value = fields.take(value_len)?;
        let next = self.entries_end - fields.left();
        Some(RawEntry { shared, suffix, stamp, value, offset, next })
    }

    /// The stamp of the last entry, and its key into `key`.
    pub(crate) fn last(&self, bytes: &[u8], key: &mut Vec<u8>) -> Result<Option<Stamp>> {
        key.clear();
        let mut stamp = None;
        let mut offset = self.restart(bytes, self.restarts - 1);
        while let Some(entry) = self.entry(bytes, offset)? {
            if entry.shared > key.len() {
                return Err(broken());
            }
            key.truncate(entry.shared);
            key.extend_from_slice(entry.suffix);
            (stamp, offset) = (Some(entry.stamp), entry.next);
        }
        Ok(stamp)
    }

    /// How many entries there are.
    pub(crate) fn count(&self, bytes: &[u8]) -> Result<u64> {
        let (mut offset, mut count) = (OBJECT_HEAD_BYTES, 0);
        while let Some(entry) = self.entry(bytes, offset)? {
            (offset, count) = (entry.next, count + 1);
        }
        Ok(count)
    }

    /// The last restart whose key is below `key`, or the first.
    fn restart_before(&self, bytes: &[u8], key: &[u8]) -> Result<usize> {
        let (mut low, mut high) = (0, self.restarts);
        while high - low > 1 {
            let middle = (low + high) / 2;
            let entry = self.decode(bytes, self.restart(bytes, middle)).ok_or_else(broken)?;
            if entry.suffix < key { low = middle } else { high = middle }
        }
        Ok(low)
    }

    /// The first entry at or after (`key`, `stamp`): its offset, and whether its key is `key`. Builds no key: an
    /// entry is compared by what it does not share with the one before.
    pub(super) fn find(&self, bytes: &[u8], key: &[u8], stamp: Stamp) -> Result<(usize, bool)> {
        let mut offset = self.restart(bytes, self.restart_before(bytes, key)?);
        let mut same = 0; // bytes that the entry before, which is below, has in common with `key`
        while let Some(entry) = self.entry(bytes, offset)? {
            if entry.shared == 0 {
                same = 0; // a restart says nothing of what it shares
            }
            if entry.shared < same {
                return Ok((offset, false)); // it differs from the one before where that one agreed
            }
            if entry.shared == same {
                let more = shared_len(entry.suffix, &key[same..]);
                let (entry_ends, key_ends) = (more == entry.suffix.len(), same + more == key.len());
                match (entry_ends, key_ends) {
                    (true, true) if entry.stamp <= stamp => return Ok((offset, true)),
                    (true, _) => {}
                    (false, true) => return Ok((offset, false)),
                    (false, false) if entry.suffix[more] > key[same + more] => return Ok((offset, false)),
                    (false, false) => {}
                }
                same += more;
            }
            offset = entry.next;
        }
        Ok((self.entries_end, false))
    }

    /// The first entry at or after `key` in any version, and whether its key is `key`. `None` past the end.
    pub(crate) fn at_or_after<'a>(
        &self,
        bytes: &'a [u8],
        key: &[u8],
    ) -> Result<Option<(RawEntry<'a>, bool)>> {
        let (offset, same) = self.find(bytes, key, Stamp(u64::MAX))?;
        Ok(self.entry(bytes, offset)?.map(|entry| (entry, same)))
    }

    /// The newest entry of `key` up to `stamp`.
    pub(crate) fn get<'a>(
        &self,
        bytes: &'a [u8],
        key: &[u8],
        stamp: Stamp,
    ) -> Result<Option<(Stamp, &'a [u8])>> {
        match self.find(bytes, key, stamp)? {
            (offset, true) => Ok(self.entry(bytes, offset)?.map(|entry| (entry.stamp, entry.value))),
            (_, false) => Ok(None),
        }
    }
}

/// A place in a leaf, with the whole key of the entry there, unless that is not wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeafCursor<const KEYS: bool = true> {
    key: Vec<u8>,
    stamp: Stamp,
    value: (usize, usize),
    offset: usize,
    next: usize,
    valid: bool,
}

/// A place in a root or an index, of which only values are wanted.
pub(crate) type IndexCursor = LeafCursor<false>;

impl LeafCursor {
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }
}

impl<const KEYS: bool> LeafCursor<KEYS> {
    pub(crate) fn is_valid(&self) -> bool {
        self.valid
    }
    pub(crate) fn stamp(&self) -> Stamp {
        self.stamp
    }
    /// Where the entry is in the leaf's bytes.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }
    pub(crate) fn value<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.value.0..self.value.1]
    }

    /// To the first entry.
    pub(crate) fn first(&mut self, leaf: &Leaf, bytes: &[u8]) -> Result<()> {
        self.key.clear();
        self.load(leaf, bytes, OBJECT_HEAD_BYTES)
    }

    /// To the first entry at or after (`key`, `stamp`).
    pub(crate) fn seek(&mut self, leaf: &Leaf, bytes: &[u8], key: &[u8], stamp: Stamp) -> Result<()> {
        let (target, _) = leaf.find(bytes, key, stamp)?;
        if KEYS {
            // What the entry shares with the one before, that one has in common with `key`.
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        self.load(leaf, bytes, target)
    }

    /// To the last entry.
    pub(crate) fn last(&mut self, leaf: &Leaf, bytes: &[u8]) -> Result<()> {
        let restart = leaf.restart(bytes, leaf.restarts - 1);
        self.walk(leaf, bytes, restart, |_, next| next >= leaf.entries_end)
    }

    pub(crate) fn next(&mut self, leaf: &Leaf, bytes: &[u8]) -> Result<()> {
        self.load(leaf, bytes, self.next)
    }

    /// To the entry before; no entry if there is none.
    pub(crate) fn prev(&mut self, leaf: &Leaf, bytes: &[u8]) -> Result<()> {
        let here = self.offset;
        self.valid = false;
        if here <= OBJECT_HEAD_BYTES {
            return Ok(());
        }
        let at = (0..leaf.restarts).rev().find(|i| leaf.restart(bytes, *i) < here).ok_or_else(broken)?;
        self.walk(leaf, bytes, leaf.restart(bytes, at), |_, next| next >= here)
    }

    /// From the restart at `offset` on until `stop(this entry's offset, the next one's)`.
    fn walk(
        &mut self,
        leaf: &Leaf,
        bytes: &[u8],
        offset: usize,
        stop: impl Fn(usize, usize) -> bool,
    ) -> Result<()> {
        self.key.clear();
        self.load(leaf, bytes, offset)?;
        while self.valid && !stop(self.offset, self.next) {
            self.load(leaf, bytes, self.next)?;
        }
        Ok(())
    }

    fn load(&mut self, leaf: &Leaf, bytes: &[u8], offset: usize) -> Result<()> {
        self.valid = false;
        let Some(entry) = leaf.entry(bytes, offset)? else { return Ok(()) };
        if KEYS {
            if entry.shared > self.key.len() {
                return Err(broken());
            }
            self.key.truncate(entry.shared);
            self.key.extend_from_slice(entry.suffix);
        }
        self.stand(&entry);
        Ok(())
    }

    fn stand(&mut self, entry: &RawEntry<'_>) {
        self.stamp = entry.stamp;
        self.value = (entry.next - entry.value.len(), entry.next);
        (self.offset, self.next, self.valid) = (entry.offset, entry.next, true);
    }
}

impl IndexCursor {
    /// To this entry.
    pub(super) fn place(&mut self, entry: Option<RawEntry<'_>>) {
        self.valid = false;
        entry.iter().for_each(|entry| self.stand(entry));
    }
}
