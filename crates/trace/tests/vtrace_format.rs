//! docs/formats/vtrace.md says what the code does.

use vellum_base::{Kind, Lba, Nanos};
use vellum_codes::{crc32c, pattern::Pattern};
use vellum_trace::vtrace::{FORMAT_VERSION, Header, JournalRange, MAGIC, Reader, Writer};
use vellum_trace::{ByteLen, ByteOffset, Content, Request};

const DOC: &str = include_str!("../../../docs/formats/vtrace.md");

/// The `field | offset | size` rows of the n-th such table of the document.
fn table(n: usize) -> Vec<(String, usize, usize)> {
    let after = DOC.split("| field | offset | size | meaning |").nth(n + 1).expect("a table");
    after
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            (cells[1].to_string(), cells[2].parse().unwrap(), cells[3].parse().unwrap())
        })
        .collect()
}

fn field(n: usize, name: &str, bytes: &[u8]) -> u64 {
    let (_, offset, size) = table(n).into_iter().find(|row| row.0 == name).expect(name);
    let mut value = [0; 8];
    value[..size].copy_from_slice(&bytes[offset..offset + size]);
    u64::from_le_bytes(value)
}

fn header() -> Header {
    Header {
        device_bytes: ByteLen(1 << 30),
        label: "lab".into(),
        comment: "a comment".into(),
        journals: vec![JournalRange { name: "j".into(), offset: ByteOffset(8192), length: ByteLen(4096) }],
    }
}

fn file() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for i in 0..3 {
        let contents = vec![Content::Pattern(Pattern::unique(i)), Content::Zero];
        writer.write(&Request::write(Nanos(i * 10), Lba(i), contents, i == 1)).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn tables_have_no_gaps() {
    for n in 0..3 {
        let mut at = 0;
        for (name, offset, size) in table(n) {
            assert_eq!(offset, at, "{name}");
            at += size;
        }
    }
}

#[test]
fn header_fields_are_where_the_document_says() {
    let bytes = file();
    assert_eq!(bytes[..8], MAGIC);
    assert_eq!(field(0, "version", &bytes), u64::from(FORMAT_VERSION));
    let total = field(0, "header_bytes", &bytes) as usize;
    assert_eq!(field(0, "device_bytes", &bytes), 1 << 30);
    assert_eq!(field(0, "sector_bytes", &bytes), 4096);
    assert_eq!(field(0, "flags", &bytes), 0);
    assert_eq!(field(0, "label_bytes", &bytes), 3);
    assert_eq!(field(0, "comment_bytes", &bytes), 9);
    assert_eq!(field(0, "journals", &bytes), 1);
    let range = &bytes[40 + 3 + 9..];
    assert_eq!(field(1, "first_byte", range), 8192);
    assert_eq!(field(1, "length", range), 4096);
    assert_eq!(field(1, "name_bytes", range), 1);
    assert_eq!(total, 40 + 3 + 9 + 18 + 1 + 4);
    assert_eq!(crc32c(&bytes[..total - 4]).to_le_bytes(), bytes[total - 4..total]);
    assert_eq!(Reader::new(&bytes[..]).unwrap().header(), &header());
}

#[test]
fn chunk_fields_are_where_the_document_says() {
    let bytes = file();
    let chunk = &bytes[field(0, "header_bytes", &bytes) as usize..];
    assert_eq!(chunk[..4], *b"VCHK");
    let stored = field(2, "stored_bytes", chunk) as usize;
    assert_eq!(field(2, "requests", chunk), 3);
    let mut summed = chunk[..20 + stored].to_vec();
    summed[16..20].fill(0);
    assert_eq!(field(2, "crc32c", chunk), u64::from(crc32c(&summed)));
    let raw = zstd::bulk::decompress(&chunk[20..20 + stored], 1000).unwrap();
    assert_eq!(field(2, "raw_bytes", chunk), raw.len() as u64);
    // time 0, next_id 0; then: write, adjacent (to 0), contents | step 0 | length 8192 | new own head | zero
    assert_eq!(raw[..8], [0, 0, 0xA1, 0, 0x80, 0x40, 0x09, 0]);
    // FUA, same length | step 10 | offset 4096 is 4096 below the end | new own head | zero
    assert_eq!(raw[8..14], [0xC9, 20, 0xFF, 0x3F, 0x09, 0]);
    let end = &chunk[20 + stored..];
    assert_eq!((&end[..4], end.len(), field(2, "requests", end)), (&b"VEND"[..], 20, 3));
}

#[test]
fn damage_is_found() {
    let good = file();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        let error = match Reader::new(&bad[..]) {
            Err(error) => error,
            Ok(reader) => reader.collect::<Result<Vec<_>, _>>().expect_err("a flipped bit"),
        };
        assert!(matches!(error.kind(), Kind::Corrupt | Kind::Unsupported), "byte {at}: {error}");
    }
    for len in 0..good.len() {
        let cut = Reader::new(&good[..len]).and_then(|r| r.collect::<Result<Vec<_>, _>>());
        assert_eq!(cut.expect_err("a cut file").kind(), Kind::Corrupt);
    }
}

/// A file of one chunk with one row that the writer would not write.
fn file_of_row(row: &[u8]) -> Vec<u8> {
    let mut file = Writer::new(Vec::new(), &header()).unwrap().finish().unwrap();
    let end = file.split_off(file.len() - 20);
    let rows = [&[0, 0], row].concat();
    let stored = zstd::bulk::compress(&rows, 1).unwrap();
    let mut chunk = b"VCHK".to_vec();
    for field in [stored.len() as u32, rows.len() as u32, 1, 0] {
        chunk.extend(field.to_le_bytes());
    }
    chunk.extend(&stored);
    let crc = crc32c(&chunk);
    chunk[16..20].copy_from_slice(&crc.to_le_bytes());
    [file, chunk, end].concat()
}

#[test]
fn no_row_makes_who_replays_it_take_any_amount_of_memory() {
    const READ: u8 = 0;
    const WRITE: u8 = 1;
    // A tag, a time, an offset; then 4 TiB, 8 MiB + 1 and 8 MiB as numbers.
    let row = |kind, length: &[u8]| [&[kind, 0, 0], length].concat();
    let huge = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
    for bad in [row(READ, &huge), row(WRITE, &huge), row(WRITE, &[0x81, 0x80, 0x80, 0x04])] {
        let first = Reader::new(&file_of_row(&bad)[..]).unwrap().next().unwrap();
        let error = first.expect_err("a long request");
        assert!(error.kind() == Kind::Corrupt && error.to_string().contains("must split it"), "{error}");
    }
    let good = file_of_row(&row(WRITE, &[0x80, 0x80, 0x80, 0x04]));
    assert_eq!(Reader::new(&good[..]).unwrap().next().unwrap().unwrap().length.0, 8 << 20);
}

#[test]
fn an_unfinished_trace_gives_what_it_has_then_says_so() {
    let good = file();
    let items: Vec<_> = Reader::new(&good[..good.len() - 20]).unwrap().collect();
    assert_eq!(items.len(), 4);
    assert!(items[..3].iter().all(Result::is_ok));
    assert!(items[3].as_ref().unwrap_err().to_string().contains("not finished"));
}
