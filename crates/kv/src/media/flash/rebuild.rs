//! Rebuilds the book from what is found on flash.
//!
//! Tables that the store no longer needs are included, until it erases them: nothing is erased before. Of units found
//! twice, copies that are certainly complete are preferred, and of these the one moved last.

use super::book::{Book, Contents};
use super::layout::TableLayout;
use super::list::{LIST, List, Run};
use super::places::Places;
use super::superblock::{EXTENT_UNIT_BYTES, Found, Home, Name, Trust, Written, read_some};
use super::{SUPERBLOCKS_MAX, superblock_units};
use crate::media::NAMELESS;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vellum_base::{BlockState, Flash, Geometry};

/// See the module.
#[derive(Default)]
pub(super) struct Rebuilt {
    pub book: Book,
    /// Superblocks with unreadable or unattributed contents, by table number or [`NAMELESS`]. They stay until the store
    /// erases that.
    pub remains: BTreeMap<u64, Vec<u32>>,
    /// The highest table number found.
    pub highest: u64,
    /// Superblocks that hold nothing: they are blank, or all their blocks are bad.
    pub unused: Vec<u32>,
}

/// A superblock, and its contents if they can be determined.
struct Seen {
    written: Written,
    home: Arc<Home>,
    contents: Vec<Run>,
}

/// Enters what was `found` on the superblocks, in order, into an empty book.
pub(super) fn rebuild(found: Vec<Found>, book: Book, flash: &dyn Flash) -> Rebuilt {
    let (mut all, mut seen) = (Rebuilt { book, ..Rebuilt::default() }, Vec::new());
    for (found, index) in found.into_iter().zip(0..) {
        match found {
            Found::Empty => all.unused.push(index),
            Found::Remains(table) => all.remains.entry(table.unwrap_or(NAMELESS)).or_default().push(index),
            Found::Written(written) => {
                let contents = written.contents(flash).unwrap_or_default();
                seen.push(Seen { home: Arc::new(written.home.clone()), written, contents });
            }
        }
    }
    seen.sort_by_key(|seen| std::cmp::Reverse((seen.written.trust, seen.written.tag.name)));
    let mut places = Places::default();
    for Seen { written, home, contents } in &seen {
        all.book.begin(home.clone(), home.capacity(flash.geometry()));
        places.add(home, contents);
        let own = match written.tag.name {
            Name::Table(table) => Some(table),
            Name::Collected(_) => None,
        };
        all.book.set_contents(home.index, Contents::new(own, contents.clone()));
    }
    let (mut tables, gone) = tables(&seen, &places, flash);
    doubles(&seen).for_each(|table| drop(tables.remove(&table)));
    all.note_numbers(&seen, &gone);
    for (table, (runs, list)) in tables.into_iter().filter(|(table, _)| !gone.contains(table)) {
        all.book.put(table, layout_of(&runs, list, &places));
    }
    for seen in &seen {
        all.let_go(seen, &gone, flash);
    }
    all.disown_remains();
    all.book.were_forgotten(gone);
    all
}

/// Tables that two superblocks claim with certainty to be, with different contents: neither is accepted. If they agree,
/// a program was reported as failed although it succeeded, and either will do.
fn doubles(seen: &[Seen]) -> impl Iterator<Item = u64> {
    let mut before = BTreeMap::new();
    let certain = seen.iter().filter(|seen| seen.written.trust == Trust::Certain);
    certain.filter_map(move |Seen { written: Written { tag, .. }, .. }| {
        let says = (tag.bytes, tag.list_bytes);
        match tag.name {
            Name::Table(table) if *before.entry(table).or_insert(says) != says => Some(table),
            _ => None,
        }
    })
}

/// The runs of a table, and those of its list.
type Made = (Vec<Run>, Option<Run>);

/// All tables that are found, and those that are known to be gone.
fn tables(seen: &[Seen], places: &Places, flash: &dyn Flash) -> (BTreeMap<u64, Made>, BTreeSet<u64>) {
    let (mut tables, mut gone) = (BTreeMap::<u64, Made>::new(), BTreeSet::new());
    // By table, how far what is found of its list goes, and of its units.
    let (mut lists, mut units) = (BTreeMap::<u64, u32>::new(), BTreeMap::<u64, u32>::new());
    for Seen { written, contents, .. } in seen {
        if let Name::Table(table) = written.tag.name
            && written.trust > Trust::Begun
            && written.tag.list_bytes == 0
        {
            tables.entry(table).or_insert((contents.clone(), None));
        }
        for run in contents {
            let ends = if run.is_list() { &mut lists } else { &mut units };
            let end = ends.entry(run.origin).or_default();
            *end = run.end().max(*end);
        }
    }
    for (table, end) in lists {
        let run = Run { origin: table, start: LIST, units: end - LIST };
        let list = list_at(&run, places, flash);
        gone.extend(list.iter().flat_map(List::gone));
        let runs =
            list.map_or_else(|| without_list(table, units.get(&table).copied()), |list| list.runs().to_vec());
        tables.insert(table, (runs, Some(run)));
    }
    (tables, gone)
}

/// Without a readable list: the table's own units, wherever they are, followed by one lost unit, so that it counts as
/// damaged.
fn without_list(table: u64, own: Option<u32>) -> Vec<Run> {
    let own = own.map(|units| Run { origin: table, start: 0, units });
    own.into_iter().chain([Run { origin: table, start: LIST - 1, units: 1 }]).collect()
}

/// The first readable one of the two copies of a list.
fn list_at(run: &Run, places: &Places, flash: &dyn Flash) -> Option<List> {
    let geometry = flash.geometry();
    let second = (run.units + geometry.page_bytes / EXTENT_UNIT_BYTES as u32) / 2;
    [0, second].into_iter().find_map(|skipped| {
        let (start, units) = (run.start + skipped, run.units.saturating_sub(skipped));
        let mut extents = Vec::new();
        places.find(&Run { start, units, ..*run }, &mut extents);
        let mut bytes = Vec::new();
        for extent in extents.iter().take_while(|extent| !extent.is_lost()) {
            let at = bytes.len();
            bytes.resize(at + extent.bytes() as usize, 0);
            read_some(flash, &extent.home, extent.offset(), &mut bytes[at..]);
        }
        List::decode(&bytes, superblock_units(geometry)).filter(|list| is_a_table(list, geometry))
    })
}

/// False if a list names more than a table can have.
fn is_a_table(list: &List, geometry: &Geometry) -> bool {
    let units: u64 = list.runs().iter().map(|run| u64::from(run.units)).sum();
    units <= SUPERBLOCKS_MAX * u64::from(superblock_units(geometry))
}

/// The layout of a table; lost parts are holes.
fn layout_of(runs: &[Run], list: Option<Run>, places: &Places) -> TableLayout {
    let mut extents = Vec::new();
    runs.iter().chain(&list).for_each(|run| places.find(run, &mut extents));
    TableLayout::new(extents, list.map_or(0, |list| list.units.into()))
}

impl Rebuilt {
    /// Records numbers of which there is any trace, as none of them may be reused.
    fn note_numbers(&mut self, seen: &[Seen], gone: &BTreeSet<u64>) {
        let origins = seen.iter().flat_map(|seen| seen.contents.iter().map(|run| run.origin));
        let own = seen.iter().filter_map(|seen| match seen.written.tag.name {
            Name::Table(table) => Some(table),
            Name::Collected(number) => {
                self.book.collected(number);
                None
            }
        });
        self.highest = origins.chain(own).chain(gone.iter().copied()).max().unwrap_or(0);
    }

    /// Called when all tables are entered.
    fn let_go(&mut self, seen: &Seen, gone: &BTreeSet<u64>, flash: &dyn Flash) {
        self.book.put_down(&[seen.home.index]);
        let can_be_erased = |index: &u32| {
            let dies = 0..flash.geometry().dies();
            let mut blocks = dies.map(|die| flash.report(flash.geometry().block_on(die, *index)));
            blocks.any(|block| block.state == BlockState::Good)
        };
        let (unneeded, bad): (Vec<u32>, Vec<u32>) =
            self.book.take_unneeded().into_iter().partition(can_be_erased);
        self.unused.extend(bad);
        let table = match seen.written.tag.name {
            Name::Table(table) if self.book.table(table).is_none() && !gone.contains(&table) => table,
            _ if unneeded.is_empty() => return,
            _ => NAMELESS,
        };
        self.remains.entry(table).or_default().extend(unneeded);
    }

    /// Drops remains of tables that are complete elsewhere: an interrupted erase left them, and they would stay as long
    /// as the table.
    fn disown_remains(&mut self) {
        let is_whole =
            |table: u64| self.book.table(table).is_some_and(|table| table.layout().lost_bytes() == 0);
        let (theirs, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.remains).into_iter().partition(|(table, _)| !is_whole(*table));
        self.remains = theirs;
        for index in others.into_values().flatten() {
            self.remains.entry(NAMELESS).or_default().push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::list_of;
    use super::super::superblock::{Tag, TagState, look, second_at};
    use super::*;
    use vellum_base::{IoClass, Nanos, PageAddr, Source};
    use vellum_media::nand::{Nand, NandParams};

    const GEOMETRY: Geometry = Geometry {
        channels: 2,
        dies_per_channel: 1,
        blocks_per_die: 4,
        pages_per_block: 6,
        page_bytes: 4096,
        oob_bytes: 0,
    };
    /// Units of a superblock.
    const ROOM: u32 = 2 * 4 * 64;

    fn program(flash: &Nand, page: PageAddr, data: &[u8]) {
        let page_bytes = [data, &vec![0; 4096 - data.len()]].concat();
        flash.program(IoClass::Background, page, &[Source::Bytes(&page_bytes)], &[]).unwrap();
    }

    /// Writes a superblock of zeros and a list, twice, as the format says.
    fn write(flash: &Nand, index: u32, name: Name, units: u32, runs: &[Run]) {
        let list = list_of(runs, Vec::new()).encode();
        let tag = |state, bytes, list_bytes| {
            Tag { state, name, bytes, list_bytes, dies: vec![0, 1] }.encode(&GEOMETRY)
        };
        let (home, bytes) = (Home::new(&GEOMETRY, index, &[0, 1]), u64::from(units) * EXTENT_UNIT_BYTES);
        let mut data = vec![0; bytes as usize];
        data.extend_from_slice(&list);
        data.resize(second_at(data.len() as u64, &GEOMETRY) as usize, 0);
        data.extend_from_slice(&list);
        let pages = data.len().div_ceil(4096) as u64;
        home.blocks.iter().for_each(|block| program(flash, block.page(0), &tag(TagState::Begun, 0, 0)));
        for (page, data) in (0..pages).zip(data.chunks(4096)) {
            program(flash, home.page(page), data);
        }
        for (at, block) in home.blocks.iter().enumerate() {
            let last = block.page(home.pages_in(at, pages));
            program(flash, last, &tag(TagState::Whole, bytes, list.len() as u32));
        }
    }

    fn found(flash: &Nand) -> Rebuilt {
        let found = (0..GEOMETRY.blocks_per_die).map(|index| look(flash, index).unwrap()).collect();
        rebuild(found, Book::new(ROOM.into(), ROOM.into()), flash)
    }

    fn run(origin: u64, start: u32, units: u32) -> Run {
        Run { origin, start, units }
    }

    /// Bytes found of a table, and how many of these are lost.
    fn table(found: &Rebuilt, number: u64) -> Option<(u64, u64)> {
        let layout = found.book.table(number)?.layout();
        Some((layout.bytes(), layout.lost_bytes()))
    }

    #[test]
    fn units_that_no_superblock_has_are_nobodys() {
        for (forged, is_known) in [
            (run(5, ROOM - 1, 1), true),
            (run(5, ROOM, 1), false),
            (run(5, LIST + ROOM - 1, 1), true),
            (run(5, LIST + ROOM, 1), false),
        ] {
            let flash = Nand::ram(GEOMETRY, NandParams::default()).unwrap();
            write(&flash, 1, Name::Collected(1), 1, &[forged]);
            let found = found(&flash);
            assert_eq!(found.highest, if is_known { 5 } else { 0 }, "{forged:?}");
            // What is found of a list is not enough to know whose it is.
            let is_listed = is_known && forged.is_list();
            let lost = u64::from(ROOM) * EXTENT_UNIT_BYTES;
            assert_eq!(table(&found, 5), is_listed.then_some((EXTENT_UNIT_BYTES, lost)), "{forged:?}");
            assert_eq!(found.book.superblocks().count(), is_listed as usize, "{forged:?}");
        }
    }

    #[test]
    fn collections_are_numbered_on_behind_the_highest_number() {
        let flash = Nand::ram(GEOMETRY, NandParams::default()).unwrap();
        write(&flash, 1, Name::Collected(u64::MAX), 1, &[run(5, 0, 1)]);
        assert_eq!(found(&flash).book.next_collection(), u64::MAX);
    }

    /// Power was lost during the erase of a superblock from which all of a table had been moved.
    #[test]
    fn what_is_left_of_a_table_that_is_whole_elsewhere_is_nobodys() {
        let flash = Nand::ram(GEOMETRY, NandParams::default()).unwrap();
        write(&flash, 0, Name::Table(9), 3, &[run(9, 0, 3)]);
        flash.erase(IoClass::Background, GEOMETRY.block_on(0, 0), Nanos::ZERO).unwrap();
        // Half erased, and nowhere else: it stays until the table is given up.
        assert_eq!(found(&flash).remains, BTreeMap::from([(9, vec![0])]));
        write(&flash, 1, Name::Table(9), 3, &[run(9, 0, 3)]);
        assert_eq!(found(&flash).remains, BTreeMap::from([(NAMELESS, vec![0])]));
        assert_eq!(table(&found(&flash), 9), Some((3 * EXTENT_UNIT_BYTES, 0)));
    }

    #[test]
    fn a_list_of_more_than_a_table_can_have_is_none() {
        let whole = 3 * u64::from(ROOM) * EXTENT_UNIT_BYTES;
        for (times, bytes) in
            [(3, (whole + 3 * EXTENT_UNIT_BYTES, 0)), (4, (4 * EXTENT_UNIT_BYTES, EXTENT_UNIT_BYTES))]
        {
            let flash = Nand::ram(GEOMETRY, NandParams::default()).unwrap();
            write(&flash, 0, Name::Collected(1), ROOM - 100, &[run(1, 0, ROOM - 100)]);
            write(&flash, 1, Name::Collected(2), 100, &[run(1, ROOM - 100, 100)]);
            let runs = vec![run(1, 0, ROOM); times];
            let runs = [&[run(9, 0, 3)][..], &runs].concat();
            write(&flash, 2, Name::Table(9), 3, &runs);
            assert_eq!(table(&found(&flash), 9), Some(bytes), "{times}");
        }
    }
}
