//! Named key ranges of one store.
//!
//! The number of a keyspace is a one-byte prefix of its keys. States of a number: free → live (it has a name) → dead
//! (dropped, entries may be left) → free, once no entries are left.
//!
//! Invariants
//! 1. A number is free only if no table has keys with it, no running merge may write any, and no log that is still
//!    needed holds any.
//! 2. Number 0 is live, under the name `default`.

use crate::batch::Batch;
use crate::durable::Durable;
use crate::journal::{Edit, TableMeta};
use crate::key::{DEFAULT_KEYSPACE, KEYSPACE_NAME_BYTES_MAX, KEYSPACES_MAX, Stamp, with_internal};
use crate::lsm::compaction::Claim;
use crate::lsm::core::{Core, State};
use crate::lsm::iter::{Bounds, Iter, Range};
use crate::lsm::merge::{Cursor, Stream};
use crate::lsm::store::{Snapshot, Store};
use crate::lsm::table::{Table, TableCursor};
use crate::lsm::version::Version;
use crate::lsm::writer::Writer;
use crate::options::Durability;
use crate::waiting::Waiting;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering;
use vellum_base::{Error, Kind, Result};

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
    dead: BTreeMap<u8, u64>,
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
    fn is_live(&self, number: u8) -> bool {
        self.live.contains_key(&number)
    }
    /// True if all numbers are live: none is free, and none can be freed.
    fn are_all_live(&self) -> bool {
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

    fn named(&self, name: &str) -> Option<&Arc<Space>> {
        self.live.values().find(|space| space.name == name)
    }
}

/// The numbers of keyspaces that keys of a table may be in.
fn numbers_of(table: &TableMeta) -> Option<RangeInclusive<u8>> {
    Some(*table.smallest.first()?..=*table.largest.first()?)
}

/// True if the range from `smallest` to `largest` may hold keys of keyspace `number`.
fn spans(number: u8, smallest: &[u8], largest: &[u8]) -> bool {
    smallest.first() <= Some(&number) && largest.first() >= Some(&number)
}

/// Numbers that are free provided that no table has keys of them. `logs_are_empty` says that everything in the logs is
/// in tables, too.
fn numbers_without_logs(version: &Version, state: &State, logs_are_empty: bool) -> Vec<u8> {
    let spaces = &version.keyspaces;
    let in_logs = |log: u64| {
        let is_needed = state.floors.log_floor <= log && !logs_are_empty;
        is_needed || version.logs().any(|kept| kept.number <= log)
    };
    let is_merged =
        |number: u8| state.running.iter().any(|claim| spans(number, &claim.smallest, &claim.largest));
    let may_be = |number: &u8| match spaces.dead.get(number) {
        Some(log) => !in_logs(*log) && !is_merged(*number),
        // A repair may have found keys of a keyspace that nothing names.
        None => !spaces.is_live(*number) && !is_merged(*number),
    };
    (1..=KEYSPACES_MAX as u8).filter(may_be).collect()
}

/// True if any table has a key of a keyspace.
fn is_in_tables(version: &Version, number: u8) -> Result<bool> {
    let tables = version.levels.iter().flatten();
    for table in tables.filter(|table| spans(number, &table.meta.smallest, &table.meta.largest)) {
        if has_key_of(table, number)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_key_of(table: &Arc<Table>, number: u8) -> Result<bool> {
    let mut entry = TableCursor::new(table.clone());
    entry.seek(&[number], Stamp(u64::MAX))?;
    Ok(entry.is_valid() && entry.key().first() == Some(&number))
}

/// The lowest of `numbers` of which no table has keys. Numbers that are in no table's key range are preferred: tables
/// need not be read for them.
fn number_in_no_table(version: &Version, numbers: &[u8]) -> Result<Option<u8>> {
    let is_beside = |number: &u8| {
        let mut tables = version.levels.iter().flatten();
        !tables.any(|table| spans(*number, &table.meta.smallest, &table.meta.largest))
    };
    if let Some(number) = numbers.iter().copied().find(is_beside) {
        return Ok(Some(number));
    }
    for number in numbers {
        if !is_in_tables(version, *number)? {
            return Ok(Some(*number));
        }
    }
    Ok(None)
}

impl Core {
    /// Puts an edit in force that adds no table. Room is made for it, as far as that takes no merge.
    fn put_in_force(&self, edit: &Edit) -> Result<()> {
        let install = || self.with_room(|| self.install(edit, |_, _| ()));
        match install() {
            Err(error) if error.kind() == Kind::NoSpace && self.finish_log()? => install(),
            installed => installed,
        }
    }

    /// A free number, and the running merges that may still write keys of numbers that are not live.
    fn free_number(&self, writer: &Writer) -> Result<(Option<u8>, Vec<Claim>)> {
        let state = self.state.lock();
        let version = self.view.load().version.clone();
        let logs_are_empty = writer.memtable_bytes == 0 && state.frozen.is_empty();
        let numbers = numbers_without_logs(&version, &state, logs_are_empty);
        let mut running = state.running.clone();
        drop(state);
        let not_live = || (1..=KEYSPACES_MAX as u8).filter(|number| !version.keyspaces.is_live(*number));
        running.retain(|claim| not_live().any(|number| spans(number, &claim.smallest, &claim.largest)));
        Ok((number_in_no_table(&version, &numbers)?, running))
    }

    /// True if a number is free, once running merges that stand in the way are done.
    fn is_a_number_free(&self) -> Result<bool> {
        loop {
            let (number, merges) = self.free_number(&self.writer.lock())?;
            if number.is_some() || merges.is_empty() {
                return Ok(number.is_some());
            }
            self.wait_until(|state| !merges.iter().all(|claim| state.running.contains(claim)))?;
        }
    }

    /// Frees the number of a dropped keyspace: by flushing the logs that hold its entries, and if that is not enough,
    /// by merging its entries out of tables. False if no number could be freed.
    fn free_a_number(&self) -> Result<bool> {
        self.flush()?;
        if !self.is_a_number_free()? {
            // Tables may have left values in the logs.
            self.empty_level(&Range::everything(), 0)?;
        }
        let dead: Vec<u8> = self.view.load().version.keyspaces.dead().collect();
        for number in dead {
            if self.is_a_number_free()? {
                return Ok(true);
            }
            self.compact(&Range { lower: vec![number], upper: vec![number + 1] })?;
        }
        self.is_a_number_free()
    }
}

impl Store {
    /// Creates a keyspace; it is durable when this returns. A name has 1 to [`KEYSPACE_NAME_BYTES_MAX`] bytes and must
    /// not be in use; a store has at most [`KEYSPACES_MAX`] keyspaces. If all numbers are taken up by dropped ones,
    /// this waits until one of them is merged away.
    pub fn create_keyspace(&self, name: &str) -> Result<Keyspace> {
        Keyspace::check_name(name)?;
        let core = &self.core;
        core.state.check_writable()?;
        // Another thread that creates a keyspace may take the number that was freed.
        while !self.make_keyspace(name)? {
            if self.version().keyspaces.are_all_live() {
                return Err(Error::invalid(format!("a store has at most {KEYSPACES_MAX} keyspaces")));
            }
            if !core.free_a_number()? {
                let dead = self.version().keyspaces.dead().count();
                let what = format!("there is no room to merge away what {dead} dropped keyspaces held");
                return Err(Error::new(Kind::NoSpace, what));
            }
        }
        self.keyspace(name)
    }

    /// The keyspace of this name; it is created if absent.
    pub fn keyspace_or_create(&self, name: &str) -> Result<Keyspace> {
        // Another thread may make it first.
        let create = |_| self.create_keyspace(name).or_else(|error| self.keyspace(name).map_err(|_| error));
        self.keyspace(name).or_else(create)
    }

    /// False if no number is free.
    fn make_keyspace(&self, name: &str) -> Result<bool> {
        let core = &self.core;
        let writer = core.writer.lock(); // one at a time, and no log gets longer
        if self.version().keyspaces.named(name).is_some() {
            return Err(Error::invalid(format!("there is a keyspace {name:?} already")));
        }
        core.check_manifest_room(name.len())?;
        let (Some(number), _) = core.free_number(&writer)? else { return Ok(false) };
        core.put_in_force(&Edit { created: vec![(number, name.into())], ..Edit::default() })?;
        Ok(true)
    }

    /// The keyspace of this name; an error if there is none. `default` holds the keys that are written without a
    /// keyspace.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        match self.version().keyspaces.named(name) {
            Some(space) => Ok(Keyspace { core: self.core.clone(), space: space.clone() }),
            None => Err(Error::invalid(format!("there is no keyspace {name:?}"))),
        }
    }

    /// Names of all keyspaces.
    pub fn keyspaces(&self) -> Vec<String> {
        self.version().keyspaces.names()
    }

    /// Drops a keyspace and all its entries, durably when this returns. Its handles return errors from then on; open
    /// iterators stay valid. Tables that hold nothing else are erased soon; other entries go when their table is next
    /// rewritten.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        let core = &self.core;
        let space = self.keyspace(name)?.space;
        if space.number == DEFAULT_KEYSPACE {
            return Err(Error::invalid("the default keyspace stays"));
        }
        // What was written before a drop that survives must survive too.
        let writer = core.writer.lock();
        core.state.check_writable()?;
        core.sync_log()?;
        self.version().keyspaces.check(&space)?;
        let newest_log = core.next_number.load(Ordering::Relaxed) - 1;
        core.put_in_force(&Edit { dropped: vec![(space.number, newest_log)], ..Edit::default() })?;
        // Tables that hold nothing else can be erased even if there is no room for merges.
        core.state.try_again(&mut core.state.lock());
        drop(writer);
        Ok(())
    }
}

/// A handle on a named, separately ordered set of keys of a store. A batch may write to several keyspaces
/// ([`Batch::put_in`]). The handle keeps the medium of the store open until it is dropped.
///
/// ```
/// # use vellum_base::RealEnv;
/// # use vellum_kv::{Batch, Bounds, Directory, DirectoryOptions, Durability, Map, Options, Store};
/// # let dir = tempfile::tempdir().unwrap();
/// # let media = Directory::open(dir.path(), DirectoryOptions::default())?;
/// # let store = Store::open(media, RealEnv::new(), Options::default())?;
/// let (sheets, index) = (store.keyspace_or_create("sheets")?, store.keyspace_or_create("index")?);
/// let mut batch = Batch::new();
/// batch.put_in(&sheets, b"17", b"vellum")?;
/// batch.put_in(&index, b"vellum", b"17")?;
/// store.write(&batch, Durability::Sync)?;
/// assert_eq!(index.get(b"vellum")?.as_deref(), Some(&b"17"[..]));
/// assert_eq!(store.get(b"vellum")?, None);
/// store.drop_keyspace("index")?;
/// assert!(index.get(b"vellum").is_err());
/// # Ok::<(), vellum_base::Error>(())
/// ```
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) core: Arc<Core>,
    pub(crate) space: Arc<Space>,
}

impl Keyspace {
    /// An error if no keyspace can have this name: it has 1 to [`KEYSPACE_NAME_BYTES_MAX`] bytes.
    pub fn check_name(name: &str) -> Result<()> {
        match name.len() {
            1..=KEYSPACE_NAME_BYTES_MAX => Ok(()),
            bytes => Err(Error::invalid(format!(
                "a keyspace's name has 1 to {KEYSPACE_NAME_BYTES_MAX} bytes, not {bytes}"
            ))),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.space.name
    }

    /// Sets `key` to `value` with [`Durability::Buffered`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut batch = Batch::new();
        batch.put_in(self, key, value)?;
        self.core.write(&batch, Durability::Buffered)
    }

    /// Removes `key` if present, with [`Durability::Buffered`].
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        let mut batch = Batch::new();
        batch.delete_in(self, key)?;
        self.core.write(&batch, Durability::Buffered)
    }

    /// The value of `key`; `None` if it is absent.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Reads the value of `key` into `value`, whose memory is reused. False if the key is absent; the contents of
    /// `value` are unspecified then.
    pub fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.find(key, None, value)
    }

    /// An iterator over the keys within `bounds`, as they are now.
    pub fn iter(&self, bounds: Bounds) -> Result<Iter> {
        self.walk(None, bounds)
    }

    fn find(&self, key: &[u8], seq: Option<u64>, value: &mut Vec<u8>) -> Result<bool> {
        // As of one moment: later puts to another keyspace that was given this number are not visible.
        let (view, now) = self.core.moment();
        view.version.keyspaces.check(&self.space)?;
        let seq = Some(seq.unwrap_or(now));
        with_internal(self.space.number, key, |key| self.core.get(&view, key, seq, value))
    }

    fn walk(&self, seq: Option<u64>, bounds: Bounds) -> Result<Iter> {
        let (view, now) = self.core.moment();
        let seq = seq.unwrap_or(now);
        view.version.keyspaces.check(&self.space)?;
        self.core.scans(&view);
        Ok(Iter::new(view, seq, self.space.number, bounds))
    }
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.space.name).finish_non_exhaustive()
    }
}

impl Snapshot {
    /// The value of `key` in `keyspace` at the time of the snapshot. An error if the keyspace was dropped since.
    pub fn get_in(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        self.check(keyspace)?;
        Ok(keyspace.find(key, Some(self.seq), &mut value)?.then_some(value))
    }

    /// An iterator over the keys of `keyspace` within `bounds` at the time of the snapshot.
    pub fn iter_in(&self, keyspace: &Keyspace, bounds: Bounds) -> Result<Iter> {
        self.check(keyspace)?;
        keyspace.walk(Some(self.seq), bounds)
    }

    fn check(&self, keyspace: &Keyspace) -> Result<()> {
        match Arc::ptr_eq(&self.core, &keyspace.core) {
            true => Ok(()),
            false => Err(Error::invalid(format!("keyspace {:?} is of another store", keyspace.space.name))),
        }
    }
}
