//! Requests on their way out: neighbours become one request, as the block layer merges them.

use crate::content::Content;
use crate::request::{ByteLen, ByteOffset, Request, RequestKind};
use std::collections::VecDeque;
use vellum_base::{Lba, Nanos, SECTOR_BYTES};

/// Longest merged request: 512 KiB.
const MERGE_SECTORS: usize = 128;

/// A queue of requests.
#[derive(Default)]
pub struct Output {
    queue: VecDeque<Request>,
}

impl Output {
    /// The next request.
    pub fn pop(&mut self) -> Option<Request> {
        self.queue.pop_front()
    }

    /// Writes blocks in this order; consecutive ones in one request.
    pub fn write(&mut self, time: Nanos, blocks: impl IntoIterator<Item = (u64, Content)>, fua: bool) {
        let mut run: Option<(u64, Vec<Content>)> = None;
        for (block, content) in blocks {
            match &mut run {
                Some((first, contents))
                    if block == *first + contents.len() as u64 && contents.len() < MERGE_SECTORS =>
                {
                    contents.push(content);
                }
                _ => {
                    let done = run.replace((block, vec![content]));
                    self.push_run(time, done, fua);
                }
            }
        }
        self.push_run(time, run, fua);
    }

    fn push_run(&mut self, time: Nanos, run: Option<(u64, Vec<Content>)>, fua: bool) {
        self.queue.extend(run.map(|(first, contents)| Request::write(time, Lba(first), contents, fua)));
    }

    /// Reads one block.
    pub fn read(&mut self, time: Nanos, block: u64) {
        let offset = ByteOffset(block * SECTOR_BYTES as u64);
        self.queue.push_back(Request::new(time, RequestKind::Read, offset, ByteLen::of_sectors(1)));
    }

    /// A flush.
    pub fn flush(&mut self, time: Nanos) {
        self.queue.push_back(Request::flush(time));
    }
}
