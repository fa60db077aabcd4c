//! The codec: what is encoded parses back, and nothing panics.

use proptest::prelude::*;
use vellum_serve::nbd::wire::handshake::{ClientOption, OPTION_HEADER_BYTES, OptionHeader, Reply};
use vellum_serve::nbd::wire::transmission::{
    Agreed, Chunk, Command, Errno, PAYLOAD_BYTES_MAX, REQUEST_BYTES, Request, error_chunk, status_chunk,
};

fn name() -> impl Strategy<Value = String> {
    "[a-z:é/]{0,40}"
}

fn option() -> impl Strategy<Value = ClientOption> {
    prop_oneof![
        name().prop_map(ClientOption::ExportName),
        Just(ClientOption::Abort),
        Just(ClientOption::List),
        Just(ClientOption::StartTls),
        Just(ClientOption::StructuredReply),
        (name(), prop::collection::vec(any::<u16>(), 0..9), any::<bool>())
            .prop_map(|(name, wanted, go)| ClientOption::Info { name, wanted, go }),
        (name(), prop::collection::vec(name(), 0..9), any::<bool>())
            .prop_map(|(name, queries, set)| ClientOption::MetaContext { name, queries, set }),
        (11u32..).prop_map(ClientOption::Unknown),
    ]
}

prop_compose! {
    fn request()(flags in prop_oneof![0u16..40, any::<u16>()], code in 0u16..10, cookie: u64,
                 offset in prop_oneof![0u64..10_000, any::<u64>()],
                 length in prop_oneof![0u32..10_000, any::<u32>()]) -> Request {
        Request { flags, code, cookie, offset, length }
    }
}

prop_compose! {
    fn agreed()(bytes in prop_oneof![0u64..20_000, any::<u64>()], read_only: bool, structured: bool,
                allocation: bool) -> Agreed {
        Agreed { bytes, read_only, structured, allocation: allocation && structured }
    }
}

proptest! {
    #[test]
    fn options_round_trip(option in option()) {
        let wire = option.encode();
        let header = OptionHeader::parse(wire[..OPTION_HEADER_BYTES].try_into().unwrap()).unwrap();
        prop_assert_eq!(header.length as usize, wire.len() - OPTION_HEADER_BYTES);
        prop_assert_eq!(ClientOption::parse(header.code, &wire[OPTION_HEADER_BYTES..]), Ok(option));
    }

    #[test]
    fn an_option_cut_short_or_run_long_is_invalid(option in option(), cut in 1usize..40, extra in 1usize..9) {
        let wire = option.encode();
        let code = OptionHeader::parse(wire[..OPTION_HEADER_BYTES].try_into().unwrap()).unwrap().code;
        let data = &wire[OPTION_HEADER_BYTES..];
        let counted = matches!(option, ClientOption::Info { .. } | ClientOption::MetaContext { .. });
        if counted {
            let short = &data[..data.len().saturating_sub(cut)];
            prop_assert_eq!(ClientOption::parse(code, short), Err(Reply::Invalid));
            let long = [data, &vec![0; extra]].concat();
            prop_assert_eq!(ClientOption::parse(code, &long), Err(Reply::Invalid));
        }
    }

    #[test]
    fn no_bytes_make_the_parsers_panic(code in 0u32..12, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = ClientOption::parse(code, &bytes);
        let _ = Request::parse(&bytes);
    }

    #[test]
    fn requests_round_trip(request in request(), more in prop::collection::vec(any::<u8>(), 0..9)) {
        let wire = [&request.encode()[..], &more].concat();
        prop_assert_eq!(Request::parse(&wire), Ok(Some(request)));
        prop_assert_eq!(Request::parse(&wire[..REQUEST_BYTES - 1]), Ok(None));
    }

    #[test]
    fn what_is_accepted_is_within_the_export(request in request(), agreed in agreed()) {
        let Ok(command) = request.check(&agreed) else { return Ok(()) };
        let end = u128::from(request.offset) + u128::from(request.length);
        match command {
            Command::Disconnect => return Ok(()),
            Command::Flush => prop_assert_eq!(end, 0),
            _ => prop_assert!(end <= u128::from(agreed.bytes) && request.length > 0),
        }
        let changes =
            matches!(command, Command::Write { .. } | Command::Trim { .. } | Command::WriteZeroes { .. });
        prop_assert!(!(changes && agreed.read_only));
        if matches!(command, Command::Read { .. } | Command::Write { .. }) {
            prop_assert!(request.length <= PAYLOAD_BYTES_MAX);
        }
        let status = matches!(command, Command::BlockStatus { .. });
        prop_assert!(!status || agreed.allocation);
        let whole = matches!(command, Command::Read { whole: true });
        prop_assert!(!whole || agreed.structured);
    }

    #[test]
    fn chunks_say_their_own_length(message in ".{0,600}", offset: Option<u64>,
                                   extents in prop::collection::vec((1u32.., 0u32..4), 1..20)) {
        for chunk in [error_chunk(1, Errno::Io, &message, offset), status_chunk(1, 1, &extents)] {
            let length = u32::from_be_bytes(chunk[16..20].try_into().unwrap());
            prop_assert_eq!(length as usize, chunk.len() - 20);
        }
        let error = error_chunk(1, Errno::Io, &message, offset);
        let text = u16::from_be_bytes(error[24..26].try_into().unwrap()) as usize;
        prop_assert!(std::str::from_utf8(&error[26..26 + text]).is_ok_and(|t| message.starts_with(t)));
        let kind = if offset.is_some() { Chunk::ErrorOffset } else { Chunk::Error };
        prop_assert_eq!(error[6..8].to_vec(), (kind as u16).to_be_bytes().to_vec());
    }
}

#[test]
fn a_request_looks_as_the_protocol_says() {
    let request = Request { flags: 1, code: 6, cookie: 0x0102_0304_0506_0708, offset: 0x1000, length: 0x200 };
    let expected =
        [0x25, 0x60, 0x95, 0x13, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 2, 0];
    assert_eq!(request.encode(), expected);
}
