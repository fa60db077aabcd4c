//! The book beside what every unit of every table holds.

use super::super::layout::push;
use super::*;
use proptest::prelude::*;

const ROOM: u64 = 40;

#[derive(Clone, Debug)]
enum Step {
    /// A table of own units, and of ranges of others between them; given up if not finished.
    Write {
        own: Vec<u8>,
        from: Vec<(u8, u8, u8)>,
        finished: bool,
    },
    Forget(u8),
    Collect,
}

fn step() -> impl Strategy<Value = Step> {
    let write = (
        prop::collection::vec(1u8..9, 1..4),
        prop::collection::vec((any::<u8>(), any::<u8>(), 1u8..12), 0..5),
        prop::bool::weighted(0.8),
    );
    prop_oneof![
        4 => write.prop_map(|(own, from, finished)| Step::Write { own, from, finished }),
        3 => any::<u8>().prop_map(Step::Forget),
        1 => Just(Step::Collect),
    ]
}

/// The book, and beside it what every unit of every table holds.
#[derive(Default)]
struct Beside {
    book: Book,
    /// For each table its units: each a number that no other has.
    tables: BTreeMap<u64, Vec<u64>>,
    /// What is on the units of superblocks.
    flash: BTreeMap<u32, Vec<u64>>,
    next: u64,
}

impl Beside {
    fn erase(&mut self, gone: Vec<u32>) {
        for index in gone {
            assert!(self.flash.remove(&index).is_some(), "{index} is erased twice");
        }
    }

    fn begin(&mut self) -> (u64, Arc<Home>) {
        self.next += 1;
        let home = Arc::new(Home { index: self.next as u32, blocks: Vec::new() });
        let name = Name { table: self.next, edition: 0 };
        self.book.begin(home.clone(), name, ROOM * UNIT_BYTES);
        self.flash.insert(home.index, Vec::new());
        (self.next, home)
    }

    fn own(&mut self, home: &Arc<Home>, extents: &mut Vec<Extent>, content: &[u64]) {
        let units = self.flash.get_mut(&home.index).unwrap();
        let extent = Extent { home: home.clone(), start: units.len() as u32, units: content.len() as u32 };
        units.extend(content);
        push(extents, extent);
    }

    fn write(&mut self, own: &[u8], from: &[(u8, u8, u8)], finished: bool) {
        let (table, home) = self.begin();
        let (mut extents, mut held, mut units) = (Vec::new(), Vec::new(), Vec::new());
        for (at, count) in own.iter().enumerate() {
            let content: Vec<u64> =
                (0..*count as u64).map(|unit| table * 1000 + at as u64 * 100 + unit).collect();
            self.own(&home, &mut extents, &content);
            units.extend(content);
            let Some((which, offset, count)) = from.get(at) else { continue };
            let Some((source, there)) = self.tables.iter().nth(*which as usize % self.tables.len().max(1))
            else {
                continue;
            };
            let offset = *offset as usize % there.len();
            let count = (*count as usize).min(there.len() - offset);
            let found =
                self.book.find(*source, offset as u64 * UNIT_BYTES, count as u64 * UNIT_BYTES).unwrap();
            units.extend(&there[offset..offset + count]);
            for extent in found {
                self.book.hold(&extent);
                held.push(extent.clone());
                push(&mut extents, extent);
            }
        }
        if finished {
            self.book.settle(table, Layout::new(0, home.index, extents), &held);
            self.tables.insert(table, units);
        } else {
            let gone = self.book.let_go(&held);
            self.erase(gone);
            self.book.abandon(home.index);
            self.erase(vec![home.index]);
        }
    }

    fn forget(&mut self, which: u8) {
        let Some(table) = self.tables.keys().nth(which as usize % self.tables.len().max(1)).copied() else {
            return;
        };
        self.tables.remove(&table);
        let gone = self.book.forget(table);
        self.erase(gone);
    }

    /// Collects until a superblock is won, if that was promised.
    fn collect(&mut self) {
        let (promised, before) = (self.book.collectable(), self.flash.len());
        while promised > 0 && self.flash.len() >= before {
            let group = self.book.next_group();
            assert!(!group.is_empty(), "what was promised");
            self.move_off(&group);
            assert!(self.flash.len() <= before, "it needs one more and no others");
            self.check();
        }
    }

    fn move_off(&mut self, group: &[(u32, u64)]) {
        let victims: Vec<u32> = group.iter().map(|(index, _)| *index).collect();
        self.book.keep(&victims);
        let (_, target) = self.begin();
        let mut old = Vec::new();
        let mut quota: BTreeMap<u32, u64> = group.iter().copied().collect();
        for (table, layout) in self.book.tables_on(&victims) {
            let mut extents = Vec::new();
            for extent in &layout.extents {
                let left = quota.entry(extent.index()).or_default();
                let (moved, stays) = extent.split(*left);
                *left -= moved.units as u64;
                let range = moved.start as usize..(moved.start + moved.units) as usize;
                let content = self.flash[&moved.index()][range].to_vec();
                if !content.is_empty() {
                    self.own(&target, &mut extents, &content);
                }
                stays.into_iter().for_each(|stays| push(&mut extents, stays));
            }
            let next = Layout::new(layout.edition + 1, target.index, extents);
            self.book.note(target.index, table);
            old.push(self.book.put(table, next).unwrap());
        }
        let mut gone = Vec::new();
        old.iter().for_each(|layout| gone.extend(self.book.leave(layout)));
        gone.extend(self.book.unkeep(&victims));
        gone.extend(self.book.unkeep(&[target.index]));
        self.erase(gone);
        assert!(self.flash[&target.index].len() as u64 <= ROOM, "more than fits");
    }

    fn check(&self) {
        assert_eq!(self.book.problems(), Vec::<String>::new());
        let there: Vec<u32> = self.book.superblocks.keys().copied().collect();
        assert_eq!(there, self.flash.keys().copied().collect::<Vec<u32>>());
        let mut foreign = 0;
        for (table, units) in &self.tables {
            let layout = self.book.table(*table).unwrap().layout();
            foreign += layout.foreign();
            let range = |e: &Extent| e.start as usize..(e.start + e.units) as usize;
            let read = layout.extents.iter().flat_map(|e| self.flash[&e.index()][range(e)].to_vec());
            assert_eq!(&read.collect::<Vec<u64>>(), units, "table {table}");
        }
        assert_eq!(self.book.foreign, foreign);
    }
}

proptest! {
    #[test]
    fn every_table_reads_what_it_was_made_of(steps in prop::collection::vec(step(), 1..80)) {
        let mut beside = Beside::default();
        for step in steps {
            match step {
                Step::Write { own, from, finished } => beside.write(&own, &from, finished),
                Step::Forget(which) => beside.forget(which),
                Step::Collect => beside.collect(),
            }
            beside.check();
        }
        while let Some(table) = beside.tables.keys().next().copied() {
            beside.tables.remove(&table);
            let gone = beside.book.forget(table);
            beside.erase(gone);
        }
        prop_assert!(beside.flash.is_empty() && !beside.book.is_shared());
    }
}
