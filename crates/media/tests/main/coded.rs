//! Coded pages as seen from below, and what their parity reveals.

use crate::support::*;
use std::sync::Arc;
use vellum_base::{BlockAddr, Env, Flash, FlashOp, IoClass, Kind, Nanos, PageAddr, Source};
use vellum_media::coded::{Coded, Coding};
use vellum_media::nand::{Nand, NandParams};
use vellum_media::timing::{Timed, Timing};

/// Programs a page of two slots with these seeds.
fn program_seeded(device: &dyn Flash, page: PageAddr, data: &[u8], seeds: &[u64]) {
    let parts = [Source::Bytes(data)];
    let mut ops = [FlashOp::Program { page, parts: &parts, oob: &[], seeds }];
    device.submit(IoClass::Foreground, &mut ops).unwrap();
}

/// The data of a page as stored.
fn raw(device: &Device, page: PageAddr) -> Vec<u8> {
    read(device.inner(), page).unwrap().0
}

fn parity_of(device: &dyn Flash, page: PageAddr) -> Vec<u8> {
    let parity = device.parity().unwrap();
    let mut out = vec![0; 2 * parity.bytes()];
    parity.of_page(IoClass::Background, page, &mut out).unwrap();
    out
}

#[test]
fn a_spare_area_of_another_size_is_refused() {
    for oob_bytes in [0, SMALL.oob_bytes - 1, SMALL.oob_bytes + 1, 4096] {
        let below = Coding::PAPER.geometry_below(&SMALL).unwrap();
        let nand = Nand::ram(below, NandParams::default()).unwrap();
        let refused = Coded::new(nand, oob_bytes, Coding::PAPER).err().unwrap();
        assert_eq!(refused.kind(), Kind::Invalid, "{refused}");
    }
    let none = Coding { codeword_bytes: 512, ..Coding::PAPER };
    assert_eq!(none.geometry_below(&SMALL).unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn equal_sectors_have_equal_parity_wherever_they_are() {
    let sector: Vec<u8> = (0..4096).map(|i| (i * i / 7) as u8).collect();
    let two = [&sector[..], &sector].concat();
    for coding in &CODINGS[1..] {
        let device = coded_ram(NandParams::default(), *coding);
        let parity = device.parity().unwrap();
        assert_eq!(parity.code(), coding.unwrap().code().name());
        let mut of_data = vec![0; parity.bytes()];
        parity.of_data(&sector, &mut of_data);
        assert!(of_data.iter().any(|byte| *byte != 0));
        for (block, seeds) in [(0, vec![1, 2]), (1, vec![u64::MAX, 0]), (2, vec![]), (3, vec![9])] {
            let page = BlockAddr(block).page(0);
            program_seeded(&device, page, &two, &seeds);
            assert!(parity_of(&device, page) == [&of_data[..], &of_data].concat(), "{coding:?} {seeds:?}");
            let copy = [Source::Copy { page, offset: 4096, bytes: 4096 }, Source::Pad(4096)];
            device.program(IoClass::Background, BlockAddr(block).page(1), &copy, &[]).unwrap();
            let copied = parity_of(&device, BlockAddr(block).page(1));
            assert!(
                copied == [&of_data[..], &vec![0; parity.bytes()]].concat(),
                "{coding:?}: a copy, and padding"
            );
        }
        parity.of_data(&[0xFF; 4096], &mut of_data);
        assert!(parity_of(&device, BlockAddr(7).page(5)) == [&of_data[..], &of_data].concat(), "erased");
    }
    assert!(ram(NandParams::default()).parity().is_none());
}

#[test]
fn scrambled_data_depend_on_where_they_belong() {
    let data = vec![0; 8192];
    let [_, off, by_sector, by_page] = CODINGS.map(|coding| coded_ram(NandParams::default(), coding));
    for device in [&off, &by_sector, &by_page] {
        for (page, seeds) in [(0, [5, 6]), (1, [7, 5]), (2, [7, 5]), (3, [7, 5]), (4, [7, 5])] {
            program_seeded(device, BlockAddr(0).page(page), &data, &seeds);
        }
        assert!(read(device, BlockAddr(0).page(1)).unwrap().0 == data);
    }
    let slot = |device: &Device, page, slot: usize| {
        raw(device, BlockAddr(0).page(page))[slot * 4096..][..4096].to_vec()
    };
    assert!(slot(&off, 0, 0) == data[..4096]);
    assert!(slot(&by_sector, 0, 0) == slot(&by_sector, 1, 1), "of one sector, in two places");
    assert!(
        slot(&by_sector, 0, 0) != slot(&by_sector, 0, 1) && slot(&by_sector, 1, 0) != slot(&by_sector, 0, 0)
    );
    assert!(slot(&by_page, 1, 0) != slot(&by_page, 2, 0), "of one sector, in two places");
    assert!(slot(&by_page, 0, 0) == slot(&by_page, 4, 0), "keystreams repeat after four pages");
    assert!(slot(&by_page, 0, 0) != slot(&by_page, 0, 1));
    let ones: u32 = raw(&by_sector, BlockAddr(0).page(0)).iter().map(|byte| byte.count_ones()).sum();
    assert!((32_000..33_600).contains(&ones), "zeros are stored as noise: {ones} ones of 65536");
}

#[test]
fn a_copy_keeps_a_sectors_keystream_and_changes_a_pages() {
    for (coding, keeps) in [(1, true), (2, true), (3, false)] {
        let device = coded_ram(NandParams::default(), CODINGS[coding]);
        let (from, to) = (BlockAddr(0).page(0), BlockAddr(1).page(0));
        program_seeded(&device, from, &content(4), &[8, 9]);
        program_seeded(&device, to, &content(3), &[1, 2]);
        let copy = [Source::Copy { page: from, offset: 0, bytes: 8192 }];
        let to = BlockAddr(1).page(1);
        device.program(IoClass::Background, to, &copy, b"tag").unwrap();
        assert_eq!(raw(&device, from) == raw(&device, to), keeps);
        let (data, oob) = read(&device, to).unwrap();
        assert!(data == content(4) && oob.starts_with(b"tag\0"));
    }
}

#[test]
fn stored_parity_takes_a_sense_and_no_data() {
    const TIMING: Timing = Timing {
        read: Nanos::from_us(50),
        program: Nanos::from_us(500),
        erase: Nanos::from_ms(3),
        suspend: Nanos::from_us(20),
        channel_bytes_per_second: 100_000_000,
    };
    let env = ManualEnv::new();
    let device = Arc::new(coded_ram(NandParams::default(), CODINGS[2]));
    program_seeded(&*device, BlockAddr(0).page(0), &content(4), &[8, 9]);
    let timed = Timed::new(device.clone(), TIMING, env as Arc<dyn Env>);
    let (parity, plain) = (timed.parity().unwrap(), device.parity().unwrap());
    assert_eq!((parity.code(), parity.bytes()), ("2KiB-16/17", 256));
    assert_eq!(parity.scrambling(), plain.scrambling());
    let mut out = vec![0; 512];
    let done = parity.of_page(IoClass::Foreground, BlockAddr(0).page(0), &mut out).unwrap();
    assert_eq!(done.at, Nanos(50_000 + 5_120), "a sense, and 512 bytes at 100 MB/s");
    assert!(out == parity_of(&*device, BlockAddr(0).page(0)));
    let plain: Arc<dyn Flash> = Arc::new(ram(NandParams::default()));
    assert!(Timed::new(plain, TIMING, ManualEnv::new() as Arc<dyn Env>).parity().is_none());
}
