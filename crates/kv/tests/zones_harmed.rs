//! Zones that hold more than their table, or cannot be read where it begins: nothing comes back that was deleted, and
//! no zone is lost for good.

use crate::doubtful::{Doubtful, Fault};
use crate::harness::{Compared, Model, repair, repair_log, small};
use crate::log::harness as log;
use crate::zones::{SHAPE, formatted, media};
use std::sync::Arc;
use vellum_base::{Cause, Env, IoClass, Kind, RealEnv, Zones};
use vellum_kv::media::{AreaKind, Intent, Parallelism, TableWriter, Tables};
use vellum_kv::{Map, Media, Store, ZoneMedia};
use vellum_media::zones::{RamZones, RawDevice};

const CAPACITY: u64 = SHAPE.zone_bytes - 4096;

const INTENT: Intent =
    Intent { cause: Cause::Flush, class: IoClass::Background, parallelism: Parallelism::Full };

fn begun(media: &dyn Media, number: u64, bytes: u64) -> Box<dyn TableWriter> {
    let mut writer = media.create_table(number, INTENT).unwrap();
    writer.append(&vec![number as u8; bytes as usize]).unwrap();
    writer
}

fn env() -> Arc<dyn Env> {
    RealEnv::new()
}

/// On a device that leaves what a reset zone held, and on one that does not.
#[test]
fn tables_on_zones_end_where_they_ended_whatever_older_ones_left_behind_them() {
    for keeps_pointers in [false, true] {
        let (files, zones) = formatted(keeps_pointers, 3);
        let open = || media(&files, &zones).unwrap();
        let bytes = |number: u64| open().open_table(number).unwrap().bytes().unwrap();
        // The longest take each zone once; then come shorter ones.
        let lengths = [CAPACITY - 4096, CAPACITY - 8192, 12 << 10, 4096];
        let mut number = 0;
        for length in lengths {
            let store = open();
            for _ in 1..SHAPE.zones {
                number += 1;
                begun(&*store, number, length).finish(0).unwrap();
                assert_eq!(store.open_table(number).unwrap().bytes().unwrap(), length);
                assert_eq!(bytes(number), length, "table {number}");
                store.erase_table(number).unwrap();
            }
        }
        let ledger = open().ledger().programmed_by(Cause::StoreMetadata);
        assert_eq!(ledger, 0, "opening wrote something");
        let store = open();
        begun(&*store, 1000, 8192).finish(0).unwrap();
        assert_eq!(store.ledger().programmed_by(Cause::StoreMetadata), 2 * 4096, "a head and an end");
        begun(&*store, 1001, CAPACITY).finish(0).unwrap();
        assert_eq!(bytes(1001), CAPACITY, "one that fills its zone");
        std::mem::forget(begun(&*store, 1002, 8192));
        zones.cut_power();
        zones.power_on();
        let numbers = open().tables().unwrap();
        assert!(numbers.starts_with(&[1000, 1001]), "{numbers:?}");
        if numbers.contains(&1002) {
            assert!(bytes(1002) <= 8192, "one that was never finished");
        }
    }
}

/// Fills and empties the store until every zone held something, and leaves a little in it.
fn wear(store: &impl Map) -> Model {
    let key = |round: u32, n: u32| [round.to_be_bytes(), n.to_be_bytes()].concat();
    for round in 1..25 {
        (0..600).for_each(|n| store.put(&key(round, n), &[round as u8; 900]).unwrap());
        store.compact().unwrap();
        (0..600).for_each(|n| store.delete(&key(round, n)).unwrap());
        store.compact().unwrap();
    }
    let mut model = Model::new();
    for n in 0..30 {
        store.put(&key(0, n), &[99; 900]).unwrap();
        model.insert(key(0, n), vec![99; 900]);
    }
    store.compact().unwrap();
    model
}

/// No manifest says any more how long tables are.
fn lose_manifest(files: &Doubtful, zones: &Arc<RamZones>) -> Arc<dyn Media> {
    let left: Arc<dyn Media> = media(files, zones).unwrap();
    let areas = left.areas().unwrap();
    areas
        .into_iter()
        .filter(|area| area.kind == AreaKind::Manifest)
        .for_each(|area| left.remove_area(area).unwrap());
    let mut current = left.current().unwrap().unwrap();
    current[4] ^= 1;
    left.set_current(&current).unwrap();
    left
}

fn hits(zones: &RamZones, mut hit: impl FnMut(u32)) {
    (1..SHAPE.zones).filter(|zone| zones.report(*zone).written > 0).for_each(&mut hit);
}

#[test]
fn repair_takes_nothing_of_what_older_tables_left_behind_in_zones() {
    for seed in [1, 2] {
        let (files, zones) = formatted(false, seed);
        let store = Store::open(media(&files, &zones).unwrap(), env(), small()).unwrap();
        let model = wear(&store);
        store.close().unwrap();
        zones.cut_power();
        zones.power_on();
        match seed {
            1 => drop(repair(&lose_manifest(&files, &zones), &env(), &small()).unwrap()),
            // The manifest tells, and a leaf is damaged.
            _ => {
                hits(&zones, |zone| zones.flip_bit(zone, 8 * 4096 + 700));
                let left: Arc<dyn Media> = media(&files, &zones).unwrap();
                let report = repair(&left, &env(), &small()).unwrap();
                assert!(report.tables_rewritten > 0 && report.entries_lost < 10, "{report:?}");
            }
        }
        let store = Store::open(media(&files, &zones).unwrap(), env(), small()).unwrap();
        assert!(store.verify().unwrap().problems.is_empty());
        match seed {
            1 => store.assert_same_from(b"", &model, "without a manifest"),
            _ => assert!(found_in(&store, &model) > 20),
        }
    }
}

/// How many keys are found, all with their values.
fn found_in(store: &impl Map, model: &Model) -> usize {
    let mut found = 0;
    store
        .each(&mut |key, value| {
            assert_eq!(model.get(key).map(|value| &value[..]), Some(value), "{key:?}");
            found += 1;
            Ok(())
        })
        .unwrap();
    found
}

#[test]
fn repair_of_a_log_store_takes_nothing_of_what_older_segments_left_behind_in_zones() {
    for seed in [1, 2] {
        let (files, zones) = formatted(false, seed);
        let store = log::open_with(media(&files, &zones).unwrap(), log::small()).unwrap();
        let model = wear(&store);
        store.close().unwrap();
        zones.cut_power();
        zones.power_on();
        if seed == 2 {
            hits(&zones, |zone| zones.flip_bit(zone, 8 * 4096 + 700));
        }
        let left: Arc<dyn Media> = match seed {
            1 => lose_manifest(&files, &zones),
            _ => media(&files, &zones).unwrap(),
        };
        let report = repair_log(&left, &env(), &log::small()).unwrap();
        let store = log::open_with(media(&files, &zones).unwrap(), log::small()).unwrap();
        assert!(store.verify().unwrap().problems.is_empty());
        match seed {
            1 => store.assert_same_from(b"", &model, "without a manifest"),
            _ => assert!(found_in(&store, &model) > 20, "{report:?}"),
        }
    }
}

/// Fills a store of either engine a little, and closes it.
fn filled<S: Map>(store: S, close: impl Fn(S)) -> Model {
    let mut model = Model::new();
    for n in 0..400u32 {
        store.put(&n.to_be_bytes(), &[n as u8; 900]).unwrap();
        model.insert(n.to_be_bytes().to_vec(), vec![n as u8; 900]);
    }
    store.compact().unwrap();
    close(store);
    model
}

/// What was being written when the power went, and what was reset: their heads cannot be read. Nor can that of a zone
/// whose table counts.
#[test]
fn zones_whose_head_cannot_be_read_are_free_again_unless_their_table_counts() {
    for keeps_pointers in [false, true] {
        let (files, zones) = formatted(keeps_pointers, 6);
        let open = || Store::open(media(&files, &zones).unwrap(), env(), small()).unwrap();
        let model = filled(open(), |store| store.close().unwrap());
        let home = (1..SHAPE.zones).find(|zone| zones.report(*zone).written > 0).unwrap();
        let free = media(&files, &zones).unwrap().tables_free();
        let before = media(&files, &zones).unwrap();
        std::mem::forget(begun(&*before, 1000, 8192));
        std::mem::forget(begun(&*before, 1001, 8192));
        let begun: Vec<u32> = (1..SHAPE.zones).filter(|zone| zones.report(*zone).written == 12288).collect();
        assert_eq!(begun.len(), 2);
        [home, begun[0], begun[1], SHAPE.zones - 1].iter().for_each(|zone| zones.spoil(*zone, 0));
        // Out of use, it need not be freed.
        zones.set_read_only(begun[1]);
        let store = open();
        store.assert_same_from(b"", &model, "with heads that cannot be read");
        store.close().unwrap();
        assert_eq!(media(&files, &zones).unwrap().tables_free(), free - 1, "all but that which is read-only");
        let report = repair(&(media(&files, &zones).unwrap() as Arc<dyn Media>), &env(), &small()).unwrap();
        assert_eq!(report.problems, [""; 0]);
        assert_eq!(found_in(&open(), &model), model.len());
    }
}

#[test]
fn segments_of_a_log_store_in_zones_whose_head_cannot_be_read_count() {
    let (files, zones) = formatted(false, 6);
    let open = || log::open_with(media(&files, &zones).unwrap(), log::small()).unwrap();
    let model = filled(open(), |store| store.close().unwrap());
    hits(&zones, |zone| zones.spoil(zone, 0));
    let report = repair_log(&(media(&files, &zones).unwrap() as Arc<dyn Media>), &env(), &log::small());
    assert_eq!(report.unwrap().problems, [""; 0]);
    let store = open();
    store.assert_same_from(b"", &model, "with heads that cannot be read");
    store.compact().unwrap();
}

/// The only table there is, without a name and an end: it is lost, and its zone is free for another.
#[test]
fn a_table_of_zones_that_nothing_names_is_lost_and_does_not_end_its_store() {
    let (files, zones) = formatted(false, 6);
    let open = || Store::open(media(&files, &zones)?, env(), small());
    let store = open().unwrap();
    store.put(b"k", b"v").unwrap();
    store.compact().unwrap();
    store.close().unwrap();
    hits(&zones, |zone| (0..SHAPE.zone_bytes).step_by(4096).for_each(|unit| zones.spoil(zone, unit)));
    assert!(open().map(drop).unwrap_err().to_string().contains("is missing"));
    let report = repair(&(media(&files, &zones).unwrap() as Arc<dyn Media>), &env(), &small()).unwrap();
    assert_eq!(report.tables_lost, 1, "{report:?}");
    open().unwrap().put(b"k", b"w").unwrap();
    assert_eq!(media(&files, &zones).unwrap().tables_free(), u64::from(SHAPE.zones - 1));
}

#[test]
fn zones_are_formatted_by_force_whatever_of_them_cannot_be_read() {
    let (files, zones) = formatted(false, 6);
    (0..SHAPE.zones).for_each(|zone| zones.spoil(zone, 0));
    assert!(media(&files, &zones).is_ok(), "the label is there twice");
    zones.spoil(0, 4096);
    assert_eq!(media(&files, &zones).map(drop).unwrap_err().kind(), Kind::Io);
    let files = Doubtful::default();
    ZoneMedia::format(&files.directory(), &*zones, "double", [8; 16], true).unwrap();
    let media = ZoneMedia::open(files.directory(), zones).unwrap();
    assert_eq!((media.tables_free(), media.tables().unwrap()), (u64::from(SHAPE.zones - 1), vec![]));
}

/// As when a directory came back from a backup without the file that says where its tables are.
#[test]
fn a_store_whose_tables_are_nowhere_is_not_made_one_without_any() {
    let (files, zones) = formatted(false, 6);
    filled(Store::open(media(&files, &zones).unwrap(), env(), small()).unwrap(), |store| {
        store.close().unwrap()
    });
    let alone: Arc<dyn Media> = files.directory();
    assert!(alone.tables().unwrap().is_empty());
    let error = repair(&alone, &env(), &small()).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported, "{error}");
    assert!(error.to_string().contains("may be on a device"), "{error}");
    assert_eq!(
        repair(&(media(&files, &zones).unwrap() as Arc<dyn Media>), &env(), &small()).unwrap().problems,
        [""; 0]
    );
}

/// What the device has more than it had is not used. One with less has lost tables.
#[test]
fn a_device_of_zones_that_was_extended_opens_and_one_that_was_cut_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let (path, zone_bytes) = (dir.path().join("device"), SHAPE.zone_bytes);
    let device = std::fs::File::create(&path).unwrap();
    device.set_len(20 * zone_bytes).unwrap();
    let files = Doubtful::default();
    let zones = || Arc::new(RawDevice::open(&path, zone_bytes).unwrap());
    ZoneMedia::format(&files.directory(), &*zones(), "device", [7; 16], false).unwrap();
    let media = || ZoneMedia::open(files.directory(), zones());
    let model =
        filled(Store::open(media().unwrap(), env(), small()).unwrap(), |store| store.close().unwrap());
    let free = media().unwrap().tables_free();
    device.set_len(31 * zone_bytes).unwrap();
    assert_eq!(media().unwrap().tables_free(), free);
    let store = Store::open(media().unwrap(), env(), small()).unwrap();
    store.assert_same_from(b"", &model, "extended");
    store.close().unwrap();
    ZoneMedia::move_to(&files.directory(), &*zones(), "device").unwrap();
    device.set_len(19 * zone_bytes).unwrap();
    assert!(media().map(drop).unwrap_err().to_string().contains("is shorter"));
}

/// They are reset when they are taken, or at the next opening; meanwhile they are as open to the device as before.
#[test]
fn zones_that_cannot_be_reset_now_are_not_lost() {
    for keeps_pointers in [false, true] {
        let (files, zones) = formatted(keeps_pointers, 8);
        let all = u64::from(SHAPE.zones - 1);
        let stick = |is_stuck| (1..SHAPE.zones).for_each(|zone| zones.set_stuck(zone, is_stuck));
        let store = media(&files, &zones).unwrap();
        let write = |from: u64| -> Vec<_> { (from..from + 6).map(|n| begun(&*store, n, 8192)).collect() };
        for round in 1..30 {
            let writers = write(round * 10);
            stick(true);
            drop(writers);
            stick(false);
            assert_eq!((store.tables_free(), store.tables().unwrap()), (all, vec![]), "round {round}");
        }
        // The heads are there, and cannot be read; nor can the zones be reset.
        (1..4).for_each(|zone| zones.spoil(zone, 0));
        let before = (1..4).filter(|zone| zones.report(*zone).written > 0).count() as u64;
        stick(true);
        let store = media(&files, &zones).unwrap();
        assert!(before > 0 && store.tables().unwrap().contains(&0));
        store.erase_table(0).unwrap();
        stick(false);
        store.erase_table(0).unwrap();
        store.tables().unwrap().into_iter().for_each(|table| store.erase_table(table).unwrap());
        assert_eq!((store.tables_free(), store.tables().unwrap()), (all, vec![]));
        drop(store);
        let open = || Store::open(media(&files, &zones).unwrap(), env(), small()).unwrap();
        let model = filled(open(), |store| store.close().unwrap());
        let count = || media(&files, &zones).unwrap().tables().unwrap().len();
        let tables = count();
        std::mem::forget(begun(&*media(&files, &zones).unwrap(), 1000, 8192));
        let begun = (1..SHAPE.zones).find(|zone| zones.report(*zone).written == 12288).unwrap();
        zones.spoil(begun, 0);
        zones.set_stuck(begun, true);
        assert_eq!(found_in(&open(), &model), model.len(), "it opens all the same");
        assert_eq!(count(), tables + 1);
        zones.set_stuck(begun, false);
        open().close().unwrap();
        assert_eq!(count(), tables);
    }
}

/// What a repair that comes to nothing erases is what it wrote.
#[test]
fn a_repair_that_finds_no_room_gives_up_no_table_whose_head_cannot_be_read() {
    let (files, zones) = formatted(false, 6);
    let open = || Store::open(media(&files, &zones).unwrap(), env(), small()).unwrap();
    let model = filled(open(), |store| store.close().unwrap());
    let mut homes = Vec::new();
    hits(&zones, |zone| homes.push(zone));
    assert!(homes.len() > 1);
    zones.spoil(homes[0], 0);
    zones.flip_bit(homes[1], 8 * 4096 + 700);
    let mend = || repair(&(media(&files, &zones).unwrap() as Arc<dyn Media>), &env(), &small());
    (files.0.lock().fault, files.0.lock().left) = (Fault::Full, Some(1));
    assert_eq!(mend().unwrap_err().kind(), Kind::NoSpace);
    (files.0.lock().fault, files.0.lock().left) = (Fault::Cut, None);
    let report = mend().unwrap();
    assert!(report.tables_rewritten == 1 && report.entries_lost < 10, "{report:?}");
    assert_eq!(found_in(&open(), &model) as u64, model.len() as u64 - report.entries_lost);
}

/// Nothing but the ends names them.
#[test]
fn without_a_manifest_tables_are_found_whose_heads_cannot_be_read() {
    let (files, zones) = formatted(false, 6);
    let open = || Store::open(media(&files, &zones).unwrap(), env(), small()).unwrap();
    let model = filled(open(), |store| store.close().unwrap());
    hits(&zones, |zone| zones.spoil(zone, 0));
    let report = repair(&lose_manifest(&files, &zones), &env(), &small()).unwrap();
    assert_eq!((report.tables_lost, found_in(&open(), &model)), (0, model.len()), "{report:?}");
}

/// Behind it there are ends of older tables: it may have been finished.
#[test]
fn without_a_manifest_a_table_is_saved_whose_end_cannot_be_read() {
    let (files, zones) = formatted(false, 1);
    let store = Store::open(media(&files, &zones).unwrap(), env(), small()).unwrap();
    let model = wear(&store);
    store.close().unwrap();
    zones.cut_power();
    zones.power_on();
    let left = lose_manifest(&files, &zones);
    hits(&zones, |zone| {
        let mut unit = [0; 4096];
        let mut units = (4096..zones.report(zone).written).step_by(4096);
        let end = units.find(|at| zones.read(zone, *at, &mut unit).is_ok() && unit.starts_with(b"VKZE"));
        zones.spoil(zone, end.unwrap());
    });
    repair(&left, &env(), &small()).unwrap();
    let store = Store::open(media(&files, &zones).unwrap(), env(), small()).unwrap();
    for (key, value) in model {
        assert_eq!(store.get(&key).unwrap(), Some(value));
    }
}

#[test]
fn a_zone_that_takes_no_head_is_passed_by() {
    let (files, zones) = formatted(false, 8);
    let store = media(&files, &zones).unwrap();
    let writer = begun(&*store, 1, 8192);
    let stuck = (1..SHAPE.zones).find(|zone| zones.report(*zone).written > 0).unwrap();
    zones.set_stuck(stuck, true);
    drop(writer);
    (2..u64::from(SHAPE.zones)).for_each(|number| begun(&*store, number, 8192).finish(0).unwrap());
    assert_eq!(store.tables_free(), 1, "it seemed to be free");
    let refused = store.create_table(1000, INTENT).map(drop).unwrap_err();
    assert_eq!((refused.kind(), store.tables_free()), (Kind::Io, 0));
    assert_eq!(store.tables().unwrap(), (0..u64::from(SHAPE.zones)).filter(|n| *n != 1).collect::<Vec<_>>());
    zones.set_stuck(stuck, false);
    store.erase_table(0).unwrap();
    begun(&*store, 1000, 8192).finish(0).unwrap();
}
