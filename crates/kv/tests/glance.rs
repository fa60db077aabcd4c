//! What is seen of a store that somebody else has open: no figure goes back, and nothing is locked or changed.

use crate::harness::{directory, small};
use crate::image;
use crate::log::harness as of_log;
use crate::zones::on_a_file;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::{Kind, RealEnv, Result};
use vellum_kv::{Directory, Glance, Glanced, Map, Media, Store};
use vellum_media::image::Image;

/// A medium of a store in `home`, and where another process looks at it.
type Medium = (&'static str, fn(&Path) -> Arc<dyn Media>, fn(&Path) -> Result<Option<Glance>>);

const MEDIA: [Medium; 3] = [
    ("directory", |home| directory(&home.join("store")), in_directory),
    ("device", |home| on_a_file(home).unwrap(), in_directory),
    ("image", made_image, |home| Glance::of_nvram(&Image::nvram(&home.join("image"))?)),
];

fn in_directory(home: &Path) -> Result<Option<Glance>> {
    Glance::of(&*Directory::look(&home.join("store"))?)
}

fn made_image(home: &Path) -> Arc<dyn Media> {
    let path = home.join("image");
    if !path.exists() {
        image::make(&path, 1 << 20);
    }
    image::media(&path, false).unwrap()
}

/// Opens a store in a directory.
type Opening = Box<dyn Fn(&Path) -> Box<dyn Map + Sync>>;

/// Both engines, small.
fn stores(media: fn(&Path) -> Arc<dyn Media>) -> [Opening; 2] {
    let lsm = move |home: &Path| Store::open(media(home), RealEnv::new(), small()).unwrap();
    let log = move |home: &Path| of_log::open_with(media(home), of_log::small()).unwrap();
    [Box::new(move |home| Box::new(lsm(home))), Box::new(move |home| Box::new(log(home)))]
}

/// Overwrites keys until it is told to end; syncs some.
fn overwrite(store: &(dyn Map + Sync), is_done: &AtomicBool) {
    for n in 0u32.. {
        if is_done.load(Relaxed) {
            return;
        }
        store.put(&(n.wrapping_mul(0x9E37_79B1) % 400).to_be_bytes(), &[n as u8; 500]).unwrap();
        if n % 1000 < 100 {
            store.sync().unwrap();
        }
    }
}

/// Ends the writer when it is dropped, also by a panic: whoever waits for the writer would wait forever.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// What never goes back; and what does not while the manifest says the same.
fn figures(glance: &Glance) -> ([u64; 5], u64) {
    let lifetime = &glance.lifetime;
    let counters = [
        lifetime.user_bytes(),
        lifetime.written_bytes() + lifetime.nvram_bytes(),
        lifetime.flushes(),
        lifetime.compactions(),
        lifetime.stalls().0,
    ];
    (counters, glance.unflushed_log_bytes.unwrap())
}

#[test]
fn figures_of_a_store_in_use_never_go_back() {
    for (name, media, look) in MEDIA {
        for store in stores(media) {
            let home = tempfile::tempdir().unwrap();
            let store = store(home.path());
            let is_done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let _ending = Ending(&is_done);
                let writer = scope.spawn(|| overwrite(&*store, &is_done));
                let (mut last, mut edits, mut moved) = (([0; 5], 0), 0, 0);
                while (edits < 30 || moved < 30) && !writer.is_finished() {
                    let now = figures(&look(home.path()).unwrap().unwrap());
                    let is_same = now.0 == last.0;
                    assert!(
                        now.0.iter().zip(&last.0).all(|(now, last)| now >= last),
                        "{name}: {last:?} {now:?}"
                    );
                    assert!(!is_same || now.1 >= last.1, "{name}: {last:?} {now:?}");
                    edits += u32::from(!is_same);
                    moved += u32::from(is_same && now.1 > last.1);
                    last = now;
                }
                assert!(edits >= 30 && moved >= 30, "{name}: the writer ended");
            });
        }
    }
}

#[test]
fn what_logs_hold_is_counted_until_it_is_in_tables() {
    for (name, media, look) in MEDIA {
        for store in stores(media) {
            let home = tempfile::tempdir().unwrap();
            let store = store(home.path());
            let unflushed = || look(home.path()).unwrap().unwrap().unflushed_log_bytes.unwrap();
            assert_eq!(unflushed(), 0, "{name}");
            for round in 1..=10 {
                store.put(b"key", &[7; 1000]).unwrap();
                store.sync().unwrap();
                let least = round * 1003;
                assert!((least..least + round * 100).contains(&unflushed()), "{name}: {}", unflushed());
            }
            store.flush().unwrap();
            let glance = look(home.path()).unwrap().unwrap();
            assert_eq!((glance.unflushed_log_bytes, glance.tables.len()), (Some(0), 1), "{name}");
            match glance.held {
                Glanced::Lsm { levels, .. } => assert!(levels[0].tables + levels[1].tables == 1),
                Glanced::Log { segments, .. } => assert_eq!(segments, 1),
            }
        }
    }
}

#[test]
fn a_look_at_an_image_locks_and_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("image");
    let open = || Store::open(made_image(home.path()), RealEnv::new(), small()).unwrap();
    let store = open();
    (0..2000u32).for_each(|n| store.put(&n.to_be_bytes(), &[n as u8; 100]).unwrap());
    store.sync().unwrap();
    store.close().unwrap();
    // Closed, and as a killed process leaves it: an opening would write that anew.
    let store = open();
    store.put(b"later", b"1").unwrap();
    let killed = std::fs::read(&path).unwrap();
    store.close().unwrap();
    for bytes in [std::fs::read(&path).unwrap(), killed] {
        std::fs::write(&path, &bytes).unwrap();
        let changed = std::fs::metadata(&path).unwrap().modified().unwrap();
        let glance = Glance::of_nvram(&Image::nvram(&path).unwrap()).unwrap().unwrap();
        assert!(glance.lifetime.user_bytes() > 0);
        assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), changed);
        assert!(std::fs::read(&path).unwrap() == bytes);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1, "no other file");
    }
}

#[test]
fn a_damaged_nvram_is_told_and_none_is_no_store() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(made_image(home.path()), RealEnv::new(), small()).unwrap();
    (0..1500u32).for_each(|n| store.put(&n.to_be_bytes(), &[n as u8; 100]).unwrap());
    store.close().unwrap();
    let nvram = Image::nvram(&home.path().join("image")).unwrap();
    assert!(Glance::of_nvram(&nvram).unwrap().is_some());
    for length in [0, 3, 4, 31, 32, 4095] {
        assert!(Glance::of_nvram(&nvram[..length]).unwrap().is_none(), "{length} bytes");
    }
    for length in [4096, 65_536] {
        assert_eq!(Glance::of_nvram(&nvram[..length]).unwrap_err().kind(), Kind::Corrupt, "{length} bytes");
    }
    // All of the heads and manifests, some of the logs.
    let written = (0..nvram.len()).filter(|at| nvram[*at] != 0 && (*at < 132 << 10 || at % 37 == 0));
    let (mut damaged, mut refused) = (nvram.clone(), 0);
    for at in written {
        damaged[at] ^= 1 << (at % 8);
        match Glance::of_nvram(&damaged) {
            Ok(_) => {}
            Err(error) => {
                assert!([Kind::Corrupt, Kind::Unsupported].contains(&error.kind()), "byte {at}: {error}");
                refused += 1;
            }
        }
        damaged[at] = nvram[at];
    }
    assert!(refused > 10, "{refused} were refused");
}
