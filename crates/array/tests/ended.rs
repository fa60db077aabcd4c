//! An array that has ended gives nothing up, and writes no superblocks: who was out by that is back with the next
//! assembly, with all it had. It can be read as before.

use crate::harness::{Hooked, Kind, Oracle, Rig, content, no_hook};
use crate::rebuild::take_in;
use crate::worn_out::{filled, sector_of};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_array::layout::Shape;
use vellum_array::{Array, LogPlace, Options, State, assemble};
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Error, Kind as ErrorKind, Lba, Nanos, SECTOR_BYTES};
use vellum_media::RamDisk;
use vellum_sim::Sim;

/// Where a sector is given up.
const ROW: u64 = 7;
/// Where a write fails.
const OTHER: u64 = 1;

type Moment = Box<dyn FnOnce() + Send>;

/// As many members are rebuilt as there is parity for. When this sector of the next is written, or read, a write to
/// another row fails there, and the array ends.
fn rebuilt_and_ended(
    kind: Kind,
    row: u64,
    at_write: bool,
    test: impl FnOnce(Rig, Arc<Array>, Oracle, usize),
) {
    let sim = Sim::new(9);
    sim.run(|| {
        let mut rig = Rig::new(kind, sim.env(), 9);
        let (array, oracle) = rig.filled();
        let (shape, parities) = (array.status().shape, kind.level.parities());
        array.close().unwrap();
        let failing = shape.member_of(ROW, parities);
        let [trap, refused] = [row, OTHER].map(|row| 256 + shape.member_sector(row) + 1);
        let (set, fails) = (Arc::new(Mutex::new(None::<Moment>)), Arc::new(AtomicBool::new(false)));
        let (sets, has_failed) = (set.clone(), fails.clone());
        let spring = move |sectors: &Range<u64>, is_write: bool| {
            let happens =
                (sectors.contains(&trap) && is_write == at_write).then(|| sets.lock().take()).flatten();
            happens.into_iter().for_each(|happens| happens());
            match is_write && sectors.contains(&refused) && has_failed.load(Relaxed) {
                true => Err(Error::new(ErrorKind::Io, "it fails")),
                false => Ok(()),
            }
        };
        let spring = Arc::new(spring);
        let reads = spring.clone();
        let mut devices = rig.devices(&[]);
        devices[failing] = Arc::new(Hooked {
            disk: rig.disks[failing].clone(),
            before_change: Box::new(move |sectors| spring(sectors, true)),
            before_read: Box::new(move |sectors| reads(sectors, false)),
        });
        let array = Arc::new(assemble(&devices, None, rig.env.clone(), Options::default()).unwrap());
        let mut out: Vec<usize> = (0..parities).map(|column| shape.member_of(ROW, column)).collect();
        out.iter().for_each(|role| array.fail(*role).unwrap());
        out.sort_unstable();
        out.iter().for_each(|role| take_in(&mut rig, &array, *role));
        let column = Some(shape.column_of(OTHER, failing)).filter(|column| *column < shape.data_columns());
        let lba =
            Lba(OTHER * shape.row_sectors() + column.unwrap_or(0) as u64 * u64::from(kind.chunk_sectors) + 1);
        let host = array.clone();
        let write = move || {
            fails.store(true, Relaxed);
            host.write(lba, &content(lba.0 as u32 + 1), true).unwrap_err();
        };
        *set.lock() = Some(Box::new(write));
        test(rig, array, oracle, failing);
    });
}

fn kinds() -> impl Iterator<Item = Kind> {
    [2, 6].into_iter().map(|at| Kind { log: LogPlace::Members, ..Kind::all()[at] })
}

#[test]
fn nothing_is_given_up_for_a_member_that_is_out_by_the_end() {
    for kind in kinds() {
        rebuilt_and_ended(kind, ROW, true, |rig, array, mut oracle, failing| {
            let shape = array.status().shape;
            rig.disks[failing].make_unreadable(Lba(256 + shape.member_sector(ROW) + 1));
            let rebuilt = array.rebuild(true, |_| true).unwrap();
            assert!(rebuilt.failed.is_some() && array.status().ended.is_some(), "{kind:?}: {rebuilt:?}");
            drop(array);
            let array = rig.assemble(&[]);
            assert_eq!(array.status().members[failing].state, State::Active);
            let again = array.rebuild(true, |_| true).unwrap();
            assert!(again.complete, "{kind:?}: {again:?}");
            let first = ROW * shape.row_sectors() + 1;
            let beside =
                (0..=kind.level.parities() as u64).map(|at| first + at * u64::from(kind.chunk_sectors));
            beside.for_each(|lba| oracle.wrote(lba, 0));
            let mut named: Vec<u64> = rebuilt.lost.into_iter().chain(again.lost).flatten().collect();
            named.sort_unstable();
            named.dedup();
            assert_eq!(named.len(), 1 + kind.level.parities(), "{kind:?}: {named:?}");
            oracle.assert_reads_back(&array, &format!("{kind:?}"));
        });
    }
}

#[test]
fn a_member_that_is_rebuilt_by_then_does_not_count() {
    for kind in kinds() {
        let last = 23;
        rebuilt_and_ended(kind, last, false, |rig, array, mut oracle, failing| {
            assert_eq!(array.status().shape.rows, last + 1);
            let error = array.rebuild(false, |_| true).unwrap_err();
            assert!(error.to_string().contains("are lost, and RAID-"), "{kind:?}: {error}");
            drop(array);
            let array = rig.assemble(&[]);
            assert_eq!(array.status().members[failing].state, State::Active, "{kind:?}");
            assert!(array.rebuild(false, |_| true).unwrap().complete);
            oracle.assert_reads_back(&array, &format!("{kind:?}"));
        });
    }
}

/// The log device failed; then a member is gone, or answers all with errors, or one of its sectors is worn out.
#[test]
fn it_is_read_without_a_member() {
    let harm: [fn(&Rig, &Shape); 3] = [
        |rig, _| rig.disks[1].lose(),
        |rig, _| rig.disks[1].fail_from(1),
        |rig, shape| rig.disks[1].wear_out(Lba(256 + shape.member_sector(ROW) + 1)),
    ];
    for (kind, harm) in [3, 7].into_iter().flat_map(|at| harm.map(|harm| (Kind::all()[at], harm))) {
        let sim = Sim::new(6);
        sim.run(|| {
            let rig = Rig::new(kind, sim.env(), 6);
            let (array, mut oracle) = rig.filled();
            array.flush().unwrap();
            rig.log.as_ref().unwrap().lose();
            array.write(Lba(0), &content(1), true).unwrap_err();
            assert!(array.status().ended.is_some());
            harm(&rig, &array.status().shape);
            oracle.assert_reads_back(&array, &format!("{kind:?}"));
        });
    }
}

/// Two members are gone while the last row is copied to a new device: it is named nowhere.
#[test]
fn a_copy_does_not_take_the_place_of_its_member() {
    let kind = Kind { log: LogPlace::Members, ..Kind::all()[2] };
    let sim = Sim::new(6);
    sim.run(|| {
        let rig = Rig::new(kind, sim.env(), 6);
        let (array, mut oracle) = rig.filled();
        let shape = array.status().shape;
        array.close().unwrap();
        let array = Arc::new(rig.assemble(&[]));
        let last = 256 + shape.member_sector(shape.rows - 1);
        let new = RamDisk::new(rig.disks[0].info().sectors, &rig.power);
        let (host, gone) = (array.clone(), [rig.disks[1].clone(), rig.disks[2].clone()]);
        let once = AtomicBool::new(true);
        let before_change = Box::new(move |sectors: &Range<u64>| {
            if sectors.contains(&last) && once.swap(false, Relaxed) {
                gone.iter().for_each(|disk| disk.lose());
                let mut some = vec![0; 10 * shape.row_sectors() as usize * SECTOR_BYTES];
                while host.status().ended.is_none() {
                    host.read(Lba(0), &mut some).unwrap_err();
                }
            }
            Ok(())
        });
        let hooked = Arc::new(Hooked { disk: new.clone(), before_change, before_read: no_hook() });
        array.replace(0, hooked, false, |_| true).map(drop).unwrap_err();
        vellum_array::examine(&rig.device(&new)).unwrap_err();
        oracle.assert_reads_back(&rig.fork(1).assemble(&[]), "its member");
    });
}

/// A write that one of its members fails, while that ends the array for another's: the member comes back with the next
/// opening, without what was written. Its row has no parity, and so no record.
#[test]
fn a_write_that_fails_while_the_array_ends_is_not_acknowledged() {
    for kind in Kind::large() {
        filled(kind, 6, |rig, array, _, shape| {
            let (data, role) = (shape.data_columns(), shape.member_of(ROW, 1));
            (data..kind.members).for_each(|column| array.fail(shape.member_of(ROW, column)).unwrap());
            array.close().unwrap();
            let (late, fails) = (256 + shape.member_sector(ROW) + 1, Arc::new(AtomicBool::new(false)));
            let (env, armed) = (rig.env.clone(), fails.clone());
            let before_change = Box::new(move |sectors: &Range<u64>| {
                if !armed.load(Relaxed) {
                    return Ok(());
                }
                if sectors.contains(&late) {
                    env.sleep_until(env.now() + Nanos::from_ms(20));
                }
                Err(Error::new(ErrorKind::Io, "it fails"))
            });
            let mut devices = rig.devices(&[]);
            devices[role] =
                Arc::new(Hooked { disk: rig.disks[role].clone(), before_change, before_read: no_hook() });
            let log = rig.log_device();
            let array =
                Arc::new(assemble(&devices, log.as_ref(), rig.env.clone(), Options::default()).unwrap());
            fails.store(true, Relaxed);
            let (of_task, lba) = (array.clone(), sector_of(&shape, ROW, 1));
            let run = move || drop(of_task.write(Lba(lba), &content(9), true).unwrap_err());
            let task = rig.env.clone().spawn("host", Box::new(run));
            rig.env.sleep_until(rig.env.now() + Nanos::from_ms(3));
            array.flush().unwrap_err();
            task.join();
        });
    }
}
