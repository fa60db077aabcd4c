//! Which sectors a trace stores byte by byte: those that an engine may read to understand the file system above it.
//!
//! Every rule depends on the content alone, never on the address, so that the journal copy and the home copy of a
//! sector are always stored the same way (equal contents stay equal). A sector stored unnecessarily costs only a few
//! hundred bytes of trace, so the rules are simple:
//!
//! 1. few non-zero lines: commit blocks, small tables, zero-padded tails;
//! 2. jbd2 magic: journal superblock, descriptor, commit and revoke blocks;
//! 3. ext2/3/4 superblock, primary or backup;
//! 4. partition tables: MBR signature, GPT header;
//! 5. the inode-table block with the root and the journal inode;
//! 6. extent-tree blocks and indirect blocks: they locate a fragmented journal;
//! 7. group descriptors: they locate the inode table.

use vellum_codes::lines;

/// A sector with at most this many non-zero lines (of 64) is stored byte by byte.
pub const FEW_LINES: u32 = 4;

const JBD2_MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

/// True if a trace must store the sector's real bytes.
///
/// # Panics
/// If `sector` is not 4096 bytes.
pub fn keeps_bytes(sector: &[u8]) -> bool {
    lines::nonzero_lines(sector).count_ones() <= FEW_LINES
        || sector.starts_with(&JBD2_MAGIC)
        || is_ext_superblock(sector)
        || is_partition_table(sector)
        || is_first_inode_block(sector)
        || is_extent_block(sector)
        || is_indirect_block(sector)
        || is_group_descriptors(sector)
}

fn le16(sector: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([sector[at], sector[at + 1]])
}

fn le32(sector: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([sector[at], sector[at + 1], sector[at + 2], sector[at + 3]])
}

/// Primary superblocks begin at byte 1024 of the file system, backups at the start of their block.
fn is_ext_superblock(sector: &[u8]) -> bool {
    [0, 1024].into_iter().any(|start| {
        let log_block_size = le32(sector, start + 24);
        le16(sector, start + 56) == 0xEF53 && log_block_size <= 6 && le32(sector, start) > 0
    })
}

fn is_partition_table(sector: &[u8]) -> bool {
    sector[510..512] == [0x55, 0xAA]
        || sector.starts_with(b"EFI PART")
        || sector[512..].starts_with(b"EFI PART")
}

/// The first inode-table block: inode 2 is a directory with links, inode 8 a regular file with one link.
fn is_first_inode_block(sector: &[u8]) -> bool {
    [128, 256, 512].into_iter().any(|inode_bytes| {
        let (root, journal) = (inode_bytes, 7 * inode_bytes);
        le16(sector, root) & 0xF000 == 0x4000
            && le16(sector, root + 26) >= 2
            && le16(sector, journal) & 0xF000 == 0x8000
            && le16(sector, journal + 26) == 1
    })
}

fn is_extent_block(sector: &[u8]) -> bool {
    let (entries, max, depth) = (le16(sector, 2), le16(sector, 4), le16(sector, 6));
    le16(sector, 0) == 0xF30A && max == 340 && entries <= max && depth <= 5
}

/// Block numbers that mostly increase by one, as in a file of few fragments.
fn is_indirect_block(sector: &[u8]) -> bool {
    let words = || (0..1024).map(|i| le32(sector, 4 * i));
    let used = words().take_while(|w| *w != 0).count();
    let empty = words().skip(used).all(|w| w == 0);
    let steps = words().zip(words().skip(1)).filter(|(a, b)| *a != 0 && a.checked_add(1) == Some(*b)).count();
    used >= 16 && empty && steps * 4 >= used * 3
}

/// Descriptors of 32 or 64 bytes whose three block numbers (block bitmap, inode bitmap, inode table) increase from
/// group to group.
fn is_group_descriptors(sector: &[u8]) -> bool {
    [32, 64].into_iter().any(|bytes| {
        let group = |i: usize| [0, 4, 8].map(|at| le32(sector, i * bytes + at));
        let used = (0..4096 / bytes).take_while(|i| group(*i) != [0; 3]).count();
        let grows = (1..used).all(|i| (0..3).all(|field| group(i)[field] > group(i - 1)[field]));
        let [block_bitmap, inode_bitmap, inode_table] = group(0);
        used >= 2 && grows && 0 < block_bitmap && block_bitmap < inode_bitmap && inode_bitmap < inode_table
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sector with every line set, which no rule takes.
    fn busy() -> Vec<u8> {
        let mut sector = vec![0; 4096];
        vellum_codes::pattern::Pattern::unique(3).fill(&mut sector);
        assert!(!keeps_bytes(&sector));
        sector
    }

    fn put(sector: &mut [u8], at: usize, bytes: &[u8]) {
        sector[at..at + bytes.len()].copy_from_slice(bytes);
    }

    #[test]
    fn each_rule_takes_its_sector() {
        let mut few = vec![0; 4096];
        for line in 0..4 {
            few[line * 1000] = 1;
        }
        assert!(keeps_bytes(&few));
        let mut jbd2 = busy();
        put(&mut jbd2, 0, &JBD2_MAGIC);
        assert!(keeps_bytes(&jbd2));
        for start in [0, 1024] {
            let mut superblock = busy();
            put(&mut superblock, start + 24, &2u32.to_le_bytes());
            put(&mut superblock, start + 56, &0xEF53u16.to_le_bytes());
            assert!(keeps_bytes(&superblock));
        }
        let mut mbr = busy();
        put(&mut mbr, 510, &[0x55, 0xAA]);
        assert!(keeps_bytes(&mbr));
        let mut gpt = busy();
        put(&mut gpt, 512, b"EFI PART");
        assert!(keeps_bytes(&gpt));
    }

    #[test]
    fn maps_of_the_journal_are_taken() {
        let mut inodes = busy();
        put(&mut inodes, 256, &0x41EDu16.to_le_bytes());
        put(&mut inodes, 256 + 26, &3u16.to_le_bytes());
        put(&mut inodes, 7 * 256, &0x8180u16.to_le_bytes());
        put(&mut inodes, 7 * 256 + 26, &1u16.to_le_bytes());
        assert!(keeps_bytes(&inodes));
        let mut extents = busy();
        put(&mut extents, 0, &[0x0A, 0xF3, 234, 0, 0x54, 1, 0, 0]);
        assert!(keeps_bytes(&extents));
        let indirect: Vec<u8> = (0..1024u32).flat_map(|i| (9000 + i + i / 100).to_le_bytes()).collect();
        assert!(keeps_bytes(&indirect));
        let mut groups = vec![0; 4096];
        for i in 0..64u32 {
            for (field, first) in [(0, 100), (4, 116), (8, 132)] {
                put(&mut groups, i as usize * 64 + field, &(first + i * 512).to_le_bytes());
            }
        }
        assert!(keeps_bytes(&groups));
    }
}
