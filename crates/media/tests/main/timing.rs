//! The timing model, with numbers that can be checked by hand.

use crate::support::*;
use std::sync::Arc;
use vellum_base::{BlockAddr, Env, Flash, Geometry, IoClass, Nanos, Source};
use vellum_media::nand::{Fault, Nand, NandParams};
use vellum_media::timing::{Timed, Timing};

/// A page of 8 KiB and 32 bytes crosses the bus in 8224 ns.
const TIMING: Timing = Timing {
    read: Nanos::from_us(50),
    program: Nanos::from_us(500),
    erase: Nanos::from_ms(3),
    suspend: Nanos::from_us(20),
    channel_bytes_per_second: 1_000_000_000,
};
const PAGE: u64 = 8224;

/// One channel of two dies: even blocks are on die 0, odd ones on die 1.
const GEOMETRY: Geometry = Geometry { channels: 1, dies_per_channel: 2, ..SMALL };

fn device(geometry: Geometry) -> (Arc<ManualEnv>, Timed<Nand>) {
    let env = ManualEnv::new();
    let nand = Arc::new(Nand::ram(geometry, NandParams::default()).unwrap());
    let timed = Timed::new(nand, TIMING, env.clone() as Arc<dyn Env>);
    (env, timed)
}

fn read_at(flash: &dyn Flash, class: IoClass, block: u32, page: u32) -> u64 {
    let (mut data, mut oob) = (vec![0; 8192], vec![0; 32]);
    flash.read(class, BlockAddr(block).page(page), 0, &mut data, &mut oob).unwrap().at.0
}

#[test]
fn single_operations() {
    let (env, flash) = device(GEOMETRY);
    env.sleep_until(Nanos(1000));
    assert_eq!(program(&flash, 0, 0, 1).unwrap().at.0, 1000 + PAGE + 500_000);
    assert_eq!(erase(&flash, 1).unwrap().at.0, 1000 + 3_000_000);
    env.sleep_until(Nanos(10_000_000));
    assert_eq!(read_at(&flash, IoClass::Foreground, 0, 0), 10_000_000 + 50_000 + PAGE);
    let mut small = [0; 1000];
    let at = flash.read(IoClass::Foreground, BlockAddr(2).page(0), 0, &mut small, &mut []).unwrap().at.0;
    // The die senses again, after the page before; the bus is free by then.
    assert_eq!(at, 10_000_000 + 100_000 + 1000);
    let used = flash.utilisation();
    assert_eq!(used.channels, [Nanos(2 * PAGE + 1000)]);
    assert_eq!(used.dies, [Nanos(500_000 + 100_000), Nanos(3_000_000)]);
}

#[test]
fn programs_of_two_dies_share_the_bus_only() {
    let (_, flash) = device(GEOMETRY);
    assert_eq!(program(&flash, 0, 0, 1).unwrap().at.0, PAGE + 500_000);
    assert_eq!(program(&flash, 1, 0, 1).unwrap().at.0, 2 * PAGE + 500_000);
    // The second page of a die is transferred while the first is programmed.
    assert_eq!(program(&flash, 0, 1, 1).unwrap().at.0, PAGE + 1_000_000);
}

#[test]
fn reads_go_before_queued_programs_and_push_them_back() {
    let (env, flash) = device(GEOMETRY);
    let ends: Vec<_> = (0..8).map(|page| program(&flash, 0, page, 1).unwrap().at.0).collect();
    assert_eq!(ends[7], PAGE + 8 * 500_000);
    env.sleep_until(Nanos(ends[0] + 100_000));
    let now = ends[0] + 100_000;
    // Page 1 is being programmed: it is suspended. The transfers of its bytes, and page 0's, need no other wait.
    assert_eq!(read_at(&flash, IoClass::Foreground, 0, 0), now + 20_000 + 50_000 + PAGE);
    assert_eq!(read_at(&flash, IoClass::Foreground, 0, 5), now, "still in the buffer");
    // Background reads wait for their turn, after the reads that went before.
    let end = ends[7] + 70_000;
    assert_eq!(read_at(&flash, IoClass::Background, 2, 0), end + 50_000 + PAGE);
    assert!(program(&flash, 2, 0, 1).unwrap().at.0 >= end + 50_000 + 500_000);
}

#[test]
fn a_read_waits_for_no_more_than_is_left_of_the_operation() {
    let (env, flash) = device(GEOMETRY);
    let end = program(&flash, 0, 0, 1).unwrap().at.0;
    env.sleep_until(Nanos(end - 5_000));
    assert_eq!(read_at(&flash, IoClass::Metadata, 2, 0), end + 50_000 + PAGE);
}

#[test]
fn reads_are_not_held_up_by_the_bus_work_of_programs() {
    let (_, flash) = device(GEOMETRY);
    for page in 0..8 {
        program(&flash, 0, page, 1).unwrap();
    }
    assert_eq!(read_at(&flash, IoClass::Foreground, 1, 0), 50_000 + PAGE);
}

#[test]
fn reads_of_dies_on_one_channel_follow_one_another_on_the_bus() {
    let geometry = Geometry { dies_per_channel: 4, ..GEOMETRY };
    let (_, flash) = device(geometry);
    for die in 0..4 {
        let at = read_at(&flash, IoClass::Foreground, die, 0);
        assert_eq!(at, 50_000 + (die as u64 + 1) * PAGE);
    }
    // A die with a long queue does not block the bus for others.
    let last = (1..8).map(|page| read_at(&flash, IoClass::Foreground, 0, page)).max().unwrap();
    assert_eq!(last, 8 * 50_000 + PAGE);
    assert_eq!(read_at(&flash, IoClass::Foreground, 1, 1), 100_000 + 2 * PAGE);
}

#[test]
fn a_page_in_the_register_is_not_sensed_again() {
    let (env, flash) = device(GEOMETRY);
    program(&flash, 0, 0, 1).unwrap();
    env.sleep_until(Nanos(1_000_000));
    assert_eq!(read_at(&flash, IoClass::Foreground, 0, 0), 1_050_000 + PAGE);
    env.sleep_until(Nanos(2_000_000));
    assert_eq!(read_at(&flash, IoClass::Foreground, 0, 0), 2_000_000 + PAGE);
    let end = program(&flash, 0, 1, 1).unwrap().at;
    env.sleep_until(end);
    assert_eq!(read_at(&flash, IoClass::Foreground, 0, 0), end.0 + 50_000 + PAGE);
}

#[test]
fn an_erase_waits_for_its_time_and_lets_others_by() {
    let (_, flash) = device(GEOMETRY);
    let after = Nanos::from_ms(5);
    let erased = flash.erase(IoClass::Background, BlockAddr(0), after).unwrap().at.0;
    assert_eq!(erased, 8_000_000);
    let early = program(&flash, 2, 0, 1).unwrap().at.0;
    assert_eq!(early, PAGE + 500_000, "goes before the erase");
    let same = program(&flash, 0, 0, 1).unwrap().at.0;
    assert_eq!(same, 8_500_000, "the block has to be erased first");
    assert_eq!(program(&flash, 2, 1, 1).unwrap().at.0, 9_000_000);
}

#[test]
fn work_that_does_not_fit_before_a_waiting_erase_goes_behind_it() {
    let (_, flash) = device(GEOMETRY);
    flash.erase(IoClass::Background, BlockAddr(0), Nanos::from_us(600)).unwrap();
    assert_eq!(program(&flash, 2, 0, 1).unwrap().at.0, PAGE + 500_000);
    assert_eq!(program(&flash, 2, 1, 1).unwrap().at.0, 600_000 + 3_000_000 + 500_000);
}

#[test]
fn copy_back_on_a_die_does_without_the_bus() {
    let (env, flash) = device(GEOMETRY);
    program(&flash, 0, 0, 1).unwrap();
    program(&flash, 1, 0, 1).unwrap();
    env.sleep_until(Nanos(1_000_000));
    let busy = flash.utilisation().channels[0];
    let copy = |from: u32, to: u32| {
        let page = BlockAddr(from).page(0);
        let halves = [0, 4096].map(|offset| Source::Copy { page, offset, bytes: 4096 });
        flash.program(IoClass::Background, BlockAddr(to).page(0), &halves, &[]).unwrap().at.0
    };
    // One sense for both halves; only the out-of-band bytes cross the bus.
    assert_eq!(copy(0, 2), 1_000_000 + 32 + 50_000 + 500_000);
    assert_eq!(flash.utilisation().channels[0] - busy, Nanos(32));
    env.sleep_until(Nanos(5_000_000));
    // Across dies: sense, out (the halves one after the other), in, program.
    assert_eq!(copy(1, 4), 5_000_000 + 50_000 + 8192 + PAGE + 500_000);
}

#[test]
fn failures_take_time_and_refusals_do_not() {
    let (_, flash) = device(GEOMETRY);
    flash.inner().arm(1, Fault::ProgramFails);
    program(&flash, 0, 0, 1).unwrap_err();
    assert_eq!(flash.utilisation().dies[0], Nanos(500_000));
    program(&flash, 0, 5, 1).unwrap_err();
    program(&flash, 1, 5, 1).unwrap_err();
    assert_eq!(flash.utilisation().dies[1], Nanos::ZERO);
}

#[test]
fn it_wraps_a_device_of_any_kind() {
    let env = ManualEnv::new();
    let inner: Arc<dyn Flash> = Arc::new(ram(NandParams { nvram_bytes: 8, ..NandParams::default() }));
    let flash = Timed::new(inner, TIMING, env as Arc<dyn Env>);
    program(&flash, 0, 0, 1).unwrap();
    assert!(holds(&flash, 0, 0, 1));
    flash.sync().unwrap();
    assert_eq!(flash.report(BlockAddr(0)).pages_written, 1);
    assert_eq!(flash.counters().pages_programmed, 1);
    assert_eq!(flash.nvram().unwrap().bytes(), 8);
}

#[test]
fn a_protected_buffer_is_done_when_it_has_taken_the_page() {
    let env = ManualEnv::new();
    let nand = Arc::new(Nand::ram(GEOMETRY, NandParams::default()).unwrap());
    let flash = Timed::new(nand, TIMING, env.clone() as Arc<dyn Env>).with_protected_buffer(2);
    let ends: Vec<_> = (0..5).map(|page| program(&flash, 0, page, page as u64).unwrap().at.0).collect();
    // Two fit into the buffer, the third when the first is programmed.
    let programmed = |n: u64| PAGE + n * 500_000;
    assert_eq!(ends, [0, 0, programmed(1), programmed(2), programmed(3)]);
    assert_eq!(flash.programmed_at().0, programmed(5));
    assert_eq!(program(&flash, 1, 0, 9).unwrap().at.0, 0, "another die has a buffer of its own");
    env.sleep_until(Nanos(ends[2]));
    assert_eq!(program(&flash, 0, 5, 5).unwrap().at.0, programmed(4));
    flash.power_cut().unwrap();
    let nand = flash.inner();
    nand.power_on();
    // What the buffer had accepted is there, also on the other die; the rest never began.
    let written = |block| nand.report(BlockAddr(block)).pages_written;
    assert_eq!((written(0), written(1)), (3, 1));
    assert!((0..3).all(|page| holds(&**nand, 0, page, page as u64)) && holds(&**nand, 1, 0, 9));
}

#[test]
fn an_erase_before_a_protected_program_is_finished_with_it() {
    let env = ManualEnv::new();
    let nand = Arc::new(Nand::ram(GEOMETRY, NandParams::default()).unwrap());
    program(&*nand, 0, 0, 1).unwrap();
    let flash = Timed::new(nand, TIMING, env.clone() as Arc<dyn Env>).with_protected_buffer(2);
    erase(&flash, 0).unwrap();
    let at = program(&flash, 0, 0, 2).unwrap().at;
    assert_eq!(at.0, 0);
    env.sleep_until(at);
    flash.power_cut().unwrap();
    let nand = flash.inner();
    nand.power_on();
    assert!(holds(&**nand, 0, 0, 2) && nand.report(BlockAddr(0)).erase_count == 1);
}
