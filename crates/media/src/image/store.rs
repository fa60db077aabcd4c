//! The pages of one die in an image.
//!
//! 1. Data is written to the file at once. Records (mark and out-of-band bytes) of a block's latest pages are buffered
//!    in memory until 4 KiB have accumulated, or until a sync.
//! 2. After an unclean shutdown a block's stripe may hold pages beyond those counted in the table. They are cleared
//!    before the block is programmed again, so that none of them can reappear.

use super::file::ImageFile;
use super::format::UNIT;
use super::mark::Marks;
use crate::nand::{Block, PageContent, PageStore, Piece, RamBlock};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use vellum_base::{BlockAddr, FlashError, SECTOR_BYTES};

/// The pages of a die.
pub(super) struct FileStore {
    image: Arc<ImageFile>,
    die: u32,
    /// Buffered records by block.
    waiting: BTreeMap<u32, Records>,
    /// Erase count of each block: a record from before its last erase, or from an erase count that no sync has seen,
    /// does not count.
    erase_counts: Vec<u32>,
    /// Blocks whose stripe may hold more pages than the table counts.
    uncleared: Vec<bool>,
}

/// Records of the pages from `first` on.
struct Records {
    first: u32,
    bytes: Vec<u8>,
}

impl FileStore {
    /// The pages of die `die`, whose blocks are as in the table. `clean` if the image was closed properly.
    pub fn new(image: Arc<ImageFile>, die: u32, blocks: &[Block], clean: bool) -> FileStore {
        let uncleared = if clean { Vec::new() } else { vec![true; blocks.len()] };
        let erase_counts = blocks.iter().map(|block| block.erase_count).collect();
        FileStore { image, die, waiting: BTreeMap::new(), erase_counts, uncleared }
    }

    fn address(&self, block: u32) -> BlockAddr {
        self.image.layout.geometry.block_on(self.die, block)
    }

    fn page_offset(&self, block: u32, page: u32) -> u64 {
        let page_bytes = self.image.layout.geometry.page_bytes as u64;
        self.image.stripe_offset(self.address(block)) + page as u64 * page_bytes
    }

    fn is_uncleared(&mut self, block: u32) -> bool {
        self.uncleared.get_mut(block as usize).is_some_and(std::mem::take)
    }

    fn write_pages(&self, block: u32, first: u32, pages: &[PageContent<'_>]) -> io::Result<()> {
        let sectors: Vec<&[u8]> =
            pages.iter().flat_map(PageContent::pieces).filter_map(Piece::as_bytes).collect();
        let slots = self.image.layout.geometry.slots_per_page() as usize;
        if sectors.len() == pages.len() * slots {
            return self.image.file.write_parts_at(&sectors, self.page_offset(block, first));
        }
        let bytes: Vec<u8> = pages.iter().flat_map(PageContent::to_bytes).collect();
        self.image.file.write_all_at(&bytes, self.page_offset(block, first))
    }

    /// Appends the record of a page to `records`.
    fn add_record(&self, block: u32, content: &PageContent<'_>, records: &mut Vec<u8>) {
        let marks = self.marks();
        let mark = match content.readable {
            true => marks.programmed(self.erase_counts[block as usize]),
            false => marks.torn(),
        };
        let end = records.len() + self.image.layout.record_bytes();
        records.extend_from_slice(&mark[..marks.bytes()]);
        records.extend_from_slice(content.oob);
        records.resize(end, 0);
    }

    fn marks(&self) -> Marks {
        self.image.layout.marks
    }

    /// The buffered record of a page, if it has one.
    fn waiting_record(&mut self, block: u32, page: u32) -> Option<&mut [u8]> {
        let bytes = self.image.layout.record_bytes();
        let records = self.waiting.get_mut(&block)?;
        let index = page.checked_sub(records.first)? as usize;
        records.bytes.chunks_exact_mut(bytes).nth(index)
    }

    fn write_records(&mut self, block: u32) -> io::Result<()> {
        let Some(records) = self.waiting.remove(&block) else { return Ok(()) };
        let offset = self.image.record_offset(self.address(block), records.first);
        self.image.file.write_all_at(&records.bytes, offset)
    }
}

impl PageStore for FileStore {
    fn append(&mut self, block: u32, first: u32, pages: &[PageContent<'_>]) -> Result<(), FlashError> {
        self.image.journal.pages_change();
        if self.is_uncleared(block) {
            self.image.clear_pages(self.address(block), first)?;
        }
        self.write_pages(block, first, pages)?;
        let mut new = Vec::with_capacity(pages.len() * self.image.layout.record_bytes());
        pages.iter().for_each(|page| self.add_record(block, page, &mut new));
        let records = self.waiting.entry(block).or_insert(Records { first, bytes: Vec::new() });
        records.bytes.extend_from_slice(&new);
        if records.bytes.len() >= UNIT {
            self.write_records(block)?;
        }
        Ok(())
    }

    fn read(
        &mut self,
        block: u32,
        page: u32,
        offset: usize,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<(), FlashError> {
        self.image.file.read_exact_at(data, self.page_offset(block, page) + offset as u64)?;
        if oob.is_empty() {
            return Ok(());
        }
        let mark_bytes = self.marks().bytes();
        match self.waiting_record(block, page) {
            Some(record) => oob.copy_from_slice(&record[mark_bytes..]),
            None => {
                let offset = self.image.record_offset(self.address(block), page);
                self.image.file.read_exact_at(oob, offset + mark_bytes as u64)?;
            }
        }
        Ok(())
    }

    fn fetch(&mut self, block: u32, page: u32, slot: usize, out: &mut [Piece<'_>]) -> Result<(), FlashError> {
        let mut bytes = vec![0; out.len() * SECTOR_BYTES];
        self.read(block, page, slot * SECTOR_BYTES, &mut bytes, &mut [])?;
        for (piece, sector) in out.iter_mut().zip(bytes.chunks_exact(SECTOR_BYTES)) {
            *piece = Piece::Shared(Arc::from(sector));
        }
        Ok(())
    }

    fn erase(&mut self, block: u32, _keep: bool) -> Result<Option<Box<RamBlock>>, FlashError> {
        self.image.journal.pages_change();
        self.waiting.remove(&block);
        self.is_uncleared(block);
        self.image.clear_pages(self.address(block), 0)?;
        self.erase_counts[block as usize] = self.erase_counts[block as usize].wrapping_add(1);
        Ok(None)
    }

    fn restore(&mut self, _block: u32, _content: Box<RamBlock>) {
        unreachable!("erase returned nothing to restore");
    }

    fn truncate(&mut self, block: u32, pages: u32) -> Result<(), FlashError> {
        self.image.journal.pages_change();
        self.write_records(block)?;
        self.image.clear_pages(self.address(block), pages)
    }

    fn overwrite(&mut self, block: u32, page: u32, content: &PageContent<'_>) -> Result<(), FlashError> {
        self.image.journal.pages_change();
        self.write_pages(block, page, std::slice::from_ref(content))?;
        let mut new = Vec::new();
        self.add_record(block, content, &mut new);
        match self.waiting_record(block, page) {
            Some(record) => record.copy_from_slice(&new),
            None => {
                let offset = self.image.record_offset(self.address(block), page);
                self.image.file.write_all_at(&new, offset)?;
            }
        }
        Ok(())
    }

    fn spoil(&mut self, block: u32, page: u32) -> Result<(), FlashError> {
        self.image.journal.pages_change();
        let marks = self.marks();
        let torn = &marks.torn()[..marks.bytes()];
        match self.waiting_record(block, page) {
            Some(record) => record[..torn.len()].copy_from_slice(torn),
            None => {
                let offset = self.image.record_offset(self.address(block), page);
                self.image.file.write_all_at(torn, offset)?;
            }
        }
        Ok(())
    }

    fn find_unreadable(&mut self, block: u32, pages: u32) -> Result<Vec<u32>, FlashError> {
        self.write_records(block)?;
        let record_bytes = self.image.layout.record_bytes();
        let mut records = vec![0; pages as usize * record_bytes];
        self.image.file.read_exact_at(&mut records, self.image.record_offset(self.address(block), 0))?;
        let (marks, erase_count) = (self.marks(), self.erase_counts[block as usize]);
        let is_lost = |record: &[u8]| !marks.is_programmed(&record[..marks.bytes()], erase_count);
        let records = (0..pages).zip(records.chunks_exact(record_bytes));
        Ok(records.filter(|(_, record)| is_lost(record)).map(|(page, _)| page).collect())
    }

    fn flush(&mut self, _blocks: &[Block]) -> Result<(), FlashError> {
        while let Some((&block, _)) = self.waiting.first_key_value() {
            self.write_records(block)?;
        }
        Ok(())
    }

    fn fork(&self) -> Option<Box<dyn PageStore>> {
        None
    }
}
