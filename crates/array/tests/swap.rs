//! The moments in which a device takes a member's place: a call that began before and fails after, a new device that
//! dies while superblocks name it, and one that was away while the others went on without it.

use crate::harness::{Kind, Rig, content, filled};
use crate::rebuild::assert_redundant;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use vellum_array::{Array, Device, Options, State, assemble, examine};
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Env, Error, Kind as ErrorKind, Lba, Nanos, Result};
use vellum_media::RamDisk;
use vellum_sim::Sim;

/// What goes wrong with a device.
enum Fault {
    /// The next flush, or write of a row, takes long and fails.
    Late { env: Arc<dyn Env>, is_armed: AtomicBool, flush: bool, data_start: u64 },
    /// Something happens with the n-th write, counted from the first superblock on.
    AtWrite { nth: u64, is_copied: AtomicBool, seen: AtomicU64, then: Box<dyn Fn() + Send + Sync> },
}

struct Faulty {
    inner: Device,
    fault: Fault,
}

const LATE: Nanos = Nanos::from_ms(20);

impl Faulty {
    fn be_late(&self, is_flush: bool, at: u64) -> Result<()> {
        let Fault::Late { env, is_armed, flush, data_start } = &self.fault else { return Ok(()) };
        if *flush != is_flush || at < *data_start || !is_armed.swap(false, Relaxed) {
            return Ok(());
        }
        env.sleep_until(env.now() + LATE);
        Err(Error::new(ErrorKind::Io, "it failed at last"))
    }

    fn arm(&self) {
        let Fault::Late { is_armed, .. } = &self.fault else { unreachable!("it is late") };
        is_armed.store(true, Relaxed);
    }
}

impl BlockDevice for Faulty {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        self.inner.read(lba, buf)
    }
    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        self.be_late(false, lba.0)?;
        if let Fault::AtWrite { nth, is_copied, seen, then } = &self.fault {
            // The mark comes before the copy, superblocks after it.
            is_copied.fetch_or(lba.0 != 0, Relaxed);
            let counts = seen.load(Relaxed) > 0 || (lba.0 == 0 && is_copied.load(Relaxed));
            if counts && seen.fetch_add(1, Relaxed) + 1 == *nth {
                then();
            }
        }
        self.inner.write(lba, data, fua)
    }
    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.inner.trim(lba, sectors)
    }
    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.inner.write_zeroes(lba, sectors, fua)
    }
    fn flush(&self) -> Result<()> {
        self.be_late(true, u64::MAX)?;
        self.inner.flush()
    }
    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.inner.allocation(lba, sectors)
    }
}

const OPTIONS: Options = Options { lanes: 2, force: false };

fn spare(rig: &Rig) -> Arc<RamDisk> {
    RamDisk::new(rig.disks[0].info().sectors + 3, &rig.power)
}

/// A device with something to happen at a write.
fn at_write(rig: &Rig, disk: &Arc<RamDisk>, nth: u64, then: impl Fn() + Send + Sync + 'static) -> Device {
    let fault = Fault::AtWrite {
        nth,
        is_copied: AtomicBool::new(false),
        seen: AtomicU64::new(0),
        then: Box::new(then),
    };
    Arc::new(Faulty { inner: rig.device(disk), fault })
}

/// The array with one more device beside its members', as whoever names both has it.
fn with_beside(rig: &Rig, disk: &Arc<RamDisk>) -> Array {
    let mut devices = rig.devices(&[]);
    let beside = rig.device(disk);
    devices.extend(examine(&beside).is_ok().then_some(beside));
    assemble(&devices, rig.log_device().as_ref(), rig.env.clone(), OPTIONS).unwrap()
}

/// A call on the old device that is under way while there comes to be another way to it, or while that goes again,
/// and then fails: the member is out before anything is acknowledged.
#[test]
fn a_call_that_fails_after_the_exchange_takes_the_member_out() {
    for (seed, kind) in (0..).zip(Kind::all()) {
        for (flush, back) in [(false, false), (false, true), (true, false), (true, true)] {
            let sim = Sim::new(seed);
            let env: Arc<dyn Env> = sim.env();
            sim.run(|| {
                let rig = Rig::new(kind, env.clone(), seed);
                let role = seed as usize % kind.members;
                let data_start = examine(&rig.device(&rig.disks[role])).unwrap().plot.data_start;
                let fault =
                    Fault::Late { env: env.clone(), is_armed: AtomicBool::new(false), flush, data_start };
                let faulty = Arc::new(Faulty { inner: rig.device(&rig.disks[role]), fault });
                let mut devices = rig.devices(&[]);
                devices[role] = faulty.clone();
                let array =
                    Arc::new(assemble(&devices, rig.log_device().as_ref(), env.clone(), OPTIONS).unwrap());
                let mut oracle = filled(&array);
                let shape = array.status().shape;
                let is_on = |l: &u64| {
                    let piece = shape.pieces(Lba(*l), 1).next().unwrap();
                    shape.member_of(piece.row, piece.column) == role
                };
                let lba = (0..shape.sectors()).rev().find(is_on).unwrap();
                oracle.wrote(lba, 77);
                let begin = || {
                    faulty.arm();
                    let array = array.clone();
                    let run = move || match flush {
                        true => array.flush().unwrap(),
                        false => array.write(Lba(lba), &content(77), false).unwrap(),
                    };
                    let task = env.clone().spawn("host", Box::new(run));
                    env.sleep_until(env.now() + Nanos::from_ms(3));
                    task
                };
                let mut task = (!back).then(begin);
                let result = array.replace(role, rig.device(&spare(&rig)), false, |at| {
                    match (back, at.rows) {
                        (true, 2) => task = Some(begin()),
                        (false, 2) => env.sleep_until(env.now() + LATE), // It fails before the copy is complete.
                        _ => {}
                    }
                    !(back && at.rows == 2)
                });
                task.unwrap().join();
                if flush {
                    array.write(Lba(lba), &content(77), false).unwrap();
                }
                let context = format!("{kind:?}, flush {flush}, back {back}: {result:?}");
                assert!(array.status().members[role].state == State::Missing, "{context}");
                assert!(back || result.is_err(), "{context}");
                oracle.assert_reads_back(&array, &context);
            });
        }
    }
}

/// A new device that dies while superblocks name it costs nothing but itself, also if there is no redundancy left;
/// neither does it win when it comes back.
#[test]
fn a_new_device_that_dies_while_it_takes_over_costs_only_itself() {
    for (seed, kind) in (0..).zip(Kind::all()) {
        for (nth, bare) in (1..=4).flat_map(|nth| [(nth, false), (nth, true)]) {
            let sim = Sim::new(seed);
            sim.run(|| {
                let rig = Rig::new(kind, sim.env(), seed);
                let array = rig.assemble(&[]);
                let mut oracle = filled(&array);
                let lost = if bare { kind.level.parities() } else { 0 };
                (0..lost).for_each(|role| array.fail(role).unwrap());
                let (role, disk) = (kind.members - 1, spare(&rig));
                let dies = disk.clone();
                let new = at_write(&rig, &disk, nth, move || dies.lose());
                let result = array.replace(role, new, false, |_| true);
                let context = format!("{kind:?}, write {nth}, bare {bare}: {result:?}");
                assert!(result.unwrap_err().to_string().contains("new device failed"), "{context}");
                assert_eq!(array.lost_members(), lost, "{context}");
                array.write(Lba(5), &content(78), false).unwrap();
                oracle.wrote(5, 78);
                oracle.assert_reads_back(&array, &context);
                drop(array);
                let rig = rig.fork(seed);
                let array = with_beside(&rig, &disk.fork(&rig.power));
                assert_eq!(array.lost_members(), lost, "{context}");
                oracle.assert_reads_back(&array, &context);
                array.close().unwrap();
                if !bare {
                    assert_redundant(&rig, &mut oracle, &context);
                }
            });
        }
    }
}

/// The power goes when only the new device says that it counts; then it is away for a while. What is written
/// meanwhile stays: the others are newer from their assembly on.
#[test]
fn a_new_device_that_was_away_does_not_come_back_as_a_member() {
    let mut alone = 0;
    for (seed, kind) in (0..32).zip(Kind::all().into_iter().cycle()) {
        let sim = Sim::new(seed);
        let is_alone = sim.run(|| {
            let rig = Rig::new(kind, sim.env(), seed);
            let array = rig.assemble(&[]);
            let mut oracle = filled(&array);
            array.flush().unwrap();
            oracle.flushed(|_| true);
            let (role, disk) = (seed as usize % kind.members, spare(&rig));
            let power = rig.power.clone();
            // Its own two are durable, and the next call of anybody is not made, or in part.
            let new = at_write(&rig, &disk, 2, move || power.cut_at(2));
            assert!(array.replace(role, new, false, |_| true).is_err() && rig.power.is_off());
            drop(array);
            let rig = rig.after_cut(seed);
            let disk = disk.after_cut(&rig.power);
            let event = examine(&rig.device(&disk)).unwrap().event;
            if rig.devices(&[]).iter().any(|device| examine(device).unwrap().event == event) {
                return false;
            }
            let array = rig.assemble(&[]);
            assert!(array.status().event > event && !array.status().is_degraded());
            array.write(Lba(3), &content(79), false).unwrap();
            oracle.wrote(3, 79);
            drop(array); // Killed.
            let array = with_beside(&rig, &disk);
            assert!(!array.status().is_degraded(), "{kind:?}");
            oracle.assert_reads_back(&array, &format!("{kind:?}"));
            array.close().unwrap();
            assert_redundant(&rig, &mut oracle, &format!("{kind:?}"));
            true
        });
        alone += u64::from(is_alone);
    }
    assert!(alone > 3, "{alone} of them were what this is about");
}

/// A new device fails while superblocks name it, and another that is needed does from then on, or the old one.
#[test]
fn a_new_device_that_fails_leaves_nobody_behind() {
    let moments = (1..=4).flat_map(|nth| [0, 3].map(|needed| (nth, needed)));
    for (kind, (nth, needed)) in
        Kind::large().into_iter().flat_map(|kind| moments.clone().map(move |at| (kind, at)))
    {
        let sim = Sim::new(3);
        sim.run(|| {
            let rig = Rig::new(kind, sim.env(), 3);
            let (array, mut oracle) = rig.filled();
            array.flush().unwrap();
            (1..=kind.level.parities()).for_each(|role| array.fail(role).unwrap());
            let (disk, also) = (spare(&rig), rig.disks[needed].clone());
            let dies = disk.clone();
            let new = at_write(&rig, &disk, nth, move || {
                dies.lose();
                also.fail_from(1);
            });
            array.replace(0, new, false, |_| true).unwrap_err();
            drop(array);
            let rig = rig.after_cut(3);
            let array = with_beside(&rig, &disk.after_cut(&rig.power));
            oracle.assert_reads_back(&array, &format!("{kind:?}, write {nth}, {needed} fails, too"));
        });
    }
}

/// A new device fails while superblocks name it, beside a member that is lost, and the power goes soon after: whoever
/// of the two counts then, one does.
#[test]
fn a_cut_while_the_old_one_is_put_back_leaves_one_that_counts() {
    let moments = (1..=4).flat_map(|nth| (1..=16).map(move |calls| (nth, calls)));
    for (kind, (nth, calls)) in
        Kind::large().into_iter().flat_map(|kind| moments.clone().map(move |at| (kind, at)))
    {
        let sim = Sim::new(calls);
        sim.run(|| {
            let rig = Rig::new(kind, sim.env(), calls);
            let (array, mut oracle) = rig.filled();
            array.flush().unwrap();
            (1..=kind.level.parities()).for_each(|role| array.fail(role).unwrap());
            let disk = spare(&rig);
            let (fails, power) = (disk.clone(), rig.power.clone());
            let new = at_write(&rig, &disk, nth, move || {
                fails.fail_from(1);
                power.cut_at(calls);
            });
            array.replace(0, new, false, |_| true).unwrap_err();
            drop(array);
            let rig = rig.after_cut(calls);
            let array = with_beside(&rig, &disk.after_cut(&rig.power));
            oracle.assert_reads_back(&array, &format!("{kind:?}, write {nth}, cut {calls} calls later"));
        });
    }
}
