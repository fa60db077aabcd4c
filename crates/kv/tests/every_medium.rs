//! The suite that every medium passes: whatever tables and logs are on, a store is the same. What a medium can do
//! wrong, and how its power goes, is tested beside it (`crash`, `files`, `image`, `zones`).

use crate::doubtful::Doubtful;
use crate::harness::{Model, assert_same, directory, flash, forward, repair, small};
use crate::model::history;
use crate::{image, zones};
use std::sync::Arc;
use vellum_base::{Env, Kind, RealEnv};
use vellum_kv::media::Schedule;
use vellum_kv::{Batch, Bounds, Durability, FlashMedia, Map, Media, Options, Store};

/// A medium that was made, and is opened as often as one likes.
struct Medium {
    name: &'static str,
    open: Box<dyn Fn() -> Arc<dyn Media>>,
}

impl Medium {
    fn store(&self) -> Store {
        self.store_with(small())
    }

    fn store_with(&self, options: Options) -> Store {
        Store::open((self.open)(), RealEnv::new(), options).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }
}

/// One of each kind. All but a directory of the system's have room for about 15 MiB.
fn media(seed: u64) -> Vec<Medium> {
    let one = |name, open| Medium { name, open };
    let (nand, queued) = (flash(seed), flash(seed));
    let schedule = if seed.is_multiple_of(2) { Schedule::Priority } else { Schedule::Noop };
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let (plain, raw) = (dir.clone(), dir.clone());
    let path = dir.path().join("image");
    image::make(&path, 1 << 20);
    let few = Doubtful::default();
    few.0.lock().room = Some(16 << 20);
    let ([files, forgetful_files], [zoned, forgetful]) = {
        let [a, b] = [true, false].map(|keeps_pointers| zones::formatted(keeps_pointers, seed));
        ([a.0, b.0], [a.1, b.1])
    };
    vec![
        one("flash", Box::new(move || FlashMedia::open(nand.clone(), RealEnv::new()).unwrap())),
        one(
            "flash behind queues",
            Box::new(move || FlashMedia::open_scheduled(queued.clone(), RealEnv::new(), schedule).unwrap()),
        ),
        one("a flash image", Box::new(move || image::media(&path, false).unwrap())),
        one("a directory", Box::new(move || directory(&plain.path().join("plain")))),
        one("a small file system", Box::new(move || few.directory())),
        one("a raw file", Box::new(move || zones::on_a_file(raw.path()).unwrap())),
        one("zones", Box::new(move || zones::media(&files, &zoned).unwrap())),
        one("zones without pointers", Box::new(move || zones::media(&forgetful_files, &forgetful).unwrap())),
    ]
}

fn on_every_medium(test: impl Fn(&Medium)) {
    media(5).iter().for_each(test);
}

fn key(n: u32) -> Vec<u8> {
    format!("key{n:06}").into_bytes()
}

/// Numbered keys, some of them overwritten and deleted; levels of several tables.
fn fill(store: &Store) -> Model {
    let mut model = Model::new();
    for n in 0..6000 {
        let (key, value) = (key(n * 7 % 2500), vec![n as u8; 60 + n as usize % 500]);
        match n % 11 {
            0 => {
                store.delete(&key).unwrap();
                model.remove(&key);
            }
            _ => {
                store.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
    }
    model
}

#[test]
fn a_store_is_an_ordered_map_and_opening_it_writes_nothing() {
    vellum_sim::check(0..3, |seed| {
        for (nth, medium) in media(seed).iter().enumerate() {
            history(10 * seed + nth as u64, 9_000, &medium.open);
            let media = (medium.open)();
            Store::open(media.clone(), RealEnv::new(), small()).unwrap().close().unwrap();
            assert_eq!(media.ledger().programmed_total(), 0, "{}", medium.name);
        }
    });
}

#[test]
fn what_was_buffered_survives_a_store_that_is_not_closed() {
    on_every_medium(|medium| {
        let store = medium.store();
        let mut model = fill(&store);
        drop(store);
        for round in 0..20 {
            let store = medium.store();
            assert_same(&store, &model, medium.name);
            store.put(&key(round), b"a short life").unwrap();
            model.insert(key(round), b"a short life".to_vec());
        }
    });
}

#[test]
fn a_store_that_is_only_read_answers_and_writes_nothing() {
    on_every_medium(|medium| {
        let model = fill(&medium.store());
        let media = (medium.open)();
        let options = Options { read_only: true, ..small() };
        let store = Store::open(media.clone(), RealEnv::new(), options).unwrap();
        assert_same(&store, &model, medium.name);
        assert_eq!(store.put(b"k", b"v").unwrap_err().kind(), Kind::Invalid, "{}", medium.name);
        assert!(store.compact().is_err() && store.flush().is_err(), "{}", medium.name);
        store.close().unwrap();
        assert_eq!(media.ledger().programmed_total(), 0, "{}", medium.name);
    });
}

#[test]
fn snapshots_and_iterators_stay_while_all_below_them_is_merged() {
    on_every_medium(|medium| {
        let store = medium.store();
        let then = fill(&store);
        let (snapshot, iter) = (store.snapshot(), store.iter(Bounds::all()).unwrap());
        (0..2500).for_each(|n| store.put(&key(n), b"after").unwrap());
        store.compact().unwrap();
        assert!(forward(iter).unwrap() == then, "{}", medium.name);
        assert!(forward(snapshot.iter(Bounds::all()).unwrap()).unwrap() == then, "{}", medium.name);
        drop(snapshot);
        let now = forward(store.iter(Bounds::all()).unwrap()).unwrap();
        assert!(now.len() == 2500 && now.values().all(|value| value == b"after"), "{}", medium.name);
    });
}

#[test]
fn batches_across_keyspaces_are_there_whole_until_a_keyspace_is_dropped() {
    on_every_medium(|medium| {
        let store = medium.store();
        let (left, right) = (store.create_keyspace("left").unwrap(), store.create_keyspace("right").unwrap());
        for n in 0..3000 {
            let mut batch = Batch::new();
            batch.put(&key(n), b"plain").unwrap();
            batch.put_in(&left, &key(n), &[n as u8; 200]).unwrap();
            batch.put_in(&right, &key(n), &[n as u8; 100]).unwrap();
            store.write(&batch, Durability::Buffered).unwrap();
        }
        drop((left, right, store));
        let store = medium.store();
        store.drop_keyspace("left").unwrap();
        store.compact().unwrap();
        store.close().unwrap();
        let store = medium.store();
        let right = store.keyspace("right").unwrap();
        assert!(store.keyspace("left").is_err(), "{}", medium.name);
        assert_eq!(right.get(&key(77)).unwrap().as_deref(), Some(&[77; 100][..]), "{}", medium.name);
        assert_eq!(store.get(&key(77)).unwrap().as_deref(), Some(&b"plain"[..]), "{}", medium.name);
        let entries: u64 = store.stat().levels.iter().map(|level| level.entries).sum();
        assert_eq!(entries, 6000, "{}", medium.name);
    });
}

#[test]
fn sorted_data_is_ingested_at_once() {
    on_every_medium(|medium| {
        let store = medium.store();
        let mut model = fill(&store);
        let mut ingest = store.ingest().unwrap();
        for n in 1000..4000 {
            ingest.put(&key(n), &[n as u8; 300]).unwrap();
            model.insert(key(n), vec![n as u8; 300]);
        }
        assert_eq!(ingest.finish().unwrap().entries, 3000, "{}", medium.name);
        assert_same(&store, &model, medium.name);
        drop(store);
        assert_same(&medium.store(), &model, medium.name);
    });
}

#[test]
fn a_checkpoint_goes_from_every_medium_to_every_other() {
    on_every_medium(|from| {
        let store = from.store();
        let model = fill(&store);
        for into in media(6) {
            let context = format!("from {} to {}", from.name, into.name);
            let copy = (into.open)();
            store.checkpoint(&copy).unwrap_or_else(|e| panic!("{context}: {e}"));
            drop(copy);
            let copy = into.store();
            assert_same(&copy, &model, &context);
            copy.put(b"only", b"here").unwrap();
            assert_eq!(copy.verify().unwrap().problems, Vec::<String>::new(), "{context}");
        }
        assert_same(&store, &model, from.name);
    });
}

#[test]
fn a_store_whose_current_is_damaged_is_refused_and_repaired() {
    on_every_medium(|medium| {
        let store = medium.store();
        let model = fill(&store);
        store.close().unwrap();
        let (media, env) = ((medium.open)(), RealEnv::new() as Arc<dyn Env>);
        let mut current = media.current().unwrap().unwrap();
        current[4] ^= 1;
        media.set_current(&current).unwrap();
        let refused = Store::open(media.clone(), env.clone(), small()).map(drop).unwrap_err();
        assert_eq!(refused.kind(), Kind::Corrupt, "{}: {refused}", medium.name);
        repair(&media, &env, &small()).unwrap_or_else(|e| panic!("{}: {e}", medium.name));
        drop(media);
        let store = medium.store();
        assert_same(&store, &model, medium.name);
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new(), "{}", medium.name);
    });
}

/// A directory of the system's has room for all of it.
#[test]
fn a_full_medium_refuses_and_goes_on_when_something_is_deleted() {
    for medium in media(5).into_iter().filter(|medium| medium.name != "a directory") {
        let store = medium.store();
        let put = |n: u32| store.put(&key(n), &[n as u8; 900]);
        let (full, error) = (0..40_000).find_map(|n| Some((n, put(n).err()?))).expect(medium.name);
        assert_eq!(error.kind(), Kind::NoSpace, "{}: {error}", medium.name);
        for n in 0..full {
            assert_eq!(store.get(&key(n)).unwrap().as_deref(), Some(&[n as u8; 900][..]), "{}", medium.name);
        }
        for n in (0..full).step_by(2) {
            store.delete(&key(n)).unwrap_or_else(|e| panic!("{}: {e}", medium.name));
        }
        store.compact().unwrap();
        for n in (0..1000).step_by(2) {
            store.put(&key(n), b"again").unwrap_or_else(|e| panic!("{}: {e}", medium.name));
        }
        store.close().unwrap();
        let found = forward(medium.store().iter(Bounds::all()).unwrap()).unwrap();
        assert_eq!(found.len(), full as usize / 2 + 500, "{}", medium.name);
    }
}
