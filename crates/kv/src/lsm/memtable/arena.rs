//! Append-only memory for the payloads of batches, unchanged, and their places in logs.
//!
//! Chunks of an arena that is dropped are used again by the next: memory that the kernel hands out anew costs a fault
//! for each page, and while one task faults and another gives back, they wait for each other.

use super::LogPlace;
use crate::batch::{BatchEntry, decode_entry};
use crate::lsm::kept_log::POINTED_BYTES_MIN;
use std::sync::Arc;
use vellum_base::sync::Mutex;

const CHUNK_BYTES: usize = 1 << 20;

/// The place of an entry of a batch in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArenaOffset {
    chunk: u32,
    offset: u32,
}

impl ArenaOffset {
    pub(crate) fn after(self, bytes: usize) -> ArenaOffset {
        ArenaOffset { offset: self.offset + bytes as u32, ..self }
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Arena {
    chunks: Vec<Chunk>,
    /// Numbers of the logs that batches are in, in order.
    logs: Vec<u64>,
    /// Memory taken.
    bytes: usize,
    spare: Arc<Spare>,
    /// Most chunks that are spare after this arena is dropped.
    spare_max: usize,
}

/// Chunks that no arena uses, shared by successive ones. Memory is allocated only if none is spare, or in its place: in
/// all it is no more than arenas had at one time.
#[derive(Default)]
struct Spare(Mutex<Vec<Vec<u8>>>);

#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// Marks of batches that may have a value worth a pointer.
    marks: Vec<Mark>,
}

/// A batch that begins at byte `at` of the arena begins at `offset` of the log with this index.
struct Mark {
    at: u32,
    log: u32,
    offset: u32,
}

impl Chunk {
    /// The mark of the batch that contains the byte at `offset`; it must have one.
    fn mark_of(&self, offset: u32) -> Option<&Mark> {
        // Batches have similar lengths, so start from where it would be if all were equal.
        let guess = self.marks.len() * offset as usize / self.bytes.len().max(1);
        let is_before = |at: usize| self.marks.get(at).is_some_and(|mark| mark.at <= offset);
        let (mut low, mut high, mut step) = (guess, guess, 1);
        while low > 0 && !is_before(low - 1) {
            low = low.saturating_sub(step);
            step *= 2;
        }
        step = 1;
        while is_before(high) {
            high += step;
            step *= 2;
        }
        let high = high.min(self.marks.len());
        let before = low + self.marks[low..high].partition_point(|mark| mark.at <= offset);
        self.marks.get(before.checked_sub(1)?)
    }
}

impl Arena {
    /// For about so many bytes, in the memory of `self` once that is dropped.
    pub(crate) fn successor(&self, bytes: usize) -> Arena {
        let mut successor = Arena::default();
        successor.spare.clone_from(&self.spare);
        successor.spare_max = bytes.div_ceil(CHUNK_BYTES);
        successor
    }

    #[cfg(test)]
    pub(crate) fn spare_chunks(&self) -> usize {
        self.spare.0.lock().len()
    }

    /// Memory taken.
    pub(crate) fn bytes(&self) -> usize {
        let marks: usize = self.chunks.iter().map(|chunk| chunk.marks.capacity()).sum();
        self.bytes + marks * size_of::<Mark>()
    }

    /// Bytes of payloads.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum()
    }

    /// Stores `payload` contiguously, with its place in a log. The place must be given for all payloads or for none.
    pub(crate) fn push(&mut self, payload: &[u8], in_log: Option<LogPlace>) -> ArenaOffset {
        let is_full = |chunk: &Chunk| chunk.bytes.capacity() - chunk.bytes.len() < payload.len();
        if self.chunks.last().is_none_or(is_full) {
            let bytes = self.spare.take(payload.len());
            self.bytes += bytes.capacity();
            self.chunks.push(Chunk { bytes, marks: Vec::new() });
        }
        let index = self.chunks.len() - 1;
        let chunk = &mut self.chunks[index];
        let at = chunk.bytes.len() as u32;
        chunk.bytes.extend_from_slice(payload);
        if let Some(LogPlace { log, offset }) = in_log.filter(|_| payload.len() >= POINTED_BYTES_MIN) {
            if self.logs.last() != Some(&log) {
                self.logs.push(log);
            }
            let offset = u32::try_from(offset).expect("a log has 4 GiB at most");
            chunk.marks.push(Mark { at, log: self.logs.len() as u32 - 1, offset });
        }
        ArenaOffset { chunk: index as u32, offset: at }
    }

    /// The entry at `place`.
    #[inline]
    pub(crate) fn entry(&self, place: ArenaOffset) -> BatchEntry<'_> {
        let bytes = &self.chunks[place.chunk as usize].bytes[place.offset as usize..];
        decode_entry(bytes).expect("batches are checked before they come here").0
    }

    /// Prefetches the entry at `place`.
    #[inline]
    pub(crate) fn prefetch(&self, place: ArenaOffset) {
        let (bytes, offset) = (&self.chunks[place.chunk as usize].bytes, place.offset as usize);
        vellum_codes::prefetch(bytes, offset);
        vellum_codes::prefetch(bytes, offset + vellum_codes::CACHE_LINE_BYTES);
    }

    /// The key at `place`.
    #[inline]
    pub(crate) fn key(&self, place: ArenaOffset) -> &[u8] {
        self.entry(place).key
    }

    /// The place in a log of the value of the entry at `place`, if known and worth a pointer.
    pub(crate) fn value_in_log(&self, place: ArenaOffset) -> Option<LogPlace> {
        let chunk = &self.chunks[place.chunk as usize];
        let (entry, bytes) = decode_entry(&chunk.bytes[place.offset as usize..])?;
        if entry.value.len() < POINTED_BYTES_MIN {
            return None;
        }
        let mark = chunk.mark_of(place.offset)?;
        let within = place.offset as usize - mark.at as usize + bytes - entry.value.len();
        Some(LogPlace { log: self.logs[mark.log as usize], offset: u64::from(mark.offset) + within as u64 })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.spare.keep(self.chunks.drain(..).map(|chunk| chunk.bytes), self.spare_max);
    }
}

impl Spare {
    /// An empty chunk for at least so many bytes.
    fn take(&self, bytes: usize) -> Vec<u8> {
        let mut spare = self.0.lock();
        if bytes <= CHUNK_BYTES {
            return spare.pop().unwrap_or_else(|| Vec::with_capacity(CHUNK_BYTES));
        }
        let left = spare.len().saturating_sub(bytes.div_ceil(CHUNK_BYTES));
        let replaced = spare.split_off(left);
        drop(spare);
        drop(replaced); // without the lock, as the kernel takes its time
        Vec::with_capacity(bytes)
    }

    /// Keeps chunks of the usual size, no more than `most` with those that are there.
    fn keep(&self, chunks: impl Iterator<Item = Vec<u8>>, most: usize) {
        let mut usual: Vec<Vec<u8>> = chunks.filter(|chunk| chunk.capacity() == CHUNK_BYTES).collect();
        usual.iter_mut().for_each(Vec::clear);
        let mut spare = self.0.lock();
        spare.append(&mut usual);
        let kept = spare.len().min(most);
        let surplus = spare.split_off(kept);
        drop(spare);
        drop(surplus);
    }
}
