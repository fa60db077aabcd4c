//! Partition tables, made by sgdisk and by hand.

use super::discover::gpt::crc32;
use super::discover::{Discovery, FsKind, JournalState, Table};
use super::image::{Image, discover_checked};
use super::tools::{Disk, E2FS, assert_extents, disk, run};
use std::ops::Range;

const MIB: u64 = 1 << 20;

/// A boot record with entries `(kind, first block, blocks)`.
pub fn boot_record(entries: &[(u8, u32, u32)]) -> [u8; 512] {
    let mut record = [0; 512];
    for (i, (kind, first, blocks)) in entries.iter().enumerate() {
        let at = 446 + 16 * i;
        record[at + 4] = *kind;
        record[at + 8..at + 12].copy_from_slice(&first.to_le_bytes());
        record[at + 12..at + 16].copy_from_slice(&blocks.to_le_bytes());
    }
    record[510..].copy_from_slice(&[0x55, 0xAA]);
    record
}

/// A GPT header for block `at` of a disk of `blocks`, with the entries at `entries_at`.
fn gpt_header(at: u64, blocks: u64, entries_at: u64, entries: &[u8]) -> [u8; 92] {
    let mut header = [0; 92];
    header[..8].copy_from_slice(b"EFI PART");
    header[8..16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
    for (offset, value) in [(24, at), (32, blocks - 1 - at), (40, 64), (48, blocks - 64), (72, entries_at)] {
        header[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
    }
    let count = entries.len() as u32 / 128;
    for (offset, value) in [(80, count), (84, 128), (88, crc32([entries]))] {
        header[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    }
    let crc = crc32([&header[..]]);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Checks that every journal found is the same as in debugfs; returns the partition numbers that have one.
fn journals_as_debugfs_says(disk: &Disk) -> Vec<Option<u32>> {
    let found = disk.discover();
    for (fs, journal) in found.journals() {
        assert_extents(fs, journal, &disk.debugfs_blocks(fs.region_bytes.start, 8));
    }
    println!("{} sectors read", found.sectors_read);
    found.journals().map(|(fs, _)| fs.partition).collect()
}

fn reason_of(found: &Discovery, partition: u32) -> (FsKind, String) {
    let fs = found.file_systems.iter().find(|fs| fs.partition == Some(partition)).unwrap();
    match &fs.journal {
        JournalState::NoBenefit { reason } => (fs.kind, reason.clone()),
        JournalState::Found(_) => panic!("partition {partition} has a journal"),
    }
}

#[test]
fn gpt_and_its_backup() {
    let Some(disk) = disk(512, &[&E2FS[..], &["sgdisk"]].concat()) else { return };
    let parts = ["-n", "1:2048:+200M", "-n", "3:+0:+100M", "-n", "4:+0:+64M", "-n", "7:+0:+64M"];
    run("sgdisk", &[&["-a", "8"][..], &parts, &[disk.name()]].concat());
    run("sgdisk", &["-a", "1", "-n", "2:63:1063", disk.name()]);
    disk.mke2fs_at("-t ext4 -b 4096", MIB, 200 << 8);
    disk.mke2fs_at("-t ext3 -b 4096", 201 * MIB, 100 << 8);
    disk.mke2fs_at("-t ext4 -b 1024", 301 * MIB, 64 << 10);
    assert_eq!(journals_as_debugfs_says(&disk), [Some(1), Some(3)]);
    let found = disk.discover();
    assert_eq!(found.table, Table::Gpt);
    assert!(found.sectors_read <= 30, "{} sectors read", found.sectors_read);
    assert_eq!(reason_of(&found, 4).0, FsKind::Ext4);
    assert!(reason_of(&found, 4).1.starts_with("1 KiB blocks"));
    assert_eq!(reason_of(&found, 7).0, FsKind::Blank);
    assert_eq!(found.file_systems.len(), 5);

    // A wrong byte in the header, then one in the entries: the backup gives the same result.
    for at in [512 + 60, 1024 + 3 * 128 + 60] {
        disk.write(at, b"\x5A");
        let again = disk.discover();
        assert_eq!(again.file_systems, found.file_systems);
        assert!(again.watch().max() > found.watch().max(), "the backup is watched");
    }
    // Without an announcement in the MBR neither is used; with a broken backup nothing is left.
    let boot = disk.read(0, 512);
    disk.write(510, &[0, 0]);
    assert_eq!(disk.discover().file_systems[0].kind, FsKind::Unknown);
    disk.write(0, &boot);
    disk.write((512 << 20) - 512 + 16, &[0; 4]);
    assert_eq!(disk.discover().table, Table::None);
}

#[test]
fn gpt_with_4_kib_blocks() {
    let Some(disk) = disk(128, &E2FS) else { return };
    let mut entries = vec![0; 128 * 128];
    let entry = &mut entries[128..256];
    entry[..16].fill(7);
    entry[32..40].copy_from_slice(&256u64.to_le_bytes());
    entry[40..48].copy_from_slice(&(256 + 25_599u64).to_le_bytes());
    let blocks = 128 << 8;
    disk.write(0, &boot_record(&[(0xEE, 1, u32::MAX)]));
    disk.write(4096, &gpt_header(1, blocks, 2, &entries));
    disk.write(8192, &entries);
    disk.mke2fs_at("-t ext4 -b 4096", MIB, 25_600);
    assert_eq!(journals_as_debugfs_says(&disk), [Some(2)]);
    let before = disk.discover();
    disk.write(4096, &[0; 512]);
    disk.write((blocks - 1) * 4096, &gpt_header(blocks - 1, blocks, 2, &entries));
    assert_eq!(disk.discover().file_systems, before.file_systems);
}

#[test]
fn gpt_entries_at_the_end_of_the_world() {
    const FAR: u64 = u64::MAX / 4096;
    let ranges = [(FAR, FAR), (FAR - 1, FAR - 1), (0, FAR - 1), (9, 8), (0, u64::MAX), (1 << 50, 1 << 51)];
    let mut entries = vec![0; 128 * ranges.len()];
    for (entry, (first, last)) in entries.chunks_exact_mut(128).zip(ranges) {
        entry[..16].fill(7);
        entry[32..40].copy_from_slice(&u64::to_le_bytes(first));
        entry[40..48].copy_from_slice(&u64::to_le_bytes(last));
    }
    for sectors in [1000, u64::MAX] {
        let mut image = Image { sectors, ..Image::default() };
        image.content.entry(0).or_insert([0; 4096])[..512].copy_from_slice(&boot_record(&[(
            0xEE,
            1,
            u32::MAX,
        )]));
        let header = gpt_header(1, 1000, 2, &entries);
        for (lba, bytes) in [(1, &header[..]), (2, &entries[..])] {
            image.content.entry(lba).or_insert([0; 4096])[..bytes.len()].copy_from_slice(bytes);
        }
        let found = discover_checked(&mut image);
        let numbers: Vec<_> = found.file_systems.iter().map(|fs| fs.partition.unwrap()).collect();
        assert_eq!((found.table, &numbers[..]), (Table::Gpt, &[2, 3, 6][..]));
    }
}

#[test]
fn mbr_with_logical_partitions() {
    let Some(disk) = disk(512, &E2FS) else { return };
    let [first, second, third] = [63u32, 204_800, 819_200];
    // Primary 1 misaligned, primary 2 fine, 3 extended, 4 unused; two logical partitions, 5 and 6.
    let record = boot_record(&[(0x83, first, 131_072), (0x83, second, 204_800), (0x0F, 614_400, 400_000)]);
    disk.write(0, &record);
    disk.write(614_400 * 512, &boot_record(&[(0x83, 2048, 131_072), (0x05, third - 614_400, 200_000)]));
    disk.write(third as u64 * 512, &boot_record(&[(0x83, 2048, 131_072)]));
    disk.mke2fs_at("-t ext4 -b 4096", first as u64 * 512, 16_384);
    disk.mke2fs_at("-t ext4 -b 4096", second as u64 * 512, 25_600);
    for start in [614_400 + 2048, third as u64 + 2048] {
        disk.mke2fs_at("-t ext3 -b 4096", start * 512, 16_384);
    }
    assert_eq!(journals_as_debugfs_says(&disk), [Some(2), Some(5), Some(6)]);
    let found = disk.discover();
    assert_eq!(found.table, Table::Mbr);
    let misaligned = (FsKind::Ext4, "partition starts at byte 32256, not 4 KiB aligned".to_string());
    assert_eq!(reason_of(&found, 1), misaligned);
    assert_eq!(found.file_systems.len(), 4);
}

#[test]
fn mbr_that_counts_in_4_kib_blocks() {
    let Some(disk) = disk(256, &E2FS) else { return };
    disk.write(0, &boot_record(&[(0x83, 256, 16_384), (0x05, 32_768, 30_000)]));
    disk.write(32_768 * 4096, &boot_record(&[(0x83, 256, 16_384)]));
    disk.mke2fs_at("-t ext4 -b 4096", MIB, 16_384);
    disk.mke2fs_at("-t ext4 -b 4096", 129 * MIB, 16_384);
    assert_eq!(journals_as_debugfs_says(&disk), [Some(1), Some(5)]);
}

#[test]
fn a_journal_beyond_its_partition_is_none() {
    let Some(disk) = disk(512, &E2FS) else { return };
    disk.mke2fs_at("-t ext4 -b 4096", MIB, 400 << 8);
    let sectors = |mib: u32| mib * 2048;
    disk.write(0, &boot_record(&[(0x83, 2048, sectors(400))]));
    assert_eq!(journals_as_debugfs_says(&disk), [Some(1)]);
    disk.write(0, &boot_record(&[(0x83, 2048, sectors(100))]));
    assert!(reason_of(&disk.discover(), 1).1.contains("of 25600"));
}

#[test]
fn a_file_system_before_the_first_partition_is_seen_too() {
    let Some(disk) = disk(256, &E2FS) else { return };
    disk.mke2fs("-t ext4 -b 4096");
    disk.write(0, &boot_record(&[(0x83, 2048, 4096)]));
    assert_eq!(journals_as_debugfs_says(&disk), [None]);
    assert_eq!(disk.discover().file_systems.len(), 2);
}

#[test]
fn chains_of_logical_partitions_end() {
    let image = |records: &[(u64, [u8; 512])]| {
        let mut image = Image { sectors: 1 << 20, ..Image::default() };
        for (lba, record) in records {
            image.content.entry(*lba).or_insert([0; 4096])[..512].copy_from_slice(record);
        }
        image
    };
    let extended = boot_record(&[(0x05, 8, 8000)]);
    for chain in [
        vec![(0, extended), (1, boot_record(&[(0x83, 1, 1), (0x05, 0, 8)]))],
        vec![
            (0, extended),
            (1, boot_record(&[(0x83, 1, 1), (0x05, 8, 8)])),
            (2, boot_record(&[(0x83, 1, 1), (5, 0, 8)])),
        ],
        (0..1000).map(|i| (i, boot_record(&[(0x05, 8 * i as u32 + 8, 8), (0x83, 1, 1)]))).collect(),
        vec![(0, boot_record(&[(0x05, u32::MAX, u32::MAX), (0x83, u32::MAX, u32::MAX)]))],
    ] {
        let found = discover_checked(&mut image(&chain));
        assert_eq!(found.table, Table::Mbr);
        assert!(found.journals().next().is_none());
        assert!(found.file_systems.len() <= 130 && found.sectors_read < 1500, "{}", found.sectors_read);
    }
}

#[test]
fn a_boot_sector_is_no_partition_table() {
    let mut fat = boot_record(&[(0x83, 2048, 4096)]);
    fat[82..90].copy_from_slice(b"FAT32   ");
    let mut code = boot_record(&[(0x83, 2048, 4096)]);
    code[446] = 0x37;
    for (record, kind) in [(fat, FsKind::Fat), (code, FsKind::Unknown)] {
        let mut image = Image { sectors: 4096, ..Image::default() };
        let sector: &mut [u8] = image.content.entry(0).or_insert([0; 4096]);
        sector[..512].copy_from_slice(&record);
        let found = discover_checked(&mut image);
        assert_eq!((found.table, found.file_systems[0].kind), (Table::None, kind));
    }
}

/// Each known signature, at its place in a partition.
#[test]
fn other_kinds_have_names() {
    let marks: [(FsKind, usize, &[u8]); 8] = [
        (FsKind::Btrfs, 65536 + 64, b"_BHRfS_M"),
        (FsKind::Swap, 4086, b"SWAPSPACE2"),
        (FsKind::Ntfs, 3, b"NTFS    "),
        (FsKind::Luks, 0, b"LUKS\xba\xbe\0\x02"),
        (FsKind::Lvm, 536, b"LVM2 001"),
        (FsKind::F2fs, 1024, b"\x10\x20\xf5\xf2"),
        (FsKind::MdRaid, 4096, b"\xfc\x4e\x2b\xa9"),
        (FsKind::Jfs, 32768, b"JFS1"),
    ];
    for (kind, at, mark) in marks {
        let mut image = Image { sectors: 4096, ..Image::default() };
        let within: Range<usize> = at % 4096..at % 4096 + mark.len();
        image.content.insert(at as u64 / 4096, [0; 4096]);
        image.content.get_mut(&(at as u64 / 4096)).unwrap()[within].copy_from_slice(mark);
        let found = discover_checked(&mut image);
        assert_eq!(found.file_systems[0].kind, kind);
        assert!(found.journals().next().is_none());
    }
}
