//! Small log stores.

use crate::harness::{Compared, Model};
use std::sync::Arc;
use vellum_base::{Env, RealEnv, Result};
use vellum_kv::log::{Options, Store};
use vellum_kv::{Caps, Map, Media, Reuse, ReuseOptions};

/// Everything happens all the time: segments of 64 KiB.
pub(crate) fn small() -> Options {
    Options { segment_bytes: 64 << 10, collect_max: 4, ..Options::default() }
}

/// Options that change no answer, others for every seed.
pub(crate) fn of_seed(seed: u64) -> Options {
    let mode = [Reuse::Off, Reuse::Bubbles, Reuse::Relink][(seed % 3) as usize];
    let caps = if (seed / 3).is_multiple_of(2) { Caps { bubble: 1.0, global: 1.0 } } else { Caps::default() };
    let garbage_share = [0.1, 0.4, 0.7][(seed / 6 % 3) as usize];
    let (unit_bytes, segment_bytes) =
        [(None, small().segment_bytes), (Some(8 << 10), 128 << 10)][(seed / 18 % 2) as usize];
    let collect_max = 1 + (seed % 5) as usize;
    let reuse = ReuseOptions { caps, unit_bytes, ..mode.into() };
    Options { reuse, garbage_share, collect_max, segment_bytes, ..small() }
}

pub(crate) fn open_with(media: Arc<dyn Media>, options: Options) -> Result<Store> {
    let env: Arc<dyn Env> = RealEnv::new();
    Store::open(media, env, options)
}

/// Everything that a walk meets; each key once.
pub(crate) fn walked(store: &Store) -> Result<Model> {
    let mut found = Model::new();
    for pair in store.iter() {
        let (key, value) = pair?;
        assert!(found.insert(key.clone(), value).is_none(), "{key:?} came twice");
    }
    Ok(found)
}

/// Compares all keys, met and asked for.
pub(crate) fn assert_same(store: &Store, model: &Model, context: &str) {
    store.assert_same_from(b"", model, context);
    assert_eq!(store.len(), model.len() as u64, "{context}");
}

impl Compared for Store {
    fn assert_same_from(&self, prefix: &[u8], model: &Model, context: &str) {
        let mut found = walked(self).unwrap_or_else(|e| panic!("{context}: walk: {e}"));
        found.retain(|key, _| key.starts_with(prefix));
        let differs = |(key, value): &(&Vec<u8>, &Vec<u8>)| model.get(*key) != Some(*value);
        let wrong = found.iter().find(differs).map(|(key, _)| String::from_utf8_lossy(key));
        let missed =
            model.keys().find(|key| !found.contains_key(*key)).map(|key| String::from_utf8_lossy(key));
        assert!(
            found == *model,
            "{context}: {} keys met, {} expected; {wrong:?} is wrong, {missed:?} was missed",
            found.len(),
            model.len()
        );
        for (key, value) in model {
            assert_eq!(self.get(key).unwrap().as_ref(), Some(value), "{context}: {key:?}");
        }
    }
}
