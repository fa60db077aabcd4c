use crate::support::*;
use vellum_base::{
    BlockAddr, BlockState, Flash, FlashError, FlashOp, Geometry, IoClass, Nanos, Nvram, Source,
};
use vellum_media::nand::{BitErrors, Nand, NandParams, Wear};

fn is_rule(result: Result<vellum_base::Done, FlashError>) -> bool {
    matches!(result, Err(FlashError::Rule(_)))
}

#[test]
fn a_page_is_programmed_once_and_in_order() {
    everywhere(|nand| {
        assert!(is_rule(program(nand, 1, 1, 5)), "page 0 is next");
        program(nand, 1, 0, 1).unwrap();
        assert!(is_rule(program(nand, 1, 0, 2)));
        assert!(holds(nand, 1, 0, 1), "the refused program changed nothing");
        erase(nand, 1).unwrap();
        program(nand, 1, 0, 2).unwrap();
        for page in 1..8 {
            program(nand, 1, page, page as u64).unwrap();
        }
        assert!(is_rule(program(nand, 1, 8, 5)), "a block has eight pages");
        assert_eq!(nand.report(BlockAddr(1)).pages_written, 8);
    });
}

#[test]
fn wrong_sizes_and_addresses_are_refused() {
    everywhere(|nand| {
        let at = BlockAddr(0).page(0);
        let p = |parts: &[Source<'_>], oob: &[u8]| nand.program(IoClass::Foreground, at, parts, oob);
        assert!(is_rule(p(&[Source::Pad(4096)], &[])));
        assert!(is_rule(p(&[Source::Pad(12288)], &[])));
        assert!(is_rule(p(&[Source::Pad(8192)], &[0; 33])));
        let copy = Source::Copy { page: at, offset: 4096, bytes: 8192 };
        assert!(is_rule(p(&[copy], &[])));
        let (mut data, mut oob) = ([0; 8192], [0; 31]);
        assert!(is_rule(nand.read(IoClass::Foreground, at, 1, &mut data, &mut [])));
        assert!(is_rule(nand.read(IoClass::Foreground, at, 0, &mut data, &mut oob)));
        assert!(is_rule(program(nand, 8, 0, 1)));
        assert!(is_rule(erase(nand, 8)));
        assert_eq!(nand.report(BlockAddr(8)).state, BlockState::Bad);
        assert_eq!(nand.counters().pages_programmed, 0);
    });
}

#[test]
fn a_batch_stops_at_the_first_failure() {
    everywhere(|nand| {
        let bytes = content(3);
        let parts = [Source::Bytes(&bytes)];
        let mut ops: Vec<_> = [0, 1, 2, 4, 3]
            .map(|page| FlashOp::Program {
                page: BlockAddr(2).page(page),
                parts: &parts,
                oob: &[],
                seeds: &[],
            })
            .into();
        let error = nand.submit(IoClass::Background, &mut ops).unwrap_err();
        assert_eq!(error.index, 3);
        assert!(matches!(error.error, FlashError::Rule(_)));
        assert_eq!(nand.report(BlockAddr(2)).pages_written, 3);
        for page in 0..3 {
            assert_eq!(read(nand, BlockAddr(2).page(page)).unwrap().0, content(3));
        }
    });
}

#[test]
fn a_batch_may_copy_what_it_programmed_before() {
    everywhere(|nand| {
        let bytes = content(3);
        let copy = [
            Source::Copy { page: BlockAddr(2).page(0), offset: 4096, bytes: 4096 },
            Source::Copy { page: BlockAddr(2).page(0), offset: 0, bytes: 4096 },
        ];
        let mut ops = [
            FlashOp::Program {
                page: BlockAddr(2).page(0),
                parts: &[Source::Bytes(&bytes)],
                oob: &[],
                seeds: &[],
            },
            FlashOp::Program { page: BlockAddr(2).page(1), parts: &copy, oob: b"x", seeds: &[] },
        ];
        nand.submit(IoClass::Background, &mut ops).unwrap();
        let (data, oob) = read(nand, BlockAddr(2).page(1)).unwrap();
        assert!(data[..4096] == bytes[4096..] && data[4096..] == bytes[..4096]);
        assert_eq!((oob[0], oob[1]), (b'x', 0));
        let copied = if nand.coding().is_some() { 2 } else { 1 };
        assert_eq!(
            nand.counters().pages_read,
            copied + 1,
            "the second part came from the register, or was checked"
        );
    });
}

#[test]
fn counters_count() {
    everywhere(|nand| {
        for page in 0..3 {
            program(nand, 1, page, 1).unwrap();
        }
        erase(nand, 1).unwrap();
        erase(nand, 1).unwrap();
        assert!(is_erased(nand, 1, 0));
        let c = nand.counters();
        assert_eq!((c.pages_programmed, c.blocks_erased, c.pages_read), (3, 2, 1));
        assert_eq!(nand.report(BlockAddr(1)).erase_count, 2);
    });
}

#[test]
fn factory_bad_blocks_are_a_seeded_share() {
    let geometry = Geometry { blocks_per_die: 1000, ..SMALL };
    let bad = |seed| -> Vec<u32> {
        let params = NandParams { seed, factory_bad_share: 0.02, ..NandParams::default() };
        let nand = Nand::ram(geometry, params).unwrap();
        (0..geometry.blocks()).filter(|b| nand.report(BlockAddr(*b)).state == BlockState::Bad).collect()
    };
    assert!((20..60).contains(&bad(1).len()));
    assert_eq!(bad(1), bad(1));
    assert_ne!(bad(1), bad(2));
    let params = NandParams { seed: 1, factory_bad_share: 0.02, ..NandParams::default() };
    let nand = Nand::ram(geometry, params).unwrap();
    let block = bad(1)[0];
    assert!(matches!(program(&nand, block, 0, 1), Err(FlashError::ProgramFailed(_))));
    assert!(matches!(erase(&nand, block), Err(FlashError::EraseFailed(_))));
}

#[test]
fn chance_makes_bad_blocks_grow() {
    let wear = Wear { program_failure: 0.05, erase_failure: 0.05, ..Wear::default() };
    let nand =
        Nand::ram(Geometry { blocks_per_die: 500, ..SMALL }, NandParams { wear, ..NandParams::default() })
            .unwrap();
    let (mut programs, mut erases) = (0, 0);
    for block in 0..1000 {
        for page in 0..8 {
            match program(&nand, block, page, 9) {
                Ok(_) => assert!(holds(&nand, block, page, 9)),
                Err(FlashError::ProgramFailed(at)) => {
                    assert_eq!((at.block.0, at.page), (block, page));
                    assert!(matches!(read(&nand, at), Err(FlashError::Uncorrectable(_))));
                    assert!(page == 0 || holds(&nand, block, 0, 9), "what was programmed may be read");
                    programs += 1;
                    break;
                }
                Err(e) => panic!("{e}"),
            }
        }
        if nand.report(BlockAddr(block)).state == BlockState::Good && erase(&nand, block).is_err() {
            erases += 1;
        }
    }
    assert!((240..430).contains(&programs), "1 - 0.95^8 = 34 %: {programs}");
    assert!((15..55).contains(&erases), "5 % of the others: {erases}");
    let c = nand.counters();
    assert_eq!((c.program_failures, c.erase_failures), (programs, erases));
}

#[test]
fn worn_blocks_need_correction_and_then_fail() {
    let wear = Wear { bit_errors: Some(BitErrors::default()), ..Wear::default() };
    let nand = ram(NandParams { endurance: 10, wear, ..NandParams::default() });
    let mut first_uncorrectable = None;
    let mut corrected = Vec::new();
    for cycle in 0..40 {
        program(&nand, 0, 0, cycle).unwrap();
        let mut data = vec![0; 8192];
        match nand.read(IoClass::Foreground, BlockAddr(0).page(0), 0, &mut data, &mut []) {
            Ok(done) => {
                assert_eq!(data, content(cycle), "corrected means correct");
                corrected.push(done.bits_corrected);
            }
            Err(FlashError::Uncorrectable(_)) => {
                first_uncorrectable.get_or_insert(cycle);
            }
            Err(e) => panic!("{e}"),
        }
        erase(&nand, 0).unwrap();
    }
    let first = first_uncorrectable.expect("nothing lasts four times its rating");
    assert!(first > 10, "good within the rating, yet failed at {first}");
    assert!(corrected[0] < corrected[10]);
    let c = nand.counters();
    assert!(c.reads_uncorrectable > 0 && c.bits_corrected > 0);
}

#[test]
fn nvram_keeps_bytes_within_its_bounds() {
    let check = |nvram: &dyn Nvram| {
        nvram.write(10, b"hello").unwrap();
        let mut out = [9; 7];
        nvram.read(9, &mut out).unwrap();
        assert_eq!(&out, b"\0hello\0");
        let end = nvram.bytes();
        assert!(nvram.write(end - 2, b"abc").is_err());
        assert!(nvram.read(usize::MAX, &mut out).is_err());
    };
    check(ram(NandParams { nvram_bytes: 512, ..NandParams::default() }).nvram().unwrap());
    check(InFile::new().create(SMALL).nvram().unwrap());
    assert!(ram(NandParams::default()).nvram().is_none());
}

#[test]
fn dies_work_side_by_side() {
    use std::sync::Arc;
    use vellum_base::{Env, RealEnv};
    let nand = Arc::new(ram(NandParams::default()));
    let env = RealEnv::new();
    let tasks: Vec<_> = (0..2u32)
        .map(|die| {
            let nand = nand.clone();
            env.clone().spawn(
                "writer",
                Box::new(move || {
                    for round in 0..200u64 {
                        for page in 0..8 {
                            program(&*nand, die, page, round).unwrap();
                            // Copies cross the dies both ways.
                            let from = BlockAddr(die).page(page);
                            let copy = Source::Copy { page: from, offset: 0, bytes: 8192 };
                            let to = BlockAddr(3 - die).page(page);
                            nand.program(IoClass::Background, to, &[copy], &[]).unwrap();
                        }
                        erase(&*nand, die).unwrap();
                        nand.erase(IoClass::Background, BlockAddr(3 - die), Nanos::ZERO).unwrap();
                    }
                }),
            )
        })
        .collect();
    tasks.into_iter().for_each(|task| task.join());
    assert_eq!(nand.counters().pages_programmed, 2 * 200 * 16);
}
