//! The state that a power cut leaves behind.
//!
//! 1. The page being programmed is absent, complete, unreadable, or its first part followed by noise.
//! 2. The block being erased is as before, erased, or half-erased: some pages as before, the others unreadable, and no
//!    page can be programmed until it is erased again. Only an erase that completed is counted.
//! 3. Operations that had not begun did not happen; nothing else changes. The NVRAM keeps its contents.
//! 4. Until [`Nand::power_on`] every call fails with [`FlashError::PowerLost`].
//!
//! The outcome depends on the seed, the page and the block's erase count.

use super::content::PageContent;
use super::dice::roll;
use super::die::Die;
use super::faults::Fault;
use super::{Nand, PowerCut};
use crate::one_of::OneOf;
use vellum_base::{BlockAddr, FlashError, PageAddr};

/// An operation that was submitted and not finished when the power was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Which operation.
    pub what: InFlightOp,
    /// False if it was still queued.
    pub started: bool,
}

/// The operations that change the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlightOp {
    /// Programming a page.
    Program(PageAddr),
    /// Erasing a block.
    Erase(BlockAddr),
}

/// Outcomes of a torn program.
enum Torn {
    Absent,
    Complete,
    Unreadable,
    Garbled,
}

/// Outcomes of a torn erase.
#[derive(PartialEq)]
enum HalfErased {
    AsBefore,
    Erased,
    Mixed,
}

impl Nand {
    /// Cuts the power during the `nth` program or erase from now (1 is the next).
    pub fn power_cut_at(&self, nth: u64) {
        self.arm(nth, Fault::PowerCut);
    }

    /// True while the power is off.
    pub fn is_off(&self) -> bool {
        self.shared.health.is_off()
    }

    /// Turns the power on. A device in memory is like newly opened: armed faults and failed writes are forgotten. An
    /// image with a failed write stays in that state until it is reopened.
    pub fn power_on(&self) {
        self.disarm();
        self.shared.health.revive(self.medium.is_none());
    }

    /// Programs a page during a power cut.
    pub(crate) fn tear_program(&self, page: PageAddr, content: &PageContent<'_>) -> Result<(), FlashError> {
        self.shared.health.power_off();
        let (die, block) = self.locate(page.block);
        let outcome = self.torn(page, die.lock().blocks[block as usize].erase_count);
        match outcome {
            Torn::Absent => die.lock().counters.pages_programmed += 1,
            Torn::Garbled => {
                let (data, oob) = self.garbled(page, content);
                self.store_page(&mut OneOf::new(&self.dies), page, &mut PageContent::of_bytes(&data, &oob))?;
            }
            Torn::Complete | Torn::Unreadable => {
                let mut whole = PageContent::zeros(content.pieces().len(), content.oob);
                whole.pieces_mut().clone_from_slice(content.pieces());
                whole.readable = matches!(outcome, Torn::Complete);
                self.store_page(&mut OneOf::new(&self.dies), page, &mut whole)?;
            }
        }
        Err(FlashError::PowerLost)
    }

    /// Erases a block during a power cut.
    pub(crate) fn tear_erase(&self, address: BlockAddr) -> Result<(), FlashError> {
        self.shared.health.power_off();
        let (die, block) = self.locate(address);
        let die = &mut *die.lock();
        let erase_count = die.blocks[block as usize].erase_count;
        match self.half_erased(address, erase_count) {
            HalfErased::AsBefore => {}
            HalfErased::Erased => die.erase(&self.rules, block)?,
            HalfErased::Mixed => self.mix(die, address, block)?,
        }
        Err(FlashError::PowerLost)
    }

    /// Tears a program that has already taken effect, as if the power had been cut during it.
    fn cut_program(&self, page: PageAddr, started: bool) -> Result<(), FlashError> {
        let (lock, block) = self.locate(page.block);
        let mut die = lock.lock();
        let state = &die.blocks[block as usize];
        if state.bad || state.pages_written != page.page + 1 {
            return Ok(()); // a failed program: what it left is no worse than a torn page
        }
        let outcome = match started {
            true => self.torn(page, state.erase_count),
            false => Torn::Absent,
        };
        match outcome {
            Torn::Absent => {
                die.counters.pages_programmed -= !started as u64;
                die.blocks[block as usize].dirty = true;
                die.blocks[block as usize].truncate(page.page);
                die.store.truncate(block, page.page)?;
            }
            Torn::Complete => {}
            Torn::Unreadable => die.spoil(block, page.page)?,
            Torn::Garbled => {
                let mut content = vec![0; self.rules.geometry.page_bytes as usize];
                let mut oob = vec![0; self.rules.geometry.oob_bytes as usize];
                die.store.read(block, page.page, 0, &mut content, &mut oob)?;
                let (data, oob) = self.garbled(page, &PageContent::of_bytes(&content, &oob));
                die.store.overwrite(block, page.page, &PageContent::of_bytes(&data, &oob))?;
            }
        }
        Ok(())
    }

    /// Tears an erase that has already taken effect, as if the power had been cut during it. The block's former
    /// contents are known only in memory and for the latest `erases_kept` erases; otherwise a block whose erase had
    /// begun becomes unreadable, and one whose erase had not begun stays erased.
    fn cut_erase(&self, address: BlockAddr, started: bool) -> Result<(), FlashError> {
        let (lock, block) = self.locate(address);
        let die = &mut *lock.lock();
        if die.blocks[block as usize].pages_written != 0 || die.blocks[block as usize].bad {
            return Ok(()); // the erase failed
        }
        let kept = die.erased.iter().rposition(|(other, _)| *other == block);
        let before = kept.and_then(|at| die.erased.remove(at)).map(|(_, erased)| erased);
        let erase_count = die.blocks[block as usize].erase_count;
        let outcome = match started {
            true => self.half_erased(address, erase_count - 1),
            false => HalfErased::AsBefore,
        };
        match (before, outcome) {
            (_, HalfErased::Erased) => {}
            (Some(before), outcome) => {
                if let Some(content) = before.content {
                    die.store.restore(block, content);
                }
                die.blocks[block as usize] = before.block;
                die.counters.blocks_erased -= 1;
                if outcome == HalfErased::Mixed {
                    self.mix(die, address, block)?;
                }
            }
            (None, _) if started => {
                die.blocks[block as usize].dirty = true;
                die.blocks[block as usize].pages_written = self.rules.geometry.pages_per_block;
                (0..self.rules.geometry.pages_per_block).try_for_each(|page| die.spoil(block, page))?;
            }
            (None, _) => {}
        }
        Ok(())
    }

    /// Makes half of the block's pages unreadable, and counts all of them as written.
    fn mix(&self, die: &mut Die, address: BlockAddr, block: u32) -> Result<(), FlashError> {
        let state = &mut die.blocks[block as usize];
        let written = std::mem::replace(&mut state.pages_written, self.rules.geometry.pages_per_block);
        state.dirty = true;
        for page in 0..self.rules.geometry.pages_per_block {
            let draw = roll(self.rules.params.seed, [0x317, address.0 as u64, page as u64, 0]);
            if page >= written || draw & 1 == 0 {
                die.spoil(block, page)?;
            }
        }
        Ok(())
    }

    fn torn(&self, page: PageAddr, erase_count: u32) -> Torn {
        let about = [0x7042, page.block.0 as u64, page.page as u64, erase_count as u64];
        match roll(self.rules.params.seed, about) % 4 {
            0 => Torn::Absent,
            1 => Torn::Complete,
            2 => Torn::Unreadable,
            _ => Torn::Garbled,
        }
    }

    fn half_erased(&self, block: BlockAddr, erase_count: u32) -> HalfErased {
        match roll(self.rules.params.seed, [0x8A1F, block.0 as u64, erase_count as u64, 0]) % 4 {
            0 => HalfErased::AsBefore,
            1 => HalfErased::Erased,
            _ => HalfErased::Mixed,
        }
    }
}

impl PowerCut for Nand {
    fn power_cut_now(&self, in_flight: &[InFlight]) -> Result<(), FlashError> {
        self.shared.health.power_off();
        for flight in in_flight.iter().rev() {
            match flight.what {
                InFlightOp::Program(page) => self.cut_program(page, flight.started)?,
                InFlightOp::Erase(block) => self.cut_erase(block, flight.started)?,
            }
        }
        for die in &self.dies {
            die.lock().erased.clear();
        }
        Ok(())
    }
}
