//! The file behind an image: what all dies share.
//!
//! 1. The block table and the counters are written only by sync, one sync at a time (the caller sees to it).
//! 2. The counters alternate between two slots, so that one is always whole.
//! 3. The block table, the counters and NVRAM writes reach the file in the second half of a sync, when everything
//!    programmed before is safe: neither the table nor the NVRAM is ever ahead of the pages.

use super::format::{COUNTERS_OFFSETS, CountersSlot, ENTRY_BYTES, Layout, NVRAM_OFFSET, encode_entry};
use super::host::HostFile;
use crate::nand::{Backing, Block, NvramBacking};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::sync::Mutex;
use vellum_base::{BlockAddr, FlashCounters, FlashError};

/// An image's file, open and locked.
pub(super) struct ImageFile {
    pub file: HostFile,
    pub layout: Layout,
    /// The sequence of the counters written last.
    sequence: AtomicU64,
    nvram: Mutex<PendingNvram>,
}

/// NVRAM writes, offset and bytes, that have not reached the file.
#[derive(Default)]
struct PendingNvram {
    /// Since the sync began that is under way.
    later: Vec<(usize, Vec<u8>)>,
    /// For the sync that is under way, or for the next try if it failed.
    now: Vec<(usize, Vec<u8>)>,
}

impl ImageFile {
    /// A file whose newest counters have this sequence.
    pub fn new(file: HostFile, layout: Layout, sequence: u64) -> ImageFile {
        ImageFile { file, layout, sequence: AtomicU64::new(sequence), nvram: Mutex::default() }
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
        let slot = CountersSlot { sequence, counters, clean };
        self.file.write_all_at(&slot.encode(), COUNTERS_OFFSETS[sequence as usize % 2])?;
        self.sequence.store(sequence, Relaxed);
        Ok(())
    }

    /// Writes what the NVRAM held when the sync began, with all else that is not safe yet. One write to the NVRAM at a
    /// time, so that a crash tears one of them at most.
    fn sync_nvram(&self) -> io::Result<()> {
        let mut pending = std::mem::take(&mut self.nvram.lock().now).into_iter();
        let mut next = pending.next();
        loop {
            if let Some((offset, data)) = next {
                self.file.write_all_at(&data, NVRAM_OFFSET + offset as u64)?;
            }
            self.file.sync_data()?;
            next = pending.next();
            if next.is_none() {
                return Ok(());
            }
        }
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
        let mut nvram = self.0.nvram.lock();
        let later = std::mem::take(&mut nvram.later);
        nvram.now.extend(later);
    }

    fn sync(
        &self,
        blocks: Vec<(BlockAddr, Block)>,
        counters: FlashCounters,
        closing: bool,
    ) -> Result<(), FlashError> {
        if !blocks.is_empty() {
            self.0.file.sync_data()?;
        }
        self.0.write_entries(blocks)?;
        self.0.write_counters(counters, false)?;
        self.0.sync_nvram()?;
        if closing {
            self.0.write_counters(counters, true)?;
            self.0.file.sync_data()?;
        }
        Ok(())
    }
}

/// The NVRAM's place in the file.
pub(super) struct FileNvram(pub Arc<ImageFile>);

impl NvramBacking for FileNvram {
    fn write(&self, offset: usize, data: &[u8]) -> Result<(), FlashError> {
        let mut nvram = self.0.nvram.lock();
        nvram.later.retain(|(at, old)| (*at, old.len()) != (offset, data.len()));
        nvram.later.push((offset, data.to_vec()));
        Ok(())
    }
}
