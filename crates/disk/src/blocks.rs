//! Erase blocks: their states (free, open, full, dead or bad), and the choice of the next full one to collect.
//!
//! ```text
//!            open()              close()          last slot invalidated        mark_erased()
//!   Free ───────────▶ Open ───────────▶ Full ─────────────────────────▶ Dead ───────────────▶ Free
//!                          set_aside()   │ retire()                       │ retire()
//!                            Aside ◀─────┤                                ▼
//!                              │         └──────▶ Retiring ────────────▶ Bad
//!                              └─ last slot invalidated ─▶ Dead
//! ```
//!
//! Invariants (checked by [`Blocks::self_check`]):
//! 1. `valid` of a block is the number of its slots with an owner.
//! 2. Free and Dead blocks, and no others, are in the lists of their die.
//! 3. A Dead block is erased only when all events up to its `touched_seq` are durable.

use std::collections::{BTreeSet, VecDeque};
use vellum_base::{BlockAddr, Geometry};
use vellum_codes::prefetch;

/// States of a block; see the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Free,
    Open,
    Full,
    /// Collected, except for nodes that the next checkpoint will release.
    Aside,
    Retiring,
    Dead,
    Bad,
    /// Holds roots; never allocated or collected.
    Root,
}

/// How to choose a victim. See [`crate::GcPolicy`].
pub(crate) use crate::options::GcPolicy;

/// Bytes of memory per erase block.
pub(crate) const BLOCK_MEMORY_BYTES: u64 = size_of::<Block>() as u64 + 4;

const NO_VICTIM: u32 = u32::MAX;

struct Block {
    valid: u32,
    erase_count: u32,
    /// Seq of the last change of a slot of the block: its age for cost-benefit, and when it was emptied.
    touched_seq: u64,
    state: State,
}

struct Die {
    /// By index within the die.
    blocks: Vec<Block>,
    /// `valid` of the Full blocks, [`NO_VICTIM`] for others: the array scanned to choose a victim.
    collectable: Vec<u32>,
    free: BTreeSet<(u32, BlockAddr)>,
    dead: VecDeque<BlockAddr>,
}

/// The state of all blocks; see the module.
pub(crate) struct Blocks {
    geometry: Geometry,
    dies: Vec<Die>,
}

impl Blocks {
    /// All blocks are free and never erased.
    pub(crate) fn new(geometry: Geometry) -> Blocks {
        let block = |_| Block { valid: 0, erase_count: 0, touched_seq: 0, state: State::Free };
        let die = |die: u32| Die {
            blocks: (0..geometry.blocks_per_die).map(block).collect(),
            collectable: vec![NO_VICTIM; geometry.blocks_per_die as usize],
            free: (0..geometry.blocks_per_die).map(|i| (0, geometry.block_on(die, i))).collect(),
            dead: VecDeque::new(),
        };
        Blocks { geometry, dies: (0..geometry.dies()).map(die).collect() }
    }

    fn block(&self, block: BlockAddr) -> &Block {
        let dies = self.dies.len() as u32;
        &self.dies[(block.0 % dies) as usize].blocks[(block.0 / dies) as usize]
    }

    fn block_mut(&mut self, block: BlockAddr) -> &mut Block {
        let dies = self.dies.len() as u32;
        &mut self.dies[(block.0 % dies) as usize].blocks[(block.0 / dies) as usize]
    }

    /// Sets the state of a block.
    fn set(&mut self, block: BlockAddr, state: State) {
        let dies = self.dies.len() as u32;
        let (die, index) = (&mut self.dies[(block.0 % dies) as usize], (block.0 / dies) as usize);
        die.blocks[index].state = state;
        die.collectable[index] = if state == State::Full { die.blocks[index].valid } else { NO_VICTIM };
    }

    pub(crate) fn state(&self, block: BlockAddr) -> State {
        self.block(block).state
    }
    pub(crate) fn valid(&self, block: BlockAddr) -> u32 {
        self.block(block).valid
    }
    pub(crate) fn erase_count(&self, block: BlockAddr) -> u32 {
        self.block(block).erase_count
    }
    pub(crate) fn free_count(&self, die: u32) -> usize {
        self.dies[die as usize].free.len()
    }
    /// Number of free blocks on all dies.
    pub(crate) fn free_total(&self) -> usize {
        self.dies.iter().map(|die| die.free.len()).sum()
    }
    /// Number of dead blocks on all dies.
    pub(crate) fn dead_total(&self) -> usize {
        self.dies.iter().map(|die| die.dead.len()).sum()
    }
    pub(crate) fn dead_count(&self, die: u32) -> usize {
        self.dies[die as usize].dead.len()
    }

    /// Sets a block's state as reported by the device, before anything is allocated.
    pub(crate) fn load(&mut self, block: BlockAddr, state: State, erase_count: u32) {
        let b = self.block_mut(block);
        debug_assert_eq!(b.state, State::Free);
        let before = std::mem::replace(&mut b.erase_count, erase_count);
        self.set(block, state);
        let free = &mut self.dies[self.geometry.die_of(block) as usize].free;
        free.remove(&(before, block));
        if state == State::Free {
            free.insert((erase_count, block));
        }
    }

    /// After loading: closes a written block whose valid slots have been counted.
    pub(crate) fn load_closed(&mut self, block: BlockAddr, seq: u64) {
        self.set(block, State::Open);
        self.close(block, seq);
    }

    /// After loading: reopens a closed block that has pages left.
    pub(crate) fn reopen(&mut self, block: BlockAddr) {
        debug_assert_eq!(self.state(block), State::Full);
        self.set(block, State::Open);
    }

    /// Opens the least worn free block of a die.
    pub(crate) fn open(&mut self, die: u32) -> Option<BlockAddr> {
        let (_, block) = self.dies[die as usize].free.pop_first()?;
        self.set(block, State::Open);
        Some(block)
    }

    /// Opens the most worn free block of a die, for cold data.
    pub(crate) fn open_worn(&mut self, die: u32) -> Option<BlockAddr> {
        let (_, block) = self.dies[die as usize].free.pop_last()?;
        self.set(block, State::Open);
        Some(block)
    }

    /// Closes an open block to further pages.
    pub(crate) fn close(&mut self, block: BlockAddr, seq: u64) {
        debug_assert_eq!(self.state(block), State::Open);
        self.set(block, State::Full);
        let b = self.block_mut(block);
        b.touched_seq = seq;
        if b.valid == 0 {
            self.die_out(block);
        }
    }

    /// Prefetches the block's entry: one of its slots is about to lose or to get an owner.
    #[inline]
    pub(crate) fn prefetch(&self, block: BlockAddr) {
        let dies = self.dies.len() as u32;
        prefetch(&self.dies[(block.0 % dies) as usize].blocks, (block.0 / dies) as usize);
    }

    /// Counts a slot of the block that got an owner.
    #[inline]
    pub(crate) fn validate(&mut self, block: BlockAddr) {
        let slots = self.geometry.slots_per_block();
        let b = self.block_mut(block);
        debug_assert!(b.valid < slots);
        debug_assert!(b.state != State::Full, "slots of a full block get no new owners");
        b.valid += 1;
    }

    /// Counts a slot of the block that lost its last owner at `seq`.
    #[inline]
    pub(crate) fn invalidate(&mut self, block: BlockAddr, seq: u64) {
        let dies = self.dies.len() as u32;
        let (die, index) = (&mut self.dies[(block.0 % dies) as usize], (block.0 / dies) as usize);
        let b = &mut die.blocks[index];
        b.valid -= 1;
        b.touched_seq = seq;
        if b.state == State::Full {
            die.collectable[index] = b.valid;
        }
        if b.valid == 0 && matches!(b.state, State::Full | State::Aside | State::Retiring) {
            self.die_out(block);
        }
    }

    fn die_out(&mut self, block: BlockAddr) {
        if self.state(block) == State::Retiring {
            self.set(block, State::Bad);
        } else {
            self.set(block, State::Dead);
            self.dies[self.geometry.die_of(block) as usize].dead.push_back(block);
        }
    }

    /// Excludes a full block from collection: only nodes are left in it.
    pub(crate) fn set_aside(&mut self, block: BlockAddr) {
        debug_assert_eq!(self.state(block), State::Full);
        self.set(block, State::Aside);
    }

    /// Marks a block as a root block, whether used up or new.
    pub(crate) fn set_root(&mut self, block: BlockAddr) {
        self.set(block, State::Root);
    }

    /// Retires a block after a failed program or erase: it is emptied, and never used again.
    pub(crate) fn retire(&mut self, block: BlockAddr) {
        if self.state(block) == State::Dead {
            self.dies[self.geometry.die_of(block) as usize].dead.retain(|b| *b != block);
        }
        self.set(block, if self.valid(block) == 0 { State::Bad } else { State::Retiring });
    }

    /// Removes and returns the next dead block of a die that may be erased, given that everything up to `durable_seq`
    /// is durable.
    pub(crate) fn erasable(&mut self, die: u32, durable_seq: u64) -> Option<BlockAddr> {
        let dead = &self.dies[die as usize].dead;
        let at = dead.iter().position(|b| self.block(*b).touched_seq <= durable_seq)?;
        self.dies[die as usize].dead.remove(at)
    }

    /// Records that the block was erased.
    pub(crate) fn mark_erased(&mut self, block: BlockAddr) {
        let b = self.block_mut(block);
        b.erase_count = b.erase_count.saturating_add(1);
        let key = (b.erase_count, block);
        self.set(block, State::Free);
        self.dies[self.geometry.die_of(block) as usize].free.insert(key);
    }

    /// The full block of `die` that is best collected next; none if no full block has an invalid slot.
    ///
    /// Scans all blocks of the die. This is little work, done once per as many writes as the victim has invalid slots.
    /// Sorted lists would have to be updated on every write.
    pub(crate) fn victim(&self, die: u32, policy: GcPolicy, now_seq: u64) -> Option<BlockAddr> {
        let slots = self.geometry.slots_per_block();
        let d = &self.dies[die as usize];
        let fewest = d.collectable.iter().copied().min().filter(|valid| *valid < slots)?;
        let of_full = (0..).zip(&d.collectable).filter(|(_, valid)| **valid < slots);
        let candidates = of_full.map(|(i, valid)| (i, *valid, d.blocks[i as usize].touched_seq));
        let best = match policy {
            GcPolicy::Greedy => candidates.filter(|c| c.1 == fewest).min_by_key(|c| c.2),
            GcPolicy::CostBenefit => {
                // LFS's `age × (1 − u) / 2u`.
                let benefit = |valid: u32, touched: u64| {
                    (now_seq - touched + 1) as f64 * f64::from(slots - valid) / f64::from(2 * valid)
                };
                candidates.max_by(|a, b| benefit(a.1, a.2).total_cmp(&benefit(b.1, b.2)))
            }
        };
        best.map(|(index, ..)| self.geometry.block_on(die, index))
    }

    /// Up to `count` full blocks of all dies with the fewest valid slots, emptiest first; fully valid blocks are left
    /// out.
    pub(crate) fn emptiest(&self, count: usize) -> Vec<BlockAddr> {
        let slots = self.geometry.slots_per_block();
        let of_die = |(die, d): (u32, &Die)| {
            let full = (0..).zip(d.collectable.clone()).filter(move |(_, valid)| *valid < slots);
            full.map(move |(i, valid)| (valid, self.geometry.block_on(die, i))).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = (0..).zip(&self.dies).flat_map(of_die).collect();
        if all.len() > count {
            all.select_nth_unstable(count);
            all.truncate(count);
        }
        all.sort_unstable();
        all.into_iter().map(|(_, block)| block).collect()
    }

    /// The full block of a die with the fewest erases, and the difference to the most worn free one.
    pub(crate) fn coldest(&self, die: u32) -> Option<(BlockAddr, u32)> {
        let worn = self.dies[die as usize].free.last()?.0;
        let (coldest, b) = self.full(die).min_by_key(|(_, b)| b.erase_count)?;
        Some((coldest, worn.saturating_sub(b.erase_count)))
    }

    fn full(&self, die: u32) -> impl Iterator<Item = (BlockAddr, &Block)> {
        let blocks = self.dies[die as usize].blocks.iter().enumerate();
        blocks
            .filter(|(_, b)| b.state == State::Full)
            .map(move |(i, b)| (self.geometry.block_on(die, i as u32), b))
    }

    /// All blocks in a state.
    pub(crate) fn in_state(&self, state: State) -> impl Iterator<Item = BlockAddr> + '_ {
        (0..self.geometry.blocks()).map(BlockAddr).filter(move |b| self.state(*b) == state)
    }

    /// Bytes of memory used.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.dies.iter().map(|d| d.blocks.capacity() * BLOCK_MEMORY_BYTES as usize).sum()
    }

    /// Compares the valid counts with those that `valid_of` counts afresh, and the lists with the states.
    pub(crate) fn self_check(&self, valid_of: impl Fn(BlockAddr) -> u32) -> Result<(), String> {
        for block in (0..self.geometry.blocks()).map(BlockAddr) {
            let b = self.block(block);
            if b.state != State::Root && b.valid != valid_of(block) {
                return Err(format!("{block} counts {} valid slots, has {}", b.valid, valid_of(block)));
            }
            let die = &self.dies[self.geometry.die_of(block) as usize];
            let collectable = die.collectable[(block.0 / self.geometry.dies()) as usize];
            if collectable != if b.state == State::Full { b.valid } else { NO_VICTIM } {
                return Err(format!(
                    "{block} is {:?}, and collectable with {collectable} valid slots",
                    b.state
                ));
            }
            if die.free.contains(&(b.erase_count, block)) != (b.state == State::Free)
                || die.dead.contains(&block) != (b.state == State::Dead)
            {
                return Err(format!("{block} is {:?}, and the lists of its die know otherwise", b.state));
            }
        }
        for (die, d) in self.dies.iter().enumerate() {
            let listed = d.free.len() + d.dead.len();
            let states = d.blocks.iter().filter(|b| matches!(b.state, State::Free | State::Dead)).count();
            if listed != states {
                return Err(format!("die {die} lists {listed} free and dead blocks, has {states}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const G: Geometry = Geometry {
        channels: 2,
        dies_per_channel: 1,
        blocks_per_die: 6,
        pages_per_block: 4,
        page_bytes: 4096,
        oob_bytes: 32,
    };

    proptest! {
        #[test]
        fn any_history_keeps_the_invariants(ops in proptest::collection::vec((0u8..5, 0u32..12), 1..300)) {
            let mut blocks = Blocks::new(G);
            let mut valid = [0u32; 12];
            for (seq, (op, at)) in ops.into_iter().enumerate() {
                let (block, seq) = (BlockAddr(at), seq as u64);
                match (op, blocks.state(block)) {
                    (0, _) => { blocks.open(at % 2); }
                    (1, State::Open) if valid[at as usize] < 4 => {
                        blocks.validate(block);
                        valid[at as usize] += 1;
                    }
                    (2, State::Open) => blocks.close(block, seq),
                    (3, State::Open | State::Full) if valid[at as usize] > 0 => {
                        valid[at as usize] -= 1;
                        blocks.invalidate(block, seq);
                    }
                    (4, _) => if let Some(dead) = blocks.erasable(at % 2, seq) { blocks.mark_erased(dead) },
                    _ => {}
                }
                if let Err(broken) = blocks.self_check(|b| valid[b.index()]) {
                    prop_assert!(false, "{}", broken);
                }
                if let Some(victim) = blocks.victim(0, GcPolicy::Greedy, seq) {
                    let fewest = blocks.in_state(State::Full)
                        .filter(|b| G.die_of(*b) == 0).map(|b| valid[b.index()]).min();
                    prop_assert_eq!(Some(valid[victim.index()]), fewest);
                    prop_assert!(valid[victim.index()] < 4, "there is something to win");
                }
            }
        }
    }
}
