//! The bit error rate depends on the stored data: it is lower for noise.

use crate::support::*;
use vellum_base::{BlockAddr, Flash, IoClass, Source};
use vellum_media::nand::{BitErrors, Nand, NandParams, Wear};

fn noise(id: u64) -> Vec<u8> {
    let mut state = id + 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 56) as u8
    };
    (0..8192).map(|_| next()).collect()
}

/// Fills a block with pages. Returns their similarity, and the bits corrected when all of it is read.
fn stored(alike_factor: f64, page: impl Fn(u64) -> Vec<u8>) -> (f64, u64) {
    let errors = BitErrors { rate_fresh: 2e-4, rate_rated: 2e-4, correctable: 60, alike_factor };
    let wear = Wear { bit_errors: Some(errors), ..Wear::default() };
    let nand = Nand::ram(SMALL, NandParams { wear, ..NandParams::default() }).unwrap();
    for i in 0..8 {
        let data = page(i);
        let parts = [Source::Bytes(&data)];
        nand.program(IoClass::Foreground, BlockAddr(1).page(i as u32), &parts, &[]).unwrap();
    }
    read_all(&nand, &page);
    (nand.alikeness(BlockAddr(1)).unwrap(), nand.counters().bits_corrected)
}

fn read_all(nand: &Nand, page: &impl Fn(u64) -> Vec<u8>) {
    for i in 0..8 {
        let mut data = vec![0; 8192];
        nand.read(IoClass::Foreground, BlockAddr(1).page(i as u32), 0, &mut data, &mut []).unwrap();
        assert!(data == page(i), "corrected means correct");
    }
}

#[test]
fn bits_go_wrong_where_neighbours_are_alike() {
    let (alike, few) = stored(7.0, noise);
    assert_eq!(alike, 0.0);
    assert!((60..160).contains(&few), "108 are expected: {few}");
    for (name, page) in [
        ("one byte everywhere, along word lines and bit lines", (|_| vec![0x5A; 8192]) as fn(u64) -> Vec<u8>),
        ("another byte on each page, along word lines", |i| vec![i as u8; 8192]),
        ("the same noise on each page, along bit lines", |_| noise(9)),
    ] {
        let (alike, many) = stored(7.0, page);
        assert!(alike > 0.99, "{name}: {alike}");
        assert!(many > 5 * few, "{name}: {many} against {few}");
        assert!(stored(1.0, page).1 < 2 * few, "{name}: a model that does not look at data");
    }
    let half = |i: u64| {
        let mut page = noise(i);
        page[..4096].fill(0);
        page
    };
    let (alike, some) = stored(7.0, half);
    assert!((0.49..0.51).contains(&alike), "{alike}");
    assert!((3 * few..5 * few).contains(&some), "{some} against {few}");
}

#[test]
fn a_read_of_part_of_a_page_finds_what_is_wrong_there() {
    let errors = BitErrors { rate_fresh: 1e-3, rate_rated: 1e-3, correctable: 60, alike_factor: 3.0 };
    let wear = Wear { bit_errors: Some(errors), ..Wear::default() };
    let nand = ram(NandParams { wear, ..NandParams::default() });
    for i in 0..3 {
        let data = if i == 1 { vec![7; 8192] } else { noise(i) };
        nand.program(IoClass::Foreground, BlockAddr(0).page(i as u32), &[Source::Bytes(&data)], &[]).unwrap();
    }
    let worst = |offset: u32, bytes: usize| {
        let mut data = vec![0; bytes];
        let done = nand.read(IoClass::Foreground, BlockAddr(0).page(1), offset, &mut data, &mut []).unwrap();
        assert!(data.iter().all(|byte| *byte == 7));
        done.bits_corrected
    };
    let each = (0..8).map(|codeword| worst(codeword * 1024, 1024)).max().unwrap();
    assert_eq!(worst(0, 8192), each, "a codeword is what it is, whatever is read with it");
    assert_eq!(worst(1000, 1), worst(0, 1024));
}
