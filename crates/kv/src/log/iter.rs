//! Iteration over a store: takes some thousand places of records from the index, in the order of hashes, then reads
//! these records in the order in which they lie on the medium.

use super::core::{Core, View};
use super::hint::HASH_BITS;
use super::index::Pointer;
use std::sync::Arc;
use vellum_base::{IoClass, Result};

/// Least number of places that are gathered before their records are read.
const GATHER: usize = 16 << 10;

/// Iterator over keys and values, in no order. See [`crate::log::Store::iter`].
pub struct Iter {
    core: Arc<Core>,
    /// Hashes from here on are to come.
    hash: u64,
    /// What is to be read, the last first, and the view in which it can be.
    pointers: Vec<Pointer>,
    view: Option<Arc<View>>,
}

impl Iter {
    pub(crate) fn new(core: Arc<Core>) -> Iter {
        Iter { core, hash: 0, pointers: Vec::new(), view: None }
    }

    /// Gathers the next pointers, all of which can be read in one view.
    fn gather(&mut self) {
        let from = self.hash;
        loop {
            let view = self.core.view.load_full();
            (self.hash, self.pointers) = (from, Vec::new());
            while self.hash < 1 << HASH_BITS && self.pointers.len() < GATHER {
                self.hash = self.core.index.bucket_from(self.hash, &mut self.pointers);
            }
            if Arc::ptr_eq(&view, &*self.core.view.load()) {
                self.view = Some(view);
                break;
            }
        }
        let place = |pointer: &Pointer| {
            let slot = self.core.format.slot(*pointer);
            let view = self.view.as_ref().and_then(|view| view.segments.get(slot)?.as_ref());
            (view.map(|segment| segment.order), self.core.format.offset(*pointer))
        };
        let mut pointers = std::mem::take(&mut self.pointers);
        pointers.sort_by_cached_key(|pointer| std::cmp::Reverse(place(pointer)));
        self.pointers = pointers;
    }

    fn read(&self, pointer: Pointer) -> Result<(Vec<u8>, Vec<u8>)> {
        let (core, view) = (&self.core, self.view.as_ref().expect("pointers were gathered in it"));
        let segment = view.segment(core.format.slot(pointer))?;
        let show = |record: super::record::Record<'_>, _| (record.key.to_vec(), record.value.to_vec());
        segment.record(core.reading(IoClass::Foreground), core.format.offset(pointer), show)
    }
}

/// After an error about one record, which may be damaged, iteration can go on.
impl Iterator for Iter {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.pointers.is_empty() {
            // Segments that are gone meanwhile are not held longer than needed.
            self.view = None;
            if self.hash >= 1 << HASH_BITS {
                return None;
            }
            self.gather();
        }
        let pointer = self.pointers.pop()?;
        Some(self.read(pointer))
    }
}
