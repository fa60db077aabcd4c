//! What is written is read, up to the names of the patterns.

use proptest::prelude::*;
use std::collections::BTreeMap;
use vellum_base::{Nanos, Result};
use vellum_codes::pattern::Pattern;
use vellum_trace::request::REQUEST_BYTES_MAX;
use vellum_trace::vtrace::{Header, Reader, Writer};
use vellum_trace::{ByteLen, ByteOffset, Content, DeviceId, Request, RequestKind};

fn write(requests: &[Request]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &Header::default()).unwrap();
    for request in requests {
        writer.write(request).unwrap();
    }
    assert_eq!(writer.requests(), requests.len() as u64);
    writer.finish().unwrap()
}

fn read(file: &[u8]) -> Vec<Request> {
    Reader::new(file).unwrap().collect::<Result<_>>().unwrap()
}

/// The oracle: patterns renamed by order of appearance, so that two traces with the same structure are equal.
fn structure(requests: &[Request]) -> Vec<Request> {
    let (mut fulls, mut heads) = (BTreeMap::new(), BTreeMap::new());
    let mut rename = |content: &Content| match content {
        Content::Pattern(p) if p.lines == 0 => Content::Zero,
        Content::Pattern(p) => {
            let next = fulls.len() as u64 + 1;
            let full = *fulls.entry((p.full, p.head, p.lines)).or_insert(next);
            let next = heads.len() as u64 + 1;
            let head = if p.head == 0 { 0 } else { *heads.entry(p.head).or_insert(next) };
            Content::Pattern(Pattern { full, head, lines: p.lines })
        }
        other => other.clone(),
    };
    requests
        .iter()
        .map(|r| Request { contents: r.contents.iter().map(&mut rename).collect(), ..r.clone() })
        .collect()
}

fn content() -> impl Strategy<Value = Content> {
    prop_oneof![
        Just(Content::Zero),
        (1u64..6, 0u64..4, any::<bool>(), any::<u64>()).prop_map(|(full, head, all, lines)| {
            Content::Pattern(Pattern::new(full, head, if all { !0 } else { lines }))
        }),
        (any::<u8>(), 0usize..4096).prop_map(|(byte, at)| {
            let mut sector = vec![0; 4096];
            sector[at] = byte;
            Content::verbatim(&sector)
        }),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let kinds = prop_oneof![
        (any::<bool>(), 0u64..1 << 40, prop::collection::vec(content(), 0..6), 0u64..4096, 0u64..8192)
            .prop_map(|(aligned, offset, contents, skew, free)| {
                let mut request =
                    Request::new(Nanos::ZERO, RequestKind::Write, ByteOffset(offset), ByteLen(1));
                let sectors = contents.len() as u64;
                match (sectors, aligned) {
                    (0, _) => request.length = ByteLen(free + 1),
                    (_, true) => {
                        request.offset = ByteOffset(offset & !4095);
                        request.length = ByteLen::of_sectors(sectors);
                    }
                    (_, false) => {
                        request.offset = ByteOffset((offset & !4095) + skew);
                        request.length = ByteLen(sectors * 4096 - skew);
                    }
                }
                request.contents = contents;
                request
            }),
        (0usize..4, any::<u64>(), 1u64..1 << 45).prop_map(|(kind, offset, length)| {
            let kind = RequestKind::ALL[kind];
            let clears = matches!(kind, RequestKind::Trim | RequestKind::WriteZeroes);
            let length = if clears { length } else { 1 + length % REQUEST_BYTES_MAX.0 };
            Request::new(Nanos::ZERO, kind, ByteOffset(offset >> 1), ByteLen(length))
        }),
        Just(Request::flush(Nanos::ZERO)),
    ];
    (kinds, any::<bool>(), 0u32..3, prop_oneof![0u64..1_000_000, any::<u64>()]).prop_map(
        |(request, fua, device, time)| Request {
            fua,
            device: DeviceId(device),
            time: Nanos(time),
            ..request
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_requests_round_trip(requests in prop::collection::vec(request(), 0..60)) {
        let file = write(&requests);
        let back = read(&file);
        prop_assert_eq!(structure(&back), structure(&requests));
        prop_assert!(write(&back) == file, "what was read is written the same");
    }

    #[test]
    fn hostile_rows_do_not_panic(rows in prop::collection::vec(any::<u8>(), 0..400), requests in 0u32..50) {
        let good = write(&[]);
        let mut file = good[..good.len() - 20].to_vec();
        let stored = zstd::bulk::compress(&rows, 1).unwrap();
        let mut chunk = b"VCHK".to_vec();
        for field in [stored.len() as u32, rows.len() as u32, requests, 0] {
            chunk.extend(field.to_le_bytes());
        }
        chunk.extend(&stored);
        let crc = vellum_codes::crc32c(&chunk);
        chunk[16..20].copy_from_slice(&crc.to_le_bytes());
        file.extend(chunk);
        for item in Reader::new(&file[..]).unwrap().flatten() {
            let mut bytes = Vec::new();
            vellum_trace::content::fill_all(&item.contents, &mut bytes);
        }
    }
}

#[test]
fn many_chunks_and_repeated_contents_are_small() {
    // A journal copy, then the same 4 KiB at home, 20,000 times; 40,000 sectors.
    let mut requests = Vec::new();
    for i in 0..20_000u64 {
        let content = |id| vec![Content::Pattern(Pattern::unique(id))];
        let time = Nanos(i * 12_345);
        requests.push(Request::write(time, vellum_base::Lba(i % 4096), content(i), false));
        if i >= 1000 {
            let home = vellum_base::Lba(10_000 + i * 7919 % 50_000);
            requests.push(Request::write(time, home, content(i - 1000), false));
        }
    }
    let file = write(&requests);
    assert_eq!(structure(&read(&file)), structure(&requests));
    assert!(file.len() < 250_000, "{} bytes for {} requests", file.len(), requests.len());
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let mut writer = Writer::new(Vec::new(), &Header::default()).unwrap();
    let read =
        |offset, length| Request::new(Nanos::ZERO, RequestKind::Read, ByteOffset(offset), ByteLen(length));
    let contents = vec![Content::Zero; 2049];
    let bad = [
        read(0, 0),
        read(u64::MAX, 2),
        read(0, REQUEST_BYTES_MAX.0 + 1),
        Request { kind: RequestKind::Write, ..read(0, 1 << 40) },
        Request { contents: vec![Content::Zero], ..read(0, 4096) },
        Request { length: ByteLen(1), ..Request::flush(Nanos::ZERO) },
        Request::write(Nanos::ZERO, vellum_base::Lba(0), contents, false),
        Request {
            length: ByteLen(9000),
            ..Request::write(Nanos::ZERO, vellum_base::Lba(0), vec![Content::Zero], false)
        },
    ];
    for request in bad {
        assert_eq!(writer.write(&request).unwrap_err().kind(), vellum_base::Kind::Invalid);
    }
    let file = writer.finish().unwrap();
    assert_eq!(self::read(&file), []);
}
