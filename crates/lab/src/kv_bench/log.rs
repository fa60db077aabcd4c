//! Vellum's log store, in a directory. It is not ordered: workloads that scan are refused.

use super::engine::{Compression, Engine, Setup, cannot};
use super::kept::{Kept, Ours};
use std::sync::Arc;
use vellum_base::{Env, Result};
use vellum_kv::log::{Options, Store};
use vellum_kv::{Directory, DirectoryOptions, check_sharing};

/// Opens the store that `setup` describes. It has no cache of its own, and does not compress values.
pub fn open(setup: &Setup, env: &Arc<dyn Env>) -> Result<Arc<dyn Engine>> {
    if setup.compression != Compression::None {
        return Err(cannot("vellum-log", "compression"));
    }
    if let Some((name, _)) = setup.vellum_options.first() {
        return Err(cannot("vellum-log", name));
    }
    let options = Options {
        // One is filled while another is written.
        segment_bytes: (setup.memtable_bytes * setup.memtables / 2) as u64,
        reuse: setup.reuse,
        ..Options::default()
    };
    let media = Directory::open(&setup.dir, DirectoryOptions::default())?;
    check_sharing(&*media, &setup.reuse)?;
    let store = Store::open(media, env.clone(), options)?;
    Ok(Arc::new(Ours { store, durability: setup.durability, uncalled: false }))
}

impl Kept for Store {
    fn shut(self) -> Result<()> {
        self.close()
    }

    fn scan(&self, _: &[u8], _: u32, _: &mut dyn FnMut(&[u8], &[u8])) -> Result<u32> {
        Err(cannot("vellum-log", "order of keys, so it cannot scan (ycsb-e)"))
    }

    fn programmed_bytes(&self) -> u64 {
        self.stat().ledger.programmed_total()
    }

    fn nvram_bytes(&self) -> u64 {
        self.stat().since_opened.nvram_bytes()
    }
}
