//! Malicious or damaged disks: discovery terminates, keeps its bounds, and reports nothing impossible.

use super::discover::{Discovery, READS_MAX, Sectors, discover};
use super::fixtures;
use super::image::{Image, discover_checked};
use super::tools::{assert_extents, only_reason};
use proptest::prelude::*;
use std::ops::Range;
use vellum_base::{Error, Lba, Result, SECTOR_BYTES};

/// Byte addresses in the fixtures.
struct Places {
    inode: u64,
    journal: u64,
}

fn places(image: &mut Image) -> Places {
    let found = discover(image);
    let journal = found.journals().next().unwrap().1.extents[0].start.0 * 4096;
    let block_bytes = found.file_systems[0].block_bytes as u64;
    let table = u32::from_le_bytes(get(image, block_bytes + 8)) as u64;
    let inode_bytes = u16::from_le_bytes(get(image, 1024 + 0x58)) as u64;
    Places { inode: table * block_bytes + 7 * inode_bytes, journal }
}

fn get<const N: usize>(image: &Image, at: u64) -> [u8; N] {
    let within = (at % 4096) as usize;
    image.content[&(at / 4096)][within..within + N].try_into().unwrap()
}

fn set(image: &mut Image, at: u64, bytes: &[u8]) {
    for (at, byte) in (at..).zip(bytes) {
        image.content.entry(at / 4096).or_insert([0; 4096])[(at % 4096) as usize] = *byte;
    }
}

/// A node of an extent tree whose entries all name `block`.
fn node(depth: u16, entries: u16, max: u16, block: u32, length: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in [0xF30A, entries, max, depth, 0, 0] {
        bytes.extend(u16::to_le_bytes(field));
    }
    for i in 0..entries.min(340) as u32 {
        let words: [u32; 3] = match depth {
            0 => [i * length as u32, length as u32, block],
            _ => [0, block, 0],
        };
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    }
    bytes
}

/// The result of discovery after the extent tree's root (and block 5000) were overwritten.
fn with_tree(root: &[u8], child: &[u8]) -> Discovery {
    let mut image = fixtures::image("ext4-default");
    let inode = places(&mut image).inode;
    set(&mut image, inode + 0x28, &root[..root.len().min(60)]);
    set(&mut image, 5000 * 4096, child);
    discover_checked(&mut image)
}

#[test]
fn extent_trees_that_lead_nowhere() {
    let leads_nowhere = |root: &[u8], child: &[u8], reason: &str| {
        let found = with_tree(root, child);
        assert!(only_reason(&found).contains(reason), "{} is not {reason}", only_reason(&found));
        assert!(found.sectors_read < 20, "{} sectors read", found.sectors_read);
    };
    // Its own child; its own child at each of five levels; one level too many.
    leads_nowhere(&node(1, 4, 4, 5000, 0), &node(1, 340, 340, 5000, 0), "damaged");
    leads_nowhere(&node(5, 4, 4, 5000, 0), &node(4, 340, 340, 5000, 0), "damaged");
    leads_nowhere(&node(6, 1, 4, 5000, 0), &[], "6 levels");
    // The same leaf repeatedly; overlapping extents; empty extents; empty nodes.
    leads_nowhere(&node(1, 4, 4, 5000, 0), &node(0, 1, 340, 9000, 16), "a hole or a fold at its block 16");
    leads_nowhere(&node(0, 4, 4, 9000, 1024), &[], "overlap");
    leads_nowhere(&node(0, 4, 4, 9000, 0), &[], "a hole or a fold at its block 0");
    leads_nowhere(&node(1, 4, 4, 5000, 0), &node(0, 0, 340, 0, 0), "0 entries");
    // Counts beyond the node; blocks beyond the file system, and block 0; too few of everything.
    leads_nowhere(&node(0, 4, 60000, 9000, 1), &[], "4 entries, room for 4");
    leads_nowhere(&node(1, 4, 4, 5000, 0), &node(0, 65535, 65535, 9000, 1), "room for 340");
    leads_nowhere(&node(0, 1, 4, u32::MAX, 32768), &[], "leads to block 4294967295 of 131072");
    leads_nowhere(&node(0, 1, 4, 131_000, 4096), &[], "leads to block 135095");
    leads_nowhere(&node(0, 1, 4, 0, 4096), &[], "leads to block 0");
    leads_nowhere(&node(0, 2, 4, 9000, 8), &[], "only 16 of the journal's 4096 blocks");
}

#[test]
fn an_unwritten_extent_is_as_long_as_it_says() {
    let mut image = fixtures::image("ext4-default");
    let Places { inode, journal } = places(&mut image);
    let start = (journal / 4096) as u32;
    let (unwritten, rest) = (node(0, 1, 4, start, 100 + 32768), node(0, 1, 4, start + 200, 3996));
    set(&mut image, inode + 0x28, &[&unwritten[..], &rest[12..]].concat());
    set(&mut image, inode + 0x2A, &[2]);
    set(&mut image, inode + 0x28 + 24, &[100]);
    let found = discover_checked(&mut image);
    let (fs, journal) = found.journals().next().unwrap();
    let start = start as u64;
    assert_extents(fs, journal, &[start..start + 100, start + 200..start + 4196]);
}

#[test]
fn block_numbers_beyond_32_bits() {
    let mut image = fixtures::image("ext4-default");
    let Places { inode, journal } = places(&mut image);
    let before = discover(&mut image);
    // Inode table and journal move up by 2^32 blocks: 16 TiB.
    image.sectors += 1 << 32;
    for at in [inode, journal] {
        let sector = image.content.remove(&(at / 4096)).unwrap();
        image.content.insert(at / 4096 + (1 << 32), sector);
    }
    set(&mut image, 1024 + 0x150, &[1]);
    set(&mut image, 4096 + 0x28, &[1]);
    set(&mut image, inode + (1 << 44) + 0x28 + 12 + 6, &[1]);
    let found = discover_checked(&mut image);
    let extents = |found: &Discovery| found.journals().next().unwrap().1.extents[0].clone();
    assert_eq!(extents(&found).start, extents(&before).start.offset(1 << 32));
}

#[test]
fn unset_fast_commit_blocks_are_256() {
    let mut image = fixtures::image("ext4-fast-commit");
    let journal = places(&mut image).journal;
    set(&mut image, journal + 0x54, &[0; 4]);
    let found = discover_checked(&mut image);
    let (_, journal) = found.journals().next().unwrap();
    assert_eq!(journal.log_blocks, 1..journal.blocks - 256);
}

#[test]
fn fields_that_lie() {
    type At = fn(&Places) -> u64;
    let cases: [(At, &[u8], &str); 14] = [
        (|_| 1024 + 0x18, &[7, 0, 0, 0], "block size above 64 KiB"),
        (|_| 1024 + 0x18, &[255; 4], "block size above 64 KiB"),
        (|_| 1024 + 0x28, &[0; 4], "no inodes"),
        (|_| 1024 + 0x58, &[0; 2], "impossible inode size"),
        (|_| 1024 + 0x58, &[0, 0x80], "impossible inode size"),
        (|_| 1024 + 0xFE, &[0; 2], "impossible group descriptor size"),
        (|_| 1024 + 0xFE, &[32, 0], "small group descriptors"),
        (|_| 1024 + 0xE0, &[255; 4], "leads to block 0"),
        (|_| 4096 + 8, &[255; 4], "leads to block"),
        (|p| p.inode, &[0, 0x40], "not a regular file"),
        (|p| p.inode + 0x20, &0x1000_0000u32.to_le_bytes(), "inline"),
        (|p| p.inode + 4, &[0; 4], "impossible size of 0 bytes"),
        (|p| p.inode + 0x6C, &[255; 4], "impossible size"),
        (|p| p.journal + 0x14, &[0; 4], "log goes from block 0"),
    ];
    for (at, bytes, reason) in cases {
        let mut image = fixtures::image("ext4-default");
        let at = at(&places(&mut image));
        set(&mut image, at, bytes);
        let found = discover_checked(&mut image);
        assert!(only_reason(&found).contains(reason), "{} is not {reason}", only_reason(&found));
    }
    // A size that the map does not reach, and a journal with another block size.
    let mut image = fixtures::image("ext4-default");
    let Places { inode, journal } = places(&mut image);
    set(&mut image, journal + 0x0C, &1024u32.to_be_bytes());
    assert!(only_reason(&discover_checked(&mut image)).contains("blocks of 1024 bytes"));
    set(&mut image, inode + 4, &(32u32 << 20).to_le_bytes());
    assert!(only_reason(&discover_checked(&mut image)).contains("only 4096 of the journal's 8192 blocks"));
}

#[test]
fn a_journal_too_big_to_be_one_is_not_followed() {
    // Half of a file system of 131072 blocks; then the maximum of mke2fs, where half would be more.
    for (blocks, fs_blocks, max) in [(65_537, 131_072, 65_536), (10_240_001u64, 1 << 30, 10_240_000u64)] {
        let mut image = fixtures::image("ext4-default");
        let Places { inode, .. } = places(&mut image);
        image.sectors = fs_blocks;
        set(&mut image, 1024 + 4, &(fs_blocks as u32).to_le_bytes());
        set(&mut image, inode + 4, &(blocks * 4096).to_le_bytes()[..4]);
        set(&mut image, inode + 0x6C, &(blocks * 4096).to_le_bytes()[4..]);
        let reason = format!("claims {blocks} blocks: a journal here has {max} at most");
        let found = discover_checked(&mut image);
        assert!(only_reason(&found).contains(&reason), "{} is not {reason}", only_reason(&found));
        set(&mut image, inode + 4, &(max * 4096).to_le_bytes()[..4]);
        set(&mut image, inode + 0x6C, &(max * 4096).to_le_bytes()[4..]);
        assert!(only_reason(&discover_checked(&mut image)).contains("blocks are mapped"));
    }
}

/// Fields that the kernel sets at mount and clears at unmount do not change the result.
#[test]
fn mounting_outdates_nothing() {
    let mut image = fixtures::image("ext4-fast-commit");
    let journal = places(&mut image).journal;
    let found = discover_checked(&mut image);
    let mut flip = |at: u64, mask: u8| {
        let [byte] = get(&image, at);
        set(&mut image, at, &[byte ^ mask]);
        found.outdated_by(Lba(at / 4096), &image.content[&(at / 4096)])
    };
    assert!(!flip(1024 + 0x60, 0x04), "needs recovery");
    assert!(!flip(1024 + 0x66, 0x01), "orphans may be present");
    assert!(!flip(journal + 0x2B, 0x1F), "revokes, 64 bits, checksums");
    assert!(!flip(journal + 0x2B, 0x20), "fast commits, which the file system has anyway");
    assert!(flip(1024 + 0x60, 0x80), "64 bits");
}

#[test]
fn indirect_blocks_that_name_themselves_or_nothing() {
    let mut image = fixtures::image("ext3-indirect");
    let inode = places(&mut image).inode;
    let indirect = u32::from_le_bytes(get(&image, inode + 0x28 + 48));
    set(&mut image, indirect as u64 * 4096 + 40, &[0; 4]);
    assert!(only_reason(&discover_checked(&mut image)).contains("leads to block 0"));
    let myself: Vec<u8> = std::iter::repeat_n(indirect.to_le_bytes(), 1024).flatten().collect();
    set(&mut image, indirect as u64 * 4096, &myself);
    assert!(only_reason(&discover_checked(&mut image)).contains("overlap"));
}

/// Allocates a tree of indirect blocks of `height` as ext3 does, with consecutive blocks.
fn allocate(
    image: &mut Image,
    next: &mut u32,
    height: u32,
    left: &mut u32,
    data: &mut Vec<Range<u64>>,
) -> u32 {
    let block = *next;
    *next += 1;
    if height == 0 {
        *left -= 1;
        match data.last_mut() {
            Some(last) if last.end == block as u64 => last.end += 1,
            _ => data.push(block as u64..block as u64 + 1),
        }
    }
    for slot in (0..1024).take_while(|_| height > 0) {
        if *left > 0 {
            let child = allocate(image, next, height - 1, left, data);
            set(image, block as u64 * 4096 + 4 * slot, &child.to_le_bytes());
        }
    }
    block
}

#[test]
fn triple_indirect_blocks_are_followed() {
    const BLOCKS: u32 = 12 + 1024 + (1 << 20) + 3000;
    let mut image = fixtures::image("ext3-indirect");
    let Places { inode, journal } = places(&mut image);
    image.sectors = 4 << 20;
    set(&mut image, 1024 + 4, &(4u32 << 20).to_le_bytes());
    let superblock: [u8; 96] = get(&image, journal);
    set(&mut image, 10_000 * 4096, &superblock);
    set(&mut image, 10_000 * 4096 + 0x10, &BLOCKS.to_be_bytes());
    set(&mut image, inode + 4, &BLOCKS.wrapping_mul(4096).to_le_bytes());
    set(&mut image, inode + 0x6C, &1u32.to_le_bytes());
    let (mut next, mut left, mut data) = (10_000, BLOCKS, Vec::new());
    for slot in 0..15 {
        let top = allocate(&mut image, &mut next, u32::saturating_sub(slot, 11), &mut left, &mut data);
        set(&mut image, inode + 0x28 + 4 * slot as u64, &top.to_le_bytes());
    }
    let found = discover_checked(&mut image);
    let (fs, journal) = found.journals().next().unwrap_or_else(|| panic!("{found:?}"));
    assert_extents(fs, journal, &data);
    assert!(data.len() > 1000 && found.sectors_read < 1100, "{} {}", data.len(), found.sectors_read);
}

/// A disk on which every sector has the same well-formed but meaningless content.
struct Everywhere([u8; SECTOR_BYTES]);

impl Sectors for Everywhere {
    fn read(&mut self, _: Lba, out: &mut [u8; SECTOR_BYTES]) -> Result<()> {
        *out = self.0;
        Ok(())
    }
    fn sectors(&self) -> u64 {
        u64::MAX
    }
}

#[test]
fn reading_stops_at_the_limit() {
    // Endless logical partitions, each with an ext4 superblock that names a huge journal in scattered blocks.
    let mut image = fixtures::image("ext3-indirect");
    let inode = places(&mut image).inode;
    let mut sector = image.content[&0];
    sector[..512].copy_from_slice(&super::tables::boot_record(&[(0x83, 8, 1 << 30), (0x05, 8, 1 << 30)]));
    let found = discover(&mut Everywhere(sector));
    assert!(found.sectors_read <= READS_MAX);
    // One file with all indirect blocks distinct and none missing: 2^32 - 1 blocks.
    set(&mut image, inode + 4, &[0, 0xF0, 0xFF, 0xFF]);
    set(&mut image, inode + 0x6C, &[0xFF, 0x0F, 0, 0]);
    let found = discover_checked(&mut image);
    assert!(found.journals().next().is_none());
}

/// A disk with one unreadable sector.
struct Broken(Image, u64);

impl Sectors for Broken {
    fn read(&mut self, lba: Lba, out: &mut [u8; SECTOR_BYTES]) -> Result<()> {
        match lba.0 == self.1 {
            true => Err(Error::corrupt("the medium is gone")),
            false => self.0.read(lba, out),
        }
    }
    fn sectors(&self) -> u64 {
        self.0.sectors
    }
}

#[test]
fn an_unreadable_sector_is_a_reason() {
    for name in fixtures::names() {
        let image = fixtures::image(name);
        for lba in image.content.keys().copied() {
            let found = discover(&mut Broken(image.clone(), lba));
            assert!(only_reason(&found).contains("the medium is gone"), "{name} {lba}: {found:?}");
            assert!(found.outdated_by(Lba(lba), &[0; SECTOR_BYTES]), "whatever is written there, look again");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn damage_never_panics_and_unwatched_bytes_never_matter(
        fixture in 0..6usize,
        sectors in prop::option::weighted(0.1, 0..200_000u64),
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0..SECTOR_BYTES, any::<u8>()), 1..12),
        near in any::<bool>(),
    ) {
        let mut image = fixtures::image(fixtures::names().nth(fixture).unwrap());
        let before = discover(&mut image);
        let mut hit = image.clone();
        for (sector, at, byte) in damage {
            let lba = *sector.get(&hit.content.keys().copied().collect::<Vec<_>>());
            let content = hit.content.get_mut(&lba).unwrap();
            // Half of the cases change only bytes that are not zero, where the structures are.
            let used = (at..SECTOR_BYTES).find(|at| !near || content[*at] != 0);
            content[used.unwrap_or(at)] = byte;
        }
        hit.sectors = sectors.unwrap_or(hit.sectors);
        let after = discover_checked(&mut hit);
        let outdated = hit.content.iter().any(|(lba, content)| before.outdated_by(Lba(*lba), content));
        if !outdated && hit.sectors == image.sectors {
            prop_assert_eq!(settled(after), settled(before));
        }
    }

    #[test]
    fn any_bytes_are_a_disk(bytes in prop::collection::vec(any::<u8>(), 0..4096), sectors in 0..64u64) {
        let mut image = Image { sectors, ..Image::default() };
        set(&mut image, 0, &bytes);
        image.content.retain(|lba, _| *lba < sectors);
        discover_checked(&mut image);
        let _ = Image::decode(&bytes);
    }
}

/// The result without the fields that change with every commit.
fn settled(mut found: Discovery) -> Discovery {
    for fs in &mut found.file_systems {
        if let super::discover::JournalState::Found(journal) = &mut fs.journal {
            (journal.sequence, journal.start) = (0, 0);
        }
    }
    found
}
