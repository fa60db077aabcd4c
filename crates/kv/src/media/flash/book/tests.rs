//! The book beside what every unit of every table holds.

use super::super::dies::fill_units;
use super::super::list::LIST;
use super::*;
use proptest::prelude::*;

const ROOM: u64 = 64;

#[derive(Clone, Debug)]
enum Step {
    /// A table of own units, and of ranges of others between them; given up if not finished.
    Write {
        own: Vec<u8>,
        from: Vec<(u8, u8, u8)>,
        finished: bool,
        /// Superblocks are collected, and a table is forgotten, before it is.
        collected: bool,
        forgotten: Option<u8>,
    },
    Forget(u8),
    Collect,
    /// One collection, and what happens while it copies, and while old layouts are still read by.
    CollectBeside(Vec<Step>, Vec<Step>),
}

fn step() -> impl Strategy<Value = Step> {
    let beside =
        || prop::collection::vec(prop_oneof![write(Just(false)), any::<u8>().prop_map(Step::Forget)], 0..4);
    let collect_beside = (beside(), beside()).prop_map(|(copies, reads)| Step::CollectBeside(copies, reads));
    prop_oneof![
        8 => write(any::<bool>()),
        6 => any::<u8>().prop_map(Step::Forget),
        1 => Just(Step::Collect),
        2 => collect_beside,
    ]
}

fn write(collected: impl Strategy<Value = bool>) -> impl Strategy<Value = Step> {
    let write = (
        prop::collection::vec(1u8..12, 1..4),
        prop::collection::vec((any::<u8>(), any::<u8>(), 1u8..16), 0..5),
        prop::bool::weighted(0.8),
        collected,
        prop::option::weighted(0.3, any::<u8>()),
    );
    write.prop_map(|(own, from, finished, collected, forgotten)| Step::Write {
        own,
        from,
        finished,
        collected,
        forgotten,
    })
}

/// What fits a superblock: pages are units.
fn fits(units: u64, list_bytes: u64) -> bool {
    let second_at =
        (units * EXTENT_UNIT_BYTES + list_bytes + EXTENT_UNIT_BYTES).next_multiple_of(EXTENT_UNIT_BYTES);
    second_at + list_bytes <= ROOM * EXTENT_UNIT_BYTES
}

fn fill() -> u64 {
    fill_units(ROOM, EXTENT_UNIT_BYTES as u32)
}

/// A unit by its origin.
type Unit = (u64, u32);

/// The book, and beside it what every unit of every table holds.
struct Beside {
    book: Book,
    tables: BTreeMap<u64, Vec<Unit>>,
    /// What is on the units of superblocks.
    flash: BTreeMap<u32, Vec<Unit>>,
    next: u64,
    collections: usize,
}

impl Beside {
    fn new() -> Beside {
        let (tables, flash) = (BTreeMap::new(), BTreeMap::new());
        Beside { book: Book::new(ROOM, fill()), tables, flash, next: 0, collections: 0 }
    }

    /// What nobody needs is erased.
    fn erase(&mut self) {
        for index in self.book.take_unneeded() {
            assert!(self.flash.remove(&index).is_some(), "{index} is erased twice");
        }
    }

    fn begin(&mut self) -> (u64, Arc<Home>) {
        self.next += 1;
        let home = Arc::new(Home { index: self.next as u32, blocks: Vec::new() });
        self.book.begin(home.clone(), ROOM * EXTENT_UNIT_BYTES);
        self.flash.insert(home.index, Vec::new());
        (self.next, home)
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Write { own, from, finished, collected, forgotten } => {
                self.write(&own, &from, (collected, forgotten), finished);
            }
            Step::Forget(which) => self.forget(which),
            Step::Collect => self.collect(),
            Step::CollectBeside(copies, reads) if self.book.won() > 0 => {
                let group = self.book.next_group(fits).expect("what was promised");
                self.move_off(group, (copies, reads));
            }
            Step::CollectBeside(..) => {}
        }
        self.check();
    }

    fn write(&mut self, own: &[u8], from: &[(u8, u8, u8)], between: (bool, Option<u8>), finished: bool) {
        let (table, home) = self.begin();
        let (mut runs, mut units, mut written) = (Vec::new(), Vec::new(), 0);
        for (at, count) in own.iter().enumerate() {
            let run = Run { origin: table, start: written, units: u32::from(*count) };
            push_run(&mut runs, run);
            units.extend((run.start..run.end()).map(|unit| (table, unit)));
            self.flash.get_mut(&home.index).unwrap().extend((run.start..run.end()).map(|unit| (table, unit)));
            written += run.units;
            if let Some((which, offset, count)) = from.get(at) {
                self.link(table, (*which, *offset, *count), &mut runs, &mut units);
            }
        }
        let is_linked = runs.iter().any(|run| run.origin != table);
        if between.0 {
            self.collect();
        }
        between.1.into_iter().for_each(|which| self.forget(which));
        if finished {
            let list = is_linked.then_some(Run { origin: table, start: LIST, units: 1 });
            list.iter().for_each(|list| self.flash.get_mut(&home.index).unwrap().push((table, list.start)));
            self.book.settle(table, &home, &runs, list);
            self.tables.insert(table, units);
        } else {
            self.book.let_go(table);
            self.book.give_up(home.index);
            self.erase();
        }
    }

    fn link(
        &mut self,
        table: u64,
        (which, offset, count): (u8, u8, u8),
        runs: &mut Vec<Run>,
        units: &mut Vec<Unit>,
    ) {
        let nth = which as usize % self.tables.len().max(1);
        let Some((source, there)) = self.tables.iter().nth(nth) else { return };
        let offset = offset as usize % there.len();
        let count = (count as usize).min(there.len() - offset);
        let range = (offset as u64 * EXTENT_UNIT_BYTES, count as u64 * EXTENT_UNIT_BYTES);
        let found = self.book.find(*source, range.0, range.1).unwrap();
        let mut linked = Vec::new();
        for extent in found {
            let more = self.book.link(table, &extent, |_| true).unwrap();
            more.into_iter().for_each(|run| push_run(&mut linked, run));
        }
        let named: Vec<Unit> =
            linked.iter().flat_map(|run| (run.start..run.end()).map(|unit| (run.origin, unit))).collect();
        assert_eq!(named, there[offset..offset + count], "units keep their names");
        units.extend(named);
        linked.into_iter().for_each(|run| push_run(runs, run));
    }

    fn forget(&mut self, which: u8) {
        let Some(table) = self.tables.keys().nth(which as usize % self.tables.len().max(1)).copied() else {
            return;
        };
        let free = |beside: &Beside| beside.book.won() as i64 - beside.flash.len() as i64;
        let (promised, before) = (self.book.freed_by(&BTreeSet::from([table])), free(self));
        self.tables.remove(&table);
        self.book.forget(table);
        self.erase();
        let freed = (free(self) - before).max(0) as u64;
        assert!(promised.abs_diff(freed) <= 1, "{promised} were promised, and {freed} are free");
    }

    /// Collects until a superblock is won, if that was promised.
    fn collect(&mut self) {
        let (promised, before) = (self.book.won(), self.flash.len());
        while promised > 0 && self.flash.len() >= before {
            let group = self.book.next_group(fits).expect("what was promised");
            self.move_off(group, Default::default());
            assert!(self.flash.len() <= before, "it needs one more and no others");
            self.check();
        }
    }

    /// A collection, with what happens while it copies, and until the reads by the old layouts are answered.
    fn move_off(&mut self, group: Group, (copies, reads): (Vec<Step>, Vec<Step>)) {
        self.collections += 1;
        let (_, target) = self.begin();
        copies.into_iter().for_each(|step| self.take(step));
        let range = |e: &Extent| e.start as usize..(e.start + e.units) as usize;
        let content: Vec<Unit> =
            group.moved.iter().flat_map(|e| self.flash[&e.index()][range(e)].to_vec()).collect();
        assert!(content.len() as u64 <= ROOM, "more than fits");
        self.flash.insert(target.index, content);
        self.book.put_in_force(&target, &group);
        reads.into_iter().for_each(|step| self.take(step));
        let are_there = group.victims.iter().all(|index| self.flash.contains_key(index));
        assert!(are_there, "what is read by old layouts is erased");
        self.book.put_down(&group.victims);
        self.book.put_down(&[target.index]);
        self.erase();
    }

    fn check(&self) {
        assert_eq!(self.book.problems(), Vec::<String>::new());
        let there: Vec<u32> = self.book.superblocks.keys().copied().collect();
        assert_eq!(there, self.flash.keys().copied().collect::<Vec<u32>>());
        let range = |e: &Extent| e.start as usize..(e.start + e.units) as usize;
        for (table, units) in &self.tables {
            let layout = self.book.table(*table).unwrap().layout();
            assert_eq!(layout.bytes(), units.len() as u64 * EXTENT_UNIT_BYTES);
            let read = layout.extents.iter().flat_map(|e| self.flash[&e.index()][range(e)].to_vec());
            let list = (!layout.is_plain()).then_some((*table, LIST));
            let expected: Vec<Unit> = units.iter().copied().chain(list).collect();
            assert_eq!(read.collect::<Vec<Unit>>(), expected, "table {table}");
        }
        self.check_victims();
    }

    /// What is kept in order is what it would be made of now.
    fn check_victims(&self) {
        let mut anew = Victims::new(ROOM, fill());
        self.book.superblocks.values().for_each(|s| anew.enter(s));
        assert!(anew == self.book.victims);
    }
}

proptest! {
    #[test]
    fn every_table_reads_what_it_was_made_of(steps in prop::collection::vec(step(), 1..120)) {
        let mut beside = Beside::new();
        steps.into_iter().for_each(|step| beside.take(step));
        while let Some(table) = beside.tables.keys().next().copied() {
            beside.tables.remove(&table);
            beside.book.forget(table);
            beside.erase();
        }
        prop_assert!(beside.flash.is_empty() && !beside.book.is_shared());
        prop_assert_eq!(beside.book.lingering(), Vec::<u64>::new());
    }
}

#[test]
fn what_a_merge_takes_over_takes_no_room_that_was_promised() {
    let mut beside = Beside::new();
    // Ten tables that are pinned by another each, so that collection can win most of what they fill.
    for _ in 0..10 {
        beside.write(&[40], &[], (false, None), true);
        let pinned = beside.next;
        beside.write(&[1], &[((beside.tables.len() - 1) as u8, 0, 12)], (false, None), true);
        assert!(beside.tables.remove(&pinned).is_some());
        beside.book.forget(pinned);
        beside.erase();
    }
    let promised = beside.book.won();
    assert!(promised > 4, "{promised}");
    // A merge of all takes over what they count on, and is not finished yet.
    let (table, _) = beside.begin();
    let (mut runs, mut units) = (Vec::new(), Vec::new());
    for which in 0..beside.tables.len() {
        beside.link(table, (which as u8, 0, 30), &mut runs, &mut units);
    }
    assert_eq!(beside.book.won(), promised);
    let before = beside.collections;
    beside.collect();
    assert!(beside.collections > before);
    beside.check();
}

#[test]
fn the_price_of_a_superblock_is_what_is_copied_for_it() {
    let (mut beside, pin) = (Beside::new(), |beside: &mut Beside, live: u8| {
        beside.write(&[40], &[], (false, None), true);
        let pinned = beside.next;
        // Of a table of its own, which leaves one unit of the list besides.
        beside.write(&[50], &[(beside.tables.len() as u8 - 1, 0, live)], (false, None), true);
        beside.tables.remove(&pinned);
        beside.book.forget(pinned);
        beside.erase();
    });
    assert_eq!((beside.book.won(), beside.book.price(1)), (0, 1.0), "there is nothing");
    pin(&mut beside, 12);
    // 12 of one and 51 of the other, in two pieces, are more than fit one of 58.
    assert_eq!((beside.book.won(), beside.book.price(1)), (0, 1.0), "nothing can be won");
    pin(&mut beside, 15);
    // The next one that is won is one of the two with the fewest live units.
    assert_eq!((beside.book.won(), beside.book.price(1)), (1, 29.0 / 116.0));
    assert_eq!(beside.book.price(2), 1.0, "so many cannot be won");
    pin(&mut beside, 15);
    // To win two, all three are collected, and fill the superblock that they are moved to.
    assert_eq!((beside.book.won(), beside.book.price(2)), (2, 45.0 / 174.0));
}

#[test]
fn of_what_is_nearly_full_superblocks_are_won_too() {
    let mut beside = Beside::new();
    for _ in 0..20 {
        beside.write(&[60], &[], (false, None), true);
    }
    let from: Vec<(u8, u8, u8)> = (0..20).map(|which| (which, 0, 54)).collect();
    beside.write(&[1; 20], &from, (false, None), true);
    (0..20).for_each(|_| beside.forget(0));
    // 54 units of each, and 20 and a list of the table that counts on them, are what 20 hold.
    assert_eq!((beside.flash.len(), beside.book.won()), (21, 1));
    beside.collect();
    assert_eq!(beside.flash.len(), 20);
}
