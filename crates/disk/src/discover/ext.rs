//! ext2, ext3, ext4: from the superblock to the journal's inode.
//!
//! Layout after the kernel's `fs/ext4/ext4.h` and `Documentation/filesystems/ext4`. All numbers are little endian.
//! Feature bits are checked only if they affect the path to the journal. Those that the kernel sets at every mount and
//! clears at every unmount are never checked.

use super::journal::{self, Journal};
use super::map;
use super::reader::Reader;
use super::{FsKind, Probed, Why, copies};
use std::ops::Range;
use vellum_base::SECTOR_BYTES;

const SUPERBLOCK_AT: u64 = 1024;
const MAGIC: u16 = 0xEF53;

const COMPAT_HAS_JOURNAL: u32 = 0x4;
pub(super) const COMPAT_RESIZE_INODE: u32 = 0x10;
const COMPAT_SPARSE_SUPER2: u32 = 0x200;
const COMPAT_FAST_COMMIT: u32 = 0x400;
/// Set while mounted.
const INCOMPAT_RECOVER: u32 = 0x4;
const INCOMPAT_JOURNAL_DEV: u32 = 0x8;
pub(super) const INCOMPAT_META_BG: u32 = 0x10;
const INCOMPAT_64BIT: u32 = 0x80;
const RO_COMPAT_SPARSE_SUPER: u32 = 0x1;
/// Set while mounted, if there is an orphan file.
const RO_COMPAT_ORPHAN_PRESENT: u32 = 0x1_0000;
/// Features of ext3, among those checked: filetype, meta_bg; sparse_super, large_file, btree_dir. Any others mean ext4.
const EXT3_INCOMPAT: u32 = 0x12;
const EXT3_RO_COMPAT: u32 = 0x7;

/// The maximum number of blocks that mke2fs and tune2fs give a journal, which must not exceed half of the file system
/// either (mke2fs(8), `-J size`). jbd2 itself accepts any 32-bit number. Tracking a journal costs memory for each
/// sector.
const JOURNAL_BLOCKS_MAX: u64 = 10_240_000;

const MODE_TYPE: u16 = 0xF000;
const MODE_REGULAR: u16 = 0x8000;
const FLAG_EXTENTS: u32 = 0x8_0000;
const FLAG_INLINE_DATA: u32 = 0x1000_0000;

/// Looks for an ext file system in `region` (bytes of the disk). `None` if there is no trace of one.
pub(super) fn probe(reader: &mut Reader, region: &Range<u64>) -> Option<Probed> {
    if region.start >= reader.disk_bytes() {
        return None;
    }
    let at = region.start + SUPERBLOCK_AT;
    if reader.le16(at + 0x38).ok()? != MAGIC {
        return None;
    }
    Some(match Superblock::read(reader, at) {
        Ok(fs) => Probed {
            kind: fs.kind(),
            uuid: Some(fs.uuid),
            block_bytes: fs.block_bytes,
            copies: copies::kept(&fs, region, reader.le16(at + 0xCE).unwrap_or(0)),
            journal: fs.journal(reader, region),
        },
        Err(reason) => Probed {
            kind: FsKind::Unknown,
            uuid: None,
            block_bytes: 0,
            copies: Vec::new(),
            journal: Err(reason),
        },
    })
}

/// The fields of a superblock needed to find the journal and the backups.
pub(super) struct Superblock {
    uuid: [u8; 16],
    blocks: u64,
    pub(super) block_bytes: u32,
    pub(super) first_data_block: u32,
    pub(super) blocks_per_group: u32,
    inodes_per_group: u32,
    inode_bytes: u16,
    descriptor_bytes: u16,
    pub(super) compat: u32,
    pub(super) incompat: u32,
    ro_compat: u32,
    journal_inode: u32,
    pub(super) first_meta_bg: u32,
    backup_groups: [u32; 2],
}

impl Superblock {
    fn read(reader: &mut Reader, at: u64) -> Why<Superblock> {
        let incompat = reader.le32_bits(at + 0x60, !INCOMPAT_RECOVER)?;
        let is_64bit = incompat & INCOMPAT_64BIT != 0;
        let blocks_high = if is_64bit { reader.le32(at + 0x150)? } else { 0 };
        let log_block_kib = reader.le32(at + 0x18)?;
        let is_first_revision = reader.le32(at + 0x4C)? == 0;
        let fs = Superblock {
            uuid: reader.array(at + 0x68)?,
            blocks: (blocks_high as u64) << 32 | reader.le32(at + 0x04)? as u64,
            block_bytes: if log_block_kib <= 6 { 1024 << log_block_kib } else { 0 },
            first_data_block: reader.le32(at + 0x14)?,
            blocks_per_group: reader.le32(at + 0x20)?,
            inodes_per_group: reader.le32(at + 0x28)?,
            inode_bytes: if is_first_revision { 128 } else { reader.le16(at + 0x58)? },
            descriptor_bytes: if is_64bit { reader.le16(at + 0xFE)? } else { 32 },
            compat: reader.le32(at + 0x5C)?,
            incompat,
            ro_compat: reader.le32_bits(at + 0x64, !RO_COMPAT_ORPHAN_PRESENT)?,
            journal_inode: reader.le32(at + 0xE0)?,
            first_meta_bg: reader.le32(at + 0x104)?,
            backup_groups: [reader.le32(at + 0x24C)?, reader.le32(at + 0x250)?],
        };
        fs.check()?;
        Ok(fs)
    }

    /// Refuses values that cannot be followed, so that later code can divide and shift without checks.
    fn check(&self) -> Why<()> {
        let damaged = |what: &str| Err(format!("the ext superblock is damaged: {what}"));
        let block = self.block_bytes;
        if block == 0 {
            return damaged("block size above 64 KiB");
        }
        if self.incompat & INCOMPAT_JOURNAL_DEV != 0 {
            return Ok(()); // no groups, no inodes
        }
        if self.inodes_per_group == 0 {
            return damaged("no inodes");
        }
        if !self.inode_bytes.is_power_of_two() || !(128..=block).contains(&(self.inode_bytes as u32)) {
            return damaged("impossible inode size");
        }
        if !self.descriptor_bytes.is_power_of_two() || !(32..=block).contains(&(self.descriptor_bytes as u32))
        {
            return damaged("impossible group descriptor size");
        }
        if self.incompat & INCOMPAT_64BIT != 0 && self.descriptor_bytes < 64 {
            return damaged("64-bit blocks with small group descriptors");
        }
        Ok(())
    }

    fn kind(&self) -> FsKind {
        if self.incompat & INCOMPAT_JOURNAL_DEV != 0 {
            FsKind::ExtJournal
        } else if self.incompat & !EXT3_INCOMPAT != 0 || self.ro_compat & !EXT3_RO_COMPAT != 0 {
            FsKind::Ext4
        } else if self.compat & COMPAT_HAS_JOURNAL != 0 {
            FsKind::Ext3
        } else {
            FsKind::Ext2
        }
    }

    fn journal(&self, reader: &mut Reader, region: &Range<u64>) -> Why<Journal> {
        self.check_benefit(region)?;
        let usable_bytes = region.end.min(reader.disk_bytes()).saturating_sub(region.start);
        let volume = Volume {
            start: region.start,
            block_bytes: self.block_bytes,
            blocks: self.blocks.min(usable_bytes / self.block_bytes as u64),
        };
        let inode_at = self.inode_at(reader, &volume)?;
        let inode = Inode::read(reader, inode_at)?;
        let blocks = inode.journal_blocks(&volume)?;
        let pieces = match inode.has_extents {
            true => map::from_extent_tree(reader, &volume, inode.map_at, blocks)?,
            false => map::from_indirect_blocks(reader, &volume, inode.map_at, blocks)?,
        };
        journal::read(reader, &volume, pieces, self.compat & COMPAT_FAST_COMMIT != 0)
    }

    /// Returns an error if a journal would not help, wherever it is.
    fn check_benefit(&self, region: &Range<u64>) -> Why<()> {
        if self.incompat & INCOMPAT_JOURNAL_DEV != 0 {
            return Err(
                "the journal of a file system elsewhere: copy and home are on different devices".into()
            );
        }
        if self.compat & COMPAT_HAS_JOURNAL == 0 {
            return Err("no journal".into());
        }
        if self.journal_inode == 0 {
            return Err("external journal: copy and home are on different devices".into());
        }
        if (self.block_bytes as usize) < SECTOR_BYTES {
            let kib = self.block_bytes / 1024;
            return Err(format!("{kib} KiB blocks on 4 KiB sectors: copies share sectors with others"));
        }
        if !region.start.is_multiple_of(SECTOR_BYTES as u64) {
            return Err(format!("partition starts at byte {}, not 4 KiB aligned", region.start));
        }
        Ok(())
    }

    /// The byte address of the journal's inode on the disk.
    fn inode_at(&self, reader: &mut Reader, volume: &Volume) -> Why<u64> {
        let index = self.journal_inode - 1;
        let group = index / self.inodes_per_group;
        let descriptor_at = self.descriptor_at(group, volume)?;
        let high = if self.descriptor_bytes >= 64 { reader.le32(descriptor_at + 0x28)? } else { 0 };
        let table = (high as u64) << 32 | reader.le32(descriptor_at + 0x08)? as u64;
        let offset = (index % self.inodes_per_group) as u64 * self.inode_bytes as u64;
        Ok(volume.block_at(table)? + offset)
    }

    /// The byte address of the descriptor of `group` on the disk: in the table after the superblock or, with meta_bg,
    /// at the start of the first group whose descriptor shares its block. (Only for block sizes from 4 KiB, where the
    /// superblock is in block 0.)
    fn descriptor_at(&self, group: u32, volume: &Volume) -> Why<u64> {
        let per_block = self.descriptors_per_block();
        let table_block = group / per_block;
        let block = if self.incompat & INCOMPAT_META_BG == 0 || table_block < self.first_meta_bg {
            1 + table_block as u64
        } else {
            let first_group = table_block * per_block;
            let start = first_group as u64 * self.blocks_per_group as u64 + self.first_data_block as u64;
            start + self.has_superblock(first_group) as u64
        };
        Ok(volume.block_at(block)? + (group % per_block) as u64 * self.descriptor_bytes as u64)
    }

    /// Number of block groups; `None` if there are none, or cannot be.
    pub(super) fn groups(&self) -> Option<u64> {
        let has_groups = self.incompat & INCOMPAT_JOURNAL_DEV == 0 && self.blocks_per_group > 0;
        let blocks = self.blocks.checked_sub(self.first_data_block.into())?;
        has_groups.then(|| blocks.div_ceil(self.blocks_per_group.into()))
    }

    pub(super) fn descriptors_per_block(&self) -> u32 {
        self.block_bytes / u32::from(self.descriptor_bytes)
    }

    /// True if `group` begins with a superblock or a backup of it.
    pub(super) fn has_superblock(&self, group: u32) -> bool {
        let is_power_of = |base: u32| {
            let mut power = base as u64;
            while power < group as u64 {
                power *= base as u64;
            }
            power == group as u64
        };
        if group == 0 {
            true
        } else if self.compat & COMPAT_SPARSE_SUPER2 != 0 {
            self.backup_groups.contains(&group)
        } else if group == 1 || self.ro_compat & RO_COMPAT_SPARSE_SUPER == 0 {
            true
        } else {
            [3, 5, 7].into_iter().any(is_power_of)
        }
    }
}

/// The location of a file system's blocks on the disk. `start` and `block_bytes` are multiples of the sector size.
pub(super) struct Volume {
    pub(super) start: u64,
    pub(super) block_bytes: u32,
    /// Number of blocks of the file system that its partition and the disk actually contain.
    pub(super) blocks: u64,
}

impl Volume {
    /// The byte address of `block`. Block 0 contains the superblock, so nothing else can refer to it.
    pub(super) fn block_at(&self, block: u64) -> Why<u64> {
        match block > 0 && block < self.blocks {
            true => Ok(self.start + block * self.block_bytes as u64),
            false => Err(format!("the way to the journal leads to block {block} of {}", self.blocks)),
        }
    }
}

/// The fields of the journal's inode.
struct Inode {
    bytes: u64,
    has_extents: bool,
    map_at: u64,
}

impl Inode {
    fn read(reader: &mut Reader, at: u64) -> Why<Inode> {
        let mode = reader.le16(at)?;
        if mode & MODE_TYPE != MODE_REGULAR {
            return Err("the journal inode is not a regular file".into());
        }
        let flags = reader.le32(at + 0x20)?;
        if flags & FLAG_INLINE_DATA != 0 {
            return Err("the journal inode has its data inline".into());
        }
        let bytes = (reader.le32(at + 0x6C)? as u64) << 32 | reader.le32(at + 0x04)? as u64;
        Ok(Inode { bytes, has_extents: flags & FLAG_EXTENTS != 0, map_at: at + 0x28 })
    }

    fn journal_blocks(&self, volume: &Volume) -> Why<u32> {
        let blocks = self.bytes / volume.block_bytes as u64;
        let max = JOURNAL_BLOCKS_MAX.min(volume.blocks / 2);
        match u32::try_from(blocks) {
            Ok(2..) if blocks > max => {
                Err(format!("the journal inode claims {blocks} blocks: a journal here has {max} at most"))
            }
            Ok(blocks @ 2..) => Ok(blocks),
            _ => Err(format!("the journal inode has an impossible size of {} bytes", self.bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_are_where_the_kernel_puts_them() {
        let groups = |compat, ro_compat| {
            let fs = Superblock {
                uuid: [0; 16],
                blocks: 0,
                block_bytes: 4096,
                first_data_block: 0,
                blocks_per_group: 0,
                inodes_per_group: 0,
                inode_bytes: 0,
                descriptor_bytes: 0,
                compat,
                incompat: 0,
                ro_compat,
                journal_inode: 8,
                first_meta_bg: 0,
                backup_groups: [1, 99],
            };
            (0..130).filter(|group| fs.has_superblock(*group)).collect::<Vec<u32>>()
        };
        assert_eq!(groups(0, RO_COMPAT_SPARSE_SUPER), [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
        assert_eq!(groups(COMPAT_SPARSE_SUPER2, RO_COMPAT_SPARSE_SUPER), [0, 1, 99]);
        assert_eq!(groups(0, 0).len(), 130);
    }
}
