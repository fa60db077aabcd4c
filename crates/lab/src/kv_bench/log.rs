//! Vellum's log store, in a directory. It has no order: workloads that scan are refused.

use super::engine::{Compression, Engine, Session, Setup, cannot};
use std::sync::Arc;
use vellum_base::{Env, Result};
use vellum_kv::log::{Options, Store};
use vellum_kv::{Batch, Directory, DirectoryOptions, Durability, Map};

struct Log {
    store: Store,
    durability: Durability,
}

struct Client<'a> {
    engine: &'a Log,
    batch: Batch,
}

/// Opens the store that `setup` describes. It has no cache of its own, and keeps values as they are.
pub fn open(setup: &Setup, env: &Arc<dyn Env>) -> Result<Arc<dyn Engine>> {
    if setup.compression != Compression::None {
        return Err(cannot("vellum-log", "compression"));
    }
    if let Some((name, _)) = setup.vellum_options.first() {
        return Err(cannot("vellum-log", name));
    }
    let options = Options {
        // One is written and one is on its way.
        segment_bytes: (setup.memtable_bytes * setup.memtables / 2) as u64,
        reuse: setup.reuse,
        caps: setup.caps,
        island_bytes_min: setup.island_bytes_min,
        ..Options::default()
    };
    let media = Directory::open(&setup.dir, DirectoryOptions::default())?;
    let store = Store::open(media, env.clone(), options)?;
    Ok(Arc::new(Log { store, durability: setup.durability }))
}

impl Engine for Log {
    fn session(&self) -> Box<dyn Session + '_> {
        Box::new(Client { engine: self, batch: Batch::new() })
    }

    fn close(self: Arc<Self>) -> Result<()> {
        Arc::into_inner(self).map_or(Ok(()), |log| log.store.close())
    }
}

impl Session for Client<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.clear();
        self.batch.put(key, value)?;
        self.engine.store.write(&self.batch, self.engine.durability)
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.engine.store.get_into(key, value)
    }

    fn scan(&mut self, _: &[u8], _: u32, _: &mut dyn FnMut(&[u8], &[u8])) -> Result<u32> {
        Err(cannot("vellum-log", "order of keys, so it cannot scan (ycsb-e)"))
    }
}
