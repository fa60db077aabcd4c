//! Vellum's own store, in a directory.

use super::engine::{Compression, Engine, Session, Setup};
use std::sync::Arc;
use vellum_base::{Env, Error, Result};
use vellum_kv::{Batch, Bounds, Directory, DirectoryOptions, Durability, Options, Store};

struct Ours {
    store: Store,
    durability: Durability,
}

struct Client<'a> {
    engine: &'a Ours,
    batch: Batch,
}

/// Opens the store that `setup` describes.
pub fn open(setup: &Setup, env: &Arc<dyn Env>) -> Result<Arc<dyn Engine>> {
    // Levels 0 and 1 are never compressed: their tables do not last.
    let deep = match setup.compression {
        Compression::None => vellum_kv::Compression::None,
        Compression::Lz4 => vellum_kv::Compression::Lz4,
        Compression::Zstd => vellum_kv::Compression::Zstd(0),
    };
    let mut options = Options {
        memtable_bytes: setup.memtable_bytes,
        memtables_max: setup.memtables.saturating_sub(1),
        cache_bytes: setup.cache_bytes,
        filter_bits_per_key: setup.filter_bits,
        compression: vellum_kv::Compression::below_level1(deep),
        ..Options::default()
    };
    for (name, value) in &setup.vellum_options {
        set(&mut options, name, *value)?;
    }
    let media = Directory::open(&setup.dir, DirectoryOptions::default())?;
    let store = Store::open(media, env.clone(), options)?;
    Ok(Arc::new(Ours { store, durability: setup.durability }))
}

/// Sets what changes the shape of the tree and how many work on it.
fn set(options: &mut Options, name: &str, value: u64) -> Result<()> {
    let count = usize::try_from(value).unwrap_or(usize::MAX);
    match name {
        "level0_compact" => options.level0_compact = count,
        "level0_slow" => options.level0_slow = count,
        "level0_stop" => options.level0_stop = count,
        "level1_bytes" => options.level1_bytes = value,
        "level_factor" => options.level_factor = value,
        "compaction_bytes" => options.compaction_bytes = count,
        "compaction_tasks" => options.compaction_tasks = count,
        _ => {
            return Err(Error::invalid(format!(
                "'{name}' is none of level0_compact, level0_slow, level0_stop, level1_bytes, level_factor, compaction_tasks, compaction_bytes"
            )));
        }
    }
    Ok(())
}

impl Engine for Ours {
    fn session(&self) -> Box<dyn Session + '_> {
        Box::new(Client { engine: self, batch: Batch::new() })
    }

    fn close(self: Arc<Self>) -> Result<()> {
        Arc::into_inner(self).map_or(Ok(()), |ours| ours.store.close())
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

    fn scan(&mut self, key: &[u8], records: u32, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<u32> {
        let mut iter = self.engine.store.iter(Bounds::all())?;
        iter.seek(key)?;
        let mut seen = 0;
        while iter.is_valid() && seen < records {
            see(iter.key(), iter.value());
            seen += 1;
            if seen < records {
                iter.next()?;
            }
        }
        Ok(seen)
    }
}
