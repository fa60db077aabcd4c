//! Running operations: validates the caller's arguments, assembles the content of pages, and passes them to their die.

use super::Nand;
use super::content::{PageContent, Piece};
use super::die::Die;
use super::faults::{Call, Fault};
use crate::one_of::OneOf;
use vellum_base::sync::Mutex;
use vellum_base::{BlockAddr, FlashError, FlashOp, Geometry, PageAddr, SECTOR_BYTES, Source};

/// Maximum number of pages written to an image in one call.
const RUN_PAGES_MAX: usize = 64;

/// The die used by a batch.
pub(super) type Dies<'a> = OneOf<'a, Die>;

impl Nand {
    /// The index of a block's die, and the block's number within it.
    #[inline]
    fn place(&self, block: BlockAddr) -> (usize, u32) {
        let dies = self.dies.len() as u32;
        ((block.0 % dies) as usize, block.0 / dies)
    }

    /// The die of a block, and the block's number within it.
    pub(super) fn locate(&self, block: BlockAddr) -> (&Mutex<Die>, u32) {
        let (die, index) = self.place(block);
        (&self.dies[die], index)
    }

    #[inline]
    pub(super) fn check_block(&self, block: BlockAddr) -> Result<(), FlashError> {
        match block.0 < self.rules.geometry.blocks() {
            true => Ok(()),
            false => Err(FlashError::Rule(format!("{block} is outside the device"))),
        }
    }

    #[inline]
    pub(super) fn check_page(&self, page: PageAddr) -> Result<(), FlashError> {
        match page.page < self.rules.geometry.pages_per_block {
            true => self.check_block(page.block),
            false => Err(FlashError::Rule(format!("{page} is outside the device"))),
        }
    }

    #[inline]
    pub(super) fn one(&self, dies: &mut Dies<'_>, op: &mut FlashOp<'_>) -> Result<u32, FlashError> {
        match op {
            FlashOp::Read { page, offset, data, oob } => self.read_page(dies, *page, *offset, data, oob),
            FlashOp::Program { page, parts, oob, .. } => self.program_page(dies, *page, parts, oob),
            FlashOp::Erase { block, .. } => self.erase_block(dies, *block).map(|()| 0),
        }
    }

    #[inline]
    fn read_page(
        &self,
        dies: &mut Dies<'_>,
        page: PageAddr,
        offset: u32,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<u32, FlashError> {
        self.shared.health.check_read()?;
        self.check_page(page)?;
        let geometry = &self.rules.geometry;
        if offset as usize + data.len() > geometry.page_bytes as usize
            || !(oob.is_empty() || oob.len() == geometry.oob_bytes as usize)
        {
            return Err(misfit("read", geometry, offset as usize + data.len(), oob.len()));
        }
        self.shared.count(Call::Read)?;
        let (die, block) = self.place(page.block);
        dies.get(die).read(&self.rules, block, page.page, offset as usize, data, oob)
    }

    #[inline]
    fn program_page(
        &self,
        dies: &mut Dies<'_>,
        page: PageAddr,
        parts: &[Source<'_>],
        oob: &[u8],
    ) -> Result<u32, FlashError> {
        self.shared.health.check_write()?;
        self.check_page(page)?;
        let mut content = PageContent::zeros(self.rules.geometry.slots_per_page() as usize, oob);
        let bits = self.stage(dies, parts, &mut content)?;
        match self.shared.count(Call::Program)? {
            None => self.store_page(dies, page, &mut content)?,
            Some(fault) => {
                dies.release();
                self.program_with(fault, page, content)?;
            }
        }
        Ok(bits)
    }

    #[inline]
    pub(super) fn store_page(
        &self,
        dies: &mut Dies<'_>,
        page: PageAddr,
        content: &mut PageContent<'_>,
    ) -> Result<(), FlashError> {
        let (die, block) = self.place(page.block);
        let pages = std::slice::from_mut(content);
        let result = dies.get(die).program(&self.rules, block, page.page, pages);
        self.shared.health.touch();
        result.map_err(|(_, error)| self.poison_if_host(error))
    }

    /// Programs adjacent pages of one block, as one write.
    pub(super) fn program_run(
        &self,
        dies: &mut Dies<'_>,
        ops: &[FlashOp<'_>],
    ) -> Result<u32, (usize, FlashError)> {
        self.shared.health.check_write().map_err(|e| (0, e))?;
        let mut pages = Vec::with_capacity(ops.len());
        let mut bits = 0;
        let mut first = None;
        let mut stopped = None;
        for (i, op) in ops.iter().enumerate() {
            let FlashOp::Program { page, parts, oob, .. } = op else { unreachable!("a run is of programs") };
            let mut content = PageContent::zeros(self.rules.geometry.slots_per_page() as usize, oob);
            match self.check_page(*page).and_then(|()| self.stage(dies, parts, &mut content)) {
                Ok(corrected) => {
                    bits = bits.max(corrected);
                    pages.push(content);
                }
                Err(error) => {
                    stopped = Some((i, error));
                    break;
                }
            }
            first.get_or_insert(*page);
        }
        if let Some(first) = first {
            let (die, block) = self.place(first.block);
            let result = dies.get(die).program(&self.rules, block, first.page, &mut pages);
            self.shared.health.touch();
            result.map_err(|(i, error)| (i, self.poison_if_host(error)))?;
        }
        stopped.map_or(Ok(bits), Err)
    }

    fn erase_block(&self, dies: &mut Dies<'_>, block: BlockAddr) -> Result<(), FlashError> {
        self.shared.health.check_write()?;
        self.check_block(block)?;
        let fault = self.shared.count(Call::Erase)?;
        let (die, index) = self.place(block);
        let result = match fault {
            Some(Fault::EraseFails) => Err(dies.get(die).fail_erase(&self.rules, index)),
            Some(Fault::PowerCut) => {
                dies.release();
                self.tear_erase(block)
            }
            _ => dies.get(die).erase(&self.rules, index),
        };
        self.shared.health.touch();
        result.map_err(|error| self.poison_if_host(error))
    }

    /// After an error of the host it is unknown what was written, so the device is poisoned.
    #[cold]
    fn poison_if_host(&self, error: FlashError) -> FlashError {
        if matches!(error, FlashError::Io(_) | FlashError::Full(_)) {
            self.shared.health.poison();
        }
        error
    }

    /// How many of these operations go to the store as one.
    #[inline]
    pub(super) fn run_length(&self, ops: &[FlashOp<'_>]) -> usize {
        if self.medium.is_none() || self.shared.faults.is_armed() {
            return 1;
        }
        let Some(FlashOp::Program { page: first, .. }) = ops.first() else { return 1 };
        let follows = |(i, op): (usize, &FlashOp<'_>)| {
            matches!(op, FlashOp::Program { page, parts, .. }
                if page.block == first.block && page.page == first.page.wrapping_add(i as u32)
                    && !copies_from(parts, first.block))
        };
        1 + ops.iter().enumerate().take(RUN_PAGES_MAX).skip(1).take_while(|x| follows(*x)).count()
    }

    /// Announces to dies in memory what a batch is about to copy.
    pub(super) fn expect_copies(&self, dies: &mut Dies<'_>, ops: &[FlashOp<'_>]) {
        for op in ops {
            let FlashOp::Program { parts, .. } = op else { continue };
            for part in *parts {
                let Source::Copy { page, offset, bytes } = part else { continue };
                let (die, block) = self.place(page.block);
                let (slot, slots) = (*offset as usize / SECTOR_BYTES, *bytes as usize / SECTOR_BYTES);
                dies.get(die).store.expect_fetch(block, page.page, slot, slots);
            }
        }
    }

    /// Assembles the content of a page in `content`, a page of zeros. Returns the most bits corrected on the way.
    #[inline]
    fn stage<'a>(
        &self,
        dies: &mut Dies<'_>,
        parts: &'a [Source<'a>],
        content: &mut PageContent<'a>,
    ) -> Result<u32, FlashError> {
        let geometry = &self.rules.geometry;
        let total: usize = parts.iter().map(Source::len).sum();
        if total != geometry.page_bytes as usize || content.oob.len() > geometry.oob_bytes as usize {
            return Err(misfit("program", geometry, total, content.oob.len()));
        }
        let (mut slot, mut bits, mut register) = (0, 0, None);
        for part in parts {
            if !is_aligned(part) {
                return self.stage_bytes(dies, parts, content);
            }
            let slots = part.len() / SECTOR_BYTES;
            let pieces = &mut content.pieces_mut()[slot..slot + slots];
            match part {
                Source::Bytes(bytes) => self.stage_sectors(bytes, pieces),
                Source::Copy { page, offset, .. } => {
                    let again = register.replace(*page) == Some(*page);
                    bits =
                        bits.max(self.fetch(dies, *page, *offset as usize / SECTOR_BYTES, pieces, again)?);
                }
                Source::Pad(_) => {}
            }
            slot += slots;
        }
        Ok(bits)
    }

    #[inline]
    fn stage_sectors<'a>(&self, bytes: &'a [u8], pieces: &mut [Piece<'a>]) {
        for (piece, sector) in pieces.iter_mut().zip(bytes.chunks_exact(SECTOR_BYTES)) {
            *piece = match &self.medium {
                None => Piece::recognise(sector),
                Some(_) => Piece::Borrowed(sector), // an image stores bytes
            };
        }
    }

    /// The same for parts that are not aligned to slots.
    #[cold]
    fn stage_bytes(
        &self,
        dies: &mut Dies<'_>,
        parts: &[Source<'_>],
        content: &mut PageContent<'_>,
    ) -> Result<u32, FlashError> {
        let mut page = vec![0; self.rules.geometry.page_bytes as usize];
        let (mut rest, mut bits) = (page.as_mut_slice(), 0);
        for part in parts {
            let (out, tail) = rest.split_at_mut(part.len());
            match part {
                Source::Bytes(bytes) => out.copy_from_slice(bytes),
                Source::Copy { page, offset, .. } => {
                    bits = bits.max(self.read_page(dies, *page, *offset, out, &mut [])?)
                }
                Source::Pad(_) => {}
            }
            rest = tail;
        }
        content.set_bytes(&page);
        Ok(bits)
    }

    #[inline]
    fn fetch(
        &self,
        dies: &mut Dies<'_>,
        page: PageAddr,
        slot: usize,
        out: &mut [Piece<'_>],
        again: bool,
    ) -> Result<u32, FlashError> {
        self.check_page(page)?;
        if slot + out.len() > self.rules.geometry.slots_per_page() as usize {
            return Err(FlashError::Rule(format!("a copy reaches beyond the end of {page}")));
        }
        let (die, block) = self.place(page.block);
        dies.get(die).fetch(&self.rules, block, page.page, slot, out, again)
    }
}

#[cold]
fn misfit(what: &str, geometry: &Geometry, bytes: usize, oob_bytes: usize) -> FlashError {
    FlashError::Rule(format!(
        "a {what} up to byte {bytes}, {oob_bytes} out of band, does not fit a page of {} + {}",
        geometry.page_bytes, geometry.oob_bytes
    ))
}

fn is_aligned(part: &Source<'_>) -> bool {
    let offset = if let Source::Copy { offset, .. } = part { *offset } else { 0 };
    part.len().is_multiple_of(SECTOR_BYTES) && (offset as usize).is_multiple_of(SECTOR_BYTES)
}

fn copies_from(parts: &[Source<'_>], block: BlockAddr) -> bool {
    parts.iter().any(|part| matches!(part, Source::Copy { page, .. } if page.block == block))
}
