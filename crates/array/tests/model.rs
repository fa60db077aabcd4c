//! Random requests against the array and against a plain table, with members failing at any time, and reassembly.

use crate::harness::{Kind, Oracle, Rig, content, random_range, rng};
use rand::Rng;
use vellum_base::{BlockDevice, Lba, SECTOR_BYTES};
use vellum_sim::Sim;

/// One life: requests, at most as many failures as the level survives, and reassemblies.
fn life(kind: Kind, seed: u64) {
    let sim = Sim::new(seed);
    sim.run(|| {
        let rig = Rig::new(kind, sim.env(), seed);
        let mut rng = rng(seed);
        let mut array = rig.assemble(&[]);
        let sectors = array.info().sectors;
        let mut oracle = Oracle::new(sectors);
        let mut failed = Vec::new();
        for step in 0..60 {
            let context = format!("{kind:?}, step {step}, failed {failed:?}");
            let (lba, count) = random_range(&mut rng, sectors, 40);
            match rng.random_range(0..20) {
                0..9 => {
                    let first = rng.random_range(1..100_000u32);
                    let data: Vec<u8> = (0..count as u32).flat_map(|i| content(first + i)).collect();
                    array.write(Lba(lba), &data, rng.random_bool(0.2)).expect(&context);
                    (0..count).for_each(|i| oracle.wrote(lba + i, first + i as u32));
                }
                9..11 => {
                    match rng.random_bool(0.5) {
                        true => array.trim(Lba(lba), count).expect(&context),
                        false => array.write_zeroes(Lba(lba), count, true).expect(&context),
                    }
                    (0..count).for_each(|i| oracle.wrote(lba + i, 0));
                }
                11..15 => {
                    let mut out = vec![0; count as usize * SECTOR_BYTES];
                    array.read(Lba(lba), &mut out).expect(&context);
                }
                15 => array.flush().expect(&context),
                16..18 if failed.len() < kind.level.parities() => {
                    let role = rng.random_range(0..kind.members);
                    match rng.random_range(0..3) {
                        0 => rig.disks[role].lose(),
                        1 => rig.disks[role].fail_at(rng.random_range(1..20)),
                        _ => array.fail(role).expect(&context),
                    }
                    if !failed.contains(&role) {
                        failed.push(role);
                    }
                }
                18 => {
                    array.close().expect(&context);
                    array = rig.assemble(&failed);
                }
                _ => {}
            }
        }
        oracle.assert_reads_back(&array, &format!("{kind:?}, failed {failed:?}"));
    });
}

#[test]
fn any_history_reads_back_with_as_many_losses_as_the_level_survives() {
    let kinds = Kind::all();
    vellum_sim::check(0..400, |seed| life(kinds[seed as usize % kinds.len()], seed));
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let hash = |seed| {
        let sim = Sim::new(seed);
        sim.run(|| {
            let rig = Rig::new(Kind::all()[0], sim.env(), seed);
            let array = rig.assemble(&[]);
            (0..20).for_each(|i| array.write(Lba(i * 3), &content(7), false).unwrap());
        });
        sim.log_hash()
    };
    assert_eq!(hash(3), hash(3));
    assert_ne!(hash(3), hash(4));
}
