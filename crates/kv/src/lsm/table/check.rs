//! Reading a table whole: to see that it is in order, or to save what can be read of one that is not.

use super::foot::Foot;
use super::leaf::{Leaf, LeafCursor};
use super::object::{Head, ObjectKind, UNIT_BYTES};
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

/// What the end of a table says of it. `None` if that is damaged.
pub(crate) fn foot_of(reader: &dyn TableReader, env: &dyn Env) -> Result<Option<(Foot, u64)>> {
    let units = reader.bytes()? / UNIT_BYTES as u64;
    for unit in (0..units).rev() {
        let foot = read_units(reader, env, unit, 1).and_then(|bytes| Foot::read(&bytes));
        let Ok(foot) = foot else { continue };
        if foot.root_unit as u64 + foot.root_units as u64 == unit {
            return Ok(Some((foot, (unit + 1) * UNIT_BYTES as u64)));
        }
    }
    Ok(None)
}

fn read_units(reader: &dyn TableReader, env: &dyn Env, unit: u64, units: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; units * UNIT_BYTES];
    let at = reader.read(unit * UNIT_BYTES as u64, &mut bytes, IoClass::Background)?;
    env.sleep_until(at);
    Ok(bytes)
}

/// Hands out the entries of every data leaf that checks out, in order. Returns how many units are damaged.
pub(crate) fn salvage(
    media: &dyn Media,
    number: u64,
    env: &dyn Env,
    mut found: impl FnMut(&[u8], Stamp, &[u8]) -> Result<()>,
) -> Result<u64> {
    let reader = media.open_table(number)?;
    let units = reader.bytes()? / UNIT_BYTES as u64;
    let (mut unit, mut damaged) = (0, 0);
    let mut last: Option<(Vec<u8>, Stamp)> = None;
    while unit < units {
        let Some((kind, bytes)) = object_at(&*reader, env, unit, units) else {
            let blank = read_units(&*reader, env, unit, 1).is_ok_and(|unit| unit.iter().all(|b| *b == 0));
            (unit, damaged) = (unit + 1, damaged + !blank as u64);
            continue;
        };
        unit += (bytes.len() / UNIT_BYTES) as u64;
        if kind != ObjectKind::Data {
            continue;
        }
        let mut plain = Vec::new();
        let Ok((leaf, packed)) = Leaf::open(&bytes, &mut plain) else {
            damaged += (bytes.len() / UNIT_BYTES) as u64;
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

/// The object at `unit`, if it checks out.
fn object_at(
    reader: &dyn TableReader,
    env: &dyn Env,
    unit: u64,
    units: u64,
) -> Option<(ObjectKind, Vec<u8>)> {
    let mut bytes = read_units(reader, env, unit, 1).ok()?;
    let head = Head::parse(&bytes).ok()?;
    if unit + head.units() as u64 > units {
        return None;
    }
    if head.units() > 1 {
        bytes = read_units(reader, env, unit, head.units()).ok()?;
    }
    head.check(&bytes, head.kind).ok()?;
    Some((head.kind, bytes))
}
