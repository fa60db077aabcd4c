//! The end of the open log, in memory that survives the process (docs/formats/kv-log.md, *TAIL*).
//!
//! Most of what a short put costs is the system call that writes it. So the end of the log is held here, and written to
//! the log's file in pieces; a copy of it is in a file of its own, TAIL, which is mapped: should the process end, the
//! kernel has that, and whoever opens the store next completes the log.
//!
//! Invariants
//! 1. Whenever the process may end, what is held is in TAIL, in the log's file, or in both.
//! 2. What TAIL has counts only as a whole: its checksum is of the log's number and of the place in the log, too. After
//!    a loss of power its pages may be of several moments.
//! 3. What counts is what was appended to that log at that place, so to write it there again changes nothing.

use super::files::Memory;
use crate::bytes::{u32_at, u64_at};
use vellum_codes::Crc32c;

/// Name of the file.
pub(super) const TAIL: &str = "TAIL";
/// Most bytes that are held.
pub(super) const HELD_BYTES_MAX: usize = 32 << 10;
/// Bytes of the file.
pub(super) const TAIL_BYTES: usize = HEAD_BYTES + HELD_BYTES_MAX;
const HEAD_BYTES: usize = 64;
const MAGIC: &[u8; 4] = b"VKTA";
const VERSION: u32 = 1;
/// Where the head says how much is held, and the checksum: eight bytes that change at once.
const STATE_AT: usize = 24;

/// What a log that is being written holds.
pub(super) struct Tail {
    memory: Box<dyn Memory>,
    log: u64,
    /// Where in the log what is held begins.
    begin: u64,
    held: Vec<u8>,
    /// Of the head, and of what is held.
    crc: Crc32c,
}

impl Tail {
    /// Nothing of log `log` yet. `None` if the memory takes nothing.
    pub(super) fn new(memory: Box<dyn Memory>, log: u64) -> Option<Tail> {
        let held = Vec::with_capacity(HELD_BYTES_MAX);
        let mut tail = Tail { memory, log, begin: 0, held, crc: Crc32c::default() };
        tail.empty().then_some(tail)
    }

    /// Where in the log what is held begins, and that.
    pub(super) fn held(&self) -> (u64, &[u8]) {
        (self.begin, &self.held)
    }

    /// True if so much fits beside what is held.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        self.held.len() + bytes <= HELD_BYTES_MAX
    }

    /// Holds what comes next in the log, at `offset`, for which there must be room. False if the memory failed: then
    /// nothing has changed, and it is of no more use.
    pub(super) fn hold(&mut self, offset: u64, bytes: &[u8]) -> bool {
        if self.held.is_empty() && !self.begin_at(offset) {
            return false;
        }
        debug_assert_eq!(self.begin + self.held.len() as u64, offset);
        if !self.memory.put(HEAD_BYTES + self.held.len(), bytes) {
            return false;
        }
        self.held.extend_from_slice(bytes);
        self.crc.update(bytes);
        let is_there = self.memory.set(STATE_AT, state(self.held.len() as u32, self.crc.value()));
        if !is_there {
            self.held.truncate(self.held.len() - bytes.len());
        }
        is_there
    }

    /// The log's file has all that was held. False if the memory failed.
    pub(super) fn empty(&mut self) -> bool {
        self.held.clear();
        self.memory.set(STATE_AT, 0)
    }

    /// What was held before is in the log: the head may change.
    fn begin_at(&mut self, offset: u64) -> bool {
        self.begin = offset;
        let head = head(self.log, offset);
        self.crc = Crc32c::default();
        self.crc.update(&head);
        self.memory.put(0, &head)
    }
}

/// What a process left of a log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub log: u64,
    /// Where in the log it begins.
    pub begin: u64,
    pub held: Vec<u8>,
}

impl Left {
    /// What TAIL has; `None` if that is nothing, or does not check out.
    pub(super) fn decode(file: &[u8]) -> Option<Left> {
        let head = file.get(..STATE_AT)?;
        let held = file.get(HEAD_BYTES..)?.get(..u32_at(file, STATE_AT) as usize)?;
        let mut crc = Crc32c::default();
        [head, held].iter().for_each(|part| crc.update(part));
        let is_whole = &head[..4] == MAGIC && u32_at(head, 4) == VERSION && !held.is_empty();
        (is_whole && crc.value() == u32_at(file, STATE_AT + 4)).then(|| Left {
            log: u64_at(head, 8),
            begin: u64_at(head, 16),
            held: held.to_vec(),
        })
    }

    /// Completes what was read of the log. Bytes that are missing before it were lost with the power: then it is of no
    /// use.
    pub(super) fn complete(&self, log: &mut Vec<u8>) {
        let Ok(begin) = usize::try_from(self.begin) else { return };
        if begin <= log.len() {
            log.resize(log.len().max(begin + self.held.len()), 0);
            log[begin..begin + self.held.len()].copy_from_slice(&self.held);
        }
    }
}

fn head(log: u64, begin: u64) -> [u8; STATE_AT] {
    let mut head = [0; STATE_AT];
    head[..4].copy_from_slice(MAGIC);
    head[4..8].copy_from_slice(&VERSION.to_le_bytes());
    head[8..16].copy_from_slice(&log.to_le_bytes());
    head[16..].copy_from_slice(&begin.to_le_bytes());
    head
}

fn state(bytes: u32, crc: u32) -> u64 {
    u64::from(bytes) | u64::from(crc) << 32
}

/// Decodes fuzzed bytes, also with their checksum put right, and completes logs of a few lengths.
pub(crate) fn fuzzed(bytes: &[u8]) {
    let mut file = bytes.to_vec();
    for _ in 0..2 {
        if let Some(left) = Left::decode(&file) {
            for length in [0, left.begin.min(1 << 16) as usize, 1 << 16] {
                let mut log = vec![7; length];
                left.complete(&mut log);
                let is_reached = left.begin <= length as u64;
                assert!(!is_reached || log[left.begin as usize..].starts_with(&left.held));
            }
        }
        let held = file.get(HEAD_BYTES..).map_or(0, <[u8]>::len).min(HELD_BYTES_MAX);
        if held == 0 {
            return;
        }
        let mut crc = Crc32c::default();
        file[..8].copy_from_slice(&head(0, 0)[..8]);
        [&file[..STATE_AT], &file[HEAD_BYTES..][..held]].iter().for_each(|part| crc.update(part));
        file[STATE_AT..][..8].copy_from_slice(&state(held as u32, crc.value()).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use vellum_base::sync::Mutex;

    /// Memory that a test looks at.
    #[derive(Clone, Default)]
    struct Plain(Arc<Mutex<Vec<u8>>>);

    impl Memory for Plain {
        fn put(&mut self, at: usize, bytes: &[u8]) -> bool {
            let mut memory = self.0.lock();
            memory.resize(TAIL_BYTES, 0);
            memory[at..at + bytes.len()].copy_from_slice(bytes);
            true
        }
        fn set(&mut self, at: usize, word: u64) -> bool {
            self.put(at, &word.to_le_bytes())
        }
    }

    #[test]
    fn what_is_held_completes_the_log_and_nothing_else_does() {
        let memory = Plain::default();
        let mut tail = Tail::new(Box::new(memory.clone()), 12).unwrap();
        let left = || Left::decode(&memory.0.lock());
        assert_eq!(left(), None);
        assert!(tail.hold(100, b"one") && tail.hold(103, b"two"));
        let found = left().unwrap();
        assert_eq!((found.log, found.begin, &found.held[..]), (12, 100, &b"onetwo"[..]));
        for (there, wanted) in [(99, 99), (100, 106), (104, 106), (110, 110)] {
            let mut log = vec![0; there];
            found.complete(&mut log);
            assert_eq!(log.len(), wanted);
            assert!(there < 100 || log[100..].starts_with(b"onetwo"));
        }
        assert!(tail.empty());
        assert_eq!(left(), None);
        assert!(tail.hold(106, b"three"));
        let file = memory.0.lock().clone();
        for at in (0..32).chain(HEAD_BYTES..HEAD_BYTES + 5) {
            let mut bad = file.clone();
            bad[at] ^= 4;
            assert_eq!(Left::decode(&bad), None, "byte {at}");
        }
        (0..TAIL_BYTES).step_by(7).for_each(|length| fuzzed(&file[..length]));
    }

    #[test]
    fn it_holds_so_much_and_no_more() {
        let mut tail = Tail::new(Box::new(Plain::default()), 1).unwrap();
        assert!(tail.hold(0, &[1; HELD_BYTES_MAX - 1]));
        assert_eq!([1, 2].map(|bytes| tail.has_room_for(bytes)), [true, false]);
    }
}
