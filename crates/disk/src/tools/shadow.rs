//! A flash that reads through to another and keeps writes in memory: nothing is written to the one below.
//!
//! Recovery, restore and repair run on it unchanged, so that they can be tried, and a crashed disk examined, without
//! writing.
//!
//! 1. The rules of [`Flash`] are enforced above, whatever happens.
//! 2. A page is in memory, or below in its state when the shadow was made, or erased.

use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::flash::BatchError;
use vellum_base::sync::Mutex;
use vellum_base::{
    BlockAddr, BlockReport, BlockState, Done, Flash, FlashCounters, FlashError, FlashOp, Geometry, IoClass,
    Nvram, PageAddr, Parity, Result, Source,
};

/// The shadow; see the module.
pub(crate) struct Shadow {
    below: Arc<dyn Flash>,
    changes: Mutex<Changes>,
    nvram: Option<ShadowNvram>,
}

#[derive(Default)]
struct Changes {
    /// Blocks erased since, which hide everything below, with their number of erases.
    erased: BTreeMap<BlockAddr, u32>,
    pages: BTreeMap<(BlockAddr, u32), Page>,
    programmed: u64,
    erases: u64,
}

/// A page programmed in memory.
pub(super) struct Page {
    pub data: Vec<u8>,
    pub oob: Vec<u8>,
}

impl Shadow {
    pub(crate) fn new(below: Arc<dyn Flash>) -> Result<Shadow> {
        let nvram = match below.nvram() {
            Some(nvram) => {
                let mut bytes = vec![0; nvram.bytes()];
                nvram.read(0, &mut bytes)?;
                Some(ShadowNvram(Mutex::new(bytes)))
            }
            None => None,
        };
        Ok(Shadow { below, changes: Mutex::default(), nvram })
    }

    /// Calls `visit` with every page that is only in memory.
    pub(super) fn for_each_page(&self, mut visit: impl FnMut(PageAddr, &Page)) {
        self.changes.lock().pages.iter().for_each(|((block, page), content)| {
            visit(block.page(*page), content);
        });
    }

    fn read_page(
        &self,
        changes: &Changes,
        class: IoClass,
        page: PageAddr,
        offset: u32,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<Done, FlashError> {
        let from = offset as usize;
        if let Some(known) = changes.pages.get(&(page.block, page.page)) {
            let bytes = known.data.get(from..from + data.len());
            data.copy_from_slice(bytes.ok_or_else(|| FlashError::Rule(format!("read beyond {page}")))?);
            oob.copy_from_slice(&known.oob[..oob.len()]);
        } else if changes.erased.contains_key(&page.block) {
            data.fill(0xFF);
            oob.fill(0xFF);
        } else {
            return self.below.read(class, page, offset, data, oob);
        }
        Ok(Done::default())
    }

    fn program_page(
        &self,
        changes: &mut Changes,
        class: IoClass,
        page: PageAddr,
        parts: &[Source<'_>],
        oob: &[u8],
    ) -> Result<(), FlashError> {
        let geometry = self.below.geometry();
        let report = self.report_with(changes, page.block);
        if report.state == BlockState::Bad {
            return Err(FlashError::ProgramFailed(page));
        }
        if page.page != report.pages_written || page.page >= geometry.pages_per_block {
            return Err(FlashError::Rule(format!("{page} is not the next of its block")));
        }
        let mut data = Vec::with_capacity(geometry.page_bytes as usize);
        for part in parts {
            match part {
                Source::Bytes(bytes) => data.extend_from_slice(bytes),
                Source::Pad(bytes) => data.resize(data.len() + *bytes as usize, 0),
                Source::Copy { page, offset, bytes } => {
                    let mut copied = vec![0; *bytes as usize];
                    self.read_page(changes, class, *page, *offset, &mut copied, &mut [])?;
                    data.extend_from_slice(&copied);
                }
            }
        }
        if data.len() != geometry.page_bytes as usize || oob.len() > geometry.oob_bytes as usize {
            return Err(FlashError::Rule(format!("a program of {} bytes does not fit a page", data.len())));
        }
        let mut oob = oob.to_vec();
        oob.resize(geometry.oob_bytes as usize, 0);
        changes.pages.insert((page.block, page.page), Page { data, oob });
        changes.programmed += 1;
        Ok(())
    }

    fn erase_block(&self, changes: &mut Changes, block: BlockAddr) -> Result<(), FlashError> {
        if self.report_with(changes, block).state == BlockState::Bad {
            return Err(FlashError::EraseFailed(block));
        }
        changes.pages.retain(|(b, _), _| *b != block);
        *changes.erased.entry(block).or_default() += 1;
        changes.erases += 1;
        Ok(())
    }

    fn report_with(&self, changes: &Changes, block: BlockAddr) -> BlockReport {
        let mut report = self.below.report(block);
        if let Some(erases) = changes.erased.get(&block) {
            report.erase_count = report.erase_count.saturating_add(*erases);
            report.pages_written = 0;
        }
        let above = changes.pages.range((block, 0)..=(block, u32::MAX)).next_back();
        report.pages_written = above.map_or(report.pages_written, |((_, page), _)| page + 1);
        report
    }

    fn one(&self, class: IoClass, op: &mut FlashOp<'_>) -> Result<Done, FlashError> {
        let mut changes = self.changes.lock();
        match op {
            FlashOp::Read { page, offset, data, oob } => {
                self.read_page(&changes, class, *page, *offset, data, oob)
            }
            FlashOp::Program { page, parts, oob, .. } => {
                self.program_page(&mut changes, class, *page, parts, oob).map(|()| Done::default())
            }
            FlashOp::Erase { block, .. } => self.erase_block(&mut changes, *block).map(|()| Done::default()),
        }
    }
}

impl Flash for Shadow {
    fn geometry(&self) -> &Geometry {
        self.below.geometry()
    }

    fn submit(&self, class: IoClass, ops: &mut [FlashOp<'_>]) -> Result<Done, BatchError> {
        let mut done = Done::default();
        for (index, op) in ops.iter_mut().enumerate() {
            let one = self.one(class, op).map_err(|error| BatchError { index, done, error })?;
            done.at = done.at.max(one.at);
            done.bits_corrected = done.bits_corrected.max(one.bits_corrected);
        }
        Ok(done)
    }

    fn report(&self, block: BlockAddr) -> BlockReport {
        self.report_with(&self.changes.lock(), block)
    }

    fn counters(&self) -> FlashCounters {
        let (mut counters, changes) = (self.below.counters(), self.changes.lock());
        counters.pages_programmed += changes.programmed;
        counters.blocks_erased += changes.erases;
        counters
    }

    fn sync(&self) -> Result<(), FlashError> {
        Ok(())
    }

    fn failing_bits(&self) -> u32 {
        self.below.failing_bits()
    }

    /// The parity of the flash below: it is wrong for pages programmed only here, but only a hint anyway.
    fn parity(&self) -> Option<&dyn Parity> {
        self.below.parity()
    }

    fn nvram(&self) -> Option<&dyn Nvram> {
        self.nvram.as_ref().map(|nvram| nvram as &dyn Nvram)
    }
}

struct ShadowNvram(Mutex<Vec<u8>>);

fn outside() -> FlashError {
    FlashError::Rule("outside the NVRAM".into())
}

impl Nvram for ShadowNvram {
    fn bytes(&self) -> usize {
        self.0.lock().len()
    }
    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), FlashError> {
        let bytes = self.0.lock();
        let from = offset..offset.saturating_add(out.len());
        out.copy_from_slice(bytes.get(from).ok_or_else(outside)?);
        Ok(())
    }
    fn write(&self, offset: usize, data: &[u8]) -> Result<(), FlashError> {
        let mut bytes = self.0.lock();
        let to = offset..offset.saturating_add(data.len());
        bytes.get_mut(to).ok_or_else(outside)?.copy_from_slice(data);
        Ok(())
    }
}
