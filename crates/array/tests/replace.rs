//! A device replaced by another while it serves: under load, through power cuts, and when one of the two fails.

use crate::harness::{Kind, Rig, content, filled, rng};
use crate::rebuild::{assert_redundant, load};
use rand::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_array::{Device, Options, State, assemble, examine};
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Env, Kind as ErrorKind, Lba};
use vellum_media::RamDisk;
use vellum_sim::Sim;

/// A disk that may take a member's place.
fn spare(rig: &Rig) -> Arc<RamDisk> {
    RamDisk::new(rig.disks[0].info().sectors + 3, &rig.power)
}

#[test]
fn a_member_is_replaced_under_load_and_counts_until_then() {
    let kinds = Kind::all();
    vellum_sim::check(0..64, |seed| {
        let kind = kinds[seed as usize % kinds.len()];
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let mut rig = Rig::new(kind, env.clone(), seed);
            let array = Arc::new(rig.assemble(&[]));
            let oracle = Arc::new(Mutex::new(filled(&array)));
            let (role, disk) = (seed as usize % kind.members, spare(&rig));
            let other = (role + 1) % kind.members;
            let task = load(&array, &oracle, &env, seed);
            // In every fourth run another member is lost meanwhile: this one still makes up for it.
            let meanwhile = |rows| {
                if seed % 4 == 0 && rows == 11 {
                    array.fail(other).unwrap();
                }
                true
            };
            assert!(array.replace(role, rig.device(&disk), false, |at| meanwhile(at.rows)).unwrap());
            task.join();
            rig.disks[role] = disk;
            if seed % 4 == 0 {
                oracle.lock().assert_reads_back(&array, &format!("{kind:?}, with a member lost meanwhile"));
                array.remove(other).unwrap();
                array.add(rig.device(&rig.disks[other]), true).unwrap();
                array.rebuild(false, |_| true).unwrap();
            }
            assert!(!array.status().is_degraded());
            Arc::into_inner(array).unwrap().close().unwrap();
            assert_redundant(&rig, &mut oracle.lock(), &format!("{kind:?}"));
        });
    });
}

/// Under load, a cut at any time: the old device or the new one is a member afterwards, and nothing else is.
#[test]
fn power_cuts_while_a_member_is_replaced_leave_the_old_one_or_the_new() {
    let kinds = Kind::all();
    let found = [AtomicU64::new(0), AtomicU64::new(0)];
    vellum_sim::check(0..200, |seed| {
        let kind = kinds[seed as usize % kinds.len()];
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        let is_new = sim.run(|| {
            let mut rng = rng(seed);
            let rig = Rig::new(kind, env.clone(), seed);
            let array = Arc::new(rig.assemble(&[]));
            let mut oracle = filled(&array);
            array.flush().unwrap();
            oracle.flushed(|_| true);
            let oracle = Arc::new(Mutex::new(oracle));
            let (role, disk) = (rng.random_range(0..kind.members), spare(&rig));
            rig.power.cut_at(rng.random_range(1..400));
            let task = load(&array, &oracle, &env, seed);
            let result = array.replace(role, rig.device(&disk), false, |_| true);
            task.join();
            assert!(rig.power.is_off() || result.is_ok());
            drop(array);
            let mut rig = rig.after_cut(seed);
            let disk = disk.after_cut(&rig.power);
            // Both are there; what is no member says so.
            let mut devices = rig.devices(&[]);
            let new = rig.device(&disk);
            devices.extend(examine(&new).is_ok().then_some(new));
            let options = Options { lanes: 2, force: false };
            let array = assemble(&devices, rig.log_device().as_ref(), env.clone(), options).unwrap();
            assert!(!array.status().is_degraded(), "{kind:?}");
            let context = format!("{kind:?}");
            oracle.lock().settle(&array, &context);
            array.close().unwrap();
            let is_new = devices.len() > kind.members;
            if is_new {
                rig.disks[role] = disk;
            }
            assert_redundant(&rig, &mut oracle.lock(), &context);
            is_new
        });
        found[usize::from(is_new)].fetch_add(1, Relaxed);
    });
    let found = found.map(AtomicU64::into_inner);
    assert!(found[0] > 20 && found[1] > 5, "cuts before and after the new one counted: {found:?}");
}

#[test]
fn whichever_device_fails_meanwhile_nothing_is_lost() {
    let kinds = Kind::all();
    vellum_sim::check(0..48, |seed| {
        let kind = kinds[seed as usize % kinds.len()];
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let rig = Rig::new(kind, env.clone(), seed);
            let array = Arc::new(rig.assemble(&[]));
            let oracle = Arc::new(Mutex::new(filled(&array)));
            let (role, disk) = (seed as usize % kind.members, spare(&rig));
            let fails = if seed % 2 == 0 { disk.clone() } else { rig.disks[role].clone() };
            let at = seed % 20 + 1;
            let task = load(&array, &oracle, &env, seed);
            let result = array.replace(role, rig.device(&disk), false, |progress| {
                if progress.rows == at {
                    fails.lose();
                }
                true
            });
            task.join();
            let context = format!("{kind:?}: {result:?}");
            oracle.lock().assert_reads_back(&array, &context);
            if seed % 2 == 0 {
                assert!(result.unwrap_err().to_string().contains("new device"), "{context}");
                assert!(!array.status().is_degraded(), "{context}");
                Arc::into_inner(array).unwrap().close().unwrap();
                assert_redundant(&rig, &mut oracle.lock(), &context);
            } else {
                assert!(result.is_err() && array.status().members[role].state == State::Missing, "{context}");
            }
        });
    });
}

#[test]
fn a_replacement_can_be_ended_and_what_cannot_be_is_refused() {
    for kind in Kind::all() {
        let sim = Sim::new(7);
        sim.run(|| {
            let rig = Rig::new(kind, sim.env(), 7);
            let array = rig.assemble(&[]);
            let mut oracle = filled(&array);
            let (disk, event) = (spare(&rig), array.status().event);
            assert!(!array.replace(1, rig.device(&disk), false, |at| at.rows < 5).unwrap());
            assert_eq!(array.status().event, event, "superblocks need not hear of it");
            array.write(Lba(0), &content(77), false).unwrap();
            oracle.wrote(0, 77);
            let small: Device = RamDisk::new(100, &rig.power);
            let refused = |role, device: Device| array.replace(role, device, false, |_| true).unwrap_err();
            assert_eq!(refused(1, small).kind(), ErrorKind::Invalid);
            assert_eq!(refused(1, rig.device(&rig.disks[0])).kind(), ErrorKind::Busy);
            assert_eq!(refused(99, rig.device(&disk)).kind(), ErrorKind::Invalid);
            array.fail(1).unwrap();
            assert!(refused(1, rig.device(&disk)).to_string().contains("add the device instead"));
            array.add(rig.device(&rig.disks[1]), true).unwrap();
            array.rebuild(false, |_| true).unwrap();
            array.close().unwrap();
            assert_redundant(&rig, &mut oracle, &format!("{kind:?}"));
        });
    }
}
