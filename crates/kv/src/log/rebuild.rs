//! The index of a store that is opened: hints of all segments, in the order of hashes, merged.
//!
//! Records with one hash come together. Two records of which neither says that its hash is another key's, too (its
//! *twin*), cannot be of two keys that are both there: whoever wrote the later of them looked at the earlier and would
//! have said so. So the newest counts, and no key is read, and yet no hash is trusted: where one says so, keys are
//! compared. A hint that does not check out is made anew from the segment's records.

use super::core::View;
use super::hint::Note;
use super::index::Index;
use super::segment::{HintReader, Home, Layout, Reading, Segment};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering::Relaxed;
use vellum_base::{Kind, Result};

/// What is known before segments are read.
pub(crate) struct Rebuild<'a> {
    pub seed: u64,
    pub layout: Layout,
    pub reading: Reading<'a>,
    /// The oldest first.
    pub segments: Vec<Arc<Segment>>,
}

/// Notes of a segment.
enum Hint {
    Read(HintReader),
    Made(std::vec::IntoIter<Note>),
}

/// A record: which segment, and what its hint says.
type Noted = (usize, Note);

impl Rebuild<'_> {
    /// The index, and what each segment's records are worth. Also how many hints had to be made anew.
    pub(crate) fn run(&self) -> Result<(Index, usize)> {
        let mut damaged = vec![false; self.segments.len()];
        loop {
            self.segments.iter().for_each(|segment| {
                segment.account.live.store(0, Relaxed);
                segment.account.deletes.store(0, Relaxed);
            });
            match self.merge(&damaged)? {
                Ok(index) => return Ok((index, damaged.iter().filter(|damaged| **damaged).count())),
                Err(at) => damaged[at] = true,
            }
        }
    }

    /// `Err` of the segment whose hint does not check out.
    fn merge(&self, damaged: &[bool]) -> Result<std::result::Result<Index, usize>> {
        let mut hints = Vec::with_capacity(self.segments.len());
        for (at, segment) in self.segments.iter().enumerate() {
            match self.hint(segment, damaged[at])? {
                Some(hint) => hints.push(hint),
                None => return Ok(Err(at)),
            }
        }
        let keys = self.segments.iter().filter_map(|segment| segment.meta()).map(|meta| meta.records).sum();
        let index = Index::new(keys);
        let mut heap = BinaryHeap::new();
        for (at, hint) in hints.iter_mut().enumerate() {
            match hint.next(self.reading)? {
                Some(note) => heap.extend(note.map(|note| Reverse((note.hash, at, note)))),
                None => return Ok(Err(at)),
            }
        }
        let mut group: Vec<Noted> = Vec::new();
        while let Some(Reverse((hash, at, note))) = heap.pop() {
            if group.first().is_some_and(|(_, first)| first.hash != hash) {
                self.settle(&mut group, &index)?;
            }
            group.push((at, note));
            match hints[at].next(self.reading)? {
                Some(note) => heap.extend(note.map(|note| Reverse((note.hash, at, note)))),
                None => return Ok(Err(at)),
            }
        }
        self.settle(&mut group, &index)?;
        Ok(Ok(index))
    }

    /// `None` if it has none that checks out.
    fn hint(&self, segment: &Arc<Segment>, damaged: bool) -> Result<Option<Hint>> {
        if damaged || matches!(segment.home, Home::Memory(_)) {
            let data = segment.data(self.reading)?;
            return Ok(Some(Hint::Made(segment.notes(&data, self.seed)?.into_iter())));
        }
        match HintReader::open(segment, self.seed, self.reading) {
            Ok(reader) => Ok(Some(Hint::Read(reader))),
            Err(error) if error.kind() == Kind::Corrupt => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Records with one hash: which of them count.
    fn settle(&self, group: &mut Vec<Noted>, index: &Index) -> Result<()> {
        group.sort_unstable_by_key(|(at, note)| Reverse((*at, note.offset)));
        let mut newest: Vec<Noted> = Vec::new();
        for noted in group.drain(..) {
            if self.is_hidden(&noted, &newest)? {
                continue;
            }
            let (at, note) = noted;
            let Segment { account, slot, .. } = &*self.segments[at];
            match note.delete {
                true => account.deletes.fetch_add(note.bytes as u64, Relaxed),
                false => {
                    index.push(note.hash, self.layout.pointer(*slot, note.offset));
                    account.live.fetch_add(note.bytes as u64, Relaxed)
                }
            };
            newest.push(noted);
        }
        Ok(())
    }

    /// True if one of those that are newer is of the same key.
    fn is_hidden(&self, older: &Noted, newer: &[Noted]) -> Result<bool> {
        for other in newer {
            if !older.1.twin && !other.1.twin || self.key(older)? == self.key(other)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn key(&self, (at, note): &Noted) -> Result<Vec<u8>> {
        self.segments[*at].record(self.reading, note.offset, |record, _| record.key.to_vec())
    }
}

impl Hint {
    /// The next note, or that there is none; `None` if it does not check out.
    fn next(&mut self, reading: Reading<'_>) -> Result<Option<Option<Note>>> {
        match self {
            Hint::Made(notes) => Ok(Some(notes.next())),
            Hint::Read(reader) => match reader.next(reading) {
                Ok(note) => Ok(Some(note)),
                Err(error) if error.kind() == Kind::Corrupt => Ok(None),
                Err(error) => Err(error),
            },
        }
    }
}

/// A view of these segments.
pub(crate) fn view_of(segments: &[Arc<Segment>]) -> View {
    let mut view = View::default();
    segments.iter().for_each(|segment| view.put(segment.clone()));
    view
}
