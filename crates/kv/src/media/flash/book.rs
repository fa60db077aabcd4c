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
mod victims;

pub(super) use contents::Contents;

use super::cover::Cover;
use super::layout::{Extent, Handle, Layout, push};
use super::list::{List, Run, push_run};
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
    /// Tables that were erased, and that an opening may find.
    forgotten: BTreeSet<u64>,
    /// The same of superblocks that are needed no more, until they are erased.
    stale: BTreeMap<u32, Vec<u64>>,
    /// The highest number of a collection that there is any trace of.
    collected: u64,
    victims: Victims,
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
    /// Who writes it, or copies from it.
    held: u32,
    /// It cannot be read.
    stuck: bool,
}

impl Superblock {
    /// Units that are.
    pub(super) fn live(&self) -> u64 {
        self.cover.live()
    }

    /// The part that is live.
    pub(super) fn live_share(&self) -> f64 {
        self.live() as f64 / self.room.max(1) as f64
    }

    fn is_needed(&self) -> bool {
        self.live() > 0 || self.held > 0
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

/// What is moved to one superblock: of which, and what.
pub(super) struct Group {
    /// In order of how little is live on them.
    pub victims: Vec<u32>,
    /// In the order in which they will lie there.
    pub moved: Vec<Extent>,
    pub list: List,
}

impl Book {
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

    /// Superblocks that collection can win, if there is one of `target` units to begin with, and the pages at the end
    /// of two lists are so many units.
    pub(super) fn collectable(&self, target: u64, pages: u64) -> u64 {
        self.victims.collectable(target, pages)
    }

    /// The part that is live of the superblock that is collected next; all, if none can be.
    pub(super) fn next_victim_live(&self) -> f64 {
        let next = self.victims.in_order().next();
        next.map_or(1.0, |index| self.superblocks[&index].live_share())
    }

    /// Tables that were erased, and that are found all the same when the flash is opened anew.
    pub(super) fn lingering(&mut self) -> Vec<u64> {
        let there = self.superblocks.values().map(|s| &s.contents.tables).chain(self.stale.values());
        let found: BTreeSet<u64> = there.flatten().copied().collect();
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
        self.collected += 1;
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

    /// A superblock is being written; whoever writes it holds it.
    pub(super) fn begin(&mut self, home: Arc<Home>, capacity: u64) {
        let (index, room) = (home.index, capacity / UNIT_BYTES);
        let (contents, cover, users) = (Contents::default(), Cover::default(), BTreeMap::new());
        let superblock =
            Superblock { home, room, contents, cover, users, plain: None, held: 1, stuck: false };
        self.victims.enter(&superblock);
        let before = self.superblocks.insert(index, superblock);
        assert!(before.is_none(), "a superblock is taken once");
    }

    /// What was being written to a superblock is given up, and nobody counts on it.
    pub(super) fn abandon(&mut self, index: u32) {
        if let Some(superblock) = self.superblocks.remove(&index) {
            self.victims.leave(&superblock);
            self.stale.insert(index, superblock.contents.tables);
        }
    }

    /// Nothing is found on a superblock any more.
    pub(super) fn erased(&mut self, index: u32) {
        self.stale.remove(&index);
    }

    /// Says what was found on a superblock.
    pub(super) fn set_contents(&mut self, index: u32, contents: Contents) {
        self.change(index, |s| s.contents = contents);
    }

    /// A table is finished: its own units, `runs` of them and of others, and behind its own its list of so many units.
    pub(super) fn settle(&mut self, table: u64, home: &Arc<Home>, runs: &[Run], list: Option<Run>) {
        let mut links = self.drafts.remove(&table).unwrap_or_default().into_iter();
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
        self.change(home.index, |s| s.held -= 1);
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
        let superblock = &self.superblocks[&extent.index()];
        if superblock.held > 0 || !judge(superblock) {
            return None;
        }
        let runs = superblock.contents.part(extent.start, extent.units);
        self.change(extent.index(), |s| s.count(table, extent));
        push(self.drafts.entry(table).or_default(), extent.clone());
        Some(runs)
    }

    /// A table that was being written is given up. Returns superblocks to be erased.
    pub(super) fn let_go(&mut self, table: u64) -> Vec<u32> {
        let extents = self.drafts.remove(&table).unwrap_or_default();
        self.discount(table, &extents)
    }

    /// A table is gone. Returns superblocks to be erased.
    pub(super) fn forget(&mut self, table: u64) -> Vec<u32> {
        self.forgotten.insert(table);
        let Some(handle) = self.tables.remove(&table) else { return Vec::new() };
        let layout = handle.layout();
        if layout.is_plain() {
            let plain = layout.extents.iter().filter(|extent| !extent.is_lost()).map(Extent::index);
            plain.for_each(|index| self.change(index, |s| s.plain = None));
        }
        self.discount(table, &layout.extents)
    }

    fn discount(&mut self, table: u64, extents: &[Extent]) -> Vec<u32> {
        for extent in extents.iter().filter(|extent| !extent.is_lost()) {
            self.change(extent.index(), |s| s.discount(table, extent));
        }
        self.unneeded(extents.iter().map(Extent::index))
    }

    /// What to move next to a superblock on which so many units and bytes of a list fit. Nothing if that would not
    /// win one.
    pub(super) fn next_group(&self, fits: impl Fn(u64, u64) -> bool) -> Option<Group> {
        let mut group = Group { victims: Vec::new(), moved: Vec::new(), list: List::default() };
        let (mut units, mut wholes) = (0, 0);
        for index in self.victims.in_order() {
            let superblock = &self.superblocks[&index];
            group.victims.push(index);
            let mut left = superblock.live();
            for (start, count) in superblock.cover.ranges() {
                let fitting = most(count, |count| {
                    let runs = group.list.runs.len() + superblock.contents.part(start, count).len();
                    fits(units + u64::from(count), List::bytes(runs, 0))
                });
                if fitting > 0 {
                    let extent = Extent { home: superblock.home.clone(), start, units: fitting };
                    let runs = superblock.contents.part(start, fitting);
                    runs.into_iter().for_each(|run| push_run(&mut group.list.runs, run));
                    push(&mut group.moved, extent);
                }
                (units, left) = (units + u64::from(fitting), left - u64::from(fitting));
                if fitting < count {
                    break;
                }
            }
            wholes += (left == 0) as usize;
            if left > 0 {
                break;
            }
        }
        (wholes > 0).then_some(group)
    }

    /// What was moved is safe on its new superblock. Returns layouts that count no more; until nobody reads by these the
    /// superblocks are to be kept.
    pub(super) fn put_in_force(&mut self, home: &Arc<Home>, group: &Group) -> Vec<Arc<Layout>> {
        let Group { victims, moved, list } = group;
        self.set_contents(home.index, Contents::new(None, list.runs.clone()));
        let moves = Moves::new(home, moved);
        let users: BTreeSet<u64> =
            victims.iter().flat_map(|index| self.superblocks[index].users.keys().copied()).collect();
        let mut old = Vec::new();
        for table in users {
            let extents = match (self.tables.get(&table), self.drafts.get_mut(&table)) {
                (Some(handle), _) => {
                    let before =
                        handle.replace(handle.layout().moved(|extent, out| moves.split(extent, out)));
                    let after = handle.layout();
                    old.push(before.clone());
                    (before.extents.clone(), after.extents.clone())
                }
                (None, Some(draft)) => {
                    let mut after = Vec::new();
                    draft.iter().for_each(|extent| moves.split(extent, &mut after));
                    (std::mem::replace(draft, after.clone()), after)
                }
                (None, None) => unreachable!("who counts on something is there"),
            };
            self.recount(table, victims, home.index, extents);
        }
        old
    }

    /// Counts what of a table moved from some superblocks to another.
    fn recount(&mut self, table: u64, from: &[u32], to: u32, (before, after): (Vec<Extent>, Vec<Extent>)) {
        let concerns = |extent: &&Extent| extent.index() == to || from.contains(&extent.index());
        for extent in after.iter().filter(concerns) {
            self.change(extent.index(), |s| s.count(table, extent));
        }
        for extent in before.iter().filter(concerns) {
            self.change(extent.index(), |s| s.discount(table, extent));
        }
    }

    /// Somebody copies from these.
    pub(super) fn keep(&mut self, indices: &[u32]) {
        indices.iter().for_each(|index| self.change(*index, |s| s.held += 1));
    }

    /// Nobody does any more, or writes them. Returns superblocks to be erased.
    pub(super) fn unkeep(&mut self, indices: Vec<u32>) -> Vec<u32> {
        indices.iter().for_each(|index| self.change(*index, |s| s.held -= 1));
        self.unneeded(indices.into_iter())
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

    fn unneeded(&mut self, indices: impl Iterator<Item = u32>) -> Vec<u32> {
        let gone = |index: &u32| self.superblocks.get(index).is_some_and(|s| !s.is_needed());
        let gone: Vec<u32> = indices.collect::<BTreeSet<u32>>().into_iter().filter(gone).collect();
        gone.iter().for_each(|index| self.abandon(*index));
        gone
    }

    /// Compares what is counted with the extents of all tables.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut counted: BTreeMap<u32, (Cover, BTreeMap<u64, u64>)> = BTreeMap::new();
        let tables = self.tables.iter().map(|(table, handle)| (*table, handle.layout().extents.clone()));
        let drafts = self.drafts.iter().map(|(table, extents)| (*table, extents.clone()));
        for (table, extents) in tables.chain(drafts) {
            for extent in extents.into_iter().filter(|extent| !extent.is_lost()) {
                let (cover, users) = counted.entry(extent.index()).or_default();
                cover.add(extent.start, extent.units);
                *users.entry(table).or_default() += u64::from(extent.units);
            }
        }
        let wrong = self.superblocks.values().filter_map(|s| {
            let (cover, users) = counted.remove(&s.home.index).unwrap_or_default();
            let is_right = (s.cover.ranges(), &s.users) == (cover.ranges(), &users) && s.is_needed();
            (!is_right).then(|| {
                format!(
                    "superblock {}: {} units are counted on, by the tables {}",
                    s.home.index,
                    s.live(),
                    cover.live()
                )
            })
        });
        wrong.collect()
    }
}

/// The most of so many units for which `fits` holds, if it holds for fewer whenever it does for more.
fn most(units: u32, fits: impl Fn(u32) -> bool) -> u32 {
    if fits(units) {
        return units;
    }
    let (mut some, mut many) = (0, units);
    while many - some > 1 {
        let half = some + (many - some) / 2;
        if fits(half) { some = half } else { many = half }
    }
    some
}

/// Where units went that were moved.
struct Moves<'a> {
    home: &'a Arc<Home>,
    /// By superblock and first unit: how many, and where to.
    runs: BTreeMap<(u32, u32), (u32, u32)>,
}

impl<'a> Moves<'a> {
    fn new(home: &'a Arc<Home>, moved: &[Extent]) -> Moves<'a> {
        let mut to = 0;
        let runs = moved.iter().map(|extent| {
            to += extent.units;
            ((extent.index(), extent.start), (extent.units, to - extent.units))
        });
        Moves { home, runs: runs.collect() }
    }

    /// Appends where an extent is now.
    fn split(&self, extent: &Extent, out: &mut Vec<Extent>) {
        let (mut at, end) = (extent.start, extent.start + extent.units);
        while at < end {
            let before = self.runs.range(..=(extent.index(), at)).next_back();
            let run =
                before.filter(|((index, start), (units, _))| *index == extent.index() && at < start + units);
            let next = match run {
                Some(((_, start), (units, to))) => {
                    let until = end.min(start + units);
                    let moved = Extent { home: self.home.clone(), start: to + at - start, units: until - at };
                    push(out, moved);
                    until
                }
                None => {
                    let next = self.runs.range((extent.index(), at)..(extent.index(), end)).next();
                    let until = next.map_or(end, |((_, start), _)| *start);
                    push(out, extent.part(at - extent.start, until - at));
                    until
                }
            };
            at = next;
        }
    }
}

#[cfg(test)]
mod tests;
