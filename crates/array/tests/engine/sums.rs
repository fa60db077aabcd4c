//! Checksums of the pages of a cache after an opening, and without anything that is wrong: no page is taken for one of
//! another time, none is refused that is sound, and none is lost for what another lacks.

use super::world::{DATA_START, Model, PAGES, SCHEMES, World, content, lazy, options, run};
use crate::harness::{Kind, rng};
use rand::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::CachedArray;
use vellum_array::{Level, Repair};
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Env, Lba, Nanos, SECTOR_BYTES};
use vellum_sim::Sim;

/// Sectors of `hot` are written again and again.
const HOT: u64 = 20;

fn with_world(scheme: Scheme, has_nvram: bool, test: impl FnOnce(World)) {
    let sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let world = World::new(Kind::all()[2], scheme, env.clone(), 1);
        test(if has_nvram { world.with_nvram() } else { world });
    });
}

fn hot_lbas() -> impl Iterator<Item = u64> {
    (0..HOT).map(|i| i * 16)
}

/// Generations of a sector whose deltas all have the same length: pages of deltas of two times look alike.
fn hot(lba: u64, generation: u8) -> Vec<u8> {
    let mut sector = content(lba, 1);
    for (i, byte) in sector[200..400].iter_mut().enumerate() {
        *byte = (i as u8).wrapping_mul(31) ^ generation.wrapping_mul(17) ^ 0x5A ^ (lba as u8);
    }
    sector
}

fn nap(cached: &CachedArray) {
    cached.env().sleep_until(cached.env().now() + Nanos(1_000_000));
}

fn read(device: &dyn BlockDevice, lba: u64) -> Vec<u8> {
    let mut out = vec![0; SECTOR_BYTES];
    device.read(Lba(lba), &mut out).unwrap();
    out
}

fn write_hot(cached: &CachedArray, generation: u8) {
    for lba in hot_lbas() {
        cached.write(Lba(lba), &hot(lba, generation), false).unwrap();
        nap(cached);
    }
}

/// Pages of the SSD that have deltas.
fn delta_pages(world: &World) -> Vec<Lba> {
    let pages =
        (DATA_START..DATA_START + PAGES).filter(|page| read(&*world.ssd, *page).starts_with(b"VLMDELTA"));
    pages.map(Lba).collect()
}

/// The heads of a page of deltas, if it is one.
fn heads(page: &[u8]) -> Option<&[u8]> {
    page.starts_with(b"VLMDELTA").then(|| &page[12..32 + 16 * usize::from(page[12])])
}

/// What pages of the SSD held, one after the other.
#[derive(Default)]
struct History(BTreeMap<u64, Vec<Vec<u8>>>);

impl History {
    fn look(&mut self, world: &World) {
        for page in DATA_START..DATA_START + PAGES {
            let (now, seen) = (read(&*world.ssd, page), self.0.entry(page).or_default());
            if seen.last() != Some(&now) {
                seen.push(now);
            }
        }
    }

    /// The last writes of pages of deltas were called done, and were not, where nothing but the deltas tells: says how
    /// many.
    fn undo(&self, world: &World) -> usize {
        let mut undone = 0;
        for (page, seen) in &self.0 {
            if let [.., before, last] = &seen[..]
                && *last == read(&*world.ssd, *page)
                && heads(last).is_some()
                && heads(last) == heads(before)
            {
                world.ssd.write(Lba(*page), before, true).unwrap();
                undone += 1;
            }
        }
        undone
    }
}

/// Hot sectors in 40 generations, and what that wrote. The last but one is flushed.
fn lived(world: &World, cached: &CachedArray) -> History {
    let mut history = History::default();
    for generation in 0..40 {
        for lba in hot_lbas() {
            cached.write(Lba(lba), &hot(lba, generation), false).unwrap();
            nap(cached);
            history.look(world);
        }
        if generation == 38 {
            cached.flush().unwrap();
        }
    }
    history
}

#[test]
fn earlier_pages_of_the_same_deltas_are_found_out() {
    for (has_nvram, is_opened) in [(false, false), (false, true), (true, false), (true, true)] {
        with_world(Scheme::Kdd, has_nvram, |world| {
            let mut cached = world.attach(lazy());
            let history = lived(&world, &cached);
            if is_opened {
                cached.close().unwrap();
                assert!(history.undo(&world) > 4);
                cached = world.open(&[], lazy());
            } else {
                assert!(history.undo(&world) > 4);
            }
            let context = format!("NVRAM {has_nvram}, opened again {is_opened}");
            hot_lbas().for_each(|lba| assert!(read(&cached, lba) == hot(lba, 39), "{context}: sector {lba}"));
            assert!(cached.status().wrong_pages > 4, "{context}");
            cached.clean_all(|_| true).unwrap();
            assert_eq!(cached.scrub(Repair::None, |_| true).unwrap().mismatches, 0, "{context}");
            cached.close().unwrap();
            for role in 0..world.rig.kind.members {
                let array = world.rig.fork(1).assemble(&[role]);
                hot_lbas().for_each(|lba| assert!(read(&array, lba) == hot(lba, 39), "{context}, {role}"));
            }
        });
    }
}

/// What is written again after a cut is nothing that was there before the last flush.
#[test]
fn earlier_pages_of_deltas_are_not_written_over_what_was_flushed() {
    with_world(Scheme::Kdd, true, |world| {
        let cached = world.attach(lazy());
        let history = lived(&world, &cached);
        assert!(history.undo(&world) > 4);
        drop(cached);
        let world = world.after_cut(9);
        let cached = world.try_open(&[], lazy()).unwrap();
        assert_eq!(cached.status().emptied, None);
        drop(cached);
        let array = world.rig.fork(1).assemble(&[]);
        let is_new = |lba: u64| [38, 39].iter().any(|generation| read(&array, lba) == hot(lba, *generation));
        assert!(hot_lbas().all(is_new));
    });
}

/// Base and array give a delta again that cannot be read, also where the base's checksum was with it, as long as that
/// is better than nothing.
#[test]
fn a_page_of_deltas_that_cannot_be_read_after_an_opening_costs_no_more_than_before_it() {
    let lost = [false, true].map(|is_opened| {
        let mut lost = 0;
        with_world(Scheme::KddPaper, false, |world| {
            let mut cached = world.attach(lazy());
            (0..3).for_each(|generation| write_hot(&cached, generation));
            if is_opened {
                cached.close().unwrap();
                cached = world.open(&[], lazy());
            }
            delta_pages(&world).into_iter().for_each(|page| world.ssd.make_unreadable(page));
            let shape = cached.array().status().shape;
            world.rig.disks[(shape.member_of(0, 0) + 1) % world.rig.kind.members].lose();
            let mut out = vec![0; SECTOR_BYTES];
            lost = (0..cached.info().sectors).filter(|lba| cached.read(Lba(*lba), &mut out).is_err()).count();
            assert!(cached.status().deltas_recomputed > 10, "{is_opened}: {:?}", cached.status());
        });
        lost
    });
    // The row at which the member is found to be lost may be one more.
    let [before, after] = lost;
    assert!(after <= before + 8, "{before} sectors were lost, {after} after an opening");
}

/// Row by row one hot sector, old, of a cache that was closed and is opened again.
fn opened_with_old_pages(world: &World, spoil: impl FnOnce(&World)) -> (CachedArray, Vec<u64>) {
    let cached = world.attach(lazy());
    let shape = cached.array().status().shape;
    let lbas: Vec<u64> = (0..shape.rows).map(|row| row * shape.row_sectors()).collect();
    for (generation, lba) in (0..3).flat_map(|generation| lbas.iter().map(move |lba| (generation, *lba))) {
        cached.write(Lba(lba), &hot(lba, generation), false).unwrap();
        nap(&cached);
    }
    cached.close().unwrap();
    spoil(world);
    (world.open(&[], lazy()), lbas)
}

fn should_be(lbas: &[u64], lba: u64) -> Vec<u8> {
    if lbas.contains(&lba) { hot(lba, 2) } else { vec![0; SECTOR_BYTES] }
}

/// Of a row whose parity member is away all data are there: it is made anew from these, whatever bases are.
#[test]
fn bases_of_which_nothing_is_known_do_not_go_into_the_other_parity() {
    let sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let world = World::new(Kind::all()[6], Scheme::KddPaper, env.clone(), 1);
        assert_eq!(world.rig.kind.level, Level::Raid6);
        let (cached, lbas) = opened_with_old_pages(&world, |world| {
            let homes = delta_pages(world);
            homes.iter().for_each(|home| world.ssd.make_unreadable(*home));
            let pages = (DATA_START..DATA_START + PAGES).map(Lba).filter(|page| !homes.contains(page));
            pages.for_each(|page| world.ssd.rot(page, 3000, 1));
        });
        let shape = cached.array().status().shape;
        let gone = shape.member_of(0, shape.data_columns());
        cached.array().fail(gone).unwrap();
        let _ = cached.clean_all(|_| true);
        let _ = cached.close();
        let without_parity = |row: &u64| shape.member_of(*row, shape.data_columns()) == gone;
        for (row, column) in (0..shape.rows)
            .filter(without_parity)
            .flat_map(|row| (0..shape.data_columns()).map(move |c| (row, c)))
        {
            let array = world.rig.fork(1).assemble(&[gone, shape.member_of(row, column)]);
            let mut out = vec![0; SECTOR_BYTES];
            for lba in row * shape.row_sectors()..(row + 1) * shape.row_sectors() {
                array.read(Lba(lba), &mut out).unwrap();
                assert!(out == should_be(&lbas, lba), "sector {lba} without column {column}");
            }
        }
    });
}

/// What cannot be told any more is an error, and nothing else.
#[test]
fn what_rotted_before_a_member_went_is_named_and_never_made_up() {
    with_world(Scheme::KddPaper, false, |world| {
        let (cached, lbas) = opened_with_old_pages(&world, |world| {
            (DATA_START..DATA_START + PAGES).for_each(|page| world.ssd.rot(Lba(page), 3000, 1));
        });
        let shape = cached.array().status().shape;
        world.rig.disks[shape.member_of(0, 1)].lose();
        let (mut out, mut lost) = (vec![0; SECTOR_BYTES], 0);
        for lba in 0..shape.sectors() {
            match cached.read(Lba(lba), &mut out) {
                Ok(()) => assert!(out == should_be(&lbas, lba), "sector {lba}"),
                Err(_) => lost += 1,
            }
        }
        let named: u64 = cached.lost_sectors().iter().map(|range| range.end - range.start).sum();
        assert!(lost > 0 && lost <= named, "{lost} could not be read, {named} are named");
    });
}

/// An SSD that returns a page wrong once costs the sector that was read, not the page.
#[test]
fn what_is_read_wrong_once_is_not_condemned() {
    with_world(Scheme::KddPaper, false, |world| {
        let cached = world.attach(lazy());
        (0..3).for_each(|generation| write_hot(&cached, generation));
        cached.close().unwrap();
        let cached = world.open(&[], lazy());
        let (pages, old) = (delta_pages(&world), cached.status().census.old);
        let flip = || pages.iter().for_each(|page| world.ssd.rot(*page, 3000, 1));
        flip();
        assert!(read(&cached, 0) == hot(0, 2) && cached.status().wrong_pages > 0);
        flip();
        let wrong = cached.status().wrong_pages;
        hot_lbas().for_each(|lba| assert!(read(&cached, lba) == hot(lba, 2)));
        let status = cached.status();
        assert!(status.wrong_pages == wrong && status.census.old + 2 > old, "{old} were old: {status:?}");
    });
}

/// A page that was found old is a base: what it must hold is read with its delta.
#[test]
fn writes_to_what_was_old_before_an_opening_are_put_off() {
    for has_nvram in [false, true] {
        with_world(Scheme::KddPaper, has_nvram, |world| {
            let cached = world.attach(lazy());
            (0..3).for_each(|generation| write_hot(&cached, generation));
            cached.close().unwrap();
            let cached = world.open(&[], lazy());
            let before = cached.status();
            write_hot(&cached, 3);
            let after = cached.status();
            assert_eq!(
                (after.census.old, after.rows_cleaned),
                (before.census.old, 0),
                "{before:?}, {after:?}"
            );
            assert!(before.census.old == HOT && after.unreadable_pages + after.wrong_pages == 0, "{after:?}");
            hot_lbas().for_each(|lba| assert!(read(&cached, lba) == hot(lba, 3)));
        });
    }
}

/// A cache of three lives, and nothing that rots.
fn sound(kind: Kind, (scheme, has_nvram): (Scheme, bool), seed: u64, pages: u64, steps: usize, cut_at: u64) {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let mut random = rng(seed);
        let world = World::new(kind, scheme, env.clone(), seed);
        let mut world = if has_nvram { world.with_nvram() } else { world }.with_pages(pages);
        let options = options(&mut random);
        let mut cached = Arc::new(world.attach(options));
        let mut model = Arc::new(Mutex::new(Model::new(cached.info().sectors)));
        for life in 0..3 {
            let context = format!("{kind:?}, {scheme:?}, {has_nvram}, cut at call {cut_at}, life {life}");
            world.rig.power.cut_at(if life == 1 { u64::MAX / 2 } else { cut_at });
            run(&cached, &env, &model, seed + life * 1000, steps, Arc::new(|_| ()));
            if world.rig.power.is_off() {
                model.lock().was_cut();
            }
            assert_eq!(cached.status().wrong_pages, 0, "{context}");
            let _ = Arc::into_inner(cached).unwrap().close();
            world = world.after_cut(seed + 2 + life);
            let again = world.open(&[], options);
            let mut settled = Arc::into_inner(model).unwrap().into_inner();
            (0..2).for_each(|_| settled.settle(&again, &[], &context));
            let status = again.status();
            assert_eq!((status.wrong_pages, status.unreadable_pages), (0, 0), "{context}");
            (model, cached) = (Arc::new(Mutex::new(settled)), Arc::new(again));
        }
        Arc::into_inner(cached).unwrap().close().unwrap();
    });
}

#[test]
fn no_sound_page_is_refused() {
    let kinds = Kind::all();
    vellum_sim::check(0..200, |seed| {
        let cut_at = if seed % 3 == 0 { u64::MAX / 2 } else { rng(seed).random_range(50..900) };
        let (scheme, has_nvram) = (SCHEMES[seed as usize % 8 % 6], seed % 8 >= 6);
        sound(kinds[seed as usize / 8 % 8], (scheme, has_nvram), seed, PAGES, 60, cut_at);
    });
}

/// With pages of the log, and with entries in them that are noted again.
#[test]
fn no_sound_page_is_refused_by_what_the_log_says() {
    let kinds = Kind::all();
    vellum_sim::check(0..12, |seed| {
        let cut_at = rng(seed).random_range(1500..9000);
        let cache = (SCHEMES[seed as usize / 2 % 2], true);
        sound(kinds[[2, 6][seed as usize % 2]], cache, seed, 640, 400, cut_at);
    });
}
