//! The end of the open log, held in memory that survives the process (docs/formats/kv-log.md, *TAIL*).
//!
//! A short put costs little beside the system call that would write it. So the last bytes of the log are held in a
//! buffer and written to the log's file together, and copied to a small mapped file, TAIL. If the process dies, TAIL is
//! in the page cache, and the next opening completes the log from it.
//!
//! Invariants
//! 1. At any moment, held bytes are in TAIL, in the log's file, or in both.
//! 2. TAIL is valid as a whole or not at all: its checksum covers the number of the log and the offset in it. After a
//!    power cut its pages may be from different moments; then the checksum does not match.
//! 3. A valid TAIL says what was appended to that log at that offset. Writing it there again is harmless.

use super::files::Memory;
use crate::bytes::{u32_at, u64_at};
use vellum_base::{Error, Kind, Result};
use vellum_codes::Crc32c;

/// Name of the file.
pub(super) const TAIL: &str = "TAIL";
/// Most bytes that are held at a time.
pub(super) const HELD_BYTES_MAX: usize = 32 << 10;
/// Length of the file in bytes.
pub(super) const TAIL_BYTES: usize = TAIL_HEAD_BYTES + HELD_BYTES_MAX;
const TAIL_HEAD_BYTES: usize = 64;
const MAGIC: &[u8; 4] = b"VKTA";
const VERSION: u32 = 1;
/// Offset of the length of what is held, and of the checksum: eight bytes that are stored atomically.
const STATE_AT: usize = 24;

/// The held end of a log that is being written.
pub(super) struct Tail {
    memory: Box<dyn Memory>,
    log: u64,
    held: Vec<u8>,
    /// Covers the head and the held bytes.
    crc: Crc32c,
    failed: bool,
}

impl Tail {
    /// Holds nothing yet. `None` if the mapping failed.
    pub(super) fn new(memory: Box<dyn Memory>) -> Option<Tail> {
        let held = Vec::with_capacity(HELD_BYTES_MAX);
        let mut tail = Tail { memory, log: 0, held, crc: Crc32c::default(), failed: false };
        tail.empty();
        (!tail.failed).then_some(tail)
    }

    /// The same TAIL, which must be empty, for log number `log`.
    pub(super) fn of_log(self, log: u64) -> Tail {
        debug_assert!(self.held.is_empty());
        Tail { log, ..self }
    }

    /// Bytes that are held.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// True if the mapping failed. What TAIL holds then is not known.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Holds `bytes`, the next of the log, at `offset`; at most [`HELD_BYTES_MAX`] in all. False if the mapping failed:
    /// then they are not held, and earlier ones still are.
    pub(super) fn hold(&mut self, offset: u64, bytes: &[u8]) -> bool {
        if self.held.is_empty() {
            self.begin_at(offset);
        }
        debug_assert!(self.held.len() + bytes.len() <= HELD_BYTES_MAX);
        let mut crc = self.crc;
        crc.update(bytes);
        let held = self.held.len();
        let state = state((held + bytes.len()) as u32, crc.value());
        self.failed |= !self.memory.put(TAIL_HEAD_BYTES + held, bytes) || !self.memory.set(STATE_AT, state);
        if !self.failed {
            self.held.extend_from_slice(bytes);
            self.crc = crc;
        }
        !self.failed
    }

    /// Has the held bytes and `more` behind them written to the log's file, and forgets them. After an error the same
    /// bytes are held.
    pub(super) fn hand_over(&mut self, more: &[u8], write: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        let held = self.held.len();
        self.held.extend_from_slice(more);
        let written = write(&self.held);
        self.held.truncate(held);
        written.map(|()| self.empty())
    }

    fn empty(&mut self) {
        self.held.clear();
        self.failed |= !self.memory.set(STATE_AT, 0);
    }

    /// Begins to hold at `offset`. Nothing is held, so the head may change.
    fn begin_at(&mut self, offset: u64) {
        let head = head(self.log, offset);
        self.crc = Crc32c::default();
        self.crc.update(&head);
        self.failed |= !self.memory.put(0, &head);
    }
}

/// What an earlier process held of a log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub log: u64,
    /// Offset in the log.
    pub begin: u64,
    pub held: Vec<u8>,
}

impl Left {
    /// Decodes the contents of TAIL; `None` if it holds nothing or is not valid.
    ///
    /// Errors: [`Kind::Unsupported`] if a later version wrote it.
    pub(super) fn decode(file: &[u8]) -> Result<Option<Left>> {
        let Some((head, rest)) = file.split_at_checked(TAIL_HEAD_BYTES) else { return Ok(None) };
        let (version, length) = (u32_at(head, 4), u32_at(head, STATE_AT) as usize);
        let Some(held) = rest.get(..length).filter(|held| head.starts_with(MAGIC) && !held.is_empty()) else {
            return Ok(None);
        };
        if version != VERSION {
            let what =
                format!("{TAIL} is of version {version}: open the store with the program that wrote it");
            return Err(Error::new(Kind::Unsupported, what));
        }
        let mut crc = Crc32c::default();
        [&head[..STATE_AT], held].iter().for_each(|part| crc.update(part));
        let left = Left { log: u64_at(head, 8), begin: u64_at(head, 16), held: held.to_vec() };
        Ok((crc.value() == u32_at(head, STATE_AT + 4)).then_some(left))
    }

    /// Completes the bytes that were read from the log's file. If bytes before `begin` are missing, they were lost in a
    /// power cut, and nothing can follow them.
    pub(super) fn complete(&self, log: &mut Vec<u8>) {
        let Some(end) = self.end_behind(log.len() as u64) else { return };
        log.resize(log.len().max(end as usize), 0);
        self.copy_to(0, log);
    }

    /// Where the held bytes end in a log whose file has `bytes`; `None` if they cannot follow these.
    pub(super) fn end_behind(&self, bytes: u64) -> Option<u64> {
        (self.begin <= bytes).then(|| self.end())
    }

    /// Nobody vouches for where they begin: a checksum takes no secret.
    fn end(&self) -> u64 {
        self.begin.saturating_add(self.held.len() as u64)
    }

    /// Copies those of the held bytes that lie within `out`, which is the log's from `offset` on.
    pub(super) fn copy_to(&self, offset: u64, out: &mut [u8]) {
        let (from, to) = (self.begin.max(offset), self.end().min(offset + out.len() as u64));
        if from < to {
            let held = &self.held[(from - self.begin) as usize..(to - self.begin) as usize];
            out[(from - offset) as usize..(to - offset) as usize].copy_from_slice(held);
        }
    }
}

/// True if a writer that is done left TAIL like this: it holds nothing, or is not there yet.
pub(super) fn holds_nothing(file: &[u8]) -> bool {
    file.len() < TAIL_HEAD_BYTES || u32_at(file, STATE_AT) == 0
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

/// Decodes fuzzed bytes, as they are and with their checksum corrected, and completes logs of several lengths.
pub(crate) fn fuzzed(bytes: &[u8]) {
    let mut file = bytes.to_vec();
    for _ in 0..2 {
        if let Ok(Some(left)) = Left::decode(&file) {
            for length in [0, left.begin.min(1 << 16) as usize, 1 << 16] {
                let mut log = vec![7; length];
                left.complete(&mut log);
                let is_reached = left.begin <= length as u64;
                assert!(!is_reached || log[left.begin as usize..].starts_with(&left.held));
            }
        }
        let held = file.get(TAIL_HEAD_BYTES..).map_or(0, <[u8]>::len).min(HELD_BYTES_MAX);
        if held == 0 {
            return;
        }
        let mut crc = Crc32c::default();
        file[..8].copy_from_slice(&head(0, 0)[..8]);
        [&file[..STATE_AT], &file[TAIL_HEAD_BYTES..][..held]].iter().for_each(|part| crc.update(part));
        file[STATE_AT..][..8].copy_from_slice(&state(held as u32, crc.value()).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use vellum_base::sync::Mutex;

    /// Memory that a test can look at.
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

    /// Found by `kv_log`, 1: a checksum that holds, and a beginning that nothing can follow.
    #[test]
    fn held_bytes_may_claim_to_begin_anywhere() {
        let left = Left { log: 1, begin: u64::MAX - 3, held: vec![5; 8] };
        let mut log = vec![7; 20];
        left.complete(&mut log);
        left.copy_to(10, &mut log);
        assert_eq!((log, left.end_behind(20)), (vec![7; 20], None));
    }

    #[test]
    fn what_is_held_completes_the_log_and_nothing_else_does() {
        let memory = Plain::default();
        let mut tail = Tail::new(Box::new(memory.clone())).unwrap().of_log(12);
        let left = || Left::decode(&memory.0.lock()).unwrap();
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
        tail.empty();
        assert_eq!(left(), None);
        assert!(tail.hold(106, b"three"));
        let file = memory.0.lock().clone();
        for at in (0..32).chain(TAIL_HEAD_BYTES..TAIL_HEAD_BYTES + 5) {
            let mut bad = file.clone();
            bad[at] ^= 4;
            assert!(!matches!(Left::decode(&bad), Ok(Some(_))), "byte {at}");
        }
        (0..TAIL_BYTES).step_by(7).for_each(|length| fuzzed(&file[..length]));
    }
}
