//! Pages of hostile bytes, data and spare area, read through the code above them. What is read is what the code would
//! have stored, or the read fails; nothing panics.
//!
//! The first two bytes choose the coding and how the page comes about: bytes of the fuzzer's own, or edits of a page
//! that was programmed. Then come four bytes an edit: where, and what.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vellum_base::{BlockAddr, Flash, FlashError, FlashOp, Geometry, IoClass, Scrambling, Source};
use vellum_media::coded::{Coded, Coding, Rate};
use vellum_media::nand::{Nand, NandParams};

const GEOMETRY: Geometry = Geometry {
    channels: 1,
    dies_per_channel: 1,
    blocks_per_die: 1,
    pages_per_block: 4,
    page_bytes: 8192,
    oob_bytes: 64,
};

fn coding(choice: u8) -> Coding {
    Coding {
        codeword_bytes: [1024, 2048, 4096][usize::from(choice % 3)],
        rate: [Rate::R32_33, Rate::R16_17, Rate::R8_9][usize::from(choice / 3 % 3)],
        scrambling: [Scrambling::Off, Scrambling::BySector, Scrambling::ByPage { period: 3 }]
            [usize::from(choice / 9 % 3)],
    }
}

fn device(coding: Coding) -> Coded<Nand> {
    let below = coding.geometry_below(&GEOMETRY).expect("it fits");
    let nand = Nand::ram(below, NandParams::default()).expect("a good shape");
    Coded::new(nand, GEOMETRY.oob_bytes, coding).expect("made for it")
}

/// The page as it is stored.
fn stored(device: &Coded<Nand>, page: u32) -> (Vec<u8>, Vec<u8>) {
    let (mut data, mut spare) = (vec![0; 8192], vec![0; device.inner().geometry().oob_bytes as usize]);
    device.inner().read(IoClass::Foreground, BlockAddr(0).page(page), 0, &mut data, &mut spare).expect("programmed");
    (data, spare)
}

fuzz_target!(|input: &[u8]| {
    let [choice, how, edits @ ..] = input else { return };
    let device = device(coding(*choice));
    let good: Vec<u8> = (0..8192u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let parts = [Source::Bytes(&good)];
    let (page, oob) = (BlockAddr(0).page(0), [*how; 64]);
    let mut program = [FlashOp::Program { page, parts: &parts, oob: &oob, seeds: &[5, 77] }];
    device.submit(IoClass::Foreground, &mut program).expect("the first page");
    let (mut data, mut spare) = stored(&device, 0);
    if how & 1 == 0 {
        let fill = edits.iter().copied().cycle();
        data.iter_mut().chain(&mut spare).zip(fill).for_each(|(to, from)| *to = from);
    }
    for edit in edits.chunks_exact(4) {
        let at = u32::from_le_bytes([edit[0], edit[1], edit[2], 0]) as usize % (data.len() + spare.len());
        let byte = if at < 8192 { &mut data[at] } else { &mut spare[at - 8192] };
        *byte ^= edit[3];
    }
    let hostile = BlockAddr(0).page(1);
    device.inner().program(IoClass::Foreground, hostile, &[Source::Bytes(&data)], &spare).expect("the next page");
    let (mut found, mut found_oob) = (vec![0; 8192], [0; 64]);
    match device.read(IoClass::Foreground, hostile, 0, &mut found, &mut found_oob) {
        Ok(done) if how & 1 == 1 && done.bits_corrected > 0 => {
            assert!(found == good && found_oob == oob, "corrected to what was never written");
        }
        Ok(_) | Err(FlashError::Uncorrectable(_)) => {}
        Err(e) => panic!("{e}"),
    }
    let mut part = [0; 100];
    let _ = device.read(IoClass::Foreground, hostile, 4000, &mut part, &mut []);
    let parity = device.parity().expect("it is coded");
    let _ = parity.of_page(IoClass::Background, hostile, &mut vec![0; 2 * parity.bytes()]);
    let copy = [Source::Copy { page: hostile, offset: 4096, bytes: 4096 }, Source::Pad(4096)];
    let _ = device.program(IoClass::Background, BlockAddr(0).page(2), &copy, &[]);
});
