//! Images on real file systems: locks, crashes, full hosts, and the golden image.

use crate::support::*;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use vellum_base::{
    BlockAddr, BlockState, Flash, FlashError, FlashOp, Geometry, IoClass, Kind, Scrambling, Source,
};
use vellum_codes::lines::{LINE_BYTES, pack, unpack};
use vellum_media::coded::Coding;
use vellum_media::image::{Image, ImageParams};

/// A copy of the file's present contents, as after the death of the process that has it open.
fn killed(home: &InFile) -> InFile {
    let copy = InFile::new();
    let status = Command::new("cp").arg("--sparse=always").arg(home.path()).arg(copy.path()).status();
    assert!(status.unwrap().success());
    copy
}

#[test]
fn only_one_may_write() {
    let home = InFile::new();
    let nand = home.create(SMALL);
    for read_only in [false, true] {
        let error = Image::open(&home.path(), read_only).err().unwrap();
        assert_eq!(error.kind(), Kind::Busy);
        assert!(error.to_string().contains("open elsewhere"), "{error}");
    }
    assert_eq!(Image::inspect(&home.path()).unwrap().label, "test", "looking is allowed");
    drop(nand);
    let one = Image::open(&home.path(), true).unwrap();
    let two = Image::open(&home.path(), true).unwrap();
    assert_eq!(Image::open(&home.path(), false).err().unwrap().kind(), Kind::Busy);
    let error = program(&one, 0, 0, 1).unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
    assert!(is_erased(&two, 0, 0));
}

#[test]
fn nothing_is_overwritten_by_create() {
    let home = InFile::new();
    std::fs::write(home.path(), "a thesis").unwrap();
    assert!(Image::create(&home.path(), &ImageParams::new(SMALL)).is_err());
    assert_eq!(std::fs::read(home.path()).unwrap(), b"a thesis");
    let missing = home.dir.path().join("no/such/place");
    assert_eq!(Image::create(&missing, &ImageParams::new(SMALL)).err().unwrap().kind(), Kind::Io);
}

#[test]
fn parameters_counters_and_nvram_survive() {
    let home = InFile::new();
    let mut params = ImageParams::new(Geometry { blocks_per_die: 200, ..SMALL });
    params.endurance = 777;
    params.seed = 5;
    params.id = Some(99);
    params.factory_bad_share = 0.03;
    params.nvram_bytes = 5000;
    let nand = Image::create(&home.path(), &params).unwrap();
    let bad = |nand: &dyn Flash| -> Vec<u32> {
        (0..400).filter(|b| nand.report(BlockAddr(*b)).state == BlockState::Bad).collect()
    };
    let bad_before = bad(&nand);
    assert!(!bad_before.is_empty());
    let good = (0..400).find(|b| !bad_before.contains(b)).unwrap();
    program(&nand, good, 0, 8).unwrap();
    nand.nvram().unwrap().write(4990, b"last words").unwrap();
    let counters = nand.counters();
    drop(nand);
    let nand = home.open();
    assert_eq!(bad(&nand), bad_before);
    assert_eq!(nand.counters(), counters, "no power was cut, nothing is forgotten");
    assert_eq!((nand.params().endurance, nand.params().seed), (777, 5));
    assert_eq!(Image::inspect(&home.path()).unwrap().id, 99);
    let mut out = [0; 10];
    nand.nvram().unwrap().read(4990, &mut out).unwrap();
    assert_eq!(&out, b"last words");
}

#[test]
fn after_a_kill_what_was_synced_is_there_and_the_rest_follows_the_rules() {
    let home = InFile::new();
    let nand = home.create(SMALL);
    for page in 0..4 {
        program(&nand, 0, page, page as u64).unwrap();
        program(&nand, 1, page, page as u64).unwrap();
    }
    nand.sync().unwrap();
    for page in 4..7 {
        program(&nand, 0, page, page as u64).unwrap(); // written, not counted
    }
    erase(&nand, 1).unwrap(); // gone, still counted
    let copy = killed(&home);
    let after = copy.open();
    assert_eq!(after.counters().power_cuts, 1);
    assert!((0..4).all(|page| holds(&after, 0, page, page as u64)));
    assert_eq!(after.report(BlockAddr(0)).pages_written, 4);
    assert!((4..8).all(|page| is_erased(&after, 0, page)));
    for page in 0..4 {
        let lost = read(&after, BlockAddr(1).page(page));
        assert!(matches!(lost, Err(FlashError::Uncorrectable(_))));
    }
    // It continues to work, and pages that were never counted do not reappear.
    program(&after, 0, 4, 50).unwrap();
    erase(&after, 1).unwrap();
    program(&after, 1, 0, 51).unwrap();
    after.close().unwrap();
    let after = copy.open();
    assert!(holds(&after, 0, 4, 50) && holds(&after, 1, 0, 51));
    assert_eq!(after.report(BlockAddr(0)).pages_written, 5);
    assert!(is_erased(&after, 0, 5));
    assert_eq!(after.counters().power_cuts, 1);
    after.close().unwrap();
    // The bytes beyond the counted pages are gone from the file, too.
    let mut data = vec![1; 8192 * 3];
    let stripes = 4096 * 4 + 4096 + 4096;
    File::open(copy.path()).unwrap().read_exact_at(&mut data, stripes + 5 * 8192).unwrap();
    assert!(data.iter().all(|b| *b == 0));
}

#[test]
fn records_held_back_are_written_when_a_sector_is_full() {
    let home = InFile::new();
    let geometry = Geometry { pages_per_block: 64, oob_bytes: 508, ..SMALL };
    let nand = home.create(geometry);
    for page in 0..20 {
        program(&nand, 3, page, page as u64).unwrap();
    }
    for page in [0, 7, 8, 19] {
        assert!(holds(&nand, 3, page, page as u64), "from the file or from memory alike");
    }
    // Eight records of 512 bytes fill a sector.
    let (stripes, stripe, data) = (24_576, 64 * (8192 + 512), 64 * 8192);
    let mut records = vec![0; 20 * 512];
    File::open(home.path()).unwrap().read_exact_at(&mut records, stripes + 3 * stripe + data).unwrap();
    let marks = records.chunks_exact(512).map(|record| &record[..4] == b"P\0\0\0");
    assert_eq!(marks.collect::<Vec<_>>(), [[true; 16].as_slice(), &[false; 4]].concat());
    nand.close().unwrap();
    let nand = home.open();
    assert!((0..20).all(|page| holds(&nand, 3, page, page as u64)));
    program(&nand, 3, 20, 20).unwrap();
    assert!((0..21).all(|page| holds(&nand, 3, page, page as u64)), "old and new side by side");
}

#[test]
fn a_run_of_pages_is_one_write_and_an_erase_gives_space_back() {
    let home = InFile::new();
    let nand = home.create(Geometry { pages_per_block: 256, ..SMALL });
    let empty = std::fs::metadata(home.path()).unwrap().blocks();
    let bytes = content(2);
    let parts = [Source::Bytes(&bytes)];
    let mut ops: Vec<_> = (0..256)
        .map(|page| vellum_base::FlashOp::Program {
            page: BlockAddr(0).page(page),
            parts: &parts,
            oob: &[3],
            seeds: &[],
        })
        .collect();
    nand.submit(IoClass::Background, &mut ops).unwrap();
    assert!((0..256).all(|page| read(&nand, BlockAddr(0).page(page)).unwrap().0 == bytes));
    nand.sync().unwrap();
    let full = std::fs::metadata(home.path()).unwrap().blocks();
    assert!(full >= empty + 2 * 1024 * 2, "2 MiB are 4096 units of 512 bytes");
    erase(&nand, 0).unwrap();
    nand.sync().unwrap();
    assert!(std::fs::metadata(home.path()).unwrap().blocks() <= empty + 64);
}

#[test]
fn an_idle_image_is_not_written() {
    let home = InFile::new();
    let nand = home.create(SMALL);
    program(&nand, 0, 0, 1).unwrap();
    nand.sync().unwrap();
    let before = std::fs::metadata(home.path()).unwrap().mtime_nsec();
    for _ in 0..3 {
        nand.sync().unwrap();
        read(&nand, BlockAddr(0).page(0)).unwrap();
    }
    assert_eq!(std::fs::metadata(home.path()).unwrap().mtime_nsec(), before);
}

/// A file system of 512 KiB, if we may create one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let dir = tempfile::tempdir().unwrap();
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=512k", "vellum-test"])
            .arg(dir.path())
            .output();
        match done {
            Ok(output) if output.status.success() => Some(SmallDisk(dir)),
            other => {
                eprintln!("skipped: cannot mount a small tmpfs here ({other:?})");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_host_is_told_and_loses_nothing_synced() {
    let Some(disk) = SmallDisk::mount() else { return };
    let path = disk.0.path().join("d.flash");
    let geometry = Geometry { pages_per_block: 64, ..SMALL };
    let nand = Image::create(&path, &ImageParams::new(geometry)).unwrap();
    for page in 0..16 {
        program(&nand, 0, page, page as u64).unwrap();
    }
    nand.sync().unwrap();
    let refused = |page| program(&nand, 0, page, page as u64).err().map(|error| (page, error));
    let (page, error) = (16..64).find_map(refused).unwrap();
    assert!(matches!(error, FlashError::Full(_)), "{error}");
    assert_eq!(nand.counters().pages_programmed, u64::from(page), "what was refused was not programmed");
    assert!(error.to_string().contains("free space"), "{error}");
    assert!(nand.sync().is_err());
    assert!((0..16).all(|page| holds(&nand, 0, page, page as u64)), "reads go on");
    drop(nand);
    let nand = Image::open(&path, false).unwrap();
    assert_eq!(nand.report(BlockAddr(0)).pages_written, 16);
    assert!((0..16).all(|page| holds(&nand, 0, page, page as u64)));
    // Erasing makes room.
    erase(&nand, 0).unwrap();
    program(&nand, 0, 0, 3).unwrap();
    nand.close().unwrap();
    let mut large = ImageParams::new(geometry);
    large.nvram_bytes = 1 << 20;
    let error = Image::create(&disk.0.path().join("e.flash"), &large).err().unwrap();
    assert_eq!(error.kind(), Kind::NoSpace, "{error}");
    assert!(!disk.0.path().join("e.flash").exists(), "no half image is left");
}

const GOLDEN_1: &[u8] = include_bytes!("../fixtures/flash-image-v1.packed");
const GOLDEN_2: &[u8] = include_bytes!("../fixtures/flash-image-v2.packed");
const GOLDEN_3: &[u8] = include_bytes!("../fixtures/flash-image-v3.packed");
const GOLDEN_4: &[u8] = include_bytes!("../fixtures/flash-image-v4.packed");
/// The coding of the images of versions 2 and 4.
const GOLDEN_CODING: Coding = Coding { scrambling: Scrambling::BySector, ..Coding::PAPER };
const GOLDEN_GEOMETRY: Geometry = Geometry {
    channels: 2,
    dies_per_channel: 1,
    blocks_per_die: 2,
    pages_per_block: 4,
    page_bytes: 4096,
    oob_bytes: 28,
};

fn golden_page(id: u8) -> Vec<u8> {
    let mut out = vec![0; 4096];
    out[id as usize * 64..][..64].fill(id);
    out
}

/// Unpacks sectors compressed with the zero-line codec, concatenated.
fn unpack_image(mut packed: &[u8], path: &Path) {
    let file = OpenOptions::new().write(true).create_new(true).open(path).unwrap();
    let mut offset = 0;
    while let Some(map) = packed.first_chunk::<8>() {
        let len = 8 + u64::from_le_bytes(*map).count_ones() as usize * LINE_BYTES;
        let (sector, rest) = packed.split_at(len);
        let mut out = [0; 4096];
        unpack(sector, &mut out).unwrap();
        file.write_all_at(&out, offset).unwrap();
        (packed, offset) = (rest, offset + 4096);
    }
    file.set_len(offset).unwrap();
}

/// Never overwrite the golden image of a released version; a new version gets a file of its own.
#[test]
#[ignore = "makes the golden images of new versions of the format"]
fn make_golden_images() {
    make_golden_image("flash-image-v3.packed", None);
    make_golden_image("flash-image-v4.packed", Some(GOLDEN_CODING));
}

/// An image left by a killed process, with the NVRAM in its journal.
fn make_golden_image(name: &str, coding: Option<Coding>) {
    let home = InFile::new();
    let mut params = ImageParams { coding, ..ImageParams::new(GOLDEN_GEOMETRY) };
    (params.id, params.seed, params.endurance) = (Some(0x1234_5678), 7, 500);
    (params.label, params.nvram_bytes) = ("golden".into(), 100);
    let nand = Image::create(&home.path(), &params).unwrap();
    for (block, page, id) in [(0, 0, 1), (0, 1, 2), (1, 0, 3), (3, 0, 4)] {
        let (page, data) = (BlockAddr(block).page(page), golden_page(id));
        let (parts, seeds) = ([Source::Bytes(&data)], [u64::from(id)]);
        let mut program = [FlashOp::Program { page, parts: &parts, oob: &[id; 28], seeds: &seeds }];
        nand.submit(IoClass::Foreground, &mut program).unwrap();
    }
    erase(&nand, 3).unwrap();
    nand.inner().arm(1, vellum_media::nand::Fault::ProgramFails);
    let bad = BlockAddr(1).page(1);
    nand.program(IoClass::Foreground, bad, &[Source::Pad(4096)], &[]).unwrap_err();
    nand.nvram().unwrap().write(90, b"nv").unwrap();
    nand.sync().unwrap();
    nand.nvram().unwrap().write_apart(92, b"ram").unwrap();
    let mut packed = Vec::new();
    for sector in std::fs::read(home.path()).unwrap().chunks_exact(4096) {
        pack(sector, &mut packed);
    }
    drop(nand);
    std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name), packed).unwrap();
}

#[test]
fn the_golden_images_open() {
    check_golden_image(GOLDEN_1, None, 0);
    check_golden_image(GOLDEN_2, Some(GOLDEN_CODING), 0);
    check_golden_image(GOLDEN_3, None, 1);
    check_golden_image(GOLDEN_4, Some(GOLDEN_CODING), 1);
}

/// An image from before there were journals: opening it for writing adds one, opening it read-only does not.
#[test]
fn an_image_without_a_journal_gets_one() {
    for (packed, version) in [(GOLDEN_1, 1), (GOLDEN_2, 2)] {
        let home = InFile::new();
        unpack_image(packed, &home.path());
        let before = std::fs::read(home.path()).unwrap();
        drop(Image::open(&home.path(), true).unwrap());
        assert!(std::fs::read(home.path()).unwrap() == before);
        drop(home.open());
        let after = std::fs::read(home.path()).unwrap();
        assert_eq!(
            (after[8], after[4096 + 8], after.len() - before.len()),
            (version + 2, version + 2, 1 << 20)
        );
        // Power was lost after the file was extended, or after one header was written.
        for headers in 0..2 {
            let middle = 8192 - headers * 4096;
            let halfway = [&before[..middle], &after[middle..]].concat();
            std::fs::write(home.path(), halfway).unwrap();
            let nand = home.open();
            nand.nvram().unwrap().write_apart(90, b"later").unwrap();
            let killed = std::fs::read(home.path()).unwrap();
            drop(nand);
            std::fs::write(home.path(), killed).unwrap();
            let mut out = [0; 5];
            home.open().nvram().unwrap().read(90, &mut out).unwrap();
            assert_eq!(&out, b"later");
        }
        // Opening for repair adds one, too.
        std::fs::write(home.path(), &before[..before.len() - 5000]).unwrap();
        let (nand, found) = Image::open_to_repair(&home.path(), false).unwrap();
        assert_eq!(found.problems.len(), 1, "{found:?}");
        nand.nvram().unwrap().write(90, b"again").unwrap();
        nand.close().unwrap();
        let (nand, mut out) = (home.open(), [0; 5]);
        nand.nvram().unwrap().read(90, &mut out).unwrap();
        assert_eq!((&out, Image::inspect(&home.path()).unwrap().journal_bytes), (b"again", 1 << 20));
    }
}

fn check_golden_image(packed: &[u8], coding: Option<Coding>, power_cuts: u64) {
    let home = InFile::new();
    unpack_image(packed, &home.path());
    let info = Image::inspect(&home.path()).unwrap();
    assert_eq!(info.coding, coding);
    assert_eq!((info.id, info.label.as_str(), info.seed), (0x1234_5678, "golden", 7));
    assert_eq!((info.geometry, info.endurance, info.nvram_bytes), (GOLDEN_GEOMETRY, 500, 100));
    let nand = home.open();
    for (block, page, id) in [(0, 0, 1), (0, 1, 2), (1, 0, 3)] {
        let (data, oob) = read(&nand, BlockAddr(block).page(page)).unwrap();
        assert!(data == golden_page(id) && oob == [id; 28]);
    }
    assert!(is_erased(&nand, 3, 0) && is_erased(&nand, 0, 2));
    assert_eq!(nand.report(BlockAddr(3)).erase_count, 1);
    assert_eq!(nand.report(BlockAddr(1)).state, BlockState::Bad);
    assert!(matches!(read(&nand, BlockAddr(1).page(1)), Err(FlashError::Uncorrectable(_))));
    let c = nand.counters();
    assert_eq!(
        (c.pages_programmed, c.program_failures, c.blocks_erased, c.power_cuts),
        (5, 1, 1, power_cuts)
    );
    let mut out = [0; 5];
    nand.nvram().unwrap().read(90, &mut out).unwrap();
    assert_eq!(&out, b"nvram");
    assert_eq!(c.bits_corrected, 0);
}
