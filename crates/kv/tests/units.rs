//! Units larger than 4 KiB: which there may be, and stores that are opened with others.

use crate::doubtful::Doubtful;
use crate::harness::{Model, Op, apply, assert_same, batch_of, directory, flash, small};
use crate::log::harness::{assert_same as assert_same_log, open_with};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::{Env, Kind, RealEnv, Result};
use vellum_kv::media::{Files, Handle};
use vellum_kv::reason::VALUE_TOO_LONG;
use vellum_kv::{
    Caps, Directory, DirectoryOptions, FlashMedia, Map, Media, Options, Reuse, ReuseOptions, Store, log,
};

fn units_of(unit_bytes: Option<u64>) -> ReuseOptions {
    ReuseOptions { unit_bytes, ..ReuseOptions::default() }
}

/// Of a segment a bubble may take nearly a unit: room for one is kept in each that collecting makes.
#[test]
fn units_are_a_small_part_of_segments() {
    let dir = tempfile::tempdir().unwrap();
    let open = |unit_bytes| {
        let (segment_bytes, unit_bytes) = (128 << 10, Some(unit_bytes));
        let options = log::Options { segment_bytes, reuse: units_of(unit_bytes), ..log::Options::default() };
        let how = DirectoryOptions { table_bytes: 1 << 20 };
        log::Store::open(Directory::open(dir.path(), how).unwrap(), RealEnv::new(), options)
    };
    let error = open(16 << 10).map(drop).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("from 4096 to 8192"), "{error}");
    assert_eq!(open(8 << 10).unwrap().stat().unit_bytes, 8 << 10);
    assert_eq!(open(4 << 10).unwrap().stat().unit_bytes, 4 << 10);
}

/// Where room is short tables are small: an opening that goes well today must not fail when others have filled the
/// file system up.
#[test]
fn units_are_as_large_as_the_room_that_there_is_lets_them_be() {
    for (room_bytes, lsm, log) in [(1 << 30, 65536, 65536), (32 << 20, 32768, 65536), (1 << 20, 8192, 4096)] {
        let unit_bytes = Some(64 << 10);
        let media = || {
            let how = DirectoryOptions { table_bytes: 4 << 20 };
            Directory::on(Arc::new(Crowded(Doubtful::default(), room_bytes)), how)
        };
        let store =
            Store::open(media(), RealEnv::new(), Options { reuse: units_of(unit_bytes), ..small() }).unwrap();
        assert_eq!(store.stat().unit_bytes, lsm, "{room_bytes}");
        let options = log::Options { reuse: units_of(unit_bytes), ..log::Options::default() };
        let store = log::Store::open(media(), RealEnv::new(), options).unwrap();
        assert_eq!(store.stat().unit_bytes, log, "{room_bytes}");
    }
}

/// Segments are as small, and with them values. Who can help that by making room is told so.
#[test]
fn of_values_that_are_too_long_some_would_not_be_with_more_room() {
    let how = DirectoryOptions { table_bytes: 4 << 20 };
    let media: Arc<dyn Media> = Directory::on(Arc::new(Crowded(Doubtful::default(), 32 << 20)), how);
    let store = open_with(media, log::Options::default()).unwrap();
    assert_eq!(store.value_bytes_max(), 128 << 10);
    for (kib, kind) in [(128, None), (200, Some(Kind::NoSpace)), (600, Some(Kind::Invalid))] {
        let error = store.check_value(kib << 10).err();
        assert_eq!(error.as_ref().map(|error| error.kind()), kind, "{kib} KiB");
        assert_eq!(error.and_then(|error| error.reason()), kind.map(|_| VALUE_TOO_LONG), "{kib} KiB");
    }
}

/// A directory with so many bytes of room.
struct Crowded(Doubtful, u64);

impl Files for Crowded {
    fn names(&self) -> Result<Vec<String>> {
        self.0.names()
    }
    fn create(&self, name: &str) -> Result<Arc<dyn Handle>> {
        self.0.create(name)
    }
    fn open(&self, name: &str) -> Result<Arc<dyn Handle>> {
        self.0.open(name)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.0.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.0.rename(from, to)
    }
    fn sync_names(&self) -> Result<()> {
        self.0.sync_names()
    }
    fn room_bytes(&self) -> Option<u64> {
        Some(self.1)
    }
}

/// Tables say what their units are: a store may have tables of several.
#[test]
fn units_may_be_others_at_each_opening() {
    let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut model = Model::new();
    for (turn, unit_bytes) in [Some(16 << 10), None, Some(8192), Some(16 << 10)].into_iter().enumerate() {
        let options = Options { reuse: ReuseOptions { unit_bytes, ..Reuse::Bubbles.into() }, ..small() };
        let store = Store::open(directory(dir.path()), RealEnv::new(), options).unwrap();
        assert_same(&store, &model, "opened with other units");
        for i in (turn as u32 * 500..turn as u32 * 500 + 2000).chain(6000..6040) {
            let op = Op::Put(i.to_be_bytes().to_vec(), vec![(i + turn as u32) as u8; 400]);
            apply(&mut model, std::slice::from_ref(&op));
            store.write(&batch_of(&[op]), Default::default()).unwrap();
        }
        if turn != 2 {
            store.compact().unwrap();
        }
        assert_same(&store, &model, "written");
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
        if turn == 3 {
            let into: Arc<dyn Media> = directory(copy.path());
            store.checkpoint(&into).unwrap();
        }
        store.close().unwrap();
    }
    assert_same(&crate::harness::open(directory(copy.path())).unwrap(), &model, "a copy");
    std::fs::remove_file(dir.path().join("CURRENT")).unwrap();
    let (media, env): (Arc<dyn Media>, Arc<dyn Env>) = (directory(dir.path()), RealEnv::new());
    vellum_kv::repair(&media, &env, &small()).unwrap();
    drop(media);
    assert_same(&crate::harness::open(directory(dir.path())).unwrap(), &model, "repaired");
}

/// Segments do not say: what is kept of them is whole units of whatever size is asked for now.
#[test]
fn units_of_a_log_store_may_be_others_at_each_opening() {
    let (files, nand) = (Doubtful::default(), flash(5));
    let media: [&dyn Fn() -> Arc<dyn Media>; 2] =
        [&|| files.directory(), &|| FlashMedia::open(nand.clone(), RealEnv::new()).unwrap()];
    for media in media {
        let (mut model, mut rng, mut kept) = (Model::new(), SmallRng::seed_from_u64(9), 0);
        for turn in 0..12u32 {
            let unit_bytes = [None, Some(16 << 10), Some(4096), Some(8192)][turn as usize % 4];
            let mode =
                [Reuse::Bubbles, Reuse::Relink, Reuse::Off, Reuse::Auto, Reuse::Relink][turn as usize % 5];
            let caps = Caps { bubble: 1.0, global: 0.3 };
            let reuse = ReuseOptions { mode, caps, unit_bytes, island_bytes_min: Some(0) };
            let options = log::Options { reuse, ..Default::default() };
            let store = open_with(media(), log::Options { segment_bytes: 256 << 10, ..options }).unwrap();
            assert_same_log(&store, &model, "opened with other units");
            let start = rng.random_range(0..2000);
            for n in start..start + 1000 {
                let op = Op::Put(format!("key{n:06}").into_bytes(), vec![turn as u8; 300]);
                apply(&mut model, std::slice::from_ref(&op));
                store.write(&batch_of(&[op]), Default::default()).unwrap();
            }
            if turn % 3 > 0 {
                store.compact().unwrap();
            }
            assert_same_log(&store, &model, "written");
            assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
            kept += store.stat().since_opened.reuse().kept_bytes;
            store.close().unwrap();
        }
        assert!(kept > 512 << 10, "{kept}");
    }
}
