//! Logs and manifests as files.
//!
//! The end of a log may be held in memory that survives the process ([`AreaWriter::map`], [`super::tail`]), so that
//! most appends take no system call.
//!
//! States of a log: written by calls ⇄ held → finished. A sync ends holding. If that memory is not available, the log
//! is written by calls until it is finished.
//!
//! Invariants
//! 1. Holding begins when as many bytes were appended since the last sync as can be held. A writer that syncs waits for
//!    the device anyway, and its syncs would only add writes of TAIL.
//! 2. Blocks of the log's file are allocated before bytes for them are held. Unused ones are freed when the log is
//!    finished or else when the store is opened again.
//! 3. Held bytes are written up to the next multiple of [`HELD_BYTES_MAX`], even if that is within a record, whose rest
//!    is held then: the page cache takes aligned bytes in one piece.
//! 4. If few bytes are appended to a log between syncs, zeros are written ahead of them: a sync of what changes neither
//!    the length of a file nor its blocks is a write of data, and any other is a transaction of the file system, too,
//!    which writes several blocks. The zeros are cut off when the log is finished or held, or is the newest when the
//!    store is opened again. Where that fails, they stay as long as the log does, which ends before them all the same.
//! 5. A log that is dropped and was not finished changes its file no more: after a failure another opening may have
//!    continued it. What it held stays in TAIL.

use super::AREA_BYTES_MAX;
use super::files::{Files, Handle};
use super::host_file::WRITE_BYTES;
use super::mapping::Mapping;
use super::tail::{HELD_BYTES_MAX, Left, Tail};
use super::tail_file::TailFile;
use crate::media::{AreaReader, AreaWriter};
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::{Cause, Error, Kind, Ledger, Result, Syncing};

/// What is held is written in one piece.
const _: () = assert!(HELD_BYTES_MAX as u64 == WRITE_BYTES);

/// Bytes that are allocated ahead at a time, as that takes long, if the file system has `ROOM_PARTS` times that room.
const AHEAD_BYTES_MAX: u64 = 8 << 20;
const ROOM_PARTS: u64 = 64;
/// With less room, one part in `PARTS_AHEAD` of the log, at most `PART_BYTES_MAX`: nothing else can use it meanwhile.
const PARTS_AHEAD: u64 = 4;
const PART_BYTES_MAX: u64 = 4 << 20;

/// So many syncs in a row with at most `SHORT_BYTES` before each let the file grow, by as many zeros as it has bytes,
/// within bounds, if the file system has `ROOM_PARTS` times that room.
const SHORT_SYNCS_MIN: u32 = 8;
const SHORT_BYTES: u64 = 8 << 10;
const ZEROS_MIN: u64 = 32 << 10;
pub(crate) const ZEROS_MAX: usize = 256 << 10;
static ZEROS: [u8; ZEROS_MAX] = [0; _];

/// An area that is not written any more.
pub(super) struct KeptArea {
    file: Arc<dyn Handle>,
    /// The end of it, if the file lacks that.
    left: Option<Left>,
}

impl KeptArea {
    /// Of a file, which `left` may follow.
    pub(super) fn of(file: Arc<dyn Handle>, left: Option<Left>) -> Result<KeptArea> {
        let length = file.len()?;
        if length > AREA_BYTES_MAX {
            return Err(Error::corrupt(format!("a log of {length} bytes is longer than any")));
        }
        Ok(KeptArea { file, left: left.filter(|left| left.end_behind(length).is_some()) })
    }
}

impl AreaReader for KeptArea {
    fn bytes(&self) -> Result<u64> {
        let bytes = self.file.len()?;
        let end = self.left.as_ref().and_then(|left| left.end_behind(bytes));
        Ok(bytes.max(end.unwrap_or(0)))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let Some(left) = &self.left else { return self.file.read(offset, out) };
        // What is behind the end of both is the file's error.
        let is_within = offset + out.len() as u64 <= self.bytes()?;
        let in_file = self.file.len()?.saturating_sub(offset).min(out.len() as u64) as usize;
        let length = if is_within { in_file } else { out.len() };
        if length > 0 {
            self.file.read(offset, &mut out[..length])?;
        }
        left.copy_to(offset, out);
        Ok(())
    }

    fn read_all(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        match &self.left {
            None => self.file.read_all(reads),
            Some(_) => reads.iter_mut().try_for_each(|(offset, out)| self.read(*offset, out)),
        }
    }

    fn map(&self) -> Option<Arc<Mapping>> {
        let file = self.file.host().filter(|_| self.left.is_none())?;
        Mapping::of(file).map(Arc::new)
    }
}

/// An area that is being written.
pub(super) struct FileArea {
    file: Arc<dyn Handle>,
    files: Arc<dyn Files>,
    ledger: Arc<Ledger>,
    cause: Cause,
    number: u64,
    tail_file: Arc<TailFile>,
    /// Its directory entry is durable.
    named: AtomicBool,
    syncing: Syncing,
    end: Mutex<End>,
}

/// The end of an area.
#[derive(Default)]
struct End {
    /// Bytes appended.
    at: u64,
    /// Bytes appended since the last sync.
    unsynced: u64,
    /// Syncs in a row with few bytes before each.
    short_syncs: u32,
    /// End of the zeros that were written ahead; 0 if none were.
    zeros_until: u64,
    is_finished: bool,
    /// Blocks of the file are allocated up to this offset; 0 if none were allocated ahead.
    roomy_until: u64,
    /// Most bytes to allocate at a time. `None` if nothing may be held.
    ahead_bytes: Option<u64>,
    tail: Option<Tail>,
}

impl FileArea {
    /// Area `number`, empty, in `file`.
    pub(super) fn new(
        number: u64,
        file: Arc<dyn Handle>,
        (files, tail_file): (Arc<dyn Files>, Arc<TailFile>),
        (ledger, cause): (Arc<Ledger>, Cause),
    ) -> FileArea {
        let (named, syncing, end) = Default::default();
        FileArea { file, files, ledger, cause, number, tail_file, named, syncing, end }
    }

    /// Holds `bytes`, the next of the area. False if they must be written by a call: then nothing is held before them.
    /// After an error the area is as it was, but for bytes in the file behind its end, which are overwritten or cut.
    fn hold(&self, end: &mut End, bytes: &[u8]) -> Result<bool> {
        if end.ahead_bytes.is_none() || end.unsynced < self.files.held_bytes_min() {
            return Ok(false);
        }
        let at = end.at;
        self.cut_zeros(end, at)?;
        if end.tail.is_none() {
            end.tail = self.tail_file.take(self.number);
        }
        let until = end.at + bytes.len() as u64;
        if until > end.roomy_until || bytes.len() > HELD_BYTES_MAX {
            self.write_held(end, &[])?;
        }
        if bytes.len() > HELD_BYTES_MAX {
            return Ok(false);
        }
        let is_held = self.has_room(end, until) && self.hold_with_room(end, bytes)?;
        if !is_held {
            self.write_held(end, &[])?;
            self.end_tail(end);
        }
        Ok(is_held)
    }

    /// The same, with blocks for `bytes` in the file. If they reach the next boundary, what is before it is written,
    /// and the rest is held. False if the mapping failed.
    fn hold_with_room(&self, end: &mut End, bytes: &[u8]) -> Result<bool> {
        if end.tail.is_none() {
            return Ok(false);
        }
        let to_boundary = HELD_BYTES_MAX - (end.at % HELD_BYTES_MAX as u64) as usize;
        let (before, after) = bytes.split_at(if bytes.len() < to_boundary { 0 } else { to_boundary });
        if !before.is_empty() {
            self.write_held(end, before)?;
        }
        let at = end.at + before.len() as u64;
        Ok(after.is_empty() || end.tail.as_mut().is_some_and(|tail| tail.hold(at, after)))
    }

    /// True if blocks are allocated up to `until`. If they are not, some are allocated, if there is a TAIL for their
    /// bytes; nothing may be held then, as a failure frees all blocks behind the file's bytes.
    fn has_room(&self, end: &mut End, until: u64) -> bool {
        if until > end.roomy_until && end.tail.is_some() {
            let room = self.files.room_bytes().unwrap_or(0);
            let is_taken = |bytes: &u64| self.file.take_room(end.at, (*bytes).max(until - end.at));
            let taken = bytes_ahead(end.ahead_bytes.unwrap_or(0), room).into_iter().find(is_taken);
            end.roomy_until = taken.map_or(0, |bytes| until.max(end.at + bytes));
        }
        until <= end.roomy_until
    }

    /// Writes zeros behind `until` if the writer of a log syncs often and there are none. If that fails, there are
    /// none: whether the medium failed, the next sync says.
    fn grow(&self, end: &mut End, until: u64) {
        let is_wanted = self.cause == Cause::Log && !end.is_finished && end.short_syncs >= SHORT_SYNCS_MIN;
        if !is_wanted || until <= end.zeros_until {
            return;
        }
        let zeros = until.clamp(ZEROS_MIN, ZEROS.len() as u64).min(AREA_BYTES_MAX.saturating_sub(until));
        let is_roomy = self.files.room_bytes().is_none_or(|room| zeros <= room / ROOM_PARTS);
        end.short_syncs = 0; // if there will be none, it is tried again some time later
        if zeros == 0 || !is_roomy || !self.file.writes_in_place() {
            return;
        }
        end.zeros_until = until + zeros;
        match self.file.write(until, &ZEROS[..zeros as usize]) {
            Ok(()) => {
                self.ledger.programmed(Cause::Padding, zeros);
                end.short_syncs = SHORT_SYNCS_MIN;
            }
            Err(_) => drop(self.cut_zeros(end, until)),
        }
    }

    /// Cuts off the zeros behind `at`, and with them whatever was allocated there.
    fn cut_zeros(&self, end: &mut End, at: u64) -> Result<()> {
        if end.zeros_until > at {
            self.file.cut(at)?;
            end.roomy_until = 0;
        }
        (end.zeros_until, end.short_syncs) = (0, 0);
        Ok(())
    }

    /// Releases TAIL. Further appends are calls.
    fn end_tail(&self, end: &mut End) {
        end.ahead_bytes = None;
        if let Some(tail) = end.tail.take() {
            self.tail_file.release(self.number, tail);
        }
    }

    /// Writes the held bytes to the file, and `more` behind them, which must be empty without TAIL. After an error the
    /// same bytes are held.
    fn write_held(&self, end: &mut End, more: &[u8]) -> Result<()> {
        debug_assert!(more.is_empty() || end.tail.is_some());
        let Some(tail) = end.tail.as_mut().filter(|tail| tail.held_bytes() + more.len() > 0) else {
            return Ok(());
        };
        if !self.tail_file.is_used_by(self.number) {
            return Err(Error::new(Kind::Poisoned, "the store was opened again meanwhile"));
        }
        let begin = end.at - tail.held_bytes() as u64;
        tail.hand_over(more, |bytes| self.file.write(begin, bytes))?;
        if tail.has_failed() {
            self.end_tail(end);
        }
        Ok(())
    }
}

impl AreaWriter for FileArea {
    fn append(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut end = self.end.lock();
        debug_assert_eq!(end.at, offset);
        let until = offset + bytes.len() as u64;
        if !self.hold(&mut end, bytes)? {
            self.file.write(offset, bytes)?;
            self.grow(&mut end, until);
        }
        end.at = until;
        end.unsynced += bytes.len() as u64;
        drop(end);
        self.ledger.programmed(self.cause, bytes.len() as u64);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let mut end = self.end.lock();
        self.write_held(&mut end, &[]).map_err(not_for_room)?;
        let is_short = end.unsynced <= SHORT_BYTES;
        end.short_syncs = if is_short { end.short_syncs.saturating_add(1) } else { 0 };
        end.unsynced = 0;
        drop(end);
        self.syncing.run(|| {
            self.file.sync()?;
            if !self.named.load(Relaxed) {
                self.files.sync_names()?;
                self.named.store(true, Relaxed);
            }
            Ok(())
        })
    }

    fn map(&self, ahead_bytes: u64) {
        self.end.lock().ahead_bytes = Some(ahead_bytes);
    }

    fn finish(&self) -> Result<()> {
        let end = &mut *self.end.lock();
        self.write_held(end, &[])?;
        self.end_tail(end);
        end.is_finished = true;
        if end.roomy_until.max(end.zeros_until) > end.at {
            // If it fails, the blocks stay allocated for as long as the file exists.
            let _ = self.file.cut(end.at);
        }
        (end.roomy_until, end.zeros_until) = (0, 0);
        Ok(())
    }
}

impl Drop for FileArea {
    fn drop(&mut self) {
        self.end_tail(&mut self.end.lock());
    }
}

/// Bytes to allocate ahead, of the `most` that may be, and fewer if that fails.
fn bytes_ahead(most: u64, room: u64) -> [u64; 2] {
    let part = (most / PARTS_AHEAD).min(PART_BYTES_MAX);
    [(room / ROOM_PARTS).min(AHEAD_BYTES_MAX).clamp(part, most), part]
}

/// Syncs never fail for lack of room (`Media`, 6).
fn not_for_room(error: Error) -> Error {
    match error.kind() {
        Kind::NoSpace => Error::new(Kind::Io, format!("sync: {error}")),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Directory;
    use super::super::host::HostFiles;
    use super::super::tail::TAIL;
    use super::*;
    use crate::journal::Area;
    use crate::media::{Areas, DirectoryOptions};

    /// Log 1 in `dir`, mapped, with `bytes` in it.
    fn written(dir: &std::path::Path, bytes: &[u8]) -> FileArea {
        let files: Arc<dyn Files> = Arc::new(HostFiles::open(dir).unwrap());
        let tail_file = Arc::new(TailFile::new(files.clone()));
        tail_file.settle(|_| false).unwrap();
        let (file, count) = (files.create("000001.log").unwrap(), (Arc::default(), Cause::Log));
        let area = FileArea::new(1, file, (files, tail_file), count);
        area.map(1 << 20);
        let mut at = 0;
        for piece in bytes.chunks(1000) {
            area.append(at, piece).unwrap();
            at += piece.len() as u64;
        }
        area
    }

    #[test]
    fn little_room_is_not_taken_all_at_once() {
        let ahead = |most: u64| {
            [1u64, 64, 256, 512, 4096]
                .map(|room| bytes_ahead(most << 20, room << 20).map(|bytes| bytes >> 20))
        };
        assert_eq!(ahead(8), [[2, 2], [2, 2], [4, 2], [8, 2], [8, 2]]);
        assert_eq!(ahead(64), [[4, 4], [4, 4], [4, 4], [8, 4], [8, 4]]);
        assert_eq!(bytes_ahead(1000, 0), [250, 250]);
    }

    #[test]
    fn it_is_written_from_boundary_to_boundary() {
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
            return println!("skipped: no /dev/shm");
        };
        let (max, mut bytes) = (HELD_BYTES_MAX as u64, vec![5; 2 * HELD_BYTES_MAX + 10]);
        let area = written(dir.path(), &bytes);
        let there = || std::fs::read(dir.path().join("000001.log")).unwrap();
        let mut append = |length: usize| {
            let piece: Vec<u8> = (0..length).map(|n| n as u8).collect();
            area.append(bytes.len() as u64, &piece).unwrap();
            bytes.extend(piece);
            let held = Left::decode(&std::fs::read(dir.path().join(TAIL)).unwrap()).unwrap();
            let there = there();
            let begin = held.as_ref().map_or(there.len() as u64, |left| left.begin);
            let held = held.map_or(Vec::new(), |left| left.held);
            assert_eq!([&there[..begin as usize], &held].concat(), bytes, "{length}");
            (there.len() as u64, held.len() as u64)
        };
        for _ in 0..200 {
            let (there, held) = append(1000);
            assert_eq!((there % max, held < max), (0, true));
        }
        let (there, held) = append(1);
        assert_eq!(append((max - held) as usize), (there + max, 0), "up to a boundary");
        assert_eq!(append(HELD_BYTES_MAX), (there + 2 * max, 0), "from one to the next");
        assert_eq!(append(10), (there + 2 * max, 10));
        assert_eq!(append(HELD_BYTES_MAX), (there + 3 * max, 10), "beyond one");
        let (longer, held) = append(HELD_BYTES_MAX + 1);
        assert_eq!((longer, held), (there + 4 * max + 11, 0), "too long");
        assert_eq!(append(1000), (longer, 1000));
        assert_eq!(append(HELD_BYTES_MAX), (there + 5 * max, 1011), "to boundaries again");
    }

    #[test]
    fn tmpfs_has_such_memory_and_a_log_without_its_process_is_whole() {
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
            return println!("skipped: no /dev/shm");
        };
        let bytes: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        let area = written(dir.path(), &bytes);
        let file = dir.path().join("000001.log");
        let there = std::fs::read(&file).unwrap();
        assert!(there.len() < bytes.len() && bytes.starts_with(&there), "all {} were written", there.len());
        // As the next process sees it.
        let copy = tempfile::tempdir().unwrap();
        for name in ["000001.log", TAIL] {
            std::fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
        }
        let how = DirectoryOptions::default();
        let read = |found: Arc<Directory>| found.read_area(Area::log(1)).unwrap();
        assert_eq!(read(Directory::open_read_only(copy.path(), how).unwrap()), bytes);
        let found = Directory::open(copy.path(), how).unwrap();
        found.sync_area(Area::log(1)).unwrap();
        assert_eq!(std::fs::read(copy.path().join("000001.log")).unwrap(), bytes);
        assert!(!copy.path().join(TAIL).exists());

        area.sync().unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), bytes);
        area.append(bytes.len() as u64, b"after").unwrap();
        assert_eq!(std::fs::read(&file).unwrap().len(), bytes.len() + 5, "who syncs writes by calls");
        area.finish().unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), [&bytes[..], b"after"].concat());
    }
}
