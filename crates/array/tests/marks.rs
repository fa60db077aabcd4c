//! Marks of stale rows on the members: they may be there a while too long, never too short.

use crate::harness::{Kind, Rig, content};
use std::sync::Arc;
use vellum_array::{Device, Format, Level, LogPlace, Options, assemble, create};
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Env, Lba, Nanos, Result, SECTOR_BYTES};
use vellum_media::RamDisk;
use vellum_media::ramdisk::Power;
use vellum_sim::Sim;

const KIND: Kind = Kind { level: Level::Raid5, members: 3, chunk_sectors: 4, log: LogPlace::None };

/// A disk whose flushes take ten milliseconds, and nothing else any time.
struct SlowFlush(Arc<RamDisk>, Arc<dyn Env>);

impl BlockDevice for SlowFlush {
    fn info(&self) -> DeviceInfo {
        self.0.info()
    }
    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        self.0.read(lba, buf)
    }
    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        self.0.write(lba, data, fua)
    }
    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.0.trim(lba, sectors)
    }
    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.0.write_zeroes(lba, sectors, fua)
    }
    fn flush(&self) -> Result<()> {
        let result = self.0.flush();
        self.1.sleep_until(self.1.now() + Nanos(10_000_000));
        result
    }
    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.0.allocation(lba, sectors)
    }
}

/// Whether the first rows are marked on a disk.
fn marks_on(disk: &RamDisk) -> u8 {
    let mut sector = vec![0; SECTOR_BYTES];
    disk.read(Lba(2), &mut sector).unwrap();
    sector[32]
}

/// Row 0 is whole again, a flush begins, row 0 is put off and made whole once more. That flush began before: its end
/// must not take the mark off, for what was written since may be lost with the power.
#[test]
fn a_mark_that_was_set_and_cleared_again_outlives_the_flush_that_was_under_way() {
    let sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let power = Power::new(1);
        let disks: Vec<_> = (0..KIND.members).map(|_| RamDisk::new(400, &power)).collect();
        let devices = disks.iter().map(|disk| Arc::new(SlowFlush(disk.clone(), env.clone())) as Device);
        let devices: Vec<Device> = devices.collect();
        create(&devices, None, &*env, &Format { force: true, ..KIND.format() }).unwrap();
        let array = Arc::new(assemble(&devices, None, env.clone(), Options::default()).unwrap());
        let per_row = array.status().shape.row_sectors();
        let put_off = |row: u64, id| {
            array.write_without_parity_update(Lba(row * per_row), &content(id), false).unwrap();
        };
        put_off(0, 1);
        array.resync(0).unwrap();
        let flusher = array.clone();
        let flush = env.clone().spawn("flush", Box::new(move || flusher.flush().unwrap()));
        env.sleep_until(env.now() + Nanos(1_000_000));
        put_off(0, 2);
        array.resync(0).unwrap();
        flush.join();
        put_off(1, 3); // Writes the sector of the bitmap that has both.
        assert_eq!(marks_on(&disks[0]), 0b11, "row 0 was changed since that flush began");
        array.flush().unwrap();
        put_off(2, 4);
        assert_eq!(marks_on(&disks[0]), 0b110, "row 0 is durable, and its mark gone");
    });
}

/// Nobody can say which rows are stale: all of them count so, and no lost sector is computed from parity that lacks
/// what was put off.
#[test]
fn marks_that_cannot_be_read_anywhere_are_not_taken_as_none() {
    for level in [Level::Raid5, Level::Raid6] {
        let sim = Sim::new(1);
        sim.run(|| {
            let kind = Kind { level, members: 4, chunk_sectors: 4, log: LogPlace::Members };
            let rig = Rig::new(kind, sim.env(), 1);
            let array = rig.assemble(&[]);
            let shape = array.status().shape;
            (0..shape.sectors()).for_each(|l| array.write(Lba(l), &content(l as u32 + 1), false).unwrap());
            array.write_without_parity_update(Lba(0), &content(999), false).unwrap();
            array.close().unwrap();
            rig.disks.iter().for_each(|disk| disk.make_unreadable(Lba(2)));

            // The member that has the sector is away: it is an error, whatever parity says.
            let away = rig.fork(2);
            let array = away.assemble(&[shape.member_of(0, 0)]);
            assert_eq!(array.status().stale_rows, shape.rows);
            array.read(Lba(0), &mut [0; SECTOR_BYTES]).unwrap_err();

            let array = rig.assemble(&[]);
            assert_eq!(array.status().stale_rows, shape.rows);
            (0..shape.rows).for_each(|row| array.resync(row).unwrap());
            array.close().unwrap();
            let array = rig.assemble(&[shape.member_of(0, 0)]);
            let mut found = [0; SECTOR_BYTES];
            array.read(Lba(0), &mut found).unwrap();
            assert!(found == content(999));
        });
    }
}
