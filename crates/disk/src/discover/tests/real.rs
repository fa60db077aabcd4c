//! Real file systems, whose journals must be found where debugfs finds them.

use super::discover::{FileSystem, FsKind, Journal, Table, Uuid};
use super::tools::{Disk, E2FS, disk, only_reason, run, same_as_debugfs, try_run};
use std::collections::BTreeSet;
use vellum_base::Lba;

const UUID: &str = "6f1d4d5e-0a0b-4c0d-8e0f-101112131415";

/// Makes an ext file system on a whole disk of `mib`; its journal must be the same as in debugfs.
fn check(mib: u64, options: &str) -> Option<(Disk, Journal)> {
    let disk = disk(mib, &E2FS)?;
    disk.mke2fs(&format!("-U {UUID} {options}"));
    let found = disk.discover();
    let journal = same_as_debugfs(&disk, &found, 8);
    assert_eq!(Some(journal.blocks), disk.dumpe2fs("Total journal blocks"), "{options}");
    let fs = &found.file_systems[0];
    assert_eq!(disk.copies(), sectors_of(fs), "{options}");
    assert_eq!((fs.partition, fs.uuid.unwrap().to_string().as_str()), (None, UUID));
    println!("{options}: {} extents, {} sectors read", journal.extents.len(), found.sectors_read);
    Some((disk, journal))
}

/// The sectors of the file system's redundant metadata.
fn sectors_of(fs: &FileSystem) -> BTreeSet<u64> {
    fs.copies.iter().flat_map(|range| range.start.0..range.end.0).collect()
}

#[test]
fn ext4_as_mkfs_makes_it() {
    let Some((disk, journal)) = check(2048, "-t ext4") else { return };
    let found = disk.discover();
    assert_eq!(found.file_systems[0].kind, FsKind::Ext4);
    assert_eq!((journal.extents.len(), journal.block_sectors), (1, 1));
    assert_eq!(journal.log_blocks, 1..journal.blocks);
    assert!(found.sectors_read <= 4, "{} sectors read", found.sectors_read);
}

#[test]
fn ext4_with_every_feature_that_may_stand_in_the_way() {
    for options in [
        "-t ext4 -b 4096 -O ^64bit",
        "-t ext4 -b 4096 -O ^64bit,^metadata_csum,^flex_bg,^resize_inode",
        "-t ext4 -b 4096 -O bigalloc -C 65536",
        "-t ext4 -b 4096 -O meta_bg,^resize_inode",
        "-t ext4 -b 4096 -O meta_bg,^resize_inode,^64bit,^sparse_super",
        "-t ext4 -b 4096 -O sparse_super2,^resize_inode",
        "-t ext4 -b 4096 -O inline_data,mmp,encrypt,casefold,orphan_file,metadata_csum_seed,quota,project,verity",
        "-t ext4 -b 4096 -O large_dir,ea_inode -I 1024",
        "-t ext4 -b 4096 -I 128",
        "-t ext4 -b 4096 -I 4096",
        "-t ext4 -b 4096 -N 64 -g 2048",
    ] {
        check(512, options);
    }
}

#[test]
fn blocks_larger_than_a_sector() {
    for (options, sectors) in
        [("-t ext4 -b 8192", 2), ("-t ext4 -b 65536 -J size=64", 16), ("-t ext3 -b 16384", 4)]
    {
        let Some((_, journal)) = check(512, options) else { return };
        assert_eq!(journal.block_sectors, sectors);
    }
}

#[test]
fn ext3_has_holes_where_its_indirect_blocks_lie() {
    let Some((disk, journal)) = check(512, "-t ext3 -b 4096 -J size=16") else { return };
    let found = disk.discover();
    assert_eq!(found.file_systems[0].kind, FsKind::Ext3);
    assert!(journal.extents.len() >= 5, "{:?}", journal.extents);
    let span = journal.extents.last().unwrap().end.0 - journal.extents[0].start.0;
    assert!(span > journal.sectors(), "no gap for the indirect blocks");
    let first_gap = journal.extents[0].end;
    assert!(found.watch().any(|lba| lba == first_gap), "the indirect block is watched");
    check(512, "-t ext4 -b 4096 -O ^extents,^64bit,^bigalloc -J size=64");
}

#[test]
fn fast_commit_blocks_are_no_log() {
    let Some((disk, journal)) = check(512, "-t ext4 -b 4096 -O fast_commit -J size=16") else { return };
    let reserved = disk.dumpe2fs("Fast commit length").unwrap();
    assert!(reserved > 0);
    assert_eq!(journal.log_blocks, 1..journal.blocks - reserved);
    // While mounted, the journal has the feature bit itself; then the file system's bit alone must not matter.
    let at = journal.extents[0].start.0 * 4096;
    disk.write(at + 0x28, &0x20u32.to_be_bytes());
    disk.edit("feature -fast_commit");
    assert_eq!(disk.discover().journals().next().unwrap().1.log_blocks, journal.log_blocks);
}

/// A file system of 128 MiB with only small gaps, then a journal: hundreds of extents under an index.
pub fn fragmented(disk: &Disk, options: &str, journal_mib: u32) {
    disk.mke2fs_at(&format!("-U {UUID} -b 4096 -O ^has_journal {options}"), 0, 32_768);
    let taken: String = (1500..disk.dumpe2fs("Block count").unwrap())
        .step_by(29)
        .map(|block| format!("setb {block} 11\n"))
        .collect();
    try_run("debugfs", &["-w", disk.name()], &taken).unwrap();
    disk.tune2fs(&format!("-J size={journal_mib}"));
}

#[test]
fn a_fragmented_journal_is_followed_through_its_tree() {
    let Some(disk) = disk(256, &E2FS) else { return };
    fragmented(&disk, "-t ext4", 16);
    let found = disk.discover();
    let journal = same_as_debugfs(&disk, &found, 8);
    assert!(journal.extents.len() > 200, "{} extents", journal.extents.len());
    println!("{} extents, {} sectors read", journal.extents.len(), found.sectors_read);
    // A journal of another size: the old result is outdated, the new one right.
    let before = found;
    disk.tune2fs("-O ^has_journal");
    let without = disk.discover();
    assert_eq!(only_reason(&without), "no journal");
    assert!(differs(&disk, &before));
    disk.tune2fs("-J size=32");
    assert!(differs(&disk, &without));
    assert!(same_as_debugfs(&disk, &disk.discover(), 8).extents.len() > 400);
}

#[test]
fn a_fragmented_ext3_journal() {
    let Some(disk) = disk(256, &E2FS) else { return };
    fragmented(&disk, "-t ext3", 16);
    assert!(same_as_debugfs(&disk, &disk.discover(), 8).extents.len() > 200);
}

/// True if a watched sector of the disk shows that `found` is outdated.
fn differs(disk: &Disk, found: &super::discover::Discovery) -> bool {
    found.watch().any(|lba| {
        let content = disk.read(lba.0 * 4096, 4096).try_into().unwrap();
        found.outdated_by(lba, &content)
    })
}

#[test]
fn a_journal_in_another_inode_of_a_far_group() {
    // As tune2fs makes it on a mounted file system (in a file of its own), but with the inode far away.
    for options in ["meta_bg,^resize_inode", "^meta_bg", "meta_bg,^resize_inode,^sparse_super"] {
        let Some((disk, _)) = check(
            40_000,
            &format!(
                "-t ext4 -b 4096 -O ^metadata_csum,^uninit_bg,{options} -E lazy_itable_init=1 -N 400000 -J size=16"
            ),
        ) else {
            return;
        };
        let [from, to] = [8, 399_000].map(|inode| {
            let text = disk.debugfs(0, &format!("imap <{inode}>"));
            let number = |mark: &str| {
                let rest = text.split_once(mark).unwrap().1.trim_start_matches("0x");
                let digits = rest.split(|c: char| !c.is_ascii_hexdigit()).next().unwrap();
                u64::from_str_radix(digits, if mark == "offset " { 16 } else { 10 }).unwrap()
            };
            number("located at block ") * 4096 + number("offset ")
        });
        assert!(to > from + (1 << 30), "{from} {to}");
        disk.write(to, &disk.read(from, 256));
        disk.write(from, &[0; 256]);
        disk.edit("ssv journal_inum 399000");
        same_as_debugfs(&disk, &disk.discover(), 399_000);
    }
}

#[test]
fn small_blocks_bring_no_benefit() {
    for (options, reason) in
        [("-b 1024", "1 KiB blocks on 4 KiB sectors"), ("-b 2048", "2 KiB blocks on 4 KiB sectors")]
    {
        let Some(disk) = disk(64, &E2FS) else { return };
        disk.mke2fs(&format!("-t ext4 {options}"));
        assert!(only_reason(&disk.discover()).starts_with(reason));
    }
}

#[test]
fn no_journal_or_one_elsewhere() {
    let Some(disk) = disk(64, &E2FS) else { return };
    disk.mke2fs("-t ext2 -b 4096");
    assert_eq!(only_reason(&disk.discover()), "no journal");
    assert_eq!(disk.discover().file_systems[0].kind, FsKind::Ext2);

    disk.mke2fs(&format!("-b 4096 -U {UUID} -O journal_dev"));
    let found = disk.discover();
    assert_eq!(found.file_systems[0].kind, FsKind::ExtJournal);
    assert_eq!(found.file_systems[0].uuid.map(|uuid| uuid.to_string()).as_deref(), Some(UUID));
    assert!(only_reason(&found).contains("different devices"));

    // mke2fs accepts only block devices for external journals; this is the resulting superblock.
    disk.mke2fs("-t ext4 -b 4096");
    for field in ["journal_inum 0", "journal_dev 0x0801"] {
        disk.edit(&format!("ssv {field}"));
    }
    disk.edit(&format!("ssv journal_uuid {UUID}"));
    assert!(only_reason(&disk.discover()).starts_with("external journal"));
}

#[test]
fn a_dirty_journal_tells_its_sequence() {
    let Some((disk, journal)) = check(256, "-t ext4 -b 4096 -J size=16") else { return };
    let at = journal.extents[0].start.0 * 4096;
    let before = disk.discover();
    disk.write(at + 0x18, &[0, 0, 0x12, 0x34, 0, 0, 0, 7]);
    let after = disk.discover();
    let (_, journal) = after.journals().next().unwrap();
    assert_eq!((journal.sequence, journal.start), (0x1234, 7));
    assert!(!differs(&disk, &before), "a moved log tail is no reason to discover again");
    disk.write(at + 0x10, &[0, 0, 0x10, 0x01]);
    assert!(differs(&disk, &before));
    let found = disk.discover();
    assert!(only_reason(&found).contains("claims 4097 blocks"), "{}", only_reason(&found));
    disk.write(at, &[0; 4]);
    assert_eq!(only_reason(&disk.discover()), "the journal's superblock is missing");
}

#[test]
fn file_systems_that_are_not_ext() {
    let Some(disk) = disk(512, &["mkfs.xfs"]) else { return };
    run("mkfs.xfs", &["-q", "-m", &format!("uuid={UUID}"), disk.name()]);
    let found = disk.discover();
    let fs = &found.file_systems[0];
    assert_eq!((fs.kind, fs.uuid.unwrap().to_string().as_str()), (FsKind::Xfs, UUID));
    assert!(only_reason(&found).contains("XFS"));
}

#[test]
fn a_blank_disk_and_its_first_file_system() {
    let Some(disk) = disk(256, &E2FS) else { return };
    let blank = disk.discover();
    assert_eq!((blank.table, blank.file_systems[0].kind), (Table::None, FsKind::Blank));
    assert!(blank.watch().any(|lba| lba == Lba(0)));
    disk.mke2fs("-t ext4 -b 4096");
    assert!(differs(&disk, &blank));
    // Activity in a file system changes nothing: free counts, times, labels.
    let fresh = disk.discover();
    let file = disk.other("file", 1);
    disk.edit(&format!("write {} name", file.display()));
    disk.tune2fs("-L label -c 5 -C 3");
    assert!(!differs(&disk, &fresh));
    disk.tune2fs("-O ^has_journal");
    assert!(differs(&disk, &fresh));
}

#[test]
fn a_disk_cut_short() {
    let Some((disk, journal)) = check(512, "-t ext4 -b 4096 -J size=16") else { return };
    disk.set_bytes(journal.extents[0].end.0 * 4096);
    same_as_debugfs_when_cut(&disk, &journal);
    disk.set_bytes(journal.extents[0].end.0 * 4096 - 4096);
    assert!(only_reason(&disk.discover()).starts_with("the way to the journal leads to block"));
    disk.set_bytes(4096);
    assert!(only_reason(&disk.discover()).starts_with("the way to the journal leads to block"));
    disk.set_bytes(0);
    assert!(only_reason(&disk.discover()).contains("beyond the end"));
}

fn same_as_debugfs_when_cut(disk: &Disk, journal: &Journal) {
    let found = disk.discover();
    assert_eq!(found.journals().next().unwrap().1, journal);
}

#[test]
fn uuids_print_as_usual() {
    let bytes = std::array::from_fn(|i| i as u8);
    assert_eq!(Uuid(bytes).to_string(), "00010203-0405-0607-0809-0a0b0c0d0e0f");
}
