//! What collection moves next, and the changes to the book once it is done.

use super::{Book, Contents, Hand};
use crate::media::flash::layout::{Extent, TableLayout, push};
use crate::media::flash::list::List;
use crate::media::flash::superblock::Home;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is moved to one superblock.
pub(in crate::media::flash) struct Group {
    /// Superblocks that it is moved from, lightest first.
    pub victims: Vec<u32>,
    /// Extents to be moved, in their new order.
    pub moved: Vec<Extent>,
    pub list: List,
}

impl Book {
    /// Chooses what to move next, and takes its superblocks in hand. `fits` says whether units and bytes of the list
    /// fit the new superblock.
    pub(in crate::media::flash) fn next_group(&mut self, fits: impl Fn(u64, u64) -> bool) -> Option<Group> {
        let mut group = Group { victims: Vec::new(), moved: Vec::new(), list: List::default() };
        let mut units = 0;
        'full: for index in self.victims.in_order() {
            let superblock = &self.superblocks[&index];
            group.victims.push(index);
            for (start, count) in superblock.cover.ranges() {
                let fitting = most(count, |count| {
                    let runs = superblock.contents.part(start, count).len();
                    fits(units + u64::from(count), group.list.bytes_with(runs))
                });
                if fitting > 0 {
                    let extent = Extent { home: superblock.home.clone(), start, units: fitting };
                    let runs = superblock.contents.part(start, fitting);
                    runs.into_iter().for_each(|run| group.list.push(run));
                    push(&mut group.moved, extent);
                    units += u64::from(fitting);
                }
                if fitting < count {
                    break 'full;
                }
            }
        }
        if group.victims.is_empty() {
            return None;
        }
        group.victims.iter().for_each(|index| self.change(*index, |s| s.hand = Some(Hand::Collection)));
        Some(group)
    }

    /// Switches tables to the moved units, which are durable on `home`. Returns the replaced layouts; until nobody
    /// reads by them, the old superblocks must stay in hand.
    pub(in crate::media::flash) fn put_in_force(
        &mut self,
        home: &Arc<Home>,
        group: &Group,
    ) -> Vec<Arc<TableLayout>> {
        let Group { victims, moved, list } = group;
        self.set_contents(home.index, Contents::new(None, list.runs().to_vec()));
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
            let (less, more) = (extents.0.len() as u64, extents.1.len() as u64);
            self.runs = self.runs + more - less;
            self.recount(table, victims, home.index, extents);
        }
        old
    }

    /// Moves the counts of a table from its extents `before` to those `after`.
    fn recount(&mut self, table: u64, from: &[u32], to: u32, (before, after): (Vec<Extent>, Vec<Extent>)) {
        let concerns = |extent: &&Extent| extent.index() == to || from.contains(&extent.index());
        for extent in after.iter().filter(concerns) {
            self.change(extent.index(), |s| s.count(table, extent));
        }
        for extent in before.iter().filter(concerns) {
            self.change(extent.index(), |s| s.discount(table, extent));
        }
    }
}

/// The largest number up to `units` for which `fits` holds; `fits` must be monotonic.
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

/// Where moved units went.
struct Moves<'a> {
    home: &'a Arc<Home>,
    /// By superblock and first unit: count, and first unit at the new place.
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

    /// Appends the extents that an extent is now.
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
