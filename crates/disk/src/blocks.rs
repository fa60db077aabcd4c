//! Erase blocks: which are free, open, full, dead or bad, and which full one to empty next.
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
//! 2. Every Full block is in the bucket of its die and valid count, and in no other.
//! 3. A Dead block is erased only when every event up to its `emptied_seq` is durable.

use std::collections::{BTreeSet, VecDeque};
use vellum_base::{BlockAddr, Geometry};

/// Life of a block; see the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Free,
    Open,
    Full,
    /// Collected, but for nodes that the next checkpoint will let go.
    Aside,
    Retiring,
    Dead,
    Bad,
    /// Holds roots; never allocated, never collected.
    Root,
}

/// Which way to pick a victim. See [`crate::GcPolicy`].
pub(crate) use crate::options::GcPolicy;

const NONE: u32 = u32::MAX;

/// Memory for each erase block.
pub(crate) const BLOCK_MEMORY_BYTES: u64 = size_of::<Block>() as u64;

struct Block {
    valid: u32,
    erase_count: u32,
    /// Seq when a slot of the block last changed: its age for cost-benefit, and when it was emptied.
    touched_seq: u64,
    previous: u32,
    next: u32,
    state: State,
}

#[derive(Clone, Copy)]
struct Bucket {
    oldest: u32,
    newest: u32,
}

struct Die {
    free: BTreeSet<(u32, BlockAddr)>,
    dead: VecDeque<BlockAddr>,
    buckets: Vec<Bucket>,
    /// No bucket below this has a block.
    lowest: usize,
    full: u32,
}

/// See the module.
pub(crate) struct Blocks {
    geometry: Geometry,
    blocks: Vec<Block>,
    dies: Vec<Die>,
}

impl Blocks {
    /// All blocks free and never erased.
    pub(crate) fn new(geometry: Geometry) -> Blocks {
        let block = || Block {
            valid: 0,
            erase_count: 0,
            touched_seq: 0,
            previous: NONE,
            next: NONE,
            state: State::Free,
        };
        let die = |die: u32| Die {
            free: (0..geometry.blocks_per_die).map(|i| (0, geometry.block_on(die, i))).collect(),
            dead: VecDeque::new(),
            buckets: vec![Bucket { oldest: NONE, newest: NONE }; geometry.slots_per_block() as usize + 1],
            lowest: geometry.slots_per_block() as usize + 1,
            full: 0,
        };
        Blocks {
            geometry,
            blocks: (0..geometry.blocks()).map(|_| block()).collect(),
            dies: (0..geometry.dies()).map(die).collect(),
        }
    }

    pub(crate) fn state(&self, block: BlockAddr) -> State {
        self.blocks[block.index()].state
    }
    pub(crate) fn valid(&self, block: BlockAddr) -> u32 {
        self.blocks[block.index()].valid
    }
    pub(crate) fn erase_count(&self, block: BlockAddr) -> u32 {
        self.blocks[block.index()].erase_count
    }
    pub(crate) fn free_count(&self, die: u32) -> usize {
        self.dies[die as usize].free.len()
    }
    pub(crate) fn dead_count(&self, die: u32) -> usize {
        self.dies[die as usize].dead.len()
    }

    /// Sets what the device reported, before anything is allocated.
    pub(crate) fn load(&mut self, block: BlockAddr, state: State, erase_count: u32) {
        let die = self.geometry.die_of(block) as usize;
        let b = &mut self.blocks[block.index()];
        debug_assert_eq!(b.state, State::Free);
        self.dies[die].free.remove(&(b.erase_count, block));
        b.state = state;
        b.erase_count = erase_count;
        if state == State::Free {
            self.dies[die].free.insert((erase_count, block));
        }
    }

    /// After loading: a block that was written and is now closed, with its valid count.
    pub(crate) fn load_closed(&mut self, block: BlockAddr, seq: u64) {
        self.blocks[block.index()].touched_seq = seq;
        self.blocks[block.index()].state = State::Open;
        self.close(block, seq);
    }

    /// Takes the least worn free block of a die.
    pub(crate) fn open(&mut self, die: u32) -> Option<BlockAddr> {
        let (_, block) = self.dies[die as usize].free.pop_first()?;
        self.blocks[block.index()].state = State::Open;
        Some(block)
    }

    /// Takes the most worn free block of a die, for data that hardly changes.
    pub(crate) fn open_worn(&mut self, die: u32) -> Option<BlockAddr> {
        let (_, block) = self.dies[die as usize].free.pop_last()?;
        self.blocks[block.index()].state = State::Open;
        Some(block)
    }

    /// An open block takes no more pages.
    pub(crate) fn close(&mut self, block: BlockAddr, seq: u64) {
        debug_assert_eq!(self.blocks[block.index()].state, State::Open);
        self.blocks[block.index()].state = State::Full;
        if self.blocks[block.index()].valid == 0 {
            self.blocks[block.index()].touched_seq = seq;
            self.die_out(block);
        } else {
            self.link(block);
        }
    }

    /// A slot of the block got an owner.
    #[inline]
    pub(crate) fn validate(&mut self, block: BlockAddr) {
        let b = &mut self.blocks[block.index()];
        debug_assert!(b.valid < self.geometry.slots_per_block());
        debug_assert!(b.state != State::Full, "slots of a full block get no new owners");
        b.valid += 1;
    }

    /// A slot of the block lost its last owner at `seq`.
    #[inline]
    pub(crate) fn invalidate(&mut self, block: BlockAddr, seq: u64) {
        let state = self.blocks[block.index()].state;
        if state == State::Full {
            self.unlink(block);
        }
        let b = &mut self.blocks[block.index()];
        b.valid -= 1;
        b.touched_seq = seq;
        match (state, b.valid) {
            (State::Full | State::Aside | State::Retiring, 0) => self.die_out(block),
            (State::Full, _) => self.link(block),
            _ => {}
        }
    }

    fn die_out(&mut self, block: BlockAddr) {
        let die = self.geometry.die_of(block) as usize;
        let b = &mut self.blocks[block.index()];
        if b.state == State::Retiring {
            b.state = State::Bad;
        } else {
            b.state = State::Dead;
            self.dies[die].dead.push_back(block);
        }
    }

    /// Takes a full block out of the running: only nodes are left in it.
    pub(crate) fn set_aside(&mut self, block: BlockAddr) {
        debug_assert_eq!(self.blocks[block.index()].state, State::Full);
        self.unlink(block);
        self.blocks[block.index()].state = State::Aside;
    }

    /// A root block is used up, or a new one begins.
    pub(crate) fn set_root(&mut self, block: BlockAddr) {
        self.blocks[block.index()].state = State::Root;
    }

    /// A program or erase of the block failed: it is emptied, and never used again.
    pub(crate) fn retire(&mut self, block: BlockAddr) {
        let die = self.geometry.die_of(block) as usize;
        match self.blocks[block.index()].state {
            State::Full => self.unlink(block),
            State::Dead => self.dies[die].dead.retain(|b| *b != block),
            _ => {}
        }
        let b = &mut self.blocks[block.index()];
        b.state = if b.valid == 0 { State::Bad } else { State::Retiring };
    }

    /// The next dead block of a die that may be erased when everything up to `durable_seq` is durable.
    pub(crate) fn erasable(&mut self, die: u32, durable_seq: u64) -> Option<BlockAddr> {
        let dead = &mut self.dies[die as usize].dead;
        let at = dead.iter().position(|b| self.blocks[b.index()].touched_seq <= durable_seq)?;
        dead.remove(at)
    }

    /// The block was erased.
    pub(crate) fn mark_erased(&mut self, block: BlockAddr) {
        let die = self.geometry.die_of(block) as usize;
        let b = &mut self.blocks[block.index()];
        b.erase_count = b.erase_count.saturating_add(1);
        b.state = State::Free;
        self.dies[die].free.insert((b.erase_count, block));
    }

    /// The full block of `die` that is best emptied next; none if no full block has an invalid slot.
    pub(crate) fn victim(&mut self, die: u32, policy: GcPolicy, now_seq: u64) -> Option<BlockAddr> {
        let slots = self.geometry.slots_per_block() as usize;
        let d = &mut self.dies[die as usize];
        while d.lowest < slots && d.buckets[d.lowest].oldest == NONE {
            d.lowest += 1;
        }
        if d.lowest >= slots {
            return None;
        }
        let lowest = d.lowest;
        let block = match policy {
            GcPolicy::Greedy => d.buckets[lowest].oldest,
            GcPolicy::CostBenefit => self.best_benefit(die, lowest, now_seq),
        };
        Some(BlockAddr(block))
    }

    /// LFS's `age × (1 − u) / 2u`. Buckets are in order of last change, so each one's oldest is its best.
    fn best_benefit(&self, die: u32, lowest: usize, now_seq: u64) -> u32 {
        let slots = self.geometry.slots_per_block() as usize;
        let d = &self.dies[die as usize];
        let (mut best, mut best_score) = (NONE, -1.0);
        for valid in lowest..slots {
            let block = d.buckets[valid].oldest;
            if block != NONE {
                let age = (now_seq - self.blocks[block as usize].touched_seq + 1) as f64;
                let score = age * (slots - valid) as f64 / (2 * valid) as f64;
                if score > best_score {
                    (best, best_score) = (block, score);
                }
            }
        }
        best
    }

    /// The full block of a die with the fewest erases, and the spread to the most worn free one.
    pub(crate) fn coldest(&self, die: u32) -> Option<(BlockAddr, u32)> {
        let worn = self.dies[die as usize].free.last()?.0;
        let coldest = (0..self.geometry.blocks_per_die)
            .map(|i| self.geometry.block_on(die, i))
            .filter(|b| self.blocks[b.index()].state == State::Full)
            .min_by_key(|b| (self.blocks[b.index()].erase_count, *b))?;
        Some((coldest, worn.saturating_sub(self.blocks[coldest.index()].erase_count)))
    }

    /// All blocks in a state.
    pub(crate) fn in_state(&self, state: State) -> impl Iterator<Item = BlockAddr> + '_ {
        (0..self.geometry.blocks()).map(BlockAddr).filter(move |b| self.blocks[b.index()].state == state)
    }

    /// Bytes of memory used.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>()
            + self.dies.iter().map(|d| d.buckets.capacity() * size_of::<Bucket>()).sum::<usize>()
    }

    fn link(&mut self, block: BlockAddr) {
        let die = self.geometry.die_of(block) as usize;
        let valid = self.blocks[block.index()].valid as usize;
        let d = &mut self.dies[die];
        let previous = std::mem::replace(&mut d.buckets[valid].newest, block.0);
        match previous {
            NONE => d.buckets[valid].oldest = block.0,
            p => self.blocks[p as usize].next = block.0,
        }
        d.full += 1;
        d.lowest = d.lowest.min(valid);
        let b = &mut self.blocks[block.index()];
        (b.previous, b.next) = (previous, NONE);
    }

    fn unlink(&mut self, block: BlockAddr) {
        let die = self.geometry.die_of(block) as usize;
        let Block { valid, previous, next, .. } = self.blocks[block.index()];
        let bucket = &mut self.dies[die].buckets[valid as usize];
        match previous {
            NONE => bucket.oldest = next,
            p => self.blocks[p as usize].next = next,
        }
        match next {
            NONE => bucket.newest = previous,
            n => self.blocks[n as usize].previous = previous,
        }
        self.dies[die].full -= 1;
    }

    /// Compares the buckets and valid counts with what `valid_of` counts slowly.
    pub(crate) fn self_check(&self, valid_of: impl Fn(BlockAddr) -> u32) -> Result<(), String> {
        for index in 0..self.geometry.blocks() {
            let block = BlockAddr(index);
            let b = &self.blocks[block.index()];
            if b.state != State::Root && b.valid != valid_of(block) {
                return Err(format!("{block} counts {} valid slots, has {}", b.valid, valid_of(block)));
            }
        }
        for (die, d) in self.dies.iter().enumerate() {
            let mut linked = 0;
            for (valid, bucket) in d.buckets.iter().enumerate() {
                let mut at = bucket.oldest;
                while at != NONE {
                    let b = &self.blocks[at as usize];
                    if b.state != State::Full || b.valid as usize != valid {
                        return Err(format!(
                            "erase block {at} is in the bucket {valid} of die {die} by mistake"
                        ));
                    }
                    linked += 1;
                    at = b.next;
                }
            }
            let full = (0..self.geometry.blocks_per_die)
                .filter(|i| self.state(self.geometry.block_on(die as u32, *i)) == State::Full)
                .count() as u32;
            if linked != full || d.full != full {
                return Err(format!("die {die} has {full} full blocks, {linked} of them in buckets"));
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
                }
            }
        }
    }
}
