//! From what is found on flash to who counts on what.
//!
//! Tables that the store does not want count, too, until it says so: nothing is erased before. Of units that are found
//! twice those count that are surely there, and of these the ones that were moved last.

use super::book::{Book, Contents};
use super::layout::Layout;
use super::list::{LIST, List, Run};
use super::places::Places;
use super::superblock::{Found, Home, Name, Trust, UNIT_BYTES, Written, read_some};
use crate::media::NAMELESS;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vellum_base::Flash;

/// See the module.
#[derive(Default)]
pub(super) struct Rebuilt {
    pub book: Book,
    /// Superblocks that hold what cannot be read, or is nobody's, by the table that it was, or [`NAMELESS`]. They stay
    /// until the store gives that up.
    pub remains: BTreeMap<u64, Vec<u32>>,
    /// The highest number of a table that was found anywhere.
    pub highest: u64,
    /// Superblocks that hold nothing.
    pub unused: Vec<u32>,
}

/// A superblock, and what lies on it, if that can be told.
struct Seen {
    written: Written,
    home: Arc<Home>,
    contents: Vec<Run>,
}

/// `found` on the superblocks, in their order, entered into a book that is empty.
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
        all.let_go(seen, &gone);
    }
    all.book.were_forgotten(gone);
    all
}

/// Tables that two superblocks surely are, and not the same: neither is taken for it. Where they say the same, a
/// program failed that had done its work, and either will do.
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

/// What a table is made of, and its list.
type Made = (Vec<Run>, Option<Run>);

/// All tables that are found; those that are known to be gone.
fn tables(seen: &[Seen], places: &Places, flash: &dyn Flash) -> (BTreeMap<u64, Made>, BTreeSet<u64>) {
    let (mut tables, mut gone) = (BTreeMap::<u64, Made>::new(), BTreeSet::new());
    let mut lists: BTreeMap<u64, u32> = BTreeMap::new();
    for Seen { written, contents, .. } in seen {
        if let Name::Table(table) = written.tag.name
            && written.trust > Trust::Begun
            && written.tag.list_bytes == 0
        {
            tables.entry(table).or_insert((contents.clone(), None));
        }
        for run in contents.iter().filter(|run| run.is_list()) {
            let end = lists.entry(run.origin).or_default();
            *end = run.end().max(*end);
        }
    }
    for (table, end) in lists {
        let run = Run { origin: table, start: LIST, units: end - LIST };
        let list = list_at(&run, places, flash);
        gone.extend(list.iter().flat_map(List::gone));
        let runs = list.map_or_else(|| without_list(table, seen), |list| list.runs().to_vec());
        tables.insert(table, (runs, Some(run)));
    }
    (tables, gone)
}

/// What a table wrote itself, wherever that is, is better than nothing, and ends with a unit that is surely lost.
fn without_list(table: u64, seen: &[Seen]) -> Vec<Run> {
    let runs = seen.iter().flat_map(|seen| &seen.contents);
    let own = runs.filter(|run| run.origin == table && !run.is_list()).map(Run::end).max();
    let own = own.map(|units| Run { origin: table, start: 0, units });
    own.into_iter().chain([Run { origin: table, start: LIST - 1, units: 1 }]).collect()
}

/// The first of two lists that can be read.
fn list_at(run: &Run, places: &Places, flash: &dyn Flash) -> Option<List> {
    let mut extents = Vec::new();
    places.find(run, &mut extents);
    let mut bytes = Vec::new();
    for extent in extents {
        let at = bytes.len();
        bytes.resize(at + extent.bytes() as usize, 0);
        if !extent.is_lost() {
            read_some(flash, &extent.home, extent.offset(), &mut bytes[at..]);
        }
    }
    (0..bytes.len()).step_by(UNIT_BYTES as usize).find_map(|at| List::decode(&bytes[at..]))
}

/// Where a table is; what of it is lost is a hole.
fn layout_of(runs: &[Run], list: Option<Run>, places: &Places) -> Layout {
    let mut extents = Vec::new();
    runs.iter().chain(&list).for_each(|run| places.find(run, &mut extents));
    Layout::new(extents, list.map_or(0, |list| list.units.into()))
}

impl Rebuilt {
    /// Numbers of which there is any trace: none of them may come again.
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

    /// Everybody who counts on a superblock has said so.
    fn let_go(&mut self, seen: &Seen, gone: &BTreeSet<u64>) {
        self.book.put_down(&[seen.home.index]);
        let unneeded = self.book.take_unneeded();
        let table = match seen.written.tag.name {
            Name::Table(table) if self.book.table(table).is_none() && !gone.contains(&table) => table,
            _ if unneeded.is_empty() => return,
            _ => NAMELESS,
        };
        self.remains.entry(table).or_default().extend(unneeded);
    }
}
