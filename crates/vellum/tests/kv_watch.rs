//! `kv stat` of stores that another process has open, wherever they are.

use crate::support::Home;
use serde_json::Value;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum::kv::{AnyStore, Options};

/// Ends the writer when it is dropped, also by a panic: whoever waits for the writer would wait forever.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A path, and what else a store there is opened with.
const PLACES: [(&str, &str); 3] =
    [("s", ""), ("s.flash", "--flash 64MiB"), ("d", "--device device --zone 1MiB")];

/// Makes a store of an engine, and opens it.
fn made(home: &Home, (path, how): (&str, &str), engine: &str) -> AnyStore {
    fs::File::create(home.path("device")).unwrap().set_len(64 << 20).unwrap();
    home.ok(&format!("kv open {path} {how} --engine {engine}"));
    open(home, path, Options::default())
}

fn open(home: &Home, path: &str, options: Options) -> AnyStore {
    AnyStore::open(home.path(path), None, options).unwrap()
}

#[test]
fn stores_in_use_are_watched_wherever_they_are() {
    for (place, engine) in PLACES.iter().flat_map(|place| ["lsm", "log"].map(|engine| (*place, engine))) {
        let (home, path) = (Home::new(), place.0);
        let store = made(&home, place, engine);
        let (mut watcher, first) = home.start(&format!("kv stat {path} --watch"));
        let of = |stat: &Value| {
            ["as_of_manifest", "entries", "unflushed_log_bytes"].map(|field| stat[field].clone())
        };
        assert_eq!(of(&first), [Value::from(true), 0.into(), 0.into()], "{path}, {engine}");
        (0..100u8).for_each(|key| store.map().put(&[key], &[key; 100]).unwrap());
        store.map().sync().unwrap();
        let mut next = |wanted: &dyn Fn(&Value) -> bool| {
            (0..10).map(|_| watcher.next_line().unwrap()).find(wanted).expect("it shows within seconds")
        };
        let logged = next(&|stat| stat["unflushed_log_bytes"].as_u64() >= Some(10_100));
        assert_eq!(logged["entries"], 0, "{logged}");
        store.map().flush().unwrap();
        let flushed = next(&|stat| stat["entries"] == 100);
        assert_eq!(
            (&flushed["unflushed_log_bytes"], &flushed["lifetime"]["flushes"]),
            (&0.into(), &1.into())
        );
        assert_eq!(watcher.interrupt().0, 0);
        assert_eq!(of(&home.json(&format!("kv stat {path}"))), of(&flushed), "{path}, {engine}");
        let said = home.ok(&format!("kv stat {path}"));
        assert!(said.contains("\nin logs, not yet in tables: 0 B\n") && said.contains("  flush "), "{said}");
        store.close().unwrap();
        let closed = home.json(&format!("kv stat {path}"));
        assert!(closed.get("as_of_manifest").is_none() && closed["lifetime"]["flushes"] == 1, "{closed}");
    }
}

#[test]
fn what_a_store_in_use_shows_never_goes_back() {
    for place in PLACES {
        let (home, is_done) = (Home::new(), AtomicBool::new(false));
        made(&home, place, "lsm").close().unwrap();
        let store = open(&home, place.0, Options { memtable_bytes: 256 << 10, ..Options::default() });
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0u32..).take_while(|_| !is_done.load(Relaxed)).for_each(|n| {
                    store.map().put(&(n % 5000).to_be_bytes(), &[n as u8; 200]).unwrap();
                });
            });
            let _ending = Ending(&is_done);
            let mut last = [0; 3];
            for _ in 0..30 {
                let said = home.run(&format!("kv stat {} --json", place.0));
                if said.code == 5 {
                    assert!(said.err.contains("faster than it can be read"), "{}", said.err);
                    continue;
                }
                let stat: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{}", said.err));
                let of = |field: &str| stat["lifetime"][field].as_u64().unwrap();
                let now = [of("user_bytes"), of("flushes"), of("compactions")];
                assert!(stat["unflushed_log_bytes"].is_u64(), "{stat}");
                assert!(
                    now.iter().zip(&last).all(|(now, last)| now >= last),
                    "{}: {last:?} {now:?}",
                    place.0
                );
                last = now;
            }
            assert!(last[1] > 0, "nothing was flushed meanwhile");
        });
        store.close().unwrap();
    }
}

#[test]
fn who_looks_at_an_image_leaves_it_and_its_neighbours_as_they_were() {
    let home = Home::new();
    let store = made(&home, PLACES[1], "lsm");
    (0..100u8).for_each(|key| store.map().put(&[key], &[key; 100]).unwrap());
    store.map().sync().unwrap();
    let image = home.path("s.flash");
    let there = || {
        let files = fs::read_dir(image.parent().unwrap()).unwrap().map(|file| file.unwrap().file_name());
        (fs::read(&image).unwrap(), fs::metadata(&image).unwrap().modified().unwrap(), files.count())
    };
    let before = there();
    home.ok("kv stat s.flash");
    assert!(there() == before);
    store.close().unwrap();
}

#[test]
fn an_image_of_something_else_is_not_watched() {
    let home = Home::new();
    home.ok("disk create d.vellum --size 16MiB");
    home.run("kv stat d.vellum --watch").failed(3, "holds no key-value store");
    fs::write(home.path("thesis"), "text").unwrap();
    home.run("kv stat thesis --watch").failed(2, "not a flash image");
}
