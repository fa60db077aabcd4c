//! Sectors that cannot be read, disks that go, one loss too many.

use crate::harness::{Kind, Oracle, Rig, content};
use vellum_array::State;
use vellum_base::{BlockDevice, Kind as ErrorKind, Lba};
use vellum_sim::Sim;

fn filled(rig: &Rig) -> (vellum_array::Array, Oracle) {
    let array = rig.assemble(&[]);
    let sectors = array.info().sectors;
    let mut oracle = Oracle::new(sectors);
    let data: Vec<u8> = (0..sectors as u32).flat_map(|l| content(l + 1)).collect();
    array.write(Lba(0), &data, false).unwrap();
    (0..sectors).for_each(|l| oracle.wrote(l, l as u32 + 1));
    (array, oracle)
}

#[test]
fn latent_sector_errors_are_read_around_and_written_back() {
    for kind in Kind::all() {
        let sim = Sim::new(1);
        sim.run(|| {
            let rig = Rig::new(kind, sim.env(), 1);
            let (array, mut oracle) = filled(&rig);
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
            let (array, mut oracle) = filled(&rig);
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
            let (array, _) = filled(&rig);
            (0..=kind.level.parities()).for_each(|role| rig.disks[role].lose());
            let error = (0..array.info().sectors)
                .find_map(|l| array.write(Lba(l), &content(3), false).err())
                .expect("writes must fail");
            assert!(error.to_string().contains("members are lost"), "{error}");
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
