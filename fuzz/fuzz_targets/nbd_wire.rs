//! NBD bytes from a hostile client: parsing never panics, what parses round-trips, what is accepted is in range.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vellum_serve::nbd::wire::handshake::{ClientOption, OPTION_HEADER_BYTES, OptionHeader};
use vellum_serve::nbd::wire::transmission::{Agreed, Command, PAYLOAD_BYTES_MAX, REQUEST_BYTES, Request};

fuzz_target!(|data: &[u8]| {
    options(data);
    requests(data);
});

/// A handshake: options one after the other.
fn options(mut data: &[u8]) {
    while let Some((head, rest)) = data.split_first_chunk::<OPTION_HEADER_BYTES>() {
        // Spare the fuzzer the search for the magic number.
        let code = u32::from_be_bytes([head[8], head[9], head[10], head[11]]) % 16;
        let length = u32::from_be_bytes([0, 0, head[14], head[15]]) % 512;
        let header = OptionHeader { code, length };
        assert_eq!(OptionHeader::parse(&header.encode()), Ok(header));
        let _ = OptionHeader::parse(head);
        let (body, after) = rest.split_at((length as usize).min(rest.len()));
        if let Ok(option) = ClientOption::parse(code, body) {
            let wire = option.encode();
            let again = ClientOption::parse(code, &wire[OPTION_HEADER_BYTES..]);
            assert_eq!(again, Ok(option));
        }
        data = after;
    }
}

/// A transmission: what was agreed, then requests one after the other.
fn requests(data: &[u8]) {
    let Some((&[kind, a, b, c], mut data)) = data.split_first_chunk::<4>() else { return };
    let agreed = Agreed {
        bytes: u64::from(u32::from_be_bytes([kind, a, b, c])) * 4096,
        read_only: kind & 1 != 0,
        structured: kind & 2 != 0,
        allocation: kind & 6 == 6,
    };
    let _ = Request::parse(data);
    while data.len() >= REQUEST_BYTES {
        let (head, rest) = data.split_at(REQUEST_BYTES);
        let mut wire = head.to_vec();
        wire[..4].copy_from_slice(&0x2560_9513u32.to_be_bytes());
        let request = Request::parse(&wire).expect("the magic is right").expect("it is long enough");
        assert_eq!(request.encode()[..], wire[..]);
        accepted(&request, &agreed);
        data = &rest[request.payload_bytes().min(rest.len())..];
    }
}

fn accepted(request: &Request, agreed: &Agreed) {
    let Ok(command) = request.check(agreed) else { return };
    let in_range =
        request.offset.checked_add(u64::from(request.length)).is_some_and(|end| end <= agreed.bytes);
    match command {
        Command::Disconnect => {}
        Command::Flush => assert_eq!((request.offset, request.length), (0, 0)),
        Command::Read { .. } => assert!(in_range && request.length <= PAYLOAD_BYTES_MAX),
        Command::Write { .. } => {
            assert!(in_range && request.length <= PAYLOAD_BYTES_MAX && !agreed.read_only);
        }
        Command::Trim { .. } | Command::WriteZeroes { .. } => assert!(in_range && !agreed.read_only),
        Command::Cache => assert!(in_range),
        Command::BlockStatus { .. } => assert!(in_range && agreed.allocation),
    }
}
