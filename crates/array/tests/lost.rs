//! Sectors that no redundancy brings back: a write of them makes them readable where the new parity can be known, and
//! is refused where another lost sector would be computed from it.

use crate::harness::{Kind, Oracle, Rig, content};
use std::sync::Arc;
use vellum_array::layout::Shape;
use vellum_array::{Array, Level, LogPlace, Repair, examine};
use vellum_base::{BlockDevice, Env, Kind as ErrorKind, Lba, SECTOR_BYTES};
use vellum_sim::Sim;

const ROW: u64 = 3;
const OFFSET: u64 = 1;

/// The sector of a data column of [`ROW`] at [`OFFSET`].
fn lba(shape: &Shape, column: usize) -> u64 {
    ROW * shape.row_sectors() + column as u64 * u64::from(shape.chunk_sectors) + OFFSET
}

fn make_unreadable(rig: &Rig, shape: &Shape, columns: impl IntoIterator<Item = usize>) {
    columns.into_iter().for_each(|column| make_unreadable_at(rig, shape, column, OFFSET));
}

fn make_unreadable_at(rig: &Rig, shape: &Shape, column: usize, offset: u64) {
    let disk = &rig.disks[shape.member_of(ROW, column)];
    let data_start = examine(&rig.device(disk)).unwrap().plot.data_start;
    disk.make_unreadable(Lba(data_start + shape.member_sector(ROW) + offset));
}

/// A data column and all parity.
fn one_and_parity(shape: &Shape) -> Vec<usize> {
    [0].into_iter().chain(shape.data_columns()..shape.members).collect()
}

/// Every sector but those left out is what it was, and is so whichever member is missing.
fn assert_redundant(rig: &Rig, array: Array, oracle: &mut Oracle, context: &str) {
    assert_eq!(
        array.scrub(0..array.status().shape.rows, Repair::None, |_| true).unwrap().mismatches,
        0,
        "{context}"
    );
    oracle.assert_reads_back(&array, context);
    array.close().unwrap();
    for role in 0..rig.kind.members {
        oracle.assert_reads_back(&rig.fork(1).assemble(&[role]), &format!("{context}, without {role}"));
    }
}

#[test]
fn a_lost_sector_is_written_over_if_all_other_data_can_be_read() {
    for kind in Kind::all() {
        let sim = Sim::new(1);
        sim.run(|| {
            let rig = Rig::new(kind, sim.env(), 1);
            let (array, mut oracle) = rig.filled();
            array.flush().unwrap();
            oracle.flushed(|_| true);
            let shape = array.status().shape;
            make_unreadable(&rig, &shape, one_and_parity(&shape));
            let at = lba(&shape, 0);
            let mut out = [0; SECTOR_BYTES];
            assert_eq!(
                array.read(Lba(at), &mut out).unwrap_err().kind(),
                ErrorKind::Io,
                "{kind:?}: it is lost"
            );
            array.write(Lba(at), &content(7), false).unwrap();
            oracle.wrote(at, 7);
            assert!(!array.status().is_degraded(), "{kind:?}: no member is out for it");
            assert_redundant(&rig, array, &mut oracle, &format!("{kind:?}"));
        });
    }
}

/// One of two lost data sectors alone is not written over: from whatever parity there was then, the other would be
/// computed, and be read as something that never was there. Both together are.
#[test]
fn what_would_make_another_lost_sector_up_is_refused() {
    for kind in Kind::all() {
        let sim = Sim::new(2);
        sim.run(|| {
            let rig = Rig::new(kind, sim.env(), 2);
            let (array, mut oracle) = rig.filled();
            array.flush().unwrap();
            oracle.flushed(|_| true);
            let shape = array.status().shape;
            let lost = one_and_parity(&shape).into_iter().chain([1]);
            make_unreadable(&rig, &shape, lost);
            let (first, second) = (lba(&shape, 0), lba(&shape, 1));
            for at in [first, second] {
                let error = array.write(Lba(at), &content(7), false).unwrap_err();
                assert!(
                    error.to_string().contains("more members are lost than parity makes up for"),
                    "{error}"
                );
            }
            let mut out = [0; SECTOR_BYTES];
            for at in [first, second] {
                assert!(array.read(Lba(at), &mut out).is_err(), "{kind:?}: sector {at} is lost still");
            }
            // Sectors beside them are nobody's concern.
            array.write(Lba(first - 1), &content(8), false).unwrap();
            oracle.wrote(first - 1, 8);
            let both: Vec<u8> = (first..=second).flat_map(|at| content(at as u32 + 1)).collect();
            array.write(Lba(first), &both, false).unwrap();
            (first..=second).for_each(|at| oracle.wrote(at, at as u32 + 1));
            assert_redundant(&rig, array, &mut oracle, &format!("{kind:?}"));
        });
    }
}

/// What cannot be read is other columns at each offset: with both together the row cannot be written, each by itself it
/// can. The chunk is so long that its sectors are more than a record has extents.
#[test]
fn a_row_is_written_sector_by_sector_where_it_cannot_be_as_a_whole() {
    let all = [0..128, OFFSET as u32..OFFSET as u32 + 2];
    for (level, members, sectors) in
        all.into_iter().flat_map(|of| [(Level::Raid5, 5, of.clone()), (Level::Raid6, 6, of)])
    {
        let kind = Kind { level, members, chunk_sectors: 128, log: LogPlace::Members };
        let sim = Sim::new(3);
        sim.run(|| {
            let rig = Rig::of_sectors(1 << 12, kind, sim.env(), 3);
            let (array, mut oracle) = rig.filled();
            array.flush().unwrap();
            oracle.flushed(|_| true);
            let shape = array.status().shape;
            make_unreadable(&rig, &shape, one_and_parity(&shape));
            (1..=level.parities() + 1)
                .for_each(|column| make_unreadable_at(&rig, &shape, column, OFFSET + 1));
            let first = ROW * shape.row_sectors();
            let new: Vec<u8> = sectors.clone().flat_map(|at| content(at + 1)).collect();
            array.write(Lba(first + u64::from(sectors.start)), &new, false).unwrap();
            sectors.for_each(|at| oracle.wrote(first + u64::from(at), at + 1));
            let lost: Vec<u64> =
                (1..=level.parities() as u64 + 1).map(|column| first + column * 128 + OFFSET + 1).collect();
            let found = array.scrub(0..shape.rows, Repair::None, |_| true).unwrap();
            assert_eq!((found.complete, found.rows, found.mismatches), (true, shape.rows, 0), "{kind:?}");
            let runs: Vec<_> = lost.iter().map(|at| *at..at + 1).collect();
            assert_eq!((found.lost_sectors, found.lost), (lost.len() as u64, runs), "{kind:?}");
            let mut out = [0; SECTOR_BYTES];
            for at in &lost {
                assert!(array.read(Lba(*at), &mut out).is_err(), "{kind:?}: sector {at} is lost still");
            }
            let columns = first + 128..first + (level.parities() as u64 + 2) * 128;
            let old: Vec<u8> = columns.clone().flat_map(|at| content(at as u32 + 1)).collect();
            array.write(Lba(columns.start), &old, false).unwrap();
            columns.for_each(|at| oracle.wrote(at, at as u32 + 1));
            assert_redundant(&rig, array, &mut oracle, &format!("{kind:?}"));
        });
    }
}

/// Cut at every call of the write: afterwards the sector is lost still, or new, and then it has its redundancy.
#[test]
fn power_cuts_leave_a_lost_sector_lost_or_new() {
    let mut outcomes = [0, 0];
    for (seed, kind) in (0..).zip(Kind::all()) {
        for cut_at in 1.. {
            let sim = Sim::new(seed);
            let env: Arc<dyn Env> = sim.env();
            let is_cut = sim.run(|| {
                let rig = Rig::new(kind, env.clone(), seed);
                let (array, mut oracle) = rig.filled();
                array.flush().unwrap();
                oracle.flushed(|_| true);
                let shape = array.status().shape;
                make_unreadable(&rig, &shape, one_and_parity(&shape));
                let at = lba(&shape, 0);
                rig.power.cut_at(cut_at);
                let done = array.write(Lba(at), &content(7), true).is_ok();
                let is_cut = rig.power.is_off();
                drop(array);
                let rig = rig.after_cut(seed + cut_at);
                let context = format!("{kind:?}, cut at call {cut_at}");
                let array = rig.assemble(&[]);
                let mut out = [0; SECTOR_BYTES];
                match array.read(Lba(at), &mut out) {
                    Ok(()) => assert!(out == content(7), "{context}: it is neither lost nor new"),
                    Err(_) => {
                        assert!(!done, "{context}: it was acknowledged");
                        array.write(Lba(at), &content(7), true).unwrap();
                        outcomes[0] += 1;
                    }
                }
                outcomes[1] += u64::from(is_cut);
                oracle.wrote(at, 7);
                oracle.flushed(|lba| lba == at);
                assert_redundant(&rig, array, &mut oracle, &context);
                is_cut
            });
            if !is_cut {
                break;
            }
        }
    }
    let [lost, cuts] = outcomes;
    assert!(0 < lost && lost < cuts, "lost still after {lost} of {cuts} cuts");
}
