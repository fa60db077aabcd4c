//! The interface through which the bench uses both of our stores.

use super::engine::{Engine, Session};
use std::sync::Arc;
use vellum_base::Result;
use vellum_kv::{Batch, Durability, Map};

/// One of our stores.
pub trait Kept: Map {
    /// Closes it.
    fn shut(self) -> Result<()>;
    /// See [`Session::scan`].
    fn scan(&self, key: &[u8], records: u32, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<u32>;
    /// Bytes programmed so far.
    fn programmed_bytes(&self) -> u64;
    /// See [`Engine::nvram_bytes`].
    fn nvram_bytes(&self) -> u64;
}

/// A store, with the durability of its writes.
pub struct Ours<S> {
    /// The store.
    pub store: S,
    /// What acknowledged writes survive.
    pub durability: Durability,
    /// Not all writes go through system calls, so written bytes are taken from the ledger.
    pub uncalled: bool,
}

struct Client<'a, S> {
    engine: &'a Ours<S>,
    batch: Batch,
}

impl<S: Kept> Engine for Ours<S> {
    fn session(&self) -> Box<dyn Session + '_> {
        Box::new(Client { engine: self, batch: Batch::new() })
    }

    fn close(self: Arc<Self>) -> Result<()> {
        Arc::into_inner(self).map_or(Ok(()), |ours| ours.store.shut())
    }

    fn programmed_bytes(&self) -> Option<u64> {
        self.uncalled.then(|| self.store.programmed_bytes())
    }

    fn nvram_bytes(&self) -> u64 {
        self.store.nvram_bytes()
    }
}

impl<S: Kept> Session for Client<'_, S> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.clear();
        self.batch.put(key, value)?;
        self.engine.store.write(&self.batch, self.engine.durability)
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.engine.store.get_into(key, value)
    }

    fn scan(&mut self, key: &[u8], records: u32, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<u32> {
        self.engine.store.scan(key, records, see)
    }
}
