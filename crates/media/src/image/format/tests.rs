use super::super::journal;
use super::*;

const DOCUMENT: &str = include_str!("../../../../../docs/formats/flash-image.md");

/// The rows of the field table below a heading of the document, as (offset, bytes, name).
fn rows(heading: &str) -> Vec<(String, String, String)> {
    let (_, section) = DOCUMENT.split_once(&format!("\n## {heading}\n")).expect("the heading is there");
    let section = section.split("\n## ").next().unwrap_or_default();
    section
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| Offset"))
        .map(|line| {
            let cells: Vec<_> =
                line.trim_matches('|').split('|').map(|c| c.trim().replace('`', "")).collect();
            (cells[0].clone(), cells[1].clone(), cells[2].clone())
        })
        .collect()
}

fn described(fields: &[Field]) -> Vec<(String, String, String)> {
    fields.iter().map(|f| (f.offset.to_string(), f.bytes.to_string(), f.name.to_string())).collect()
}

#[test]
fn the_document_describes_the_code() {
    use header as h;
    let fields = [
        h::MAGIC,
        h::VERSION,
        h::HEADER_BYTES,
        h::ID,
        h::CHANNELS,
        h::DIES_PER_CHANNEL,
        h::BLOCKS_PER_DIE,
        h::PAGES_PER_BLOCK,
        h::PAGE_BYTES,
        h::OOB_BYTES,
        h::ENDURANCE,
        h::NVRAM_BYTES,
        h::SEED,
        h::LABEL,
        h::TABLE_OFFSET,
        h::STRIPES_OFFSET,
        h::STRIPE_BYTES,
        h::FILE_BYTES,
        h::CODEWORD_BYTES,
        h::CODE_WORDS,
        h::SCRAMBLER,
        h::SCRAMBLER_PERIOD,
        h::SPARE_BYTES,
        h::JOURNAL_BYTES,
        h::CRC,
    ];
    assert_eq!(rows("Header"), described(&fields));
    use counters as c;
    let mut fields = vec![c::MAGIC, c::SEQUENCE];
    fields.extend(c::VALUES);
    fields.extend([c::CLEAN, c::SYNCED, c::JOURNAL_START, c::JOURNAL_SAFE, c::CRC]);
    assert_eq!(rows("Counters"), described(&fields));
    use entry as e;
    assert_eq!(rows("Block table entry"), described(&[e::ERASE_COUNT, e::PAGES_WRITTEN, e::FLAGS, e::CRC]));
    let stripe = rows("Stripe");
    assert_eq!((stripe[0].1.as_str(), stripe[1].0.as_str()), ("4", "4"));
    assert_eq!((Marks::Exact.bytes(), Marks::Tolerant.bytes()), (4, 8));
    let parts: Vec<_> = rows("Parts of the file").into_iter().map(|(_, offset, _)| offset).collect();
    let fixed = [0, HEADER_COPY_OFFSET, COUNTERS_OFFSETS[0], COUNTERS_OFFSETS[1], NVRAM_OFFSET];
    // The heading row of this table is kept by `rows`: its first cell is not "Offset".
    assert_eq!(parts[1..6], fixed.map(|offset| offset.to_string()));
}

#[test]
fn the_documents_example_is_right() {
    let geometry = Geometry {
        channels: 2,
        dies_per_channel: 1,
        blocks_per_die: 4,
        pages_per_block: 8,
        page_bytes: 4096,
        oob_bytes: 60,
    };
    let document = DOCUMENT.replace('\n', " ");
    for (which, coding) in [("Example, checked by a test", None), ("The same, coded", Some(Coding::PAPER))] {
        let layout = Layout::new(&geometry, coding.as_ref(), 100, 0).unwrap();
        let (_, text) = document.split_once(which).expect("the example is there");
        for (name, value) in [
            ("table_offset", layout.table_offset),
            ("stripes_offset", layout.stripes_offset),
            ("stripe_bytes", layout.stripe_bytes),
            ("file_bytes", layout.file_bytes),
        ] {
            let words = format!("`{name}` {value}");
            assert!(text.contains(&words), "{which}: {words}");
        }
    }
    let with = Layout::new(&geometry, Some(&Coding::PAPER), 100, journal::bytes_for(100)).unwrap();
    assert!(document.contains(&format!("A journal of 1 MiB comes on top: {} bytes", with.file_bytes)));
}

#[test]
fn what_is_encoded_is_decoded() {
    let geometry = Geometry {
        channels: 3,
        dies_per_channel: 2,
        blocks_per_die: 5,
        pages_per_block: 7,
        page_bytes: 8192,
        oob_bytes: 64,
    };
    let info = ImageInfo {
        id: 0x0123_4567_89ab_cdef_0011_2233_4455_6677,
        label: "tlc-modern".into(),
        geometry,
        coding: None,
        endurance: 3000,
        nvram_bytes: 1 << 20,
        journal_bytes: 0,
        seed: 42,
    };
    let codings = [Rate::R32_33, Rate::R16_17, Rate::R8_9].map(|rate| Coding { rate, ..Coding::PAPER });
    let scramblings = [Scrambling::Off, Scrambling::BySector, Scrambling::ByPage { period: 128 }];
    let scrambled = scramblings.map(|scrambling| Coding { scrambling, ..Coding::PAPER });
    let lengths = [2048, 4096].map(|codeword_bytes| Coding { codeword_bytes, ..Coding::PAPER });
    for coding in [&codings[..], &scrambled, &lengths].concat() {
        let info = ImageInfo { coding: Some(coding), ..info.clone() };
        let layout = Layout::new(&geometry, Some(&coding), 1 << 20, 0).unwrap();
        let bytes = info.encode(&layout);
        assert_eq!(bytes[8], 2, "who knows version 1 only refuses it");
        assert_eq!(ImageInfo::decode(&bytes).unwrap(), (info, layout));
    }
    for (coding, version) in [(Some(Coding::PAPER), 4), (None, 3)] {
        let info = ImageInfo { coding, journal_bytes: 1 << 20, ..info.clone() };
        let layout = Layout::new(&geometry, coding.as_ref(), 1 << 20, 1 << 20).unwrap();
        let bytes = info.encode(&layout);
        assert_eq!(bytes[8], version);
        assert_eq!(ImageInfo::decode(&bytes).unwrap(), (info, layout));
    }
    let layout = Layout::new(&geometry, None, 1 << 20, 0).unwrap();
    let bytes = info.encode(&layout);
    assert_eq!(bytes[8], 1);
    assert_eq!(ImageInfo::decode(&bytes).unwrap(), (info, layout));
    for at in [0, 8, 40, 168, 4095] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(ImageInfo::decode(&damaged).is_err(), "a flip in byte {at} went unseen");
    }
    let counters = FlashCounters { pages_read: 1, power_cuts: 8, bits_corrected: 6, ..Default::default() };
    let slot = CountersSlot {
        sequence: 9,
        counters,
        clean: true,
        synced: 7,
        journal_start: 1 << 40,
        journal_safe: 1 << 41,
    };
    assert_eq!(CountersSlot::decode(&slot.encode()), Some(slot));

    let mut block = Block::new(true);
    block.erase_count = 77;
    block.pages_written = 5;
    let mut entry = encode_entry(&block);
    let back = decode_entry([&entry[..]].into_iter(), 7);
    assert_eq!((back.erase_count, back.pages_written, back.bad, back.factory_bad), (77, 5, true, true));
    entry[0] ^= 1;
    let damaged = decode_entry([&entry[..]].into_iter(), 7);
    assert!(damaged.bad && damaged.pages_written == 7 && !damaged.dirty);
}

#[test]
fn of_two_entries_the_whole_one_counts_or_the_one_that_has_seen_more() {
    let block = |erase_count, pages_written| Block::reopened(erase_count, pages_written, false, false);
    let decoded = |copies: [&[u8; ENTRY_BYTES]; 2]| {
        let block = decode_entry(copies.iter().map(|copy| &copy[..]), 7);
        (block.erase_count, block.pages_written, block.bad, block.dirty)
    };
    let (old, new) = (encode_entry(&block(3, 6)), encode_entry(&block(4, 1)));
    let mut damaged = new;
    damaged[0] ^= 1;
    assert_eq!(decoded([&new, &new]), (4, 1, false, false));
    assert_eq!(decoded([&old, &new]), (4, 1, false, true));
    assert_eq!(decoded([&new, &old]), (4, 1, false, true));
    assert_eq!(decoded([&damaged, &new]), (4, 1, false, true));
    assert_eq!(decoded([&new, &[0; ENTRY_BYTES]]), (4, 1, false, true));
    assert_eq!(decoded([&damaged, &damaged]), (0, 7, true, false));
}
