//! Stores on zones: raw devices, zoned devices, and their doubles, which lose power and break.

use crate::doubtful::Doubtful;
use crate::harness::{assert_same, of_seed, repair, skipped, small};
use crate::history::{History, Style};
use crate::lives::{Power, end_at_every_call, live_on, write};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::{Cause, Env, IoClass, Kind, RealEnv, Result, Zones, ZonesShape};
use vellum_kv::media::{Files, Intent, Parallelism, Tables};
use vellum_kv::{Directory, DirectoryOptions, Glance, Map, Media, Store, ZoneMedia};
use vellum_media::zones::{RamZones, RamZonesParams, RawDevice, ZonedDevice};
use vellum_sim::Sim;

pub(crate) const SHAPE: ZonesShape =
    ZonesShape { zones: 60, zone_bytes: 260 << 10, unit_bytes: 4096, open_max: Some(6) };
const STYLE: Style = Style { keys: 500, value_bytes: 900 };

pub(crate) fn double(keeps_pointers: bool, seed: u64) -> Arc<RamZones> {
    let shape = ZonesShape { open_max: SHAPE.open_max.filter(|_| keeps_pointers), ..SHAPE };
    Arc::new(RamZones::new(RamZonesParams { shape, keeps_pointers, seed }))
}

fn directory(files: &Doubtful) -> Arc<Directory> {
    Directory::on(Arc::new(files.clone()), DirectoryOptions::default())
}

/// A directory in memory and a formatted double.
pub(crate) fn formatted(keeps_pointers: bool, seed: u64) -> (Doubtful, Arc<RamZones>) {
    let (files, zones) = (Doubtful::default(), double(keeps_pointers, seed));
    ZoneMedia::format(&directory(&files), &*zones, "double", [7; 16], false).unwrap();
    (files, zones)
}

pub(crate) fn media(files: &Doubtful, zones: &Arc<RamZones>) -> Result<Arc<ZoneMedia>> {
    ZoneMedia::open(directory(files), zones.clone())
}

/// A formatted file, and the directory of its store.
pub(crate) fn on_a_file(dir: &std::path::Path) -> Result<Arc<ZoneMedia>> {
    let path = dir.join("device");
    if !path.exists() {
        std::fs::File::create(&path).unwrap().set_len(60 * SHAPE.zone_bytes).unwrap();
        let zones = RawDevice::open(&path, SHAPE.zone_bytes)?;
        let directory = Directory::open(&dir.join("store"), DirectoryOptions::default())?;
        ZoneMedia::format(&directory, &zones, "device", [7; 16], false)?;
    }
    let directory = Directory::open(&dir.join("store"), DirectoryOptions::default())?;
    let home = ZoneMedia::home_of(&directory)?.unwrap();
    assert_eq!((&home.device[..], home.zone_bytes), ("device", SHAPE.zone_bytes));
    ZoneMedia::open(directory, Arc::new(RawDevice::open(&dir.join(home.device), home.zone_bytes)?))
}

/// It would take for left over what it does not know of, and the original would lose that.
#[test]
fn a_copy_of_the_directory_does_not_open_until_the_tables_are_said_to_be_its() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(on_a_file(dir.path()).unwrap(), RealEnv::new(), small()).unwrap();
    store.put(b"a", b"1").unwrap();
    store.flush().unwrap();
    store.close().unwrap();
    let (original, copy) = (dir.path().join("store"), dir.path().join("copy"));
    std::fs::create_dir(&copy).unwrap();
    for file in std::fs::read_dir(&original).unwrap().map(|file| file.unwrap()) {
        std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    let device = dir.path().join("device");
    let zones = || Arc::new(RawDevice::open(&device, SHAPE.zone_bytes).unwrap());
    let copied = || Directory::open(&copy, DirectoryOptions::default()).unwrap();
    let error = ZoneMedia::open(copied(), zones()).map(|_| ()).unwrap_err();
    assert!(error.kind() == Kind::Unsupported && error.to_string().contains("is a copy of"), "{error}");
    // A directory that was only renamed is none.
    let renamed = dir.path().join("renamed");
    std::fs::rename(&original, &renamed).unwrap();
    ZoneMedia::open(Directory::open(&renamed, DirectoryOptions::default()).unwrap(), zones()).unwrap();
    // Both were copied.
    let twin = dir.path().join("twin");
    std::fs::copy(&device, &twin).unwrap();
    let twin_zones = Arc::new(RawDevice::open(&twin, SHAPE.zone_bytes).unwrap());
    ZoneMedia::move_to(&copied(), &*twin_zones, "twin").unwrap();
    let media = ZoneMedia::open(copied(), twin_zones).unwrap();
    let store = Store::open(media, RealEnv::new(), small()).unwrap();
    assert_eq!(store.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(ZoneMedia::home_of(&Directory::look(&copy).unwrap()).unwrap().unwrap().device, "twin");
    // A device of another store is none of its.
    let other = double(false, 9);
    ZoneMedia::format(&directory(&Doubtful::default()), &*other, "other", [8; 16], false).unwrap();
    store.close().unwrap();
    assert_eq!(ZoneMedia::move_to(&copied(), &*other, "other").unwrap_err().kind(), Kind::Corrupt);
}

/// Nothing else says on which device the tables are; they themselves do.
#[test]
fn a_lost_file_zones_is_written_anew_for_the_device_that_has_all_tables() {
    let (files, zones) = formatted(false, 11);
    let store = Store::open(media(&files, &zones).unwrap(), RealEnv::new(), small()).unwrap();
    for round in 0..3 {
        (0..300u32).for_each(|n| store.put(&n.to_be_bytes(), &[round; 900]).unwrap());
        store.flush().unwrap();
    }
    store.close().unwrap();
    let restore = |zones: &RamZones, tables: &[(u64, u64)]| {
        ZoneMedia::restore(&directory(&files), zones, "double", tables)
    };
    let blank = double(false, 12);
    let (_, of_another) = formatted(false, 13);
    let lose: [fn(&Doubtful) -> Result<()>; 2] =
        [|files| files.remove("ZONES"), |files| files.write("ZONES", 3, b"garbage")];
    for lose in lose {
        // An opening may merge some.
        let tables = Glance::of(&*directory(&files)).unwrap().unwrap().tables;
        assert!(!tables.is_empty());
        // The number and the bytes of another table, or no table where there are some.
        let (mut other, mut longer) = (tables.clone(), tables.clone());
        other[0].0 += 1000;
        longer[0].1 += 4096;
        let huge = [(tables[0].0, u64::MAX)];
        lose(&files).unwrap();
        assert!(media(&files, &zones).is_err());
        for wrong in [&other[..], &longer, &huge, &[]] {
            assert_eq!(restore(&zones, wrong).unwrap_err().kind(), Kind::Corrupt);
        }
        for device in [&blank, &of_another] {
            assert_eq!(restore(device, &tables).unwrap_err().kind(), Kind::Corrupt);
        }
        restore(&zones, &tables).unwrap();
        let store = Store::open(media(&files, &zones).unwrap(), RealEnv::new(), small()).unwrap();
        assert!((0..300u32).all(|n| store.get(&n.to_be_bytes()).unwrap() == Some(vec![2; 900])));
        store.close().unwrap();
    }
}

impl Power for (Doubtful, Arc<RamZones>) {
    fn is_off(&self) -> bool {
        self.0.is_off() || self.1.is_off()
    }
    fn cycle(&self, rng: &mut SmallRng) {
        self.1.cut_power();
        self.0.cycle(rng);
        self.1.power_on();
    }
    fn arm_for_recovery(&self, rng: &mut SmallRng) {
        match rng.random_range(0..4) {
            0 => self.0.0.lock().left = Some(rng.random_range(1..12)),
            1 => self.1.power_cut_at(rng.random_range(1..6)),
            _ => {}
        }
    }
    fn arm(&self, rng: &mut SmallRng) {
        match rng.random() {
            true => self.0.arm(rng),
            false => self.1.power_cut_at(rng.random_range(1..40)),
        }
    }
    fn disarm(&self) {
        self.0.disarm();
        self.1.disarm();
    }
}

/// The power goes at the `nth` call of the directory or of the device, and then of both. True if it went.
fn life(seed: u64, steps: usize, nth: u64, of_device: bool) -> bool {
    let context =
        format!("seed {seed}, cut at call {nth} of the {}", ["directory", "device"][of_device as usize]);
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    let power = formatted(seed.is_multiple_of(2), seed);
    let (files, zones) = &power;
    let (mut history, mut rng) = (History::default(), SmallRng::seed_from_u64(seed ^ nth << 32));
    let open = || Store::open(media(files, zones)?, env.clone(), of_seed(seed));
    sim.run(|| {
        match of_device {
            true => zones.power_cut_at(nth),
            false => files.0.lock().left = Some(nth),
        }
        if let Ok(store) = open() {
            write(&store, &mut history, &mut rng, steps, &STYLE);
        }
        let cut = power.is_off();
        live_on(&power, open, &mut history, &mut rng, &STYLE, &context);
        cut
    })
}

#[test]
fn a_cut_at_every_call_of_the_device() {
    // Ten memtables fill, and each takes five calls to become a table: its head, its entries, its end, finish, sync.
    end_at_every_call(0..4, 50, |seed, nth| life(seed, 1500, nth, true));
}

/// What it has changed on the device when it is cut short is not taken for somebody's, and the directory tells of it.
#[test]
fn a_formatting_that_was_cut_short_can_be_repeated() {
    let life = |seed: u64, nth: u64, of_device: bool| {
        let power = (Doubtful::default(), double(seed.is_multiple_of(2), seed));
        let (files, zones) = &power;
        let format = |id: u8| ZoneMedia::format(&directory(files), &**zones, "double", [id; 16], false);
        match of_device {
            true => zones.power_cut_at(nth),
            false => files.0.lock().left = Some(nth),
        }
        let is_cut = format(7).is_err();
        power.cycle(&mut SmallRng::seed_from_u64(seed ^ nth << 32));
        let is_changed = (0..SHAPE.zones).any(|zone| zones.report(zone).written > 0);
        let is_told = files.names().unwrap().iter().any(|name| name == "ZONES");
        assert!(is_told || !is_changed, "seed {seed}, call {nth}: {:?}", files.names());
        // Another directory may not take it.
        let other = ZoneMedia::format(&directory(&Doubtful::default()), &**zones, "double", [9; 16], false);
        assert_eq!(other.map_err(|error| error.kind()), if is_changed { Err(Kind::Invalid) } else { Ok(()) });
        if is_changed {
            // Cut short again, as the device is made blank, or gets its label.
            zones.power_cut_at(1 + (seed + nth) % 6);
            let _ = format(8);
            power.cycle(&mut SmallRng::seed_from_u64(seed ^ nth << 16));
            format(10).unwrap_or_else(|error| panic!("seed {seed}, call {nth}: {error}"));
            let store = Store::open(media(files, zones).unwrap(), RealEnv::new(), small()).unwrap();
            store.put(b"a", b"1").unwrap();
            store.close().unwrap();
            assert_eq!(format(9).unwrap_err().kind(), Kind::Invalid, "there is a store now");
        }
        is_cut
    };
    for of_device in [true, false] {
        end_at_every_call(0..8, 2, |seed, nth| life(seed, nth, of_device));
    }
}

#[test]
fn cuts_at_random_calls_of_long_lives() {
    vellum_sim::check(0..160, |seed| {
        let (of_device, calls) = if seed % 4 < 2 { (true, 90) } else { (false, 3000) };
        life(seed, 3000, 1 + seed * 7919 % calls, of_device);
    });
}

#[test]
fn each_unit_of_the_device_flipped_in_turn() {
    for keeps_pointers in [true, false] {
        let fill = || {
            let (files, zones) = formatted(keeps_pointers, 5);
            let store = Store::open(media(&files, &zones).unwrap(), RealEnv::new(), small()).unwrap();
            let model = crate::rot::fill(store);
            (files, zones, model)
        };
        let (_, zones, _) = fill();
        let (mut seen, mut units) = (0, 0);
        let used: Vec<u32> = (0..SHAPE.zones).filter(|zone| zones.report(*zone).written > 0).collect();
        for zone in used {
            for unit in 0..SHAPE.zone_bytes / 4096 {
                let (files, zones, model) = fill();
                let bit = [300, 3, 8 * 2000 + 6, 8 * 4095 + 7][(unit % 4) as usize];
                zones.flip_bit(zone, unit * 4096 * 8 + bit);
                let open = || Store::open(media(&files, &zones)?, RealEnv::new(), small());
                let context = format!("unit {unit} of zone {zone}");
                seen += crate::rot::noticed(open, &model, &context) as u32;
                units += 1;
            }
        }
        assert!(units > 30 && seen > units / 8, "{seen} of {units} noticed");
    }
}

/// Each ingest that is not finished keeps a zone open.
#[test]
fn more_tables_at_once_than_zones_may_be_open_are_refused_and_nothing_fails() {
    let (files, zones) = formatted(true, 10);
    let store = Store::open(media(&files, &zones).unwrap(), RealEnv::new(), small()).unwrap();
    let mut ingests = Vec::new();
    let begin = || {
        let mut ingest = store.ingest().unwrap();
        ingest.put(b"k", b"v").map(|()| ingest)
    };
    let refused = loop {
        match begin() {
            Ok(ingest) => ingests.push(ingest),
            Err(error) => break error,
        }
    };
    assert_eq!((ingests.len() as u32, refused.kind()), (SHAPE.open_max.unwrap(), Kind::NoSpace), "{refused}");
    store.put(b"other", b"v").unwrap();
    assert_eq!(store.flush().unwrap_err().kind(), Kind::NoSpace);
    ingests.pop().unwrap().finish().unwrap();
    drop(ingests);
    store.flush().unwrap();
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    assert!(store.verify().unwrap().problems.is_empty());
}

/// Zones that were being written when the power went are as open to the device as any.
#[test]
fn a_store_is_repaired_though_as_many_zones_were_left_open_as_may_be() {
    let (files, zones) = formatted(true, 10);
    let store = Store::open(media(&files, &zones).unwrap(), RealEnv::new(), small()).unwrap();
    store.put(b"k", b"v").unwrap();
    store.close().unwrap();
    let before = media(&files, &zones).unwrap();
    for table in 0..SHAPE.open_max.unwrap() as u64 {
        let intent =
            Intent { cause: Cause::Flush, class: IoClass::Background, parallelism: Parallelism::Full };
        let mut writer = before.create_table(1000 + table, intent).unwrap();
        writer.append(&[7; 8192]).unwrap();
        std::mem::forget(writer);
    }
    let left: Arc<dyn Media> = media(&files, &zones).unwrap();
    left.create_area(vellum_kv::media::Area::manifest(999)).unwrap().append(0, b"damaged").unwrap();
    let mut current = left.current().unwrap().unwrap();
    current[4] ^= 1;
    left.set_current(&current).unwrap();
    let env: Arc<dyn Env> = RealEnv::new();
    repair(&left, &env, &small()).unwrap();
    let store = Store::open(media(&files, &zones).unwrap(), env, small()).unwrap();
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    assert!(store.verify().unwrap().problems.is_empty());
}

/// An ingest of one life is given up, and the power goes in the next, which gives its table's number to another.
#[test]
fn a_number_that_was_given_up_does_not_come_back_beside_the_one_that_has_it_now() {
    for (seed, keeps_pointers) in (0..30).flat_map(|seed| [(seed, true), (seed, false)]) {
        let (files, zones) = formatted(keeps_pointers, seed);
        let open = || Store::open(media(&files, &zones)?, RealEnv::new(), small());
        let ingest = |store: &Store| {
            let mut ingest = store.ingest().unwrap();
            (0..40u32).for_each(|n| ingest.put(&n.to_be_bytes(), &[1; 1000]).unwrap());
        };
        let store = open().unwrap();
        for value in [b"v", b"w"] {
            store.put(b"precious", value).unwrap();
            store.flush().unwrap();
        }
        store.close().unwrap();
        let store = open().unwrap();
        store.compact().unwrap();
        ingest(&store);
        store.close().unwrap();
        let store = open().unwrap();
        let mut begun = store.ingest().unwrap();
        (0..40u32).for_each(|n| begun.put(&n.to_be_bytes(), &[1; 1000]).unwrap());
        zones.cut_power();
        drop(begun);
        drop(store);
        zones.power_on();
        let store = open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(store.get(b"precious").unwrap().as_deref(), Some(&b"w"[..]), "seed {seed}");
    }
}

#[test]
fn a_zone_that_turns_read_only_is_left_alone() {
    let (files, zones) = formatted(true, 9);
    let store = Store::open(media(&files, &zones).unwrap(), RealEnv::new(), small()).unwrap();
    let mut model = crate::harness::Model::new();
    let put = |store: &Store, model: &mut crate::harness::Model, from: u32| {
        for n in from..from + 600 {
            store.put(&n.to_be_bytes(), &[n as u8; 500]).unwrap();
            model.insert(n.to_be_bytes().into(), vec![n as u8; 500]);
        }
        store.flush().unwrap();
    };
    put(&store, &mut model, 0);
    // One with a table, one that is free.
    let home = (1..SHAPE.zones).find(|zone| zones.report(*zone).written > 0).unwrap();
    zones.set_read_only(home);
    store.close().unwrap();
    zones.set_read_only(SHAPE.zones - 1);
    let store = Store::open(media(&files, &zones).unwrap(), RealEnv::new(), small()).unwrap();
    put(&store, &mut model, 300);
    store.compact().unwrap();
    assert_same(&store, &model, "with zones out of use");
    store.close().unwrap();
    assert_eq!(zones.report(SHAPE.zones - 1).written, 0);
}

#[test]
fn foreign_and_wrong_devices_are_refused_before_anything_is_written() {
    let files = Doubtful::default();
    let used = double(true, 1);
    used.write(3, 0, &[1; 4096]).unwrap();
    let refused = ZoneMedia::format(&directory(&files), &*used, "d", [1; 16], false).unwrap_err();
    assert!(refused.to_string().contains("not blank"), "{refused}");
    ZoneMedia::format(&directory(&files), &*used, "d", [1; 16], true).unwrap();
    Store::open(media(&files, &used).unwrap(), RealEnv::new(), small()).unwrap().close().unwrap();
    let again = ZoneMedia::format(&directory(&files), &*used, "d", [1; 16], true).unwrap_err();
    assert!(again.to_string().contains("already"), "{again}");

    let (_, other) = formatted(true, 1);
    for wrong in [other, double(true, 2)] {
        let before = wrong.written_bytes();
        let error = media(&files, &wrong).map(drop).unwrap_err();
        assert!(error.to_string().contains("is not the device"), "{error}");
        assert_eq!(wrong.written_bytes(), before);
    }

    let dir = tempfile::tempdir().unwrap();
    drop(on_a_file(dir.path()).unwrap());
    let cut_otherwise = Arc::new(RawDevice::open(&dir.path().join("device"), 1 << 20).unwrap());
    let store = Directory::open(&dir.path().join("store"), DirectoryOptions::default()).unwrap();
    assert!(ZoneMedia::open(store, cut_otherwise).map(drop).unwrap_err().to_string().contains("other zones"));
    let first = on_a_file(dir.path()).unwrap();
    assert_eq!(on_a_file(dir.path()).map(drop).unwrap_err().kind(), Kind::Busy);
    drop(first);
}

/// The kernel's emulated zoned device, where there is one.
#[test]
fn a_store_on_the_kernels_zoned_device() {
    let is_zoned = |name: &str| {
        let zoned = std::fs::read_to_string(format!("/sys/class/block/{name}/queue/zoned"));
        zoned.is_ok_and(|zoned| zoned.trim() == "host-managed")
    };
    let Some(name) = (0..8).map(|n| format!("nullb{n}")).find(|name| is_zoned(name)) else {
        skipped("no zoned null_blk device (modprobe null_blk zoned=1 zone_size=4 gb=1)");
        return;
    };
    let device = std::path::Path::new("/dev").join(name);
    let dir = tempfile::tempdir().unwrap();
    let open_directory = || Directory::open(dir.path(), DirectoryOptions::default()).unwrap();
    let zones = ZonedDevice::open(&device).unwrap();
    ZoneMedia::format(&open_directory(), &zones, "null_blk", [7; 16], true).unwrap();
    drop(zones);
    crate::model::history(31, 8_000, || {
        ZoneMedia::open(open_directory(), Arc::new(ZonedDevice::open(&device).unwrap())).unwrap()
    });
}
