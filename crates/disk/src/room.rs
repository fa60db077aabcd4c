//! Making room when the host finds no page: the emptiest blocks of all dies are emptied together, made durable once,
//! and erased.
//!
//! Collection ahead of need ([`crate::gc`]) leaves little to do here, but a full disk must never lock up. The use of
//! the last free blocks is restricted: host writes leave two on each die (three on a single one). Collectors leave two
//! in all, the *room*: one that a power cut may leave half filled, and one to regain it. The room is for rounds, for
//! data that has to be durable before any erase, for a page that replaces a failed one, and for a new root block, which
//! frees the old one.
//!
//! Invariants:
//! 1. A round is begun only if it gains more pages than it takes: for copies, for data that must be durable before the
//!    erases, and for a partly filled page. So rounds end, and a disk on which nothing can be gained is not worn out by
//!    trying.
//! 2. While room is made, copies, log and nodes use the same open blocks: no page is reserved for one of them.
//! 3. The last free block is taken only if no round is possible without it, and by a round that regains one.

use crate::blocks::State;
use crate::ftl::Ftl;
use crate::map::Owner;
use vellum_base::{BlockAddr, Cause, Geometry, Kind, PageAddr, Result, SlotAddr};

/// Number of free blocks over all dies that collectors do not use.
pub(crate) const ROOM_BLOCKS: usize = 2;

/// Number of free blocks of a die that host writes do not use: over all dies more than the room.
pub(crate) fn reserved_blocks(geometry: &Geometry) -> usize {
    if geometry.dies() == 1 { ROOM_BLOCKS + 1 } else { ROOM_BLOCKS }
}

/// Maximum number of blocks emptied in one round: more would block the host for longer.
const VICTIMS_MAX: usize = 64;
/// Minimum number of records of moved sectors that fit in a log slot.
const RECORDS_PER_LOG_SLOT: u64 = 128;
/// The attempts, in order: free blocks not used, and whether nodes are moved. A checkpoint may release only log slots;
/// then blocks that held them are worth another round.
const ROUNDS: [(usize, Nodes); 6] = [
    (1, Nodes::Stay),
    (1, Nodes::Move),
    (1, Nodes::Stay),
    (0, Nodes::Stay),
    (0, Nodes::Move),
    (0, Nodes::Stay),
];

impl Ftl {
    /// Gains at least one page, if possible at all. Does nothing if called recursively: making room itself stores log
    /// slots.
    pub(crate) fn make_room(&mut self) -> Result<bool> {
        if self.making_room {
            return Ok(false);
        }
        self.set_making_room(true);
        let won = self.win_room();
        self.set_making_room(false);
        won
    }

    pub(crate) fn is_making_room(&self) -> bool {
        self.making_room
    }

    pub(crate) fn set_making_room(&mut self, on: bool) -> bool {
        std::mem::replace(&mut self.making_room, on)
    }

    fn win_room(&mut self) -> Result<bool> {
        if self.erase_all_dead()? {
            return Ok(true);
        }
        for (spared, nodes) in ROUNDS {
            if self.empty_some(spared, nodes)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The next page while room is made: of an open block if possible, otherwise of a new one.
    pub(crate) fn room_page(&mut self) -> Result<Option<PageAddr>> {
        if let Some(begun) = self.page.at {
            self.leave_open_page(self.geometry.die_of(begun.block))?;
        }
        for d in 0..self.geometry.dies() as usize {
            self.collectors[d].frontier.close_if_full(&self.geometry, &mut self.blocks, self.seq);
            if let Some(page) = self.collectors[d].frontier.next(&self.geometry) {
                return Ok(Some(page));
            }
        }
        let emptiest = (0..self.geometry.dies()).max_by_key(|die| self.blocks.free_count(*die)).unwrap_or(0);
        let frontier = &mut self.collectors[emptiest as usize].frontier;
        match self.blocks.open(emptiest) {
            Some(block) => frontier.begin(block),
            None => return Ok(None),
        }
        Ok(frontier.next(&self.geometry))
    }

    /// Programs a page that log or nodes have begun in the collector's block, before the collector continues there.
    pub(crate) fn leave_open_page(&mut self, die: u32) -> Result<()> {
        let next = self.collectors[die as usize].frontier.next(&self.geometry);
        if self.page.at.is_none() || self.page.at != next {
            return Ok(());
        }
        match self.page.oobs.is_empty() {
            true => self.page.clear(),
            false => self.program_open_page()?,
        }
        Ok(())
    }

    /// Makes everything durable and erases all dead blocks. True if there were any.
    pub(crate) fn erase_all_dead(&mut self) -> Result<bool> {
        if self.blocks.dead_total() == 0 {
            return Ok(false);
        }
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

    /// One round, which leaves `spared` free blocks. False if it can gain nothing.
    fn empty_some(&mut self, spared: usize, nodes: Nodes) -> Result<bool> {
        let Some(victims) = self.victims_worth_it(self.pages_left(spared), nodes) else { return Ok(false) };
        let mut slots: Vec<SlotAddr> =
            victims.iter().flat_map(|block| slots_of(&self.geometry, *block)).collect();
        slots.retain(|slot| self.has_to_be_copied(*slot));
        while !slots.is_empty() {
            let Some(page) = self.room_page()? else { return self.erase_all_dead() };
            let copied = self.copy_slots(page, &slots, Cause::Gc)?;
            slots.drain(..copied);
        }
        if nodes == Nodes::Move {
            for block in victims {
                if self.blocks.valid(block) > 0 {
                    self.blocks.set_aside(block);
                }
            }
            self.checkpoint_if_room()?;
        }
        self.erase_all_dead()
    }

    /// The emptiest blocks that can be emptied into `room` pages, if that gains any; a checkpoint alone may.
    fn victims_worth_it(&self, room: u64, nodes: Nodes) -> Option<Vec<BlockAddr>> {
        let per_block = u64::from(self.geometry.pages_per_block);
        let (mut victims, mut load) = (Vec::new(), Load::default());
        let (mut won, mut taken, lent) = match nodes {
            Nodes::Stay => (0, 0, 0),
            Nodes::Move => (
                self.pages_a_checkpoint_frees(),
                self.pages_of_moving(&load, nodes),
                self.pages_of_root_block(),
            ),
        };
        for block in self.blocks.emptiest(VICTIMS_MAX) {
            let more = load.with(self.load_of(block));
            if more.nodes > 0 && nodes == Nodes::Stay {
                continue;
            }
            let pages = self.pages_of_moving(&more, nodes);
            // A slot shared by many sectors may cost more records than its block gains. Another block may not.
            if pages + lent > room || pages > self.pages_of_moving(&load, nodes) + per_block {
                continue;
            }
            victims.push(block);
            (load, taken, won) = (more, pages, won + per_block);
        }
        (won > taken && taken + lent <= room).then_some(victims)
    }

    fn load_of(&self, block: BlockAddr) -> Load {
        let mut load = Load::default();
        for slot in slots_of(&self.geometry, block) {
            match self.map.owner(slot) {
                Owner::Nobody => {}
                Owner::Node(_) | Owner::Directory(_) => load.nodes += 1,
                Owner::Log(_) => load.copies += 1,
                Owner::Sector(first) => {
                    load.copies += 1;
                    load.records +=
                        if self.map.is_shared(first) { self.map.ring(first).count() as u64 } else { 0 };
                }
            }
        }
        load
    }

    /// True for data and log slots. Nodes are only marked, for the next checkpoint.
    fn has_to_be_copied(&mut self, slot: SlotAddr) -> bool {
        match self.map.owner(slot) {
            Owner::Nobody => return false,
            Owner::Node(node) => self.nodes.mark(node),
            Owner::Directory(directory) => self.nodes.mark_directory(directory),
            Owner::Sector(_) | Owner::Log(_) => return true,
        }
        false
    }

    /// Number of pages available for copies and stores if `spared` free blocks are not used.
    fn pages_left(&self, spared: usize) -> u64 {
        let open = self.collectors.iter().map(|c| u64::from(c.frontier.pages_left(&self.geometry)));
        let free = self.blocks.free_total().saturating_sub(spared) as u64;
        open.sum::<u64>() + free * u64::from(self.geometry.pages_per_block)
    }

    /// Maximum number of pages for the copies, and for data to be durable before the blocks are erased, and one more.
    /// For a checkpoint this includes the nodes that have changed already: copies change more, for which the checkpoint
    /// may find no room.
    fn pages_of_moving(&self, load: &Load, nodes: Nodes) -> u64 {
        let per_page = u64::from(self.geometry.slots_per_page());
        let begun = if self.nvram_fits() { 0 } else { self.page.oobs.len() as u64 + 1 };
        let logs = self.log.sealed() as u64 + load.records.div_ceil(RECORDS_PER_LOG_SLOT);
        let persisted = load.copies.div_ceil(per_page) + (begun + logs).div_ceil(per_page) + 1;
        match nodes {
            Nodes::Stay => persisted,
            Nodes::Move => persisted + self.pages_of_checkpoint(load.nodes + logs),
        }
    }

    /// Number of pages of a checkpoint that has to write `nodes` more nodes.
    fn pages_of_checkpoint(&self, nodes: u64) -> u64 {
        let nodes = nodes + self.nodes.changed().len() as u64 + self.nodes.directories().len() as u64;
        nodes.div_ceil(u64::from(self.geometry.slots_per_page())) + 1
    }

    /// Number of pages taken while a used-up root block is replaced by another, and then freed.
    fn pages_of_root_block(&self) -> u64 {
        u64::from(if self.root_needs_block() { self.geometry.pages_per_block } else { 0 })
    }

    /// Pages of blocks that hold only nodes released by a checkpoint, and of log slots.
    fn pages_a_checkpoint_frees(&self) -> u64 {
        let aside =
            self.blocks.in_state(State::Aside).count() as u64 * u64::from(self.geometry.pages_per_block);
        aside + self.log.uncovered() as u64 / u64::from(self.geometry.slots_per_page())
    }

    /// Completes a checkpoint; if there is no room for it, because copies changed many nodes or the flash failed
    /// meanwhile, another round may find some.
    fn checkpoint_if_room(&mut self) -> Result<()> {
        match self.complete_checkpoint(false) {
            Err(e) if e.kind() == Kind::NoSpace && self.poisoned.is_none() => Ok(()),
            done => done,
        }
    }
}

/// Whether a round moves nodes, which takes a checkpoint, or skips blocks that hold any.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nodes {
    Stay,
    Move,
}

/// Contents of blocks that are to be emptied.
#[derive(Clone, Copy, Default)]
struct Load {
    copies: u64,
    /// Number of log records of sectors that share a slot.
    records: u64,
    nodes: u64,
}

impl Load {
    fn with(self, other: Load) -> Load {
        Load {
            copies: self.copies + other.copies,
            records: self.records + other.records,
            nodes: self.nodes + other.nodes,
        }
    }
}

pub(crate) fn slots_of(geometry: &Geometry, block: BlockAddr) -> impl Iterator<Item = SlotAddr> + use<> {
    let slots = geometry.slots_per_block();
    (block.0 * slots..(block.0 + 1) * slots).map(SlotAddr)
}
