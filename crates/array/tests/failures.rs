//! Sectors that cannot be read, disks that go, one loss too many.

use crate::harness::{Hooked, Kind, Rig, content, no_hook};
use std::ops::Range;
use std::sync::Arc;
use vellum_array::{Level, LogPlace, Options, Repair, State, assemble};
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Error, Kind as ErrorKind, Lba};
use vellum_sim::Sim;

#[test]
fn latent_sector_errors_are_read_around_and_written_back() {
    for kind in Kind::all() {
        let sim = Sim::new(1);
        sim.run(|| {
            let rig = Rig::new(kind, sim.env(), 1);
            let (array, mut oracle) = rig.filled();
            let start = array.status().shape.member_sector(0) + 256;
            for (i, disk) in rig.disks.iter().enumerate() {
                // One bad sector a row, on another member each.
                disk.make_unreadable(Lba(start + (i as u64) * u64::from(kind.chunk_sectors) + 1));
            }
            oracle.assert_reads_back(&array, &format!("{kind:?}"));
            // Bad parity is found by a write that needs it.
            for row in 0..kind.members as u64 {
                array.write(Lba(row * array.status().shape.row_sectors() + 1), &content(5), false).unwrap();
                oracle.wrote(row * array.status().shape.row_sectors() + 1, 5);
            }
            oracle.assert_reads_back(&array, &format!("{kind:?}"));
            let status = array.status();
            assert!(!status.is_degraded() && status.healed_sectors >= kind.members as u64 - 2, "{status:?}");
        });
    }
}

#[test]
fn a_disk_that_goes_is_out_and_the_next_assembly_knows() {
    for kind in Kind::all() {
        let sim = Sim::new(2);
        sim.run(|| {
            let rig = Rig::new(kind, sim.env(), 2);
            let (array, mut oracle) = rig.filled();
            rig.disks[1].lose();
            let per_row = array.status().shape.row_sectors();
            for row in 0..6 {
                array.write(Lba(row * per_row), &content(9), false).unwrap();
                oracle.wrote(row * per_row, 9);
            }
            let status = array.status();
            assert_eq!(status.members[1].state, State::Missing);
            assert!(status.members[1].reason.as_ref().unwrap().contains("gone"), "{status:?}");
            oracle.assert_reads_back(&array, "degraded");
            array.close().unwrap();
            // The disk is back, with what it had: it must not count.
            let back = rig.fork(3);
            let array = back.assemble(&[]);
            assert_eq!(array.status().members[1].state, State::Missing);
            oracle.assert_reads_back(&array, "the stale member must not count");
        });
    }
}

#[test]
fn one_loss_too_many_ends_writes_and_reads_what_is_left() {
    for kind in Kind::all() {
        let sim = Sim::new(3);
        sim.run(|| {
            let rig = Rig::new(kind, sim.env(), 3);
            let (array, _) = rig.filled();
            (0..=kind.level.parities()).for_each(|role| rig.disks[role].lose());
            let error = (0..array.info().sectors)
                .find_map(|l| array.write(Lba(l), &content(3), false).err())
                .expect("writes must fail");
            assert!(error.to_string().contains("are lost, and RAID-"), "{error}");
            let mut out = vec![0; 4096];
            let readable = (0..array.info().sectors).filter(|l| array.read(Lba(*l), &mut out).is_ok());
            assert!(readable.count() > 0, "what is on other members can be read");
            drop(array);
            let error = rig.try_assemble(&[0, 1, 2][..=kind.level.parities()]).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Io);
            assert!(error.to_string().contains("bring their devices back"), "{error}");
        });
    }
}

#[test]
fn the_last_that_can_be_spared_cannot_be_taken_out_by_hand() {
    let kind = Kind::all()[0];
    let sim = Sim::new(4);
    sim.run(|| {
        let rig = Rig::new(kind, sim.env(), 4);
        let array = rig.assemble(&[]);
        array.fail(0).unwrap();
        let error = array.fail(1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(array.fail(9).is_err());
        array.write(Lba(0), &content(1), false).unwrap();
    });
}

type Moment = Box<dyn FnOnce() + Send>;

/// Q's member has the record, P's fails with it, and the second try finds two sectors that cannot be read: the write is
/// an error. If its record came back after a crash, parity that was written meanwhile would not know of its data.
#[test]
fn a_write_that_ends_with_an_error_leaves_no_record() {
    let sim = Sim::new(7);
    sim.run(|| {
        let kind = Kind { level: Level::Raid6, members: 4, chunk_sectors: 4, log: LogPlace::Members };
        let rig = Rig::new(kind, sim.env(), 7);
        let (array, mut oracle) = rig.filled();
        array.close().unwrap();
        // The disk's next write fails once it is set, with what happens at that moment.
        let set: Arc<Mutex<Option<Moment>>> = Arc::default();
        let trap = set.clone();
        let before_write = move |_: &_| match trap.lock().take() {
            Some(happens) => {
                happens();
                Err(Error::new(ErrorKind::Io, "trapped"))
            }
            None => Ok(()),
        };
        let before_change = Box::new(before_write);
        let trap = Arc::new(Hooked { disk: rig.disks[3].clone(), before_change, before_read: no_hook() });
        let mut devices = rig.devices(&[3]);
        devices.push(trap);
        let array = assemble(&devices, None, rig.env.clone(), Options::default()).unwrap();
        let shape = array.status().shape;
        assert_eq!([0, 1, 2, 3].map(|column| shape.member_of(0, column)), [1, 2, 3, 0]);
        let data = [1, 2].map(|role| rig.disks[role].clone());
        let first = rig.disks[0].info().sectors - 1 - shape.member_sector(shape.rows);
        *set.lock() = Some(Box::new(move || data.iter().for_each(|disk| disk.make_unreadable(Lba(first)))));
        let error = array.write(Lba(0), &[content(500), content(501)].concat(), false).unwrap_err();
        assert!(error.to_string().contains("more members are lost than"), "{error}");
        assert_eq!(array.status().members[3].state, State::Missing);
        array.write(Lba(5), &content(502), false).unwrap();
        array.flush().unwrap();
        oracle.wrote(5, 502);
        oracle.flushed(|lba| lba == 5);
        oracle.wrote(1, 501);
        let after = rig.after_cut(8);
        for without in [3, 2] {
            let array = after.fork(9).assemble(&[3, without]);
            let mut found = content(0);
            for lba in [1, 5] {
                array.read(Lba(lba), &mut found).unwrap();
                oracle.assert_possible(lba, &found, &format!("without {without}"));
            }
        }
    });
}

/// A member takes what is written to some sectors and does not give it back, whatever was written: requests go on.
#[test]
fn sectors_that_are_taken_and_not_given_back_cost_nothing() {
    for level in [Level::Raid5, Level::Raid6] {
        let sim = Sim::new(8);
        sim.run(|| {
            let kind = Kind { level, members: 4, chunk_sectors: 4, log: LogPlace::Members };
            let rig = Rig::new(kind, sim.env(), 8);
            let (array, mut oracle) = rig.filled();
            array.close().unwrap();
            let before_read =
                Box::new(|sectors: &Range<u64>| match sectors.start < 300 && sectors.end > 256 {
                    true => Err(Error::new(ErrorKind::Io, "it cannot be read")),
                    false => Ok(()),
                });
            let mut devices = rig.devices(&[1]);
            devices.push(Arc::new(Hooked {
                disk: rig.disks[1].clone(),
                before_change: no_hook(),
                before_read,
            }));
            let array = assemble(&devices, None, rig.env.clone(), Options::default()).unwrap();
            for lba in 0..array.info().sectors {
                array.write(Lba(lba), &content(lba as u32 + 700), false).unwrap();
                oracle.wrote(lba, lba as u32 + 700);
            }
            array.flush().unwrap();
            oracle.assert_reads_back(&array, "computed");
            let scrubbed = array.scrub(0..u64::MAX, Repair::None, |_| true).unwrap();
            assert!(scrubbed.complete && scrubbed.mismatches == 0, "{scrubbed:?}");
            assert!(!array.status().is_degraded());
            array.close().unwrap();
            oracle.assert_reads_back(&rig.assemble(&[1]), "without it");
        });
    }
}
