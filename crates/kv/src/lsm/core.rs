//! State shared by all parts of an open store.
//!
//! Lock order: `writer`, the lock of `Obsolete::erase`, `manifest`, `state`. `wal`, `snapshots` and
//! `leveldb` are innermost: no other lock is taken while one of them is held. Background tasks never take `writer`, so
//! a writer may wait for them while it holds it.
//!
//! Invariants
//! 1. `view` holds the active memtable, all frozen ones, and the tables; a reader that copies it sees everything that
//!    was visible at that time. A reader loads `visible` after it copied the view: a number loaded earlier could lack
//!    versions that merges in the view have dropped since. Whoever reads several keys checks that the view has not
//!    changed in between ([`Core::moment`]).
//! 2. `visible` advances only after the entries are in the memtable.

use crate::durable::Durable;
use crate::freewrite::{Reuse, in_force};
use crate::journal::{Edit, Floors, Wal};
use crate::key::{EntryKind, LookupKey, Stamp};
use crate::lifetime::{Counts, Lifetime};
use crate::lsm::compaction::{Claim, Gather, Job, PartialMerges, Shape, Situation, Toll, Window};
use crate::lsm::limits::Limits;
use crate::lsm::manual::Request;
use crate::lsm::memtable::Memtable;
use crate::lsm::room::{Budget, Room};
use crate::lsm::rules::CompactionRules;
use crate::lsm::table::{Library, hash};
use crate::lsm::version::Version;
use crate::lsm::writer::Writer;
use crate::manifest::Manifest;
use crate::media::{Media, Sharing};
use crate::obsolete::Obsolete;
use crate::options::Options;
use crate::shared::{Health, Shared};
use crate::swap::{ArcSwap, Guard};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use vellum_base::{Env, Error, Kind, Result};

/// See the module.
pub(crate) struct Core {
    pub env: Arc<dyn Env>,
    pub media: Arc<dyn Media>,
    pub options: Options,
    /// How the medium shares leaves between tables.
    pub sharing: Sharing,
    pub limits: Limits,
    pub library: Arc<Library>,
    /// Replaced with `state` held.
    pub view: ArcSwap<View>,
    /// The sequence number up to which entries are visible.
    pub visible: AtomicU64,
    pub writer: Mutex<Writer>,
    pub wal: Mutex<Wal>,
    /// Size at which the active memtable is frozen.
    pub memtable_bytes_max: AtomicUsize,
    pub state: Shared<State>,
    pub manifest: Mutex<Manifest>,
    /// Sequence numbers of open snapshots, with the number of snapshots of each.
    pub snapshots: Mutex<BTreeMap<u64, usize>>,
    pub next_number: AtomicU64,
    pub counts: Counts,
    /// Counters from before the store was opened.
    pub before: Lifetime,
    pub window: Window,
    pub toll: Toll,
    /// Bytes of memtables flushed per second, most recently; 0 if none of some size was flushed yet.
    pub flush_rate: AtomicU64,
    pub rules: Box<dyn CompactionRules>,
}

/// What readers read from.
#[derive(Clone)]
pub(crate) struct View {
    pub active: Arc<Memtable>,
    /// Newest first.
    pub frozen: Vec<Arc<Memtable>>,
    pub version: Arc<Version>,
}

/// A memtable on its way to tables.
#[derive(Clone)]
pub(crate) struct Frozen {
    pub memtable: Arc<Memtable>,
    /// Its logs, removed once it is flushed, unless tables point into them.
    pub logs: Vec<u64>,
    /// Its size as accounted for by the writer.
    pub bytes: usize,
    /// The first log after its own.
    pub next_log: u64,
    pub last_seq: u64,
}

/// State of background work.
#[derive(Default)]
pub(crate) struct State {
    pub health: Health,
    /// A merge is waiting for a flush, which is done by the same tasks.
    pub interrupted: bool,
    /// Free tables when the store last began to rest.
    pub rested_at: u64,
    /// Free tables when a writer last had it try again. A file system may report room late that a failed try gave back;
    /// that is not new room.
    pub retried_at: u64,
    /// Oldest first.
    pub frozen: VecDeque<Frozen>,
    /// The oldest is being flushed.
    pub is_flushing: bool,
    /// Ingests that write a table, which is done by no task of the store: whoever closes it waits.
    pub ingesting: usize,
    pub floors: Floors,
    /// Compactions under way.
    pub running: Vec<Claim>,
    /// Merges in pieces that are not complete.
    pub begun: PartialMerges,
    /// Level 0 was merged since a merge began that was asked for, which is next then: beside writers level 0 may always
    /// be the most urgent.
    pub asked_first: bool,
    /// Additional tasks that merge parts of running compactions.
    pub helpers: usize,
    /// Requests to merge a level.
    pub requested: Vec<Request>,
    /// Requests to rewrite tables of a level.
    pub gathers: Vec<Gather>,
    /// Tables that result from gathering which did not reduce their number.
    pub gathered_in_vain: BTreeSet<u64>,
}

impl AsMut<Health> for State {
    fn as_mut(&mut self) -> &mut Health {
        &mut self.health
    }
}

impl Durable for Core {
    type State = State;
    fn shared(&self) -> &Shared<State> {
        &self.state
    }
    fn wal(&self) -> &Mutex<Wal> {
        &self.wal
    }
    fn media(&self) -> &dyn Media {
        &*self.media
    }
    fn obsolete(&self) -> &Obsolete {
        &self.library.obsolete
    }
}

impl Core {
    /// The current view, and the sequence number visible in it, taken consistently. If an ingest came between the two,
    /// writes after it would be seen, but not the ingest itself, whose tables are in a later view.
    pub(crate) fn moment(&self) -> (Arc<View>, u64) {
        let mut view = self.view.load_full();
        loop {
            let seq = self.visible.load(Ordering::Acquire);
            let now = self.view.load();
            if Arc::ptr_eq(&view, &now) {
                return (view, seq);
            }
            view = Guard::into_inner(now);
        }
    }

    /// Reads the newest value of an internal key as of `seq`, or as of now. `view` must have been copied just before.
    pub(crate) fn get(&self, view: &View, key: &[u8], seq: Option<u64>, out: &mut Vec<u8>) -> Result<bool> {
        self.env.charge(self.options.cpu.get);
        self.window.read();
        if self.toll.get(&view.version) {
            self.look_at_toll(&view.version);
        }
        let seq = seq.unwrap_or_else(|| self.visible.load(Ordering::Acquire));
        let wanted = LookupKey { key, stamp: Stamp::visible_at(seq), hash: hash(key) };
        for memtable in std::iter::once(&view.active).chain(&view.frozen) {
            if let Some(kind) = memtable.get(wanted, out) {
                return Ok(kind == EntryKind::Put);
            }
        }
        match self.rules.get(self, &view.version, wanted, out)? {
            None => Ok(false),
            Some(stamp) => match stamp.kind() {
                Some(kind) => Ok(kind == EntryKind::Put),
                None => Err(Error::corrupt("an entry is of no known kind")),
            },
        }
    }

    /// A new number for a table or an area.
    pub(crate) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Appends `edit` to the manifest durably, then publishes the version that results. `change` makes further changes
    /// to state and view at the same time. If there is no room, or an added table cannot be opened, the added tables
    /// are erased.
    pub(crate) fn install(&self, edit: &Edit, change: impl FnOnce(&mut State, &mut View)) -> Result<()> {
        // The lock is held from reading the version that the edit is based on until the new view is published.
        let mut manifest = self.manifest.lock();
        self.state.check_writable()?;
        let before = self.view.load().version.clone();
        let after = before.apply(edit, &self.library, &*self.media);
        let after = Arc::new(after.inspect_err(|_| self.give_up_added(edit))?);
        let floors = self.state.lock().floors.after(edit);
        let next_number = Some(self.next_number.load(Ordering::Relaxed));
        let edit = &Edit { lifetime: self.lifetime(), next_number, ..edit.clone() };
        let whole = || floors.recorded_in(Edit { lifetime: self.lifetime(), next_number, ..after.whole() });
        if let Err(error) = manifest.append(edit, whole, || self.number()) {
            if error.kind() == Kind::NoSpace {
                self.give_up_added(edit);
            }
            return Err(self.state.refused_or_poisoned(error));
        }
        let kept: Vec<u64> = edit.added.iter().map(|(_, meta)| meta.number).collect();
        for (level, number) in edit.removed.iter().filter(|(_, number)| !kept.contains(number)) {
            let gone = before.levels[*level as usize].iter().find(|table| table.meta.number == *number);
            gone.into_iter().for_each(|table| table.retire());
        }
        before.logs_without(&after).for_each(|log| log.retire());
        let mut state = self.state.lock();
        state.floors = floors;
        let mut next = View { version: after, ..(*self.view.load_full()).clone() };
        change(&mut state, &mut next);
        let old = self.view.swap(Arc::new(next));
        // Ingested entries become visible before a task can pick their tables: merges assume that the newest version of
        // a key is visible.
        self.visible.fetch_max(edit.last_seq.unwrap_or(0), Ordering::Release);
        drop((state, manifest));
        drop((old, before)); // may be the last to hold a table
        self.state.wake_all();
        Ok(())
    }

    /// The most urgent compaction that can run now.
    pub(crate) fn pick(&self, version: &Version, state: &State) -> Option<Job> {
        let budget = self.budget(version, state);
        let shape = budget.shape();
        let is_idle = state.running.is_empty() && state.frozen.is_empty();
        // If nothing fits otherwise, room kept for flushes is lent to a merge of level 0 or of deletes, which frees at
        // least as much in the end, or to gathering. Other merges may need more tables than they replace, permanently.
        let pick_in = |room| self.pick_in(room, &shape, &budget, state);
        pick_in(budget.room).or_else(|| is_idle.then(|| pick_in(budget.room.in_the_end())).flatten())
    }

    fn pick_in(&self, room: Room, shape: &Shape, budget: &Budget<'_>, state: &State) -> Option<Job> {
        let situation = Situation {
            gathers: &state.gathers,
            in_vain: &state.gathered_in_vain,
            asked_first: state.asked_first,
            ..Situation::new(&state.running, &state.requested, &state.begun, room)
        };
        self.rules.pick(budget, shape, situation)
    }

    /// The sequence number of the oldest snapshot.
    pub(crate) fn oldest_snapshot(&self) -> Option<u64> {
        self.snapshots.lock().keys().next().copied()
    }

    /// Accounts for a scan of `view`.
    pub(crate) fn scans(&self, view: &View) {
        self.window.read();
        if self.toll.scan(&view.version) {
            self.look_at_toll(&view.version);
        }
    }

    /// Wakes compaction if reads have cost as much as merging level 0.
    #[cold]
    fn look_at_toll(&self, version: &Version) {
        if self.toll.is_due(version) {
            self.state.wake_tasks();
        }
    }

    /// Erases a table that was written but will not be installed.
    pub(crate) fn give_up(&self, table: u64) -> Result<()> {
        self.library.cool(table);
        self.media.erase_table(table)
    }

    /// How leaves that do not have to change are treated now.
    pub(crate) fn reuse(&self) -> Reuse {
        in_force(self.options.reuse.mode, &*self.media)
    }

    /// True if even islands are cloned that are too short for that by default, to reduce wear at the cost of time.
    /// Leaves are narrow then, so that more of them stay unchanged.
    pub(crate) fn clones_short_islands(&self) -> bool {
        let is_short = self.options.reuse.island_bytes_min < Some(Sharing::Reflink.island_bytes_min());
        self.sharing == Sharing::Reflink && self.reuse() == Reuse::Relink && is_short
    }

    /// True if tables have larger units than they must, of which more may stay empty.
    pub(crate) fn has_large_units(&self) -> bool {
        self.options.reuse.unit_bytes.is_some_and(|bytes| bytes > self.media.shape().unit_bytes)
    }

    /// Counters since the store was created.
    pub(crate) fn lifetime(&self) -> Lifetime {
        self.before.with(&self.counts, self.sharing, &*self.media)
    }

    /// Erases tables that an edit would have added, except those that it would only have moved.
    fn give_up_added(&self, edit: &Edit) {
        let is_moved = |number: u64| edit.removed.iter().any(|(_, removed)| *removed == number);
        for (_, meta) in edit.added.iter().filter(|(_, meta)| !is_moved(meta.number)) {
            // What cannot be erased now is found and erased when the store is opened again.
            let _ = self.give_up(meta.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Directory, DirectoryOptions, Options, Store};
    use vellum_base::RealEnv;

    /// A task that was running when a durability call failed may have built on data that the failure lost.
    #[test]
    fn nothing_is_installed_in_a_store_that_has_failed() {
        let dir = tempfile::tempdir().unwrap();
        let media = Directory::open(dir.path(), DirectoryOptions::default()).unwrap();
        let store = Store::open(media.clone(), RealEnv::new(), Options::default()).unwrap();
        let before = media.current().unwrap();
        store.core.state.poison(Error::new(Kind::Io, "a sync failed"));
        let installed = store.core.install(&Edit::default(), |_, _| panic!("it was installed"));
        assert_eq!(installed.unwrap_err().kind(), Kind::Poisoned);
        assert_eq!(media.current().unwrap(), before);
    }
}
