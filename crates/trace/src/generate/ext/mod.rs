//! A model of ext3/ext4 with a jbd2 journal: turns operations on files into requests with contents.
//!
//! Sources: jbd2 as measured on kernel 6.18 (home writes equal the last committed copy, descriptors are mostly zeros,
//! commit blocks have one line) and woj.txt, sections 2 and 3. Metadata blocks are coalesced per transaction. A commit
//! is descriptors and copies, a flush, a commit block with FUA; a checkpoint is home writes, a flush, the journal's
//! superblock. In [`DataMode::Ordered`] data are written home before the commit that needs them. Not modelled: revoke
//! records, fast commits, directory indexes, block groups other than a flex group.

mod journal;
mod layout;
mod metadata;
mod output;

use crate::content::Content;
use crate::request::{ByteLen, ByteOffset, Request};
use crate::source::RequestSource;
use crate::vtrace::JournalRange;
use journal::{Copy, Journal, Meanwhile};
use layout::Layout;
use metadata::Metadata;
use output::Output;
use std::collections::BTreeMap;
use vellum_base::hash::FixedMap;
use vellum_base::{Error, Nanos, Result, SECTOR_BYTES};

const BLOCK: u64 = SECTOR_BYTES as u64;
/// Pointers in an inode; below, in an indirect block.
const DIRECT_BLOCKS: u64 = 12;
const POINTERS: u64 = 1024;
/// How often blocks that are old enough to be written home are searched for.
const WRITE_BACK_INTERVAL: Nanos = Nanos::from_ms(5_000);
/// Entries of 40 bytes per directory block.
const ENTRIES: u64 = 100;

/// A file, by the workload's own number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// A directory, by the workload's own number. Directory 0 is the root, which always exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectoryId(pub u64);

/// An operation of an application. Its time is set by the model ([`Config::interval`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOperation {
    /// Create a directory in the root.
    MakeDirectory(DirectoryId),
    /// Create an empty file in a directory.
    Create(FileId, DirectoryId),
    /// Allocate blocks `0..n` of the file without writing them.
    Preallocate(FileId, u64),
    /// Write one 4 KiB block of the file: append, overwrite, or fill a hole.
    Write(FileId, u64, Content),
    /// Read one block of the file from the device; no request if it is not allocated.
    Read(FileId, u64),
    /// Make the file durable.
    Fsync(FileId),
    /// Make the file's data durable; metadata that only has timestamps may wait.
    Fdatasync(FileId),
    /// Remove the file.
    Delete(FileId),
}

/// What is written to the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataMode {
    /// `data=journal`: data and metadata.
    Journal,
    /// `data=ordered`: metadata; data are written home before the commit that needs them.
    Ordered,
}

/// The file system and its mount options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Size of the device, which the file system fills.
    pub device_bytes: ByteLen,
    /// Size of the journal.
    pub journal_bytes: ByteLen,
    /// Number of parts of the journal (ext4: 1; ext3: 5 as measured).
    pub journal_pieces: u64,
    /// What is written to the journal.
    pub mode: DataMode,
    /// ext3: a block of pointers for every 1024 blocks of a file; otherwise extents in the inode.
    pub indirect: bool,
    /// As in kernels since 2023 with `data=journal`: fsync writes the data home right after its commit.
    pub fsync_writes_home: bool,
    /// Several tasks use the file system: while one waits for its fsync, others continue.
    pub several_tasks: bool,
    /// Time between operations.
    pub interval: Nanos,
    /// Age at which a transaction is committed.
    pub commit_interval: Nanos,
    /// Age at which committed blocks are written home.
    pub write_back_age: Nanos,
    /// Seed for the contents of metadata.
    pub seed: u64,
}

impl Default for Config {
    /// As in the paper: ext3, `data=journal`, a journal of 256 MiB; a device of 16 GiB.
    fn default() -> Config {
        Config {
            device_bytes: ByteLen(16 << 30),
            journal_bytes: ByteLen(256 << 20),
            journal_pieces: 5,
            mode: DataMode::Journal,
            indirect: true,
            fsync_writes_home: false,
            several_tasks: false,
            interval: Nanos::from_us(50),
            commit_interval: Nanos::from_ms(5_000),
            write_back_age: Nanos::from_ms(30_000),
            seed: 1,
        }
    }
}

/// The requests of a workload on the modelled file system; at the end everything is written home (an unmount).
pub struct Ext<I> {
    operations: I,
    config: Config,
    layout: Layout,
    journal: Journal,
    metadata: Metadata,
    out: Output,
    time: Nanos,
    files: FixedMap<FileId, File>,
    directories: FixedMap<DirectoryId, Directory>,
    dirty: BTreeMap<u64, Content>,
    commits: u64,
    next_write_back: Nanos,
    ended: bool,
}

struct File {
    inode: u64,
    directory: DirectoryId,
    entry: u64,
    /// Runs of blocks, by the first block of the file in them: position on the device and length.
    runs: BTreeMap<u64, (u64, u64)>,
    maps: BTreeMap<u64, u64>,
    /// The transaction that last changed its map or length, which fdatasync must commit.
    grown_in: u64,
}

struct Directory {
    inode: u64,
    blocks: Vec<u64>,
    entries: u64,
    free: Vec<u64>,
}

impl<I: Iterator<Item = FileOperation>> Ext<I> {
    /// Runs `operations` on a fresh file system.
    pub fn new(config: Config, operations: I) -> Result<Ext<I>> {
        let journal_blocks = config.journal_bytes.0 / BLOCK;
        let layout = Layout::new(config.device_bytes.0 / BLOCK, journal_blocks, config.journal_pieces)?;
        let mut ext = Ext {
            operations,
            config,
            layout,
            journal: Journal::new(journal_blocks),
            metadata: Metadata::new(config.seed),
            out: Output::default(),
            time: Nanos::ZERO,
            files: FixedMap::default(),
            directories: FixedMap::default(),
            dirty: BTreeMap::new(),
            commits: 0,
            next_write_back: WRITE_BACK_INTERVAL,
            ended: false,
        };
        let root = Directory { inode: 2, blocks: vec![ext.take_block(0)?], entries: 0, free: Vec::new() };
        ext.directories.insert(DirectoryId::default(), root);
        Ok(ext)
    }

    /// Position of the journal, as a host may declare it to a device (WOJ's paper mode).
    pub fn journal_ranges(&self) -> Vec<JournalRange> {
        let range = |(i, (start, blocks)): (usize, &(u64, u64))| JournalRange {
            name: format!("jbd2-{i}"),
            offset: ByteOffset(start * BLOCK),
            length: ByteLen(blocks * BLOCK),
        };
        self.layout.journal().iter().enumerate().map(range).collect()
    }

    fn run(&mut self, operation: FileOperation) -> Result<()> {
        self.time += self.config.interval;
        match operation {
            FileOperation::MakeDirectory(id) => self.make_directory(id)?,
            FileOperation::Create(id, directory) => self.create(id, directory)?,
            FileOperation::Preallocate(id, blocks) => self.preallocate(id, blocks)?,
            FileOperation::Write(id, block, content) => self.write(id, block, content)?,
            FileOperation::Read(id, block) => {
                if let Some(place) = find(&self.file(id)?.runs, block) {
                    self.out.read(self.time, place);
                }
            }
            FileOperation::Fsync(id) => self.sync(id, false)?,
            FileOperation::Fdatasync(id) => self.sync(id, true)?,
            FileOperation::Delete(id) => self.delete(id)?,
        }
        self.housekeep();
        Ok(())
    }

    fn make_directory(&mut self, id: DirectoryId) -> Result<()> {
        if self.directories.contains_key(&id) {
            return Err(Error::invalid(format!("directory {} exists", id.0)));
        }
        self.add_entry(DirectoryId::default())?;
        let inode = self.take_inode(id.0)?;
        let block = self.take_block(id.0 % self.layout.groups() * layout::GROUP_BLOCKS)?;
        self.directories.insert(id, Directory { inode, blocks: vec![block], entries: 0, free: Vec::new() });
        let content = self.metadata.directory(block, 0);
        self.journal_metadata(block, content);
        Ok(())
    }

    fn create(&mut self, id: FileId, directory: DirectoryId) -> Result<()> {
        if self.files.contains_key(&id) {
            return Err(Error::invalid(format!("file {} exists", id.0)));
        }
        let entry = self.add_entry(directory)?;
        let inode = self.take_inode(directory.0)?;
        let file = File {
            inode,
            directory,
            entry,
            runs: BTreeMap::new(),
            maps: BTreeMap::new(),
            grown_in: self.commits,
        };
        self.files.insert(id, file);
        Ok(())
    }

    fn preallocate(&mut self, id: FileId, blocks: u64) -> Result<()> {
        for block in 0..blocks {
            self.place(id, block)?;
            if self.journal.is_full() {
                self.commit(Meanwhile::GoesOn);
            }
        }
        Ok(())
    }

    fn write(&mut self, id: FileId, block: u64, content: Content) -> Result<()> {
        let place = self.place(id, block)?;
        let inode = self.file(id)?.inode;
        self.change_inode(inode);
        match self.config.mode {
            DataMode::Journal => self.journal.add(self.time, place, Copy { content, is_data: true }),
            DataMode::Ordered => {
                self.dirty.insert(place, content);
            }
        }
        Ok(())
    }

    fn sync(&mut self, id: FileId, data_only: bool) -> Result<()> {
        let grown = self.file(id)?.grown_in == self.commits;
        if self.config.mode == DataMode::Ordered && data_only && !grown {
            self.write_dirty();
            self.out.flush(self.time);
            return Ok(());
        }
        let several = self.config.several_tasks;
        let data = self.commit(if several { Meanwhile::GoesOn } else { Meanwhile::Waits });
        if self.config.fsync_writes_home {
            self.journal.write_home(self.time, data, &mut self.out);
        }
        Ok(())
    }

    fn delete(&mut self, id: FileId) -> Result<()> {
        let file = self.files.remove(&id).ok_or_else(|| unknown(id))?;
        let directory = self.directories.get_mut(&file.directory).expect("a file's directory stays");
        directory.free.push(file.entry);
        let block = directory.blocks[(file.entry / ENTRIES) as usize];
        let content = self.metadata.directory(block, file.entry % ENTRIES);
        self.journal_metadata(block, content);
        let data = file.runs.values().flat_map(|(place, length)| *place..place + length);
        let freed: Vec<u64> = data.chain(file.maps.values().copied()).collect();
        let mut groups = std::collections::BTreeSet::new();
        for block in freed {
            self.layout.free_block(block);
            self.journal.forget(block);
            self.metadata.forget(block);
            self.dirty.remove(&block);
            groups.insert(block / layout::GROUP_BLOCKS);
        }
        for group in groups {
            self.change_block_bitmap(group);
            if self.journal.is_full() {
                self.commit(Meanwhile::GoesOn);
            }
        }
        self.layout.free_inode(file.inode);
        self.change_inode(file.inode);
        self.change_inode_bitmap(file.inode / layout::GROUP_INODES);
        Ok(())
    }

    /// The position of a block of a file; allocates it if necessary.
    fn place(&mut self, id: FileId, block: u64) -> Result<u64> {
        let groups = self.layout.groups();
        let file = self.file(id)?;
        if let Some(place) = find(&file.runs, block) {
            return Ok(place);
        }
        let home = file.directory.0 % groups * layout::GROUP_BLOCKS;
        let before = file.runs.range(..=block).next_back();
        let goal = before.map_or(home, |(first, (place, _))| place + (block - first));
        let place = self.take_block(goal)?;
        let commits = self.commits;
        let file = self.file(id)?;
        insert(&mut file.runs, block, place);
        file.grown_in = commits;
        let inode = file.inode;
        self.change_inode(inode);
        if self.config.indirect && block >= DIRECT_BLOCKS {
            self.map_block(
                id,
                (block - DIRECT_BLOCKS) / POINTERS,
                (block - DIRECT_BLOCKS) % POINTERS,
                place,
            )?;
        }
        Ok(place)
    }

    /// Records a pointer in the indirect block number `map` of a file.
    fn map_block(&mut self, id: FileId, map: u64, pointer: u64, near: u64) -> Result<()> {
        let block = match self.file(id)?.maps.get(&map) {
            Some(block) => *block,
            None => {
                let block = self.take_block(near + 1)?;
                self.file(id)?.maps.insert(map, block);
                block
            }
        };
        let content = self.metadata.map(block, pointer);
        self.journal_metadata(block, content);
        Ok(())
    }

    fn add_entry(&mut self, id: DirectoryId) -> Result<u64> {
        let no_directory = || Error::invalid(format!("there is no directory {}", id.0));
        let directory = self.directories.get_mut(&id).ok_or_else(no_directory)?;
        let inode = directory.inode;
        let entry = directory.free.pop().unwrap_or_else(|| {
            directory.entries += 1;
            directory.entries - 1
        });
        if entry / ENTRIES == directory.blocks.len() as u64 {
            let last = *directory.blocks.last().expect("a directory has a block");
            let block = self.take_block(last + 1)?;
            self.directories.get_mut(&id).ok_or_else(no_directory)?.blocks.push(block);
        }
        let block = self.directories[&id].blocks[(entry / ENTRIES) as usize];
        let content = self.metadata.directory(block, entry % ENTRIES);
        self.journal_metadata(block, content);
        self.change_inode(inode);
        Ok(entry)
    }

    fn take_block(&mut self, goal: u64) -> Result<u64> {
        let block = self.layout.take_block(goal)?;
        self.change_block_bitmap(block / layout::GROUP_BLOCKS);
        Ok(block)
    }

    fn take_inode(&mut self, group: u64) -> Result<u64> {
        let inode = self.layout.take_inode(group)?;
        self.change_inode_bitmap(inode / layout::GROUP_INODES);
        self.change_inode(inode);
        Ok(inode)
    }

    fn change_inode(&mut self, inode: u64) {
        let (block, place) = self.layout.inode(inode);
        let content = self.metadata.inode(block, place);
        self.journal_metadata(block, content);
    }

    fn change_block_bitmap(&mut self, group: u64) {
        let content = self.metadata.block_bitmap(&self.layout, group);
        self.journal_metadata(self.layout.block_bitmap(group), content);
        self.change_descriptor(group);
    }

    fn change_inode_bitmap(&mut self, group: u64) {
        let content = self.metadata.inode_bitmap(&self.layout, group);
        self.journal_metadata(self.layout.inode_bitmap(group), content);
        self.change_descriptor(group);
    }

    fn change_descriptor(&mut self, group: u64) {
        let (block, place) = self.layout.descriptor(group);
        let content = self.metadata.descriptor(block, place);
        self.journal_metadata(block, content);
    }

    fn journal_metadata(&mut self, block: u64, content: Content) {
        self.journal.add(self.time, block, Copy { content, is_data: false });
    }

    fn file(&mut self, id: FileId) -> Result<&mut File> {
        self.files.get_mut(&id).ok_or_else(|| unknown(id))
    }

    /// Background activity: commits a full or old transaction, and writes old blocks home.
    fn housekeep(&mut self) {
        const DIRTY_MAX: usize = 16_384;
        let began = self.journal.running_since().unwrap_or(self.time);
        let is_old = self.time.saturating_sub(began) >= self.config.commit_interval;
        if self.journal.is_full() || self.dirty.len() >= DIRTY_MAX || is_old {
            self.commit(Meanwhile::GoesOn);
        }
        if self.time >= self.next_write_back {
            self.next_write_back = self.time + WRITE_BACK_INTERVAL;
            let before = self.time.saturating_sub(self.config.write_back_age);
            self.journal.write_back(self.time, before, &mut self.out);
        }
    }

    fn write_dirty(&mut self) {
        self.out.write(self.time, std::mem::take(&mut self.dirty), false);
    }

    /// Writes ordered data first, then the transaction.
    fn commit(&mut self, meanwhile: Meanwhile) -> Vec<u64> {
        self.write_dirty();
        self.commits += 1;
        self.journal.commit(self.time, meanwhile, &self.layout, &mut self.out)
    }

    fn unmount(&mut self) {
        self.commit(Meanwhile::Waits);
        self.journal.empty(self.time, &self.layout, &mut self.out);
        self.out.flush(self.time);
    }
}

impl<I: Iterator<Item = FileOperation>> Iterator for Ext<I> {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Result<Request>> {
        loop {
            if let Some(request) = self.out.pop() {
                return Some(Ok(request));
            }
            if self.ended {
                return None;
            }
            match self.operations.next() {
                None => {
                    self.ended = true;
                    self.unmount();
                }
                Some(operation) => {
                    if let Err(error) = self.run(operation) {
                        self.ended = true;
                        return Some(Err(error));
                    }
                }
            }
        }
    }
}

impl<I: Iterator<Item = FileOperation> + Send> RequestSource for Ext<I> {
    fn device_bytes(&self) -> Option<ByteLen> {
        Some(self.config.device_bytes)
    }
}

fn unknown(id: FileId) -> Error {
    Error::invalid(format!("there is no file {}", id.0))
}

fn find(runs: &BTreeMap<u64, (u64, u64)>, block: u64) -> Option<u64> {
    let (first, (place, length)) = runs.range(..=block).next_back()?;
    (block - first < *length).then(|| place + (block - first))
}

/// Adds one block; extends the preceding run if the block continues it.
fn insert(runs: &mut BTreeMap<u64, (u64, u64)>, block: u64, place: u64) {
    if let Some((first, (start, length))) = runs.range_mut(..=block).next_back()
        && block == first + *length
        && place == *start + *length
    {
        *length += 1;
        return;
    }
    runs.insert(block, (place, 1));
}
