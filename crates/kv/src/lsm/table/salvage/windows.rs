//! Reads a table in large pieces, skipping what cannot be read.

use crate::media::TableReader;
use vellum_base::{Env, IoClass, Result};

/// Bytes read at a time, unless an object is larger.
const WINDOW_BYTES: u64 = 256 << 10;

/// See the module.
pub(super) struct Windows<'a> {
    reader: &'a dyn TableReader,
    env: &'a dyn Env,
    unit_bytes: usize,
    /// Of whole units.
    end: u64,
    /// Offset of the current window.
    start: u64,
    bytes: Vec<u8>,
    /// Unreadable units of the window, ascending.
    unread: Vec<u64>,
}

impl<'a> Windows<'a> {
    pub(super) fn new(
        reader: &'a dyn TableReader,
        env: &'a dyn Env,
        unit_bytes: usize,
    ) -> Result<Windows<'a>> {
        let end = reader.bytes()? / unit_bytes as u64 * unit_bytes as u64;
        Ok(Windows { reader, env, unit_bytes, end, start: 0, bytes: Vec::new(), unread: Vec::new() })
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The bytes at `at`, whole units; `None` if out of range or unreadable. Following bytes are read along.
    pub(super) fn get(&mut self, at: u64, bytes: usize) -> Option<&[u8]> {
        self.hold(at, at, bytes)
    }

    /// The same, but preceding bytes are read along, unless these are the last ones.
    pub(super) fn before(&mut self, at: u64, bytes: usize) -> Option<&[u8]> {
        let end = at + bytes as u64;
        let from = if end == self.end { at } else { end.saturating_sub(WINDOW_BYTES) };
        self.hold(from, at, bytes)
    }

    /// The same, from a window that begins at `from` if it has to be read.
    fn hold(&mut self, from: u64, at: u64, bytes: usize) -> Option<&[u8]> {
        let end = at.checked_add(bytes as u64).filter(|end| *end <= self.end)?;
        if at < self.start || end > self.start + self.bytes.len() as u64 {
            self.read(from, (from + WINDOW_BYTES).min(self.end).max(end));
        }
        let unread = self.unread.partition_point(|unit| *unit < at);
        if self.unread.get(unread).is_some_and(|unit| *unit < end) {
            return None;
        }
        let skipped = (at - self.start) as usize;
        self.bytes.get(skipped..skipped + bytes)
    }

    fn read(&mut self, from: u64, to: u64) {
        (self.start, self.unread) = (from, Vec::new());
        self.bytes.clear();
        self.bytes.resize((to - from) as usize, 0);
        let mut bytes = std::mem::take(&mut self.bytes);
        self.fill(from, &mut bytes);
        self.bytes = bytes;
    }

    /// Reads all at once; if that fails, one half and the other.
    fn fill(&mut self, at: u64, out: &mut [u8]) {
        match self.reader.read(at, out, IoClass::Background) {
            Ok(there) => self.env.sleep_until(there),
            Err(_) if out.len() <= self.unit_bytes => self.unread.push(at),
            Err(_) => {
                let half = (out.len() / 2).next_multiple_of(self.unit_bytes);
                let (first, second) = out.split_at_mut(half);
                self.fill(at, first);
                self.fill(at + half as u64, second);
            }
        }
    }
}
