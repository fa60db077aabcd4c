//! Writers who wait for the device wait for it together: one sync of the log for all of them.

use crate::doubtful::Doubtful;
use crate::harness::small;
use crate::log::harness as logs;
use crate::pressed::{Call, Hooked};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use vellum_base::{Env, Nanos, Result};
use vellum_kv::{Batch, Directory, Durability, Map, Store, log};
use vellum_sim::Sim;

/// Of each writer.
const WRITES: u32 = 25;

fn write_and_sync(store: &impl Map, writer: u32) {
    for n in 0..WRITES {
        let mut batch = Batch::new();
        batch.put(&[writer, n].map(u32::to_be_bytes).concat(), b"v").unwrap();
        store.write(&batch, Durability::Sync).unwrap();
    }
}

/// How often a device that takes a millisecond for it syncs the log, for so many writers at once.
fn syncs<M: Map + 'static>(
    writers: u32,
    open: impl FnOnce(Arc<Directory>, Arc<dyn Env>) -> Result<M>,
) -> u32 {
    let sim = Sim::new(1);
    let (env, syncs): (Arc<dyn Env>, _) = (sim.env(), Arc::new(AtomicU32::new(0)));
    let (of_device, count) = (env.clone(), syncs.clone());
    let device = move |call, name: &str| {
        if call == Call::Sync && name.ends_with(".log") {
            count.fetch_add(1, Relaxed);
            of_device.sleep_until(of_device.now() + Nanos::from_ms(1));
        }
        Ok(())
    };
    sim.run(|| {
        let directory = Hooked::directory(&Doubtful::default(), Arc::new(device));
        let store = Arc::new(open(directory, env.clone()).unwrap());
        store.put(b"first", b"begins the log").unwrap();
        let before = syncs.load(Relaxed);
        let write = |writer| {
            let store = store.clone();
            env.clone().spawn("writer", Box::new(move || write_and_sync(&*store, writer)))
        };
        let tasks: Vec<_> = (0..writers).map(write).collect();
        tasks.into_iter().for_each(|task| task.join());
        syncs.load(Relaxed) - before
    })
}

/// What is appended during a sync waits for the next one, so at worst two groups of writers take turns. A single writer
/// has a sync for each write.
fn assert_grouped<M: Map + 'static>(open: fn(Arc<Directory>, Arc<dyn Env>) -> Result<M>) {
    assert_eq!(syncs(1, open), WRITES);
    let shared = syncs(8, open);
    assert!((WRITES..=2 * WRITES + 2).contains(&shared), "{shared} syncs for eight writers of {WRITES} each");
}

#[test]
fn writers_who_sync_at_once_share_a_sync() {
    assert_grouped(|media, env| Store::open(media, env, small()));
}

#[test]
fn so_do_those_of_a_log_store() {
    assert_grouped(|media, env| log::Store::open(media, env, logs::small()));
}
