//! Journal discovery on any disk. The input is a sparse disk image (see `image.rs`); good seeds are the
//! `*.disk` files in `crates/disk/tests-fixtures`.

#![no_main]

#[path = "../../crates/disk/src/discover/tests/image.rs"]
mod image;

use libfuzzer_sys::fuzz_target;
use vellum_disk::discover;

fuzz_target!(|bytes: &[u8]| {
    image::discover_checked(&mut image::Image::decode(bytes));
});
