//! Power cuts: at every operation of a short history, and at every moment of a timed one.

use crate::support::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::{BlockAddr, Env, Flash, FlashError, FlashOp, IoClass, Nanos, Source};
use vellum_media::nand::{Fault, NandParams, PowerCut};
use vellum_media::timing::{Timed, Timing};

/// Programs three blocks, erases one of them, programs it again. Returns at the first error.
fn history(nand: &dyn Flash) -> Result<(), FlashError> {
    for block in 0..3 {
        for page in 0..4 {
            program(nand, block, page, page as u64)?;
        }
    }
    erase(nand, 1)?;
    for page in 0..4 {
        program(nand, 1, page, 100 + page as u64)?;
    }
    Ok(())
}

/// The possible states of block 1 after a torn erase (operation 13).
fn check_torn_erase(nand: &Device) -> &'static str {
    let report = nand.report(BlockAddr(1));
    match (report.pages_written, report.erase_count) {
        (4, 0) => {
            assert!((0..4).all(|page| holds(nand, 1, page, page as u64)));
            "as before"
        }
        (0, 1) => {
            assert!((0..8).all(|page| is_erased(nand, 1, page)));
            "erased"
        }
        (8, 0) => {
            for page in 0..8 {
                match read(nand, BlockAddr(1).page(page)) {
                    Err(FlashError::Uncorrectable(_)) => {}
                    Ok(_) => assert!(page < 4 && holds(nand, 1, page, page as u64)),
                    Err(e) => panic!("{e}"),
                }
            }
            "mixed"
        }
        other => panic!("{other:?}"),
    }
}

/// The possible states of the page at the cut.
fn check_torn_page(nand: &Device, block: u32, page: u32, id: u64) -> &'static str {
    let written = nand.report(BlockAddr(block)).pages_written;
    if written == page {
        assert!(is_erased(nand, block, page));
        return "absent";
    }
    assert_eq!(written, page + 1, "a torn page counts");
    match read(nand, BlockAddr(block).page(page)) {
        Err(FlashError::Uncorrectable(_)) => "unreadable",
        Ok((data, _)) if data == content(id) => "complete",
        Ok((data, _)) => {
            let same = data.iter().zip(content(id)).take_while(|(a, b)| **a == *b).count();
            assert!(same < data.len());
            "garbled"
        }
        Err(e) => panic!("{e}"),
    }
}

fn check_cut(nand: &Device, nth: u64) -> &'static str {
    nand.inner().power_cut_at(nth);
    assert!(matches!(history(nand), Err(FlashError::PowerLost)), "cut {nth}");
    assert!(nand.inner().is_off());
    assert!(matches!(program(nand, 3, 0, 1), Err(FlashError::PowerLost)));
    assert!(matches!(read(nand, BlockAddr(0).page(0)), Err(FlashError::PowerLost)));
    assert!(matches!(nand.sync(), Err(FlashError::PowerLost)));
    assert!(nand.nvram().is_none_or(|n| matches!(n.write(0, &[1]), Err(FlashError::PowerLost))));
    assert_eq!(nand.counters().power_cuts, 1);
    nand.inner().power_on();
    let done = nth as u32 - 1;
    for n in 0..done.min(12) {
        assert!((n / 4 == 1 && done >= 12) || holds(nand, n / 4, n % 4, (n % 4) as u64), "cut {nth}");
    }
    match done {
        0..12 => check_torn_page(nand, done / 4, done % 4, (done % 4) as u64),
        12 => check_torn_erase(nand),
        _ => {
            assert!((13..done).all(|n| holds(nand, 1, n - 13, 100 + n as u64 - 13)));
            check_torn_page(nand, 1, done - 13, 100 + done as u64 - 13)
        }
    }
}

#[test]
fn a_cut_at_any_operation_tears_that_one_and_nothing_else() {
    for coding in CODINGS {
        let mut outcomes = BTreeSet::new();
        for seed in 0..32 {
            let blank = coded_ram(NandParams { seed, nvram_bytes: 64, ..NandParams::default() }, coding);
            for nth in 1..=17 {
                outcomes.insert(check_cut(&fork(&blank), nth));
            }
            let untouched = fork(&blank);
            untouched.inner().power_cut_at(18);
            history(&untouched).unwrap();
        }
        // A code detects garbled pages.
        let garbled = coding.is_none().then_some("garbled");
        let all =
            ["absent", "as before", "complete", "erased", "mixed", "unreadable"].into_iter().chain(garbled);
        assert_eq!(outcomes, all.collect());
    }
}

#[test]
fn a_cut_image_looks_the_same_after_reopening() {
    for (nth, coding) in (1..=17).flat_map(|nth| CODINGS.map(|coding| (nth, coding))) {
        let home = InFile::coded(coding);
        let nand = home.create(SMALL);
        let outcome = check_cut(&nand, nth);
        let pages = |nand: &Device| -> Vec<_> {
            let all = (0..8u32).flat_map(|b| (0..8).map(move |p| BlockAddr(b).page(p)));
            all.map(|page| read(nand, page).ok()).collect()
        };
        let before = pages(&nand);
        nand.close().unwrap();
        let nand = home.open();
        assert!(pages(&nand) == before, "cut {nth}: {outcome}");
        assert_eq!(nand.counters().power_cuts, 1);
    }
}

#[test]
fn a_cut_in_the_nvram_leaves_a_prefix() {
    let nand = ram(NandParams { nvram_bytes: 64, ..NandParams::default() });
    nand.inner().arm(2, Fault::PowerCutInNvram);
    let nvram = nand.nvram().unwrap();
    nvram.write(0, &[1; 40]).unwrap();
    assert!(matches!(nvram.write(8, &[2; 20]), Err(FlashError::PowerLost)));
    nand.inner().power_on();
    let mut out = [0; 40];
    nvram.read(0, &mut out).unwrap();
    let prefix = out[8..28].iter().take_while(|b| **b == 2).count();
    assert!(out[8 + prefix..].iter().all(|b| *b == 1) && out[..8] == [1; 8]);
}

const TIMING: Timing = Timing {
    read: Nanos::from_us(50),
    program: Nanos::from_us(500),
    erase: Nanos::from_ms(3),
    suspend: Nanos::from_us(20),
    channel_bytes_per_second: 1_000_000_000,
};

/// Block 0 is full of old data; its data is copied to block 2, and block 0 is erased "after" that.
fn moving(env: &Arc<ManualEnv>, seed: u64) -> (Timed<Device>, Nanos) {
    let params = NandParams { seed, erases_kept: 4, ..NandParams::default() };
    let nand = coded_ram(params, CODINGS[seed as usize % CODINGS.len()]);
    for page in 0..8 {
        program(&nand, 0, page, page as u64).unwrap();
    }
    let timed = Timed::new(Arc::new(nand), TIMING, env.clone() as Arc<dyn Env>);
    let parts: Vec<_> =
        (0..8).map(|page| [Source::Copy { page: BlockAddr(0).page(page), offset: 0, bytes: 8192 }]).collect();
    let oobs: Vec<_> = (0..8u64).map(u64::to_le_bytes).collect();
    let mut ops: Vec<_> = (0..8)
        .map(|i| FlashOp::Program {
            page: BlockAddr(2).page(i as u32),
            parts: &parts[i],
            oob: &oobs[i],
            seeds: &[],
        })
        .collect();
    let moved = timed.submit(IoClass::Background, &mut ops).unwrap().at;
    let erased = timed.erase(IoClass::Background, BlockAddr(0), moved).unwrap().at;
    program(&timed, 0, 0, 77).unwrap();
    (timed, erased)
}

#[test]
fn whenever_the_power_goes_moved_data_is_old_or_new() {
    let mut states = BTreeSet::new();
    for seed in 0..12 {
        let (_, end) = moving(&ManualEnv::new(), seed);
        for step in 0..60 {
            let env = ManualEnv::new();
            let (timed, _) = moving(&env, seed);
            env.sleep_until(Nanos(end.0 * step / 50));
            timed.power_cut().unwrap();
            let nand = timed.inner();
            assert!(matches!(read(&**nand, BlockAddr(0).page(0)), Err(FlashError::PowerLost)));
            nand.inner().power_on();
            let old = (0..8).all(|page| holds(&**nand, 0, page, page as u64));
            let new = (0..8).all(|page| holds(&**nand, 2, page, page as u64));
            assert!(old || new, "seed {seed}, step {step}");
            let copied = nand.report(BlockAddr(2)).pages_written;
            assert!(!old || new || copied < 8 || nand.report(BlockAddr(0)).erase_count == 0);
            states.insert((old, new, copied.min(1)));
            // The device continues to work.
            erase(&**nand, 0).unwrap();
            program(&timed, 0, 0, 5).unwrap();
            assert!(holds(&timed, 0, 0, 5));
        }
    }
    assert!(states.len() >= 4, "old only, both, new only: {states:?}");
}

#[test]
fn what_is_finished_survives_and_what_has_not_begun_is_absent() {
    let env = ManualEnv::new();
    let timed = Timed::new(Arc::new(ram(NandParams::default())), TIMING, env.clone() as Arc<dyn Env>);
    let ends: Vec<_> = (0..6).map(|page| program(&timed, 1, page, page as u64).unwrap().at).collect();
    env.sleep_until(ends[2] + Nanos(1));
    timed.power_cut().unwrap();
    let nand = timed.inner();
    nand.inner().power_on();
    assert!((0..3).all(|page| holds(&**nand, 1, page, page as u64)));
    check_torn_page(nand, 1, 3, 3);
    assert!((4..8).all(|page| is_erased(&**nand, 1, page)));
    assert_eq!(nand.counters().pages_programmed, 4);
    for page in nand.report(BlockAddr(1)).pages_written..8 {
        program(&**nand, 1, page, 60 + page as u64).unwrap();
        assert!(holds(&**nand, 1, page, 60 + page as u64));
    }
    let in_flight: &dyn PowerCut = &**nand;
    in_flight.power_cut_now(&[]).unwrap();
    assert_eq!(nand.counters().power_cuts, 2);
}
