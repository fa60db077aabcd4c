//! Stores of the pages of one die. The rules are checked before a store is called.

use super::block::Block;
use super::content::{PageContent, Piece};
use super::ram::RamBlock;
use vellum_base::FlashError;

/// Stores the bytes of the pages of one die. Blocks are numbered within the die.
///
/// The caller makes only calls that the rules allow: it appends at the next page, and reads pages it appended.
pub(crate) trait PageStore: Send {
    /// Stores `pages` from page `first` of a block on. All or (as far as can be observed) none.
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

    /// Copies the slots from `slot` of a page on into `out`.
    fn fetch(&mut self, block: u32, page: u32, slot: usize, out: &mut [Piece<'_>]) -> Result<(), FlashError>;

    /// Announces that slots from `slot` of a page on will be fetched soon: overlapping cache misses cost little more
    /// than one.
    fn expect_fetch(&self, _block: u32, _page: u32, _slot: usize, _slots: usize) {}

    /// Drops a block's pages. Returns them, if the store can and the caller wants them (`keep`).
    fn erase(&mut self, block: u32, keep: bool) -> Result<Option<Box<RamBlock>>, FlashError>;

    /// Restores what [`PageStore::erase`] returned.
    fn restore(&mut self, block: u32, content: Box<RamBlock>);

    /// Drops the pages from `pages` on.
    fn truncate(&mut self, block: u32, pages: u32) -> Result<(), FlashError>;

    /// Replaces a page that was appended before: for faults only, no engine can do it.
    fn overwrite(&mut self, block: u32, page: u32, content: &PageContent<'_>) -> Result<(), FlashError>;

    /// Records that a page is unreadable, if the store outlives the process.
    fn spoil(&mut self, _block: u32, _page: u32) -> Result<(), FlashError> {
        Ok(())
    }

    /// The unreadable pages among the first `pages` of a block that was reopened.
    fn find_unreadable(&mut self, _block: u32, _pages: u32) -> Result<Vec<u32>, FlashError> {
        Ok(Vec::new())
    }

    /// Writes out data buffered in memory for the dirty ones among the die's `blocks`.
    fn flush(&mut self, _blocks: &[Block]) -> Result<(), FlashError> {
        Ok(())
    }

    /// An independent copy, if the store supports it.
    fn fork(&self) -> Option<Box<dyn PageStore>>;
}
