//! The map log in memory: the log slot being filled, sealed ones not yet stored, and the locations of stored ones.
//!
//! ```text
//!   open ──seal()──▶ sealed (queue) ──stored()──▶ stored ──checkpointed and nothing packed left──▶ gone
//! ```
//!
//! A log slot is needed while the last checkpoint does not cover its records, or it contains a packed sector. Its
//! number is reused only after a checkpoint, so that no node on flash can refer to an older slot.

use crate::format::log_slot::LogWriter;
use crate::format::place::LOG_NUMBERS_MAX;
use std::collections::VecDeque;
use vellum_base::{Error, Kind, Result, SlotAddr};

/// A packed sector: the range of its bytes in the log slot, and the first member of its ring.
#[derive(Clone, Copy)]
pub(crate) struct Packed {
    pub offset: u16,
    pub length: u16,
    pub owner: Option<u32>,
}

/// State of a log slot.
#[derive(Default)]
pub(crate) struct LogInfo {
    /// Its location, once stored.
    pub slot: Option<SlotAddr>,
    /// The base of its records' numbers.
    pub base_seq: u64,
    pub last_seq: u64,
    pub packed: Vec<Packed>,
    /// Entries of `packed` that have an owner.
    pub live: u32,
}

/// Bytes of memory per log number.
pub(crate) const LOG_MEMORY_BYTES: u64 = size_of::<LogInfo>() as u64;

/// The log; see the module.
pub(crate) struct Log {
    pub open: Option<LogWriter>,
    /// Sealed slots, oldest first, with their numbers.
    sealed: VecDeque<(u32, Vec<u8>)>,
    infos: Vec<LogInfo>,
    /// Numbers to reuse, each with the seq that the checkpoint must have passed.
    free: VecDeque<(u32, u64)>,
    /// Stored log slots not covered by a checkpoint, oldest first.
    uncovered: VecDeque<u32>,
    pub checkpoint_seq: u64,
    numbers_max: u32,
}

impl Log {
    /// A log in which the numbers below `numbers` exist, all of them free. All numbers stay below `numbers_max`.
    pub(crate) fn new(numbers: u32, checkpoint_seq: u64, numbers_max: u32) -> Log {
        Log {
            open: None,
            sealed: VecDeque::new(),
            infos: (0..numbers).map(|_| LogInfo::default()).collect(),
            free: VecDeque::new(),
            uncovered: VecDeque::new(),
            checkpoint_seq,
            numbers_max,
        }
    }

    /// The limit of log numbers on `slots` slots: a number is in use while its slot is, and is not reused until the
    /// next checkpoint.
    pub(crate) fn numbers_max(slots: u64) -> u32 {
        (2 * slots + 1024).min(LOG_NUMBERS_MAX.into()) as u32
    }

    /// Number of log numbers ever used.
    pub(crate) fn numbers(&self) -> u32 {
        self.infos.len() as u32
    }
    pub(crate) fn info(&self, log: u32) -> Option<&LogInfo> {
        self.infos.get(log as usize)
    }
    pub(crate) fn info_mut(&mut self, log: u32) -> &mut LogInfo {
        &mut self.infos[log as usize]
    }
    pub(crate) fn packed(&self, log: u32, entry: u32) -> Option<&Packed> {
        self.infos.get(log as usize)?.packed.get(entry as usize)
    }

    /// Grows to include `log`, during loading.
    pub(crate) fn ensure(&mut self, log: u32) -> Result<&mut LogInfo> {
        if log >= self.numbers_max {
            return Err(Error::corrupt(format!("log number {log} is out of range")));
        }
        if self.infos.len() <= log as usize {
            self.infos.resize_with(log as usize + 1, LogInfo::default);
        }
        Ok(&mut self.infos[log as usize])
    }

    /// After loading: log slots neither needed nor open become free, the others await the next checkpoint.
    pub(crate) fn finish_loading(&mut self) {
        for log in 0..self.infos.len() as u32 {
            let unstored = self.unstored(log).is_some();
            let info = &self.infos[log as usize];
            match info.slot {
                _ if unstored => {}
                None => self.free.push_back((log, 0)),
                Some(_) if info.last_seq > self.checkpoint_seq => self.uncovered.push_back(log),
                Some(_) => {}
            }
        }
        let infos = &self.infos;
        self.uncovered.make_contiguous().sort_by_key(|log| infos[*log as usize].last_seq);
    }

    /// The open log slot, with room for a map record, or for a packed sector of `packed` bytes.
    pub(crate) fn writer(&mut self, seq: u64, packed: Option<usize>) -> Result<&mut LogWriter> {
        let fits = self.open.as_ref().is_some_and(|w| {
            w.reaches(seq) && packed.map_or(w.has_room_for_map(), |n| w.has_room_for_small(n))
        });
        if !fits {
            self.seal();
            let log = self.take_number()?;
            self.infos[log as usize] = LogInfo { base_seq: seq, ..LogInfo::default() };
            self.open = Some(LogWriter::new(log, seq));
        }
        self.open.as_mut().ok_or_else(|| Error::new(Kind::NoSpace, "no log slot"))
    }

    fn take_number(&mut self) -> Result<u32> {
        if self.free.front().is_some_and(|(_, seq)| *seq <= self.checkpoint_seq) {
            return Ok(self.free.pop_front().map_or(0, |(log, _)| log));
        }
        let log = self.infos.len() as u32;
        self.ensure(log)?;
        Ok(log)
    }

    /// Closes the open log slot, if it holds anything.
    pub(crate) fn seal(&mut self) {
        if let Some(mut writer) = self.open.take() {
            if writer.is_empty() {
                self.open = Some(writer);
            } else {
                self.sealed.push_back((writer.log(), writer.seal().to_vec()));
            }
        }
    }

    /// During loading: adds a log slot that exists only in an NVRAM image, to be stored again.
    pub(crate) fn load_sealed(&mut self, log: u32, bytes: Vec<u8>) {
        self.sealed.push_back((log, bytes));
    }

    /// The bytes of a log slot that is not stored yet.
    pub(crate) fn unstored(&mut self, log: u32) -> Option<Vec<u8>> {
        match &mut self.open {
            Some(w) if w.log() == log => Some(w.seal().to_vec()),
            _ => self.sealed.iter().find(|(n, _)| *n == log).map(|(_, bytes)| bytes.clone()),
        }
    }

    /// The oldest sealed slot that is not stored.
    pub(crate) fn next_sealed(&self) -> Option<(u32, &[u8])> {
        self.sealed.front().map(|(log, bytes)| (*log, &bytes[..]))
    }

    /// Number of sealed slots that are not stored.
    pub(crate) fn sealed(&self) -> usize {
        self.sealed.len()
    }

    /// Records that the oldest sealed slot is stored at `slot`.
    pub(crate) fn stored(&mut self, slot: SlotAddr) {
        if let Some((log, _)) = self.sealed.pop_front() {
            self.infos[log as usize].slot = Some(slot);
            self.uncovered.push_back(log);
        }
    }

    /// Number of stored log slots that await a checkpoint.
    pub(crate) fn uncovered(&self) -> usize {
        self.uncovered.len()
    }

    /// The bytes of a packed sector, if its log slot is still in memory.
    pub(crate) fn in_memory(&self, log: u32, packed: &Packed) -> Option<&[u8]> {
        let (from, to) = (packed.offset as usize, packed.offset as usize + packed.length as usize);
        match &self.open {
            Some(w) if w.log() == log => Some(w.slice(packed.offset, packed.length)),
            _ => self.sealed.iter().find(|(n, _)| *n == log).map(|(_, bytes)| &bytes[from..to]),
        }
    }

    /// If nothing needs the log slot any more, drops it and returns its location.
    pub(crate) fn release_if_unneeded(&mut self, log: u32, seq: u64) -> Option<SlotAddr> {
        let info = &mut self.infos[log as usize];
        if info.live > 0 || info.last_seq > self.checkpoint_seq {
            return None;
        }
        let slot = info.slot.take()?;
        info.packed = Vec::new();
        self.free.push_back((log, seq));
        Some(slot)
    }

    /// Records that a checkpoint covers everything up to `seq`: returns the log slots that may have become unneeded.
    pub(crate) fn covered(&mut self, seq: u64) -> Vec<u32> {
        self.checkpoint_seq = seq;
        let mut covered = Vec::new();
        while let Some(log) = self.uncovered.front().copied() {
            if self.infos[log as usize].last_seq > seq {
                break;
            }
            self.uncovered.pop_front();
            covered.push(log);
        }
        covered
    }

    /// Bytes of memory used.
    pub(crate) fn memory_bytes(&self) -> usize {
        let packed: usize = self.infos.iter().map(|i| i.packed.capacity() * size_of::<Packed>()).sum();
        self.infos.capacity() * size_of::<LogInfo>() + packed
    }
}
