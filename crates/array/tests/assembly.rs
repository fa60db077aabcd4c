//! Bad input to create and assemble: an error that names the device and the next step, and nothing written.

use crate::harness::{Kind, Rig, content};
use std::sync::Arc;
use vellum_array::Superblock;
use vellum_array::{
    Array, Device, Format, Level, LogPlace, Options, Standing, assemble, create, examine, owner, survey,
};
use vellum_base::{BlockDevice, Env, Lba};
use vellum_media::RamDisk;
use vellum_media::ramdisk::Power;
use vellum_sim::Sim;

fn in_sim(test: impl FnOnce(Arc<dyn Env>)) {
    let sim = Sim::new(1);
    let env = sim.env();
    sim.run(|| test(env));
}

fn refusal(devices: &[Device], env: &Arc<dyn Env>) -> String {
    assemble(devices, None, env.clone(), Options::default()).err().expect("it must be refused").to_string()
}

const KIND: Kind = Kind { level: Level::Raid5, members: 4, chunk_sectors: 4, log: LogPlace::Members };

#[test]
fn members_are_found_in_any_order_and_on_larger_devices() {
    in_sim(|env| {
        let rig = Rig::new(KIND, env.clone(), 1);
        let array = rig.assemble(&[]);
        array.write(Lba(17), &content(4), true).unwrap();
        array.close().unwrap();
        let mut devices = rig.devices(&[]);
        devices.swap(0, 3);
        devices.swap(1, 2);
        let array = assemble(&devices, None, env.clone(), Options::default()).unwrap();
        let mut out = vec![0; 4096];
        array.read(Lba(17), &mut out).unwrap();
        assert!(out == content(4));
    });
}

#[test]
fn members_of_unequal_size_have_the_size_of_the_smallest() {
    in_sim(|env| {
        let power = Power::new(1);
        let sizes = [400, 500, 450];
        let disks: Vec<Device> = sizes.iter().map(|s| RamDisk::new(*s, &power) as Device).collect();
        create(&disks, None, &*env, &Format { log_sectors: 1, ..Format::new(Level::Raid5) }).unwrap();
        let array = assemble(&disks, None, env.clone(), Options::default()).unwrap();
        assert_eq!(array.status().shape.rows, (400 - 1 - 256) / 16);
        array.close().unwrap();
        // The copy of the superblock alone will do, also in the middle of a device.
        for disk in &disks {
            assert_eq!(examine(disk).unwrap().plot.member_sectors, 400);
        }
    });
}

#[test]
fn a_larger_member_whose_first_sector_is_overwritten_is_found_where_the_smallest_ends() {
    in_sim(|env| {
        let power = Power::new(1);
        let disks: Vec<Device> = [400, 500, 400].iter().map(|s| RamDisk::new(*s, &power) as Device).collect();
        create(&disks, None, &*env, &Format { log_sectors: 1, ..Format::new(Level::Raid5) }).unwrap();
        for role in 0..3 {
            disks[role].write(Lba(0), &[7; 4096], true).unwrap();
            let array = assemble(&disks, None, env.clone(), Options::default()).unwrap();
            assert!(!array.status().is_degraded(), "role {role}");
            array.close().unwrap();
            assert_eq!(examine(&disks[role]).unwrap().role, role, "its first sector says so again");
        }
        // What ends elsewhere is not taken for a copy.
        disks[1].write(Lba(0), &[7; 4096], true).unwrap();
        disks[1].write(Lba(399), &[7; 4096], true).unwrap();
        assert!(matches!(survey(&disks).unwrap().verdicts[1].standing, Standing::Unknown(_)));
    });
}

#[test]
fn foreign_copied_blank_and_cut_devices_are_named() {
    in_sim(|env| {
        let (rig, other) = (Rig::new(KIND, env.clone(), 1), Rig::new(KIND, env.clone(), 2));
        drop(rig.assemble(&[]));
        let mut devices = rig.devices(&[]);
        devices[2] = other.devices(&[]).remove(2);
        let text = refusal(&devices, &env);
        assert!(text.contains("device 2") && text.contains("leave it out"), "{text}");

        devices[2] = rig.device(&rig.disks[1].fork(&Power::new(1)));
        let text = refusal(&devices, &env);
        assert!(text.contains("device 2: it is role 1") && text.contains("leave the copy out"), "{text}");

        devices[2] = RamDisk::new(400, &Power::new(1));
        let text = refusal(&devices, &env);
        assert!(text.contains("device 2") && text.contains("no superblock"), "{text}");

        assert!(refusal(&[], &env).contains("name the devices"));
    });
}

/// The array that most devices belong to decides, however many events another one has seen.
#[test]
fn a_survey_has_a_verdict_for_each_device() {
    in_sim(|env| {
        let (rig, other) = (Rig::new(KIND, env.clone(), 1), Rig::new(KIND, env.clone(), 2));
        for _ in 0..3 {
            other.assemble(&[]).close().unwrap();
        }
        let mut devices = rig.devices(&[]);
        let found = examine(&devices[1]).unwrap();
        let cut = RamDisk::new(found.plot.member_sectors - 1, &Power::new(1));
        cut.write(Lba(0), &found.encode(), true).unwrap();
        devices[0] = other.devices(&[]).remove(0);
        devices[1] = cut;
        devices.push(rig.device(&rig.disks[2].fork(&Power::new(1))));
        devices.push(RamDisk::new(400, &Power::new(1)));
        let seen = survey(&devices).unwrap();
        assert!(seen.newest.array == found.array && !seen.is_tied);
        let standings: Vec<_> = seen.verdicts.iter().map(|verdict| &verdict.standing).collect();
        assert!(
            matches!(
                standings[..],
                [
                    Standing::Foreign(_),
                    Standing::CutShort(..),
                    Standing::Counts,
                    Standing::Counts,
                    Standing::Twin(2),
                    Standing::Unknown(_)
                ]
            ),
            "{standings:?}"
        );
        assert!(survey(&devices[4..]).is_ok() && survey(&devices[5..]).is_err());
        assert!(survey(&[devices[0].clone(), devices[2].clone()]).unwrap().is_tied);
        let text = refusal(&devices[1..4], &env);
        assert!(text.contains("device 0: it was cut short"), "{text}");
    });
}

/// Checksums are right, and numbers such as no array comes to.
#[test]
fn a_member_whose_event_cannot_be_is_named() {
    in_sim(|env| {
        for event in [u64::MAX, u64::MAX - 1, u64::MAX / 2] {
            let rig = Rig::new(KIND, env.clone(), 1);
            let devices = rig.devices(&[]);
            let found = examine(&devices[2]).unwrap();
            let forged = Superblock { event, ..found }.encode();
            for sector in [0, devices[2].info().sectors - 1] {
                devices[2].write(Lba(sector), &forged, true).unwrap();
            }
            let text = refusal(&devices, &env);
            assert!(text.contains("device 2") && text.contains("leave it out"), "{text}");
            assert!(rig.assemble(&[2]).status().is_degraded());
        }
    });
}

#[test]
fn an_old_image_of_a_member_does_not_count() {
    in_sim(|env| {
        let rig = Rig::new(KIND, env.clone(), 1);
        let array = rig.assemble(&[]);
        let old = rig.disks[1].fork(&rig.power);
        array.close().unwrap();
        drop(rig.assemble(&[]));
        let array = rig.assemble(&[]);
        array.write(Lba(0), &content(8), true).unwrap();
        array.close().unwrap();
        let mut devices = rig.devices(&[]);
        devices[1] = rig.device(&old);
        let array = assemble(&devices, None, env.clone(), Options::default()).unwrap();
        assert!(array.status().is_degraded(), "{:?}", array.status());
    });
}

/// Whether it was taken while the array was at rest or after a cut, and however the array was left since.
#[test]
fn an_image_from_before_the_last_opening_does_not_count() {
    for (is_closed, is_closed_later) in [(true, true), (true, false), (false, true), (false, false)] {
        in_sim(|env| {
            let rig = Rig::new(KIND, env.clone(), 1);
            let leave =
                |array: Array, is_closed: bool| if is_closed { array.close().unwrap() } else { drop(array) };
            let array = rig.assemble(&[]);
            array.write(Lba(0), &content(7), true).unwrap();
            leave(array, is_closed);
            let old = rig.disks[1].fork(&rig.power);
            let array = rig.assemble(&[]);
            (0..array.info().sectors).for_each(|lba| array.write(Lba(lba), &content(8), false).unwrap());
            array.flush().unwrap();
            leave(array, is_closed_later);
            let mut devices = rig.devices(&[]);
            devices[1] = rig.device(&old);
            let array = assemble(&devices, None, env.clone(), Options::default()).unwrap();
            assert!(array.status().is_degraded(), "{is_closed} {is_closed_later}");
            let mut out = vec![0; 4096];
            for lba in 0..array.info().sectors {
                array.read(Lba(lba), &mut out).unwrap();
                assert!(out == content(8), "{is_closed} {is_closed_later}: sector {lba}");
            }
        });
    }
}

#[test]
fn either_superblock_will_do() {
    in_sim(|env| {
        let rig = Rig::new(KIND, env.clone(), 1);
        rig.disks[0].rot(Lba(0), 100, 1);
        let last = rig.disks[1].info().sectors - 1;
        rig.disks[1].rot(Lba(last), 100, 1);
        assert!(!rig.assemble(&[]).status().is_degraded());
    });
}

#[test]
fn devices_in_use_and_impossible_shapes_are_refused() {
    in_sim(|env| {
        let rig = Rig::new(KIND, env.clone(), 1);
        let text = create(&rig.devices(&[]), None, &*env, &KIND.format()).unwrap_err().to_string();
        assert!(text.contains("device 0") && text.contains("force"), "{text}");
        create(&rig.devices(&[]), None, &*env, &Format { force: true, ..KIND.format() }).unwrap();

        let disks = |count, sectors| -> Vec<Device> {
            (0..count).map(|_| RamDisk::new(sectors, &Power::new(1)) as Device).collect()
        };
        let refused = |devices: &[Device], format: &Format| {
            create(devices, None, &*env, format).unwrap_err().to_string()
        };
        let five = Format::new(Level::Raid5);
        assert!(refused(&disks(2, 4000), &five).contains("takes 3 to 64"));
        assert!(refused(&disks(3, 4000), &Format::new(Level::Raid6)).contains("takes 4 to 64"));
        assert!(refused(&disks(3, 100), &five).contains("no room"));
        assert!(
            refused(&disks(3, 4000), &Format { chunk_sectors: 3, ..five.clone() }).contains("power of two")
        );
        let device = Format { log: LogPlace::Device, ..five.clone() };
        assert!(refused(&disks(3, 4000), &device).contains("name the device"));
    });
}

#[test]
fn an_array_with_a_log_device_is_not_assembled_without_it() {
    in_sim(|env| {
        let rig = Rig::new(Kind { log: LogPlace::Device, ..KIND }, env.clone(), 1);
        assert!(refusal(&rig.devices(&[]), &env).contains("log is on a device of its own"));
        rig.assemble(&[]).close().unwrap();
    });
}

/// The power goes while superblocks are written, and again while the next assembly writes its own: members are up to
/// two events apart, and all of them count.
#[test]
fn members_whose_superblocks_were_cut_off_twice_count() {
    in_sim(|env| {
        let mut cuts = 0;
        for first in 1.. {
            let rig = Rig::new(KIND, env.clone(), first);
            let array = rig.assemble(&[]);
            array.write(Lba(5), &content(9), true).unwrap();
            rig.power.cut_at(first);
            if array.close().is_ok() {
                break;
            }
            for second in 1..40 {
                let rig = rig.after_cut(second);
                rig.power.cut_at(second);
                drop(rig.try_assemble(&[]));
                let array = rig.after_cut(first).assemble(&[]);
                assert!(!array.status().is_degraded(), "cut at call {first}, then at {second}");
                cuts += 1;
            }
        }
        assert!(cuts > 400, "only {cuts} pairs of cuts");
    });
}

/// A device that fails while the array is made: those that were made members before it, or its log, are none.
#[test]
fn what_was_written_is_taken_back_where_an_array_cannot_be_made() {
    let mut failed = 0;
    for calls in 1..24 {
        in_sim(|env| {
            let power = Power::new(1);
            let disks: Vec<_> = (0..4).map(|_| RamDisk::new(400, &power)).collect();
            let log = RamDisk::new(200, &power);
            disks[2].fail_at(calls);
            let devices: Vec<Device> = disks.iter().map(|disk| disk.clone() as Device).collect();
            let log: Device = log;
            let format = Format { log: LogPlace::Device, chunk_sectors: 4, ..Format::new(Level::Raid5) };
            let Err(error) = create(&devices, Some(&log), &*env, &format) else { return };
            assert!(error.to_string().contains("member 2"), "{error}");
            failed += 1;
            for device in devices.iter().chain([&log]) {
                assert!(owner(device).is_none(), "{:?}", owner(device).map(|owner| owner.to_string()));
            }
        });
    }
    assert!(failed >= 4, "zeros, a flush, two superblocks: {failed}");
}
