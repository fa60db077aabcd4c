//! Which superblock is needed by which tables. Pure: it touches no flash.
//!
//! A superblock is *live* as far as extents of tables, finished or being written, count on its units. One that was a
//! table by itself, and of which other tables count on some, is *pinned*.
//!
//! Invariants
//! 1. Of each superblock, `live` is the sum of the units of all extents that are on it, and `lists` the number of
//! tables
//!    whose list in force is.
//! 2. A superblock is handed out to be erased when it is neither live nor held, has no list in force, and only then.

use super::layout::{Extent, Handle, Layout};
use super::list::Part;
use super::superblock::{Home, Name, UNIT_BYTES};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Collection moves what is on superblocks of which at most three of so many units are live.
const VICTIM_QUARTERS: u64 = 4;
/// One of so many units of a superblock is for lists.
const LIST_SHARE: u64 = 16;

/// See the module.
#[derive(Default)]
pub(super) struct Book {
    superblocks: BTreeMap<u32, Superblock>,
    tables: BTreeMap<u64, Arc<Handle>>,
    /// Extents that are not where their table's list is, of tables finished and being written.
    foreign: u64,
    /// Editions that were begun and are not in force, by table.
    begun: BTreeMap<u64, u32>,
}

/// What is known of one.
pub(super) struct Superblock {
    pub home: Arc<Home>,
    pub name: Name,
    /// Units that it has.
    pub room: u64,
    pub live: u64,
    lists: u32,
    /// Who writes it, copies from it, or takes extents of it into a table that is not finished.
    held: u32,
    /// Tables whose list is on it, in force or not.
    told: Vec<u64>,
    /// It cannot be read.
    stuck: bool,
}

impl Superblock {
    /// The part that is live.
    pub(super) fn live_share(&self) -> f64 {
        self.live as f64 / self.room.max(1) as f64
    }

    fn is_needed(&self) -> bool {
        self.live > 0 || self.lists > 0 || self.held > 0
    }

    fn is_pinned(&self, tables: &BTreeMap<u64, Arc<Handle>>) -> bool {
        tables.get(&self.name.table).is_none_or(|table| table.layout().list_on != self.home.index)
            && self.live > 0
    }
}

/// How superblocks are shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pinned {
    pub superblocks: u64,
    /// Units that tables count on, and all of them.
    pub live: u64,
    pub room: u64,
}

impl Book {
    pub(super) fn table(&self, table: u64) -> Option<&Arc<Handle>> {
        self.tables.get(&table)
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = u64> {
        self.tables.keys().copied()
    }

    pub(super) fn superblock(&self, index: u32) -> Option<&Superblock> {
        self.superblocks.get(&index)
    }

    /// True while tables share superblocks, so that there is something to collect.
    pub(super) fn is_shared(&self) -> bool {
        self.foreign > 0
    }

    /// Tables that are gone, and whose list is still on flash.
    pub(super) fn lingering(&self) -> Vec<u64> {
        let told: BTreeSet<u64> = self.superblocks.values().flat_map(|s| s.told.iter().copied()).collect();
        told.into_iter().filter(|table| !self.tables.contains_key(table)).collect()
    }

    pub(super) fn pinned(&self) -> Pinned {
        let mut sum = Pinned::default();
        for superblock in self.superblocks.values().filter(|s| s.is_pinned(&self.tables)) {
            sum.superblocks += 1;
            sum.live += superblock.live;
            sum.room += superblock.room;
        }
        sum
    }

    /// A superblock is being written; whoever writes it holds it.
    pub(super) fn begin(&mut self, home: Arc<Home>, name: Name, capacity: u64) {
        let room = capacity / UNIT_BYTES;
        let (index, told) = (home.index, Vec::new());
        let superblock = Superblock { home, name, room, live: 0, lists: 0, held: 1, told, stuck: false };
        self.superblocks.insert(index, superblock);
    }

    /// What was being written to a superblock is given up, and nobody counts on it.
    pub(super) fn abandon(&mut self, index: u32) {
        self.superblocks.remove(&index);
    }

    /// A table is finished; what of it is not on its own superblock was `held`.
    pub(super) fn settle(&mut self, table: u64, layout: Layout, held: &[Extent]) {
        self.foreign = self.foreign - held.len() as u64 + layout.foreign();
        held.iter().for_each(|extent| self.change(extent.index(), |s| s.held -= 1));
        for own in layout.extents.iter().filter(|extent| extent.index() == layout.list_on) {
            self.change(own.index(), |s| s.live += own.units as u64);
        }
        self.change(layout.list_on, |s| {
            s.held -= 1;
            s.lists += 1;
            s.told.push(table);
        });
        self.tables.insert(table, Arc::new(Handle::new(layout)));
    }

    /// Where a range of a table is, if it is there.
    pub(super) fn find(&self, table: u64, offset: u64, bytes: u64) -> Option<Vec<Extent>> {
        let layout = self.tables.get(&table)?.layout();
        let extent = |(home, from, bytes): (&Arc<Home>, u64, u64)| Extent {
            home: home.clone(),
            start: (from / UNIT_BYTES) as u32,
            units: (bytes / UNIT_BYTES) as u32,
        };
        layout.find(offset, bytes).map(|parts| parts.map(extent).collect())
    }

    /// A table that is being written counts on an extent.
    pub(super) fn hold(&mut self, extent: &Extent) {
        self.foreign += 1;
        self.change(extent.index(), |s| {
            s.live += extent.units as u64;
            s.held += 1;
        });
    }

    /// It is given up. Returns superblocks to be erased.
    pub(super) fn let_go(&mut self, extents: &[Extent]) -> Vec<u32> {
        for extent in extents {
            self.foreign -= 1;
            self.change(extent.index(), |s| {
                s.live -= extent.units as u64;
                s.held -= 1;
            });
        }
        self.unneeded(extents.iter().map(Extent::index))
    }

    /// A table is gone. Returns superblocks to be erased.
    pub(super) fn forget(&mut self, table: u64) -> Vec<u32> {
        self.begun.remove(&table);
        match self.tables.remove(&table) {
            Some(handle) => self.leave(&handle.layout()),
            None => Vec::new(),
        }
    }

    /// A table as it was found, or as collection left it, on superblocks that are there.
    pub(super) fn put(&mut self, table: u64, layout: Layout) -> Option<Arc<Layout>> {
        self.foreign += layout.foreign();
        for extent in &layout.extents {
            self.change(extent.index(), |s| s.live += extent.units as u64);
        }
        self.change(layout.list_on, |s| s.lists += 1);
        match self.tables.get(&table) {
            Some(handle) => Some(handle.replace(layout)),
            None => {
                self.tables.insert(table, Arc::new(Handle::new(layout)));
                None
            }
        }
    }

    /// An edition was begun, in this life or an earlier one.
    pub(super) fn seen(&mut self, name: Name) {
        let begun = self.begun.entry(name.table).or_default();
        *begun = name.edition.max(*begun);
    }

    /// An edition of the table's list that was never begun.
    pub(super) fn next_edition(&self, table: u64) -> u32 {
        let in_force = self.tables.get(&table).map_or(0, |handle| handle.layout().edition);
        self.begun.get(&table).copied().unwrap_or(0).max(in_force) + 1
    }

    /// An extent as a list has it.
    pub(super) fn part(&self, extent: &Extent) -> Part {
        let superblock = &self.superblocks[&extent.index()];
        Part { source: superblock.name, start: extent.start, units: extent.units }
    }

    /// A list of the table is on the superblock, in force or not.
    pub(super) fn note(&mut self, index: u32, table: u64) {
        self.change(index, |s| s.told.push(table));
    }

    /// A layout counts no more. Returns superblocks to be erased.
    pub(super) fn leave(&mut self, layout: &Layout) -> Vec<u32> {
        self.foreign -= layout.foreign();
        for extent in &layout.extents {
            self.change(extent.index(), |s| s.live -= extent.units as u64);
        }
        self.change(layout.list_on, |s| s.lists -= 1);
        self.unneeded(layout.extents.iter().map(Extent::index).chain([layout.list_on]))
    }

    /// Somebody copies from these, or is done with that.
    pub(super) fn keep(&mut self, indices: &[u32]) {
        indices.iter().for_each(|index| self.change(*index, |s| s.held += 1));
    }

    /// The opposite. Returns superblocks to be erased.
    pub(super) fn unkeep(&mut self, indices: &[u32]) -> Vec<u32> {
        indices.iter().for_each(|index| self.change(*index, |s| s.held -= 1));
        self.unneeded(indices.iter().copied())
    }

    /// Collection tries these no more.
    pub(super) fn set_stuck(&mut self, indices: &[u32]) {
        indices.iter().for_each(|index| self.change(*index, |s| s.stuck = true));
    }

    fn change(&mut self, index: u32, change: impl FnOnce(&mut Superblock)) {
        change(self.superblocks.get_mut(&index).expect("extents are on superblocks that are there"));
    }

    fn unneeded(&mut self, indices: impl Iterator<Item = u32>) -> Vec<u32> {
        let gone = |index: &u32| self.superblocks.get(index).is_some_and(|s| !s.is_needed());
        let gone: Vec<u32> = indices.collect::<BTreeSet<u32>>().into_iter().filter(gone).collect();
        gone.iter().for_each(|index| drop(self.superblocks.remove(index)));
        gone
    }

    /// Superblocks that may be collected, those with the fewest live units first.
    fn victims(&self) -> Vec<&Superblock> {
        let is_shared = self.is_shared();
        let is_victim = |s: &&Superblock| {
            let is_idle = is_shared && s.held == 0 && !s.stuck;
            is_idle && s.live * VICTIM_QUARTERS <= s.room * (VICTIM_QUARTERS - 1)
        };
        let mut victims: Vec<&Superblock> = self.superblocks.values().filter(is_victim).collect();
        victims.sort_by_key(|s| (s.live, s.home.index));
        victims
    }

    /// Superblocks that collection can win in all: those that are collected, less those that what is live on them
    /// fills.
    pub(super) fn collectable(&self) -> usize {
        let victims = self.victims();
        let live: u64 = victims.iter().map(|s| s.live).sum();
        victims.len().saturating_sub(live.div_ceil(budget(&victims).max(1)) as usize)
    }

    /// What to move to one superblock next: of which superblocks, and how many units of each; of all but the last
    /// that
    /// is all that is live. Nothing if collection would win nothing, now or later.
    pub(super) fn next_group(&self) -> Vec<(u32, u64)> {
        if self.collectable() == 0 {
            return Vec::new();
        }
        let victims = self.victims();
        let (mut left, mut group) = (budget(&victims), Vec::new());
        for victim in victims {
            group.push((victim.home.index, victim.live.min(left)));
            left = left.saturating_sub(victim.live);
            if left == 0 {
                break;
            }
        }
        group
    }

    /// Tables that have something on one of these, with their layouts.
    pub(super) fn tables_on(&self, indices: &[u32]) -> Vec<(u64, Arc<Layout>)> {
        let on = |layout: &Layout| {
            indices.contains(&layout.list_on) || layout.extents.iter().any(|e| indices.contains(&e.index()))
        };
        let all = self.tables.iter().map(|(table, handle)| (*table, handle.layout()));
        all.filter(|(_, layout)| on(layout)).collect()
    }

    /// Compares the counts with what the tables in force list, but for superblocks that somebody holds.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut counted: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
        for layout in self.tables.values().map(|handle| handle.layout()) {
            for extent in &layout.extents {
                counted.entry(extent.index()).or_default().0 += extent.units as u64;
            }
            counted.entry(layout.list_on).or_default().1 += 1;
        }
        let idle = self.superblocks.values().filter(|s| s.held == 0);
        let wrong = idle.filter_map(|s| {
            let (live, lists) = counted.get(&s.home.index).copied().unwrap_or_default();
            let is_right = (s.live, s.lists) == (live, lists) && s.is_needed();
            (!is_right).then(|| {
                format!(
                    "superblock {}: {} units and {} lists are counted on, by the tables {live} and {lists}",
                    s.home.index, s.live, s.lists
                )
            })
        });
        wrong.collect()
    }
}

/// Units of a superblock that collection fills; the rest is for lists.
fn budget(victims: &[&Superblock]) -> u64 {
    let room = victims.iter().map(|s| s.room).min().unwrap_or(0);
    room - room.div_ceil(LIST_SHARE)
}

#[cfg(test)]
mod tests;
