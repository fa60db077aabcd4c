//! Lines of records as `vellum kv load` and `batch` read them, made of anything: no panic; and what is read is read the
//! same when it is written.
#![no_main]

#[path = "../../crates/vellum/src/harmless.rs"]
#[expect(dead_code, reason = "what commands need besides")]
mod harmless;
#[path = "../../crates/vellum/src/commands/kv/lines.rs"]
#[expect(dead_code, reason = "what commands need besides")]
mod lines;
#[path = "../../crates/vellum/src/commands/kv/notation.rs"]
#[expect(dead_code, reason = "what commands need besides")]
mod notation;

use lines::{Form, Line, next_line};
use notation::Notation;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (mut input, mut line) = (bytes, Vec::new());
    while let Ok(Some(line)) = next_line(&mut input, &mut line) {
        for form in [Form::Tsv, Form::Json] {
            for notation in [Notation::Text, Notation::Hex] {
                let _ = form.read_step(line, notation);
                let Ok(Line::Put(key, value)) = form.read(line, notation) else { continue };
                let mut text = String::new();
                form.write(&key, Some(&value), notation, &mut text);
                let again = form.read(text.trim_end_matches('\n').as_bytes(), notation);
                assert_eq!(again.expect("what was written"), Line::Put(key, value), "{text:?}");
            }
        }
    }
});
