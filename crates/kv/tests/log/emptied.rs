//! Whatever was done to a medium until it is full, what is in it is what was put there, and all of it can be deleted
//! again.

use super::harness::of_seed;
use crate::doubtful::Doubtful;
use crate::harness::{Compared, Model, flash_with, scattered};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::{Env, Kind, RealEnv, Result, ZonesShape};
use vellum_kv::log::Store;
use vellum_kv::{Batch, Durability, FlashMedia, Map, Media, Reuse, ZoneMedia};
use vellum_media::nand::NandParams;
use vellum_media::zones::{RamZones, RamZonesParams};
use vellum_sim::Sim;

const KEYS: u32 = 3000;
const KEYS_SHORT: u32 = 8000;

/// Beside long values a third of the keys are long, too; else records are short, and hints as long as they.
fn key(n: u32, value_bytes_max: usize) -> Vec<u8> {
    let more = if n.is_multiple_of(3) && value_bytes_max >= 1000 { n as usize % 3000 } else { 0 };
    [&scattered(n)[..], &vec![n as u8; more]].concat()
}

/// A store that is opened again and again.
struct Lives<'a> {
    media: &'a dyn Fn() -> Arc<dyn Media>,
    env: Arc<dyn Env>,
    rng: SmallRng,
    store: Option<Store>,
    value_bytes_max: usize,
    model: Model,
}

impl Lives<'_> {
    fn open(&mut self) -> &Store {
        let (media, env) = (self.media, self.env.clone());
        let mut options = of_seed(self.rng.random_range(0..1000));
        options.segment_bytes = 64 << self.rng.random_range(10..13);
        // Turned on and off it may share so much that there is room for no step (decision 24).
        options.reuse.mode =
            if options.reuse.mode == Reuse::Relink { Reuse::Off } else { options.reuse.mode };
        options.reuse.unit_bytes = None;
        self.store.take();
        self.store.insert(Store::open(media(), env, options).unwrap())
    }

    fn open_and_compare(&mut self, context: &str) {
        self.open();
        let Lives { store: Some(store), model, .. } = &*self else { unreachable!("it is open") };
        store.assert_same_from(b"", model, context);
    }

    /// One step; an error is refused for want of room, and has changed nothing.
    fn step(&mut self, context: &str) -> Result<()> {
        let (what, n) = (self.rng.random_range(0..1000), self.rng.random_range(0..self.keys()));
        let Some(store) = self.store.as_ref().filter(|_| what > 2) else {
            self.open_and_compare(context);
            return Ok(());
        };
        let key = |n| key(n, self.value_bytes_max);
        match what {
            3..6 => store.compact()?,
            6..12 => store.flush()?,
            12..200 => {
                store.delete(&key(n))?;
                self.model.remove(&key(n));
            }
            200..230 => {
                let mut batch = Batch::new();
                (n..n + 4).try_for_each(|n| batch.delete(&key(n)))?;
                store.write(&batch, Durability::Buffered)?;
                (n..n + 4).for_each(|n| drop(self.model.remove(&key(n))));
            }
            _ => {
                let most = self.value_bytes_max.min(store.value_bytes_max());
                let value = vec![n as u8; self.rng.random_range(0..most)];
                store.put(&key(n), &value)?;
                self.model.insert(key(n), value);
            }
        }
        Ok(())
    }

    fn keys(&self) -> u32 {
        if self.value_bytes_max < 1000 { KEYS_SHORT } else { KEYS }
    }

    fn delete(&self, n: u32, context: &str) {
        let store = self.store.as_ref().expect("it is open");
        let key = key(n, self.value_bytes_max);
        let Err(error) = store.delete(&key) else { return };
        assert_eq!(error.kind(), Kind::NoSpace, "{context}: {error}");
        let compacted = store.compact();
        let deleted = store.delete(&key);
        assert!(
            deleted.is_ok(),
            "{context}: shut in at {n}: {deleted:?}; compact: {compacted:?}; {:?}",
            store.stat()
        );
    }
}

/// Fills what `media` opens, and empties it.
fn filled_and_emptied(seed: u64, env: &Arc<dyn Env>, media: &dyn Fn() -> Arc<dyn Media>, context: &str) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let value_bytes_max = [1, 40, 1000, 8000][rng.random_range(0..4)];
    let mut lives = Lives { media, env: env.clone(), rng, store: None, value_bytes_max, model: Model::new() };
    let context = format!("{context}, seed {seed}, values to {value_bytes_max}");
    let mut refused = 0;
    for _ in 0..lives.keys() * 4 {
        refused = match lives.step(&context) {
            Err(error) if error.kind() != Kind::NoSpace => panic!("{context}: {error}"),
            Err(_) => refused + 1,
            Ok(()) => 0,
        };
        if refused > 100 {
            break;
        }
    }
    lives.open_and_compare(&context);
    (0..lives.keys() + 4).for_each(|n| lives.delete(n, &context));
    let store = lives.open();
    store.compact().unwrap_or_else(|e| panic!("{context}: {e}"));
    assert_eq!(store.len(), 0, "{context}");
}

/// Tables of short records are half hints: collecting may make segments of that length of long records alone.
#[test]
fn segments_of_long_records_are_as_long_as_tables_of_short_ones() {
    let shape = ZonesShape { zones: 60, zone_bytes: 256 << 10, unit_bytes: 4096, open_max: None };
    let device = Arc::new(RamZones::new(RamZonesParams { shape, keeps_pointers: true, seed: 1 }));
    let files = Doubtful::default();
    ZoneMedia::format(&files.directory(), &*device, "double", [7; 16], false).unwrap();
    let open = |segment_bytes| {
        let media = ZoneMedia::open(files.directory(), device.clone()).unwrap();
        let options = vellum_kv::log::Options { segment_bytes, garbage_share: 0.1, ..of_seed(0) };
        Store::open(media, RealEnv::new(), options).unwrap()
    };
    let (store, mut model) = (open(192 << 10), Model::new());
    (0..40_000u32).for_each(|n| store.put(&n.to_be_bytes(), b"").unwrap());
    store.flush().unwrap();
    store.close().unwrap();
    model.extend((0..40_000u32).map(|n| (n.to_be_bytes().to_vec(), Vec::new())));
    let store = open(64 << 10);
    for round in 0..4u8 {
        for n in (0..400u32).step_by(if round == 0 { 1 } else { 4 }) {
            let (key, value) = (scattered(n).to_vec(), vec![round; 4000]);
            store.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        store.compact().unwrap();
        store.assert_same_from(b"", &model, &format!("round {round}"));
    }
    store.close().unwrap();
    open(64 << 10).assert_same_from(b"", &model, "opened again");
}

#[test]
fn flash_is_emptied() {
    for seed in 0..4 {
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let nvram_bytes = if seed.is_multiple_of(2) { 1 << 20 } else { 320 << 10 };
            let nand = flash_with(NandParams { seed, nvram_bytes, ..NandParams::default() });
            let media = || FlashMedia::open(nand.clone(), env.clone()).unwrap() as Arc<dyn Media>;
            filled_and_emptied(seed, &env, &media, "flash");
        });
    }
}

#[test]
fn zones_of_which_few_may_be_open_are_emptied() {
    for seed in 0..4 {
        let zones = 10 + seed as u32 * 5;
        let shape = ZonesShape { zones, zone_bytes: 256 << 10, unit_bytes: 4096, open_max: Some(3) };
        let device = Arc::new(RamZones::new(RamZonesParams { shape, keeps_pointers: true, seed }));
        let files = Doubtful::default();
        ZoneMedia::format(&files.directory(), &*device, "double", [7; 16], false).unwrap();
        let media = || ZoneMedia::open(files.directory(), device.clone()).unwrap() as Arc<dyn Media>;
        let env: Arc<dyn Env> = RealEnv::new();
        filled_and_emptied(seed, &env, &media, "zones");
    }
}

#[test]
fn directories_are_emptied() {
    for seed in 0..4 {
        let files = Doubtful::default();
        files.0.lock().room = Some(4 << (20 + seed % 3));
        let media = || files.directory() as Arc<dyn Media>;
        let env: Arc<dyn Env> = RealEnv::new();
        filled_and_emptied(seed, &env, &media, "a directory");
    }
}
