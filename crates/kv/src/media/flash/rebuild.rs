//! From what is found on flash to who counts on what.
//!
//! Of several lists of a table that with the highest edition counts of which all is there: whatever the edition, the
//! bytes are the same. Tables that the store does not want count, too, until it says so: nothing is erased before.

use super::book::Book;
use super::layout::{Extent, Layout, push};
use super::list::List;
use super::superblock::{Found, Home, Name};
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::Geometry;

/// See the module.
#[derive(Default)]
pub(super) struct Rebuilt {
    pub book: Book,
    /// Tables that cannot be read, and superblocks that hold their remains.
    pub remains: BTreeMap<u64, Vec<u32>>,
    /// Superblocks that hold nothing.
    pub unused: Vec<u32>,
}

/// What was written whole, by name.
type Written = BTreeMap<Name, Arc<Home>>;

/// `found` on the superblocks, in their order.
pub(super) fn rebuild(found: Vec<Found>, geometry: &Geometry) -> Rebuilt {
    let mut all = Rebuilt::default();
    let (mut written, mut lists, mut rests) = (Written::new(), Vec::new(), Vec::new());
    for (found, index) in found.into_iter().zip(0..) {
        match found {
            Found::Empty => all.unused.push(index),
            Found::Whole { name, home, lists: there } if !written.contains_key(&name) => {
                let home = Arc::new(home);
                lists.extend(there.into_iter().map(|list| (list, index)));
                written.insert(name, home);
            }
            Found::Whole { name, .. } => rests.push((index, Some(name.table))),
            Found::Remains(name) => {
                name.into_iter().for_each(|name| all.book.seen(name));
                rests.push((index, name.map(|name| name.table)));
            }
        }
    }
    for (name, home) in &written {
        all.book.begin(home.clone(), *name, home.capacity(geometry));
    }
    // The highest edition first.
    lists.sort_by_key(|(list, _)| std::cmp::Reverse(list.name));
    for (list, index) in &lists {
        let table = list.name.table;
        all.book.note(*index, table);
        all.book.seen(list.name);
        if all.book.table(table).is_some() {
            continue;
        }
        match layout_of(list, *index, &written, geometry) {
            Some(layout) => drop(all.book.put(table, layout)),
            None => drop(all.remains.entry(table).or_default()),
        }
    }
    for (name, home) in &written {
        let gone = all.book.unkeep(&[home.index]);
        rests.extend(gone.into_iter().map(|index| (index, Some(name.table))));
    }
    let book = &all.book;
    all.remains.retain(|table, _| book.table(*table).is_none());
    for (index, table) in rests {
        match table.filter(|table| all.book.table(*table).is_none()) {
            Some(table) => all.remains.entry(table).or_default().push(index),
            // Nobody's: erased when the superblock is used.
            None => all.unused.push(index),
        }
    }
    all
}

/// `None` if not all of the table is there.
fn layout_of(list: &List, list_on: u32, written: &Written, geometry: &Geometry) -> Option<Layout> {
    let mut extents = Vec::new();
    for part in list.parts.iter().filter(|part| part.units > 0) {
        let home = written.get(&part.source)?;
        let extent = Extent { home: home.clone(), start: part.start, units: part.units };
        if extent.offset() + extent.bytes() > home.capacity(geometry) {
            return None;
        }
        push(&mut extents, extent);
    }
    Some(Layout::new(list.name.edition, list_on, extents))
}
