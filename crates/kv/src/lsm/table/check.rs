//! Reading a table whole: to see that it is in order, or to save what can be read of one that is not.

use super::foot::{FOOT_BYTES, Foot};
use super::leaf::{Leaf, LeafCursor};
use super::object::{Head, ObjectKind};
use super::{Library, Table, TableCursor, TableStream, hash};
use crate::journal::TableMeta;
use crate::key::{EntryKind, Stamp, compare};
use crate::lsm::cache::Cache;
use crate::lsm::merge::Stream;
use crate::media::{Media, TableReader};
use std::cmp::Ordering;
use std::sync::Arc;
use vellum_base::{Env, Error, IoClass, Result};

impl Library {
    /// For tables that are read once: it keeps nothing.
    pub(crate) fn without_cache(env: Arc<dyn Env>) -> Arc<Library> {
        Arc::new(Library {
            env,
            cache: Cache::new(0),
            policy: Default::default(),
            map_tables: false,
            graves: Default::default(),
            filters: Default::default(),
            warmed: Default::default(),
        })
    }
}

impl Table {
    /// Reads the table twice, as it lies and through its index, and compares; then what it holds in all with what the
    /// manifest says.
    pub(crate) fn verify(self: &Arc<Table>) -> Result<()> {
        let mut lies = TableStream::new(self.clone(), IoClass::Background);
        let mut found = TableCursor::new(self.clone());
        let mut sum = TableMeta { number: self.meta.number, seq_min: u64::MAX, ..TableMeta::default() };
        let wrong = |what: &str| Err(Error::corrupt(format!("table {}: {what}", self.meta.number)));
        lies.first()?;
        found.first()?;
        let mut last: Option<Stamp> = None;
        while lies.is_valid() {
            let (key, stamp) = (lies.key(), lies.stamp());
            if !found.is_valid() || (found.key(), found.stamp(), found.value()) != (key, stamp, lies.value())
            {
                return wrong("an entry is not where the index says");
            }
            if last.is_some_and(|last| compare((&sum.largest, last), (key, stamp)) != Ordering::Less) {
                return wrong("entries are out of order");
            }
            if !found.filter_holds(hash(key)) {
                return wrong("a filter does not know a key");
            }
            let Some(kind) = stamp.kind() else { return wrong("an entry is of no known kind") };
            if last.is_none() {
                sum.smallest = key.to_vec();
            }
            sum.largest.clear();
            sum.largest.extend_from_slice(key);
            last = Some(stamp);
            sum.entries += 1;
            sum.deletes += (kind == EntryKind::Delete) as u64;
            sum.seq_min = sum.seq_min.min(stamp.seq());
            sum.seq_max = sum.seq_max.max(stamp.seq());
            lies.next()?;
            found.next()?;
        }
        sum.bytes = self.meta.bytes;
        match found.is_valid() || sum != self.meta {
            true => wrong("it does not hold what the manifest says"),
            false => Ok(()),
        }
    }
}

/// What the end of a table says of it, and how long it is. `None` if that is damaged. Where there was to be more behind
/// it, it lies some units of so many bytes before the end.
pub(crate) fn foot_of(
    reader: &dyn TableReader,
    env: &dyn Env,
    unit_bytes: usize,
) -> Result<Option<(Foot, u64)>> {
    let Some(last) = (reader.bytes()? / unit_bytes as u64 * unit_bytes as u64).checked_sub(FOOT_BYTES as u64)
    else {
        return Ok(None);
    };
    for back in (0..=last).step_by(unit_bytes) {
        let at = last - back;
        let foot = read_at(reader, env, at, FOOT_BYTES).and_then(|bytes| Foot::read(&bytes));
        let Ok(foot) = foot else { continue };
        if foot.unit() * foot.unit_bytes as u64 == at {
            return Ok(Some((foot, at + FOOT_BYTES as u64)));
        }
    }
    Ok(None)
}

fn read_at(reader: &dyn TableReader, env: &dyn Env, offset: u64, bytes: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; bytes];
    let at = reader.read(offset, &mut bytes, IoClass::Background)?;
    env.sleep_until(at);
    Ok(bytes)
}

/// Hands out the entries of every data leaf that checks out, in order. Returns how many bytes are damaged.
pub(crate) fn salvage(
    media: &dyn Media,
    number: u64,
    env: &dyn Env,
    mut found: impl FnMut(&[u8], Stamp, &[u8]) -> Result<()>,
) -> Result<u64> {
    let reader = media.open_table(number)?;
    let unit_bytes = media.shape().unit_bytes as usize;
    let unit_bytes = match foot_of(&*reader, env, unit_bytes) {
        Ok(Some((foot, _))) => foot.unit_bytes,
        _ => unit_bytes,
    };
    let end = reader.bytes()? / unit_bytes as u64 * unit_bytes as u64;
    let (mut at, mut damaged) = (0, 0);
    let mut last: Option<(Vec<u8>, Stamp)> = None;
    while at < end {
        let Some((kind, bytes)) = object_at(&*reader, env, at, end, unit_bytes) else {
            let unit = read_at(&*reader, env, at, unit_bytes);
            let blank = unit.is_ok_and(|unit| unit.iter().all(|b| *b == 0));
            at += unit_bytes as u64;
            damaged += if blank { 0 } else { unit_bytes as u64 };
            continue;
        };
        at += bytes.len() as u64;
        if kind != ObjectKind::Data {
            continue;
        }
        let mut plain = Vec::new();
        let Ok((leaf, packed)) = Leaf::open(&bytes, &mut plain) else {
            damaged += bytes.len() as u64;
            continue;
        };
        let bytes = if packed { plain } else { bytes };
        let mut entry = LeafCursor::default();
        let mut result = entry.first(&leaf, &bytes);
        while result.is_ok() && entry.is_valid() {
            let here = (entry.key(), entry.stamp());
            let ascends =
                last.as_ref().is_none_or(|(key, stamp)| compare((key, *stamp), here) == Ordering::Less);
            if ascends && !here.0.is_empty() && here.1.kind().is_some() {
                found(here.0, here.1, entry.value(&bytes))?;
                last = Some((here.0.to_vec(), here.1));
            }
            result = entry.next(&leaf, &bytes);
        }
    }
    Ok(damaged)
}

/// The object at byte `at`, if it checks out: whole units.
fn object_at(
    reader: &dyn TableReader,
    env: &dyn Env,
    at: u64,
    end: u64,
    unit_bytes: usize,
) -> Option<(ObjectKind, Vec<u8>)> {
    let mut bytes = read_at(reader, env, at, unit_bytes).ok()?;
    let head = Head::parse(&bytes).ok()?;
    let whole = head.length.next_multiple_of(unit_bytes);
    if at + whole as u64 > end {
        return None;
    }
    if whole > unit_bytes {
        bytes = read_at(reader, env, at, whole).ok()?;
    }
    head.check(&bytes, head.kind).ok()?;
    Some((head.kind, bytes))
}
