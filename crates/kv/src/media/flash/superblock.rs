//! Layout of a superblock: which erase blocks take part, where its bytes are, and the tag pages that identify it.
//!
//! Byte *b* of a superblock is in data page *b* / page size. Data page *d* is on the *d* mod width-th erase block that
//! takes part, in page 1 + *d* / width of it. The first page of each erase block, and the last that was programmed, is
//! a tag page. After the units there may be two copies of a list ([`super::list`]): of the units of the table, or of
//! those that collection moved there.

use super::list::{LIST, List, Run};
use super::superblock_units;
use crate::bytes::u32_at;
use vellum_base::{BlockAddr, BlockState, Error, Flash, Geometry, IoClass, Kind, PageAddr, Result};

/// Granularity of extents and lists. It is small, as a leaf that is shared alone may be little more than one record.
pub(crate) const EXTENT_UNIT_BYTES: u64 = 64;

/// Bytes of a tag before the bitmap of dies.
const TAG_BYTES: usize = 40;
/// Most dies of a device, so that their bitmap fits a page.
pub(crate) const DIES_MAX: u32 = 16_384;
/// Format versions of tags: of a superblock that is a table by itself, and of all others.
const VERSIONS: [u32; 2] = [1, 2];

/// What a superblock was written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    /// The table of this number.
    Table(u64),
    /// The collection of this number.
    Collected(u64),
}

/// Whether a superblock was begun, or is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagState {
    Begun = 1,
    Whole = 2,
}

/// Contents of a tag page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub state: TagState,
    pub name: Name,
    /// If whole: bytes before the list, or all bytes if there is none.
    pub bytes: u64,
    pub list_bytes: u32,
    /// Dies that take part, ascending.
    pub dies: Vec<u32>,
}

impl Tag {
    pub(crate) fn encode(&self, geometry: &Geometry) -> Vec<u8> {
        let mut out = vec![0; TAG_BYTES + geometry.dies().div_ceil(8) as usize];
        let (kind, number) = match self.name {
            Name::Table(number) => (0, number),
            Name::Collected(number) => (1, number),
        };
        let is_plain = kind == 0 && self.list_bytes == 0;
        out[..4].copy_from_slice(b"VKSB");
        out[8..12].copy_from_slice(&VERSIONS[!is_plain as usize].to_le_bytes());
        out[12] = self.state as u8;
        out[13] = kind;
        out[16..24].copy_from_slice(&number.to_le_bytes());
        out[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        out[32..36].copy_from_slice(&self.list_bytes.to_le_bytes());
        for die in &self.dies {
            out[TAG_BYTES + *die as usize / 8] |= 1 << (die % 8);
        }
        let crc = vellum_codes::crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes a page, if it is a tag; an error if its version is not known.
    fn decode(bytes: &[u8], dies: u32) -> Result<Option<Tag>> {
        if &bytes[..4] != b"VKSB" || u32_at(bytes, 4) != vellum_codes::crc32c(&bytes[8..]) {
            return Ok(None);
        }
        let version = u32_at(bytes, 8);
        match VERSIONS.contains(&version) {
            true => Ok(Tag::decode_known(bytes).filter(|tag| tag.dies.iter().all(|die| *die < dies))),
            false => Err(Error::new(
                Kind::Unsupported,
                format!(
                    "a superblock has format version {version}; this program knows up to {}",
                    VERSIONS[1]
                ),
            )),
        }
    }

    fn decode_known(bytes: &[u8]) -> Option<Tag> {
        let state = match bytes[12] {
            1 => TagState::Begun,
            2 => TagState::Whole,
            _ => return None,
        };
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let name = match bytes[13] {
            0 => Name::Table(u64_at(16)),
            1 => Name::Collected(u64_at(16)),
            _ => return None,
        };
        let bitmap = &bytes[TAG_BYTES..];
        let dies =
            (0..bitmap.len() as u32 * 8).filter(|die| bitmap[*die as usize / 8] & (1 << (die % 8)) != 0);
        let (bytes, list_bytes, dies) = (u64_at(24), u32_at(bytes, 32), dies.collect());
        Some(Tag { state, name, bytes, list_bytes, dies })
    }

    fn read(flash: &dyn Flash, page: PageAddr) -> Result<Option<Tag>> {
        let dies = flash.geometry().dies();
        let mut bytes = vec![0; TAG_BYTES + dies.div_ceil(8) as usize];
        let mut read = || flash.read(IoClass::Metadata, page, 0, &mut bytes, &mut []);
        // Retry once after a read error: a superblock without tags would be erased.
        match read().or_else(|_| read()) {
            Ok(_) => Tag::decode(&bytes, dies),
            Err(_) => Ok(None),
        }
    }

    /// Units before the list.
    pub(crate) fn units(&self) -> u32 {
        (self.bytes / EXTENT_UNIT_BYTES) as u32
    }

    /// End of the last list, or of the units.
    pub(crate) fn end(&self, geometry: &Geometry) -> u64 {
        let end = self.bytes + u64::from(self.list_bytes);
        match self.list_bytes {
            0 => end,
            bytes => second_at(end, geometry) + u64::from(bytes),
        }
    }

    /// True if its numbers are possible for its superblock.
    fn fits(&self, home: &Home, geometry: &Geometry) -> bool {
        let capacity = home.capacity(geometry);
        !self.dies.is_empty()
            && self.bytes.is_multiple_of(EXTENT_UNIT_BYTES)
            && self.bytes <= capacity
            && self.end(geometry) <= capacity
    }

    /// Offsets of the two copies of the list.
    fn lists_at(&self, geometry: &Geometry) -> Vec<u64> {
        match self.list_bytes {
            0 => Vec::new(),
            bytes => vec![self.bytes, second_at(self.bytes + u64::from(bytes), geometry)],
        }
    }
}

/// Offset of the second copy of a list whose first ends at `end`: far enough for them not to share a page, even after
/// collection moved them.
pub(crate) fn second_at(end: u64, geometry: &Geometry) -> u64 {
    (end + u64::from(geometry.page_bytes)).next_multiple_of(EXTENT_UNIT_BYTES)
}

/// The erase blocks of a superblock that take part.
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
    /// Bytes that fit on these blocks.
    pub(crate) fn capacity(&self, geometry: &Geometry) -> u64 {
        let pages = geometry.pages_per_block.saturating_sub(2) as u64;
        self.blocks.len() as u64 * pages * geometry.page_bytes as u64
    }
    /// The pages of a byte range, each with the offset in the page and the number of bytes.
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
    /// Address of data page `page`.
    pub(crate) fn page(&self, page: u64) -> PageAddr {
        let width = self.blocks.len() as u64;
        self.blocks[(page % width) as usize].page(1 + (page / width) as u32)
    }
    /// Pages programmed in the `at`-th erase block, including its first tag, once `pages` data pages are programmed.
    pub(crate) fn pages_in(&self, at: usize, pages: u64) -> u32 {
        let width = self.blocks.len() as u64;
        1 + ((pages + width - 1 - at as u64) / width) as u32
    }
}

/// How certain it is that a superblock was written completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trust {
    /// It was begun, and no tag says that it is complete. If a manifest relies on it, it is.
    Begun,
    /// Some tags cannot be read; those that can agree with the pages programmed.
    Doubtful,
    /// All its tags say that it is complete.
    Certain,
}

/// What is found on a superblock.
pub(crate) enum Found {
    /// Erased, or never used.
    Empty,
    /// Something that a tag describes.
    Written(Written),
    /// Something else, of this table if a tag names one.
    Remains(Option<u64>),
}

/// See [`Found::Written`].
pub(crate) struct Written {
    pub trust: Trust,
    pub tag: Tag,
    pub home: Home,
}

/// The tags of an erase block that was written to.
struct Tags {
    die: u32,
    pages: u32,
    first: Option<Tag>,
    last: Option<Tag>,
}

/// Looks at a superblock: compares the first tag of each erase block with the last.
pub(crate) fn look(flash: &dyn Flash, index: u32) -> Result<Found> {
    let geometry = flash.geometry();
    let (mut blocks, mut used) = (Vec::new(), false);
    for die in 0..geometry.dies() {
        let block = geometry.block_on(die, index);
        let report = flash.report(block);
        if report.pages_written > 0 {
            let is_good = report.state == BlockState::Good;
            used |= is_good;
            let first = match Tag::read(flash, block.page(0)) {
                // Formatting cannot erase it: what a later program left there is no part of this store.
                Err(_) if !is_good => None,
                first => first?,
            };
            // If the superblock was not finished this is a page of user data, whatever it looks like.
            let last = Tag::read(flash, block.page(report.pages_written - 1)).unwrap_or(None);
            let last = last.filter(|tag| tag.state == TagState::Whole);
            blocks.push(Tags { die, pages: report.pages_written, first, last });
        }
    }
    // A bad block keeps what it held: only the blocks that a tag names count.
    let mut tags: Vec<&Tag> = Vec::new();
    for tag in blocks.iter().flat_map(|block| [&block.last, &block.first]).flatten() {
        // Most are the same.
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    let written = tags.iter().filter_map(|tag| written(tag, &blocks, index, geometry));
    Ok(match written.max_by_key(|written| written.trust) {
        Some(written) => Found::Written(written),
        None if used => Found::Remains(tags.iter().find_map(|tag| match tag.name {
            Name::Table(table) => Some(table),
            Name::Collected(_) => None,
        })),
        None => Found::Empty,
    })
}

/// What a tag describes, unless one of the blocks that it names has a tag of another name, or is erased. Blocks are in
/// the order of their dies.
fn written(tag: &Tag, blocks: &[Tags], index: u32, geometry: &Geometry) -> Option<Written> {
    let home = Home::new(geometry, index, &tag.dies);
    if !tag.fits(&home, geometry) {
        return None;
    }
    let pages = tag.end(geometry).div_ceil(geometry.page_bytes.into());
    let mut trust = if tag.state == TagState::Whole { Trust::Certain } else { Trust::Begun };
    for (at, die) in tag.dies.iter().enumerate() {
        let block = &blocks[blocks.binary_search_by_key(die, |block| block.die).ok()?];
        if block.first.as_ref().is_some_and(|first| first.name != tag.name)
            || block.last.as_ref().is_some_and(|last| last.name != tag.name)
        {
            return None;
        }
        let (is_first, is_last) = (block.first.is_some(), block.last.as_ref() == Some(tag));
        // An unfinished superblock has fewer pages; one with more is possible if the report of the block is damaged.
        let is_as_long = block.pages > home.pages_in(at, pages);
        let at_most = match (is_first && is_last, is_as_long) {
            (true, _) => Trust::Certain,
            (false, true) => Trust::Doubtful,
            (false, false) => Trust::Begun,
        };
        trust = trust.min(at_most);
    }
    Some(Written { trust, tag: tag.clone(), home })
}

impl Written {
    /// Reads the list behind the units. `None` if it cannot be read.
    pub(crate) fn list(&self, flash: &dyn Flash) -> Option<List> {
        let geometry = flash.geometry();
        self.tag.lists_at(geometry).into_iter().find_map(|at| {
            let mut bytes = vec![0; self.tag.list_bytes as usize];
            read_some(flash, &self.home, at, &mut bytes);
            List::decode(&bytes, superblock_units(geometry))
        })
    }

    /// What lies on it, as far as that is known.
    pub(crate) fn contents(&self, flash: &dyn Flash) -> Option<Vec<Run>> {
        let own = |table, units| Run { origin: table, start: 0, units };
        match (self.tag.name, self.trust) {
            // If a table counts on units of it, this is where they would be.
            (Name::Table(table), Trust::Begun) => {
                let units = self.home.capacity(flash.geometry()) / EXTENT_UNIT_BYTES;
                Some(vec![own(table, units.min(LIST.into()) as u32)])
            }
            (Name::Table(table), _) => {
                let end = self.tag.end(flash.geometry());
                let list = (end > self.tag.bytes).then(|| Run::of_list(table, end - self.tag.bytes));
                let units = Some(own(table, self.tag.units())).filter(|run| run.units > 0);
                Some(units.into_iter().chain(list).collect())
            }
            (Name::Collected(_), Trust::Begun) => None,
            (Name::Collected(_), _) => {
                let runs = self.list(flash)?.runs().to_vec();
                let units: u64 = runs.iter().map(|run| u64::from(run.units)).sum();
                (units == self.tag.units().into()).then_some(runs)
            }
        }
    }
}

/// Reads bytes of a superblock; of pages that cannot be read they are zero.
pub(crate) fn read_some(flash: &dyn Flash, home: &Home, offset: u64, out: &mut [u8]) {
    let mut rest = out;
    for (page, at, length) in home.pages(flash.geometry(), offset, rest.len() as u64) {
        let (part, later) = rest.split_at_mut(length);
        if flash.read(IoClass::Metadata, page, at as u32, part, &mut []).is_err() {
            part.fill(0);
        }
        rest = later;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_base::{Nanos, Source};
    use vellum_media::nand::{Fault, Nand, NandParams};

    const GEOMETRY: Geometry = Geometry {
        channels: 4,
        dies_per_channel: 3,
        blocks_per_die: 8,
        pages_per_block: 8,
        page_bytes: 4096,
        oob_bytes: 0,
    };

    fn tag(dies: &[u32]) -> Tag {
        let (name, dies) = (Name::Table(7), dies.to_vec());
        Tag { state: TagState::Whole, name, bytes: 8192, list_bytes: 100, dies }
    }

    /// A tag with some bytes changed, and a valid checksum.
    fn forged(tag: &Tag, at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut encoded = tag.encode(&GEOMETRY);
        encoded[at..at + bytes.len()].copy_from_slice(bytes);
        let crc = vellum_codes::crc32c(&encoded[8..]);
        encoded[4..8].copy_from_slice(&crc.to_le_bytes());
        encoded
    }

    #[test]
    fn a_tag_says_what_was_written() {
        let tag = tag(&[0, 3, 11]);
        assert_eq!(Tag::decode(&tag.encode(&GEOMETRY), 12).unwrap(), Some(tag));
    }

    #[test]
    fn a_version_that_is_not_known_is_refused_by_name() {
        let error = Tag::decode(&forged(&tag(&[1]), 8, &[9, 0, 0, 0]), 12).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert!(error.to_string().contains("version 9"), "{error}");
    }

    /// Power was lost while a table was written, and the last page programmed is user data.
    #[test]
    fn a_page_of_data_that_looks_like_a_tag_of_a_later_version_is_data() {
        let flash = Nand::ram(GEOMETRY, NandParams::default()).unwrap();
        let begun = Tag { state: TagState::Begun, ..tag(&[1]) };
        let later = forged(&tag(&[1]), 8, &[9, 0, 0, 0]);
        let program = |page: u32, data: &[u8]| {
            let data = [data, &vec![0; 4096 - data.len()]].concat();
            let at = GEOMETRY.block_on(1, 0).page(page);
            flash.program(IoClass::Background, at, &[Source::Bytes(&data)], &[]).unwrap();
        };
        program(0, &begun.encode(&GEOMETRY));
        program(1, &later);
        assert!(look(&flash, 0).is_ok());
        flash.erase(IoClass::Background, GEOMETRY.block_on(1, 0), Nanos::ZERO).unwrap();
        program(0, &later);
        assert_eq!(look(&flash, 0).map(drop).unwrap_err().kind(), Kind::Unsupported);
        flash.arm(1, Fault::ProgramFails);
        let refused = flash.program(
            IoClass::Background,
            GEOMETRY.block_on(1, 0).page(1),
            &[Source::Bytes(&[0; 4096])],
            &[],
        );
        assert!(refused.is_err());
        assert!(matches!(look(&flash, 0), Ok(Found::Empty)), "formatting leaves it on a bad block");
    }

    #[test]
    fn a_tag_that_names_a_die_that_is_not_there_is_none() {
        // The bitmap's last byte has bits for four dies more.
        assert_eq!(Tag::decode(&forged(&tag(&[1]), TAG_BYTES + 1, &[0x10]), 12).unwrap(), None);
        assert!(Tag::decode(&forged(&tag(&[1]), TAG_BYTES + 1, &[0x08]), 12).unwrap().is_some());
    }
}
