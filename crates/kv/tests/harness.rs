//! Small stores, the media below them, and the obvious oracle.

use rand::Rng;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use vellum_base::{Env, Flash, Geometry, Kind, RealEnv, Result};
use vellum_kv::media::{Rehearsal, Schedule};
use vellum_kv::{
    Batch, Bounds, Caps, Compression, Directory, DirectoryOptions, Durability, FlashMedia, Iter, Map, Media,
    Options, Repaired, Reuse, ReuseOptions, Store,
};
use vellum_media::nand::{Nand, NandParams};

/// 4 dies × 60 blocks × 18 pages of 4 KiB: tables of 256 KiB.
pub(crate) fn geometry() -> Geometry {
    Geometry {
        channels: 4,
        dies_per_channel: 1,
        blocks_per_die: 60,
        pages_per_block: 18,
        page_bytes: 4096,
        oob_bytes: 0,
    }
}

/// Keys in no order.
pub(crate) fn scattered(n: u32) -> [u8; 4] {
    n.wrapping_mul(0x9E37_79B1).to_be_bytes()
}

/// Reports why a test is skipped, bypassing the harness that captures the output of passing tests.
pub(crate) fn skipped(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_string();
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

/// Formatted flash.
pub(crate) fn flash(seed: u64) -> Arc<Nand> {
    flash_with(NandParams { seed, nvram_bytes: 1 << 20, ..NandParams::default() })
}

/// Formatted flash of our geometry.
pub(crate) fn flash_with(params: NandParams) -> Arc<Nand> {
    let nand = Nand::ram(geometry(), params).unwrap();
    FlashMedia::format(&nand).unwrap();
    Arc::new(nand)
}

/// Everything happens all the time: memtables of 64 KiB, level 1 of half a MiB.
pub(crate) fn small() -> Options {
    Options {
        memtable_bytes: 64 << 10,
        cache_bytes: 256 << 10,
        level1_bytes: 512 << 10,
        level_factor: 3,
        level0_compact: 4,
        level0_slow: 12,
        level0_stop: 24,
        compression: [Compression::None; _],
        ..Options::default()
    }
}

/// The same, with every codec at work.
pub(crate) fn packed() -> Options {
    let mut compression = [Compression::Lz4; _];
    (compression[0], compression[3]) = (Compression::None, Compression::Zstd(1));
    Options { compression, ..small() }
}

/// Options that change no answer, others for every seed.
pub(crate) fn of_seed(seed: u64) -> Options {
    let options = if seed.is_multiple_of(2) { small() } else { packed() };
    let mode = [Reuse::Off, Reuse::Bubbles, Reuse::Auto][(seed / 2 % 3) as usize];
    let caps = if (seed / 6).is_multiple_of(2) { Caps { bubble: 1.0, global: 1.0 } } else { Caps::default() };
    let island_bytes_min = [None, Some(0), Some(12 << 10)][(seed / 12 % 3) as usize];
    let unit_bytes = [None, Some(16 << 10)][(seed / 36 % 2) as usize];
    let reuse = ReuseOptions { mode, caps, unit_bytes, island_bytes_min };
    Options { reuse, map_files: seed % 4 < 2, ..options }
}

pub(crate) fn open_flash(flash: &Arc<Nand>, env: Arc<dyn Env>) -> vellum_base::Result<Store> {
    let media = FlashMedia::open(flash.clone(), env.clone())?;
    Store::open(media, env, small())
}

/// A store with the options of a seed, on flash that is behind queues for some seeds, whatever the options.
pub(crate) fn open_of_seed(seed: u64, flash: Arc<dyn Flash>, env: Arc<dyn Env>) -> Result<Store> {
    Store::open(media_of_seed(seed, flash, env.clone())?, env, of_seed(seed))
}

pub(crate) fn media_of_seed(seed: u64, flash: Arc<dyn Flash>, env: Arc<dyn Env>) -> Result<Arc<FlashMedia>> {
    // Options come again after 72 seeds.
    match seed % 5 % 2 {
        0 => FlashMedia::open(flash, env),
        _ => FlashMedia::open_scheduled(flash, env, Schedule::Priority),
    }
}

pub(crate) fn directory(path: &std::path::Path) -> Arc<Directory> {
    Directory::open(path, DirectoryOptions { table_bytes: 256 << 10 }).unwrap()
}

/// Repairs as `repair` does; before it does, a rehearsal has to say the same, and to change nothing.
fn rehearsed(
    media: &Arc<dyn Media>,
    repair: impl Fn(&Arc<dyn Media>) -> Result<Repaired>,
) -> Result<Repaired> {
    let aside = tempfile::tempdir().unwrap();
    let there = || {
        let areas = media.areas().unwrap();
        let bytes: Vec<_> = areas.iter().map(|area| media.read_area(*area).ok()).collect();
        (areas, bytes, media.tables().unwrap(), media.current().ok(), media.ledger().programmed_total())
    };
    let before = there();
    let rehearsal: Arc<dyn Media> = Rehearsal::over(media.clone(), directory(aside.path()));
    let foreseen = repair(&rehearsal);
    assert!(there() == before, "a rehearsal changed something");
    let done = repair(media);
    let said = |result: &Result<Repaired>| result.as_ref().map_err(ToString::to_string).cloned();
    // It has room of its own.
    if !done.as_ref().is_err_and(|error| error.kind() == Kind::NoSpace) {
        assert_eq!(said(&foreseen), said(&done), "what a rehearsal says, and a repair");
    }
    done
}

/// Repairs an ordered store; a rehearsal said the same.
pub(crate) fn repair(media: &Arc<dyn Media>, env: &Arc<dyn Env>, options: &Options) -> Result<Repaired> {
    rehearsed(media, |media| vellum_kv::repair(media, env, options))
}

/// Repairs a log store; a rehearsal said the same.
pub(crate) fn repair_log(
    media: &Arc<dyn Media>,
    env: &Arc<dyn Env>,
    options: &vellum_kv::log::Options,
) -> Result<Repaired> {
    rehearsed(media, |media| vellum_kv::log::repair(media, env, options))
}

pub(crate) fn open(media: Arc<dyn Media>) -> vellum_base::Result<Store> {
    Store::open(media, RealEnv::new(), small())
}

pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// One write, for the store and for the model.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
}

pub(crate) fn batch_of(ops: &[Op]) -> Batch {
    let mut batch = Batch::new();
    for op in ops {
        match op {
            Op::Put(key, value) => batch.put(key, value).unwrap(),
            Op::Delete(key) => batch.delete(key).unwrap(),
        }
    }
    batch
}

pub(crate) fn apply(model: &mut Model, ops: &[Op]) {
    for op in ops {
        match op.clone() {
            Op::Put(key, value) => drop(model.insert(key, value)),
            Op::Delete(key) => drop(model.remove(&key)),
        }
    }
}

/// Walks an iterator to its end.
pub(crate) fn forward(mut iter: Iter) -> vellum_base::Result<Model> {
    let mut found = Model::new();
    iter.seek_to_first()?;
    while iter.is_valid() {
        assert!(found.last_key_value().is_none_or(|(last, _)| **last < *iter.key()), "keys go down");
        found.insert(iter.key().to_vec(), iter.value().to_vec());
        iter.next()?;
    }
    Ok(found)
}

/// Walks an iterator to its start.
pub(crate) fn backward(mut iter: Iter) -> vellum_base::Result<Model> {
    let mut found = Model::new();
    iter.seek_to_last()?;
    while iter.is_valid() {
        assert!(found.first_key_value().is_none_or(|(first, _)| **first > *iter.key()), "keys go up");
        found.insert(iter.key().to_vec(), iter.value().to_vec());
        iter.prev()?;
    }
    Ok(found)
}

/// Steps to and fro at random from the key that is number `at`, where the iterator is, beside the model.
pub(crate) fn wander_from(iter: &mut Iter, model: &Model, mut at: isize, steps: usize, rng: &mut SmallRng) {
    let keys: Vec<&Vec<u8>> = model.keys().collect();
    for _ in 0..steps {
        let expected = usize::try_from(at).ok().and_then(|at| keys.get(at));
        assert_eq!(iter.is_valid().then(|| iter.key()), expected.map(|key| &key[..]));
        let Some(expected) = expected else { return };
        assert_eq!(iter.value(), model[*expected]);
        if rng.random() {
            iter.next().unwrap();
            at += 1;
        } else {
            iter.prev().unwrap();
            at -= 1;
        }
    }
}

/// Compares all keys, both ways and one by one.
pub(crate) fn assert_same(store: &Store, model: &Model, context: &str) {
    assert_same_within(store, Bounds::all(), model, context);
}

/// Compares the keys within `bounds`, both ways and one by one.
pub(crate) fn assert_same_within(store: &Store, bounds: Bounds, model: &Model, context: &str) {
    let walk = |walk: fn(Iter) -> vellum_base::Result<Model>| walk(store.iter(bounds.clone())?);
    for (found, direction) in [(walk(forward), "forward"), (walk(backward), "backward")] {
        let found = found.unwrap_or_else(|e| panic!("{context}: {direction}: {e}"));
        assert!(found == *model, "{context}: {direction}");
    }
    for (key, value) in model {
        assert_eq!(store.get(key).unwrap().as_ref(), Some(value), "{context}: {key:?}");
    }
}

/// A store of either engine, compared with the oracle in its own way.
pub(crate) trait Compared: Map {
    /// Compares the keys that begin with `prefix`.
    fn assert_same_from(&self, prefix: &[u8], model: &Model, context: &str);
}

impl Compared for Store {
    fn assert_same_from(&self, prefix: &[u8], model: &Model, context: &str) {
        assert_same_within(self, Bounds::prefix(prefix), model, context);
    }
}

/// What random writes are made of.
pub(crate) struct Draw {
    /// Of one value in so many, if it is alone in its batch, the bytes: those of others are fewer.
    pub long: (u32, std::ops::Range<usize>),
    /// Of batches of more than one.
    pub batch: std::ops::Range<usize>,
}

impl Draw {
    pub(crate) fn key(&self, rng: &mut SmallRng) -> Vec<u8> {
        match rng.random_range(0..20) {
            0 => Vec::new(),
            1 => vec![rng.random_range(0..3); rng.random_range(1..400)],
            2 => vec![0xFF; rng.random_range(1..4)],
            _ => format!("user{:05}", rng.random_range(0..3000)).into_bytes(),
        }
    }

    fn value(&self, rng: &mut SmallRng, may_be_long: bool) -> Vec<u8> {
        let len = match rng.random_range(0..self.long.0) {
            0 if may_be_long => rng.random_range(self.long.1.clone()),
            0..4 => rng.random_range(0..3),
            _ => rng.random_range(20..300),
        };
        let byte: u8 = rng.random();
        (0..len).map(|i| (i as u8).wrapping_mul(7) ^ byte).collect()
    }

    fn ops(&self, rng: &mut SmallRng) -> Vec<Op> {
        let count = if rng.random_range(0..10) == 0 { rng.random_range(self.batch.clone()) } else { 1 };
        let one = |_| match rng.random_range(0..4) {
            0 => Op::Delete(self.key(rng)),
            _ => Op::Put(self.key(rng), self.value(rng, count == 1)),
        };
        (0..count).map(one).collect()
    }

    /// Writes a batch, as safely as chance wills.
    pub(crate) fn write(&self, store: &impl Map, model: &mut Model, rng: &mut SmallRng, context: &str) {
        let ops = self.ops(rng);
        let durability = match rng.random_range(0..40) {
            0 => Durability::Sync,
            n if n % 2 == 0 => Durability::Buffered,
            _ => Durability::None,
        };
        store.write(&batch_of(&ops), durability).unwrap_or_else(|e| panic!("{context}: {e}"));
        apply(model, &ops);
    }

    /// Asks for a key.
    pub(crate) fn probe(&self, store: &impl Map, model: &Model, rng: &mut SmallRng, context: &str) {
        let key = self.key(rng);
        assert_eq!(store.get(&key).unwrap(), model.get(&key).cloned(), "{context}: {key:?}");
    }
}
