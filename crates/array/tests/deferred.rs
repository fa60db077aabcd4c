//! Parity put off: a cache that keeps deltas, played by the test, and what is left when it or a disk goes.

use crate::harness::{Kind, Oracle, Rig, content, rng};
use rand::Rng;
use std::collections::BTreeMap;
use vellum_array::{Array, Delta, Level, LogPlace, examine};
use vellum_base::{BlockDevice, Kind as ErrorKind, Lba, SECTOR_BYTES};
use vellum_sim::Sim;

/// Deltas of sectors whose parity was put off.
#[derive(Default)]
struct Deltas(BTreeMap<u64, Vec<u8>>);

impl Deltas {
    fn keep(&mut self, lba: u64, old: &[u8], new: &[u8]) {
        let delta = self.0.entry(lba).or_insert_with(|| vec![0; SECTOR_BYTES]);
        vellum_codes::parity::xor_into(delta, old);
        vellum_codes::parity::xor_into(delta, new);
    }

    fn update(&mut self, array: &Array, row: u64) {
        let per_row = array.status().shape.row_sectors();
        let mine: Vec<u64> = self.0.range(row * per_row..(row + 1) * per_row).map(|(l, _)| *l).collect();
        let deltas: Vec<_> = mine.iter().map(|l| (*l, self.0.remove(l).unwrap())).collect();
        let deltas: Vec<Delta<'_>> =
            deltas.iter().map(|(lba, bytes)| Delta { lba: Lba(*lba), bytes }).collect();
        array.parity_update(row, &deltas).unwrap();
    }
}

/// Random writes with and without parity, updates and resyncs; at the end all rows are made whole.
fn mixed(rig: &Rig, array: &Array, oracle: &mut Oracle, seed: u64) -> Deltas {
    let mut rng = rng(seed);
    let (sectors, mut deltas) = (array.info().sectors, Deltas::default());
    for _ in 0..80 {
        let (lba, id) = (rng.random_range(0..sectors), rng.random_range(1..90_000u32));
        let row = array.row_of(Lba(lba));
        match rng.random_range(0..10) {
            0..6 => {
                let mut old = vec![0; SECTOR_BYTES];
                array.read(Lba(lba), &mut old).unwrap();
                array.write_without_parity_update(Lba(lba), &content(id), rng.random_bool(0.3)).unwrap();
                deltas.keep(lba, &old, &content(id));
                oracle.wrote(lba, id);
            }
            6..8 => {
                array.write(Lba(lba), &content(id), false).unwrap();
                oracle.wrote(lba, id);
            }
            8 => deltas.update(array, row),
            _ => array.flush().unwrap(),
        }
    }
    assert!(array.status().ended.is_none(), "{:?}", rig.kind);
    deltas
}

/// Whatever member is left out, the same is read.
fn assert_redundant(rig: &Rig, oracle: &mut Oracle, context: &str) {
    for role in 0..rig.kind.members {
        let array = rig.fork(1).assemble(&[role]);
        oracle.assert_reads_back(&array, &format!("{context}, without {role}"));
    }
}

#[test]
fn deltas_make_parity_whole_whatever_else_was_written() {
    let kinds = Kind::all();
    vellum_sim::check(0..80, |seed| {
        let kind = kinds[seed as usize % kinds.len()];
        let sim = Sim::new(seed);
        sim.run(|| {
            let rig = Rig::new(kind, sim.env(), seed);
            let array = rig.assemble(&[]);
            let mut oracle = Oracle::new(array.info().sectors);
            let mut deltas = mixed(&rig, &array, &mut oracle, seed);
            array.stale_rows(0, usize::MAX).into_iter().for_each(|row| deltas.update(&array, row));
            assert!(deltas.0.is_empty() && array.status().stale_rows == 0);
            array.close().unwrap();
            assert_redundant(&rig, &mut oracle, &format!("{kind:?}"));
        });
    });
}

/// The cache is gone: the bitmap on the members knows which rows to make anew, also after a crash.
#[test]
fn without_the_cache_stale_rows_are_made_anew_from_data() {
    let kinds = Kind::all();
    vellum_sim::check(0..80, |seed| {
        let kind = kinds[seed as usize % kinds.len()];
        let sim = Sim::new(seed);
        sim.run(|| {
            let rig = Rig::new(kind, sim.env(), seed);
            let array = rig.assemble(&[]);
            let mut oracle = Oracle::new(array.info().sectors);
            let deltas = mixed(&rig, &array, &mut oracle, seed);
            let rows: Vec<u64> = deltas.0.keys().map(|l| array.row_of(Lba(*l))).collect();
            array.flush().unwrap();
            drop(array);
            let rig = rig.after_cut(seed);
            let array = rig.assemble(&[]);
            let stale = array.stale_rows(0, usize::MAX);
            assert!(rows.iter().all(|row| stale.contains(row)), "{rows:?} are stale, {stale:?} are marked");
            stale.into_iter().for_each(|row| array.resync(row).unwrap());
            array.close().unwrap();
            assert_redundant(&rig, &mut oracle, &format!("{kind:?}"));
        });
    });
}

/// Redundancy is truly gone where parity was put off and a disk went: exactly those sectors are errors.
#[test]
fn what_is_lost_with_stale_parity_is_named_and_nothing_else() {
    for kind in Kind::all() {
        let sim = Sim::new(3);
        sim.run(|| {
            let rig = Rig::new(kind, sim.env(), 3);
            let array = rig.assemble(&[]);
            let (per_row, sectors) = (array.status().shape.row_sectors(), array.info().sectors);
            array.write_without_parity_update(Lba(3 * per_row), &content(7), false).unwrap();
            array.close().unwrap();
            let shape = rig.assemble(&[]).status().shape;
            for role in 0..kind.members {
                let array = rig.fork(1).assemble(&[role]);
                let mut out = vec![0; SECTOR_BYTES];
                for lba in 0..sectors {
                    let piece = shape.pieces(Lba(lba), 1).next().unwrap();
                    let lost = piece.row == 3 && shape.member_of(3, piece.column) == role;
                    let result = array.read(Lba(lba), &mut out);
                    assert_eq!(result.is_err(), lost, "{kind:?}, without {role}, sector {lba}");
                    if let Err(error) = result {
                        let named = format!("sectors {lba}..{}:", lba + 1);
                        assert!(error.to_string().contains(&named), "{error}");
                    }
                }
            }
        });
    }
}

#[test]
fn degraded_rows_are_not_put_off() {
    let kind = Kind::all()[0];
    let sim = Sim::new(4);
    sim.run(|| {
        let rig = Rig::new(kind, sim.env(), 4);
        let array = rig.assemble(&[]);
        let per_row = array.status().shape.row_sectors();
        let put_off = |row: u64| array.write_without_parity_update(Lba(row * per_row), &content(1), false);
        put_off(0).unwrap();
        array.fail(0).unwrap();
        assert_eq!(put_off(3).unwrap_err().kind(), ErrorKind::Unsupported);
    });
}

/// So many sectors that their parity is updated as one run: one that cannot be read, where something changes or not,
/// costs nothing in RAID-6.
#[test]
fn a_parity_sector_of_a_long_run_that_cannot_be_read_is_computed() {
    for unreadable in [3, 4] {
        let kind = Kind { level: Level::Raid6, members: 5, chunk_sectors: 256, log: LogPlace::Members };
        let sim = Sim::new(1);
        sim.run(|| {
            let rig = Rig::of_sectors(1 << 13, kind, sim.env(), 1);
            let (array, mut oracle) = rig.filled();
            let shape = array.status().shape;
            let lbas: Vec<u64> = (0..128).map(|at| 256 + 2 * at).collect();
            let deltas: Vec<Vec<u8>> = lbas
                .iter()
                .map(|lba| {
                    let mut delta = content(*lba as u32 + 1).to_vec();
                    delta.iter_mut().zip(content(7)).for_each(|(old, new)| *old ^= new);
                    array.write_without_parity_update(Lba(*lba), &content(7), true).unwrap();
                    oracle.wrote(*lba, 7);
                    delta
                })
                .collect();
            array.fail(shape.member_of(0, 0)).unwrap();
            let parity = &rig.disks[shape.member_of(0, shape.data_columns())];
            let data_start = examine(&rig.device(parity)).unwrap().plot.data_start;
            parity.make_unreadable(Lba(data_start + unreadable));
            let deltas: Vec<Delta<'_>> =
                lbas.iter().zip(&deltas).map(|(lba, bytes)| Delta { lba: Lba(*lba), bytes }).collect();
            array.parity_update(0, &deltas).unwrap();
            assert!(!array.is_stale(0));
            oracle.assert_reads_back(&array, &format!("offset {unreadable}"));
        });
    }
}
