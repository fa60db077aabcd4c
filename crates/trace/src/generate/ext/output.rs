//! The queue of generated requests: adjacent blocks are merged, as by the block layer.

use crate::content::Content;
use crate::request::{ByteLen, ByteOffset, Request, RequestKind};
use std::collections::VecDeque;
use vellum_base::{Lba, Nanos, SECTOR_BYTES};

/// Longest merged request: 512 KiB.
const MERGE_SECTORS: usize = 128;
/// Longest request of a checkpoint: jbd2 submits 64 buffers at a time.
const CHECKPOINT_SECTORS: usize = 64;

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

    /// Writes blocks in this order; adjacent ones in one request.
    pub fn write(&mut self, time: Nanos, blocks: impl IntoIterator<Item = (u64, Content)>, fua: bool) {
        self.queue.extend(requests(time, blocks, MERGE_SECTORS, fua));
    }

    /// Writes the copies of a commit and the home writes of a concurrent checkpoint, interleaved at the same pace: as
    /// recorded of ext4 on kernel 6.18, where requests of the two alternate.
    pub fn write_beside(
        &mut self,
        time: Nanos,
        copies: impl IntoIterator<Item = (u64, Content)>,
        homes: impl IntoIterator<Item = (u64, Content)>,
    ) {
        let copies = requests(time, copies, MERGE_SECTORS, false);
        let mut homes = VecDeque::from(requests(time, homes, CHECKPOINT_SECTORS, false));
        let (all, homes_all) = (copies.len(), homes.len());
        for (i, copy) in copies.into_iter().enumerate() {
            self.queue.push_back(copy);
            let left = homes_all - homes_all * (i + 1) / all;
            self.queue.extend(homes.drain(..homes.len() - left));
        }
    }

    /// Reads one block.
    pub fn read(&mut self, time: Nanos, block: u64) {
        let offset = ByteOffset(block * SECTOR_BYTES as u64);
        self.queue.push_back(Request::new(time, RequestKind::Read, offset, ByteLen::of_sectors(1)));
    }

    /// Adds a flush.
    pub fn flush(&mut self, time: Nanos) {
        self.queue.push_back(Request::flush(time));
    }
}

/// Writes of these blocks in this order; adjacent ones in one request of at most `merge` sectors.
fn requests(
    time: Nanos,
    blocks: impl IntoIterator<Item = (u64, Content)>,
    merge: usize,
    fua: bool,
) -> Vec<Request> {
    let mut requests = Vec::new();
    let mut run: Vec<Content> = Vec::new();
    let mut first = 0;
    let mut done = |first: u64, run: Vec<Content>| {
        if !run.is_empty() {
            requests.push(Request::write(time, Lba(first), run, fua));
        }
    };
    for (block, content) in blocks {
        if block != first + run.len() as u64 || run.len() == merge {
            done(first, std::mem::take(&mut run));
            first = block;
        }
        run.push(content);
    }
    done(first, run);
    requests
}
