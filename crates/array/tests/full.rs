//! Members whose file system is full: they have not failed. The write that finds it is an error, and the last one; once
//! there is room the array is as after a cut.

use crate::crash::assert_parity;
use crate::harness::{Kind, Oracle, Rig, content, filled, random_range, rng};
use rand::Rng;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use vellum_array::{Array, LogPlace, State};
use vellum_base::{BlockDevice, Error, Kind as ErrorKind, Lba, SECTOR_BYTES};
use vellum_sim::Sim;

/// Writes until there is no room.
fn fill(array: &Array, oracle: &mut Oracle, seed: u64) -> Error {
    let (mut rng, sectors) = (rng(seed), array.info().sectors);
    for id in (1..100_000).step_by(20) {
        let (from, count) = random_range(&mut rng, sectors, 12);
        (0..count).for_each(|i| oracle.wrote(from + i, id + i as u32));
        let data: Vec<u8> = (0..count as u32).flat_map(|i| content(id + i)).collect();
        if let Err(error) = array.write(Lba(from), &data, rng.random_bool(0.2)) {
            return error;
        }
    }
    panic!("there was room for everything");
}

/// What can be read is old or new, also of what is computed.
fn assert_possible(array: &Array, oracle: &Oracle, context: &str) -> usize {
    let (mut found, mut refused) = ([0; SECTOR_BYTES], 0);
    for lba in 0..array.info().sectors {
        match array.read(Lba(lba), &mut found) {
            Ok(()) => oracle.assert_possible(lba, &found, context),
            Err(_) => refused += 1,
        }
    }
    refused
}

#[test]
fn a_member_without_room_is_not_out_and_costs_nothing() {
    let refused_some = AtomicUsize::new(0);
    vellum_sim::check(0..200, |seed| {
        let mut kind = Kind::all()[seed as usize % 8];
        let is_degraded = seed % 3 == 0;
        if seed % 5 == 1 && !is_degraded {
            kind.log = LogPlace::None;
        }
        let (full, lost) = (seed as usize % kind.members, (seed as usize + 1) % kind.members);
        let without: Vec<usize> = if is_degraded { vec![lost] } else { Vec::new() };
        let context = format!("{kind:?}, {full} is full, without {without:?}");
        let sim = Sim::new(seed);
        sim.run(|| {
            let rig = Rig::new(kind, sim.env(), seed);
            let array = rig.assemble(&without);
            let mut oracle = Oracle::new(array.info().sectors);
            rig.disks[full].limit_room(rng(seed).random_range(0..40));
            let error = fill(&array, &mut oracle, seed);
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{context}: {error}");
            assert!(error.to_string().contains(&format!("member {full}: no space")), "{context}: {error}");
            let missing = |array: &Array| {
                let members = array.status().members.into_iter();
                members.filter(|member| member.state == State::Missing).count()
            };
            assert_eq!(missing(&array), without.len(), "{context}");
            let refused = assert_possible(&array, &oracle, &context);
            assert!(is_degraded || refused == 0, "{context}: {refused} sectors cannot be read");
            refused_some.fetch_add(refused, Relaxed);
            let again = array.write(Lba(0), &content(7), false).unwrap_err();
            assert_eq!(again.kind(), ErrorKind::NoSpace);
            assert!(array.close().is_err(), "{context}: it was closed");

            let rig = rig.fork(seed);
            let array = rig.assemble(&without);
            assert_eq!(missing(&array), without.len(), "{context}");
            oracle.settle(&array, &format!("{context}, with room"));
            if !is_degraded {
                assert_parity(&rig, array, &context);
            }
        });
    });
    assert!(refused_some.into_inner() > 0, "no row was in doubt");
}

/// A request over several rows finds a member full when all of them are half written: nothing is computed from any.
#[test]
fn no_row_of_a_request_that_finds_no_room_is_computed_from() {
    let sim = Sim::new(2);
    sim.run(|| {
        let kind = Kind::all()[2];
        let rig = Rig::new(kind, sim.env(), 2);
        // Parity of these rows, and with it their records, are on the members 3 to 0.
        let (full, lost, rows) = (4, 0, 1..5);
        let array = rig.assemble(&[lost]);
        let shape = array.status().shape;
        assert_eq!(rows.clone().map(|row| shape.member_of(row, 4)).collect::<Vec<_>>(), [3, 2, 1, 0]);
        let mut oracle = Oracle::new(array.info().sectors);
        rig.disks[full].limit_room(0);
        let sectors = rows.start * shape.row_sectors()..rows.end * shape.row_sectors();
        let data: Vec<u8> = sectors.clone().flat_map(|l| content(l as u32)).collect();
        sectors.clone().for_each(|l| oracle.wrote(l, l as u32));
        let error = array.write(Lba(sectors.start), &data, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert_eq!(array.stale_rows(0, usize::MAX), rows.collect::<Vec<_>>(), "all of them, and no other");
        let refused = assert_possible(&array, &oracle, "no room");
        assert_eq!(refused, 3 * kind.chunk_sectors as usize, "what was on the member that is lost");
    });
}

/// One that is being rebuilt has nothing that the others lack: it goes, and they go on.
#[test]
fn a_new_member_without_room_is_out() {
    let sim = Sim::new(1);
    sim.run(|| {
        let mut rig = Rig::new(Kind::all()[2], sim.env(), 1);
        let array = rig.assemble(&[]);
        let mut oracle = filled(&array);
        crate::rebuild::replace(&mut rig, &array, 1);
        rig.disks[1].limit_room(20);
        array.rebuild(false, |_| true).unwrap_err();
        assert_eq!(array.status().members[1].state, State::Missing);
        array.write(Lba(3), &content(5), false).unwrap();
        oracle.wrote(3, 5);
        oracle.assert_reads_back(&array, "degraded");
    });
}
