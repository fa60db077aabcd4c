//! Byte access: equal to an array of bytes, and no concurrent write of part of a sector is lost.

use crate::rig::{Rigged, noise, start};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use vellum_base::{Allocation, Kind};
use vellum_serve::ByteDevice;

const BYTES: u64 = 3 << 20; // several lock stripes

#[derive(Clone, Debug)]
enum Step {
    Read(u64, u64),
    Write(u64, u64, u64),
    Trim(u64, u64),
    Zero(u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let offset = prop_oneof![0..BYTES, (0..BYTES / 4096).prop_map(|s| s * 4096), Just(BYTES - 4097)];
    let length = prop_oneof![0u64..64, 0u64..10_000, (0u64..5).prop_map(|s| s * 4096), 0u64..BYTES];
    (offset, length, any::<u64>(), 0..4).prop_map(|(o, l, seed, which)| {
        let l = l.min(BYTES - o);
        match which {
            0 => Step::Read(o, l),
            1 => Step::Write(o, l, seed),
            2 => Step::Trim(o, l),
            _ => Step::Zero(o, l),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn it_is_an_array_of_bytes(steps in prop::collection::vec(step(), 1..40)) {
        let device = ByteDevice::new(Arc::new(Rigged::new(BYTES)));
        let mut oracle = vec![0u8; BYTES as usize];
        for step in steps {
            match step {
                Step::Read(o, l) => {
                    let mut seen = vec![0xaa; l as usize];
                    device.read(o, &mut seen).unwrap();
                    prop_assert!(seen == oracle[o as usize..][..l as usize], "read {o} + {l}");
                }
                Step::Write(o, l, seed) => {
                    let data = noise(seed, l as usize);
                    device.write(o, &data, seed % 2 == 0).unwrap();
                    oracle[o as usize..][..l as usize].copy_from_slice(&data);
                }
                Step::Trim(o, l) => {
                    device.trim(o, l).unwrap();
                    oracle[o as usize..][..l as usize].fill(0);
                }
                Step::Zero(o, l) => {
                    device.write_zeroes(o, l, false).unwrap();
                    oracle[o as usize..][..l as usize].fill(0);
                }
            }
        }
        let mut all = vec![0xaa; BYTES as usize];
        device.read(0, &mut all).unwrap();
        prop_assert!(all == oracle);
    }
}

/// Four writers own interleaved bytes of the same few sectors. Without the locks, bytes of one go missing when
/// another writes back the sector it read before.
#[test]
fn concurrent_partial_writes_of_a_sector_do_not_lose_each_other() {
    let rigged = Rigged { dawdles: true, ..Rigged::new(BYTES) };
    let device = Arc::new(ByteDevice::new(Arc::new(rigged)));
    let writers: Vec<_> = (0..4u64)
        .map(|who| {
            let device = device.clone();
            start(move || {
                for round in 0..100u64 {
                    for piece in 0..32 {
                        let offset = 100 + piece * 400 + who * 100;
                        device.write(offset, &[(who * 50 + round % 50) as u8; 100], false).unwrap();
                        let mut seen = [0; 100];
                        device.read(offset, &mut seen).unwrap();
                        assert_eq!(seen, [(who * 50 + round % 50) as u8; 100], "a write was lost");
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
}

/// One writer rewrites whole sectors, another the front of each: the rest of the sector is the first one's alone.
#[test]
fn a_partial_write_does_not_undo_a_whole_one() {
    let rigged = Rigged { dawdles: true, ..Rigged::new(BYTES) };
    let device = Arc::new(ByteDevice::new(Arc::new(rigged)));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (other, told) = (device.clone(), stop.clone());
    let partial = start(move || {
        while !told.load(SeqCst) {
            other.write(8192, &[0xff; 100], false).unwrap();
        }
    });
    for round in 0..5_000u32 {
        device.write(8192, &[round as u8; 4096], false).unwrap();
        let mut rest = [0; 3000];
        device.read(8192 + 1000, &mut rest).unwrap();
        assert_eq!(rest, [round as u8; 3000], "a whole write was undone in round {round}");
    }
    stop.store(true, SeqCst);
    partial.join().unwrap();
}

#[test]
fn whole_sectors_cost_no_reads_and_zeroing_writes_none() {
    let rigged = Arc::new(Rigged::new(BYTES));
    let device = ByteDevice::new(rigged.clone());
    device.write(0, &[1; 8192], true).unwrap();
    assert_eq!(rigged.fua_writes.load(SeqCst), 1);
    device.trim(4095, 4098).unwrap(); // one byte, a sector, one byte
    assert_eq!(rigged.trimmed_sectors.load(SeqCst), 1);
    device.write_zeroes(0, 1 << 20, true).unwrap();
    assert_eq!(rigged.zeroed_sectors.load(SeqCst), 256);
    assert_eq!(rigged.fua_writes.load(SeqCst), 1);
}

#[test]
fn allocation_is_cut_to_the_range_asked_for() {
    let device = ByteDevice::new(Arc::new(Rigged::new(BYTES)));
    device.write(4096, &[1; 8192], false).unwrap();
    assert_eq!(device.allocation(100, 5000).unwrap(), (Allocation::Hole, 3996));
    assert_eq!(device.allocation(4100, 100).unwrap(), (Allocation::Data, 100));
    assert_eq!(device.allocation(4100, 100_000).unwrap(), (Allocation::Data, 8188));
    assert_eq!(device.allocation(12288, BYTES - 12288).unwrap(), (Allocation::Hole, BYTES - 12288));
    assert_eq!(device.allocation(0, 0).unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn ranges_outside_are_refused_without_overflow() {
    let device = ByteDevice::new(Arc::new(Rigged::new(BYTES)));
    for (offset, length) in [(BYTES, 1), (BYTES - 1, 2), (u64::MAX, 1), (u64::MAX - 1, 1), (0, u64::MAX)] {
        assert_eq!(device.trim(offset, length).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(device.allocation(offset, length).unwrap_err().kind(), Kind::Invalid);
    }
    assert_eq!(device.read(BYTES - 1, &mut [0; 2]).unwrap_err().kind(), Kind::Invalid);
    device.write(BYTES - 1, &[1], false).unwrap();
    device.write(BYTES, &[], false).unwrap();
}
