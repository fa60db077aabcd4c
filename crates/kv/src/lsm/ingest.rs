//! Loading of sorted entries: they become tables without going through the log.
//!
//! 1. Nothing is visible before [`Ingest::finish`]; after it everything is, and is newer than all earlier writes.
//! 2. Entries are written with sequence number 0, which stands for the number that the manifest assigns to their table.
//! 3. Older entries in memtables must not hide ingested ones: memtables that overlap are flushed first.

use crate::durable::Durable;
use crate::journal::{BOUNDS_MANIFEST_BYTES, Edit, LEVELS, TABLE_MANIFEST_BYTES, TableMeta};
use crate::key::{EntryKind, Stamp, check_key};
use crate::lsm::compaction::{Claim, TableSink};
use crate::lsm::core::{Core, State};
use crate::lsm::iter::Range;
use crate::lsm::keyspace::Keyspace;
use crate::lsm::store::Store;
use crate::lsm::version::Version;
use crate::lsm::writer::Writer;
use crate::media::{Intent, Parallelism};
use crate::reason;
use crate::waiting::Waiting;
use vellum_base::sync::atomic::Ordering;
use vellum_base::{Cause, Error, IoClass, Result};

/// Result of an ingest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ingested {
    /// Entries.
    pub entries: u64,
    /// Bytes of tables.
    pub bytes: u64,
    /// Tables that went to each level.
    pub tables: [usize; LEVELS],
}

/// Takes entries in ascending key order. Dropped without [`Ingest::finish`], it leaves nothing behind.
///
/// ```
/// # use vellum_base::RealEnv;
/// # use vellum_kv::{Directory, DirectoryOptions, Map, Options, Store};
/// # let dir = tempfile::tempdir().unwrap();
/// # let media = Directory::open(dir.path(), DirectoryOptions::default())?;
/// # let store = Store::open(media, RealEnv::new(), Options::default())?;
/// let mut ingest = store.ingest()?;
/// for sheet in 0..1000u32 {
///     ingest.put(&sheet.to_be_bytes(), b"blank")?;
/// }
/// assert_eq!(ingest.finish()?.entries, 1000);
/// assert_eq!(store.get(&7u32.to_be_bytes())?.as_deref(), Some(&b"blank"[..]));
/// # Ok::<(), vellum_base::Error>(())
/// ```
pub struct Ingest<'a> {
    core: &'a Core,
    keyspace: Keyspace,
    sink: TableSink<'a>,
    /// Internal key of the last entry.
    key: Vec<u8>,
    /// Buffer for the internal key of the next entry.
    next_key: Vec<u8>,
    entries: u64,
    /// Of keys and values.
    data_bytes: u64,
    /// An entry could not be written, and others may be gone with it.
    has_failed: bool,
}

impl Store {
    /// Begins to load sorted entries into the default keyspace. The store must be writable.
    pub fn ingest(&self) -> Result<Ingest<'_>> {
        Ingest::new(&self.core, self.keyspace("default")?)
    }
}

impl Keyspace {
    /// Begins to load sorted entries.
    pub fn ingest(&self) -> Result<Ingest<'_>> {
        Ingest::new(&self.core, self.clone())
    }
}

impl<'a> Ingest<'a> {
    fn new(core: &'a Core, keyspace: Keyspace) -> Result<Ingest<'a>> {
        core.state.check_writable()?;
        core.view.load().version.keyspaces.check(&keyspace.space)?;
        let intent =
            Intent { cause: Cause::Flush, class: IoClass::Background, parallelism: Parallelism::Full };
        let floor = core.visible.load(Ordering::Acquire) + 1;
        let sink = TableSink::new(core, intent).ingesting(floor).for_level(LEVELS - 1);
        Ok(Ingest {
            core,
            keyspace,
            sink,
            key: Vec::new(),
            next_key: Vec::new(),
            entries: 0,
            data_bytes: 0,
            has_failed: false,
        })
    }

    /// Adds an entry, whose key must be greater than the last one. May wait for merges to make room.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.check()?;
        check_key(key)?;
        self.core.limits.check_entry(key.len(), value.len())?;
        if self.entries > 0 && self.key[1..] >= *key {
            return Err(Error::invalid("ingested keys must ascend").because(reason::KEYS_OUT_OF_ORDER));
        }
        self.next_key.clear();
        self.next_key.push(self.keyspace.space.number);
        self.next_key.extend_from_slice(key);
        if self.sink.begins_with(&self.next_key, value) {
            self.core.wait_to_ingest(self.listed_bytes())?;
        }
        std::mem::swap(&mut self.key, &mut self.next_key);
        self.entries += 1;
        self.data_bytes += (key.len() + value.len()) as u64;
        let _open = self.core.stays_open()?;
        let added = self.sink.add(&self.key, Stamp::new(0, EntryKind::Put), value);
        added.inspect_err(|_| self.has_failed = true)
    }

    /// Makes all entries visible atomically. They are durable when this returns. Writers wait meanwhile.
    pub fn finish(mut self) -> Result<Ingested> {
        self.check()?;
        let open = self.core.stays_open()?;
        self.sink.cut()?;
        drop(open);
        let Some(range) = range_of(self.sink.done()) else { return Ok(Ingested::default()) };
        let core = self.core;
        let mut writer = core.writer.lock();
        core.state.check_writable()?;
        core.view.load().version.keyspaces.check(&self.keyspace.space)?;
        core.flush_overlap(&mut writer, &range)?;
        core.wait_for_level0()?;
        core.wait_to_list(self.listed_bytes())?;
        // Earlier writes must not be lost in a crash that the ingest survives.
        core.sync_log()?;
        let tables = self.sink.finish()?; // from here on they are the manifest's
        let result = core.place(&mut writer, tables, self.data_bytes);
        drop(writer);
        core.state.wake_tasks();
        let done = result?;
        Ok(Ingested { entries: self.entries, ..done })
    }

    /// Bytes that a manifest takes for the tables so far, and the one that is being written.
    fn listed_bytes(&self) -> usize {
        if self.core.media.shape().areas_are_files {
            return 0;
        }
        let open = self.sink.fill().map_or(0, |_| TABLE_MANIFEST_BYTES + BOUNDS_MANIFEST_BYTES);
        self.sink.done().iter().map(TableMeta::manifest_bytes).sum::<usize>() + open
    }

    fn check(&self) -> Result<()> {
        match self.has_failed {
            false => Ok(()),
            true => Err(Error::invalid("entries of this ingest were lost to an error: begin it anew")),
        }
    }
}

/// The key range of `tables`, which are in order.
fn range_of(tables: &[TableMeta]) -> Option<Range> {
    let upper = [&tables.last()?.largest[..], &[0]].concat();
    Some(Range { lower: tables.first()?.smallest.clone(), upper })
}

impl Core {
    /// Lets nobody close the store for a while. An error if it is closed, or has failed: tables that were written then
    /// would be in the way of whoever opens it again.
    fn stays_open(&self) -> Result<StaysOpen<'_>> {
        self.state.lock().ingesting += 1;
        let open = StaysOpen(self);
        self.state.check_writable().map(|()| open)
    }

    /// Waits until no ingest writes a table: none begins to in a store that was closed.
    pub(crate) fn wait_for_ingests(&self) {
        let mut state = self.state.lock();
        while state.ingesting > 0 {
            self.state.wait(&mut state);
        }
    }

    /// Flushes memtables that hold keys of the range. Writers wait meanwhile.
    fn flush_overlap(&self, writer: &mut Writer, range: &Range) -> Result<()> {
        let view = self.view.load_full();
        let active = view.active.meets(range);
        let meets = active || view.frozen.iter().any(|memtable| memtable.meets(range));
        drop(view); // it would hold tables whose room the flushes may need
        if active {
            self.freeze(writer)?;
        }
        match meets {
            true => self.wait_until(|state| state.frozen.is_empty()),
            false => Ok(()),
        }
    }

    /// Assigns sequence number and levels to tables that hold `user_bytes` bytes of keys and values, and installs them.
    fn place(&self, writer: &mut Writer, mut tables: Vec<TableMeta>, user_bytes: u64) -> Result<Ingested> {
        let seq = writer.next_seq;
        let bytes = tables.iter().map(|meta| meta.bytes).sum();
        let mut done = Ingested { bytes, ..Ingested::default() };
        let mut edit = Edit { last_seq: Some(seq), ..Edit::default() };
        let mut state = self.state.lock();
        let version = self.view.load().version.clone();
        let claimed = state.running.len();
        let deepest = self.level_for(&version, bytes);
        let mut claims = Vec::new();
        for meta in &mut tables {
            (meta.seq_min, meta.seq_max) = (seq, seq);
            let level = level_without_overlap(&version, &state.running[..claimed], meta, deepest);
            if level > 0 {
                let (smallest, largest) = (meta.smallest.clone(), meta.largest.clone());
                claims.push(Claim::of(level - 1, smallest, largest));
            }
            done.tables[level] += 1;
            edit.added.push((level as u8, meta.clone()));
        }
        state.running.extend(claims.iter().cloned());
        drop((state, version));
        // Counted before, as the edit contains the counters.
        self.counts.ingested_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.counts.user_bytes.fetch_add(user_bytes, Ordering::Relaxed);
        let result = self.install(&edit, |state, _| release(state, &claims));
        if result.is_err() {
            self.counts.ingested_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.counts.user_bytes.fetch_sub(user_bytes, Ordering::Relaxed);
            release(&mut self.state.lock(), &claims);
            self.state.wake_all();
        } else {
            writer.next_seq = seq + 1;
        }
        result.map(|()| done)
    }

    /// The deepest level in use, or the first whose target size holds `bytes`, whichever is deeper.
    fn level_for(&self, version: &Version, bytes: u64) -> usize {
        let used = (1..LEVELS).rev().find(|level| !version.levels[*level].is_empty()).unwrap_or(0);
        let mut room = self.limits.level1_bytes.max(1);
        let mut level = 1;
        while room < bytes && level < LEVELS - 1 {
            room = room.saturating_mul(self.options.level_factor.max(2));
            level += 1;
        }
        used.max(level)
    }
}

/// Counts an ingest that writes a table.
struct StaysOpen<'a>(&'a Core);

impl Drop for StaysOpen<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.ingesting -= 1;
        let is_waited_for = state.health.has_failed();
        drop(state);
        if is_waited_for {
            self.0.state.wake_all();
        }
    }
}

fn release(state: &mut State, claims: &[Claim]) {
    for claim in claims {
        if let Some(at) = state.running.iter().position(|other| other == claim) {
            state.running.swap_remove(at);
        }
    }
}

/// The deepest level down to `deepest` such that neither it nor any level above overlaps with the table, now or once
/// the running jobs are done.
fn level_without_overlap(version: &Version, running: &[Claim], meta: &TableMeta, deepest: usize) -> usize {
    let free = |level: &usize| {
        let claimed = |claim: &Claim| {
            (claim.level == *level || claim.level + 1 == *level)
                && claim.smallest <= meta.largest
                && claim.largest >= meta.smallest
        };
        version.overlap(*level, &meta.smallest, &meta.largest).is_empty() && !running.iter().any(claimed)
    };
    (0..=deepest).take_while(free).last().unwrap_or(0)
}
