//! Flash behind queues: a task for each channel, which serves whoever flushes, merges, reads and erases.

use crate::stirred::{StirredEnv, stir};
use crate::{change_beside_readers, flash, pair_at, put_pair};
use std::sync::Arc;
use vellum_kv::media::Schedule;
use vellum_kv::{Durability, FlashMedia, Map, Options, Store};
use vellum_media::nand::Nand;

fn open(flash: &Arc<Nand>) -> Store {
    let env = StirredEnv::new();
    let media = FlashMedia::open_scheduled(flash.clone(), env.clone(), Schedule::Priority).unwrap();
    let options = Options { memtable_bytes: 16 << 10, level0_compact: 2, ..Options::default() };
    Store::open(media, env, options).unwrap()
}

/// The power goes when all is written; then nothing is closed, and the queues end all the same.
#[test]
fn readers_beside_flushes_and_merges_that_wait_in_queues() {
    stir(|| {
        let flash = Arc::new(flash());
        let store = Arc::new(open(&flash));
        put_pair(&store, 2, 9, Durability::Buffered);
        store.flush().unwrap();
        change_beside_readers(&store, 3);
        flash.power_cut_at(1);
        drop(store);
        flash.power_on();
        let store = open(&flash);
        assert_eq!((pair_at(&store, 1), pair_at(&store, 2)), (3, 9));
    });
}
