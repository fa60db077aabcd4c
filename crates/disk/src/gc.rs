//! Garbage collection and wear levelling: each die empties its own blocks, slightly ahead of need.
//!
//! A collector copies valid slots of its victim to its own frontier by copy-back. A block without valid slots is dead,
//! and is erased once the events that emptied it are durable. The pace follows the writes: for every page the host
//! takes on a die, enough slots are copied to gain that page back.
//!
//! The last free blocks are not for collectors: see [`crate::room`].
//!
//! Nodes are never copied: they are marked changed, the victim is set aside, and the next checkpoint frees it.

use crate::blocks::State;
use crate::copying::CopyBuffers;
use crate::frontier::Frontier;
use crate::ftl::Ftl;
use crate::map::Owner;
use crate::room::{ROOM_BLOCKS, reserved_blocks};
use std::collections::VecDeque;
use vellum_base::{BlockAddr, Cause, FlashError, IoClass, PageAddr, Result, SlotAddr};

/// A die collects if it has no more free blocks than this.
const FREE_BLOCKS_LOW: usize = 4;
/// Slots examined per step, in erase blocks that are large compared with it. With fewer, the overhead would exceed the
/// cost of the copies; more would block a saturated die for the host for longer.
const SLOTS_AT_ONCE: u32 = 16;
/// Wear is checked once per this many collected blocks of a die.
const WEAR_CHECK_INTERVAL: u32 = 16;

/// The collector of one die.
#[derive(Default)]
pub(crate) struct Collector {
    pub frontier: Frontier,
    pub buffers: CopyBuffers,
    /// Valid slots found but not yet copied: fewer than a page, unless there was no page to copy them to.
    pending: Vec<SlotAddr>,
    victim: Option<Victim>,
    /// Slots due by the pace that have not been examined yet.
    owed: u32,
    /// Bad blocks that still hold data.
    pub retiring: VecDeque<BlockAddr>,
    collected: u32,
}

#[derive(Clone, Copy)]
struct Victim {
    block: BlockAddr,
    cause: Cause,
    next_slot: u32,
    /// Slots to examine for each page the host writes to the die.
    pace: u32,
    found_nodes: bool,
}

impl Collector {
    /// Drops `block`, which was emptied otherwise, as the victim.
    fn let_go_of(&mut self, block: BlockAddr) {
        if self.victim.is_some_and(|victim| victim.block == block) {
            self.victim = None;
            self.pending.clear();
        }
    }
}

impl Ftl {
    /// Checks that victims are blocks that hold data: never one that is erased or being filled.
    pub(crate) fn check_collectors(&self) -> Result<(), String> {
        for victim in self.collectors.iter().filter_map(|c| c.victim) {
            let state = self.blocks.state(victim.block);
            if matches!(state, State::Free | State::Open | State::Root) {
                return Err(format!("{} is being collected, but is {state:?}", victim.block));
            }
        }
        Ok(())
    }

    /// Collects as far as due. Called before the host takes a page on `die`.
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
        if self.blocks.free_count(die) <= reserved_blocks(&self.geometry) && self.blocks.dead_count(die) > 0 {
            self.erase_all_dead()?;
            return Ok(());
        }
        if self.collectors[d].victim.is_none() && !self.choose_victim(die) {
            return Ok(());
        }
        let at_once = SLOTS_AT_ONCE.min(self.geometry.slots_per_block() / 16);
        let collector = &mut self.collectors[d];
        collector.owed += collector.victim.map_or(0, |v| v.pace);
        if collector.owed >= at_once {
            let owed = std::mem::take(&mut collector.owed);
            self.collect(die, owed)?;
        }
        Ok(())
    }

    /// Erases the dead blocks of a die whose emptying is durable. True if there were any.
    pub(crate) fn erase_dead(&mut self, die: u32) -> Result<bool> {
        let mut erased = false;
        while let Some(block) = self.blocks.erasable(die, self.durable_seq) {
            erased |= self.erase(block)?;
        }
        Ok(erased)
    }

    /// Erases an unneeded block. False if it went bad.
    pub(crate) fn erase(&mut self, block: BlockAddr) -> Result<bool> {
        self.collectors[self.geometry.die_of(block) as usize].let_go_of(block);
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

    /// Static wear levelling: a block of data that stayed in place while its die wore out around it.
    fn cold_block(&self, die: u32) -> Option<BlockAddr> {
        if self.collectors[die as usize].collected % WEAR_CHECK_INTERVAL != WEAR_CHECK_INTERVAL - 1 {
            return None;
        }
        let (block, spread) = self.blocks.coldest(die)?;
        (spread > self.options.wear_spread_max).then_some(block)
    }

    /// Copies up to `budget` valid slots of the die's victim.
    fn collect(&mut self, die: u32, budget: u32) -> Result<()> {
        let d = die as usize;
        let Some(mut victim) = self.collectors[d].victim else { return Ok(()) };
        if !matches!(self.blocks.state(victim.block), State::Full | State::Retiring) {
            // It was emptied or set aside meanwhile.
            self.collectors[d].let_go_of(victim.block);
            return Ok(());
        }
        let mut found = 0;
        while found < budget
            && let Some(slot) = self.next_valid(&mut victim)
        {
            self.collectors[d].pending.push(slot);
            found += 1;
        }
        self.collectors[d].victim = Some(victim);
        let is_last = found < budget;
        if self.copy_pending(die, victim.cause, is_last)? && is_last {
            self.finish_victim(die, victim);
        }
        Ok(())
    }

    /// The next slot of the victim that has to be copied. Nodes are only marked.
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

    fn finish_victim(&mut self, die: u32, victim: Victim) {
        self.collectors[die as usize].victim = None;
        if victim.found_nodes && self.blocks.state(victim.block) == State::Full {
            self.blocks.set_aside(victim.block);
            self.checkpoint.hurry();
        }
    }

    /// Programs the pending slots: only whole pages of them, or all. False if the die has no page for them now.
    fn copy_pending(&mut self, die: u32, cause: Cause, all: bool) -> Result<bool> {
        let per_page = self.geometry.slots_per_page() as usize;
        let mut pending = std::mem::take(&mut self.collectors[die as usize].pending);
        pending.retain(|slot| self.map.owner(*slot) != Owner::Nobody);
        let least = if all { 1 } else { per_page };
        let mut has_page = true;
        while has_page && pending.len() >= least {
            let whole = if all { pending.len() } else { pending.len() / per_page * per_page };
            match self.collector_page(die, cause)? {
                Some(page) => {
                    let copied = self.copy_slots(page, &pending[..whole], cause)?;
                    pending.drain(..copied);
                }
                None => has_page = false,
            }
        }
        self.collectors[die as usize].pending = pending;
        Ok(has_page)
    }

    /// The page for the next copies on `die`, if the collector has a block or may take one.
    fn collector_page(&mut self, die: u32, cause: Cause) -> Result<Option<PageAddr>> {
        self.leave_open_page(die)?;
        let d = die as usize;
        if self.collectors[d].frontier.close_if_full(&self.geometry, &mut self.blocks, self.seq) {
            if self.blocks.free_total() <= ROOM_BLOCKS {
                return Ok(None);
            }
            let block = match cause {
                Cause::WearLevel => self.blocks.open_worn(die),
                _ => self.blocks.open(die),
            };
            let Some(block) = block else { return Ok(None) };
            self.collectors[d].frontier.begin(block);
        }
        Ok(self.collectors[d].frontier.next(&self.geometry))
    }

    /// Moves one slot because its bits are failing (scrub). False if it stays: nodes are not copied, and the reserved
    /// room is not used. Without host writes nothing else collects, so the page taken is regained here. Nor is anything
    /// collected while the open page is one that failed: its slots are only in memory.
    pub(crate) fn refresh(&mut self, slot: SlotAddr) -> Result<bool> {
        if self.page.at.is_some_and(|at| self.blocks.state(at.block) != State::Open) {
            return Ok(false);
        }
        let die = self.geometry.die_of(self.geometry.block_of_slot(slot));
        self.collect_ahead(die)?;
        if !matches!(self.map.owner(slot), Owner::Sector(_) | Owner::Log(_)) {
            return Ok(false);
        }
        match self.collector_page(die, Cause::Refresh)? {
            Some(page) => Ok(self.copy_slots(page, &[slot], Cause::Refresh)? > 0),
            None => Ok(false),
        }
    }
}
