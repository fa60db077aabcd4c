//! Power cuts of arrays whose members failed before, were replaced by new ones, or cannot be read where their log is.

use crate::crash::run;
use crate::harness::{Hooked, Kind, Oracle, Rig, content, no_hook, rng};
use rand::Rng;
use rand::rngs::SmallRng;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use vellum_array::{Array, Device, Level, LogPlace, Options, State, assemble, examine};
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Env, Error, Kind as ErrorKind, Lba, Nanos, SECTOR_BYTES, Task};
use vellum_media::RamDisk;
use vellum_sim::Sim;

/// Roles of members that do not have everything.
fn lacking(array: &Array) -> Vec<usize> {
    let members = array.status().members;
    (0..members.len()).filter(|role| members[*role].state != State::Active).collect()
}

/// Whoever else is left out, as far as the array can do without, the same is read.
fn assert_redundant(rig: &Rig, array: Array, context: &str) {
    let mut all = vec![0; array.info().bytes() as usize];
    array.read(Lba(0), &mut all).unwrap();
    let lacks = lacking(&array);
    array.close().unwrap();
    if lacks.len() >= rig.kind.level.parities() {
        return;
    }
    for role in (0..rig.kind.members).filter(|role| !lacks.contains(role)) {
        let array = rig.fork(1).assemble(&[role]);
        let mut degraded = vec![0; all.len()];
        array.read(Lba(0), &mut degraded).unwrap();
        let wrong = all.chunks(SECTOR_BYTES).zip(degraded.chunks(SECTOR_BYTES)).position(|(a, b)| a != b);
        assert_eq!(wrong, None, "{context}: without {lacks:?} and {role} another sector is read");
    }
}

/// At some moment a member fails, once or for good, or is taken out; perhaps a new one comes, and is rebuilt.
fn trouble(rig: &Rig, array: &Arc<Array>, rng: &mut SmallRng, role: usize) -> (Task, Option<Arc<RamDisk>>) {
    let (array, env, disk) = (array.clone(), rig.env.clone(), rig.disks[role].clone());
    // Sometimes while the first requests are under way, and the new one comes while they still are.
    let (soonest, pause) = if rng.random_bool(0.5) { (300_000, 0) } else { (4_000_000, 400_000) };
    let (moment, how, call) = (rng.random_range(0..soonest), rng.random_range(0..4), rng.random_range(1..8));
    let new = rng.random_bool(0.6).then(|| RamDisk::new(disk.info().sectors, &rig.power));
    let (device, rebuilds) = (new.as_ref().map(|new| rig.device(new)), rng.random_bool(0.5));
    let run = move || {
        env.sleep_until(env.now() + Nanos(moment));
        match how {
            0 => disk.fail_at(call),
            1 => disk.lose(),
            2 => disk.fail_from(call),
            _ => drop(array.fail(role)),
        }
        let Some(device) = device else { return };
        env.sleep_until(env.now() + Nanos(pause));
        let _ = array.fail(role);
        if array.remove(role).is_ok() && array.add(device, false).is_ok() && rebuilds {
            let _ = array.rebuild(false, |_| true);
        }
    };
    (rig.env.clone().spawn("trouble", Box::new(run)), new)
}

fn crash(kind: Kind, seed: u64, cut_at: u64) {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let (rig, mut rng) = (Rig::new(kind, env.clone(), seed), rng(seed ^ cut_at << 20));
        let array = Arc::new(rig.assemble(&[]));
        let oracle = Arc::new(Mutex::new(Oracle::new(array.info().sectors)));
        let failing = rng.random_range(1..=kind.level.parities());
        let mut roles: Vec<usize> = (0..kind.members).collect();
        let roles: Vec<usize> =
            (0..failing).map(|_| roles.swap_remove(rng.random_range(0..roles.len()))).collect();
        let troubles: Vec<_> = roles.iter().map(|role| trouble(&rig, &array, &mut rng, *role)).collect();
        rig.power.cut_at(cut_at);
        run(&array, &env, &oracle, seed, 40);
        let news: Vec<_> = troubles.into_iter().map(|(task, new)| (task.join(), new).1).collect();
        drop(array);
        let context = format!("{kind:?}, {roles:?} in trouble, cut at call {cut_at}");
        let mut rig = rig.after_cut(seed + 1);
        for (role, new) in roles.iter().zip(news) {
            let new = new.map(|new| new.after_cut(&rig.power));
            // It may not have come to that.
            if let Some(new) = new.filter(|new| examine(&(new.clone() as Device)).is_ok()) {
                rig.disks[*role] = new;
            }
        }
        if rng.random_bool(0.3) {
            rig.power.cut_at(rng.random_range(1..30));
            drop(rig.try_assemble(&[]));
            rig = rig.after_cut(seed + 2);
        }
        let array = rig.try_assemble(&[]).unwrap_or_else(|error| panic!("{context}: {error}"));
        oracle.lock().settle(&array, &context);
        assert_redundant(&rig, array, &context);
    });
}

#[test]
fn cuts_while_members_fail_and_new_ones_come_leave_old_or_new() {
    let kinds = Kind::all();
    vellum_sim::check(0..500, |seed| {
        crash(
            kinds[seed as usize % kinds.len()],
            seed,
            rng(seed).random_range(1..[100, 900][seed as usize / 8 % 2]),
        );
    });
}

/// Runs clients until the power goes; sectors of one member in front of its data cannot be read then, and sometimes the
/// power goes again in the assembly that finds it so. What is left, and whose sectors.
fn cut_and_damaged(rig: &Rig, oracle: &Arc<Mutex<Oracle>>, rng: &mut SmallRng, seed: u64) -> (Rig, usize) {
    let array = Arc::new(rig.assemble(&[]));
    rig.power.cut_at(rng.random_range(1..500));
    run(&array, &rig.env, oracle, seed, 30);
    drop(array);
    let mut rig = rig.after_cut(seed + 1);
    let role = rng.random_range(0..rig.kind.members);
    // Both heads and the ring, a head alone, anything.
    let sectors = [3..rig.ring_end(), 3..5, 1..256][rng.random_range(0..3)].clone();
    (0..3).for_each(|_| rig.disks[role].make_unreadable(Lba(rng.random_range(sectors.clone()))));
    if rng.random_bool(0.4) {
        rig.power.cut_at(rng.random_range(1..60));
        drop(rig.try_assemble(&[]));
        rig = rig.after_cut(seed + 2);
        if rng.random_bool(0.5) {
            (1..256).for_each(|at| rig.disks[role].make_readable(Lba(at)));
        }
    }
    (rig, role)
}

/// A few sectors of one member in front of its data cannot be read after a cut: what its records would have said is not
/// known, so rows are stale of which nobody else has them, and no other sector is wrong; again and again.
#[test]
fn a_log_that_cannot_be_read_costs_no_sector() {
    let kinds: Vec<Kind> = Kind::all().into_iter().filter(|kind| kind.log == LogPlace::Members).collect();
    let doubted = AtomicUsize::new(0);
    vellum_sim::check(0..200, |seed| {
        let (kind, mut rng) = (kinds[seed as usize % kinds.len()], rng(seed));
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        let stale = sim.run(|| {
            let mut rig = Rig::new(kind, env.clone(), seed);
            let sectors = rig.assemble(&[]).info().sectors;
            let oracle = Arc::new(Mutex::new(Oracle::new(sectors)));
            let mut stale = 0;
            for round in 0..3 {
                let role;
                (rig, role) = cut_and_damaged(&rig, &oracle, &mut rng, seed * 8 + round * 2);
                let context = format!("{kind:?}, round {round}, log of {role} unreadable");
                // RAID-6 does without another besides.
                let other = (role + 1) % kind.members;
                let without = if kind.level == Level::Raid6 { vec![other] } else { vec![] };
                oracle.lock().clone().settle(&rig.fork(seed).assemble(&without), &context);
                let array = rig.assemble(&[]);
                oracle.lock().settle(&array, &context);
                let rows = array.stale_rows(0, usize::MAX);
                rows.iter().for_each(|row| array.resync(*row).unwrap());
                assert_eq!(array.status().members[role].state, State::Active, "{context}");
                assert_redundant(&rig, array, &context);
                stale += rows.len();
            }
            stale
        });
        doubted.fetch_add(stale, Relaxed);
    });
    let doubted = doubted.into_inner();
    assert!(doubted > 100, "only {doubted} rows were in doubt");
}

/// A long read of a ring fails, and all its sectors can be read: nothing is in doubt.
#[test]
fn a_ring_that_can_be_read_sector_by_sector_is_believed() {
    let sim = Sim::new(1);
    sim.run(|| {
        let kind = Kind { level: Level::Raid5, members: 3, chunk_sectors: 4, log: LogPlace::Members };
        let rig = Rig::new(kind, sim.env(), 1);
        let array = rig.assemble(&[]);
        (0..12).for_each(|lba| array.write(Lba(lba), &content(lba as u32 + 1), false).unwrap());
        drop(array);
        let rig = rig.after_cut(1);
        let devices = rig.disks.iter().map(|disk| {
            let before_read =
                Box::new(|sectors: &Range<u64>| match *sectors == (5..sectors.end) && sectors.end > 6 {
                    true => Err(Error::new(ErrorKind::Io, "not ready")),
                    false => Ok(()),
                });
            Arc::new(Hooked { disk: disk.clone(), before_change: no_hook(), before_read }) as Device
        });
        let array =
            assemble(&devices.collect::<Vec<_>>(), None, rig.env.clone(), Options::default()).unwrap();
        let status = array.status();
        assert_eq!((status.doubted_rows, status.stale_rows), (0, 0));
        assert!(status.replayed_records > 0);
    });
}

/// The newest head of one member rots, or cannot be read: the head before it says that records count which are older
/// than what was flushed since. The others' heads are asked.
#[test]
fn an_older_head_brings_no_older_records_back() {
    let kind = Kind { level: Level::Raid5, members: 3, chunk_sectors: 4, log: LogPlace::Members };
    for seed in 0..40 {
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let rig = Rig::new(kind, env.clone(), seed);
            let array = rig.assemble(&[]);
            let mut oracle = Oracle::new(array.info().sectors);
            let mut write = |array: &Array, lba: u64, id: u32| {
                array.write(Lba(lba), &content(id), false).unwrap();
                oracle.wrote(lba, id);
            };
            (0..12).for_each(|lba| write(&array, lba, lba as u32 + 1));
            drop(array);
            let rig = rig.after_cut(seed);
            let array = rig.assemble(&[]);
            (0..12).for_each(|lba| write(&array, lba, lba as u32 + 100));
            array.flush().unwrap();
            oracle.flushed(|_| true);
            drop(array);
            let rig = rig.after_cut(seed + 1);
            let (disk, head) = (&rig.disks[seed as usize % 3], Lba(3 + seed / 3 % 2));
            match seed / 6 % 2 {
                0 => disk.rot(head, 40, 1),
                _ => disk.make_unreadable(head),
            }
            let array = rig.assemble(&[]);
            oracle.settle(&array, &format!("seed {seed}"));
            assert_redundant(&rig, array, &format!("seed {seed}"));
        });
    }
}

/// A member is away while an assembly writes in place what a record says that it does not have, and the power goes
/// before anything else: when it is back its parity is old.
#[test]
fn who_was_away_while_records_were_replayed_does_not_come_back() {
    let kind = Kind { level: Level::Raid6, members: 5, chunk_sectors: 4, log: LogPlace::Members };
    vellum_sim::check(0..300, |seed| {
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let (rig, mut rng) = (Rig::new(kind, env.clone(), seed), rng(seed));
            let array = Arc::new(rig.assemble(&[]));
            let oracle = Arc::new(Mutex::new(Oracle::new(array.info().sectors)));
            rig.power.cut_at(rng.random_range(20..400));
            run(&array, &env, &oracle, seed, 40);
            drop(array);
            let rig = rig.after_cut(seed + 1);
            let away = rng.random_range(0..kind.members);
            rig.power.cut_at(rng.random_range(1..40));
            drop(rig.try_assemble(&[away]));
            let rig = rig.after_cut(seed + 2);
            let array = rig.assemble(&[]);
            let context = format!("{away} was away");
            oracle.lock().settle(&array, &context);
            assert_redundant(&rig, array, &context);
        });
    });
}

/// A new member comes in P's place while a write waits for Q's: after a cut Q's record counts, though the new member
/// does not have it.
#[test]
fn a_record_counts_without_those_who_do_not_have_its_row() {
    let sim = Sim::new(3);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let kind = Kind { level: Level::Raid6, members: 4, chunk_sectors: 4, log: LogPlace::Members };
        let mut rig = Rig::new(kind, env.clone(), 3);
        // Writes to Q's data wait while they are held.
        let is_held = Arc::new(AtomicBool::new(false));
        let (data, held, waits) = (256..rig.disks[0].info().sectors - 1, is_held.clone(), env.clone());
        let before_write = move |sectors: &Range<u64>| {
            while data.contains(&sectors.start) && held.load(Relaxed) {
                waits.sleep_until(waits.now() + Nanos(1000));
            }
            Ok(())
        };
        let before_change = Box::new(before_write);
        let q = Hooked { disk: rig.disks[0].clone(), before_change, before_read: no_hook() };
        let mut devices = rig.devices(&[0]);
        devices.push(Arc::new(q));
        let array = Arc::new(assemble(&devices, None, env.clone(), Options::default()).unwrap());
        let shape = array.status().shape;
        assert_eq!([0, 1, 2, 3].map(|column| shape.member_of(0, column)), [1, 2, 3, 0]);
        (0..8).for_each(|l| array.write(Lba(l), &content(l as u32 + 1), false).unwrap());
        array.flush().unwrap();
        is_held.store(true, Relaxed);
        let writer = array.clone();
        let write = move || drop(writer.write(Lba(0), &content(500), false).unwrap_err());
        let write = env.clone().spawn("writer", Box::new(write));
        env.sleep_until(env.now() + Nanos(5_000_000));
        array.fail(3).unwrap();
        array.remove(3).unwrap();
        rig.disks[3] = RamDisk::new(rig.disks[0].info().sectors, &rig.power);
        assert_eq!(array.add(rig.device(&rig.disks[3]), false).unwrap(), 3);
        rig.power.cut_at(1);
        is_held.store(false, Relaxed);
        write.join();
        drop(array);
        for seed in 0..8 {
            let rig = rig.after_cut(seed);
            drop(rig.assemble(&[]));
            let mut found = content(0);
            let array = rig.fork(5).assemble(&[2]);
            array.read(Lba(4), &mut found).unwrap();
            assert!(found == content(5), "a sector that nobody wrote to is computed from an old Q");
        }
    });
}
