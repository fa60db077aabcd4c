//! Makes a compact, regular store of either engine from one with bubbles (Freewrite, section 3.2: a file with bubbles
//! cannot be used by programs that do not know them).

use super::{AnyStore, Store};
use crate::reason;
use vellum_base::{Error, Kind, Result};
use vellum_kv::{Batch, Bounds, Durability, Engine, Iter, Map};

/// Result of comparing two stores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Number of keys of the first.
    pub keys: u64,
    /// Number of these that the second lacks, or has another value for.
    pub different: u64,
    /// Number of keys that only the second has.
    pub only_in_second: u64,
}

impl Compared {
    /// True if both have the same contents.
    pub fn is_same(&self) -> bool {
        self.different == 0 && self.only_in_second == 0
    }
}

/// Copies all keys of a store into another, which must be empty: packed, in tables, without bubbles, and durable on
/// return. Returns the number of keys.
pub fn debubble(from: &AnyStore, into: &AnyStore) -> Result<u64> {
    let keys = match (from, into) {
        (AnyStore::Lsm(from), AnyStore::Lsm(into)) => ingest_all(from, into)?,
        _ => {
            check_debubble(from, into.engine())?;
            put_all(from.map(), into.map())?
        }
    };
    match (from, into) {
        (_, AnyStore::Log(into)) => into.flush()?,
        // Unordered input ends up in overlapping tables, and in logs.
        (AnyStore::Log(_), AnyStore::Lsm(into)) => into.compact()?,
        (AnyStore::Lsm(_), AnyStore::Lsm(_)) => {}
    }
    into.map().sync()?;
    Ok(keys)
}

/// Copies keyspace by keyspace, in order: each entry is written once.
fn ingest_all(from: &Store, into: &Store) -> Result<u64> {
    let mut keys = 0;
    for name in from.keyspaces() {
        let space = into.keyspace_or_create(&name)?;
        let mut ingest = space.ingest()?;
        let mut iter = from.keyspace(&name)?.iter(Bounds::all())?;
        iter.seek_to_first()?;
        while iter.is_valid() {
            ingest.put(iter.key(), iter.value())?;
            iter.next()?;
        }
        keys += ingest.finish()?.entries;
    }
    Ok(keys)
}

/// Fails if a store of `engine` cannot hold the contents of this one.
pub fn check_debubble(from: &AnyStore, engine: Engine) -> Result<()> {
    if engine == Engine::Log { check_spaces(from) } else { Ok(()) }
}

fn put_all(from: &dyn Map, into: &dyn Map) -> Result<u64> {
    let (mut batch, mut keys) = (Batch::new(), 0);
    from.each(&mut |key, value| {
        if into.is_filled(&batch) {
            into.write(&batch, Durability::None)?;
            batch.clear();
        }
        keys += 1;
        batch.put(key, value)
    })?;
    into.write(&batch, Durability::None)?;
    Ok(keys)
}

/// Refuses named keyspaces, which a log store does not have.
fn check_spaces(from: &AnyStore) -> Result<()> {
    match from {
        AnyStore::Lsm(store) if store.keyspaces().len() > 1 => {
            let names: Vec<_> = store.keyspaces().iter().map(|name| format!("{name:?}")).collect();
            let what = format!("a log store has no keyspaces, and this one has {}", names.join(", "));
            Err(Error::new(Kind::Unsupported, what).because(reason::NO_KEYSPACES))
        }
        _ => Ok(()),
    }
}

/// Compares the contents of two stores.
pub fn compare(first: &AnyStore, second: &AnyStore) -> Result<Compared> {
    match (first, second) {
        (AnyStore::Lsm(first), AnyStore::Lsm(second)) => compare_spaces(first, second),
        _ => {
            check_spaces(first)?;
            check_spaces(second)?;
            compare_maps(first.map(), second.map())
        }
    }
}

/// Both are ordered: walks through both together.
fn compare_spaces(first: &Store, second: &Store) -> Result<Compared> {
    let mut compared = Compared::default();
    let mut names = first.keyspaces();
    names.extend(second.keyspaces());
    names.sort();
    names.dedup();
    for name in names {
        let iter_of = |store: &Store| -> Result<Option<Iter>> {
            let space = store.keyspace(&name).ok();
            let mut iter = space.map(|space| space.iter(Bounds::all())).transpose()?;
            iter.iter_mut().try_for_each(|iter| iter.seek_to_first())?;
            Ok(iter)
        };
        let (mut left, mut right) = (iter_of(first)?, iter_of(second)?);
        loop {
            let (a, b) =
                (left.as_ref().filter(|iter| iter.is_valid()), right.as_ref().filter(|iter| iter.is_valid()));
            let order = match (a, b) {
                (None, None) => break,
                (Some(a), Some(b)) => a.key().cmp(b.key()),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
            };
            let same = order.is_eq() && a.map(|a| a.value()) == b.map(|b| b.value());
            compared.keys += u64::from(order.is_le());
            compared.different += u64::from(order.is_le() && !same);
            compared.only_in_second += u64::from(order.is_gt());
            if let (true, Some(iter)) = (order.is_le(), &mut left) {
                iter.next()?;
            }
            if let (true, Some(iter)) = (order.is_ge(), &mut right) {
                iter.next()?;
            }
        }
    }
    Ok(compared)
}

/// Looks up each key in the other store.
fn compare_maps(first: &dyn Map, second: &dyn Map) -> Result<Compared> {
    let mut compared = Compared::default();
    let mut other = Vec::new();
    first.each(&mut |key, value| {
        compared.keys += 1;
        let same = second.get_into(key, &mut other)? && other == value;
        compared.different += u64::from(!same);
        Ok(())
    })?;
    second.each(&mut |key, _| {
        compared.only_in_second += u64::from(!first.get_into(key, &mut other)?);
        Ok(())
    })?;
    Ok(compared)
}
