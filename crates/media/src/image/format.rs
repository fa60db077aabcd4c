//! The on-disk format of a flash image: `docs/formats/flash-image.md`, field by field.

use super::journal::Ring;
use super::mark::Marks;
use crate::coded::Coding;
use crate::nand::Block;
use vellum_base::{Error, FlashCounters, Geometry, Kind, Result, Scrambling};
use vellum_codes::crc32c;
use vellum_codes::ecc::Rate;

/// Versions without coded pages (1) and with them (2), and the same with a journal of the NVRAM (3, 4).
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=4;

fn version_of(is_coded: bool, has_journal: bool) -> u32 {
    1 + is_coded as u32 + 2 * has_journal as u32
}

/// Alignment of every part; size of a header and of a counters slot.
pub(super) const UNIT: usize = 4096;
/// The offset of the second header.
pub(super) const HEADER_COPY_OFFSET: u64 = UNIT as u64;
/// The offsets of the two counters slots.
pub(super) const COUNTERS_OFFSETS: [u64; 2] = [2 * UNIT as u64, 3 * UNIT as u64];
/// The offset of the NVRAM.
pub(super) const NVRAM_OFFSET: u64 = 4 * UNIT as u64;
/// Bytes of a block table entry.
pub(super) const ENTRY_BYTES: usize = 16;
/// The maximum number of erase blocks of an image: 8 TiB of 2 MiB blocks.
const BLOCKS_MAX: u32 = 1 << 22;
/// The maximum size of the NVRAM of an image.
pub(super) const NVRAM_BYTES_MAX: u64 = 256 << 20;
/// The maximum length of a label.
pub(super) const LABEL_BYTES: usize = 32;

/// A named range of bytes in a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub name: &'static str,
    pub offset: usize,
    pub bytes: usize,
}

const fn field(name: &'static str, offset: usize, bytes: usize) -> Field {
    Field { name, offset, bytes }
}

impl Field {
    fn get<'a>(&self, from: &'a [u8]) -> &'a [u8] {
        &from[self.offset..self.offset + self.bytes]
    }
    fn set(&self, to: &mut [u8], value: &[u8]) {
        to[self.offset..self.offset + self.bytes].copy_from_slice(value);
    }
    fn number(&self, from: &[u8]) -> u64 {
        self.get(from).iter().rev().fold(0, |sum, byte| sum << 8 | *byte as u64)
    }
    fn set_number(&self, to: &mut [u8], value: u64) {
        self.set(to, &value.to_le_bytes()[..self.bytes]);
    }
}

/// The header's fields.
pub(super) mod header {
    use super::{Field, LABEL_BYTES, field};
    pub const MAGIC: Field = field("magic", 0, 8);
    pub const VERSION: Field = field("version", 8, 4);
    pub const HEADER_BYTES: Field = field("header_bytes", 12, 4);
    pub const ID: Field = field("id", 16, 16);
    pub const CHANNELS: Field = field("channels", 32, 4);
    pub const DIES_PER_CHANNEL: Field = field("dies_per_channel", 36, 4);
    pub const BLOCKS_PER_DIE: Field = field("blocks_per_die", 40, 4);
    pub const PAGES_PER_BLOCK: Field = field("pages_per_block", 44, 4);
    pub const PAGE_BYTES: Field = field("page_bytes", 48, 4);
    pub const OOB_BYTES: Field = field("oob_bytes", 52, 4);
    pub const ENDURANCE: Field = field("endurance", 56, 4);
    pub const NVRAM_BYTES: Field = field("nvram_bytes", 64, 8);
    pub const SEED: Field = field("seed", 72, 8);
    pub const LABEL: Field = field("label", 80, LABEL_BYTES);
    pub const TABLE_OFFSET: Field = field("table_offset", 112, 8);
    pub const STRIPES_OFFSET: Field = field("stripes_offset", 120, 8);
    pub const STRIPE_BYTES: Field = field("stripe_bytes", 128, 8);
    pub const FILE_BYTES: Field = field("file_bytes", 136, 8);
    pub const CODEWORD_BYTES: Field = field("codeword_bytes", 144, 4);
    pub const CODE_WORDS: Field = field("code_words", 148, 4);
    pub const SCRAMBLER: Field = field("scrambler", 152, 4);
    pub const SCRAMBLER_PERIOD: Field = field("scrambler_period", 156, 4);
    pub const SPARE_BYTES: Field = field("spare_bytes", 160, 4);
    pub const JOURNAL_BYTES: Field = field("journal_bytes", 168, 8);
    pub const CRC: Field = field("crc", 4092, 4);
}

/// The counters' fields; the eight counters in between are in the order of [`counter_values`].
pub(super) mod counters {
    use super::{Field, field};
    pub const MAGIC: Field = field("magic", 0, 8);
    pub const SEQUENCE: Field = field("sequence", 8, 8);
    pub const VALUES: [Field; 8] = [
        field("pages_read", 16, 8),
        field("pages_programmed", 24, 8),
        field("blocks_erased", 32, 8),
        field("program_failures", 40, 8),
        field("erase_failures", 48, 8),
        field("bits_corrected", 56, 8),
        field("reads_uncorrectable", 64, 8),
        field("power_cuts", 72, 8),
    ];
    pub const CLEAN: Field = field("clean", 80, 4);
    pub const SYNCED: Field = field("synced", 88, 8);
    pub const JOURNAL_START: Field = field("journal_start", 96, 8);
    pub const JOURNAL_SAFE: Field = field("journal_safe", 104, 8);
    pub const CRC: Field = field("crc", 4092, 4);
}

/// The block table entry's fields.
pub(super) mod entry {
    use super::{Field, field};
    pub const ERASE_COUNT: Field = field("erase_count", 0, 4);
    pub const PAGES_WRITTEN: Field = field("pages_written", 4, 4);
    pub const FLAGS: Field = field("flags", 8, 4);
    pub const CRC: Field = field("crc", 12, 4);
}

/// Properties of an image, from its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageInfo {
    /// The image's unique identifier.
    pub id: u128,
    /// The label chosen when it was created, usually the name of a preset.
    pub label: String,
    /// Its geometry, with the out-of-band bytes available to its user.
    pub geometry: Geometry,
    /// How its pages are coded, if at all.
    pub coding: Option<Coding>,
    /// Rated erases of a block.
    pub endurance: u32,
    /// Size of its NVRAM in bytes; 0 for none.
    pub nvram_bytes: u64,
    /// Size of the NVRAM's journal in bytes; 0 for none.
    pub journal_bytes: u64,
    /// Seed of random events.
    pub seed: u64,
}

/// Offsets and sizes of the parts of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// With the whole spare area.
    pub geometry: Geometry,
    pub marks: Marks,
    /// The block table; a second copy may follow immediately.
    pub table_offset: u64,
    pub table_bytes: u64,
    pub table_copies: u64,
    pub stripes_offset: u64,
    pub stripe_bytes: u64,
    pub journal: Ring,
    pub file_bytes: u64,
}

impl Layout {
    /// Computes the layout of an image, if its parameters are valid.
    pub fn new(
        owners: &Geometry,
        coding: Option<&Coding>,
        nvram_bytes: u64,
        journal_bytes: u64,
    ) -> Result<Layout> {
        owners.validate()?;
        let (geometry, marks, table_copies) = match coding {
            None => (*owners, Marks::Exact, 1),
            Some(coding) => (coding.geometry_below(owners)?, Marks::Tolerant, 2),
        };
        if geometry.blocks() > BLOCKS_MAX {
            let blocks = geometry.blocks();
            return Err(Error::invalid(format!(
                "geometry: {blocks} erase blocks, an image has at most {BLOCKS_MAX}; use larger blocks"
            )));
        }
        if nvram_bytes > NVRAM_BYTES_MAX {
            return Err(Error::invalid(format!(
                "{nvram_bytes} bytes of NVRAM, at most {NVRAM_BYTES_MAX} work"
            )));
        }
        if !journal_bytes.is_multiple_of(UNIT as u64) || journal_bytes > NVRAM_BYTES_MAX {
            return Err(Error::invalid(format!("a journal of {journal_bytes} bytes")));
        }
        let align = |bytes: u64| bytes.next_multiple_of(UNIT as u64);
        let table_offset = NVRAM_OFFSET + align(nvram_bytes);
        let table_bytes = align(geometry.blocks() as u64 * ENTRY_BYTES as u64);
        let stripes_offset = table_offset + table_copies * table_bytes;
        let records = geometry.pages_per_block as u64 * (marks.bytes() as u64 + geometry.oob_bytes as u64);
        let stripe_bytes = geometry.block_bytes() + align(records);
        let offset = stripes_offset + geometry.blocks() as u64 * stripe_bytes;
        let journal = Ring { offset, bytes: journal_bytes, nvram_bytes };
        Ok(Layout {
            geometry,
            marks,
            table_offset,
            table_bytes,
            table_copies,
            stripes_offset,
            stripe_bytes,
            journal,
            file_bytes: offset + journal_bytes,
        })
    }

    /// Bytes of a page's record: its mark and its spare area.
    pub fn record_bytes(&self) -> usize {
        self.marks.bytes() + self.geometry.oob_bytes as usize
    }
}

impl ImageInfo {
    /// Encodes the header.
    pub(super) fn encode(&self, layout: &Layout) -> Vec<u8> {
        use header as h;
        let mut out = vec![0; UNIT];
        h::MAGIC.set(&mut out, b"VLMFLASH");
        h::ID.set(&mut out, &self.id.to_le_bytes());
        let mut label = self.label.as_bytes().to_vec();
        label.resize(LABEL_BYTES, 0);
        h::LABEL.set(&mut out, &label);
        let g = &self.geometry;
        let version = version_of(self.coding.is_some(), self.journal_bytes > 0);
        for (field, value) in coding_values(self.coding.as_ref()) {
            field.set_number(&mut out, value);
        }
        for (field, value) in [
            (h::VERSION, version as u64),
            (h::HEADER_BYTES, UNIT as u64),
            (h::CHANNELS, g.channels as u64),
            (h::DIES_PER_CHANNEL, g.dies_per_channel as u64),
            (h::BLOCKS_PER_DIE, g.blocks_per_die as u64),
            (h::PAGES_PER_BLOCK, g.pages_per_block as u64),
            (h::PAGE_BYTES, g.page_bytes as u64),
            (h::OOB_BYTES, g.oob_bytes as u64),
            (h::ENDURANCE, self.endurance as u64),
            (h::NVRAM_BYTES, self.nvram_bytes),
            (h::SEED, self.seed),
            (h::TABLE_OFFSET, layout.table_offset),
            (h::STRIPES_OFFSET, layout.stripes_offset),
            (h::STRIPE_BYTES, layout.stripe_bytes),
            (h::FILE_BYTES, layout.file_bytes),
            (h::SPARE_BYTES, spare_bytes(self.coding.as_ref(), layout)),
            (h::JOURNAL_BYTES, self.journal_bytes),
        ] {
            field.set_number(&mut out, value);
        }
        seal(&mut out, &h::CRC);
        out
    }

    /// Decodes a header.
    pub(super) fn decode(bytes: &[u8]) -> Result<(ImageInfo, Layout)> {
        use header as h;
        if !bytes.starts_with(b"VLMFLASH") {
            return Err(Error::invalid("this is not a flash image; look at the path, or create an image"));
        }
        if bytes.len() < UNIT {
            return Err(Error::corrupt("the image ends within its header"));
        }
        let version = h::VERSION.number(bytes);
        if !VERSIONS.contains(&(version as u32)) {
            return Err(Error::new(
                Kind::Unsupported,
                format!(
                    "the image is of version {version}, this program reads versions {} to {}; open it with the program that made it, or a newer one",
                    VERSIONS.start(),
                    VERSIONS.end()
                ),
            ));
        }
        if !is_sealed(bytes, &h::CRC) {
            return Err(Error::corrupt("the header's checksum does not match"));
        }
        let number = |field: Field| field.number(bytes) as u32;
        let geometry = Geometry {
            channels: number(h::CHANNELS),
            dies_per_channel: number(h::DIES_PER_CHANNEL),
            blocks_per_die: number(h::BLOCKS_PER_DIE),
            pages_per_block: number(h::PAGES_PER_BLOCK),
            page_bytes: number(h::PAGE_BYTES),
            oob_bytes: number(h::OOB_BYTES),
        };
        let coding = if version.is_multiple_of(2) { Some(decode_coding(bytes)?) } else { None };
        let label = h::LABEL.get(bytes);
        let end = label.iter().position(|b| *b == 0).unwrap_or(LABEL_BYTES);
        let info = ImageInfo {
            id: u128::from_le_bytes(h::ID.get(bytes).try_into().expect("16 bytes")),
            label: String::from_utf8_lossy(&label[..end]).into_owned(),
            geometry,
            coding,
            endurance: number(h::ENDURANCE),
            nvram_bytes: h::NVRAM_BYTES.number(bytes),
            journal_bytes: h::JOURNAL_BYTES.number(bytes),
            seed: h::SEED.number(bytes),
        };
        let layout = Layout::new(&geometry, coding.as_ref(), info.nvram_bytes, info.journal_bytes)
            .map_err(|e| Error::corrupt(format!("the header makes no sense: {e}")))?;
        let said = [
            (h::HEADER_BYTES, UNIT as u64),
            (h::TABLE_OFFSET, layout.table_offset),
            (h::STRIPES_OFFSET, layout.stripes_offset),
            (h::STRIPE_BYTES, layout.stripe_bytes),
            (h::FILE_BYTES, layout.file_bytes),
            (h::SPARE_BYTES, spare_bytes(coding.as_ref(), &layout)),
            (h::VERSION, version_of(coding.is_some(), info.journal_bytes > 0).into()),
        ];
        match said.iter().find(|(field, value)| field.number(bytes) != *value) {
            None => Ok((info, layout)),
            Some((field, _)) => {
                Err(Error::corrupt(format!("the header contradicts itself in {}", field.name)))
            }
        }
    }
}

/// The value of the header's field of spare bytes: 0 if pages are not coded.
fn spare_bytes(coding: Option<&Coding>, layout: &Layout) -> u64 {
    coding.map_or(0, |_| layout.geometry.oob_bytes.into())
}

/// The header's fields of a coding.
fn coding_values(coding: Option<&Coding>) -> [(Field, u64); 4] {
    use header as h;
    let Some(coding) = coding else {
        return [h::CODEWORD_BYTES, h::CODE_WORDS, h::SCRAMBLER, h::SCRAMBLER_PERIOD].map(|field| (field, 0));
    };
    let words = match coding.rate {
        Rate::R32_33 => 32,
        Rate::R16_17 => 16,
        Rate::R8_9 => 8,
    };
    let (scrambler, period) = match coding.scrambling {
        Scrambling::Off => (0, 0),
        Scrambling::BySector => (1, 0),
        Scrambling::ByPage { period } => (2, period),
    };
    [
        (h::CODEWORD_BYTES, coding.codeword_bytes.into()),
        (h::CODE_WORDS, words),
        (h::SCRAMBLER, scrambler),
        (h::SCRAMBLER_PERIOD, period.into()),
    ]
}

/// The coding in a header of an even version.
fn decode_coding(bytes: &[u8]) -> Result<Coding> {
    use header as h;
    let number = |field: Field| field.number(bytes) as u32;
    let rate = match number(h::CODE_WORDS) {
        32 => Rate::R32_33,
        16 => Rate::R16_17,
        8 => Rate::R8_9,
        words => {
            return Err(Error::corrupt(format!("the header names a code of {words} words: there is none")));
        }
    };
    let scrambling = match (number(h::SCRAMBLER), number(h::SCRAMBLER_PERIOD)) {
        (0, 0) => Scrambling::Off,
        (1, 0) => Scrambling::BySector,
        (2, period) => Scrambling::ByPage { period },
        (kind, _) => return Err(Error::corrupt(format!("the header names scrambler {kind}: there is none"))),
    };
    Ok(Coding { codeword_bytes: number(h::CODEWORD_BYTES), rate, scrambling })
}

/// Counters as stored in the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CountersSlot {
    pub sequence: u64,
    pub counters: FlashCounters,
    pub clean: bool,
    /// The number of the last sync whose pages are in the block table.
    pub synced: u64,
    /// The position from which records of the journal may not yet be in their place in the NVRAM.
    pub journal_start: u64,
    /// Records of the journal before this position were durable, and counted, when the slot was written.
    pub journal_safe: u64,
}

/// The counters in the order of the format.
fn counter_values(c: &mut FlashCounters) -> [&mut u64; 8] {
    [
        &mut c.pages_read,
        &mut c.pages_programmed,
        &mut c.blocks_erased,
        &mut c.program_failures,
        &mut c.erase_failures,
        &mut c.bits_corrected,
        &mut c.reads_uncorrectable,
        &mut c.power_cuts,
    ]
}

impl CountersSlot {
    /// Encodes the slot.
    pub fn encode(mut self) -> Vec<u8> {
        use counters as c;
        let mut out = vec![0; UNIT];
        c::MAGIC.set(&mut out, b"VLMCOUNT");
        c::SEQUENCE.set_number(&mut out, self.sequence);
        for (field, value) in c::VALUES.iter().zip(counter_values(&mut self.counters)) {
            field.set_number(&mut out, *value);
        }
        c::CLEAN.set_number(&mut out, self.clean as u64);
        c::SYNCED.set_number(&mut out, self.synced);
        c::JOURNAL_START.set_number(&mut out, self.journal_start);
        c::JOURNAL_SAFE.set_number(&mut out, self.journal_safe);
        seal(&mut out, &c::CRC);
        out
    }

    /// Decodes a slot; `None` if it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<CountersSlot> {
        use counters as c;
        if c::MAGIC.get(bytes) != b"VLMCOUNT" || !is_sealed(bytes, &c::CRC) {
            return None;
        }
        let mut counters = FlashCounters::default();
        for (field, value) in c::VALUES.iter().zip(counter_values(&mut counters)) {
            *value = field.number(bytes);
        }
        let clean = c::CLEAN.number(bytes) == 1;
        let numbers = [c::SEQUENCE, c::SYNCED, c::JOURNAL_START, c::JOURNAL_SAFE];
        if numbers.iter().any(|field| field.number(bytes) >= u64::MAX / 4) {
            return None; // Not reachable in practice; larger values could overflow when added to.
        }
        Some(CountersSlot {
            sequence: c::SEQUENCE.number(bytes),
            counters,
            clean,
            synced: c::SYNCED.number(bytes),
            journal_start: c::JOURNAL_START.number(bytes),
            journal_safe: c::JOURNAL_SAFE.number(bytes),
        })
    }
}

const FLAG_BAD: u64 = 1;
const FLAG_FACTORY_BAD: u64 = 2;

/// Encodes a block's entry in the table.
pub(super) fn encode_entry(block: &Block) -> [u8; ENTRY_BYTES] {
    let mut out = [0; ENTRY_BYTES];
    entry::ERASE_COUNT.set_number(&mut out, block.erase_count as u64);
    entry::PAGES_WRITTEN.set_number(&mut out, block.pages_written as u64);
    let flags = (block.bad as u64 * FLAG_BAD) | (block.factory_bad as u64 * FLAG_FACTORY_BAD);
    entry::FLAGS.set_number(&mut out, flags);
    seal(&mut out, &entry::CRC);
    out
}

/// Decodes a block's table entry from all its copies. If all are damaged it is a bad block, whose pages may still be
/// readable. If two differ, the later state counts: a crash happened between writing them.
pub(super) fn decode_entry<'a>(
    copies: impl Iterator<Item = &'a [u8]> + Clone,
    pages_per_block: u32,
) -> Block {
    let whole = copies.clone().filter_map(|bytes| decode_copy(bytes, pages_per_block));
    let best = whole.max_by_key(|block| (block.erase_count, block.pages_written, block.bad));
    let Some(mut block) = best else { return Block::reopened(0, pages_per_block, true, false) };
    let same = copies.clone().zip(copies.skip(1)).all(|(one, other)| one == other);
    block.dirty = !same; // the next sync writes both
    block
}

fn decode_copy(bytes: &[u8], pages_per_block: u32) -> Option<Block> {
    if bytes.iter().all(|b| *b == 0) {
        return Some(Block::default());
    }
    let pages_written = entry::PAGES_WRITTEN.number(bytes) as u32;
    if !is_sealed(bytes, &entry::CRC) || pages_written > pages_per_block {
        return None;
    }
    let flags = entry::FLAGS.number(bytes);
    let erase_count = entry::ERASE_COUNT.number(bytes) as u32;
    let (bad, factory_bad) = (flags & FLAG_BAD != 0, flags & FLAG_FACTORY_BAD != 0);
    Some(Block::reopened(erase_count, pages_written, bad, factory_bad))
}

fn seal(bytes: &mut [u8], crc: &Field) {
    let sum = crc32c(&bytes[..crc.offset]);
    crc.set_number(bytes, sum as u64);
}

fn is_sealed(bytes: &[u8], crc: &Field) -> bool {
    crc.number(bytes) == crc32c(&bytes[..crc.offset]) as u64
}

#[cfg(test)]
mod tests;
