//! Identifies other file systems than ext, to tell users why their journals are not used.

use super::reader::Reader;
use super::{FsKind, Probed};
use vellum_base::SECTOR_BYTES;

/// The signature of a kind: `magic` at byte `at` of the region, its UUID (if any) at byte `uuid_at`.
struct Mark {
    kind: FsKind,
    at: u64,
    magic: &'static [u8],
    uuid_at: Option<u64>,
}

const fn mark(kind: FsKind, at: u64, magic: &'static [u8], uuid_at: Option<u64>) -> Mark {
    Mark { kind, at, magic, uuid_at }
}

/// Signatures in the boot sector, checked first since an ext superblock (from byte 1024) can survive a newer format.
const START: [Mark; 2] =
    [mark(FsKind::Xfs, 0, b"XFSB", Some(32)), mark(FsKind::Luks, 0, b"LUKS\xba\xbe", None)];

/// Signatures that count only if there is no ext file system.
const REST: [Mark; 16] = [
    mark(FsKind::Ntfs, 3, b"NTFS    ", None),
    mark(FsKind::ExFat, 3, b"EXFAT   ", None),
    mark(FsKind::Fat, 54, b"FAT12   ", None),
    mark(FsKind::Fat, 54, b"FAT16   ", None),
    mark(FsKind::Fat, 82, b"FAT32   ", None),
    mark(FsKind::Lvm, 512 + 24, b"LVM2 001", None),
    mark(FsKind::Lvm, 24, b"LVM2 001", None),
    mark(FsKind::F2fs, 1024, b"\x10\x20\xf5\xf2", Some(1024 + 108)),
    mark(FsKind::Swap, 4086, b"SWAPSPACE2", Some(1036)),
    mark(FsKind::Swap, 4086, b"SWAP-SPACE", None),
    mark(FsKind::MdRaid, 0, b"\xfc\x4e\x2b\xa9", Some(16)),
    mark(FsKind::MdRaid, 4096, b"\xfc\x4e\x2b\xa9", Some(4096 + 16)),
    mark(FsKind::Jfs, 32768, b"JFS1", Some(32768 + 136)),
    mark(FsKind::Btrfs, 65536 + 64, b"_BHRfS_M", Some(65536 + 32)),
    mark(FsKind::Reiserfs, 65536 + 52, b"ReIsErFs", Some(65536 + 84)),
    mark(FsKind::Reiserfs, 65536 + 52, b"ReIsEr2Fs", Some(65536 + 84)),
];

/// Looks for signatures that take precedence over an ext superblock.
pub(super) fn probe_start(reader: &mut Reader, start: u64) -> Option<Probed> {
    find(reader, start, &START)
}

/// Looks for all other signatures; if there are none, reports whether the region is blank.
pub(super) fn probe_rest(reader: &mut Reader, start: u64) -> Probed {
    find(reader, start, &REST).unwrap_or_else(|| {
        let first = reader.array::<SECTOR_BYTES>(start);
        let (kind, reason) = match first {
            Ok(bytes) if bytes == [0; SECTOR_BYTES] => (FsKind::Blank, reason(FsKind::Blank).to_string()),
            Ok(_) => (FsKind::Unknown, reason(FsKind::Unknown).to_string()),
            Err(why) => (FsKind::Unknown, why),
        };
        Probed { kind, uuid: None, block_bytes: 0, copies: Vec::new(), journal: Err(reason) }
    })
}

fn find(reader: &mut Reader, start: u64, marks: &[Mark]) -> Option<Probed> {
    let mark = marks.iter().find(|mark| {
        let mut found = [0; 16];
        let found = &mut found[..mark.magic.len()];
        let at = start.checked_add(mark.at);
        at.is_some_and(|at| reader.bytes(at, found).is_ok() && found == mark.magic)
    })?;
    let uuid = mark.uuid_at.and_then(|at| reader.array(start + at).ok());
    Some(Probed {
        kind: mark.kind,
        uuid,
        block_bytes: 0,
        copies: Vec::new(),
        journal: Err(reason(mark.kind).to_string()),
    })
}

fn reason(kind: FsKind) -> &'static str {
    match kind {
        FsKind::Xfs => "XFS logs changes, not whole blocks, so its log holds no copies to reuse",
        FsKind::Jfs => "JFS logs changes, not whole blocks, so its log holds no copies to reuse",
        FsKind::Reiserfs => "ReiserFS journals are not supported",
        FsKind::Ntfs => "NTFS logs changes, not whole blocks, so its log holds no copies to reuse",
        FsKind::Btrfs => "Btrfs writes copies, it has no journal",
        FsKind::F2fs => "F2FS is itself a log, it has no journal",
        FsKind::ExFat | FsKind::Fat => "FAT file systems have no journal",
        FsKind::Swap => "swap space has no journal",
        FsKind::Luks => "encrypted above us (LUKS): a journal copy and its home never look alike",
        FsKind::Lvm => "an LVM physical volume: logical volumes are not looked into",
        FsKind::MdRaid => "a member of a software RAID: what it holds is not looked into",
        FsKind::Blank => "nothing has been written here yet",
        _ => "no file system we know",
    }
}
