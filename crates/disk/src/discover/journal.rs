//! The journal itself: its superblock (jbd2, all numbers big endian) and the location of its blocks.

use super::ext::Volume;
use super::reader::Reader;
use super::{Uuid, Why};
use std::ops::Range;
use vellum_base::{Lba, SECTOR_BYTES};

const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];
const SUPERBLOCK_V1: u32 = 3;
const SUPERBLOCK_V2: u32 = 4;
/// The feature 0x20, in the byte order of [`Reader::le32_bits`].
const FAST_COMMIT_BIT: u32 = 0x20u32.swap_bytes();
/// The kernel's default number of fast-commit blocks if it is unset.
const FAST_COMMIT_BLOCKS_DEFAULT: u32 = 256;
/// The kernel keeps at least this many blocks for the normal log, or does not use fast commits.
const LOG_BLOCKS_MIN: u32 = 1024;

/// The location of a journal, and the fields of its superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// Its sectors, in the order of its blocks. Adjacent extents are merged.
    pub extents: Vec<Range<Lba>>,
    /// Its length in file system blocks, with its superblock (block 0) and its fast-commit blocks.
    pub blocks: u32,
    /// Sectors per file system block: 1 to 16.
    pub block_sectors: u32,
    /// The blocks of the normal log, which contain whole copies: from after the superblock to before the fast-commit
    /// blocks.
    pub log_blocks: Range<u32>,
    /// The journal's own UUID; all zero or the file system's for an internal journal.
    pub uuid: Uuid,
    /// Sequence number of the first transaction in the log when it was read.
    pub sequence: u32,
    /// Log block of the first transaction to replay when it was read; 0 for a clean journal.
    pub start: u32,
}

impl Journal {
    /// The sectors of the normal log, in log order.
    pub fn log_extents(&self) -> Vec<Range<Lba>> {
        let sectors = self.block_sectors as u64;
        cut(&self.extents, self.log_blocks.start as u64 * sectors..self.log_blocks.end as u64 * sectors)
    }

    /// Total length of all extents in sectors.
    pub fn sectors(&self) -> u64 {
        self.blocks as u64 * self.block_sectors as u64
    }
}

/// True for the journal's own blocks (superblocks, descriptors, commits, revokes), which are not copies. (A copy that
/// would begin with this magic is journaled with its first word zeroed.)
pub fn is_control_block(sector: &[u8]) -> bool {
    sector.starts_with(&MAGIC)
}

/// Reads the superblock of the journal whose blocks are the `pieces` of `volume`, and checks that the two match.
pub(super) fn read(
    reader: &mut Reader,
    volume: &Volume,
    pieces: Vec<Range<u64>>,
    fast_commit: bool,
) -> Why<Journal> {
    let mapped: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
    let block_sectors = volume.block_bytes / SECTOR_BYTES as u32;
    let superblock = Superblock::read(reader, volume.block_at(pieces[0].start)?, fast_commit)?;
    if superblock.block_bytes != volume.block_bytes {
        let (journal, fs) = (superblock.block_bytes, volume.block_bytes);
        return Err(format!("the journal counts in blocks of {journal} bytes, its file system of {fs}"));
    }
    if superblock.blocks as u64 > mapped {
        return Err(format!("the journal claims {} blocks, its file has {mapped}", superblock.blocks));
    }
    let log_end = superblock.log_end();
    if superblock.first == 0 || superblock.first >= log_end {
        return Err(format!("the journal's log goes from block {} to {log_end}", superblock.first));
    }
    let sector = |block: u64| Lba((volume.start + block * volume.block_bytes as u64) / SECTOR_BYTES as u64);
    let extents: Vec<_> = pieces.iter().map(|piece| sector(piece.start)..sector(piece.end)).collect();
    Ok(Journal {
        extents: cut(&extents, 0..superblock.blocks as u64 * block_sectors as u64),
        blocks: superblock.blocks,
        block_sectors,
        log_blocks: superblock.first..log_end,
        uuid: Uuid(superblock.uuid),
        sequence: superblock.sequence,
        start: superblock.start,
    })
}

struct Superblock {
    block_bytes: u32,
    blocks: u32,
    first: u32,
    sequence: u32,
    start: u32,
    /// Blocks at its end are reserved for fast commits.
    fast_commit: bool,
    /// The remaining fields are zero in version 1.
    uuid: [u8; 16],
    fast_commit_blocks: u32,
}

impl Superblock {
    /// `fast_commit` is the file system's flag. The journal's own flag is cleared whenever the journal is clean, so it
    /// is checked only if the file system's is not set. The journal's other features are set by the first mount.
    fn read(reader: &mut Reader, at: u64, fast_commit: bool) -> Why<Superblock> {
        let magic = reader.array::<4>(at)?;
        let version = reader.be32(at + 0x04)?;
        if magic != MAGIC || !matches!(version, SUPERBLOCK_V1 | SUPERBLOCK_V2) {
            return Err("the journal's superblock is missing".into());
        }
        let mut state = [0; 8];
        reader.peek(at + 0x18, &mut state)?;
        let be32 = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| state[at + i]));
        let is_v2 = version == SUPERBLOCK_V2;
        Ok(Superblock {
            block_bytes: reader.be32(at + 0x0C)?,
            blocks: reader.be32(at + 0x10)?,
            first: reader.be32(at + 0x14)?,
            sequence: be32(0),
            start: be32(4),
            fast_commit: fast_commit || is_v2 && reader.le32_bits(at + 0x28, FAST_COMMIT_BIT)? != 0,
            uuid: if is_v2 { reader.array(at + 0x30)? } else { [0; 16] },
            fast_commit_blocks: if is_v2 { reader.be32(at + 0x54)? } else { 0 },
        })
    }

    /// The block after the normal log.
    fn log_end(&self) -> u32 {
        if !self.fast_commit {
            return self.blocks;
        }
        let reserved = match self.fast_commit_blocks {
            0 => FAST_COMMIT_BLOCKS_DEFAULT,
            set => set,
        };
        match self.blocks.checked_sub(reserved) {
            Some(end) if end >= LOG_BLOCKS_MIN => end,
            _ => self.blocks,
        }
    }
}

/// The part `range` (in sectors from the start of the first extent) of `extents`.
fn cut(extents: &[Range<Lba>], range: Range<u64>) -> Vec<Range<Lba>> {
    let mut passed = 0;
    let parts = extents.iter().map(|extent| {
        let length = extent.end.0 - extent.start.0;
        let from = range.start.clamp(passed, passed + length) - passed;
        let to = range.end.clamp(passed, passed + length) - passed;
        passed += length;
        extent.start.offset(from)..extent.start.offset(to)
    });
    parts.filter(|part| !part.is_empty()).collect()
}
