//! A flash of format version 1, kept as a fixture: it must always open and read back. Also the layouts that the format
//! derives from some geometries.
//!
//! `VELLUM_GOLDEN=write cargo test -p vellum-disk golden` regenerates the fixtures. That is right only before a version
//! is released; after that, a new version gets a fixture of its own.

use crate::harness::{Sector, assert_sound};
use crate::soft::{Soft, SoftBlock};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use vellum_base::{BlockDevice, Flash, Geometry, Lba, RealEnv, SECTOR_BYTES};
use vellum_codes::pattern::Pattern;
use vellum_disk::tools::{RepairOptions, inspect, repair};
use vellum_disk::{DedupMode, Disk, Format, Options};
use vellum_media::nand::{Nand, NandParams};

const MAGIC: &[u8; 8] = b"VGOLDEN1";
/// Zero-line codec on the slot, or on the slot with all bits inverted (nodes are mostly ones).
const PLAIN: u8 = 0;
const INVERTED: u8 = 1;

const GEOMETRY: Geometry = Geometry {
    channels: 2,
    dies_per_channel: 1,
    blocks_per_die: 10,
    pages_per_block: 8,
    page_bytes: 8192,
    oob_bytes: 64,
};
const SECTORS: u64 = 90;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests-fixtures").join(name)
}

fn writes_fixtures() -> bool {
    std::env::var("VELLUM_GOLDEN").is_ok_and(|value| value == "write")
}

/// The host's writes, in order. Small sectors, shared ones, few full ones; zeros and holes.
fn history(mut write: impl FnMut(u64, Option<Sector>)) {
    let small = |id: u8| {
        let mut sector = [0; SECTOR_BYTES];
        sector[64 * usize::from(id % 60)] = id;
        sector[4000] = id;
        sector
    };
    let full = |id: u64| {
        let mut sector = [0; SECTOR_BYTES];
        Pattern { full: id, head: id, lines: 0xFFFF }.fill(&mut sector);
        sector
    };
    for round in 0..5u8 {
        for lba in 0..8u8 {
            write(lba.into(), Some(small(16 * round + lba + 1)));
            write(u64::from(20 + 8 * (round % 3) + lba), Some(small(16 * round + lba + 1)));
        }
        for lba in 60..66 {
            write(lba, Some(full(u64::from(round) * 100 + lba)));
        }
        write(50 + u64::from(round), Some([0; SECTOR_BYTES]));
        write(21 + u64::from(round), None);
    }
    for lba in 2..5 {
        write(lba, Some(full(1000 + lba)));
        write(lba + 70, Some(full(1000 + lba)));
    }
}

/// Every sector after the history.
fn expected() -> Vec<Sector> {
    let mut all = vec![[0; SECTOR_BYTES]; SECTORS as usize];
    history(|lba, sector| all[lba as usize] = sector.unwrap_or([0; SECTOR_BYTES]));
    all
}

/// A disk that ran the history, was flushed, and not closed.
fn make() -> Soft {
    let params = NandParams { seed: 1, nvram_bytes: 32 << 10, ..NandParams::default() };
    let flash = Arc::new(Nand::ram(GEOMETRY, params).unwrap());
    let format = Format {
        dedup: DedupMode::Journal,
        uuid: *b"golden version 1",
        tbw_bytes: 1 << 40,
        keep_copies: false,
        ..Format::new(SECTORS)
    };
    Disk::format(flash.clone(), RealEnv::new(), &format).unwrap();
    let options =
        Options { journals: Some(vec![Lba(0)..Lba(8)]), checkpoint_events: 90, ..Options::default() };
    let disk = Disk::open(flash.clone(), RealEnv::new(), options).unwrap();
    history(|lba, sector| match sector {
        Some(sector) => disk.write(Lba(lba), &sector, false).unwrap(),
        None => disk.trim(Lba(lba), 1).unwrap(),
    });
    disk.flush().unwrap();
    drop(disk);
    Soft::copy(&*flash)
}

fn encode(flash: &Soft) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let mut nvram = vec![0; flash.nvram().unwrap().bytes()];
    flash.nvram().unwrap().read(0, &mut nvram).unwrap();
    for sector in nvram.chunks_exact(SECTOR_BYTES) {
        encode_slot(sector, &mut out);
    }
    for block in flash.blocks() {
        out.extend(block.erase_count.to_le_bytes());
        out.push(block.pages.len() as u8);
        for (data, oob) in &block.pages {
            data.chunks_exact(SECTOR_BYTES).for_each(|slot| encode_slot(slot, &mut out));
            // Entries end where the slots do; the rest is zero.
            out.extend_from_slice(&oob[..48]);
            assert!(oob[48..].iter().all(|byte| *byte == 0));
        }
    }
    out
}

fn encode_slot(slot: &[u8], out: &mut Vec<u8>) {
    let inverted: Vec<u8> = slot.iter().map(|byte| !byte).collect();
    let (mut a, mut b) = (vec![PLAIN, 0, 0], vec![INVERTED, 0, 0]);
    vellum_codes::lines::pack(slot, &mut a);
    vellum_codes::lines::pack(&inverted, &mut b);
    let mut shorter = if a.len() <= b.len() { a } else { b };
    let length = (shorter.len() as u16 - 3).to_le_bytes();
    shorter[1..3].copy_from_slice(&length);
    out.extend(shorter);
}

fn decode(bytes: &[u8]) -> Soft {
    let mut rest = bytes.strip_prefix(MAGIC).expect("a golden image");
    let nvram: Vec<u8> = (0..8).flat_map(|_| decode_slot(&mut rest)).collect();
    let mut blocks = Vec::new();
    for _ in 0..GEOMETRY.blocks() {
        let head = take(&mut rest, 5);
        let erase_count = u32::from_le_bytes(head[..4].try_into().unwrap());
        let page = |rest: &mut &[u8]| {
            let data: Vec<u8> = (0..2).flat_map(|_| decode_slot(rest)).collect();
            let mut oob = take(rest, 48).to_vec();
            oob.resize(64, 0);
            (data, oob)
        };
        let pages = (0..head[4]).map(|_| page(&mut rest)).collect();
        blocks.push(SoftBlock { pages, erase_count, bad: false });
    }
    assert!(rest.is_empty());
    Soft::new(GEOMETRY, blocks, nvram)
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> &'a [u8] {
    let (front, back) = rest.split_at(bytes);
    *rest = back;
    front
}

fn decode_slot(rest: &mut &[u8]) -> Vec<u8> {
    let head = take(rest, 3);
    let length = usize::from(u16::from_le_bytes([head[1], head[2]]));
    let mut slot = vec![0; SECTOR_BYTES];
    vellum_codes::lines::unpack(take(rest, length), &mut slot).unwrap();
    if head[0] == INVERTED {
        slot.iter_mut().for_each(|byte| *byte = !*byte);
    }
    slot
}

fn assert_reads_back(disk: &Disk) {
    for (lba, expected) in expected().iter().enumerate() {
        let mut found = [0xEE; SECTOR_BYTES];
        disk.read(Lba(lba as u64), &mut found).unwrap();
        assert!(found == *expected, "sector {lba}");
    }
}

#[test]
fn version_1_opens_and_reads_back() {
    let path = fixture("disk-v1.golden");
    if writes_fixtures() {
        std::fs::write(&path, encode(&make())).unwrap();
    }
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes.len() <= 64 << 10, "{} bytes", bytes.len());
    let flash = decode(&bytes);
    let found = inspect(&flash).unwrap();
    assert_eq!(found.roots[0].uuid, "676f6c64656e2076657273696f6e2031");
    assert_eq!((found.roots[0].sectors, found.roots[0].dedup.as_str()), (SECTORS, "journal"));
    let (tree, nvram) = (found.tree.unwrap(), found.nvram.unwrap());
    assert!(tree.map_nodes > 0 && tree.log_slots > 0, "nodes of both kinds: {tree:?}");
    assert!(nvram.staged_slots > 0 && nvram.log_bytes > 0, "something is in NVRAM only: {nvram:?}");
    let disk = Disk::open(Arc::new(flash.fork()), RealEnv::new(), Options::default()).unwrap();
    assert_reads_back(&disk);
    assert_sound(&disk);
    disk.write(Lba(1), &[7; SECTOR_BYTES], true).unwrap();
    disk.close().unwrap();
    let flash = Arc::new(flash);
    let report =
        repair(flash.clone(), RealEnv::new(), &RepairOptions { write: true, identity: None }, |_, _| {})
            .unwrap();
    assert!(report.is_whole(), "{report:?}");
    assert_reads_back(&Disk::open(flash, RealEnv::new(), Options::default()).unwrap());
}

#[test]
fn the_layout_is_what_it_was() {
    let shapes = [
        ("tiny", GEOMETRY),
        (
            "4 GiB, 4 KiB pages",
            Geometry { blocks_per_die: 1024, pages_per_block: 256, page_bytes: 4096, ..GEOMETRY_4_DIES },
        ),
        (
            "256 GiB, 16 KiB pages",
            Geometry { blocks_per_die: 2048, pages_per_block: 1024, channels: 8, ..GEOMETRY_4_DIES },
        ),
    ];
    let mut text = String::from("Layout of disks by geometry (docs/formats/disk.md).\n");
    for (name, geometry) in shapes {
        let flash = Soft::new(geometry, vec![SoftBlock::default(); geometry.blocks() as usize], Vec::new());
        let found = inspect(&flash).unwrap();
        let mut layout = serde_json::to_value(&found).unwrap();
        // The memory taken by a release is not part of the format.
        layout.as_object_mut().unwrap().retain(|name, _| !name.starts_with("memory"));
        let json = serde_json::to_string_pretty(&layout).unwrap();
        writeln!(text, "\n{name}\n{json}").unwrap();
    }
    let path = fixture("layout.txt");
    if writes_fixtures() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
}

const GEOMETRY_4_DIES: Geometry = Geometry {
    channels: 4,
    dies_per_channel: 1,
    blocks_per_die: 0,
    pages_per_block: 0,
    page_bytes: 16384,
    oob_bytes: 128,
};
