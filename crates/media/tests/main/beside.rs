//! What is read of an image beside the one who writes to it.

use crate::support::*;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::{Flash, Kind};
use vellum_media::image::{Image, ImageParams};

const PIECE_BYTES: usize = 4096;
const PIECES: usize = 128;

/// Fills the NVRAM again and again, piece by piece, with the number of the round, through several openings of the
/// image.
fn write(home: &InFile, is_done: &AtomicBool) {
    let (mut round, mut page) = (0u64, 0);
    while !is_done.load(Relaxed) {
        let nand = home.open();
        for _ in 0..200 {
            round += 1;
            for piece in 0..PIECES {
                let bytes = round.to_le_bytes().repeat(PIECE_BYTES / 8);
                nand.nvram().unwrap().write(piece * PIECE_BYTES, &bytes).unwrap();
            }
            if round.is_multiple_of(20) && page < 64 {
                program(&nand, page / 8, page % 8, 1).unwrap();
                page += 1;
            }
            if round.is_multiple_of(7) {
                nand.sync().unwrap();
            }
        }
    }
}

/// Ends the writer when it is dropped, also by a panic: whoever waits for the writer would wait forever.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The rounds of the first and the last bytes; those between were written in order.
fn rounds(nvram: &[u8]) -> [u64; 2] {
    let words: Vec<u64> = nvram.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    let ends = [words[0], words[words.len() - 1]];
    assert!(words.is_sorted_by(|a, b| a >= b) && ends[0] - ends[1] <= 1, "not of one moment: {ends:?}");
    ends
}

#[test]
fn an_nvram_is_read_as_of_one_moment_beside_its_writer() {
    let home = InFile::new();
    let params = ImageParams { nvram_bytes: PIECES * PIECE_BYTES, ..ImageParams::new(SMALL) };
    drop(Image::create(&home.path(), &params).unwrap());
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ending = Ending(&is_done);
        let writer = scope.spawn(|| write(&home, &is_done));
        let (mut last, mut changes, mut busy) = ([0; 2], 0, 0);
        while changes < 300 && busy < 1000 && !writer.is_finished() {
            let now = match Image::nvram(&home.path()) {
                Err(error) if error.kind() == Kind::Busy => {
                    busy += 1;
                    continue;
                }
                read => rounds(&read.unwrap()),
            };
            assert!(now[0] >= last[0] && now[1] >= last[1], "{now:?} after {last:?}");
            changes += u32::from(now != last);
            last = now;
        }
        assert!(changes >= 300, "{busy} times busy");
    });
}

#[test]
fn an_image_without_an_nvram_or_of_anything_else_has_none_to_read() {
    let home = InFile::new();
    drop(Image::create(&home.path(), &ImageParams::new(SMALL)).unwrap());
    assert_eq!(Image::nvram(&home.path()).unwrap(), b"");
    std::fs::write(home.path(), "a thesis").unwrap();
    assert_eq!(Image::nvram(&home.path()).unwrap_err().kind(), Kind::Invalid);
}
