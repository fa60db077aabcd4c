//! Bytes that are added and never moved: the payloads of batches, as they came; and where they are in a log.

use super::LogPlace;
use crate::batch::{BatchEntry, decode_entry};
use crate::lsm::kept_log::POINTED_BYTES_MIN;

const CHUNK_BYTES: usize = 1 << 20;

/// Where an entry of a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    chunk: u32,
    offset: u32,
}

impl Place {
    pub(crate) fn after(self, bytes: usize) -> Place {
        Place { offset: self.offset + bytes as u32, ..self }
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Arena {
    chunks: Vec<Chunk>,
    /// Those that batches are in, in the order in which they came.
    logs: Vec<u64>,
    /// Memory taken.
    bytes: usize,
}

#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// Of batches that may have a value worth a pointer.
    marks: Vec<Mark>,
}

/// A batch begins at byte `at`. In the log of this index it begins at `offset`.
struct Mark {
    at: u32,
    log: u32,
    offset: u32,
}

impl Arena {
    /// Memory taken.
    pub(crate) fn bytes(&self) -> usize {
        let marks: usize = self.chunks.iter().map(|chunk| chunk.marks.capacity()).sum();
        self.bytes + marks * size_of::<Mark>()
    }

    /// Bytes of payloads.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum()
    }

    /// Keeps `payload`, which is in a log there, in one piece. Where it is is told of all payloads, or of none.
    pub(crate) fn push(&mut self, payload: &[u8], in_log: Option<LogPlace>) -> Place {
        let is_full = |chunk: &Chunk| chunk.bytes.capacity() - chunk.bytes.len() < payload.len();
        if self.chunks.last().is_none_or(is_full) {
            let capacity = payload.len().max(CHUNK_BYTES);
            self.chunks.push(Chunk { bytes: Vec::with_capacity(capacity), marks: Vec::new() });
            self.bytes += capacity;
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
        Place { chunk: index as u32, offset: at }
    }

    /// The entry at `place`.
    #[inline]
    pub(crate) fn entry(&self, place: Place) -> BatchEntry<'_> {
        let bytes = &self.chunks[place.chunk as usize].bytes[place.offset as usize..];
        decode_entry(bytes).expect("batches are checked before they come here").0
    }

    /// The key at `place`.
    #[inline]
    pub(crate) fn key(&self, place: Place) -> &[u8] {
        self.entry(place).key
    }

    /// Where the value of the entry at `place` is in a log, if that is known and it is worth a pointer.
    pub(crate) fn value_in_log(&self, place: Place) -> Option<LogPlace> {
        let chunk = &self.chunks[place.chunk as usize];
        let (entry, bytes) = decode_entry(&chunk.bytes[place.offset as usize..])?;
        if entry.value.len() < POINTED_BYTES_MIN {
            return None;
        }
        let before = chunk.marks.partition_point(|mark| mark.at <= place.offset);
        let mark = &chunk.marks[before.checked_sub(1)?];
        let within = place.offset as usize - mark.at as usize + bytes - entry.value.len();
        Some(LogPlace { log: self.logs[mark.log as usize], offset: u64::from(mark.offset) + within as u64 })
    }
}
