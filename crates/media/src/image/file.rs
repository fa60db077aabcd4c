//! The file behind an image: what all dies share.
//!
//! 1. The block table and the counters are written only by sync, one sync at a time (the caller sees to it).
//! 2. The counters alternate between two slots, so that one is always whole.
//! 3. The block table reaches the file when everything programmed before is safe, and the counters say so when the
//!    table is, if a record of the NVRAM's journal waits for that: neither is ever ahead of the pages.

use super::format::{COUNTERS_OFFSETS, CountersSlot, ENTRY_BYTES, Layout, encode_entry};
use super::host::HostFile;
use super::journal::Journal;
use crate::nand::{Backing, Block, NvramBacking};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::{BlockAddr, FlashCounters, FlashError};

/// An image's file, open and locked.
pub(super) struct ImageFile {
    pub file: HostFile,
    pub layout: Layout,
    pub journal: Journal,
    /// The sequence of the counters written last.
    sequence: AtomicU64,
}

impl ImageFile {
    /// A file whose newest counters are these, and whose journal is empty from there on.
    pub fn new(file: HostFile, layout: Layout, newest: &CountersSlot) -> ImageFile {
        let journal = Journal::new(layout.journal, newest.journal_start, newest.synced);
        ImageFile { file, layout, journal, sequence: AtomicU64::new(newest.sequence) }
    }

    /// Where a block's stripe begins.
    pub fn stripe_offset(&self, block: BlockAddr) -> u64 {
        self.layout.stripes_offset + block.0 as u64 * self.layout.stripe_bytes
    }

    /// Where the record of a page is.
    pub fn record_offset(&self, block: BlockAddr, page: u32) -> u64 {
        self.stripe_offset(block)
            + self.layout.geometry.block_bytes()
            + page as u64 * self.layout.record_bytes() as u64
    }

    /// Empties the stripe of a block from `page` on.
    pub fn clear_pages(&self, block: BlockAddr, page: u32) -> Result<(), FlashError> {
        let geometry = &self.layout.geometry;
        let stripe = self.stripe_offset(block);
        let data = stripe + page as u64 * geometry.page_bytes as u64;
        let records = self.record_offset(block, page);
        let (data_end, end) = (stripe + geometry.block_bytes(), stripe + self.layout.stripe_bytes);
        let has_holes = self.file.punch(data, if page == 0 { end } else { data_end })?;
        if has_holes && page == 0 {
            return Ok(());
        }
        Ok(self.file.write_all_at(&vec![0; (end - records) as usize], records)?)
    }

    /// Writes the counters to the slot that is not the newest.
    pub fn write_counters(&self, counters: FlashCounters, clean: bool) -> io::Result<()> {
        let sequence = self.sequence.load(Relaxed) + 1;
        let (synced, journal_start) = (self.journal.synced(), self.journal.placed());
        let slot = CountersSlot { sequence, counters, clean, synced, journal_start };
        self.file.write_all_at(&slot.encode(), COUNTERS_OFFSETS[sequence as usize % 2])?;
        self.sequence.store(sequence, Relaxed);
        Ok(())
    }

    /// Writes the counters, and makes them and all before them safe.
    fn sync_counters(&self, counters: FlashCounters, clean: bool) -> io::Result<()> {
        let placed = self.journal.placed();
        self.write_counters(counters, clean)?;
        self.file.sync_data()?;
        self.journal.is_free_below(placed);
        Ok(())
    }

    /// Puts what the journal holds into the NVRAM's place, if it is time.
    fn empty_journal(&self, counters: FlashCounters, closing: bool) -> io::Result<()> {
        while self.journal.place(&self.file, closing)? {
            self.file.sync_data()?;
            self.sync_counters(counters, false)?;
            if self.journal.take_waiting(&self.file)? {
                self.file.sync_data()?;
            }
        }
        Ok(())
    }

    /// Writes the table entries of these blocks, neighbours together.
    pub fn write_entries(&self, mut blocks: Vec<(BlockAddr, Block)>) -> io::Result<()> {
        blocks.sort_unstable_by_key(|(address, _)| *address);
        for run in blocks.chunk_by(|(a, _), (b, _)| a.0 + 1 == b.0) {
            let bytes: Vec<u8> = run.iter().flat_map(|(_, block)| encode_entry(block)).collect();
            let BlockAddr(first) = run[0].0;
            for copy in 0..self.layout.table_copies {
                let table = self.layout.table_offset + copy * self.layout.table_bytes;
                self.file.write_all_at(&bytes, table + first as u64 * ENTRY_BYTES as u64)?;
            }
        }
        Ok(())
    }
}

/// What the device asks of its file.
pub(super) struct FileBacking(pub Arc<ImageFile>);

impl Backing for FileBacking {
    fn begin_sync(&self) {
        self.0.journal.begin_sync();
    }

    fn sync(
        &self,
        blocks: Vec<(BlockAddr, Block)>,
        counters: FlashCounters,
        closing: bool,
    ) -> Result<(), FlashError> {
        let (image, any) = (&self.0, !blocks.is_empty());
        if any {
            image.file.sync_data()?;
        }
        image.write_entries(blocks)?;
        if any && image.journal.needs_this_sync() {
            image.file.sync_data()?;
        }
        image.sync_counters(counters, false)?;
        image.empty_journal(counters, closing)?;
        if closing {
            image.sync_counters(counters, true)?;
        }
        Ok(())
    }
}

/// The NVRAM's place in the file.
pub(super) struct FileNvram(pub Arc<ImageFile>);

impl NvramBacking for FileNvram {
    fn write(&self, offset: usize, data: &[u8], apart: bool) -> Result<(), FlashError> {
        Ok(self.0.journal.write(&self.0.file, offset as u64, data, apart)?)
    }
}
