//! Which tables use which superblocks. Pure bookkeeping: it touches no flash.
//!
//! A unit is *live* while a table, finished or being written, uses it ("counts on it"). A superblock that has
//! live units, but whose own table is gone, is *pinned*. A superblock is *in hand* while it is written, or copied from
//! by collection.
//!
//! Invariants
//! 1. Counts and users of a superblock agree with the extents of all tables, including those being written.
//! 2. A superblock is released for erasing when none of its units is live and it is not in hand, and only then.

mod contents;
mod moves;
mod victims;

pub(super) use contents::Contents;
pub(super) use moves::Group;

use super::cover::Cover;
use super::layout::{Extent, TableHandle, TableLayout, push};
use super::list::{Run, push_run};
use super::superblock::{EXTENT_UNIT_BYTES, Home};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use victims::Victims;

/// See the module.
#[derive(Default)]
pub(super) struct Book {
    superblocks: BTreeMap<u32, Superblock>,
    tables: BTreeMap<u64, Arc<TableHandle>>,
    /// Extents of others that tables being written use, in order.
    drafts: BTreeMap<u64, Vec<Extent>>,
    /// Number of extents of all tables, including those being written. They take memory.
    runs: u64,
    /// Erased tables of which an opening may still find traces.
    forgotten: BTreeSet<u64>,
    /// The highest number of a collection.
    collected: u64,
    victims: Victims,
    /// Superblocks to be erased that were not handed out yet.
    unneeded: Vec<u32>,
}

/// What is known about a superblock.
pub(super) struct Superblock {
    pub home: Arc<Home>,
    /// Capacity in units.
    pub room: u64,
    contents: Contents,
    cover: Cover,
    /// By table, number of units that it uses.
    users: BTreeMap<u64, u64>,
    /// The table that consists of this superblock only. Such a table has no list and is not moved.
    plain: Option<u64>,
    hand: Option<Hand>,
    /// It cannot be read, so collection leaves it alone.
    stuck: bool,
}

/// What holds a superblock in hand, which prevents erasing it. Tables may still begin to use its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hand {
    /// It is being written.
    Writer,
    /// Collection copies from it.
    Collection,
}

impl Superblock {
    /// Number of live units.
    pub(super) fn live(&self) -> u64 {
        self.cover.live()
    }

    /// Most units that collection needs elsewhere for the live ones: these, and one for each piece, to name it in two
    /// lists ([`super::list::RUN_BYTES_MAX`]). It never grows when a unit dies: that may split a piece, but frees a
    /// unit.
    pub(super) fn weight(&self) -> u64 {
        self.live() + self.cover.pieces()
    }

    /// Its weight relative to its capacity.
    pub(super) fn live_share(&self) -> f64 {
        self.weight() as f64 / self.room.max(1) as f64
    }

    fn is_needed(&self) -> bool {
        self.live() > 0 || self.hand.is_some()
    }

    /// True if a table uses it that does not consist of it alone.
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

/// Totals over pinned superblocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pinned {
    pub superblocks: u64,
    /// Live units, and all units.
    pub live: u64,
    pub room: u64,
}

impl Book {
    /// Tables may share superblocks of at least `room` units, of which collection can fill `fill` with what it moves.
    pub(super) fn new(room: u64, fill: u64) -> Book {
        Book { victims: Victims::new(room, fill), ..Book::default() }
    }

    /// Changes these parameters.
    pub(super) fn set_shared_room(&mut self, room: u64, fill: u64) {
        self.victims = Victims::new(room, fill);
        self.superblocks.values().for_each(|superblock| self.victims.enter(superblock));
    }

    pub(super) fn table(&self, table: u64) -> Option<&Arc<TableHandle>> {
        self.tables.get(&table)
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = u64> {
        self.tables.keys().copied()
    }

    /// True while tables share superblocks, so there may be something to collect.
    pub(super) fn is_shared(&self) -> bool {
        self.victims.any_shared()
    }

    /// Superblocks that are free once these tables are forgotten: those that nobody else uses, and what collection can
    /// free then and not now.
    pub(super) fn freed_by(&self, tables: &BTreeSet<u64>) -> u64 {
        let (mut released, mut lighter) = (0, Vec::new());
        for superblock in self.superblocks.values().filter(|superblock| superblock.live() > 0) {
            let others = superblock.users.iter().filter(|(table, _)| !tables.contains(table));
            // Some may use the same units.
            let live = others.map(|(_, units)| units).sum::<u64>().min(superblock.live());
            released += u64::from(live == 0);
            if live < superblock.live() {
                lighter.push((superblock, live));
            }
        }
        (released + self.victims.won_with(&lighter)).saturating_sub(self.won())
    }

    /// Number of extents of all tables.
    pub(super) fn runs(&self) -> u64 {
        self.runs
    }

    /// Superblocks that collection can free, given one to begin with.
    pub(super) fn won(&self) -> u64 {
        self.victims.won()
    }

    /// True while superblocks have no live units and are in hand only until reads from them are answered.
    pub(super) fn is_winning(&self) -> bool {
        self.victims.any_empty()
    }

    /// The fraction that is live, by weight, of the superblocks that would be collected to free `wanted`; 1 if that
    /// many cannot be freed.
    pub(super) fn price(&self, wanted: u64) -> f64 {
        self.victims.price(wanted)
    }

    /// Erased tables that an opening would still find.
    pub(super) fn lingering(&mut self) -> Vec<u64> {
        let found: BTreeSet<u64> =
            self.superblocks.values().flat_map(|s| &s.contents.tables).copied().collect();
        self.forgotten.retain(|table| found.contains(table));
        self.forgotten.iter().copied().collect()
    }

    /// Notes tables that were found at opening but had been erased.
    pub(super) fn were_forgotten(&mut self, tables: BTreeSet<u64>) {
        self.forgotten.extend(tables);
    }

    /// Notes that a collection of this number was found.
    pub(super) fn collected(&mut self, number: u64) {
        self.collected = self.collected.max(number);
    }

    /// The number of the next collection.
    pub(super) fn next_collection(&mut self) -> u64 {
        // If the highest possible number is in use it is used again: any copy is as good.
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

    /// Adds a superblock that is going to be written.
    pub(super) fn begin(&mut self, home: Arc<Home>, capacity: u64) {
        let (index, room) = (home.index, capacity / EXTENT_UNIT_BYTES);
        let (contents, cover, users) = (Contents::default(), Cover::default(), BTreeMap::new());
        let hand = Some(Hand::Writer);
        let superblock = Superblock { home, room, contents, cover, users, plain: None, hand, stuck: false };
        self.victims.enter(&superblock);
        let before = self.superblocks.insert(index, superblock);
        assert!(before.is_none(), "a superblock is taken once");
    }

    /// Removes a superblock that nobody uses, to be erased.
    pub(super) fn give_up(&mut self, index: u32) {
        if let Some(superblock) = self.superblocks.remove(&index) {
            self.victims.leave(&superblock);
            self.unneeded.push(index);
        }
    }

    /// Takes the superblocks that are to be erased.
    pub(super) fn take_unneeded(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unneeded)
    }

    /// Sets what lies on a superblock, before any table uses it.
    pub(super) fn set_contents(&mut self, index: u32, contents: Contents) {
        self.change(index, |s| {
            assert_eq!(s.live(), 0, "what it is does not change");
            (s.cover, s.contents) = (Cover::new(contents.seams()), contents);
        });
    }

    /// Adds a finished table: `runs` are its own units, which are on `home`, and units of others that it linked; `list`
    /// follows its own units.
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
        self.put(table, TableLayout::new(extents, list_units.into()));
        self.change(home.index, |s| s.hand = None);
    }

    /// Adds a table with its layout.
    pub(super) fn put(&mut self, table: u64, layout: TableLayout) {
        for extent in layout.extents.iter().filter(|extent| !extent.is_lost()) {
            self.change(extent.index(), |s| s.count(table, extent));
        }
        if layout.is_plain() {
            let own = layout.extents.iter().filter(|extent| !extent.is_lost());
            let own = own.map(Extent::index).collect::<BTreeSet<u32>>();
            own.into_iter().for_each(|index| self.change(index, |s| s.plain = Some(table)));
        }
        self.runs += layout.extents.len() as u64;
        self.tables.insert(table, Arc::new(TableHandle::new(layout)));
    }

    /// The extents of a byte range of a table; `None` if the table or a part of the range is missing.
    pub(super) fn find(&self, table: u64, offset: u64, bytes: u64) -> Option<Vec<Extent>> {
        let layout = self.tables.get(&table)?.layout();
        let extent = |(home, from, bytes): (&Arc<Home>, u64, u64)| Extent {
            home: home.clone(),
            start: (from / EXTENT_UNIT_BYTES) as u32,
            units: (bytes / EXTENT_UNIT_BYTES) as u32,
        };
        layout.find(offset, bytes).map(|parts| parts.map(extent).collect())
    }

    /// Lets a table that is being written use an extent, if `judge` accepts its superblock. Returns the runs that its
    /// units are.
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

    /// True if tables may share the superblock of an extent, and `judge` accepts it.
    pub(super) fn may_link(&self, extent: &Extent, judge: impl Fn(&Superblock) -> bool) -> bool {
        let superblock = &self.superblocks[&extent.index()];
        self.victims.may_share(superblock) && judge(superblock)
    }

    /// Releases what a table being written has linked, as it is given up.
    pub(super) fn let_go(&mut self, table: u64) {
        let extents = self.drafts.remove(&table).unwrap_or_default();
        self.discount(table, &extents);
    }

    /// Removes an erased table.
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

    /// Releases the extents of a table.
    fn discount(&mut self, table: u64, extents: &[Extent]) {
        self.runs -= extents.len() as u64;
        for extent in extents.iter().filter(|extent| !extent.is_lost()) {
            self.change(extent.index(), |s| s.discount(table, extent));
        }
        self.clear(extents.iter().map(Extent::index));
    }

    /// These superblocks are no longer in hand.
    pub(super) fn put_down(&mut self, indices: &[u32]) {
        indices.iter().for_each(|index| self.change(*index, |s| s.hand = None));
        self.clear(indices.iter().copied());
    }

    /// Makes collection leave a superblock alone.
    pub(super) fn set_stuck(&mut self, index: u32) {
        self.change(index, |s| s.stuck = true);
    }

    fn change(&mut self, index: u32, change: impl FnOnce(&mut Superblock)) {
        let superblock = self.superblocks.get_mut(&index).expect("extents are on superblocks that are there");
        self.victims.leave(superblock);
        change(superblock);
        self.victims.enter(superblock);
    }

    /// Releases those of these superblocks that are no longer needed.
    fn clear(&mut self, indices: impl Iterator<Item = u32>) {
        for index in indices {
            if self.superblocks.get(&index).is_some_and(|s| !s.is_needed()) {
                self.give_up(index);
            }
        }
    }

    /// All superblocks in the book.
    pub(super) fn superblocks(&self) -> impl Iterator<Item = u32> {
        self.superblocks.keys().copied()
    }

    /// The layouts of all tables.
    pub(super) fn layouts(&self) -> BTreeMap<u64, Arc<TableLayout>> {
        self.tables.iter().map(|(table, handle)| (*table, handle.layout())).collect()
    }

    /// Compares with `other`, a book rebuilt from the flash: messages about tables that differ. Tables whose layout has
    /// changed since `before` are not compared.
    pub(super) fn differences(&self, other: &Book, before: &BTreeMap<u64, Arc<TableLayout>>) -> Vec<String> {
        let stayed = |table: &&u64| {
            let now = self.tables[*table].layout();
            before.get(*table).is_some_and(|before| Arc::ptr_eq(before, &now))
        };
        let differs = |table: &&u64| self.units_of(**table) != other.units_of(**table);
        let differing = self.tables.keys().filter(stayed).filter(differs);
        differing.map(|table| format!("table {table}: an opening would find something else")).collect()
    }

    /// The runs that a table consists of.
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

    /// Compares the counts with the extents of all tables; messages about differences.
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
