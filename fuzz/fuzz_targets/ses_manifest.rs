//! Manifests of raw dumps, and scrambler files, of anything: no panic, and what is learned is written and read again.
//!
//! The first byte says how much is put before the rest, so that not every input has to find the head by itself, and how
//! much of the rest is the file of raw bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use tempfile::TempDir;
use vellum::ses::{LearnOptions, Pieces, ScramblerFile, learn};

const MANIFEST: &str = "format = 'vellum-ses-dump'\nversion = 1\nfile = 'd.bin'\npiece_bytes = 256\n";
const ENTRY: &str = "[[pieces]]\npattern = 'zero'\nlba = ";
const SCRAMBLER: &str = "format = 'vellum-scrambler'\nversion = 1\naddress = 'lba'\npiece_bytes = 4096\n";

static DIR: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let head = match kind % 4 {
        0 => String::new(),
        1 => MANIFEST.to_string(),
        2 => format!("{MANIFEST}{ENTRY}"),
        _ => SCRAMBLER.to_string(),
    };
    let (text, raw) = rest.split_at(rest.len() / (1 + usize::from(kind / 4) % 8));
    let mut text = [head.as_bytes(), text].concat();
    if let Ok(text) = std::str::from_utf8(&text)
        && let Ok(file) = ScramblerFile::from_text(text)
    {
        assert_eq!(ScramblerFile::from_text(&file.to_text()).unwrap().to_text(), file.to_text());
    }
    text.iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = b'_'); // no files but those here
    let manifest = DIR.path().join("d.toml");
    std::fs::write(&manifest, &text).unwrap();
    std::fs::write(DIR.path().join("d.bin"), raw.repeat(16)).unwrap();
    let mut pieces = Pieces::default();
    if pieces.add(&manifest, kind % 2 == 0).is_err() {
        return;
    }
    assert!(pieces.pieces.iter().all(|piece| piece.keystream.len() == pieces.piece_bytes));
    if pieces.pieces.len() <= 64
        && let Ok(learned) = learn(&pieces, &LearnOptions::default())
    {
        let read = ScramblerFile::from_text(&learned.file.to_text()).unwrap();
        assert_eq!(read.scrambler.map(), learned.file.scrambler.map());
    }
});
