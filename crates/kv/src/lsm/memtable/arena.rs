//! Bytes that are added and never moved: the payloads of batches, as they came.

use crate::batch::{BatchEntry, decode_entry};

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
    chunks: Vec<Vec<u8>>,
    /// Memory taken.
    bytes: usize,
}

impl Arena {
    /// Memory taken.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps `payload` in one piece.
    pub(crate) fn push(&mut self, payload: &[u8]) -> Place {
        if self.chunks.last().is_none_or(|chunk| chunk.capacity() - chunk.len() < payload.len()) {
            let capacity = payload.len().max(CHUNK_BYTES);
            self.chunks.push(Vec::with_capacity(capacity));
            self.bytes += capacity;
        }
        let chunk = self.chunks.len() - 1;
        let offset = self.chunks[chunk].len();
        self.chunks[chunk].extend_from_slice(payload);
        Place { chunk: chunk as u32, offset: offset as u32 }
    }

    /// The entry at `place`.
    #[inline]
    pub(crate) fn entry(&self, place: Place) -> BatchEntry<'_> {
        let bytes = &self.chunks[place.chunk as usize][place.offset as usize..];
        decode_entry(bytes).expect("batches are checked before they come here").0
    }

    /// The key at `place`.
    #[inline]
    pub(crate) fn key(&self, place: Place) -> &[u8] {
        self.entry(place).key
    }
}
