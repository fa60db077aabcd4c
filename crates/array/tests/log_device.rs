//! A log on a device of its own that is not what it was: refused, or by force everything counts as stale.

use crate::harness::{Kind, Oracle, Rig, content};
use crate::rebuild::filled;
use std::sync::Arc;
use vellum_array::{Array, Level, LogPlace, Options, assemble};
use vellum_base::{Env, Lba, Result};
use vellum_media::RamDisk;
use vellum_media::ramdisk::Power;
use vellum_sim::Sim;

const KIND: Kind = Kind { level: Level::Raid5, members: 4, chunk_sectors: 4, log: LogPlace::Device };
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
fn a_ring_that_cannot_be_read_is_not_taken_as_empty() {
    refused("its ring of records cannot be read", |rig| {
        own(rig).make_unreadable(Lba(10));
        own(rig)
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
