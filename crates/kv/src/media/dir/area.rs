//! Logs and manifests as files.
//!
//! A mapped log ([`AreaWriter::map`]) is written through a window, a mapping of the file after its end, so that an
//! append takes no system call. It survives the process all the same, as the pages belong to the kernel.
//!
//! States of the end of such a log: written by system calls → in a window → closed. A sync leads back to the first
//! state. If no window can be had, it is written by system calls until it is closed.
//!
//! Invariants
//! 1. A window begins only once enough was appended since the last sync. Each sync would also write the prepared pages
//!    after the end; and with frequent syncs the device is what takes time, not system calls.
//! 2. Prepared space after the end is cut off when the log is closed. After a crash it remains as zeros, which are not
//!    a valid record.

use super::files::{Files, Handle, Window};
use super::mapping::Mapping;
use crate::media::{AreaReader, AreaWriter};
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::{Cause, Ledger, Result, Syncing};

/// An area for reading, which nobody writes to any more.
pub(super) struct KeptArea {
    file: Arc<dyn Handle>,
}

impl KeptArea {
    pub(super) fn of(file: Arc<dyn Handle>) -> KeptArea {
        KeptArea { file }
    }
}

impl AreaReader for KeptArea {
    fn bytes(&self) -> Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file.read(offset, out)
    }

    fn map(&self) -> Option<Arc<Mapping>> {
        self.file.host().and_then(Mapping::of).map(Arc::new)
    }
}

/// An area being written.
pub(super) struct FileArea {
    file: Arc<dyn Handle>,
    files: Arc<dyn Files>,
    ledger: Arc<Ledger>,
    cause: Cause,
    /// Its directory entry is durable.
    named: AtomicBool,
    syncing: Syncing,
    tail: Mutex<Tail>,
}

/// State of its end.
#[derive(Default)]
struct Tail {
    /// Bytes appended.
    end: u64,
    /// Of these, since the last sync.
    unsynced: u64,
    /// Size of windows to be requested, if any.
    ahead_bytes: Option<u64>,
    window: Option<Box<dyn Window>>,
    /// A window was requested: the file may extend beyond the end.
    is_ahead: bool,
}

impl FileArea {
    /// In a new file.
    pub(super) fn new(
        file: Arc<dyn Handle>,
        files: Arc<dyn Files>,
        ledger: Arc<Ledger>,
        cause: Cause,
    ) -> FileArea {
        FileArea {
            file,
            files,
            ledger,
            cause,
            named: AtomicBool::new(false),
            syncing: Syncing::default(),
            tail: Mutex::default(),
        }
    }
}

impl AreaWriter for FileArea {
    fn append(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut tail = self.tail.lock();
        let put = tail.put(&*self.file, offset, bytes);
        if put < bytes.len() {
            self.file.write(offset + put as u64, &bytes[put..])?;
        }
        tail.end = offset + bytes.len() as u64;
        tail.unsynced += bytes.len() as u64;
        drop(tail);
        self.ledger.programmed(self.cause, bytes.len() as u64);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.tail.lock().end_window();
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
        self.tail.lock().ahead_bytes = Some(ahead_bytes);
    }

    fn finish(&self) {
        let mut tail = self.tail.lock();
        tail.end_window();
        tail.ahead_bytes = None;
        if std::mem::take(&mut tail.is_ahead) {
            // If this fails, zeros stay at the end of the file, which is harmless.
            let _ = self.file.cut(tail.end);
        }
    }
}

impl Drop for FileArea {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Tail {
    /// Writes as much as possible through windows, and returns how much. The rest has to be written by a call.
    fn put(&mut self, file: &dyn Handle, offset: u64, bytes: &[u8]) -> usize {
        let Some(ahead_bytes) = self.ahead_bytes.filter(|_| self.unsynced >= file.bytes_before_window())
        else {
            return 0;
        };
        let (mut done, mut is_new) = (0, false);
        while done < bytes.len() {
            let at = offset + done as u64;
            let put = self.window.as_mut().map_or(0, |window| window.put(at, &bytes[done..]));
            done += put;
            if put == 0 && (is_new || !self.next_window(file, at, ahead_bytes)) {
                self.give_up_windows();
                break;
            }
            is_new = put == 0;
        }
        done
    }

    /// False if there is none.
    fn next_window(&mut self, file: &dyn Handle, offset: u64, bytes: u64) -> bool {
        // The last one takes its memory along before the next comes.
        self.window = None;
        self.window = file.window(offset, bytes);
        self.is_ahead = true;
        self.window.is_some()
    }

    /// There is none, or a new one takes nothing: windows do not work for this file, and none is requested again.
    fn give_up_windows(&mut self) {
        (self.window, self.ahead_bytes) = (None, None);
    }

    /// What it had ready stays behind the end.
    fn end_window(&mut self) {
        self.window = None;
        self.unsynced = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::HostFiles;
    use super::*;

    /// An area in `dir`, mapped, with so many bytes in it.
    fn written(dir: &std::path::Path, bytes: &[u8]) -> FileArea {
        let files = Arc::new(HostFiles::open(dir).unwrap());
        let area = FileArea::new(files.create("log").unwrap(), files, Arc::default(), Cause::Log);
        area.map(64 << 10);
        let mut at = 0;
        for piece in bytes.chunks(1000) {
            area.append(at, piece).unwrap();
            at += piece.len() as u64;
        }
        area
    }

    #[test]
    fn tmpfs_has_windows_and_their_bytes_are_the_files() {
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
            return println!("skipped: no /dev/shm");
        };
        let bytes: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        let area = written(dir.path(), &bytes);
        assert!(area.tail.lock().window.is_some(), "it is written by calls");
        let file = dir.path().join("log");
        let there = std::fs::read(&file).unwrap();
        assert!(there.len() > bytes.len() && there[..bytes.len()] == bytes);
        assert!(there[bytes.len()..].iter().all(|byte| *byte == 0));
        area.sync().unwrap();
        assert!(area.tail.lock().window.is_none(), "who syncs would write what is ready, too");
        area.append(bytes.len() as u64, b"after").unwrap();
        drop(area);
        assert_eq!(std::fs::read(&file).unwrap(), [&bytes[..], b"after"].concat());
    }
}
