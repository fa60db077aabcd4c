//! Finds the journals of the file systems on a disk by reading the disk itself, without the host's help.
//!
//! Write-once journaling must know which sectors are journal slots. [`discover`] reads partition tables, ext
//! superblocks, the journal's inode and its block map. For every file system it reports either where its journal is or
//! why there is nothing to gain. It reads only a handful of sectors, so that it can run again whenever one of them
//! changes ([`Discovery::outdated_by`]).
//!
//! Invariants:
//! 1. Discovery terminates on any contents: at most [`READS_MAX`] sectors are read, each once, and at most
//!    [`PIECES_MAX`] extents kept per journal. It never fails: what it cannot follow becomes
//!    [`JournalState::NoBenefit`] with a readable reason.
//! 2. The result depends only on the bytes recorded in the watch list: while they are unchanged, another discovery has
//!    the same result (except for [`Journal::sequence`] and [`Journal::start`], which change with every commit).
//! 3. Extents of a journal lie within the disk and its file system, do not overlap each other, and together hold
//!    exactly [`Journal::blocks`] file system blocks. Journals of *different* file systems may overlap if remains of an
//!    old file system are visible in a newer one: an extent is a hint about traffic, not a proof about content.
//! 4. Unknown features never matter: only what the path to the journal needs is examined.

mod copies;
mod ext;
mod foreign;
mod gpt;
mod journal;
mod map;
mod partitions;
mod reader;
#[cfg(test)]
mod tests;

pub use journal::{Journal, is_control_block};
pub use map::PIECES_MAX;
pub use reader::READS_MAX;

use partitions::{Layout, Partition};
use reader::{Reader, Watched};
use std::fmt;
use std::ops::Range;
use vellum_base::{Lba, Result, SECTOR_BYTES};

/// The disk as seen by discovery.
pub trait Sectors {
    /// Reads one sector. Sectors never written read as zeros.
    fn read(&mut self, lba: Lba, out: &mut [u8; SECTOR_BYTES]) -> Result<()>;
    /// Size of the disk in sectors.
    fn sectors(&self) -> u64;
}

/// The result of a discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// One entry for each file system, and for each partition without a known one; for a disk on which nothing was
    /// found, a single entry that says so.
    pub file_systems: Vec<FileSystem>,
    /// The kind of partition table.
    pub table: Table,
    /// Number of sectors read.
    pub sectors_read: u32,
    watch: Vec<Watched>,
}

/// Kinds of partition tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// No partition table.
    None,
    /// Master boot record, with logical partitions if there are any.
    Mbr,
    /// GUID partition table, read from its first or its backup header.
    Gpt,
}

/// A file system, or a region without a known one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Its kind.
    pub kind: FsKind,
    /// Partition number as in Linux (from 1); `None` if it occupies the whole disk.
    pub partition: Option<u32>,
    /// The range of its partition on the disk, in bytes. May end beyond a disk that was truncated.
    pub region_bytes: Range<u64>,
    /// Its UUID, if the kind has one.
    pub uuid: Option<Uuid>,
    /// File system block size in bytes; 0 if unknown.
    pub block_bytes: u32,
    /// Sectors of metadata that it keeps redundantly on purpose: superblocks and group descriptors (ext only),
    /// ascending.
    pub copies: Vec<Range<Lba>>,
    /// Its journal, or why that does not help.
    pub journal: JournalState,
}

/// A journal, or the reason why there is none to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalState {
    /// The journal.
    Found(Journal),
    /// Write-once journaling is not possible here.
    NoBenefit {
        /// The reason, in words.
        reason: String,
    },
}

/// Kinds of file systems that can be identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FsKind {
    /// ext2: no journal.
    Ext2,
    /// ext3.
    Ext3,
    /// ext4.
    Ext4,
    /// The external journal of an ext file system on another device.
    ExtJournal,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// F2FS.
    F2fs,
    /// JFS.
    Jfs,
    /// ReiserFS.
    Reiserfs,
    /// NTFS.
    Ntfs,
    /// exFAT.
    ExFat,
    /// FAT12, FAT16 or FAT32.
    Fat,
    /// Linux swap space.
    Swap,
    /// A LUKS container.
    Luks,
    /// An LVM physical volume.
    Lvm,
    /// A member of a Linux software RAID.
    MdRaid,
    /// Unknown contents.
    Unknown,
    /// The first sector is all zeros.
    Blank,
}

impl FsKind {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            FsKind::Ext2 => "ext2",
            FsKind::Ext3 => "ext3",
            FsKind::Ext4 => "ext4",
            FsKind::ExtJournal => "ext-journal",
            FsKind::Xfs => "xfs",
            FsKind::Btrfs => "btrfs",
            FsKind::F2fs => "f2fs",
            FsKind::Jfs => "jfs",
            FsKind::Reiserfs => "reiserfs",
            FsKind::Ntfs => "ntfs",
            FsKind::ExFat => "exfat",
            FsKind::Fat => "fat",
            FsKind::Swap => "swap",
            FsKind::Luks => "luks",
            FsKind::Lvm => "lvm",
            FsKind::MdRaid => "md-raid",
            FsKind::Unknown => "unknown",
            FsKind::Blank => "blank",
        }
    }

    fn is_known(self) -> bool {
        !matches!(self, FsKind::Unknown | FsKind::Blank)
    }

    /// True if its boot sector has the signature of a partition table without being one.
    fn has_boot_sector(self) -> bool {
        matches!(self, FsKind::Ntfs | FsKind::ExFat | FsKind::Fat)
    }
}

/// A file system's UUID, in printing order.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Finds all file systems of `disk` and their journals.
pub fn discover(disk: &mut dyn Sectors) -> Discovery {
    let mut reader = Reader::new(disk);
    let whole = 0..reader.disk_bytes();
    let top = probe(&mut reader, whole, None);
    let (table, mut file_systems) = match top.kind.has_boot_sector() {
        true => (Table::None, Vec::new()),
        false => probe_partitions(&mut reader),
    };
    if top.kind.is_known() || file_systems.is_empty() {
        file_systems.insert(0, top);
    }
    let sectors_read = reader.sectors_read();
    Discovery { file_systems, table, sectors_read, watch: reader.into_watch() }
}

impl Discovery {
    /// The journals found, each with its file system.
    pub fn journals(&self) -> impl Iterator<Item = (&FileSystem, &Journal)> {
        self.file_systems.iter().filter_map(|fs| match &fs.journal {
            JournalState::Found(journal) => Some((fs, journal)),
            JournalState::NoBenefit { .. } => None,
        })
    }

    /// The sectors that the result depends on, ascending: partition tables, superblocks, the descriptor and the inode
    /// of each journal, the blocks of its map, its own superblock. Writing any other sector changes nothing.
    pub fn watch(&self) -> impl ExactSizeIterator<Item = Lba> {
        self.watch.iter().map(|watched| watched.lba)
    }

    /// True if the disk must be discovered again once `lba` holds `content`. Watched sectors are written all the time
    /// (free counts, timestamps, log tail), so this checks only the bytes that the result depends on.
    pub fn outdated_by(&self, lba: Lba, content: &[u8; SECTOR_BYTES]) -> bool {
        match self.watch.binary_search_by_key(&lba, |watched| watched.lba) {
            Ok(at) => !self.watch[at].still_holds(content),
            Err(_) => false,
        }
    }
}

fn probe_partitions(reader: &mut Reader) -> (Table, Vec<FileSystem>) {
    match partitions::layout(reader) {
        Layout::None => (Table::None, Vec::new()),
        Layout::Gpt(partitions) => (Table::Gpt, probe_all(reader, partitions)),
        Layout::Mbr(entries) => {
            // The table does not specify its unit, so the unit that finds file systems is used.
            let mut probe_in = |unit| {
                let partitions = partitions::mbr(reader, &entries, unit);
                probe_all(reader, partitions)
            };
            let known = |found: &[FileSystem]| found.iter().any(|fs| fs.kind.is_known());
            let found = probe_in(512);
            if known(&found) {
                return (Table::Mbr, found);
            }
            let other = probe_in(4096);
            (Table::Mbr, if known(&other) { other } else { found })
        }
    }
}

fn probe_all(reader: &mut Reader, partitions: Vec<Partition>) -> Vec<FileSystem> {
    let each = partitions.into_iter();
    each.map(|Partition { number, bytes }| probe(reader, bytes, Some(number))).collect()
}

fn probe(reader: &mut Reader, region: Range<u64>, partition: Option<u32>) -> FileSystem {
    let found = foreign::probe_start(reader, region.start)
        .or_else(|| ext::probe(reader, &region))
        .unwrap_or_else(|| foreign::probe_rest(reader, region.start));
    FileSystem {
        kind: found.kind,
        partition,
        region_bytes: region,
        uuid: found.uuid.filter(|bytes| *bytes != [0; 16]).map(Uuid),
        block_bytes: found.block_bytes,
        copies: found.copies,
        journal: match found.journal {
            Ok(journal) => JournalState::Found(journal),
            Err(reason) => JournalState::NoBenefit { reason },
        },
    }
}

/// The result of probing one region.
struct Probed {
    kind: FsKind,
    uuid: Option<[u8; 16]>,
    block_bytes: u32,
    copies: Vec<Range<Lba>>,
    journal: Why<Journal>,
}

/// The result of a step on the path to a journal, or the reason why there is no path.
type Why<T> = std::result::Result<T, String>;
