//! Workloads as operations on files, named as in WOJ's evaluation (woj.txt, sections 3.2 and 3.3). As there, every
//! block written is random data, different from all others.

use crate::content::Content;
use crate::generate::Seeded;
use crate::generate::ext::{DirectoryId, FileId, FileOperation as Op};
use std::collections::VecDeque;
use vellum_codes::pattern::Pattern;

const SMALL_BLOCKS: u64 = 16; // 64 KiB
const LARGE_BLOCKS: u64 = 262_144; // 1 GiB
const DIRECTORIES: u64 = 20;

/// A sequence of contents that all differ, also between seeds.
#[derive(Clone, Debug)]
pub struct Fresh {
    next: u64,
}

impl Fresh {
    /// The sequence for `seed`.
    pub const fn new(seed: u64) -> Fresh {
        Fresh { next: seed << 40 }
    }

    /// Splits off the next `count` contents as a sequence of their own.
    const fn reserve(&mut self, count: u64) -> Fresh {
        let reserved = Fresh { next: self.next };
        self.next += count;
        reserved
    }

    /// The next content.
    pub const fn content(&mut self) -> Content {
        self.next += 1;
        Content::Pattern(Pattern::unique(self.next))
    }
}

/// Operations generated in bursts: `step` adds the next burst to the queue, or nothing at the end.
pub(crate) fn bursts(mut step: impl FnMut(&mut VecDeque<Op>) + Send) -> impl Iterator<Item = Op> + Send {
    let mut queue = VecDeque::new();
    std::iter::from_fn(move || {
        if queue.is_empty() {
            step(&mut queue);
        }
        queue.pop_front()
    })
}

/// Writes a new file sequentially, one block at a time, with an fsync after every `window` writes: the paper's
/// sequential microbenchmark (figure 2; it writes 8 GB), and filebench's `ws`.
pub fn write_sequential(
    blocks: u64,
    window: u64,
    preallocate: bool,
    seed: u64,
) -> impl Iterator<Item = Op> + Send {
    let mut fresh = Fresh::new(seed);
    write_windows(blocks, blocks, window, preallocate, move |i| (i, fresh.content()))
}

/// Writes `writes` blocks at random positions of a file of `blocks` blocks, with an fsync after every `window` writes
/// (figure 5). With `preallocate`, the file is allocated at the start.
pub fn write_random(
    blocks: u64,
    writes: u64,
    window: u64,
    preallocate: bool,
    seed: u64,
) -> impl Iterator<Item = Op> + Send {
    let (mut fresh, mut rng) = (Fresh::new(seed), Seeded::new(seed));
    write_windows(blocks, writes, window, preallocate, move |_| (rng.below(blocks), fresh.content()))
}

fn write_windows(
    blocks: u64,
    writes: u64,
    window: u64,
    preallocate: bool,
    mut next: impl FnMut(u64) -> (u64, Content) + Send,
) -> impl Iterator<Item = Op> + Send {
    let file = FileId(0);
    let mut written = 0;
    let mut started = false;
    bursts(move |queue| {
        if !started {
            started = true;
            queue.push_back(Op::Create(file, DirectoryId(0)));
            if preallocate {
                queue.extend([Op::Preallocate(file, blocks), Op::Fsync(file)]);
            }
        }
        if written < writes {
            let (block, content) = next(written);
            queue.push_back(Op::Write(file, block, content));
            written += 1;
            if window > 0 && written.is_multiple_of(window) {
                queue.push_back(Op::Fsync(file));
            }
        }
    })
}

/// The two file sizes of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSize {
    /// 64 KiB.
    Small,
    /// 1 GiB.
    Large,
}

impl FileSize {
    /// Size in blocks of 4 KiB.
    pub const fn blocks(self) -> u64 {
        match self {
            FileSize::Small => SMALL_BLOCKS,
            FileSize::Large => LARGE_BLOCKS,
        }
    }
}

/// Creates `files` files and writes each of them sequentially: `cr_S`, `cr_L`.
pub fn create(files: u64, size: FileSize, seed: u64) -> impl Iterator<Item = Op> + Send {
    let mut fresh = Fresh::new(seed);
    in_directories().chain((0..files).flat_map(move |id| {
        let mut fresh = fresh.reserve(size.blocks());
        let writes = (0..size.blocks()).map(move |block| Op::Write(FileId(id), block, fresh.content()));
        std::iter::once(Op::Create(FileId(id), directory_of(id))).chain(writes)
    }))
}

/// Reads each of `files` files and writes its copy to a new file: `cp_S`, `cp_L`. Begins with [`create`].
pub fn copy(files: u64, size: FileSize, seed: u64) -> impl Iterator<Item = Op> + Send {
    let mut fresh = Fresh::new(seed);
    let copies = (0..files).flat_map(move |id| {
        let mut fresh = fresh.reserve(size.blocks());
        let copy = FileId(files + id);
        let blocks = (0..size.blocks())
            .flat_map(move |block| [Op::Read(FileId(id), block), Op::Write(copy, block, fresh.content())]);
        std::iter::once(Op::Create(copy, directory_of(files + id))).chain(blocks)
    });
    create(files, size, seed).chain(copies)
}

/// filebench's varmail: mailboxes of 16 KiB on average. A round deletes one, creates one and syncs it, reads one,
/// appends to it and syncs it, and reads one. There are `rounds` rounds over `files` mailboxes.
pub fn varmail(files: u64, rounds: u64, seed: u64) -> impl Iterator<Item = Op> + Send {
    const MEAN_BLOCKS: u64 = 4;
    let mut boxes = Population::new(files, MEAN_BLOCKS, seed);
    let mut round = 0;
    in_directories().chain(bursts(move |queue| {
        if boxes.fill(queue) || round == rounds {
            return;
        }
        round += 1;
        boxes.replace_one(queue);
        queue.push_back(Op::Fsync(boxes.newest()));
        let appended = boxes.append_to_one(queue, 1);
        queue.push_back(Op::Fsync(appended));
        boxes.read_one(queue);
    }))
}

/// filebench's fileserver: files of 128 KiB on average. A round deletes one, creates and writes one, reads one and
/// appends 16 KiB to it, and reads one. There is no fsync.
pub fn fileserver(files: u64, rounds: u64, seed: u64) -> impl Iterator<Item = Op> + Send {
    const MEAN_BLOCKS: u64 = 32;
    const APPEND_BLOCKS: u64 = 4;
    let mut served = Population::new(files, MEAN_BLOCKS, seed);
    let mut round = 0;
    in_directories().chain(bursts(move |queue| {
        if served.fill(queue) || round == rounds {
            return;
        }
        round += 1;
        served.replace_one(queue);
        served.append_to_one(queue, APPEND_BLOCKS);
        served.read_one(queue);
    }))
}

fn in_directories() -> impl Iterator<Item = Op> + Send {
    (1..=DIRECTORIES).map(|id| Op::MakeDirectory(DirectoryId(id)))
}

fn directory_of(file: u64) -> DirectoryId {
    DirectoryId(1 + file % DIRECTORIES)
}

/// A set of files of about constant size.
struct Population {
    files: Vec<(FileId, u64)>,
    goal: u64,
    mean_blocks: u64,
    made: u64,
    fresh: Fresh,
    rng: Seeded,
}

impl Population {
    fn new(goal: u64, mean_blocks: u64, seed: u64) -> Population {
        let (fresh, rng) = (Fresh::new(seed), Seeded::new(seed));
        Population { files: Vec::new(), goal: goal.max(1), mean_blocks, made: 0, fresh, rng }
    }

    /// Creates one more file if there are not enough yet; returns whether it did (only at the start).
    fn fill(&mut self, queue: &mut VecDeque<Op>) -> bool {
        let short = self.made < self.goal;
        if short {
            self.make_one(queue);
        }
        short
    }

    fn newest(&self) -> FileId {
        self.files.last().expect("a population has files").0
    }

    fn make_one(&mut self, queue: &mut VecDeque<Op>) {
        let id = FileId(self.made);
        self.made += 1;
        queue.push_back(Op::Create(id, directory_of(id.0)));
        self.files.push((id, 0));
        let blocks = 1 + self.rng.below(2 * self.mean_blocks - 1);
        self.append(queue, self.files.len() - 1, blocks);
    }

    fn replace_one(&mut self, queue: &mut VecDeque<Op>) {
        let victim = self.any();
        queue.push_back(Op::Delete(self.files.swap_remove(victim).0));
        self.make_one(queue);
    }

    fn append_to_one(&mut self, queue: &mut VecDeque<Op>, blocks: u64) -> FileId {
        let at = self.any();
        self.read(queue, at);
        self.append(queue, at, blocks);
        self.files[at].0
    }

    fn read_one(&mut self, queue: &mut VecDeque<Op>) {
        let at = self.any();
        self.read(queue, at);
    }

    fn any(&mut self) -> usize {
        self.rng.below(self.files.len() as u64) as usize
    }

    fn read(&self, queue: &mut VecDeque<Op>, at: usize) {
        let (id, blocks) = self.files[at];
        queue.extend((0..blocks).map(|block| Op::Read(id, block)));
    }

    fn append(&mut self, queue: &mut VecDeque<Op>, at: usize, blocks: u64) {
        let (id, length) = &mut self.files[at];
        queue.extend((0..blocks).map(|i| Op::Write(*id, *length + i, self.fresh.content())));
        *length += blocks;
    }
}
