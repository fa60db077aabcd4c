//! A log on a device of its own that is not what it was: refused, or by force everything counts as stale.

use crate::harness::{Kind, Oracle, Rig, content, filled};
use std::sync::Arc;
use vellum_array::{Array, Format, Level, LogPlace, Options, assemble, create};
use vellum_base::{BlockDevice, Env, Lba, Result, SECTOR_BYTES};
use vellum_media::RamDisk;
use vellum_media::ramdisk::Power;
use vellum_sim::Sim;

const KIND: Kind = Kind { level: Level::Raid5, members: 4, chunk_sectors: 4, log: LogPlace::Device };
/// Of a log that has room for more than a few records.
const LOG_SECTORS: u64 = 200;
/// Sector of the bitmap of stale rows.
const BITMAP: Lba = Lba(2);

fn assembled(rig: &Rig, log: &Arc<RamDisk>, force: bool) -> Result<Array> {
    let options = Options { force, ..Options::default() };
    assemble(&rig.devices(&[]), Some(&rig.device(log)), rig.env.clone(), options)
}

/// An array that was closed with a stale row; `damage` returns the log device that is named then. It must be refused
/// with these words, and by force all rows are stale until their parity has been made anew.
fn refused(words: &str, damage: impl FnOnce(&Rig) -> Arc<RamDisk>) {
    let sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let rig = Rig::new(KIND, env, 1);
        let array = rig.assemble(&[]);
        let mut oracle = filled(&array);
        array.write_without_parity_update(Lba(0), &content(999), false).unwrap();
        oracle.wrote(0, 999);
        array.close().unwrap();
        let log = damage(&rig);
        let error = assembled(&rig, &log, false).err().expect("it must be refused").to_string();
        assert!(error.contains("the log device") && error.contains(words), "{error}");
        assert!(error.contains("name the right device, or force it"), "{error}");

        let array = assembled(&rig, &log, true).unwrap();
        assert_eq!(array.status().stale_rows, array.status().shape.rows);
        array.stale_rows(0, usize::MAX).into_iter().for_each(|row| array.resync(row).unwrap());
        array.close().unwrap();
        let array = assembled(&rig, &log, false).unwrap();
        assert_eq!(array.status().stale_rows, 0);
        assert_redundant(&rig, &log, array, &mut oracle);
    });
}

fn assert_redundant(rig: &Rig, log: &Arc<RamDisk>, array: Array, oracle: &mut Oracle) {
    array.close().unwrap();
    for role in 0..KIND.members {
        let fork = Rig { log: Some(log.fork(&Power::new(1))), ..rig.fork(1) };
        oracle.assert_reads_back(&fork.assemble(&[role]), &format!("without {role}"));
    }
}

/// A copy of a disk as if it had been cut to so many sectors, or had grown.
fn resized(disk: &RamDisk, sectors: u64, power: &Arc<Power>) -> Arc<RamDisk> {
    let copy = RamDisk::new(sectors, power);
    let mut sector = [0; SECTOR_BYTES];
    for lba in (0..sectors.min(disk.info().sectors)).map(Lba) {
        disk.read(lba, &mut sector).unwrap();
        copy.write(lba, &sector, true).unwrap();
    }
    copy
}

/// After a cut: sectors that were written over and flushed, a record of what they had before at the ring's begin, and
/// one of what they have at its end.
fn with_live_records(env: &Arc<dyn Env>, seed: u64) -> (Rig, Oracle) {
    let mut rig = Rig::new(KIND, env.clone(), seed);
    rig.log = Some(RamDisk::new(LOG_SECTORS, &rig.power));
    let format = Format { force: true, ..KIND.format() };
    create(&rig.devices(&[]), rig.log_device().as_ref(), &*rig.env, &format).unwrap();
    let array = rig.assemble(&[]);
    let mut oracle = Oracle::new(array.info().sectors);
    let mut write = |lba: u64, count: u64, id: u32| {
        let data: Vec<u8> = (0..count as u32).flat_map(|i| content(id + i)).collect();
        array.write(Lba(lba), &data, false).unwrap();
        (0..count).for_each(|i| oracle.wrote(lba + i, id + i as u32));
    };
    write(0, 8, 1000);
    (1..10).for_each(|row| write(row * 12, 12, 2000 + row as u32 * 20));
    write(0, 8, 3000);
    array.flush().unwrap();
    oracle.flushed(|_| true);
    drop(array);
    (rig.after_cut(seed), oracle)
}

fn own(rig: &Rig) -> Arc<RamDisk> {
    rig.log.clone().unwrap()
}

#[test]
fn a_bitmap_that_is_not_valid_is_not_taken_as_empty() {
    refused("sector 2, of its bitmap of stale rows, is not valid", |rig| {
        own(rig).rot(BITMAP, 100, 1);
        own(rig)
    });
}

#[test]
fn a_bitmap_that_cannot_be_read_is_not_taken_as_empty() {
    refused("its bitmap of stale rows cannot be read", |rig| {
        own(rig).make_unreadable(BITMAP);
        own(rig)
    });
}

#[test]
fn a_ring_that_cannot_be_read_after_a_cut_is_not_taken_as_empty() {
    let sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let (rig, mut oracle) = with_live_records(&env, 2);
        let log = own(&rig);
        log.make_unreadable(Lba(10));
        let error = assembled(&rig, &log, false).err().expect("it must be refused").to_string();
        assert!(error.contains("its ring of records cannot be read"), "{error}");
        let array = assembled(&rig, &log, true).unwrap();
        assert_eq!(array.status().stale_rows, array.status().shape.rows);
        oracle.assert_reads_back(&array, "by force");
    });
}

/// No record counts after a close; and after a cut the ring can be read.
#[test]
fn a_ring_of_an_array_that_was_closed_need_not_be_read() {
    let sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let (mut rig, mut oracle) = with_live_records(&env, 3);
        rig.assemble(&[]).close().unwrap();
        (5..LOG_SECTORS).step_by(9).for_each(|sector| own(&rig).make_unreadable(Lba(sector)));
        let array = rig.assemble(&[]);
        array.write(Lba(5), &content(77), true).unwrap();
        oracle.wrote(5, 77);
        drop(array);
        rig = rig.after_cut(3);
        let array = rig.assemble(&[]);
        assert_eq!(array.status().stale_rows, 0);
        assert_redundant(&rig, &own(&rig), array, &mut oracle);
    });
}

#[test]
fn a_blank_device_is_not_the_log() {
    refused("it is no log of array", |rig| RamDisk::new(75, &rig.power));
}

#[test]
fn another_array_s_log_is_not_the_log() {
    refused("it is the log of array", |rig| {
        let other = Rig::new(KIND, rig.env.clone(), 2);
        other.assemble(&[]).close().unwrap();
        other.log.unwrap().fork(&rig.power)
    });
}

/// An image of the log device from before the array was last used.
#[test]
fn an_earlier_copy_is_not_the_log() {
    refused("it is an earlier copy", |rig| {
        let copy = own(rig).fork(&rig.power);
        rig.assemble(&[]).close().unwrap();
        copy
    });
}

#[test]
fn a_device_that_was_cut_short_is_not_the_log() {
    refused("it was cut short", |rig| resized(&own(rig), 74, &rig.power));
}

/// What was behind the cut is not there, and what is left would be replayed over newer data.
#[test]
fn of_a_log_device_that_was_cut_short_nothing_is_replayed() {
    let sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        for (seed, sectors) in (71..LOG_SECTORS).step_by(8).enumerate() {
            let (rig, mut oracle) = with_live_records(&env, seed as u64);
            let log = resized(&own(&rig), sectors, &rig.power);
            let error = assembled(&rig, &log, false).err().expect("it must be refused").to_string();
            assert!(error.contains("it was cut short") && error.contains("its head says 800KiB"), "{error}");
            let array = assembled(&rig, &log, true).unwrap();
            let status = array.status();
            assert_eq!((status.replayed_records, status.stale_rows), (0, status.shape.rows));
            oracle.assert_reads_back(&array, &format!("{sectors} sectors of the log"));
            array.stale_rows(0, usize::MAX).into_iter().for_each(|row| array.resync(row).unwrap());
            assert_redundant(&rig, &log, array, &mut oracle);
        }
    });
}

/// Its ring stays as long as it was: also of what is written to it then nothing is lost.
#[test]
fn a_log_device_that_has_grown_is_the_log() {
    let sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let (mut rig, mut oracle) = with_live_records(&env, 1);
        rig.log = Some(resized(&own(&rig), 3 * LOG_SECTORS, &rig.power));
        let array = rig.assemble(&[]);
        assert!(array.status().replayed_records > 10, "{:?}", array.status());
        oracle.assert_reads_back(&array, "a larger log device");
        for id in 5000..5100 {
            array.write(Lba(u64::from(id) % 12), &content(id), false).unwrap();
            oracle.wrote(u64::from(id) % 12, id);
        }
        array.flush().unwrap();
        oracle.flushed(|_| true);
        drop(array);
        let mut rig = rig.after_cut(1);
        let log = own(&rig);
        let ring = LOG_SECTORS..log.info().sectors;
        let mut sector = [0; SECTOR_BYTES];
        for lba in ring.map(Lba) {
            log.read(lba, &mut sector).unwrap();
            assert_eq!(sector, [0; SECTOR_BYTES], "nobody reads sector {lba:?}");
        }
        rig.log = Some(resized(&log, LOG_SECTORS, &rig.power));
        let array = rig.assemble(&[]);
        assert!(array.status().replayed_records > 0);
        oracle.assert_reads_back(&array, "as long as before");
    });
}

#[test]
fn a_log_device_that_is_too_small_or_in_use_is_refused() {
    let sim = Sim::new(1);
    sim.run(|| {
        let rig = Rig::new(KIND, sim.env(), 1);
        let error = assembled(&rig, &RamDisk::new(20, &rig.power), true).err().unwrap().to_string();
        assert!(error.contains("needs") && error.contains("larger"), "{error}");
        let new: Vec<_> = (0..4).map(|_| RamDisk::new(400, &rig.power) as vellum_array::Device).collect();
        let error = vellum_array::create(&new, rig.log_device().as_ref(), &*rig.env, &KIND.format());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("the log of array") && error.contains("force"), "{error}");
    });
}
