//! Work queue of the readers: lists of small files, and large files that are shared piece by piece.

use super::chunks::GROUP_BYTES;
use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use vellum_base::sync::{Condvar, Mutex};

/// Bytes of a large file that a reader takes at a time.
pub const PIECE_BYTES: u64 = 256 * GROUP_BYTES;

/// How far the walker may be ahead: the progress bar knows the total early, and names take about 100 MB.
const FILES_MAX: usize = 1_000_000;

/// See the module.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    moved: Condvar,
}

/// An open file or device.
pub struct Open {
    /// Its path.
    pub path: PathBuf,
    /// Its handle.
    pub file: File,
    /// Its size when it was opened.
    pub bytes: u64,
    /// True if it may have holes.
    pub sparse: bool,
    /// True if reading a piece failed, and that was reported.
    pub failed: AtomicBool,
}

/// A unit of work for a reader.
pub enum Work {
    /// Files to open and read.
    Files(Vec<PathBuf>),
    /// A piece of an open file: begin and end, in bytes.
    Piece(Arc<Open>, u64, u64),
}

#[derive(Default)]
struct State {
    files: VecDeque<Vec<PathBuf>>,
    files_waiting: usize,
    large: VecDeque<(Arc<Open>, u64)>,
    /// Readers that are processing lists of files, and so may still find large ones.
    opening: usize,
    ended: bool,
}

/// Its drop, when a thread panics, ends the other threads so that the panic can propagate.
pub struct EndOnPanic<'a>(pub &'a Queue);

impl Queue {
    /// An empty queue.
    pub fn new() -> Queue {
        Queue::default()
    }

    /// Adds files. Blocks while there are too many.
    pub fn push_files(&self, files: Vec<PathBuf>) {
        let mut state = self.state.lock();
        while state.files_waiting >= FILES_MAX && !state.ended {
            self.moved.wait(&mut state);
        }
        state.files_waiting += files.len();
        state.files.push_back(files);
        self.moved.notify_all();
    }

    /// Adds an open file, to be shared by all readers.
    pub fn push_large(&self, file: Open) {
        self.state.lock().large.push_back((Arc::new(file), 0));
        self.moved.notify_all();
    }

    /// No more files will be added, except by readers.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.moved.notify_all();
    }

    /// The next unit of work; `None` when all is done.
    pub fn take(&self) -> Option<Work> {
        let mut state = self.state.lock();
        loop {
            if let Some(piece) = state.piece() {
                return Some(piece);
            }
            if let Some(files) = state.files.pop_front() {
                state.files_waiting -= files.len();
                state.opening += 1;
                self.moved.notify_all();
                return Some(Work::Files(files));
            }
            if state.ended && state.opening == 0 {
                return None;
            }
            self.moved.wait(&mut state);
        }
    }

    /// Called by a reader when it has processed a [`Work::Files`].
    pub fn opened(&self) {
        let mut state = self.state.lock();
        state.opening = state.opening.saturating_sub(1); // 0 after a panic
        drop(state);
        self.moved.notify_all();
    }
}

impl State {
    fn piece(&mut self) -> Option<Work> {
        let (file, at) = self.large.front_mut()?;
        let (begin, end) = (*at, (*at + PIECE_BYTES).min(file.bytes));
        let piece = Work::Piece(file.clone(), begin, end);
        *at = end;
        if end == file.bytes {
            self.large.pop_front();
        }
        Some(piece)
    }
}

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        *state = State { ended: true, ..State::default() };
        self.0.moved.notify_all();
    }
}
