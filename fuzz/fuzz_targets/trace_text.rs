//! Every reader of foreign formats on any bytes; the first byte chooses one. No panic, bounded rows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Cursor;
use std::path::Path;
use vellum_trace::formats::open_reader;
use vellum_trace::models::{ContentModel, with_contents};
use vellum_trace::{Format, ReadOptions, RequestKind};

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let format = Format::ALL.get(usize::from(*choice)).copied();
    let options = ReadOptions::default();
    let Ok(source) = open_reader(Cursor::new(rest.to_vec()), Path::new("input"), format, options) else {
        return;
    };
    for request in with_contents(source, ContentModel::Unique, 1).unwrap() {
        let Ok(request) = request else { break };
        assert_eq!(request.length.0 == 0, request.kind == RequestKind::Flush);
        assert!(request.offset.0.checked_add(request.length.0).is_some());
        assert!(request.kind != RequestKind::Write || request.contents.len() as u64 == request.sectors().1);
    }
});
