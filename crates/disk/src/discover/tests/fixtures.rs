//! Committed disks (only the sectors that discovery reads), made by the real tools, with the results of debugfs. To
//! regenerate them: `VELLUM_WRITE_FIXTURES=1 cargo test -p vellum-disk fixtures`, then commit.

use super::discover::FsKind;
use super::image::{Image, discover_checked};
use super::real::fragmented;
use super::tools::{Disk, E2FS, assert_extents, disk};
use std::ops::Range;
use std::path::PathBuf;
use vellum_codes::lines;

const UUID: &str = "-U 6f1d4d5e-0a0b-4c0d-8e0f-101112131415";

/// Makes a file system on a disk.
type Make = fn(&Disk);

/// Each fixture, and how to make it on a disk of 512 MiB.
const FIXTURES: [(&str, Make); 6] = [
    ("ext4-default", |disk| plain(disk, "-t ext4 -b 4096")),
    ("ext4-64k-blocks", |disk| plain(disk, "-t ext4 -b 65536 -J size=64")),
    ("ext4-fast-commit", |disk| plain(disk, "-t ext4 -b 4096 -O fast_commit,orphan_file -J size=16")),
    ("ext4-fragmented", |disk| fragmented(disk, "-t ext4", 8)),
    ("ext3-indirect", |disk| plain(disk, "-t ext3 -b 4096 -J size=4")),
    ("ext4-meta-bg", |disk| plain(disk, "-t ext4 -b 4096 -O meta_bg,^resize_inode,inline_data,encrypt")),
];

fn plain(disk: &Disk, options: &str) {
    disk.mke2fs(&format!("{UUID} {options}"));
}

/// The expected result for a fixture: the log's end and the journal's pieces, in file system blocks.
struct Expected {
    log_end: u32,
    pieces: Vec<Range<u64>>,
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests-fixtures").join(name)
}

/// The fixture named `name`.
pub fn image(name: &str) -> Image {
    Image::decode(&std::fs::read(path(&format!("{name}.disk"))).unwrap())
}

pub fn names() -> impl Iterator<Item = &'static str> {
    FIXTURES.iter().map(|(name, _)| *name)
}

fn expected(name: &str) -> Expected {
    let text = std::fs::read_to_string(path(&format!("{name}.expected"))).unwrap();
    let (log_end, pieces) = text.split_once('\n').unwrap();
    let piece = |line: &str| {
        let (start, end) = line.split_once("..").unwrap();
        start.parse().unwrap()..end.parse().unwrap()
    };
    Expected {
        log_end: log_end.strip_prefix("log_end ").unwrap().parse().unwrap(),
        pieces: pieces.lines().map(piece).collect(),
    }
}

#[test]
fn committed_disks_are_found_as_debugfs_found_them() {
    for (name, make) in FIXTURES {
        if std::env::var_os("VELLUM_WRITE_FIXTURES").is_some() {
            write(name, make);
        }
        let found = discover_checked(&mut image(name));
        let (fs, journal) = found.journals().next().unwrap_or_else(|| panic!("{name}: {found:?}"));
        let expected = expected(name);
        assert_extents(fs, journal, &expected.pieces);
        assert_eq!(journal.log_blocks, 1..expected.log_end, "{name}");
        assert_eq!(fs.kind, if name.starts_with("ext3") { FsKind::Ext3 } else { FsKind::Ext4 });
    }
}

fn write(name: &str, make: Make) {
    let disk = disk(512, &E2FS).expect("fixtures need e2fsprogs");
    make(&disk);
    let image = disk.watched(&disk.discover());
    let mut bytes = image.sectors.to_le_bytes().to_vec();
    for (lba, sector) in image.content {
        bytes.extend(lba.to_le_bytes());
        lines::pack(&sector, &mut bytes);
    }
    std::fs::create_dir_all(path("")).unwrap();
    std::fs::write(path(&format!("{name}.disk")), bytes).unwrap();
    let fast_commit = disk.dumpe2fs("Fast commit length").unwrap_or(0);
    let mut text = format!("log_end {}\n", disk.dumpe2fs("Total journal blocks").unwrap() - fast_commit);
    for piece in disk.debugfs_blocks(0, 8) {
        text += &format!("{}..{}\n", piece.start, piece.end);
    }
    std::fs::write(path(&format!("{name}.expected")), text).unwrap();
}
