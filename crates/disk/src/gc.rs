//! Garbage collection and wear levelling: each die empties its own blocks, a little ahead of need.
//!
//! A collector copies valid slots of its victim to its own frontier by copy-back; when a block has no valid
//! slot left it is dead, and erased once the events that emptied it are durable. The pace follows the writes:
//! for every page the host gets on a die, so many slots are copied as win that page back.
//!
//! Nodes are never copied: they are marked changed, the victim is set aside, and the next checkpoint frees it.

use crate::blocks::State;
use crate::format::oob::{OOB_ENTRY_BYTES, Oob, SlotKind};
use crate::frontier::Frontier;
use crate::ftl::{Ftl, Recorded};
use crate::map::Owner;
use std::collections::VecDeque;
use vellum_base::{BlockAddr, Cause, FlashError, IoClass, PageAddr, Result, SECTOR_BYTES, SlotAddr, Source};

/// A die with no more free blocks than this collects.
const FREE_BLOCKS_LOW: usize = 3;
/// Wear is looked at once in so many collected blocks of a die.
const WEAR_CHECK_INTERVAL: u32 = 16;

/// Stands for a checksum that cannot match: it is not that of the zeros stored in a lost slot's stead.
const LOST: u32 = 0xDEAD_0BAD;

/// The collector of one die.
#[derive(Default)]
pub(crate) struct Collector {
    frontier: Frontier,
    /// Valid slots found but not yet copied: fewer than a page.
    pending: Vec<SlotAddr>,
    victim: Option<Victim>,
    /// Bad blocks that still hold data.
    pub retiring: VecDeque<BlockAddr>,
    collected: u32,
}

#[derive(Clone, Copy)]
struct Victim {
    block: BlockAddr,
    cause: Cause,
    next_slot: u32,
    /// Slots to look at for each page the host writes to the die.
    pace: u32,
    found_nodes: bool,
}

impl Ftl {
    /// Called before the host gets a page on `die`.
    pub(crate) fn collect_ahead(&mut self, die: u32) -> Result<()> {
        if self.is_making_room() {
            return Ok(());
        }
        self.erase_dead(die)?;
        let d = die as usize;
        let low = self.blocks.free_count(die) <= FREE_BLOCKS_LOW;
        if !low && self.collectors[d].retiring.is_empty() && self.collectors[d].victim.is_none() {
            return Ok(());
        }
        if low && self.blocks.free_count(die) < FREE_BLOCKS_LOW && self.blocks.dead_count(die) > 0 {
            self.erase_all_dead()?;
            return Ok(());
        }
        if self.collectors[d].victim.is_none() && !self.choose_victim(die) {
            return Ok(());
        }
        let pace = self.collectors[d].victim.map_or(0, |v| v.pace);
        self.collect(die, pace)?;
        Ok(())
    }

    /// Makes everything durable and erases every dead block.
    fn erase_all_dead(&mut self) -> Result<bool> {
        let nested = self.set_making_room(true);
        let synced = self.persist_and_sync();
        self.set_making_room(nested);
        synced?;
        let mut erased = false;
        for die in 0..self.geometry.dies() {
            erased |= self.erase_dead(die)?;
        }
        Ok(erased)
    }

    /// Erases the dead blocks of a die whose emptying is durable. True if any was.
    fn erase_dead(&mut self, die: u32) -> Result<bool> {
        let mut erased = false;
        while let Some(block) = self.blocks.erasable(die, self.durable_seq) {
            erased |= self.erase(block)?;
        }
        Ok(erased)
    }

    /// Erases a block that nothing needs. False if it went bad.
    pub(crate) fn erase(&mut self, block: BlockAddr) -> Result<bool> {
        match self.flash.erase(IoClass::Background, block, self.last_done) {
            Ok(_) => {
                self.blocks.mark_erased(block);
                Ok(true)
            }
            Err(FlashError::EraseFailed(_)) => {
                self.blocks.retire(block);
                Ok(false)
            }
            Err(e) => Err(self.poison(e.into())),
        }
    }

    /// The last resort: frees at least one block somewhere, if that is possible at all.
    pub(crate) fn collect_all(&mut self) -> Result<bool> {
        if self.erase_all_dead()? {
            return Ok(true);
        }
        if self.blocks.in_state(State::Aside).next().is_some() {
            self.complete_checkpoint()?;
            if self.erase_all_dead()? {
                return Ok(true);
            }
        }
        for die in 0..self.geometry.dies() {
            if self.collectors[die as usize].victim.is_some() || self.choose_victim(die) {
                self.collect(die, self.geometry.slots_per_block())?;
            }
        }
        self.erase_all_dead()
    }

    fn choose_victim(&mut self, die: u32) -> bool {
        let d = die as usize;
        let slots = self.geometry.slots_per_block();
        let (block, cause) = if let Some(bad) = self.collectors[d].retiring.pop_front() {
            (bad, Cause::Refresh)
        } else if let Some(cold) = self.cold_block(die) {
            (cold, Cause::WearLevel)
        } else if let Some(block) = self.blocks.victim(die, self.options.gc, self.seq) {
            (block, Cause::Gc)
        } else {
            return false;
        };
        let valid = self.blocks.valid(block);
        let won = (slots - valid).max(1);
        let pace = (self.geometry.slots_per_page() * valid).div_ceil(won) + 1;
        self.collectors[d].victim = Some(Victim { block, cause, next_slot: 0, pace, found_nodes: false });
        self.collectors[d].collected += 1;
        true
    }

    /// Static wear levelling: data that has sat still while its die wore out around it.
    fn cold_block(&self, die: u32) -> Option<BlockAddr> {
        if self.collectors[die as usize].collected % WEAR_CHECK_INTERVAL != WEAR_CHECK_INTERVAL - 1 {
            return None;
        }
        let (block, spread) = self.blocks.coldest(die)?;
        (spread > self.options.wear_spread_max).then_some(block)
    }

    /// Copies up to `budget` valid slots of the die's victim.
    fn collect(&mut self, die: u32, mut budget: u32) -> Result<()> {
        let d = die as usize;
        while budget > 0 {
            let Some(mut victim) = self.collectors[d].victim else { return Ok(()) };
            let Some(slot) = self.next_valid(&mut victim) else {
                return self.finish_victim(die, victim);
            };
            self.collectors[d].victim = Some(victim);
            self.collectors[d].pending.push(slot);
            budget -= 1;
            if self.collectors[d].pending.len() == self.geometry.slots_per_page() as usize
                && !self.copy_pending(die, victim.cause)?
            {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The next slot of the victim that has to be copied. Nodes only get marked.
    fn next_valid(&mut self, victim: &mut Victim) -> Option<SlotAddr> {
        let slots = self.geometry.slots_per_block();
        let first = victim.block.0 * slots;
        while victim.next_slot < slots {
            let slot = SlotAddr(first + victim.next_slot);
            victim.next_slot += 1;
            match self.map.owner(slot) {
                Owner::Nobody => {}
                Owner::Node(node) => {
                    self.nodes.mark(node);
                    victim.found_nodes = true;
                }
                Owner::Directory(directory) => {
                    self.nodes.mark_directory(directory);
                    victim.found_nodes = true;
                }
                Owner::Sector(_) | Owner::Log(_) => return Some(slot),
            }
        }
        None
    }

    fn finish_victim(&mut self, die: u32, victim: Victim) -> Result<()> {
        if !self.collectors[die as usize].pending.is_empty() && !self.copy_pending(die, victim.cause)? {
            return Ok(());
        }
        self.collectors[die as usize].victim = None;
        if victim.found_nodes && self.blocks.state(victim.block) == State::Full {
            self.blocks.set_aside(victim.block);
            self.checkpoint.hurry();
        }
        Ok(())
    }

    /// Programs the pending slots as one page. False if the die has no page for it now.
    fn copy_pending(&mut self, die: u32, cause: Cause) -> Result<bool> {
        let d = die as usize;
        let mut pending = std::mem::take(&mut self.collectors[d].pending);
        pending.retain(|slot| self.map.owner(*slot) != Owner::Nobody);
        while !pending.is_empty() {
            let Some(page) = self.collector_page(die, cause) else {
                self.collectors[d].pending = pending;
                return Ok(false);
            };
            if self.copy_page(page, &pending, cause)? {
                break;
            }
        }
        pending.clear();
        self.collectors[d].pending = pending;
        Ok(true)
    }

    fn collector_page(&mut self, die: u32, cause: Cause) -> Option<PageAddr> {
        let frontier = &mut self.collectors[die as usize].frontier;
        if frontier.close_if_full(&self.geometry, &mut self.blocks, self.seq) {
            let block = match cause {
                Cause::WearLevel => self.blocks.open_worn(die),
                _ => self.blocks.open(die),
            };
            frontier.begin(block?);
        }
        frontier.next(&self.geometry)
    }

    /// Copies `slots` to `page` and lets their owners follow. False if the page's block went bad.
    fn copy_page(&mut self, page: PageAddr, slots: &[SlotAddr], cause: Cause) -> Result<bool> {
        let die = self.geometry.die_of(page.block) as usize;
        let mut oob = [0; crate::OOB_BYTES_MAX];
        let mut parts = [Source::Pad(0); crate::SLOTS_PER_PAGE_MAX + 1];
        let mut crcs = [0; crate::SLOTS_PER_PAGE_MAX];
        for (i, slot) in slots.iter().enumerate() {
            let (from, index) = self.geometry.page_of_slot(*slot);
            let entry = self.moved_entry(*slot, from, index, cause)?;
            crcs[i] = entry.data_crc;
            parts[i] = match entry.data_crc {
                LOST => Source::Pad(SECTOR_BYTES as u32),
                _ => Source::Copy {
                    page: from,
                    offset: index * SECTOR_BYTES as u32,
                    bytes: SECTOR_BYTES as u32,
                },
            };
            entry.encode(&mut oob[i * OOB_ENTRY_BYTES..]);
        }
        let used = slots.len() * SECTOR_BYTES;
        let pad = self.geometry.page_bytes - used as u32;
        parts[slots.len()] = Source::Pad(pad);
        let parts = &parts[..=slots.len()];
        let oob = &oob[..slots.len() * OOB_ENTRY_BYTES];
        match self.flash.program(IoClass::Background, page, parts, oob) {
            Ok(done) => {
                self.last_done = self.last_done.max(done.at);
                self.collectors[die].frontier.advance();
                self.ledger.programmed(cause, used as u64);
                self.ledger.programmed(Cause::Padding, pad.into());
                for (i, from) in slots.iter().enumerate() {
                    let to = self.geometry.slot_of(page, i as u32);
                    self.relocate(*from, to, crcs[i], Recorded::FirstOwner)?;
                }
                Ok(true)
            }
            Err(FlashError::ProgramFailed(_)) => {
                self.ledger.programmed(Cause::Failed, self.geometry.page_bytes.into());
                self.collectors[die].frontier.abandon();
                self.retire(page.block);
                Ok(false)
            }
            Err(e) => Err(self.poison(e.into())),
        }
    }

    /// Out-of-band entry for a slot that moves. The contents' checksum goes along, so damage stays visible;
    /// a slot that cannot be read moves as [`LOST`], and reads of its sectors go on failing.
    fn moved_entry(&mut self, slot: SlotAddr, page: PageAddr, index: u32, cause: Cause) -> Result<Oob> {
        let mut oob = [0; crate::OOB_BYTES_MAX];
        let oob = &mut oob[..self.geometry.oob_bytes as usize];
        let data_crc = match self.flash.read(IoClass::Background, page, 0, &mut [], oob) {
            Ok(_) => Oob::decode(&oob[index as usize * OOB_ENTRY_BYTES..]).map_or(LOST, |o| o.data_crc),
            Err(FlashError::Uncorrectable(_)) => LOST,
            Err(e) => return Err(self.poison(e.into())),
        };
        self.seq += 1;
        let (kind, id) = match self.map.owner(slot) {
            Owner::Sector(first) => (SlotKind::Data, first),
            Owner::Log(log) => (SlotKind::Log, log),
            _ => (SlotKind::Padding, 0),
        };
        Ok(Oob { seq: self.seq, id, data_crc, kind, cause })
    }

    /// Moves one slot elsewhere because its bits are failing (scrub).
    pub(crate) fn refresh(&mut self, slot: SlotAddr) -> Result<()> {
        let die = self.geometry.die_of(self.geometry.block_of_slot(slot));
        if matches!(self.map.owner(slot), Owner::Sector(_) | Owner::Log(_))
            && let Some(page) = self.collector_page(die, Cause::Refresh)
        {
            self.copy_page(page, &[slot], Cause::Refresh)?;
        }
        Ok(())
    }
}
