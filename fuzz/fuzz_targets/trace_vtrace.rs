//! The vtrace reader on any bytes: no panic, bounded memory, and what it accepts is written and read the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vellum_trace::Request;
use vellum_trace::vtrace::{Header, Reader, Writer};

fuzz_target!(|bytes: &[u8]| {
    let Ok(reader) = Reader::new(bytes) else { return };
    let requests: Vec<Request> = reader.take(100_000).map_while(Result::ok).collect();
    let Ok(mut writer) = Writer::new(Vec::new(), &Header::default()) else { return };
    for request in &requests {
        writer.write(request).expect("what the reader gives, the writer takes");
    }
    let file = writer.finish().expect("memory is never full");
    let again: Vec<Request> = Reader::new(&file[..]).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(again.len(), requests.len());
    for (a, b) in again.iter().zip(&requests) {
        assert_eq!((a.time, a.device, a.kind, a.offset, a.length, a.fua), (b.time, b.device, b.kind, b.offset, b.length, b.fua));
        assert_eq!(a.contents.len(), b.contents.len());
    }
});
