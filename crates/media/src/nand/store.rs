//! Where the pages of one die are kept. The rules are checked before a store is asked.

use super::block::Block;
use super::content::{PageContent, Piece};
use super::ram::RamBlock;
use vellum_base::FlashError;

/// Keeps the bytes of the pages of one die. Blocks are numbered within the die.
///
/// The caller asks only for what the rules allow: it appends at the next page, and reads pages it appended.
pub(crate) trait PageStore: Send {
    /// Keeps `pages` from page `first` of a block on. All or (as far as anyone may know) none.
    fn append(&mut self, block: u32, first: u32, pages: &[PageContent<'_>]) -> Result<(), FlashError>;

    /// Reads from `offset` of a page, and its out-of-band bytes if `oob` is not empty.
    fn read(
        &mut self,
        block: u32,
        page: u32,
        offset: usize,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<(), FlashError>;

    /// Takes the slots from `slot` of a page on into `out`.
    fn fetch(&mut self, block: u32, page: u32, slot: usize, out: &mut [Piece<'_>]) -> Result<(), FlashError>;

    /// Slots from `slot` of a page on will be fetched soon: many cache misses at a time cost little more than one.
    fn expect_fetch(&self, _block: u32, _page: u32, _slot: usize, _slots: usize) {}

    /// Forgets a block's pages. Returns them, if the store can and the caller wants them (`keep`).
    fn erase(&mut self, block: u32, keep: bool) -> Result<Option<Box<RamBlock>>, FlashError>;

    /// Puts back what [`PageStore::erase`] returned.
    fn restore(&mut self, block: u32, content: Box<RamBlock>);

    /// Forgets the pages from `pages` on.
    fn truncate(&mut self, block: u32, pages: u32) -> Result<(), FlashError>;

    /// Replaces a page that was appended before: what faults do, and no engine can.
    fn overwrite(&mut self, block: u32, page: u32, content: &PageContent<'_>) -> Result<(), FlashError>;

    /// Remembers that a page cannot be read, where the store outlives the process.
    fn spoil(&mut self, _block: u32, _page: u32) -> Result<(), FlashError> {
        Ok(())
    }

    /// The unreadable pages among the first `pages` of a block that was there before this run.
    fn find_unreadable(&mut self, _block: u32, _pages: u32) -> Result<Vec<u32>, FlashError> {
        Ok(Vec::new())
    }

    /// Writes out what is held back in memory for the dirty ones among the die's `blocks`.
    fn flush(&mut self, _blocks: &[Block]) -> Result<(), FlashError> {
        Ok(())
    }

    /// A copy that goes its own way, where the store can.
    fn fork(&self) -> Option<Box<dyn PageStore>>;
}
