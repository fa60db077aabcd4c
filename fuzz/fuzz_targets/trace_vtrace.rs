//! The vtrace reader on any bytes: no panic, bounded memory, contents for every write, and what it accepts is written
//! and read the same.
//!
//! An input that begins with `R` is the rows of one chunk, put into a file with right checksums, because hardly
//! any other input gets past those.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vellum_trace::models::{ContentModel, with_contents};
use vellum_trace::request::REQUEST_BYTES_MAX;
use vellum_trace::source::from_iter;
use vellum_trace::vtrace::{Header, Reader, Writer};
use vellum_trace::{Request, RequestKind};

const END_BYTES: usize = 20;

/// A file of one chunk that claims `requests` requests.
fn file_of(rows: &[u8], requests: u32) -> Vec<u8> {
    let mut file = Writer::new(Vec::new(), &Header::default()).unwrap().finish().unwrap();
    file.truncate(file.len() - END_BYTES);
    let stored = zstd::bulk::compress(rows, 1).unwrap();
    let mut chunk = b"VCHK".to_vec();
    for field in [stored.len() as u32, rows.len() as u32, requests, 0] {
        chunk.extend(field.to_le_bytes());
    }
    chunk.extend(&stored);
    let crc = vellum_codes::crc32c(&chunk);
    chunk[16..20].copy_from_slice(&crc.to_le_bytes());
    file.extend(chunk);
    file
}

fn read(file: &[u8]) -> Vec<Request> {
    Reader::new(file).map_or(Vec::new(), |reader| reader.map_while(Result::ok).collect())
}

fuzz_target!(|bytes: &[u8]| {
    let requests = match bytes {
        [b'R', count, rows @ ..] => read(&file_of(rows, u32::from(*count))),
        _ => read(bytes),
    };
    let mut writer = Writer::new(Vec::new(), &Header::default()).unwrap();
    for request in &requests {
        writer.write(request).expect("what the reader gives, the writer takes");
    }
    let file = writer.finish().unwrap();
    let again = read(&file);
    assert_eq!(again.len(), requests.len());
    for (a, b) in again.iter().zip(&requests) {
        assert_eq!(
            (a.time, a.device, a.kind, a.offset, a.length, a.fua),
            (b.time, b.device, b.kind, b.offset, b.length, b.fua)
        );
        assert_eq!(a.contents.len(), b.contents.len());
    }
    for request in with_contents(from_iter(requests.into_iter()), ContentModel::Unique, 1).unwrap() {
        let request = request.unwrap();
        assert!(!request.moves_more_than(REQUEST_BYTES_MAX));
        assert!(request.kind != RequestKind::Write || request.contents.len() as u64 == request.sectors().1);
    }
});
