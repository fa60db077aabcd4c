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
        h::CRC,
    ];
    assert_eq!(rows("Header"), described(&fields));
    use counters as c;
    let mut fields = vec![c::MAGIC, c::SEQUENCE];
    fields.extend(c::VALUES);
    fields.extend([c::CLEAN, c::CRC]);
    assert_eq!(rows("Counters"), described(&fields));
    use entry as e;
    assert_eq!(rows("Block table entry"), described(&[e::ERASE_COUNT, e::PAGES_WRITTEN, e::FLAGS, e::CRC]));
    let stripe = rows("Stripe");
    assert_eq!((stripe[0].1.as_str(), stripe[1].0.as_str()), ("4", "4"));
    assert_eq!(MARK_BYTES, 4);
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
    let layout = Layout::new(&geometry, 100).unwrap();
    for (name, value) in [
        ("table_offset", layout.table_offset),
        ("stripes_offset", layout.stripes_offset),
        ("stripe_bytes", layout.stripe_bytes),
        ("file_bytes", layout.file_bytes),
    ] {
        let words = format!("`{name}` {value}");
        assert!(DOCUMENT.replace('\n', " ").contains(&words), "{words}");
    }
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
        endurance: 3000,
        nvram_bytes: 1 << 20,
        seed: 42,
    };
    let layout = Layout::new(&geometry, 1 << 20).unwrap();
    let bytes = info.encode(&layout);
    assert_eq!(ImageInfo::decode(&bytes).unwrap(), (info, layout));
    for at in [0, 8, 40, 4095] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(ImageInfo::decode(&damaged).is_err(), "a flip in byte {at} went unseen");
    }
    let counters = FlashCounters { pages_read: 1, power_cuts: 8, bits_corrected: 6, ..Default::default() };
    let slot = CountersSlot { sequence: 9, counters, clean: true };
    assert_eq!(CountersSlot::decode(&slot.encode()), Some(slot));

    let mut block = Block::new(true);
    block.erase_count = 77;
    block.pages_written = 5;
    let mut entry = encode_entry(&block);
    let back = decode_entry(&entry, 7);
    assert_eq!((back.erase_count, back.pages_written, back.bad, back.factory_bad), (77, 5, true, true));
    entry[0] ^= 1;
    let damaged = decode_entry(&entry, 7);
    assert!(damaged.bad && damaged.pages_written == 7);
}
