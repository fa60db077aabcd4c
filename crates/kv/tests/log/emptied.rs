//! Whatever was done to a medium until it is full, all that is in it can be deleted again.

use super::harness::of_seed;
use crate::doubtful::Doubtful;
use crate::harness::{flash_with, scattered};
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

/// A third of the keys are long.
fn key(n: u32) -> Vec<u8> {
    let more = if n.is_multiple_of(3) { n as usize % 3000 } else { 0 };
    [&scattered(n)[..], &vec![n as u8; more]].concat()
}

/// A store that is opened again and again.
struct Lives<'a> {
    media: &'a dyn Fn() -> Arc<dyn Media>,
    env: Arc<dyn Env>,
    rng: SmallRng,
    store: Option<Store>,
    value_bytes_max: usize,
}

impl Lives<'_> {
    fn open(&mut self) -> &Store {
        let (media, env) = (self.media, self.env.clone());
        let mut options = of_seed(self.rng.random_range(0..1000));
        options.segment_bytes = 64 << self.rng.random_range(10..13);
        // Turned on and off it may share so much that there is room for no step (decision 24).
        options.reuse = if options.reuse == Reuse::Relink { Reuse::Off } else { options.reuse };
        options.unit_bytes = None;
        self.store.take();
        self.store.insert(Store::open(media(), env, options).unwrap())
    }

    fn open_and_go_on(&mut self) -> Result<()> {
        self.open();
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        let (what, n) = (self.rng.random_range(0..1000), self.rng.random_range(0..KEYS));
        let Some(store) = &self.store else { return self.open_and_go_on() };
        match what {
            0..3 => return self.open_and_go_on(),
            3..6 => store.compact()?,
            6..12 => store.flush()?,
            12..200 => store.delete(&key(n))?,
            200..230 => {
                let mut batch = Batch::new();
                (n..n + 20).try_for_each(|n| batch.delete(&key(n)))?;
                store.write(&batch, Durability::Buffered)?;
            }
            _ => {
                let most = self.value_bytes_max.min(store.value_limit().bytes);
                store.put(&key(n), &vec![n as u8; self.rng.random_range(0..most)])?;
            }
        }
        Ok(())
    }

    fn delete(&self, n: u32, context: &str) {
        let store = self.store.as_ref().expect("it is open");
        let Err(error) = store.delete(&key(n)) else { return };
        assert_eq!(error.kind(), Kind::NoSpace, "{context}: {error}");
        let compacted = store.compact();
        let deleted = store.delete(&key(n));
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
    let mut lives = Lives { media, env: env.clone(), rng, store: None, value_bytes_max };
    let context = format!("{context}, seed {seed}, values to {value_bytes_max}");
    let mut refused = 0;
    for _ in 0..12_000 {
        refused = if lives.step().is_ok() { 0 } else { refused + 1 };
        if refused > 100 {
            break;
        }
    }
    lives.open();
    (0..KEYS + 20).for_each(|n| lives.delete(n, &context));
    let store = lives.open();
    store.compact().unwrap_or_else(|e| panic!("{context}: {e}"));
    assert_eq!(store.len(), 0, "{context}");
}

#[test]
fn flash_is_emptied() {
    for seed in 0..8 {
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
    for seed in 0..8 {
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
    for seed in 0..8 {
        let files = Doubtful::default();
        files.0.lock().room = Some(4 << (20 + seed % 3));
        let media = || files.directory() as Arc<dyn Media>;
        let env: Arc<dyn Env> = RealEnv::new();
        filled_and_emptied(seed, &env, &media, "a directory");
    }
}
