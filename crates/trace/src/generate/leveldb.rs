//! Operations on files by LevelDB's `db_bench` with PUTs (woj.txt, section 3.4; LevelDB's defaults).
//!
//! Each PUT appends to the write-ahead log, which is not synced; the page cache turns that into one write for each
//! block filled. When 4 MiB are in the memtable they become a table in level 0, the log is deleted and a new one begun.
//! Four tables in level 0, or a level over its size, start a compaction: its inputs are read, merged outputs of 2 MiB
//! are written and synced, the manifest is appended and synced, and the inputs are deleted. Merging never drops keys,
//! so `fillrandom` writes somewhat more than the real one.

use crate::generate::Seeded;
use crate::generate::ext::{DirectoryId, FileId, FileOperation as Op};
use crate::generate::files::{Fresh, bursts};
use std::collections::VecDeque;

const BLOCK_BYTES: u64 = 4096;
const MEMTABLE_BYTES: u64 = 4 << 20;
const TABLE_BLOCKS: u64 = (2 << 20) / BLOCK_BYTES;
const LEVEL0_TABLES: usize = 4;
const LEVEL1_TABLES: usize = 5; // 10 MiB
const LEVEL_GROWTH: usize = 10;
const LEVELS: usize = 7;
/// Header of a log record and of its entry, and a key of 16 bytes (section 3.4).
const PUT_OVERHEAD_BYTES: u64 = 7 + 12 + 3 + 16;
const MANIFEST: FileId = FileId(0);

/// Order of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// `fillseq`: tables never overlap, so compactions only move them.
    Sequential,
    /// `fillrandom`: every table overlaps with all of the level below.
    Random,
}

/// Operations for `puts` PUTs with values of `value_bytes`.
pub fn puts(puts: u64, value_bytes: u64, order: KeyOrder, seed: u64) -> impl Iterator<Item = Op> + Send {
    let mut db = Database::new(order, seed);
    let put_bytes = PUT_OVERHEAD_BYTES + value_bytes;
    let mut done = 0;
    bursts(move |queue| {
        db.open(queue);
        while queue.is_empty() && done < puts {
            done += 1;
            db.put(put_bytes, queue);
        }
    })
}

struct Database {
    order: KeyOrder,
    fresh: Fresh,
    rng: Seeded,
    next_file: u64,
    log: FileId,
    log_bytes: u64,
    manifest_edits: u64,
    levels: Vec<Vec<FileId>>,
}

impl Database {
    fn new(order: KeyOrder, seed: u64) -> Database {
        Database {
            order,
            fresh: Fresh::new(seed),
            rng: Seeded::new(seed),
            next_file: 0,
            log: MANIFEST,
            log_bytes: 0,
            manifest_edits: 0,
            levels: vec![Vec::new(); LEVELS],
        }
    }

    fn open(&mut self, queue: &mut VecDeque<Op>) {
        if self.next_file == 0 {
            self.make_file(queue);
            self.log = self.make_file(queue);
        }
    }

    fn make_file(&mut self, queue: &mut VecDeque<Op>) -> FileId {
        let id = FileId(self.next_file);
        self.next_file += 1;
        queue.push_back(Op::Create(id, DirectoryId(0)));
        id
    }

    fn put(&mut self, bytes: u64, queue: &mut VecDeque<Op>) {
        let filled = self.log_bytes / BLOCK_BYTES..(self.log_bytes + bytes) / BLOCK_BYTES;
        self.log_bytes += bytes;
        for block in filled {
            queue.push_back(Op::Write(self.log, block, self.fresh.content()));
        }
        if self.log_bytes >= MEMTABLE_BYTES {
            self.flush_memtable(queue);
        }
    }

    fn flush_memtable(&mut self, queue: &mut VecDeque<Op>) {
        let table = self.write_table(MEMTABLE_BYTES / BLOCK_BYTES, queue);
        self.levels[0].push(table);
        self.edit_manifest(queue);
        queue.push_back(Op::Delete(self.log));
        self.log = self.make_file(queue);
        self.log_bytes = 0;
        while let Some(level) = self.overfull() {
            self.compact(level, queue);
        }
    }

    fn write_table(&mut self, blocks: u64, queue: &mut VecDeque<Op>) -> FileId {
        let table = self.make_file(queue);
        queue.extend((0..blocks).map(|block| Op::Write(table, block, self.fresh.content())));
        queue.push_back(Op::Fsync(table));
        table
    }

    fn edit_manifest(&mut self, queue: &mut VecDeque<Op>) {
        // An edit is about 100 bytes: 40 of them share a block, which is written for each.
        let block = self.manifest_edits / 40;
        self.manifest_edits += 1;
        queue.extend([Op::Write(MANIFEST, block, self.fresh.content()), Op::Fsync(MANIFEST)]);
    }

    fn overfull(&self) -> Option<usize> {
        (0..LEVELS - 1).find(|level| {
            let capacity = match level {
                0 => LEVEL0_TABLES - 1,
                _ => LEVEL1_TABLES * LEVEL_GROWTH.pow(*level as u32 - 1),
            };
            self.levels[*level].len() > capacity
        })
    }

    /// Compacts level 0 as a whole, or one table of a lower level. A table there overlaps with its share of the level
    /// below: the number of tables per upper table, at most ten, and one more at each end.
    fn compact(&mut self, level: usize, queue: &mut VecDeque<Op>) {
        let count = if level == 0 { self.levels[0].len() } else { 1 };
        let at = self.rng.below((self.levels[level].len() - count + 1) as u64) as usize;
        let upper: Vec<FileId> = self.levels[level].drain(at..at + count).collect();
        if self.order == KeyOrder::Sequential {
            self.levels[level + 1].extend(upper);
            self.edit_manifest(queue);
            return;
        }
        let below = self.levels[level + 1].len();
        let share =
            if level == 0 { below } else { below.div_ceil(self.levels[level].len() + 1).min(LEVEL_GROWTH) };
        let overlap = if level == 0 { share } else { (share + 2).min(below) };
        let first = self.rng.below((below - overlap + 1) as u64) as usize;
        let lower: Vec<FileId> = self.levels[level + 1].drain(first..first + overlap).collect();
        let upper_blocks = if level == 0 { MEMTABLE_BYTES / BLOCK_BYTES } else { TABLE_BLOCKS };
        let inputs: Vec<_> = upper
            .iter()
            .map(|t| (*t, upper_blocks))
            .chain(lower.iter().map(|t| (*t, TABLE_BLOCKS)))
            .collect();
        for (table, blocks) in &inputs {
            queue.extend((0..*blocks).map(|block| Op::Read(*table, block)));
        }
        let outputs = inputs.iter().map(|(_, blocks)| blocks).sum::<u64>().div_ceil(TABLE_BLOCKS);
        for i in 0..outputs as usize {
            let table = self.write_table(TABLE_BLOCKS, queue);
            self.levels[level + 1].insert(first + i, table);
        }
        self.edit_manifest(queue);
        queue.extend(inputs.into_iter().map(|(table, _)| Op::Delete(table)));
    }
}
