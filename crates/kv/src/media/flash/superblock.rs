//! One table on one superblock: which erase blocks take part, where its bytes are, and the pages that say whose they
//! are.
//!
//! Byte *b* of a superblock is in data page *b* / page size. Data page *d* is on the *d* mod width-th erase block that
//! takes part, in page 1 + *d* / width of it. The first page of each erase block, and the last that was programmed,
//! is a tag page. Behind the bytes of a table there may be lists ([`super::list`]) of tables that are not, or not only,
//! what lies before them.

use super::list::{self, List};
use crate::bytes::u32_at;
use vellum_base::{BlockAddr, BlockState, Flash, Geometry, IoClass, PageAddr};

/// What extents and lists count in.
pub(crate) const UNIT_BYTES: u64 = 4096;

/// Bytes of a tag, without the bitmap of dies.
const TAG_BYTES: usize = 40;
/// Most dies of a device: their bitmap fits a page.
pub(crate) const DIES_MAX: u32 = 16_384;
/// Of a superblock that is a table and nothing else, and of all others.
const VERSIONS: [u32; 2] = [1, 2];

/// What was written to a superblock. None is used twice: numbers of tables are not, and editions only rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub table: u64,
    /// How often collection wrote the table's list anew.
    pub edition: u32,
}

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
    pub name: Name,
    /// If whole: bytes before the lists. Without lists they are the table.
    pub bytes: u64,
    pub list_bytes: u32,
    /// Dies that take part, in order.
    pub dies: Vec<u32>,
}

impl Tag {
    pub(crate) fn encode(&self, geometry: &Geometry) -> Vec<u8> {
        let mut out = vec![0; TAG_BYTES + geometry.dies().div_ceil(8) as usize];
        out[..4].copy_from_slice(b"VKSB");
        let is_plain = self.name.edition == 0 && self.list_bytes == 0;
        out[8..12].copy_from_slice(&VERSIONS[!is_plain as usize].to_le_bytes());
        out[12] = self.state as u8;
        out[16..24].copy_from_slice(&self.name.table.to_le_bytes());
        out[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        out[32..36].copy_from_slice(&self.name.edition.to_le_bytes());
        out[36..40].copy_from_slice(&self.list_bytes.to_le_bytes());
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
        let version = u32_at(bytes, 8);
        let [edition, list_bytes] = [32, 36].map(|at| if version == 1 { 0 } else { u32_at(bytes, at) });
        let name = Name { table: u64_at(16), edition };
        let known = VERSIONS.contains(&version);
        known.then(|| Tag { state, name, bytes: u64_at(24), list_bytes, dies: dies.collect() })
    }

    fn read(flash: &dyn Flash, page: PageAddr) -> Option<Tag> {
        let mut bytes = vec![0; TAG_BYTES + flash.geometry().dies().div_ceil(8) as usize];
        flash.read(IoClass::Metadata, page, 0, &mut bytes, &mut []).ok()?;
        Tag::decode(&bytes)
    }

    /// True if what it says fits its superblock.
    fn fits(&self, home: &Home, geometry: &Geometry) -> bool {
        let end = self.bytes.checked_add(self.list_bytes.into());
        !self.dies.is_empty()
            && self.bytes.is_multiple_of(UNIT_BYTES)
            && end.is_some_and(|end| end <= home.capacity(geometry))
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
    /// The pages with so many bytes at `offset`, each with where in it they begin, and how many they are.
    pub(crate) fn pages(
        &self,
        geometry: &Geometry,
        offset: u64,
        bytes: u64,
    ) -> impl Iterator<Item = (PageAddr, usize, usize)> {
        let (page_bytes, end) = (geometry.page_bytes as u64, offset + bytes);
        (offset / page_bytes..end.div_ceil(page_bytes)).map(move |page| {
            let (from, to) = (offset.max(page * page_bytes), end.min((page + 1) * page_bytes));
            (self.page(page), (from - page * page_bytes) as usize, (to - from) as usize)
        })
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
    /// Something whole, and the tables whose lists are there.
    Whole { name: Name, home: Home, lists: Vec<List> },
    /// Something else, to be erased; whose, if it can be told.
    Remains(Option<Name>),
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
    let name = tags.iter().find_map(|(_, first, last)| Some(last.as_ref().or(first.as_ref())?.name));
    // A bad block keeps what it held: only the blocks that a last tag names count.
    for tag in tags.iter().filter_map(|(_, _, last)| last.as_ref()) {
        let agrees = |die: &u32| {
            let block = tags.iter().find(|(d, _, _)| d == die);
            block.is_some_and(|(_, first, last)| {
                last.as_ref() == Some(tag) && first.as_ref().is_some_and(|first| first.name == tag.name)
            })
        };
        let home = Home::new(geometry, index, &tag.dies);
        if tag.fits(&home, geometry)
            && tag.dies.iter().all(agrees)
            && let Some(lists) = lists_of(flash, tag, &home)
        {
            return Found::Whole { name: tag.name, home, lists };
        }
    }
    if used { Found::Remains(name) } else { Found::Empty }
}

/// The lists on a superblock. `None` if they cannot be read.
fn lists_of(flash: &dyn Flash, tag: &Tag, home: &Home) -> Option<Vec<List>> {
    if tag.list_bytes == 0 {
        return Some(vec![List::plain(tag.name, tag.bytes)]);
    }
    let mut bytes = vec![0; tag.list_bytes as usize];
    let mut rest = &mut bytes[..];
    for (page, offset, length) in home.pages(flash.geometry(), tag.bytes, tag.list_bytes.into()) {
        let (part, later) = rest.split_at_mut(length);
        flash.read(IoClass::Metadata, page, offset as u32, part, &mut []).ok()?;
        rest = later;
    }
    list::decode(&bytes)
}
