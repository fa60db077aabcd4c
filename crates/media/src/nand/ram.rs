//! Pages in memory. A sector that is a [`Pattern`] or zeros takes 24 bytes; any other takes these and its 4 KiB on the
//! heap, shared between copies.
//!
//! 1. A block's slots and out-of-band bytes grow page by page; an erased block holds nothing.
//! 2. The memory of an erased block is reused for the next block of the die; it is never returned to the system.

use super::content::{PageContent, Piece};
use super::store::PageStore;
use std::sync::Arc;
use vellum_base::{FlashError, Geometry, SECTOR_BYTES};
use vellum_codes::pattern::Pattern;
use vellum_codes::{prefetch, prefetch_before};

/// Maximum number of erased blocks whose vectors a die keeps for reuse.
const SPARE_MAX: usize = 16;
/// Out-of-band bytes alone are read by garbage collection, which goes through a block with much other work in between:
/// so this many pages ahead of it are prefetched into the cache.
const PAGES_AHEAD: usize = 8;
/// In a slot without lines: `head` is an index into the block's boxes.
const BOXED: u64 = 1;

/// A pattern; or, with `lines` zero, zeros (`full` is 0) or bytes in a box (`full` is [`BOXED`]).
#[derive(Clone, Copy)]
struct Slot {
    full: u64,
    head: u64,
    lines: u64,
}

/// The pages of a block.
#[derive(Clone, Default)]
pub(crate) struct RamBlock {
    slots: Vec<Slot>,
    oob: Vec<u8>,
    boxes: Vec<Arc<[u8]>>,
}

/// The pages of a die in memory.
#[derive(Clone)]
pub(crate) struct RamStore {
    slots_per_page: usize,
    slots_per_block: usize,
    oob_bytes: usize,
    blocks: Vec<Option<Box<RamBlock>>>,
    #[expect(clippy::vec_box, reason = "boxes move between here and `blocks`")]
    spare: Vec<Box<RamBlock>>,
    /// Sectors of erased blocks for reuse: fresh memory from the system costs more than the copy into it.
    sectors: Vec<Arc<[u8]>>,
}

impl RamStore {
    /// An erased die.
    pub fn new(geometry: &Geometry) -> RamStore {
        RamStore {
            slots_per_page: geometry.slots_per_page() as usize,
            slots_per_block: geometry.slots_per_block() as usize,
            oob_bytes: geometry.oob_bytes as usize,
            blocks: vec![None; geometry.blocks_per_die as usize],
            spare: Vec::new(),
            sectors: Vec::new(),
        }
    }

    fn open_block(&mut self, block: u32) -> &mut RamBlock {
        let (slots, spare) = (self.slots_per_block, &mut self.spare);
        let oob_bytes = slots / self.slots_per_page * self.oob_bytes;
        self.blocks[block as usize].get_or_insert_with(|| {
            let mut block = spare.pop().unwrap_or_default();
            block.slots.reserve_exact(slots);
            block.oob.reserve_exact(oob_bytes);
            block
        })
    }
}

impl RamBlock {
    #[inline]
    fn pack(&mut self, piece: &Piece<'_>, sectors: &mut Vec<Arc<[u8]>>) -> Slot {
        let bytes = match piece {
            Piece::Zero => return Slot { full: 0, head: 0, lines: 0 },
            Piece::Pattern(p) => return Slot { full: p.full, head: p.head, lines: p.lines },
            Piece::Shared(bytes) => bytes.clone(),
            Piece::Borrowed(bytes) => filled(sectors.pop(), bytes),
        };
        self.boxes.push(bytes);
        Slot { full: BOXED, head: self.boxes.len() as u64 - 1, lines: 0 }
    }

    /// The piece of a slot; `boxed` makes that of a sector of bytes.
    #[inline]
    fn piece<'s, 'p>(&'s self, slot: usize, boxed: impl FnOnce(&'s Arc<[u8]>) -> Piece<'p>) -> Piece<'p> {
        match self.slots[slot] {
            Slot { lines: 0, full: 0, .. } => Piece::Zero,
            Slot { lines: 0, head, .. } => boxed(&self.boxes[head as usize]),
            Slot { full, head, lines } => Piece::Pattern(Pattern { full, head, lines }),
        }
    }

    /// Drops everything; sectors that are not shared go to `sectors`.
    fn clear(&mut self, sectors: &mut Vec<Arc<[u8]>>) {
        self.slots.clear();
        self.oob.clear();
        sectors.extend(self.boxes.drain(..).filter(|sector| Arc::strong_count(sector) == 1));
    }
}

/// A sector with these bytes, in the memory of `used` unless that is shared.
fn filled(used: Option<Arc<[u8]>>, bytes: &[u8]) -> Arc<[u8]> {
    let Some(mut sector) = used else { return Arc::from(bytes) };
    match Arc::get_mut(&mut sector) {
        Some(own) if own.len() == bytes.len() => own.copy_from_slice(bytes),
        _ => return Arc::from(bytes),
    }
    sector
}

impl PageStore for RamStore {
    #[inline]
    fn append(&mut self, block: u32, first: u32, pages: &[PageContent<'_>]) -> Result<(), FlashError> {
        let (slots_per_page, oob_bytes) = (self.slots_per_page, self.oob_bytes);
        let mut sectors = std::mem::take(&mut self.sectors);
        let block = self.open_block(block);
        debug_assert_eq!(block.slots.len(), first as usize * slots_per_page, "pages are appended in order");
        for page in pages {
            for piece in page.pieces() {
                let slot = block.pack(piece, &mut sectors);
                block.slots.push(slot);
            }
            let end = block.oob.len() + oob_bytes;
            block.oob.extend_from_slice(page.oob);
            block.oob.resize(end, 0);
        }
        prefetch(block.slots.spare_capacity_mut(), PAGES_AHEAD * slots_per_page);
        prefetch(block.oob.spare_capacity_mut(), PAGES_AHEAD * oob_bytes);
        self.sectors = sectors;
        Ok(())
    }

    fn read(
        &mut self,
        block: u32,
        page: u32,
        offset: usize,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<(), FlashError> {
        let (slots_per_page, oob_bytes) = (self.slots_per_page, self.oob_bytes);
        let reads_oob_only = data.is_empty();
        let block = self.open_block(block);
        let (mut at, mut rest) = (page as usize * slots_per_page * SECTOR_BYTES + offset, data);
        while !rest.is_empty() {
            let within = at % SECTOR_BYTES;
            let (out, tail) = rest.split_at_mut(rest.len().min(SECTOR_BYTES - within));
            block.piece(at / SECTOR_BYTES, |bytes| Piece::Borrowed(bytes)).read(within, out);
            at += out.len();
            rest = tail;
        }
        if !oob.is_empty() {
            oob.copy_from_slice(&block.oob[page as usize * oob_bytes..][..oob_bytes]);
        }
        if reads_oob_only {
            prefetch(&block.oob, (page as usize + PAGES_AHEAD) * oob_bytes);
            prefetch(&block.slots, (page as usize + PAGES_AHEAD) * slots_per_page);
        }
        Ok(())
    }

    #[inline]
    fn fetch(&mut self, block: u32, page: u32, slot: usize, out: &mut [Piece<'_>]) -> Result<(), FlashError> {
        let first = page as usize * self.slots_per_page + slot;
        let block = self.open_block(block);
        for (i, piece) in out.iter_mut().enumerate() {
            *piece = block.piece(first + i, |bytes| Piece::Shared(bytes.clone()));
        }
        Ok(())
    }

    fn expect_fetch(&self, block: u32, page: u32, slot: usize, slots: usize) {
        let Some(block) = self.blocks.get(block as usize).and_then(Option::as_ref) else { return };
        let first = page as usize * self.slots_per_page + slot;
        for slot in
            block.slots.iter().skip(first).take(slots).filter(|slot| slot.lines == 0 && slot.full == BOXED)
        {
            if let Some(sector) = block.boxes.get(slot.head as usize) {
                // The reference count, which a copy increments, is stored before the bytes.
                prefetch_before(sector, 2 * size_of::<usize>());
            }
        }
    }

    fn erase(&mut self, block: u32, keep: bool) -> Result<Option<Box<RamBlock>>, FlashError> {
        let Some(mut content) = self.blocks[block as usize].take() else { return Ok(None) };
        if keep {
            return Ok(Some(content));
        }
        content.clear(&mut self.sectors);
        if self.spare.len() < SPARE_MAX {
            self.spare.push(content);
        }
        Ok(None)
    }

    fn restore(&mut self, block: u32, content: Box<RamBlock>) {
        self.blocks[block as usize] = Some(content);
    }

    fn truncate(&mut self, block: u32, pages: u32) -> Result<(), FlashError> {
        let (slots, oob) = (pages as usize * self.slots_per_page, pages as usize * self.oob_bytes);
        let block = self.open_block(block);
        block.slots.truncate(slots);
        block.oob.truncate(oob);
        Ok(())
    }

    fn overwrite(&mut self, block: u32, page: u32, content: &PageContent<'_>) -> Result<(), FlashError> {
        let (first, oob_bytes) = (page as usize * self.slots_per_page, self.oob_bytes);
        let block = self.open_block(block);
        for (i, piece) in content.pieces().iter().enumerate() {
            block.slots[first + i] = block.pack(piece, &mut Vec::new());
        }
        let oob = &mut block.oob[page as usize * oob_bytes..][..oob_bytes];
        oob[..content.oob.len()].copy_from_slice(content.oob);
        oob[content.oob.len()..].fill(0);
        Ok(())
    }

    fn fork(&self) -> Option<Box<dyn PageStore>> {
        Some(Box::new(self.clone()))
    }
}
