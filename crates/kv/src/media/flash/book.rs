//! Which superblock is needed by which tables. Pure: it touches no flash.
//!
//! A unit is *live* while a table counts on it, finished or being written. A superblock that was a table by itself, and
//! of which other tables count on some, is *pinned*.
//!
//! Invariants
//! 1. What is live of a superblock, and by whom, is what the extents of all tables say, those being written included.
//! 2. A superblock is handed out to be erased when nothing of it is live and nobody writes it or copies from it, and
//!    only then.

mod contents;
mod moves;
mod victims;

pub(super) use contents::Contents;
pub(super) use moves::Group;

use super::cover::Cover;
use super::layout::{Extent, Handle, Layout, push};
use super::list::{Run, push_run};
use super::superblock::{Home, UNIT_BYTES};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use victims::Victims;

/// See the module.
#[derive(Default)]
pub(super) struct Book {
    superblocks: BTreeMap<u32, Superblock>,
    tables: BTreeMap<u64, Arc<Handle>>,
    /// What tables that are being written count on, in order.
    drafts: BTreeMap<u64, Vec<Extent>>,
    /// Extents of all tables, those being written included: what takes memory.
    runs: u64,
    /// Tables that were erased, and that an opening may find.
    forgotten: BTreeSet<u64>,
    /// The highest number of a collection that there is any trace of.
    collected: u64,
    victims: Victims,
    /// Needed no more, and not handed out yet.
    unneeded: Vec<u32>,
}

/// What is known of one.
pub(super) struct Superblock {
    pub home: Arc<Home>,
    /// Units that it has.
    pub room: u64,
    contents: Contents,
    cover: Cover,
    /// Units that each table counts on.
    users: BTreeMap<u64, u64>,
    /// The table that it is, and that is nothing else: it has no list, and is not moved.
    plain: Option<u64>,
    hand: Option<Hand>,
    /// It cannot be read.
    stuck: bool,
}

/// Who has a superblock in hand, so that it is not erased. What tables count on there more may be counted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hand {
    /// Somebody writes it.
    Writer,
    /// Collection copies from it.
    Collection,
}

impl Superblock {
    /// Units that are.
    pub(super) fn live(&self) -> u64 {
        self.cover.live()
    }

    /// Units that collection needs elsewhere for what is live, at most: one for each piece of it, to name it in two
    /// lists ([`super::list::RUN_BYTES_MAX`]). It does not rise when less is counted on: a hole is a unit at least.
    pub(super) fn weight(&self) -> u64 {
        self.live() + self.cover.pieces()
    }

    /// The part of it that its weight is.
    pub(super) fn live_share(&self) -> f64 {
        self.weight() as f64 / self.room.max(1) as f64
    }

    fn is_needed(&self) -> bool {
        self.live() > 0 || self.hand.is_some()
    }

    /// True unless it is a table and nothing else.
    fn is_shared(&self) -> bool {
        self.users.keys().any(|table| Some(*table) != self.plain)
    }

    fn count(&mut self, table: u64, extent: &Extent) {
        self.cover.add(extent.start, extent.units);
        *self.users.entry(table).or_default() += u64::from(extent.units);
    }

    fn discount(&mut self, table: u64, extent: &Extent) {
        self.cover.take(extent.start, extent.units);
        let units = self.users.get_mut(&table).expect("it counts on it");
        *units -= u64::from(extent.units);
        if *units == 0 {
            self.users.remove(&table);
        }
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
    /// Tables share superblocks of at least `room` units, of which collection has `fill` for what it moves.
    pub(super) fn new(room: u64, fill: u64) -> Book {
        Book { victims: Victims::new(room, fill), ..Book::default() }
    }

    /// The same from now on.
    pub(super) fn set_shared_room(&mut self, room: u64, fill: u64) {
        self.victims = Victims::new(room, fill);
        self.superblocks.values().for_each(|superblock| self.victims.enter(superblock));
    }

    pub(super) fn table(&self, table: u64) -> Option<&Arc<Handle>> {
        self.tables.get(&table)
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = u64> {
        self.tables.keys().copied()
    }

    /// True while tables share superblocks, so that there may be something to collect.
    pub(super) fn is_shared(&self) -> bool {
        self.victims.any_shared()
    }

    /// Extents of all tables.
    pub(super) fn runs(&self) -> u64 {
        self.runs
    }

    /// Superblocks that collection wins, if it has one to begin with.
    pub(super) fn won(&self) -> u64 {
        self.victims.won()
    }

    /// True while superblocks are empty, and in hand only until those are answered who read there.
    pub(super) fn is_winning(&self) -> bool {
        self.victims.any_empty()
    }

    /// The part that what is live weighs of what is collected to win so many superblocks; all, if so many cannot be
    /// won.
    pub(super) fn price(&self, wanted: u64) -> f64 {
        self.victims.price(wanted)
    }

    /// Tables that were erased, and that are found all the same when the flash is opened anew.
    pub(super) fn lingering(&mut self) -> Vec<u64> {
        let found: BTreeSet<u64> =
            self.superblocks.values().flat_map(|s| &s.contents.tables).copied().collect();
        self.forgotten.retain(|table| found.contains(table));
        self.forgotten.iter().copied().collect()
    }

    /// These were found, and had been erased before.
    pub(super) fn were_forgotten(&mut self, tables: BTreeSet<u64>) {
        self.forgotten.extend(tables);
    }

    /// A collection of this number was found.
    pub(super) fn collected(&mut self, number: u64) {
        self.collected = self.collected.max(number);
    }

    /// The number of the next collection.
    pub(super) fn next_collection(&mut self) -> u64 {
        // Where the flash names the highest there is, whichever copy counts is as good.
        self.collected = self.collected.saturating_add(1);
        self.collected
    }

    pub(super) fn pinned(&self) -> Pinned {
        let mut sum = Pinned::default();
        let is_pinned = |s: &&Superblock| {
            s.live() > 0 && s.contents.own.is_none_or(|own| !self.tables.contains_key(&own))
        };
        for superblock in self.superblocks.values().filter(is_pinned) {
            sum.superblocks += 1;
            sum.live += superblock.live();
            sum.room += superblock.room;
        }
        sum
    }

    /// A superblock is being written.
    pub(super) fn begin(&mut self, home: Arc<Home>, capacity: u64) {
        let (index, room) = (home.index, capacity / UNIT_BYTES);
        let (contents, cover, users) = (Contents::default(), Cover::default(), BTreeMap::new());
        let hand = Some(Hand::Writer);
        let superblock = Superblock { home, room, contents, cover, users, plain: None, hand, stuck: false };
        self.victims.enter(&superblock);
        let before = self.superblocks.insert(index, superblock);
        assert!(before.is_none(), "a superblock is taken once");
    }

    /// What was being written to a superblock is given up, and nobody counts on it.
    pub(super) fn give_up(&mut self, index: u32) {
        if let Some(superblock) = self.superblocks.remove(&index) {
            self.victims.leave(&superblock);
            self.unneeded.push(index);
        }
    }

    /// Superblocks that nobody needs any more, to be erased.
    pub(super) fn take_unneeded(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unneeded)
    }

    /// Says what was found on a superblock, before anybody counts on it.
    pub(super) fn set_contents(&mut self, index: u32, contents: Contents) {
        self.change(index, |s| {
            assert_eq!(s.live(), 0, "what it is does not change");
            (s.cover, s.contents) = (Cover::new(contents.seams()), contents);
        });
    }

    /// A table is finished: its own units, `runs` of them and of others, and behind its own its list of so many units.
    pub(super) fn settle(&mut self, table: u64, home: &Arc<Home>, runs: &[Run], list: Option<Run>) {
        let links = self.drafts.remove(&table).unwrap_or_default();
        self.runs -= links.len() as u64;
        let mut links = links.into_iter();
        let (mut link, mut extents, mut own) = (None, Vec::new(), 0);
        for run in runs {
            if run.origin == table {
                push(&mut extents, Extent { home: home.clone(), start: own, units: run.units });
                own += run.units;
                continue;
            }
            let mut left = run.units;
            while left > 0 {
                let next: Extent = link.take().or_else(|| links.next()).expect("it was linked");
                let units = left.min(next.units);
                self.change(next.index(), |s| s.discount(table, &next.part(0, units)));
                push(&mut extents, next.part(0, units));
                link = (units < next.units).then(|| next.part(units, next.units - units));
                left -= units;
            }
        }
        let list_units = list.map_or(0, |list| list.units);
        if list_units > 0 {
            push(&mut extents, Extent { home: home.clone(), start: own, units: list_units });
        }
        let units = Some(Run { origin: table, start: 0, units: own }).filter(|run| run.units > 0);
        self.set_contents(home.index, Contents::new(Some(table), units.into_iter().chain(list).collect()));
        self.put(table, Layout::new(extents, list_units.into()));
        self.change(home.index, |s| s.hand = None);
    }

    /// A table is there.
    pub(super) fn put(&mut self, table: u64, layout: Layout) {
        for extent in layout.extents.iter().filter(|extent| !extent.is_lost()) {
            self.change(extent.index(), |s| s.count(table, extent));
        }
        if layout.is_plain() {
            let own = layout.extents.iter().filter(|extent| !extent.is_lost());
            let own = own.map(Extent::index).collect::<BTreeSet<u32>>();
            own.into_iter().for_each(|index| self.change(index, |s| s.plain = Some(table)));
        }
        self.runs += layout.extents.len() as u64;
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

    /// A table that is being written counts on an extent, if `judge` likes its superblock. Says what its units are.
    pub(super) fn link(
        &mut self,
        table: u64,
        extent: &Extent,
        judge: impl Fn(&Superblock) -> bool,
    ) -> Option<Vec<Run>> {
        if !self.may_link(extent, judge) {
            return None;
        }
        let runs = self.superblocks[&extent.index()].contents.part(extent.start, extent.units);
        self.change(extent.index(), |s| s.count(table, extent));
        let draft = self.drafts.entry(table).or_default();
        let before = draft.len();
        push(draft, extent.clone());
        self.runs += (draft.len() - before) as u64;
        Some(runs)
    }

    /// True if more may be counted on where an extent is, and `judge` likes that superblock.
    pub(super) fn may_link(&self, extent: &Extent, judge: impl Fn(&Superblock) -> bool) -> bool {
        let superblock = &self.superblocks[&extent.index()];
        self.victims.may_share(superblock) && judge(superblock)
    }

    /// A table that was being written is given up.
    pub(super) fn let_go(&mut self, table: u64) {
        let extents = self.drafts.remove(&table).unwrap_or_default();
        self.discount(table, &extents);
    }

    /// A table is gone.
    pub(super) fn forget(&mut self, table: u64) {
        self.forgotten.insert(table);
        let Some(handle) = self.tables.remove(&table) else { return };
        let layout = handle.layout();
        if layout.is_plain() {
            let plain = layout.extents.iter().filter(|extent| !extent.is_lost()).map(Extent::index);
            plain.for_each(|index| self.change(index, |s| s.plain = None));
        }
        self.discount(table, &layout.extents);
    }

    /// A table is gone that was made of these.
    fn discount(&mut self, table: u64, extents: &[Extent]) {
        self.runs -= extents.len() as u64;
        for extent in extents.iter().filter(|extent| !extent.is_lost()) {
            self.change(extent.index(), |s| s.discount(table, extent));
        }
        self.clear(extents.iter().map(Extent::index));
    }

    /// Nobody writes these any more, or copies from them.
    pub(super) fn put_down(&mut self, indices: &[u32]) {
        indices.iter().for_each(|index| self.change(*index, |s| s.hand = None));
        self.clear(indices.iter().copied());
    }

    /// Collection tries it no more.
    pub(super) fn set_stuck(&mut self, index: u32) {
        self.change(index, |s| s.stuck = true);
    }

    fn change(&mut self, index: u32, change: impl FnOnce(&mut Superblock)) {
        let superblock = self.superblocks.get_mut(&index).expect("extents are on superblocks that are there");
        self.victims.leave(superblock);
        change(superblock);
        self.victims.enter(superblock);
    }

    /// Gives up those of some superblocks that nobody needs any more.
    fn clear(&mut self, indices: impl Iterator<Item = u32>) {
        for index in indices {
            if self.superblocks.get(&index).is_some_and(|s| !s.is_needed()) {
                self.give_up(index);
            }
        }
    }

    /// Those that are not free.
    pub(super) fn superblocks(&self) -> impl Iterator<Item = u32> {
        self.superblocks.keys().copied()
    }

    /// Where each table is.
    pub(super) fn layouts(&self) -> BTreeMap<u64, Arc<Layout>> {
        self.tables.iter().map(|(table, handle)| (*table, handle.layout())).collect()
    }

    /// Tables that are something else to `other`, which was made of what lies on flash, of those that are where they
    /// were `before` it was.
    pub(super) fn differences(&self, other: &Book, before: &BTreeMap<u64, Arc<Layout>>) -> Vec<String> {
        let stayed = |table: &&u64| {
            let now = self.tables[*table].layout();
            before.get(*table).is_some_and(|before| Arc::ptr_eq(before, &now))
        };
        let differs = |table: &&u64| self.units_of(**table) != other.units_of(**table);
        let differing = self.tables.keys().filter(stayed).filter(differs);
        differing.map(|table| format!("table {table}: an opening would find something else")).collect()
    }

    /// What a table is made of, if it is there.
    fn units_of(&self, table: u64) -> Option<Vec<Run>> {
        let layout = self.tables.get(&table)?.layout();
        let mut runs = Vec::new();
        for extent in &layout.extents {
            let part = match self.superblocks.get(&extent.index()) {
                Some(superblock) => superblock.contents.part(extent.start, extent.units),
                None => vec![Run { origin: 0, start: 0, units: extent.units }], // lost
            };
            part.into_iter().for_each(|run| push_run(&mut runs, run));
        }
        Some(runs)
    }

    /// Compares what is counted with the extents of all tables.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut counted: BTreeMap<u32, (Cover, BTreeMap<u64, u64>)> = BTreeMap::new();
        let mut runs = 0;
        let tables = self.tables.iter().map(|(table, handle)| (*table, handle.layout().extents.clone()));
        let drafts = self.drafts.iter().map(|(table, extents)| (*table, extents.clone()));
        for (table, extents) in tables.chain(drafts) {
            runs += extents.len() as u64;
            for extent in extents.into_iter().filter(|extent| !extent.is_lost()) {
                let (cover, users) = counted.entry(extent.index()).or_default();
                cover.add(extent.start, extent.units);
                *users.entry(table).or_default() += u64::from(extent.units);
            }
        }
        let mut wrong = Vec::new();
        if runs != self.runs {
            wrong.push(format!("{} runs are counted, and tables have {runs}", self.runs));
        }
        for s in self.superblocks.values() {
            let (cover, users) = counted.remove(&s.home.index).unwrap_or_default();
            let is_right = (s.cover.ranges(), &s.users) == (cover.ranges(), &users) && s.is_needed();
            if !is_right {
                let (index, live, counted) = (s.home.index, s.live(), cover.live());
                wrong.push(format!(
                    "superblock {index}: {live} units are counted on, by the tables {counted}"
                ));
            }
        }
        wrong.extend(
            counted.keys().map(|index| format!("superblock {index}: tables count on it, and it is free")),
        );
        wrong
    }
}

#[cfg(test)]
mod tests;
