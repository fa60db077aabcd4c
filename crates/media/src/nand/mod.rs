//! Virtual NAND flash.
//!
//! A [`Nand`] is a set of dies, each behind its own lock, so that dies work in parallel. A die enforces the rules of
//! [`Flash`] and passes the bytes to a store: memory ([`Nand::ram`]) or an image file ([`crate::image::Image`]). Time
//! is not modelled here; [`crate::timing::Timed`] does that.
//!
//! 1. At most one die is locked at a time: a copy takes the pieces out of one die, then passes them to the other. A
//!    batch keeps the lock while it stays on the die.
//! 2. Random events (bad blocks, failures, bit errors, torn pages) are a function of the seed and the address, not of
//!    the order of calls: see `dice`.
//! 3. With all faults disabled ([`Wear::default`], nothing armed) the fault checks cost no more than a load.

pub mod alike;
mod block;
mod content;
pub(crate) mod dice;
mod die;
mod ecc;
pub mod faults;
mod health;
mod nvram;
mod power;
mod ram;
mod store;
mod submit;

pub use ecc::{BitErrors, CODEWORD_BYTES};
pub use faults::Fault;
pub use power::{InFlight, InFlightOp};

pub(crate) use block::Block;
pub(crate) use content::{PageContent, Piece};
pub(crate) use die::Die;
pub(crate) use nvram::NvramBacking;
pub(crate) use ram::RamBlock;
pub(crate) use store::PageStore;

use crate::coded::Tally;
use crate::one_of::OneOf;
use die::Rules;
use faults::{Call, Plan};
use health::Health;
use nvram::NvramDevice;
use ram::RamStore;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::flash::BatchError;
use vellum_base::sync::Mutex;
use vellum_base::{
    BlockAddr, BlockReport, BlockState, Done, Flash, FlashCounters, FlashError, FlashOp, Geometry, IoClass,
    Nvram, Result,
};

/// Parameters of a virtual device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NandParams {
    /// Seed of bad blocks, failures and torn pages.
    pub seed: u64,
    /// Rated erases of a block.
    pub endurance: u32,
    /// Share of blocks that are bad from the factory.
    pub factory_bad_share: f64,
    /// Bytes of NVRAM; 0 for none.
    pub nvram_bytes: usize,
    /// Random faults.
    pub wear: Wear,
    /// How many of a die's latest erases a power cut can find not begun, and undo. In memory only; each takes as much
    /// memory as the block's contents.
    pub erases_kept: usize,
}

impl Default for NandParams {
    /// A faultless device rated for 3000 erases, without NVRAM.
    fn default() -> NandParams {
        NandParams {
            seed: 0,
            endurance: 3000,
            factory_bad_share: 0.0,
            nvram_bytes: 0,
            wear: Wear::default(),
            erases_kept: 0,
        }
    }
}

/// Probabilities of random faults. All are zero by default.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Wear {
    /// Probability that a program fails.
    pub program_failure: f64,
    /// Probability that an erase fails.
    pub erase_failure: f64,
    /// Bit errors, and the code that corrects them.
    pub bit_errors: Option<BitErrors>,
}

/// A virtual flash device.
pub struct Nand {
    rules: Rules,
    dies: Vec<Mutex<Die>>,
    shared: Arc<Shared>,
    nvram: Option<NvramDevice>,
    medium: Option<Medium>,
}

/// A device that can lose power at any moment.
pub trait PowerCut {
    /// Cuts the power now. `in_flight` are the unfinished operations in order of submission: those begun are torn, the
    /// others did not happen.
    fn power_cut_now(&self, in_flight: &[InFlight]) -> Result<(), FlashError>;
}

/// The persistent storage of a device that outlives the process.
pub(crate) trait Backing: Send + Sync {
    /// Begins a sync: NVRAM writes from now on belong to the next one.
    fn begin_sync(&self);
    /// Makes the block states, the counters and all earlier writes durable. `closing` for the last sync.
    fn sync(
        &self,
        blocks: Vec<(BlockAddr, Block)>,
        counters: FlashCounters,
        closing: bool,
    ) -> Result<(), FlashError>;
}

struct Medium {
    backing: Box<dyn Backing>,
    /// The counters at the start of this run.
    counters_before: FlashCounters,
    /// Held during a sync.
    syncing: Mutex<()>,
}

/// State shared by the device and its NVRAM.
pub(crate) struct Shared {
    health: Health,
    faults: Plan,
    /// Bits corrected, and reads not correctable, by a code above.
    bits_corrected_above: AtomicU64,
    reads_uncorrectable_above: AtomicU64,
}

/// The probabilities of [`Wear`] as thresholds.
pub(crate) struct Chances {
    program_failure: u64,
    erase_failure: u64,
}

/// The parts of a persistent device.
pub(crate) struct Parts {
    pub geometry: Geometry,
    pub params: NandParams,
    pub dies: Vec<Die>,
    pub nvram: Vec<u8>,
    pub nvram_backing: Option<Box<dyn NvramBacking>>,
    pub backing: Box<dyn Backing>,
    pub counters: FlashCounters,
    pub read_only: bool,
}

impl Nand {
    /// An erased device in memory.
    ///
    /// ```
    /// use vellum_base::{BlockAddr, Flash, Geometry, IoClass, Source};
    /// use vellum_media::nand::{Nand, NandParams};
    ///
    /// let geometry = Geometry { channels: 2, dies_per_channel: 1, blocks_per_die: 8, pages_per_block: 16,
    ///                           page_bytes: 8192, oob_bytes: 32 };
    /// let nand = Nand::ram(geometry, NandParams::default()).unwrap();
    /// let page = BlockAddr(3).page(0);
    /// nand.program(IoClass::Foreground, page, &[Source::Bytes(&[7; 4096]), Source::Pad(4096)], b"tag").unwrap();
    /// let (mut data, mut oob) = ([0; 4096], [0; 32]);
    /// nand.read(IoClass::Foreground, page, 0, &mut data, &mut oob).unwrap();
    /// assert!(data == [7; 4096] && &oob[..3] == b"tag");
    /// assert_eq!(nand.report(BlockAddr(3)).pages_written, 1);
    /// ```
    pub fn ram(geometry: Geometry, params: NandParams) -> Result<Nand> {
        geometry.validate()?;
        let dies = (0..geometry.dies())
            .map(|die| {
                let blocks = (0..geometry.blocks_per_die)
                    .map(|index| new_block(&params, geometry.block_on(die, index)))
                    .collect();
                Die::new(die, blocks, Box::new(RamStore::new(&geometry)))
            })
            .collect();
        let nvram = vec![0; params.nvram_bytes];
        Ok(Nand::assemble(geometry, params, dies, nvram, None, Health::default()))
    }

    /// Assembles a persistent device.
    pub(crate) fn on(parts: Parts) -> Nand {
        let health = Health::new(parts.counters.power_cuts, parts.read_only);
        let Parts { geometry, params, dies, nvram, nvram_backing, backing, counters, .. } = parts;
        let mut nand = Nand::assemble(geometry, params, dies, nvram, nvram_backing, health);
        nand.medium = Some(Medium { backing, counters_before: counters, syncing: Mutex::new(()) });
        nand
    }

    fn assemble(
        geometry: Geometry,
        params: NandParams,
        dies: Vec<Die>,
        nvram: Vec<u8>,
        nvram_backing: Option<Box<dyn NvramBacking>>,
        health: Health,
    ) -> Nand {
        let shared = Arc::new(Shared {
            health,
            faults: Plan::default(),
            bits_corrected_above: AtomicU64::new(0),
            reads_uncorrectable_above: AtomicU64::new(0),
        });
        let nvram = (!nvram.is_empty()).then(|| NvramDevice::new(nvram, nvram_backing, shared.clone()));
        let chances = Chances {
            program_failure: dice::threshold(params.wear.program_failure),
            erase_failure: dice::threshold(params.wear.erase_failure),
        };
        let dies = dies.into_iter().map(Mutex::new).collect();
        Nand { rules: Rules { geometry, params, chances }, dies, shared, nvram, medium: None }
    }

    /// The parameters the device was created with.
    pub fn params(&self) -> &NandParams {
        &self.rules.params
    }

    /// An independent copy of a device in memory, powered on and with no fault armed, so that a test can try every
    /// continuation from one state. `None` if the device is an image.
    pub fn fork(&self) -> Option<Nand> {
        let mut dies = Vec::with_capacity(self.dies.len());
        for die in &self.dies {
            let die = die.lock();
            let mut copy = Die::new(die.number, die.blocks.clone(), die.store.fork()?);
            copy.counters = die.counters;
            dies.push(copy);
        }
        let nvram = self.nvram.as_ref().map(NvramDevice::content).unwrap_or_default();
        let health = Health::new(self.shared.health.cuts(), false);
        Some(Nand::assemble(self.rules.geometry, self.rules.params.clone(), dies, nvram, None, health))
    }

    /// Syncs and closes an image. Dropping does the same, but ignores errors.
    pub fn close(self) -> Result<()> {
        let result = self.goodbye();
        self.shared.health.poison(); // leaves nothing to do for drop
        result.map_err(Into::into)
    }

    fn goodbye(&self) -> Result<(), FlashError> {
        if self.shared.health.is_read_only() || self.shared.health.is_poisoned() {
            return Ok(());
        }
        self.sync_as(true)
    }

    fn sync_as(&self, closing: bool) -> Result<(), FlashError> {
        let Some(medium) = &self.medium else { return Ok(()) };
        let _one_at_a_time = medium.syncing.lock();
        // A later sync cannot make up for what a failed one of another thread lost.
        self.shared.health.check_write()?;
        if !self.shared.health.take_unsynced() && !closing {
            return Ok(());
        }
        let result = self.sync_dies(medium, closing);
        if result.is_err() {
            self.shared.health.poison();
        }
        result
    }

    fn sync_dies(&self, medium: &Medium, closing: bool) -> Result<(), FlashError> {
        medium.backing.begin_sync();
        let mut dirty = Vec::new();
        for die in &self.dies {
            let die = &mut *die.lock();
            die.store.flush(&die.blocks)?;
            for (index, block) in die.blocks.iter_mut().enumerate().filter(|(_, block)| block.dirty) {
                block.dirty = false;
                dirty.push((self.rules.geometry.block_on(die.number, index as u32), block.clone()));
            }
        }
        medium.backing.sync(dirty, self.counters(), closing)
    }
}

impl Flash for Nand {
    fn geometry(&self) -> &Geometry {
        &self.rules.geometry
    }

    fn submit(&self, _class: IoClass, ops: &mut [FlashOp<'_>]) -> Result<Done, BatchError> {
        let mut done = Done::default();
        let mut dies = OneOf::new(&self.dies);
        if ops.len() > 1 && self.medium.is_none() {
            self.expect_copies(&mut dies, ops);
        }
        let mut index = 0;
        while index < ops.len() {
            let run = self.run_length(&ops[index..]);
            let result = match run {
                1 => self.one(&mut dies, &mut ops[index]).map_err(|error| (0, error)),
                _ => self.program_run(&mut dies, &ops[index..index + run]),
            };
            match result {
                Ok(bits) => done.bits_corrected = done.bits_corrected.max(bits),
                Err((i, error)) => return Err(BatchError { index: index + i, done, error }),
            }
            index += run;
        }
        Ok(done)
    }

    fn report(&self, block: BlockAddr) -> BlockReport {
        if self.check_block(block).is_err() {
            return BlockReport { state: BlockState::Bad, pages_written: 0, erase_count: 0 };
        }
        let (die, index) = self.locate(block);
        let die = die.lock();
        let state = &die.blocks[index as usize];
        BlockReport {
            state: if state.bad { BlockState::Bad } else { BlockState::Good },
            pages_written: state.pages_written,
            erase_count: state.erase_count,
        }
    }

    fn counters(&self) -> FlashCounters {
        let before = self.medium.as_ref().map(|m| m.counters_before).unwrap_or_default();
        let mut sum = self.dies.iter().fold(before, |sum, die| add(sum, &die.lock().counters));
        sum.power_cuts = self.shared.health.cuts();
        sum.bits_corrected += self.shared.bits_corrected_above.load(Relaxed);
        sum.reads_uncorrectable += self.shared.reads_uncorrectable_above.load(Relaxed);
        sum
    }

    fn sync(&self) -> Result<(), FlashError> {
        if self.shared.health.is_read_only() {
            return self.shared.health.check_read(); // nothing was written
        }
        self.shared.health.check_write()?;
        self.shared.count(Call::Sync)?;
        self.sync_as(false)
    }

    fn failing_bits(&self) -> u32 {
        self.rules.params.wear.bit_errors.map_or(1, |model| model.correctable.div_ceil(2))
    }

    fn nvram(&self) -> Option<&dyn Nvram> {
        self.nvram.as_ref().map(|nvram| nvram as &dyn Nvram)
    }
}

impl Tally for Nand {
    fn tally(&self, bits_corrected: u64, reads_uncorrectable: u64) {
        self.shared.bits_corrected_above.fetch_add(bits_corrected, Relaxed);
        self.shared.reads_uncorrectable_above.fetch_add(reads_uncorrectable, Relaxed);
    }
}

impl Drop for Nand {
    fn drop(&mut self) {
        // Errors cannot be returned here; callers that want them call `close`.
        let _ = self.goodbye();
    }
}

/// A block as delivered by the factory.
pub(crate) fn new_block(params: &NandParams, address: BlockAddr) -> Block {
    let draw = dice::roll(params.seed, [0xBAD, address.0 as u64, 0, 0]);
    Block::new(draw < dice::threshold(params.factory_bad_share))
}

fn add(a: FlashCounters, b: &FlashCounters) -> FlashCounters {
    FlashCounters {
        pages_read: a.pages_read + b.pages_read,
        pages_programmed: a.pages_programmed + b.pages_programmed,
        blocks_erased: a.blocks_erased + b.blocks_erased,
        program_failures: a.program_failures + b.program_failures,
        erase_failures: a.erase_failures + b.erase_failures,
        bits_corrected: a.bits_corrected + b.bits_corrected,
        reads_uncorrectable: a.reads_uncorrectable + b.reads_uncorrectable,
        power_cuts: a.power_cuts,
    }
}
