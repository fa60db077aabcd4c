//! Random requests to the disk, compared with a plain array.

use crate::harness::{Shape, assert_sound, content, read};
use proptest::prelude::*;
use vellum_base::{Avoided, BlockDevice, Lba, SECTOR_BYTES};

#[derive(Clone, Debug)]
enum Op {
    Write(u64, u32),
    WriteRun(u64, u32, u8),
    /// Like a journal: the same content into the journal, then home.
    Journaled(u64, u64, u32),
    Trim(u64, u64),
    Zero(u64, u64),
    Remap(u64, u64, u64),
    Flush,
    Reopen,
    /// Deduplicates marked sectors, or everything.
    Dedup(u32),
}

fn op(sectors: u64) -> impl Strategy<Value = Op> {
    let at = 0..sectors;
    prop_oneof![
        12 => (at.clone(), 0u32..4000).prop_map(|(l, c)| Op::Write(l, c)),
        3 => (0..sectors - 40, 0u32..4000, 1u8..40).prop_map(|(l, c, n)| Op::WriteRun(l, c, n)),
        6 => (0u64..24, 24..sectors, 0u32..4000).prop_map(|(j, l, c)| Op::Journaled(j, l, c)),
        1 => (at.clone(), 1u64..50).prop_map(|(l, n)| Op::Trim(l, n)),
        1 => (at, 1u64..50).prop_map(|(l, n)| Op::Zero(l, n)),
        3 => (0..sectors, 0..sectors, 1u64..50).prop_map(|(from, to, n)| Op::Remap(from, to, n)),
        2 => Just(Op::Flush),
        1 => Just(Op::Reopen),
        1 => (0u32..64).prop_map(Op::Dedup),
    ]
}

fn run(shape: Shape, ops: &[Op]) {
    let flash = shape.flash(1);
    shape.format(&flash);
    let mut disk = shape.open(&flash).unwrap();
    let sectors = shape.sectors();
    let mut oracle = vec![content(0); sectors as usize];
    for op in ops {
        match *op {
            Op::Write(l, c) => {
                disk.write(Lba(l), &content(c), false).unwrap();
                oracle[l as usize] = content(c);
            }
            Op::WriteRun(l, c, n) => {
                let data: Vec<u8> = (0..n as u32).flat_map(|i| content(c + i)).collect();
                disk.write(Lba(l), &data, n % 5 == 0).unwrap();
                (0..n as u32).for_each(|i| oracle[(l + u64::from(i)) as usize] = content(c + i));
            }
            Op::Journaled(j, l, c) => {
                for at in [j, l] {
                    disk.write(Lba(at), &content(c), false).unwrap();
                    oracle[at as usize] = content(c);
                }
            }
            Op::Trim(l, n) | Op::Zero(l, n) => {
                let n = n.min(sectors - l);
                match op {
                    Op::Trim(..) => disk.trim(Lba(l), n).unwrap(),
                    _ => disk.write_zeroes(Lba(l), n, false).unwrap(),
                }
                (l..l + n).for_each(|i| oracle[i as usize] = content(0));
            }
            Op::Remap(from, to, n) => {
                let n = n.min(sectors - from.max(to)).min(from.abs_diff(to));
                let before = disk.ledger();
                let shared = disk.remap(Lba(from), Lba(to), n).unwrap();
                let avoided = disk.ledger().since(&before).avoided_by(Avoided::Remap);
                assert_eq!(avoided, shared * SECTOR_BYTES as u64);
                oracle.copy_within(from as usize..(from + n) as usize, to as usize);
            }
            Op::Flush => disk.flush().unwrap(),
            Op::Dedup(0..8) => drop(disk.dedup_all(|_, _| {}).unwrap()),
            Op::Dedup(sectors) => {
                disk.refill_some(sectors).unwrap();
                disk.dedup_some(sectors).unwrap();
            }
            Op::Reopen => {
                disk.close().unwrap();
                let before = disk.ledger();
                drop(disk);
                disk = shape.open(&flash).unwrap();
                assert_eq!(before, disk.ledger(), "a clean close loses no count");
            }
        }
    }
    let mut all = vec![0; sectors as usize * SECTOR_BYTES];
    disk.read(Lba(0), &mut all).unwrap();
    for (l, expected) in oracle.iter().enumerate() {
        assert!(all[l * SECTOR_BYTES..][..SECTOR_BYTES] == *expected, "sector {l}");
    }
    assert_sound(&disk);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_history_reads_back(ops in prop::collection::vec(op(300), 1..600)) {
        for shape in Shape::all() {
            run(shape, &ops);
        }
    }
}

#[test]
fn a_full_disk_takes_overwrites_forever() {
    for shape in Shape::all() {
        let flash = shape.flash(3);
        shape.format(&flash);
        let disk = shape.open(&flash).unwrap();
        let sectors = shape.sectors();
        for round in 0..12u64 {
            for l in 0..sectors {
                let at = (l * 7919 + round * 13) % sectors;
                disk.write(Lba(at), &content((round * sectors + at) as u32 * 8 + 5), false).unwrap();
            }
        }
        for at in 0..sectors {
            assert!(read(&disk, at) == content((11 * sectors + at) as u32 * 8 + 5), "{shape:?} sector {at}");
        }
        let ledger = assert_sound(&disk);
        assert!(ledger.waf() > 1.0, "{shape:?}: a full disk must collect, waf {}", ledger.waf());
    }
}

#[test]
fn idle_writes_nothing() {
    let shape = Shape::all()[4];
    let flash = shape.flash(1);
    shape.format(&flash);
    let disk = shape.open(&flash).unwrap();
    disk.write(Lba(5), &content(3), true).unwrap();
    disk.close().unwrap();
    let before = vellum_base::Flash::counters(&*flash);
    for _ in 0..3 {
        disk.flush().unwrap();
        disk.close().unwrap();
        read(&disk, 5);
    }
    drop(disk);
    let again = shape.open(&flash).unwrap();
    again.close().unwrap();
    assert_eq!(vellum_base::Flash::counters(&*flash).pages_programmed, before.pages_programmed);
}
