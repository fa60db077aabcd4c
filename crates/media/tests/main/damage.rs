//! Images that were tampered with or damaged: typed errors, never a panic, never much memory.

use crate::support::*;
use proptest::prelude::*;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use vellum_base::{BlockAddr, BlockState, Error, Flash, Kind};
use vellum_codes::crc32c;
use vellum_media::image::{Image, Mended};

/// An image with some pages in it, closed.
fn sample() -> InFile {
    let home = InFile::new();
    let nand = home.create(SMALL);
    for page in 0..5 {
        program(&nand, 0, page, page as u64).unwrap();
    }
    nand.close().unwrap();
    home
}

fn change(home: &InFile, offset: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(home.path()).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

fn error(home: &InFile) -> Error {
    Image::open(&home.path(), false).err().expect("this image must not open")
}

/// Changes a header field in both copies and recomputes the checksums.
fn forge(home: &InFile, offset: usize, value: &[u8]) {
    let mut header = std::fs::read(home.path()).unwrap()[..4096].to_vec();
    header[offset..offset + value.len()].copy_from_slice(value);
    let crc = crc32c(&header[..4092]);
    header[4092..].copy_from_slice(&crc.to_le_bytes());
    change(home, 0, &header);
    change(home, 4096, &header);
}

#[test]
fn errors_say_what_to_do() {
    let home = sample();
    change(&home, 0, b"not ours");
    home.open().close().unwrap();
    change(&home, 4096, b"not ours");
    let e = error(&home);
    assert_eq!(e.kind(), Kind::Corrupt);
    assert!(e.to_string().contains("both headers of the image are gone"), "{e}");
    change(&home, 8192, &[0; 8192]); // the counters, by which it was recognised as an image
    let e = error(&home);
    assert_eq!(e.kind(), Kind::Invalid);
    assert!(e.to_string().contains("not a flash image"), "{e}");

    let home = sample();
    forge(&home, 8, &5u32.to_le_bytes());
    let e = error(&home);
    assert_eq!(e.kind(), Kind::Unsupported);
    assert!(e.to_string().contains("version 5"), "{e}");
    forge(&home, 8, &2u32.to_le_bytes());
    let e = error(&home);
    assert_eq!(e.kind(), Kind::Corrupt, "a coded image that names no code");

    let home = sample();
    change(&home, 100, &[1]);
    change(&home, 4096 + 100, &[1]);
    let e = error(&home);
    assert_eq!(e.kind(), Kind::Corrupt);
    assert!(e.to_string().contains("neither header"), "{e}");

    let home = sample();
    let len = std::fs::metadata(home.path()).unwrap().len();
    OpenOptions::new().write(true).open(home.path()).unwrap().set_len(len - 1).unwrap();
    let e = error(&home);
    assert_eq!(e.kind(), Kind::Corrupt);
    assert!(e.to_string().contains("cut"), "{e}");

    OpenOptions::new().write(true).open(home.path()).unwrap().set_len(1000).unwrap();
    let e = error(&home);
    assert!(e.kind() == Kind::Corrupt && e.to_string().contains("ends within"), "{e}");

    let home = sample();
    change(&home, 8192 + 20, &[77]);
    change(&home, 12288 + 20, &[77]);
    assert!(error(&home).to_string().contains("counter"));
}

#[test]
fn one_damaged_counters_slot_is_survived() {
    for slot in [8192, 12288] {
        let home = sample();
        change(&home, slot + 20, &[77, 77]);
        // A power cut could have torn it, and nothing depends on it.
        let found = Image::problems(&home.path()).unwrap();
        assert_eq!(found, Mended::default());
        let (nand, same) = Image::open_to_repair(&home.path(), false).unwrap();
        assert_eq!(same, found);
        assert!((0..5).all(|page| holds(&nand, 0, page, page as u64)));
        nand.close().unwrap();
        let bytes = std::fs::read(home.path()).unwrap();
        assert_eq!(bytes[slot as usize..][..8], *b"VLMCOUNT");
        assert_ne!(bytes[slot as usize + 20..][..2], [77, 77], "an opening that writes puts it right");
    }
}

/// An image with an NVRAM that was not closed: `first` and then `second` were written to it, each followed by a sync.
fn killed_with_a_journal(pages: bool) -> (InFile, u64) {
    let home = InFile::new();
    let nand = home.create(SMALL);
    nand.nvram().unwrap().write(0, b"first").unwrap();
    nand.sync().unwrap();
    if pages {
        program(&nand, 0, 0, 0).unwrap();
    }
    nand.nvram().unwrap().write(20, b"second").unwrap();
    nand.sync().unwrap();
    let killed = std::fs::read(home.path()).unwrap();
    drop(nand);
    std::fs::write(home.path(), &killed).unwrap();
    let journal = killed.len() as u64 - Image::inspect(&home.path()).unwrap().journal_bytes;
    (home, journal)
}

fn nvram_of(nand: &impl Flash) -> Vec<u8> {
    let mut out = vec![0; 26];
    nand.nvram().unwrap().read(0, &mut out).unwrap();
    out
}

/// Damage to a durable record that has not been placed yet is not mistaken for a torn end.
#[test]
fn damage_to_the_journal_of_an_image_that_was_not_closed_is_told() {
    for pages in [false, true] {
        let (home, journal) = killed_with_a_journal(pages);
        let both = [&b"first"[..], &[0; 15], b"second"].concat();
        assert_eq!(nvram_of(&Image::open(&home.path(), true).unwrap()), both);

        // Each record has a head of 32 bytes.
        change(&home, journal + 32, b"F");
        for read_only in [true, false] {
            let e = Image::open(&home.path(), read_only).err().unwrap();
            assert!(e.kind() == Kind::Corrupt && e.to_string().contains("journal"), "{e}");
        }
        let (nand, found) = Image::open_to_repair(&home.path(), true).unwrap();
        assert!(found.problems[0].contains("all after them, are lost") && found.nvram_doubtful, "{found:?}");
        assert_eq!(nvram_of(&nand), [0; 26]);
        drop(nand);
        let (nand, same) = Image::open_to_repair(&home.path(), false).unwrap();
        assert_eq!(same, found);
        drop(nand);
        assert_eq!(nvram_of(&Image::open(&home.path(), false).unwrap()), [0; 26]);
    }
}

/// The older slot counts fewer syncs than were done.
#[test]
fn damage_to_the_newest_counters_is_doubtful_if_the_journal_goes_on() {
    let (home, _) = killed_with_a_journal(true);
    let whole = std::fs::read(home.path()).unwrap();
    let sequence = |slot: usize| u64::from_le_bytes(whole[slot + 8..slot + 16].try_into().unwrap());
    let newest = if sequence(8192) > sequence(12288) { 8192 } else { 12288 };
    for (slot, doubtful) in [(newest, true), (8192 + 12288 - newest, false)] {
        std::fs::write(home.path(), &whole).unwrap();
        change(&home, slot as u64 + 20, &[77, 77]);
        let (nand, found) = Image::open_to_repair(&home.path(), true).unwrap();
        // The older one could have been torn by a power cut, as nothing follows what the newer counts.
        assert_eq!((found.problems.len(), found.nvram_doubtful), (doubtful.into(), doubtful), "{found:?}");
        assert_eq!(nvram_of(&nand)[20..] == *b"second", !doubtful);
    }
}

/// The second sync is known to have completed if it included pages; otherwise the next one would tell.
#[test]
fn damage_to_what_was_synced_last_is_told_if_pages_were_synced_with_it() {
    let (home, journal) = killed_with_a_journal(true);
    change(&home, journal + 32 + 5 + 32, b"S");
    assert_eq!(error(&home).kind(), Kind::Corrupt);
    let (home, journal) = killed_with_a_journal(false);
    change(&home, journal + 32 + 5 + 32, b"S");
    assert_eq!(nvram_of(&home.open()), [&b"first"[..], &[0; 21]].concat());
}

/// In an image that was closed all of the NVRAM is in its place.
#[test]
fn a_cut_is_doubtful_for_the_nvram_of_an_image_that_was_not_closed() {
    for (home, closed) in [(killed_with_a_journal(false).0, false), (sample(), true)] {
        let bytes = std::fs::metadata(home.path()).unwrap().len();
        OpenOptions::new().write(true).open(home.path()).unwrap().set_len(bytes - 5000).unwrap();
        let found = Image::problems(&home.path()).unwrap();
        assert!(found.problems[0].contains("the last 5000 bytes are gone"), "{found:?}");
        assert_eq!((found.nvram_doubtful, found.problems.len()), (!closed, 2 - closed as usize), "{found:?}");
    }
}

#[test]
fn a_forged_header_allocates_nothing() {
    for (offset, value) in [
        (32, u32::MAX),  // channels
        (36, 0),         // dies
        (40, 1 << 24),   // blocks
        (44, 1 << 16),   // pages
        (48, 4097),      // page size
        (52, 16 * 1024), // out-of-band bytes
        (64, 255 << 20), // NVRAM
        (112, 1),        // table offset
        (136, 5),        // file length
    ] {
        let home = sample();
        forge(&home, offset, &value.to_le_bytes());
        assert_eq!(error(&home).kind(), Kind::Corrupt, "field at {offset}");
    }
}

#[test]
fn a_damaged_table_entry_costs_its_block_only() {
    let home = sample();
    let table = 4096 * 4 + 4096;
    change(&home, table, &[9]);
    let nand = home.open();
    assert_eq!(nand.report(BlockAddr(0)).state, BlockState::Bad);
    assert!((0..5).all(|page| holds(&nand, 0, page, page as u64)), "its pages can be rescued");
    assert!(read(&nand, BlockAddr(0).page(5)).is_err());
    program(&nand, 1, 0, 1).unwrap();
}

/// Uses an image that could be opened as an engine would; errors are fine.
fn use_it(nand: &dyn Flash) {
    for block in 0..8 {
        let written = nand.report(BlockAddr(block)).pages_written;
        for page in 0..8 {
            let _ = read(nand, BlockAddr(block).page(page));
        }
        if written < 8 {
            let _ = program(nand, block, written, 3);
        } else {
            let _ = erase(nand, block);
        }
    }
    let _ = nand.sync();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn flips_and_cuts_never_panic(
        flips in prop::collection::vec((prop_oneof![0u64..24576, 0u64..90_000], any::<u8>()), 0..20),
        reseal in any::<bool>(),
        cut in prop::option::weighted(0.2, 0u64..400_000),
    ) {
        let home = sample();
        for (offset, value) in flips {
            change(&home, offset, &[value]);
        }
        if reseal {
            forge(&home, 200, &[0]);
        }
        if let Some(cut) = cut {
            OpenOptions::new().write(true).open(home.path()).unwrap().set_len(cut).unwrap();
        }
        if let Ok(nand) = Image::open(&home.path(), false) {
            use_it(&nand);
        }
    }
}
