//! The paper's board (flashkv.txt, Table 1), and how its driver exposes it: as channels that serve requests in order of
//! arrival, or, for a block FTL, as one long log of pages over all channels.

use std::sync::Arc;
use vellum_base::flash::BatchError;
use vellum_base::{
    BlockAddr, BlockReport, BlockState, Done, Env, Flash, FlashCounters, FlashError, FlashOp, Geometry,
    IoClass, Nanos, Nvram, PageAddr, Result, Source,
};
use vellum_media::nand::{Nand, NandParams};
use vellum_media::{Preset, Timed};

/// The board in some size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Board {
    pub channels: u32,
    pub pages_per_block: u32,
    pub blocks_per_die: u32,
}

impl Board {
    /// Bytes of a superblock.
    pub(crate) fn superblock_bytes(&self) -> u64 {
        u64::from(self.channels * self.pages_per_block) * 8192
    }

    /// This board with at least the given number of bytes.
    pub(crate) fn holding(self, bytes: u64) -> Board {
        Board { blocks_per_die: bytes.div_ceil(self.superblock_bytes()) as u32, ..self }
    }

    fn preset(&self) -> Result<Preset> {
        let mut preset = Preset::by_name("open-channel-34")?;
        // Erasing takes as long per byte as for blocks of the paper's size.
        let whole = preset.geometry.pages_per_block;
        preset.timing.erase =
            Nanos(preset.timing.erase.0 * u64::from(self.pages_per_block) / u64::from(whole));
        preset.geometry.channels = self.channels;
        preset.geometry.pages_per_block = self.pages_per_block;
        preset.geometry.blocks_per_die = self.blocks_per_die;
        Ok(preset)
    }

    /// Makes a new board. It serves requests in order of arrival, regardless of class: scheduling is done above.
    pub(super) fn make(&self, env: Arc<dyn Env>, nvram_bytes: usize, seed: u64) -> Result<Arc<Timed<Nand>>> {
        let preset = self.preset()?;
        let params = NandParams { seed, nvram_bytes, ..NandParams::default() };
        let nand = Arc::new(Nand::ram(preset.geometry, params)?);
        Ok(Arc::new(Timed::new(nand, preset.timing, env)))
    }
}

/// How the driver exposes the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Unchanged.
    Channels,
    /// As one die with superblocks as erase blocks, whose pages go over all channels in turn: what PBlk collects.
    OneLog,
}

/// The board behind its driver.
pub(super) struct Driver {
    board: Arc<Timed<Nand>>,
    view: View,
    geometry: Geometry,
}

impl Driver {
    pub(super) fn new(board: Arc<Timed<Nand>>, view: View) -> Driver {
        let own = *board.geometry();
        let geometry = match view {
            View::Channels => own,
            View::OneLog => Geometry {
                channels: 1,
                dies_per_channel: 1,
                pages_per_block: own.pages_per_block * own.dies(),
                ..own
            },
        };
        Driver { board, view, geometry }
    }

    fn page(&self, page: PageAddr) -> PageAddr {
        let own = self.board.geometry();
        match self.view {
            View::Channels => page,
            View::OneLog => own.block_on(page.page % own.dies(), page.block.0).page(page.page / own.dies()),
        }
    }

    fn blocks(&self, block: BlockAddr) -> Vec<BlockAddr> {
        let own = self.board.geometry();
        match self.view {
            View::Channels => vec![block],
            View::OneLog => (0..own.dies()).map(|die| own.block_on(die, block.0)).collect(),
        }
    }

    fn part<'a>(&self, part: &Source<'a>) -> Source<'a> {
        match *part {
            Source::Copy { page, offset, bytes } => Source::Copy { page: self.page(page), offset, bytes },
            other => other,
        }
    }

    fn submit_one(&self, op: &mut FlashOp<'_>) -> Result<Done, FlashError> {
        let run = |ops: &mut [FlashOp<'_>]| self.board.submit(IoClass::Background, ops).map_err(|e| e.error);
        match op {
            FlashOp::Read { page, offset, data, oob } => {
                run(&mut [FlashOp::Read { page: self.page(*page), offset: *offset, data, oob }])
            }
            FlashOp::Program { page, parts, oob, seeds } => {
                let parts: Vec<Source<'_>> = parts.iter().map(|part| self.part(part)).collect();
                run(&mut [FlashOp::Program { page: self.page(*page), parts: &parts, oob, seeds }])
            }
            FlashOp::Erase { block, after } => {
                let erase = |block| FlashOp::Erase { block, after: *after };
                run(&mut self.blocks(*block).into_iter().map(erase).collect::<Vec<_>>())
            }
        }
    }
}

impl Flash for Driver {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, _class: IoClass, ops: &mut [FlashOp<'_>]) -> Result<Done, BatchError> {
        let mut done = Done::default();
        for (index, op) in ops.iter_mut().enumerate() {
            match self.submit_one(op) {
                Ok(one) => {
                    done.at = done.at.max(one.at);
                    done.bits_corrected = done.bits_corrected.max(one.bits_corrected);
                }
                Err(error) => return Err(BatchError { index, done, error }),
            }
        }
        Ok(done)
    }

    fn report(&self, block: BlockAddr) -> BlockReport {
        let reports: Vec<BlockReport> =
            self.blocks(block).into_iter().map(|block| self.board.report(block)).collect();
        BlockReport {
            state: match reports.iter().all(|report| report.state == BlockState::Good) {
                true => BlockState::Good,
                false => BlockState::Bad,
            },
            pages_written: reports.iter().map(|report| report.pages_written).sum(),
            erase_count: reports.iter().map(|report| report.erase_count).max().unwrap_or(0),
        }
    }

    fn counters(&self) -> FlashCounters {
        self.board.counters()
    }

    fn sync(&self) -> Result<(), FlashError> {
        self.board.sync()
    }

    fn nvram(&self) -> Option<&dyn Nvram> {
        self.board.nvram()
    }
}
