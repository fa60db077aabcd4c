//! The journal of an image: writes to its NVRAM in order, until they are copied to their place in the NVRAM
//! (docs/formats/flash-image.md).
//!
//! A write costs one call and survives the death of the process. A crash of the host leaves a prefix of all writes,
//! however many a single sync makes durable.
//!
//! 1. Records form a ring, each beginning where the one before ends. Reading stops before the first record that is
//!    invalid, or that needs a sync of pages that did not complete.
//! 2. Records are copied to their place in the NVRAM in order, once they are durable and count.
//! 3. Their space is reused only once a counters slot that begins after them is durable.
//! 4. A write that finds no room makes some: it places all records that count. What still does not fit waits in memory
//!    for the next sync, and so do all later writes: they depend on pages that no sync covers yet.
//! 5. A counters slot says up to where records were durable and counted before it was written. If fewer can be read,
//!    the journal is damaged.

use super::format::{NVRAM_OFFSET, UNIT};
use super::host::HostFile;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use vellum_base::sync::Mutex;
use vellum_codes::crc32c;

/// Bytes of a record before its data.
const HEAD_BYTES: u64 = 32;
/// Minimum and maximum size of a new journal; in between, it has the size of the NVRAM.
const BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=64 << 20;

/// Size of the journal for an NVRAM of this size.
pub(super) fn bytes_for(nvram_bytes: u64) -> u64 {
    match nvram_bytes {
        0 => 0,
        bytes => bytes.clamp(*BYTES.start(), *BYTES.end()).next_multiple_of(UNIT as u64),
    }
}

/// The location of a journal in its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ring {
    pub offset: u64,
    /// 0 for none.
    pub bytes: u64,
    pub nvram_bytes: u64,
}

/// A decoded record.
struct Record {
    offset: u64,
    needs: u64,
    data: Vec<u8>,
    /// Position after it.
    end: u64,
}

impl Ring {
    /// The start of the record that comes at `position`: moved to the ring's start if not even a byte of data fits
    /// before its end.
    fn begin(&self, position: u64) -> u64 {
        let left = self.bytes - position % self.bytes;
        if left <= HEAD_BYTES { position + left } else { position }
    }

    /// Maximum number of data bytes of a record that begins there.
    fn room(&self, begin: u64) -> u64 {
        self.bytes - begin % self.bytes - HEAD_BYTES
    }

    /// The first position after the image is opened for writing: beyond all positions of the session that began at
    /// `start`.
    pub fn next_life(&self, start: u64) -> u64 {
        if self.bytes == 0 { 0 } else { start.saturating_add(self.bytes).next_multiple_of(self.bytes) }
    }

    fn write(&self, file: &HostFile, begin: u64, piece: Piece<'_>) -> io::Result<()> {
        let Piece { offset, needs, data } = piece;
        let mut record = Vec::with_capacity(HEAD_BYTES as usize + data.len());
        record.extend_from_slice(&[0; 4]);
        record.extend_from_slice(&(data.len() as u32).to_le_bytes());
        [begin, offset, needs].iter().for_each(|value| record.extend_from_slice(&value.to_le_bytes()));
        record.extend_from_slice(data);
        let crc = crc32c(&record[4..]);
        record[..4].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&record, self.offset + begin % self.bytes)
    }

    /// The record that comes at `position`, if there is one.
    fn read(&self, file: &HostFile, position: u64) -> io::Result<Option<Record>> {
        let begin = self.begin(position);
        let at = self.offset + begin % self.bytes;
        let mut record = vec![0; HEAD_BYTES as usize];
        file.read_exact_at(&mut record, at)?;
        let u64_at = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"));
        let (crc, length) = (u64_at(0) as u32, u64_at(0) >> 32);
        let (is_here, offset, needs) = (u64_at(8) == begin, u64_at(16), u64_at(24));
        let is_within = offset.checked_add(length).is_some_and(|end| end <= self.nvram_bytes);
        if !is_here || !(1..=self.room(begin)).contains(&length) || !is_within {
            return Ok(None);
        }
        record.resize((HEAD_BYTES + length) as usize, 0);
        file.read_exact_at(&mut record[HEAD_BYTES as usize..], at + HEAD_BYTES)?;
        if crc32c(&record[4..]) != crc {
            return Ok(None);
        }
        let data = record.split_off(HEAD_BYTES as usize);
        Ok(Some(Record { offset, needs, data, end: begin + HEAD_BYTES + length }))
    }

    /// True if a record comes at `position`, whether it counts or not.
    pub fn goes_on(&self, file: &HostFile, position: u64) -> io::Result<bool> {
        Ok(self.bytes > 0 && self.read(file, position)?.is_some())
    }

    /// Passes to `show`, in order, the records from `start` to `upto` that count after `synced` syncs. Returns where
    /// they end.
    pub fn replay(
        &self,
        file: &HostFile,
        (start, upto): (u64, u64),
        synced: u64,
        mut show: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<u64> {
        let mut position = start;
        while self.bytes > 0 && position < upto {
            let Some(record) = self.read(file, position)?.filter(|record| record.needs <= synced) else {
                break;
            };
            show(record.offset, &record.data)?;
            position = record.end;
        }
        Ok(position)
    }
}

/// The journal of an open image.
pub(super) struct Journal {
    ring: Ring,
    /// The number of the next sync.
    next_sync: AtomicU64,
    /// The sync needed by the pages changed last; 0 for none.
    pages: AtomicU64,
    state: Mutex<State>,
}

struct State {
    /// Positions: where occupied space begins, where records not yet in the NVRAM's place begin, where records ended
    /// when the last sync began, and where they end now.
    start: u64,
    placed: u64,
    marked: u64,
    end: u64,
    /// All records before this are durable, and count.
    safe: u64,
    /// Syncs that were still incomplete when last checked, each with the start of the first record that needs it.
    needed: VecDeque<(u64, u64)>,
    waiting: VecDeque<Write>,
}

/// A write, or the rest of one.
struct Write {
    offset: u64,
    needs: u64,
    data: Vec<u8>,
}

/// The same with borrowed data.
#[derive(Clone, Copy)]
struct Piece<'a> {
    offset: u64,
    needs: u64,
    data: &'a [u8],
}

impl Journal {
    /// An empty journal that begins at `start`, in an image with `synced` completed syncs.
    pub fn new(ring: Ring, start: u64, synced: u64) -> Journal {
        let (needed, waiting) = (VecDeque::new(), VecDeque::new());
        let state = State { start, placed: start, marked: start, end: start, safe: start, needed, waiting };
        Journal {
            ring,
            next_sync: AtomicU64::new(synced + 1),
            pages: AtomicU64::new(0),
            state: Mutex::new(state),
        }
    }

    /// To be called when a page changes: writes from now on need the next sync.
    pub fn pages_change(&self) {
        self.pages.fetch_max(self.next_sync.load(SeqCst), SeqCst);
    }

    /// The number of the sync that began last.
    pub fn begun(&self) -> u64 {
        self.next_sync.load(SeqCst) - 1
    }

    /// The two positions stored in counters slots: where records that may not be in the NVRAM's place begin, and up to
    /// where records are durable.
    pub fn placed_and_safe(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.placed, state.safe.max(state.placed))
    }

    /// Appends as much of a write as fits, and returns how much. `apart` if its meaning does not depend on pages.
    pub fn append(&self, file: &HostFile, offset: u64, data: &[u8], apart: bool) -> io::Result<usize> {
        self.state.lock().append(&self.ring, file, Piece { offset, needs: self.needs(apart), data })
    }

    /// True if a write is waiting: then all later writes wait, too.
    pub fn is_waiting(&self) -> bool {
        !self.state.lock().waiting.is_empty()
    }

    /// Appends a write; the part that does not fit waits.
    pub fn append_or_wait(&self, file: &HostFile, offset: u64, data: &[u8], apart: bool) -> io::Result<()> {
        let piece = Piece { offset, needs: self.needs(apart), data };
        // Locked throughout, so that a sync either finds the write waiting or has made room before.
        let mut state = self.state.lock();
        let Piece { offset, needs, data } = piece.behind(state.append(&self.ring, file, piece)?);
        if !data.is_empty() {
            state.waiting.push_back(Write { offset, needs, data: data.to_vec() });
        }
        Ok(())
    }

    fn needs(&self, apart: bool) -> u64 {
        if apart { 0 } else { self.pages.load(SeqCst) }
    }

    /// To be called when a sync begins: pages that change from now on need the next one.
    pub fn begin_sync(&self) {
        self.next_sync.fetch_add(1, SeqCst);
        self.mark();
    }

    /// Marks all present records to be placed next.
    pub fn mark(&self) {
        let mut state = self.state.lock();
        state.marked = state.end;
    }

    /// Where marked records end.
    pub fn marked(&self) -> u64 {
        self.state.lock().marked
    }

    /// To be called after the file was synced, which happened after reading `marked`; `synced` syncs of pages are
    /// complete.
    pub fn saved(&self, marked: u64, synced: u64) {
        let state = &mut *self.state.lock();
        while state.needed.front().is_some_and(|(needs, _)| *needs <= synced) {
            state.needed.pop_front();
        }
        let counts = state.needed.front().map_or(u64::MAX, |(_, begin)| *begin);
        state.safe = state.safe.max(marked.min(counts));
    }

    /// Frees the space of placed records: a counters slot that begins after them is durable.
    pub fn free_placed(&self) {
        let mut state = self.state.lock();
        state.start = state.placed;
    }

    /// Copies marked records, which are durable, to their place in the NVRAM: if `all`, or there are many, or writes
    /// wait for space. True if there were any: the caller then syncs the file, writes a counters slot, and syncs again.
    pub fn place(&self, file: &HostFile, synced: u64, all: bool) -> io::Result<bool> {
        let (placed, marked) = {
            let state = self.state.lock();
            let many = self.ring.bytes / 2;
            let is_due = all || !state.waiting.is_empty() || state.marked.saturating_sub(state.placed) > many;
            if !is_due {
                return Ok(false);
            }
            (state.placed, state.marked)
        };
        let write = |offset: u64, data: &[u8]| file.write_all_at(data, NVRAM_OFFSET + offset);
        let reached = self.ring.replay(file, (placed, marked), synced, write)?;
        self.state.lock().placed = reached;
        Ok(reached > placed)
    }

    /// Appends waiting writes to the ring as far as they fit. True if there were any: the caller then syncs the file.
    pub fn take_waiting(&self, file: &HostFile) -> io::Result<bool> {
        let mut state = self.state.lock();
        let mut any = false;
        while let Some(write) = state.waiting.pop_front() {
            let piece = Piece { offset: write.offset, needs: write.needs, data: &write.data };
            let taken = state.put(&self.ring, file, piece)?;
            any |= taken > 0;
            let Piece { offset, needs, data } = piece.behind(taken);
            if !data.is_empty() {
                state.waiting.push_front(Write { offset, needs, data: data.to_vec() });
                break;
            }
        }
        // Records appended meanwhile by others are durable only if the file is synced for this, too.
        if any {
            state.marked = state.end;
        }
        Ok(any)
    }
}

impl Piece<'_> {
    fn behind(self, taken: usize) -> Self {
        Piece { offset: self.offset + taken as u64, data: &self.data[taken..], ..self }
    }
}

impl State {
    /// Like [`State::put`], but appends nothing while a write waits.
    fn append(&mut self, ring: &Ring, file: &HostFile, piece: Piece<'_>) -> io::Result<usize> {
        if self.waiting.is_empty() { self.put(ring, file, piece) } else { Ok(0) }
    }

    /// Appends records as far as there is room. Returns the number of data bytes appended.
    fn put(&mut self, ring: &Ring, file: &HostFile, piece: Piece<'_>) -> io::Result<usize> {
        let mut taken = 0;
        while taken < piece.data.len() {
            let begin = ring.begin(self.end);
            let free = (self.start + ring.bytes).saturating_sub(begin + HEAD_BYTES);
            let rest = piece.behind(taken);
            let bytes = (rest.data.len() as u64).min(ring.room(begin)).min(free) as usize;
            if bytes == 0 {
                break;
            }
            ring.write(file, begin, Piece { data: &rest.data[..bytes], ..rest })?;
            if self.needed.back().map_or(0, |(needs, _)| *needs) < piece.needs {
                self.needed.push_back((piece.needs, self.end));
            }
            self.end = begin + HEAD_BYTES + bytes as u64;
            taken += bytes;
        }
        Ok(taken)
    }
}
