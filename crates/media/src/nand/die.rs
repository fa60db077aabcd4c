//! One die: its blocks, the store of their pages, its counters. Enforces the rules of [`vellum_base::Flash`].

use super::alike::Neighbourhood;
use super::block::Block;
use super::content::{PageContent, Piece};
use super::dice::roll;
use super::ecc::CODEWORD_BYTES;
use super::ram::RamBlock;
use super::store::PageStore;
use super::{Chances, NandParams};
use std::collections::VecDeque;
use vellum_base::{BlockAddr, FlashCounters, FlashError, Geometry, PageAddr};

/// Constants shared by all dies.
pub(crate) struct Rules {
    pub geometry: Geometry,
    pub params: NandParams,
    pub chances: Chances,
}

/// A block before an erase that may yet turn out not to have begun.
pub(crate) struct Erased {
    pub block: Block,
    pub content: Option<Box<RamBlock>>,
}

/// One die. Blocks are numbered within it.
pub(crate) struct Die {
    pub number: u32,
    pub blocks: Vec<Block>,
    pub store: Box<dyn PageStore>,
    pub counters: FlashCounters,
    /// The latest erases, oldest first.
    pub erased: VecDeque<(u32, Erased)>,
}

impl Die {
    /// A die in the given state.
    pub fn new(number: u32, blocks: Vec<Block>, store: Box<dyn PageStore>) -> Die {
        Die { number, blocks, store, counters: FlashCounters::default(), erased: VecDeque::new() }
    }

    /// The device-wide address of a block.
    pub fn address(&self, rules: &Rules, block: u32) -> BlockAddr {
        rules.geometry.block_on(self.number, block)
    }

    /// Programs `pages` from page `first` of a block on. On failure, returns how many were programmed.
    #[inline]
    pub fn program(
        &mut self,
        rules: &Rules,
        block: u32,
        first: u32,
        pages: &mut [PageContent<'_>],
    ) -> Result<(), (usize, FlashError)> {
        let (admitted, refused) = self.admit(rules, block, first, pages);
        if admitted > 0
            && let Err(error) = self.store.append(block, first, &pages[..admitted])
        {
            let state = &mut self.blocks[block as usize];
            (first..first + admitted as u32).for_each(|page| state.set_unreadable(page));
            // However many the host stored, none counts: the caller records none of them.
            self.counters.pages_programmed -= admitted as u64;
            return Err((0, error));
        }
        match refused {
            None => Ok(()),
            Some((done, error)) => Err((done, error)),
        }
    }

    /// Applies the rules to each page in turn. Returns how many are to be stored, and the first failure with the number
    /// of pages that succeeded before it. A page that fails to program is stored as unreadable.
    #[inline]
    fn admit(
        &mut self,
        rules: &Rules,
        block: u32,
        first: u32,
        pages: &mut [PageContent<'_>],
    ) -> (usize, Option<(usize, FlashError)>) {
        let address = rules.geometry.block_on(self.number, block);
        let state = &mut self.blocks[block as usize];
        for (i, content) in pages.iter_mut().enumerate() {
            let page = first + i as u32;
            if page != state.pages_written || page >= rules.geometry.pages_per_block {
                return (i, Some((i, out_of_order(address.page(page), state.pages_written))));
            }
            self.counters.pages_programmed += 1;
            if state.bad {
                self.counters.program_failures += 1;
                return (i, Some((i, FlashError::ProgramFailed(address.page(page)))));
            }
            state.pages_written += 1;
            state.dirty = true;
            if !content.readable {
                state.set_unreadable(page);
            }
            if rules.program_fails(address.page(page), state.erase_count) {
                self.counters.program_failures += 1;
                state.bad = true;
                state.set_unreadable(page);
                content.readable = false;
                return (i + 1, Some((i, FlashError::ProgramFailed(address.page(page)))));
            }
        }
        (pages.len(), None)
    }

    /// Programs a page, with a failure: the block is bad from now on.
    pub fn fail_program(&mut self, rules: &Rules, block: u32, page: u32) -> FlashError {
        let mut content = PageContent::zeros(rules.geometry.slots_per_page() as usize, &[]);
        content.readable = false;
        match self.program(rules, block, page, std::slice::from_mut(&mut content)) {
            Err((_, error)) => error,
            Ok(()) => {
                self.counters.program_failures += 1;
                self.blocks[block as usize].bad = true;
                FlashError::ProgramFailed(self.address(rules, block).page(page))
            }
        }
    }

    /// Reads; returns the most bits corrected in one codeword.
    #[inline]
    pub fn read(
        &mut self,
        rules: &Rules,
        block: u32,
        page: u32,
        offset: usize,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<u32, FlashError> {
        self.counters.pages_read += 1;
        if page >= self.blocks[block as usize].pages_written {
            data.fill(0xFF);
            oob.fill(0xFF);
            return Ok(0);
        }
        let bits = self.correct(rules, block, page, offset, data.len())?;
        self.store.read(block, page, offset, data, oob)?;
        Ok(bits)
    }

    /// Fetches slots of a page for a copy; returns the most bits corrected. `again` if the page was read just before
    /// and is still in the die's register.
    #[inline]
    pub fn fetch(
        &mut self,
        rules: &Rules,
        block: u32,
        page: u32,
        slot: usize,
        out: &mut [Piece<'_>],
        again: bool,
    ) -> Result<u32, FlashError> {
        self.counters.pages_read += !again as u64;
        if page >= self.blocks[block as usize].pages_written {
            out.fill(Piece::erased());
            return Ok(0);
        }
        let bytes = out.len() * vellum_base::SECTOR_BYTES;
        let bits = self.correct(rules, block, page, slot * vellum_base::SECTOR_BYTES, bytes)?;
        self.store.fetch(block, page, slot, out)?;
        Ok(bits)
    }

    /// Determines whether the page can be read, and how many bits the code has to correct.
    #[inline]
    fn correct(
        &mut self,
        rules: &Rules,
        block: u32,
        page: u32,
        offset: usize,
        bytes: usize,
    ) -> Result<u32, FlashError> {
        if self.blocks[block as usize].unexamined {
            self.examine(block)?;
        }
        let address = rules.geometry.block_on(self.number, block).page(page);
        let state = &self.blocks[block as usize];
        if state.is_unreadable(page) {
            // A scan for what a power cut left behind reads only spare areas: that is not counted as a failure.
            self.counters.reads_uncorrectable += u64::from(bytes > 0);
            return Err(FlashError::Uncorrectable(address));
        }
        let Some(model) = &rules.params.wear.bit_errors else { return Ok(0) };
        let codewords = offset / CODEWORD_BYTES..(offset + bytes.max(1)).div_ceil(CODEWORD_BYTES);
        let (seed, endurance, erase_count) = (rules.params.seed, rules.params.endurance, state.erase_count);
        let decoded = if model.looks_at_data() {
            let from = codewords.start * CODEWORD_BYTES;
            let around = Neighbourhood::read(self, block, page, from, codewords.len() * CODEWORD_BYTES)?;
            let alike = |codeword: usize| {
                let at = codeword * CODEWORD_BYTES - from;
                around.alike(at, at + CODEWORD_BYTES)
            };
            model.decode(seed, address, erase_count, endurance, codewords, alike)
        } else {
            model.decode(seed, address, erase_count, endurance, codewords, |_| 0.0)
        };
        match decoded {
            Some(corrected) => {
                self.counters.bits_corrected += corrected.total;
                Ok(corrected.worst)
            }
            None => {
                self.counters.reads_uncorrectable += 1;
                Err(FlashError::Uncorrectable(address))
            }
        }
    }

    /// Asks the store which pages of a block that was reopened are unreadable.
    pub fn examine(&mut self, block: u32) -> Result<(), FlashError> {
        let state = &mut self.blocks[block as usize];
        for page in self.store.find_unreadable(block, state.pages_written)? {
            state.set_unreadable(page);
        }
        state.unexamined = false;
        Ok(())
    }

    /// Erases a block.
    pub fn erase(&mut self, rules: &Rules, block: u32) -> Result<(), FlashError> {
        let address = self.address(rules, block);
        let state = &mut self.blocks[block as usize];
        if state.bad {
            self.counters.erase_failures += 1;
            return Err(FlashError::EraseFailed(address));
        }
        if rules.erase_fails(address, state.erase_count) {
            return Err(self.fail_erase(rules, block));
        }
        let keep = rules.params.erases_kept > 0;
        let before = keep.then(|| state.clone());
        let content = self.store.erase(block, keep)?;
        if let Some(before) = before {
            self.keep(rules, block, Erased { block: before, content });
        }
        let state = &mut self.blocks[block as usize];
        state.erase();
        state.dirty = true;
        self.counters.blocks_erased += 1;
        Ok(())
    }

    /// Makes the page unreadable from now on.
    pub fn spoil(&mut self, block: u32, page: u32) -> Result<(), FlashError> {
        self.blocks[block as usize].set_unreadable(page);
        self.store.spoil(block, page)
    }

    /// Fails the erase of a block: it is bad from now on, and its contents are lost.
    pub fn fail_erase(&mut self, rules: &Rules, block: u32) -> FlashError {
        let address = self.address(rules, block);
        let state = &mut self.blocks[block as usize];
        self.counters.erase_failures += 1;
        state.bad = true;
        state.dirty = true;
        match (0..state.pages_written).try_for_each(|page| self.spoil(block, page)) {
            Ok(()) => FlashError::EraseFailed(address),
            Err(host) => host,
        }
    }

    fn keep(&mut self, rules: &Rules, block: u32, erased: Erased) {
        if self.erased.len() >= rules.params.erases_kept {
            self.erased.pop_front();
        }
        self.erased.push_back((block, erased));
    }
}

impl Rules {
    #[inline]
    fn program_fails(&self, page: PageAddr, erase_count: u32) -> bool {
        self.chances.program_failure > 0
            && roll(self.params.seed, [0x9306, page.block.0 as u64, page.page as u64, erase_count as u64])
                < self.chances.program_failure
    }

    fn erase_fails(&self, block: BlockAddr, erase_count: u32) -> bool {
        self.chances.erase_failure > 0
            && roll(self.params.seed, [0xE7A5E, block.0 as u64, erase_count as u64, 0])
                < self.chances.erase_failure
    }
}

#[cold]
fn out_of_order(page: PageAddr, next: u32) -> FlashError {
    FlashError::Rule(match page.page < next {
        true => format!("{page} was programmed since the last erase of its block"),
        false => format!("{page} cannot be programmed: the next page of the block is {next}"),
    })
}
