//! Rebuilds the index when a store is opened, by merging the hints of all segments in hash order.
//!
//! Records with equal hashes come together. If neither of two such records states that another key (a *twin*) has its
//! hash, they cannot belong to two existing keys: the writer of the later one looked at the earlier one, and would have
//! noted it. So the newest one counts, without reading any key, and yet no hash is trusted: if one states a twin, keys
//! are compared. An invalid hint is recomputed from the segment's records.

use super::core::View;
use super::hint::Note;
use super::hint_reader::HintReader;
use super::index::Index;
use super::pointer::PointerFormat;
use super::segment::{Home, ReadContext, Segment};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering::Relaxed;
use vellum_base::{Kind, Result};

/// What is known before segments are read.
pub(crate) struct Rebuild<'a> {
    pub seed: u64,
    pub format: PointerFormat,
    pub reading: ReadContext<'a>,
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

    /// `Err` with the index of the segment whose hint does not check out.
    fn merge(&self, damaged: &[bool]) -> Result<std::result::Result<Index, usize>> {
        let mut hints = Vec::with_capacity(self.segments.len());
        for (at, segment) in self.segments.iter().enumerate() {
            match self.hint(segment, damaged[at])? {
                Some(hint) => hints.push(hint),
                None => return Ok(Err(at)),
            }
        }
        let metas = self.segments.iter().filter_map(|segment| segment.meta());
        let keys = metas.fold(0, |keys: u64, meta| keys.saturating_add(meta.records));
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
            return Ok(Some(Hint::Made(segment.notes(&data, self.seed)?.0.into_iter())));
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
        for (number, noted) in group.iter().enumerate() {
            // Hidden records hide others, too: for instance a delete that seems to be of another key.
            if self.is_hidden(noted, &group[..number])? {
                continue;
            }
            let (at, note) = noted;
            let Segment { account, slot, .. } = &*self.segments[*at];
            match note.delete {
                true => account.deletes.fetch_add(note.bytes as u64, Relaxed),
                false => {
                    index.push(note.hash, self.format.pointer(*slot, note.offset));
                    account.live.fetch_add(note.bytes as u64, Relaxed)
                }
            };
        }
        group.clear();
        Ok(())
    }

    /// True if one of those that are newer is of the same key.
    fn is_hidden(&self, older: &Noted, newer: &[Noted]) -> Result<bool> {
        if !older.1.twin && newer.iter().any(|(_, note)| !note.twin) {
            return Ok(true);
        }
        if newer.is_empty() {
            return Ok(false);
        }
        let key = self.key(older)?;
        for other in newer {
            if key == self.key(other)? {
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
    fn next(&mut self, reading: ReadContext<'_>) -> Result<Option<Option<Note>>> {
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

#[cfg(test)]
mod tests {
    use crate::log::{Options, Store};
    use crate::{Directory, DirectoryOptions, Map};
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::Arc;
    use vellum_base::{Env, RealEnv};

    fn open(dir: &Path) -> Store {
        let media = Directory::open(dir, DirectoryOptions { table_bytes: 64 << 10 }).unwrap();
        let env: Arc<dyn Env> = RealEnv::new();
        let options =
            Options { segment_bytes: 64 << 10, garbage_share: 0.2, collect_max: 3, ..Options::default() };
        Store::open(media, env, options).unwrap()
    }

    /// Keys whose hashes collide; nobody who does not know the seed can choose them. It differs from run to run: of
    /// this many keys, sixteen pairs collide on average.
    fn twins(store: &Store) -> Vec<Vec<u8>> {
        let key = |n: u32| format!("key{n}").into_bytes();
        let mut hashes: Vec<(u64, u32)> = (0..6_000_000).map(|n| (store.core.hash(&key(n)), n)).collect();
        hashes.sort_unstable();
        let pairs = hashes.windows(2).filter(|two| two[0].0 == two[1].0);
        pairs.flat_map(|two| [key(two[0].1), key(two[1].1)]).take(8).collect()
    }

    #[test]
    fn keys_whose_hashes_meet_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(dir.path());
        let keys = twins(&store);
        assert!(keys.len() >= 2, "no two hashes meet");
        let (mut rng, mut model) = (SmallRng::seed_from_u64(3), BTreeMap::new());
        for step in 0..6_000u32 {
            let key = keys[rng.random_range(0..keys.len())].clone();
            match rng.random_range(0..300) {
                0..150 => {
                    let value = vec![step as u8; rng.random_range(0..400)];
                    store.put(&key, &value).unwrap();
                    model.insert(key, value);
                }
                150..280 => {
                    store.delete(&key).unwrap();
                    model.remove(&key);
                }
                280..290 => store.put(b"other", &[step as u8; 3000]).unwrap(),
                290..293 => store.compact().unwrap(),
                293..297 => store.flush().unwrap(),
                _ => {
                    store.close().unwrap();
                    store = open(dir.path());
                }
            }
            for key in &keys {
                assert_eq!(store.get(key).unwrap().as_ref(), model.get(key), "step {step}: {key:?}");
            }
        }
        assert!(store.stat().lifetime.compactions() > 10);
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    }
}
