//! The keyspaces of a version: which numbers are live or dead, and what tables may hold of them.

use crate::journal::{Edit, TableMeta};
use crate::key::{DEFAULT_KEYSPACE, KEYSPACES_MAX, Stamp};
use crate::lsm::merge::{Cursor, Stream};
use crate::lsm::table::{Table, TableCursor};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use vellum_base::{Error, Result};

/// Name of the keyspace of keys that are written without one.
const DEFAULT_NAME: &str = "default";

/// One keyspace. It is identified by its `Arc`: one created later may have the same name or number.
#[derive(Debug)]
pub(crate) struct Space {
    pub number: u8,
    pub name: String,
}

/// The keyspaces of a store.
#[derive(Clone)]
pub(crate) struct Keyspaces {
    live: BTreeMap<u8, Arc<Space>>,
    /// Each with the number of the newest log that may hold entries of it.
    pub(super) dead: BTreeMap<u8, u64>,
}

impl Default for Keyspaces {
    fn default() -> Keyspaces {
        let first = Space { number: DEFAULT_KEYSPACE, name: DEFAULT_NAME.into() };
        Keyspaces { live: BTreeMap::from([(first.number, Arc::new(first))]), dead: BTreeMap::new() }
    }
}

impl Keyspaces {
    /// Applies an edit of the manifest.
    pub(crate) fn apply(&mut self, edit: &Edit) {
        for (number, log) in &edit.dropped {
            self.live.remove(number);
            self.dead.insert(*number, *log);
        }
        for (number, name) in &edit.created {
            self.dead.remove(number);
            self.live.insert(*number, Arc::new(Space { number: *number, name: name.clone() }));
        }
    }

    /// Names of all live keyspaces.
    pub(crate) fn names(&self) -> Vec<String> {
        self.live.values().map(|space| space.name.clone()).collect()
    }

    /// Most bytes that a manifest needs for them.
    pub(crate) fn manifest_bytes(&self) -> usize {
        self.live.values().map(|space| space.name.len() + 8).sum::<usize>() + 16 * self.dead.len()
    }

    /// Adds everything to the first edit of a manifest.
    pub(crate) fn describe(&self, whole: &mut Edit) {
        let named = self.live.values().filter(|space| space.number != DEFAULT_KEYSPACE);
        whole.created = named.map(|space| (space.number, space.name.clone())).collect();
        whole.dropped = self.dead.iter().map(|(number, log)| (*number, *log)).collect();
    }

    /// True if entries of this keyspace are valid in logs: it is live, or was dropped.
    pub(crate) fn knows(&self, number: u8) -> bool {
        self.live.contains_key(&number) || self.dead.contains_key(&number)
    }

    pub(super) fn is_live(&self, number: u8) -> bool {
        self.live.contains_key(&number)
    }

    /// True if all numbers are live: none is free, and none can be freed.
    pub(super) fn are_all_live(&self) -> bool {
        self.live.len() > KEYSPACES_MAX
    }

    /// Numbers of dropped keyspaces, whose entries are ignored.
    pub(crate) fn dead(&self) -> impl Iterator<Item = u8> {
        self.dead.keys().copied()
    }

    /// True if the table may hold entries of dropped keyspaces, by its key range.
    pub(crate) fn any_dead(&self, table: &TableMeta) -> bool {
        numbers_of(table).is_some_and(|numbers| self.dead.range(numbers).next().is_some())
    }

    /// True if the table holds entries of dropped keyspaces; it is read for that. What cannot be read counts as none.
    pub(crate) fn has_dead(&self, table: &Arc<Table>) -> bool {
        let is_in = |number: &u8| has_key_of(table, *number).unwrap_or(false);
        numbers_of(&table.meta)
            .is_some_and(|numbers| self.dead.range(numbers).any(|(number, _)| is_in(number)))
    }

    /// True if the table can hold only entries of dropped keyspaces.
    pub(crate) fn all_dead(&self, table: &TableMeta) -> bool {
        let holds_live =
            |table| numbers_of(table).is_some_and(|numbers| self.live.range(numbers).next().is_some());
        self.any_dead(table) && !holds_live(table)
    }

    /// An error if this keyspace was dropped, or belongs to another store.
    pub(crate) fn check(&self, space: &Arc<Space>) -> Result<()> {
        match self.live.get(&space.number) {
            Some(live) if Arc::ptr_eq(live, space) => Ok(()),
            _ => {
                Err(Error::invalid(format!("keyspace {:?} was dropped, or is of another store", space.name)))
            }
        }
    }

    pub(super) fn named(&self, name: &str) -> Option<&Arc<Space>> {
        self.live.values().find(|space| space.name == name)
    }
}

/// The numbers of keyspaces that keys of a table may be in.
fn numbers_of(table: &TableMeta) -> Option<RangeInclusive<u8>> {
    Some(*table.smallest.first()?..=*table.largest.first()?)
}

/// True if the range from `smallest` to `largest` may hold keys of keyspace `number`.
pub(super) fn spans(number: u8, smallest: &[u8], largest: &[u8]) -> bool {
    smallest.first() <= Some(&number) && largest.first() >= Some(&number)
}

/// True if a table has a key of this keyspace.
pub(super) fn has_key_of(table: &Arc<Table>, number: u8) -> Result<bool> {
    let mut entry = TableCursor::new(table.clone());
    entry.seek(&[number], Stamp(u64::MAX))?;
    Ok(entry.is_valid() && entry.key().first() == Some(&number))
}
