//! Opens hostile bytes as a flash image and uses it as an engine would. Nothing may panic or take much memory.
//!
//! The first byte chooses: bytes of the fuzzer's own as the head of the file, or edits of a real image; of which
//! version; the header's checksum right or not; records of the fuzzer's own in the NVRAM's journal or not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fs::File;
use std::os::unix::fs::FileExt;
use vellum_base::{BlockAddr, Flash, IoClass, Nanos, Source};
use vellum_codes::lines::{LINE_BYTES, unpack};
use vellum_media::image::Image;
use vellum_media::nand::Wear;

const GOLDEN: [&[u8]; 4] = [
    include_bytes!("../../crates/media/tests/fixtures/flash-image-v1.packed"),
    include_bytes!("../../crates/media/tests/fixtures/flash-image-v2.packed"),
    include_bytes!("../../crates/media/tests/fixtures/flash-image-v3.packed"),
    include_bytes!("../../crates/media/tests/fixtures/flash-image-v4.packed"),
];
/// Bytes of the journals of the latter two, at their ends.
const JOURNAL_BYTES: usize = 1 << 20;
/// Longest file made; it is sparse.
const FILE_BYTES_MAX: u64 = 1 << 30;

fn golden(version: u8) -> Vec<u8> {
    let (mut image, mut packed) = (Vec::new(), GOLDEN[usize::from(version) - 1]);
    while let Some(map) = packed.first_chunk::<8>() {
        let (sector, rest) = packed.split_at(8 + u64::from_le_bytes(*map).count_ones() as usize * LINE_BYTES);
        let start = image.len();
        image.resize(start + 4096, 0);
        unpack(sector, &mut image[start..]).expect("our own fixture");
        packed = rest;
    }
    image
}

fn edit(mut image: Vec<u8>, edits: &[u8]) -> Vec<u8> {
    for edit in edits.chunks_exact(4) {
        let at = u32::from_le_bytes([edit[0], edit[1], edit[2], 0]) as usize % image.len();
        image[at] = edit[3];
    }
    image
}

fn seal(image: &mut [u8], version: u8) {
    if image.len() >= 4096 {
        image[..12].copy_from_slice(b"VLMFLASH\0\0\0\0");
        image[8] = version;
        let crc = vellum_codes::crc32c(&image[..4092]);
        image[4092..4096].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Records with the checksums and positions that they need.
fn forge_journal(image: &mut [u8], mut data: &[u8]) {
    let u64_at = |image: &[u8], at: usize| u64::from_le_bytes(image[at..at + 8].try_into().expect("eight bytes"));
    let newest = [8192, 12288].into_iter().max_by_key(|slot| u64_at(image, slot + 8)).expect("two slots");
    let (ring, mut position) = (image.len() - JOURNAL_BYTES, u64_at(image, newest + 96));
    while let Some(([length, offset, needs], rest)) = data.split_first_chunk() {
        let (bytes, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        let fields = [position, (*offset).into(), (*needs).into()].map(u64::to_le_bytes).concat();
        let record = [&(bytes.len() as u32).to_le_bytes()[..], &fields, bytes].concat();
        let at = ring + position as usize % JOURNAL_BYTES;
        if at + 4 + record.len() > image.len() {
            return;
        }
        image[at..at + 4].copy_from_slice(&vellum_codes::crc32c(&record).to_le_bytes());
        image[at + 4..at + 4 + record.len()].copy_from_slice(&record);
        (position, data) = (position + 4 + record.len() as u64, rest);
    }
}

fn file_of(image: &[u8]) -> Option<File> {
    let file = tempfile::tempfile().ok()?;
    file.write_all_at(image, 0).ok()?;
    if let Some(said) = image.get(136..144) {
        let said = u64::from_le_bytes(said.try_into().ok()?);
        if (image.len() as u64..FILE_BYTES_MAX).contains(&said) {
            file.set_len(said).ok()?;
        }
    }
    Some(file)
}

fn use_it(flash: &dyn Flash) {
    let geometry = *flash.geometry();
    let mut page = vec![0; geometry.page_bytes as usize];
    let mut oob = vec![0; geometry.oob_bytes as usize];
    for block in (0..geometry.blocks().min(16)).map(BlockAddr) {
        let written = flash.report(block).pages_written;
        for n in 0..written.min(8) {
            let _ = flash.read(IoClass::Foreground, block.page(n), 0, &mut page, &mut oob);
        }
        let parts = [Source::Pad(geometry.page_bytes)];
        let _ = flash.program(IoClass::Foreground, block.page(written), &parts, &[]);
        let _ = flash.erase(IoClass::Background, block, Nanos::ZERO);
    }
    let _ = flash.sync();
}

fuzz_target!(|data: &[u8]| {
    let Some((choice, data)) = data.split_first() else { return };
    let version = 1 + (choice >> 3 & 3);
    let mut image = if choice & 1 == 0 { edit(golden(version), data) } else { data.to_vec() };
    if choice & 0x21 == 0x20 && version > 2 {
        image = golden(version);
        forge_journal(&mut image, data);
    }
    if choice & 2 != 0 {
        seal(&mut image, version);
    }
    let Some(file) = file_of(&image) else { return };
    if let Ok(nand) = Image::open_file(file, choice & 4 != 0, Wear::default()) {
        use_it(&nand);
    }
});
