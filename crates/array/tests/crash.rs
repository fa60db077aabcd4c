//! Power cuts, with members lost in the same event: every sector old or new, never anything else; and parity right.

use crate::harness::{Began, Kind, Oracle, Rig, content, random_range, rng};
use rand::Rng;
use std::ops::Range;
use std::sync::Arc;
use vellum_array::{Array, LogPlace};
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Env, Kind as ErrorKind, Lba, Result, SECTOR_BYTES};
use vellum_sim::Sim;

/// Tasks that write at once; sector `l` is task `l % TASKS`'s. They share rows.
const TASKS: u64 = 3;

/// One task's requests until the power goes or they are done.
fn client(array: &Array, oracle: &Mutex<Oracle>, task: u64, seed: u64, steps: usize) -> Result<()> {
    let mut rng = rng(seed * TASKS + task);
    let sectors = array.info().sectors;
    for _ in 0..steps {
        let id = rng.random_range(1..1_000_000u32);
        let longest = if rng.random_bool(0.2) { 48 } else { 12 };
        let (from, count) = random_range(&mut rng, sectors, longest);
        match rng.random_range(0..12) {
            0..8 => {
                // Only one task writes runs.
                let (lba, count) = if task == 0 { (from, count) } else { (from / TASKS * TASKS + task, 1) };
                if lba + count > sectors {
                    continue;
                }
                let data: Vec<u8> = (0..count as u32).flat_map(|i| content(id + i)).collect();
                let (range, fua) = (lba..lba + count, rng.random_bool(0.2));
                let began = begin(oracle, range.clone(), |i| id + i);
                array.write(Lba(lba), &data, fua)?;
                oracle.lock().acknowledged(began, range, fua);
            }
            8 => {
                // Whole rows, parts of rows, and both.
                let count = rng.random_range(1..=48).min(sectors - from);
                if task == 0 {
                    let began = begin(oracle, from..from + count, |_| 0);
                    array.trim(Lba(from), count)?;
                    oracle.lock().acknowledged(began, from..from + count, false);
                }
            }
            9 => {
                let mut out = vec![0; 4096];
                array.read(Lba(from), &mut out)?;
            }
            _ => {
                let began = oracle.lock().begins();
                array.flush()?;
                oracle.lock().flush_returned(began);
            }
        }
    }
    Ok(())
}

/// A write of sectors begins; what the n-th is to hold.
fn begin(oracle: &Mutex<Oracle>, range: Range<u64>, id: impl Fn(u32) -> u32) -> Began {
    let mut oracle = oracle.lock();
    let began = oracle.begins();
    (0..).zip(range).for_each(|(i, lba)| oracle.writes(began, lba, id(i)));
    began
}

/// Runs clients until the power goes.
pub(crate) fn run(
    array: &Arc<Array>,
    env: &Arc<dyn Env>,
    oracle: &Arc<Mutex<Oracle>>,
    seed: u64,
    steps: usize,
) {
    let tasks = (0..TASKS).map(|task| {
        let (array, oracle) = (array.clone(), oracle.clone());
        let run = move || match client(&array, &oracle, task, seed, steps) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::PowerLost => {}
            // Rows in which the power went are in doubt, and are refused as such.
            Err(_) if array.status().ended.is_some() => {}
            Err(error) => panic!("task {task}: {error}"),
        };
        env.clone().spawn("client", Box::new(run))
    });
    tasks.collect::<Vec<_>>().into_iter().for_each(vellum_base::Task::join);
}

/// Up to as many roles as the level survives, none in a third of the cases.
fn losses(kind: Kind, rng: &mut impl Rng) -> Vec<usize> {
    let count = rng.random_range(0..=kind.level.parities());
    let mut roles: Vec<usize> = (0..kind.members).collect();
    (0..count).map(|_| roles.swap_remove(rng.random_range(0..roles.len()))).collect()
}

/// Parity of every row says what data say, as far as members are there.
pub(crate) fn assert_parity(rig: &Rig, array: Array, context: &str) {
    let mut all = vec![0; array.info().bytes() as usize];
    array.read(Lba(0), &mut all).unwrap();
    array.close().unwrap();
    for role in 0..rig.kind.members {
        let array = rig.fork(1).assemble(&[role]);
        let mut degraded = vec![0; all.len()];
        array.read(Lba(0), &mut degraded).unwrap();
        assert!(all == degraded, "{context}: without member {role} other data are read");
    }
}

/// A crash, members lost in it, another crash while that is repaired.
fn crash(kind: Kind, seed: u64, cut_at: u64, steps: usize, force: bool) -> bool {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let rig = Rig::new(kind, env.clone(), seed);
        let mut rng = rng(seed ^ cut_at << 20);
        let array = Arc::new(rig.assemble(&[]));
        let oracle = Arc::new(Mutex::new(Oracle::new(array.info().sectors)));
        rig.power.cut_at(cut_at);
        run(&array, &env, &oracle, seed, steps);
        drop(array);
        let cut = rig.power.is_off();
        let lost = losses(kind, &mut rng);
        let context = format!("{kind:?}, cut at call {cut_at}, then without {lost:?}");
        let mut rig = rig.after_cut(seed + 1);
        if rng.random_bool(0.3) {
            rig.power.cut_at(rng.random_range(1..30));
            drop(rig.try_assemble(&lost));
            rig = rig.after_cut(seed + 2);
        }
        let options = vellum_array::Options { force, ..Default::default() };
        let array =
            vellum_array::assemble(&rig.devices(&lost), rig.log_device().as_ref(), env.clone(), options)
                .unwrap_or_else(|error| panic!("{context}: {error}"));
        oracle.lock().settle(&array, &context);
        if lost.is_empty() {
            assert_parity(&rig, array, &context);
        }
        cut
    })
}

#[test]
fn a_cut_at_every_call_of_a_short_run_leaves_old_or_new() {
    for kind in Kind::all() {
        for cut_at in 1.. {
            if !crash(kind, 5, cut_at, 6, false) {
                assert!(cut_at > 40, "{kind:?}: only {cut_at} calls");
                break;
            }
        }
    }
}

#[test]
fn cuts_at_random_calls_of_long_runs_leave_old_or_new() {
    let kinds = Kind::all();
    vellum_sim::check(0..1000, |seed| {
        let mut rng = rng(seed);
        crash(kinds[seed as usize % kinds.len()], seed, rng.random_range(1..700), 40, false);
    });
}

/// The same without a log: it must go wrong, or the tests above prove nothing.
#[test]
fn without_a_log_the_write_hole_is_there() {
    let wrong = (0..60).filter(|seed| {
        let kind = Kind { log: LogPlace::None, ..Kind::all()[2] };
        let quiet = std::panic::AssertUnwindSafe(|| crash(kind, *seed, 100 + seed * 3, 40, true));
        std::panic::catch_unwind(quiet).is_err()
    });
    let wrong = wrong.count();
    assert!(wrong > 5, "only {wrong} of 60 crashes without a log went wrong");
}

/// Without a log nobody knows after a cut whether parity has a sector's newest version: one that cannot be read then is
/// an error, and the rest of its row is there.
#[test]
fn what_cannot_be_read_is_not_computed_from_parity_that_may_be_out_of_step() {
    let kind = Kind { log: LogPlace::None, ..Kind::all()[2] };
    let sim = Sim::new(1);
    sim.run(|| {
        let rig = Rig::new(kind, sim.env(), 1);
        let array = rig.assemble(&[]);
        let shape = array.status().shape;
        (0..shape.row_sectors()).for_each(|l| array.write(Lba(l), &content(l as u32 + 1), true).unwrap());
        drop(array);
        let rig = rig.after_cut(2);
        rig.disks[shape.member_of(0, 0)].make_unreadable(Lba(256));
        let array = rig.assemble(&[]);
        let mut out = vec![0; SECTOR_BYTES];
        array.read(Lba(0), &mut out).unwrap_err();
        for l in 1..shape.row_sectors() {
            array.read(Lba(l), &mut out).unwrap();
            assert_eq!(out[..], content(l as u32 + 1)[..], "sector {l}");
        }
    });
}

/// The power goes again while records are written in place again, and then the member is gone that has them: what was
/// flushed must not have been replaced by what an older record says.
#[test]
fn a_replay_that_is_cut_and_a_lost_log_cost_nothing_that_was_flushed() {
    let kind = Kind { log: LogPlace::Members, ..Kind::all()[2] };
    for seed in 0..200 {
        let sim = Sim::new(seed);
        sim.run(|| {
            let rig = Rig::new(kind, sim.env(), seed);
            let array = rig.assemble(&[]);
            let shape = array.status().shape;
            (1..4).for_each(|id| array.write(Lba(1), &content(id), false).unwrap());
            array.flush().unwrap();
            drop(array);

            let rig = rig.after_cut(seed);
            rig.power.cut_at(1 + seed % 50);
            let _ = rig.try_assemble(&[]);
            let rig = rig.after_cut(seed + 1);
            let array = rig.assemble(&[shape.member_of(0, shape.data_columns())]);
            let mut found = [0; SECTOR_BYTES];
            array.read(Lba(1), &mut found).unwrap();
            assert!(found == content(3), "cut at call {} of the replay", 1 + seed % 50);
        });
    }
}
