//! The file of an image, shared by all dies.
//!
//! 1. Only sync writes the block table, and the caller ensures that there is one sync at a time. The counters are
//!    written under the lock of the newest: by a sync, or by a write to the NVRAM that does not fit into the journal.
//! 2. The counters alternate between two slots, so that one is always intact.
//! 3. The block table is written once everything programmed before is durable. The counters, which decide what records
//!    of the NVRAM's journal count, are written once the table is durable. So neither is ever ahead of the pages.

use super::format::{COUNTERS_OFFSETS, CountersSlot, ENTRY_BYTES, Layout, encode_entry};
use super::host::HostFile;
use super::journal::Journal;
use crate::nand::{Backing, Block, NvramBacking};
use std::io;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{BlockAddr, FlashCounters, FlashError};

/// The file of an open image, locked.
pub(super) struct ImageFile {
    pub file: HostFile,
    pub layout: Layout,
    pub journal: Journal,
    newest: Mutex<Newest>,
}

/// The counters written last.
struct Newest {
    sequence: u64,
    counters: FlashCounters,
    /// The number of the last completed sync.
    synced: u64,
    /// A write or a sync has failed: then nothing is written any more.
    has_failed: bool,
}

impl Newest {
    /// Runs `run` unless a write has failed before; remembers if it fails.
    fn unless_failed<T>(&mut self, run: impl FnOnce(&mut Newest) -> io::Result<T>) -> io::Result<T> {
        if self.has_failed {
            return Err(io::Error::other("an earlier write or sync of the image failed"));
        }
        run(self).inspect_err(|_| self.has_failed = true)
    }
}

impl ImageFile {
    /// A file with these newest counters, whose journal is empty from there on.
    pub fn new(file: HostFile, layout: Layout, newest: &CountersSlot) -> ImageFile {
        let &CountersSlot { sequence, counters, synced, journal_start, .. } = newest;
        let journal = Journal::new(layout.journal, journal_start, synced);
        ImageFile {
            file,
            layout,
            journal,
            newest: Mutex::new(Newest { sequence, counters, synced, has_failed: false }),
        }
    }

    /// The offset of a block's stripe.
    pub fn stripe_offset(&self, block: BlockAddr) -> u64 {
        self.layout.stripes_offset + block.0 as u64 * self.layout.stripe_bytes
    }

    /// The offset of a page's record.
    pub fn record_offset(&self, block: BlockAddr, page: u32) -> u64 {
        self.stripe_offset(block)
            + self.layout.geometry.block_bytes()
            + page as u64 * self.layout.record_bytes() as u64
    }

    /// Clears the stripe of a block from `page` on.
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

    /// Writes the newest counters to the older slot.
    pub fn write_counters(&self, clean: bool) -> io::Result<()> {
        self.write_newest(&mut self.newest.lock(), clean)
    }

    fn write_newest(&self, newest: &mut Newest, clean: bool) -> io::Result<()> {
        let Newest { sequence, counters, synced, .. } = *newest;
        let (sequence, (journal_start, journal_safe)) = (sequence + 1, self.journal.placed_and_safe());
        let synced = if self.layout.journal.bytes > 0 { synced } else { 0 };
        let slot = CountersSlot { sequence, counters, clean, synced, journal_start, journal_safe };
        self.file.write_all_at(&slot.encode(), COUNTERS_OFFSETS[sequence as usize % 2])?;
        newest.sequence = sequence;
        Ok(())
    }

    /// The same, and makes the counters and everything written before durable.
    fn sync_newest(&self, newest: &mut Newest, clean: bool) -> io::Result<()> {
        self.write_newest(newest, clean)?;
        self.file.sync_data()?;
        self.journal.free_placed();
        Ok(())
    }

    /// Copies marked records of the journal to their place in the NVRAM: with `all`, or when it is due. True if there
    /// was work to do.
    fn empty_journal(&self, newest: &mut Newest, all: bool) -> io::Result<bool> {
        let mut any = false;
        loop {
            let is_placed = self.journal.place(&self.file, newest.synced, all)?;
            if is_placed {
                self.file.sync_data()?;
                self.sync_newest(newest, false)?;
            }
            // There may be room already: others have placed the records that were in the way.
            let is_taken = self.journal.take_waiting(&self.file)?;
            if is_taken {
                self.file.sync_data()?;
            }
            if !is_placed && !is_taken {
                return Ok(any);
            }
            any = true;
        }
    }

    /// Empties the journal between two syncs, as far as its records count. True if that made room.
    fn make_room(&self) -> io::Result<bool> {
        self.newest.lock().unless_failed(|newest| {
            self.journal.mark();
            let marked = self.journal.marked();
            self.file.sync_data()?;
            self.journal.saved(marked, newest.synced);
            self.empty_journal(newest, true)
        })
    }

    /// Makes block states, counters and everything written before durable.
    fn sync(
        &self,
        newest: &mut Newest,
        blocks: Vec<(BlockAddr, Block)>,
        counters: FlashCounters,
        closing: bool,
    ) -> io::Result<()> {
        let (any, marked) = (!blocks.is_empty(), self.journal.marked());
        if any {
            self.file.sync_data()?;
        }
        self.write_entries(blocks)?;
        if any && self.layout.journal.bytes > 0 {
            self.file.sync_data()?;
        }
        (newest.counters, newest.synced) = (counters, self.journal.begun());
        if any {
            self.journal.saved(marked, newest.synced);
        }
        self.sync_newest(newest, false)?;
        self.journal.saved(marked, newest.synced);
        self.empty_journal(newest, closing)?;
        if closing {
            self.sync_newest(newest, true)?;
        }
        Ok(())
    }

    /// Writes the table entries of these blocks, adjacent ones in one call.
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

/// The file as the backing of the simulated device.
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
        let synced =
            self.0.newest.lock().unless_failed(|newest| self.0.sync(newest, blocks, counters, closing));
        Ok(synced?)
    }
}

/// The file as the backing of the NVRAM.
pub(super) struct FileNvram(pub Arc<ImageFile>);

impl NvramBacking for FileNvram {
    fn write(&self, offset: usize, data: &[u8], apart: bool) -> Result<(), FlashError> {
        let (image, offset) = (&self.0, offset as u64);
        let append =
            |taken: usize| image.journal.append(&image.file, offset + taken as u64, &data[taken..], apart);
        let mut taken = append(0)?;
        while taken < data.len() && !image.journal.is_waiting() && image.make_room()? {
            taken += append(taken)?;
        }
        match taken < data.len() {
            true => {
                Ok(image.journal.append_or_wait(&image.file, offset + taken as u64, &data[taken..], apart)?)
            }
            false => Ok(()),
        }
    }
}
