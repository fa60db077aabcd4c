//! The file behind an image: what all dies share.
//!
//! 1. The block table is written only by sync, one sync at a time (the caller sees to it); the counters by whoever
//!    holds the lock on the newest: a sync, or a write to the NVRAM that its journal has no room for.
//! 2. The counters alternate between two slots, so that one is always whole.
//! 3. The block table reaches the file when everything programmed before is safe, and the counters, by which records
//!    of the NVRAM's journal count, when the table is: neither is ever ahead of the pages.

use super::format::{COUNTERS_OFFSETS, CountersSlot, ENTRY_BYTES, Layout, encode_entry};
use super::host::HostFile;
use super::journal::Journal;
use crate::nand::{Backing, Block, NvramBacking};
use std::io;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{BlockAddr, FlashCounters, FlashError};

/// An image's file, open and locked.
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
    /// The number of the last sync that is done.
    synced: u64,
    /// Something was not written, or not synced: then nothing is any more.
    has_failed: bool,
}

impl Newest {
    /// Does it, unless something has failed, or does now.
    fn unless_failed<T>(&mut self, run: impl FnOnce(&mut Newest) -> io::Result<T>) -> io::Result<T> {
        if self.has_failed {
            return Err(io::Error::other("an earlier write or sync of the image failed"));
        }
        run(self).inspect_err(|_| self.has_failed = true)
    }
}

impl ImageFile {
    /// A file whose newest counters are these, and whose journal is empty from there on.
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

    /// Writes the newest counters to the slot that is not the newest.
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

    /// The same, and makes them and all before them safe.
    fn sync_newest(&self, newest: &mut Newest, clean: bool) -> io::Result<()> {
        self.write_newest(newest, clean)?;
        self.file.sync_data()?;
        self.journal.free_placed();
        Ok(())
    }

    /// Puts what is marked in the journal into the NVRAM's place: `all`, or if it is time.
    /// True if there was something.
    fn empty_journal(&self, newest: &mut Newest, all: bool) -> io::Result<bool> {
        let mut any = false;
        loop {
            let is_placed = self.journal.place(&self.file, newest.synced, all)?;
            if is_placed {
                self.file.sync_data()?;
                self.sync_newest(newest, false)?;
            }
            // There may be room for it already: others placed what was in its way.
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

    /// Empties the journal between two syncs, as far as it counts. True if there is more room now.
    fn make_room(&self) -> io::Result<bool> {
        self.newest.lock().unless_failed(|newest| {
            self.journal.mark();
            let marked = self.journal.marked();
            self.file.sync_data()?;
            self.journal.saved(marked, newest.synced);
            self.empty_journal(newest, true)
        })
    }

    /// Makes block states, counters and all written before safe.
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
        let synced =
            self.0.newest.lock().unless_failed(|newest| self.0.sync(newest, blocks, counters, closing));
        Ok(synced?)
    }
}

/// The NVRAM's place in the file.
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
