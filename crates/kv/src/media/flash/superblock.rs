//! One table on one superblock: which erase blocks take part, where its bytes are, and the pages that say whose they
//! are.
//!
//! Byte *b* of a table is in data page *b* / page size. Data page *d* is on the *d* mod width-th erase block that
//! takes part, in page 1 + *d* / width of it. The first page of each erase block, and the last that was programmed,
//! is a tag page.

use crate::bytes::u32_at;
use vellum_base::{BlockAddr, BlockState, Flash, Geometry, IoClass, PageAddr};

/// Bytes of a tag, without the bitmap of dies.
const TAG_BYTES: usize = 40;
/// Most dies of a device: their bitmap fits a page.
pub(crate) const DIES_MAX: u32 = 16_384;
const VERSION: u32 = 1;

/// Whether a table was begun or is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagState {
    Begun = 1,
    Whole = 2,
}

/// What a tag page says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub state: TagState,
    pub table: u64,
    /// Bytes of the table, if whole.
    pub bytes: u64,
    /// Dies that take part, in order.
    pub dies: Vec<u32>,
}

impl Tag {
    pub(crate) fn encode(&self, geometry: &Geometry) -> Vec<u8> {
        let mut out = vec![0; TAG_BYTES + geometry.dies().div_ceil(8) as usize];
        out[..4].copy_from_slice(b"VKSB");
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12] = self.state as u8;
        out[16..24].copy_from_slice(&self.table.to_le_bytes());
        out[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        for die in &self.dies {
            out[TAG_BYTES + *die as usize / 8] |= 1 << (die % 8);
        }
        let crc = vellum_codes::crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Tag> {
        if &bytes[..4] != b"VKSB" || u32_at(bytes, 4) != vellum_codes::crc32c(&bytes[8..]) {
            return None;
        }
        let state = match bytes[12] {
            1 => TagState::Begun,
            2 => TagState::Whole,
            _ => return None,
        };
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let bitmap = &bytes[TAG_BYTES..];
        let dies =
            (0..bitmap.len() as u32 * 8).filter(|die| bitmap[*die as usize / 8] & (1 << (die % 8)) != 0);
        let known = u32_at(bytes, 8) == VERSION;
        known.then(|| Tag { state, table: u64_at(16), bytes: u64_at(24), dies: dies.collect() })
    }

    fn read(flash: &dyn Flash, page: PageAddr) -> Option<Tag> {
        let mut bytes = vec![0; TAG_BYTES + flash.geometry().dies().div_ceil(8) as usize];
        flash.read(IoClass::Metadata, page, 0, &mut bytes, &mut []).ok()?;
        Tag::decode(&bytes)
    }
}

/// A table's erase blocks.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    /// Number of the superblock.
    pub index: u32,
    pub blocks: Vec<BlockAddr>,
}

impl Home {
    pub(crate) fn new(geometry: &Geometry, index: u32, dies: &[u32]) -> Home {
        Home { index, blocks: dies.iter().map(|die| geometry.block_on(*die, index)).collect() }
    }
    /// Bytes that a table can have here.
    pub(crate) fn capacity(&self, geometry: &Geometry) -> u64 {
        let pages = geometry.pages_per_block.saturating_sub(2) as u64;
        self.blocks.len() as u64 * pages * geometry.page_bytes as u64
    }
    /// Where data page `page` is.
    pub(crate) fn page(&self, page: u64) -> PageAddr {
        let width = self.blocks.len() as u64;
        self.blocks[(page % width) as usize].page(1 + (page / width) as u32)
    }
    /// Pages of the `at`-th erase block once `pages` data pages of the table are programmed, the first tag included.
    pub(crate) fn pages_in(&self, at: usize, pages: u64) -> u32 {
        let width = self.blocks.len() as u64;
        1 + ((pages + width - 1 - at as u64) / width) as u32
    }
}

/// What is found on a superblock.
pub(crate) enum Found {
    /// Erased, or never used.
    Empty,
    /// A whole table.
    Table(Tag, Home),
    /// Something else, to be erased; of this table, if it can be told.
    Remains(Option<u64>),
}

/// Looks at a superblock: compares the first tag of each erase block with the last.
pub(crate) fn look(flash: &dyn Flash, index: u32) -> Found {
    let geometry = flash.geometry();
    let (mut tags, mut used) = (Vec::new(), false);
    for die in 0..geometry.dies() {
        let block = geometry.block_on(die, index);
        let report = flash.report(block);
        if report.pages_written > 0 {
            used |= report.state == BlockState::Good;
            let first = Tag::read(flash, block.page(0));
            let last = Tag::read(flash, block.page(report.pages_written - 1));
            tags.push((die, first, last.filter(|tag| tag.state == TagState::Whole)));
        }
    }
    let number = tags.iter().find_map(|(_, first, last)| Some(last.as_ref().or(first.as_ref())?.table));
    // A bad block keeps what it held: only the blocks that a last tag names count.
    for tag in tags.iter().filter_map(|(_, _, last)| last.as_ref()) {
        let agrees = |die: &u32| {
            let block = tags.iter().find(|(d, _, _)| d == die);
            block.is_some_and(|(_, first, last)| {
                last.as_ref() == Some(tag) && first.as_ref().is_some_and(|first| first.table == tag.table)
            })
        };
        let home = Home::new(geometry, index, &tag.dies);
        if !tag.dies.is_empty() && tag.bytes <= home.capacity(geometry) && tag.dies.iter().all(agrees) {
            return Found::Table(tag.clone(), home);
        }
    }
    if used { Found::Remains(number) } else { Found::Empty }
}
