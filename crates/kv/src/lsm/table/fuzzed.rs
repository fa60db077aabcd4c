//! Objects of a table made of any bytes, with a checksum that is right (see `crate::fuzz`).

use super::buffer::Buffer;
use super::cached::Object;
use super::filter::Filter;
use super::foot::Foot;
use super::leaf::{IndexCursor, Leaf, LeafCursor};
use super::object::{self, Codec, ObjectKind};
use crate::fuzz::probes;
use crate::key::{Stamp, compare};
use std::cmp::Ordering;

/// An object of this payload. The first two bytes of `bytes` say how many restarts there are, or probes.
fn object(bytes: &[u8], kind: ObjectKind, codec: Codec, plain: Option<usize>) -> Vec<u8> {
    let (head, payload) = bytes.split_at(bytes.len().min(2));
    let restarts = head.iter().fold(0, |sum, byte| sum << 4 ^ *byte as u16);
    let mut out = Vec::new();
    let start = object::begin(&mut out);
    out.extend_from_slice(payload);
    let plain = plain.unwrap_or(payload.len());
    object::end_packed(&mut out, start, (kind, codec), restarts, plain, object::TABLE_UNIT_BYTES);
    out
}

/// Reads a leaf in every way.
pub(crate) fn leaf(bytes: &[u8], is_root: bool) {
    let kind = if is_root { ObjectKind::Root } else { ObjectKind::Data };
    let plain = object(bytes, kind, Codec::None, None);
    if let Ok(leaf) = Leaf::check(&plain, kind) {
        walk(&leaf, &plain, bytes);
    }
    if let Ok(Some(believed)) = Leaf::plain(&plain, true) {
        walk(&believed, &plain, bytes);
    }
    for codec in [Codec::Lz4, Codec::Zstd] {
        let packed = object(bytes, ObjectKind::Data, codec, Some(bytes.len() * 3));
        if let Ok((leaf, Some(unpacked))) = Leaf::open(&packed) {
            walk(&leaf, &unpacked, bytes);
        }
    }
}

fn walk(leaf: &Leaf, bytes: &[u8], keys: &[u8]) {
    let mut cursor = LeafCursor::default();
    both_ways(&mut cursor, leaf, bytes);
    both_ways(&mut IndexCursor::default(), leaf, bytes);
    for (key, stamp) in probes(keys) {
        let _ = leaf.at_or_after(bytes, key);
        if let Ok(Some((found, _))) = leaf.get(bytes, key, stamp) {
            assert!(found <= stamp, "newer than asked for");
        }
        let _ = cursor.seek(leaf, bytes, key, stamp);
        if cursor.is_valid() {
            let _ = compare((cursor.key(), cursor.stamp()), (key, Stamp(0))) == Ordering::Less;
        }
    }
}

/// Each step gets somewhere.
fn both_ways<const KEYS: bool>(cursor: &mut LeafCursor<KEYS>, leaf: &Leaf, bytes: &[u8]) {
    let mut ok = cursor.first(leaf, bytes).is_ok();
    while ok && cursor.is_valid() {
        let here = cursor.offset();
        let _ = cursor.value(bytes).len();
        ok = cursor.next(leaf, bytes).is_ok();
        assert!(!ok || !cursor.is_valid() || cursor.offset() > here, "no step forward");
    }
    ok = cursor.last(leaf, bytes).is_ok();
    while ok && cursor.is_valid() {
        let here = cursor.offset();
        ok = cursor.prev(leaf, bytes).is_ok();
        assert!(!ok || !cursor.is_valid() || cursor.offset() < here, "no step back");
    }
}

/// Reads a filter and an index leaf behind it.
pub(crate) fn branch(bytes: &[u8]) {
    let half = bytes.len() / 2;
    let mut all = object(&bytes[..half], ObjectKind::Filter, Codec::None, None);
    let index_at = all.len();
    all.extend(object(&bytes[half..], ObjectKind::Index, Codec::None, None));
    if let Ok(filter) = Filter::check(&all) {
        for word in bytes.chunks_exact(8) {
            let _ = filter.may_hold(&all, u64::from_le_bytes(word.try_into().expect("eight bytes")));
        }
    }
    if let Ok(index) = Leaf::check(&all[index_at..], ObjectKind::Index) {
        walk(&index, &all[index_at..], bytes);
    }
    if let Ok(Object::Branch { index, fences, index_at, bytes: all, .. }) =
        &Object::branch(Buffer::of(&all), index_at)
    {
        let (all, mut cursor) = (&all[*index_at..], IndexCursor::default());
        for (key, _) in probes(bytes) {
            let Ok(found) = fences.at_or_after(index, all, key) else { continue };
            cursor.place(found.map(|(entry, _)| entry));
            if cursor.is_valid() {
                let _ = (cursor.next(index, all), cursor.prev(index, all));
            }
        }
    }
}

/// Reads a foot; one that is read is the same when it is written and read again.
pub(crate) fn foot(bytes: &[u8]) {
    let unit = object(bytes, ObjectKind::Foot, Codec::None, None);
    if let Ok(foot) = Foot::read(&unit) {
        let (mut out, foot) = (Vec::new(), Foot { sum: foot.sum.or(Some(0)), ..foot });
        foot.write(&mut out);
        assert_eq!(Foot::read(&out).expect("what was written"), foot);
    }
}
