//! Collection of a filled log store, measured as in the paper (section 4.1): once the store has been filled, all of it
//! is copied to a new log, and only that is measured.

use super::bench::{KEY_BYTES, Measured, Run, fill};
use super::machine::{KV_CPU, Machine};
use std::sync::Arc;
use vellum_base::{Env, Flash, Result};
use vellum_kv::Map;
use vellum_kv::log::{Options, Store};

/// Disables automatic collection: the garbage of a store is never more than all of it.
const NEVER: f64 = 1.1;
/// Number of segments of a store.
const SEGMENTS: u64 = 32;

/// Segment size for a store of this many bytes.
pub(super) fn segment_bytes(bytes: u64) -> u64 {
    (bytes / SEGMENTS).max(256 << 10)
}

/// Fills the store, then collects it.
pub(super) fn in_world(run: &Run, env: &Arc<dyn Env>, seed: u64) -> Result<Measured> {
    let machine = Machine::new(run.kind, run.bytes, env, seed)?;
    let options = Options {
        segment_bytes: segment_bytes(run.bytes),
        garbage_share: NEVER,
        collect_max: usize::MAX,
        reuse: run.reuse,
        cpu: KV_CPU,
        ..Options::default()
    };
    let store = Store::open(machine.media.clone(), env.clone(), options)?;
    let records = run.bytes / (run.value_bytes as u64 + KEY_BYTES);
    fill(&store, run.keys, run.value_bytes, (records, seed), |_| {})?;
    store.flush()?;
    let flushed = store.stat().since_opened;
    debug_assert_eq!(flushed.compactions(), 0);
    let (start, disk, programs) =
        (env.now(), machine.disk.ledger(), machine.flash.counters().pages_programmed);
    store.compact()?;
    let seconds = (env.now() - start).as_secs_f64();
    let records = store.len();
    let stat = store.stat();
    store.close()?;
    machine.disk.close()?;
    let page_bytes = u64::from(machine.flash.geometry().page_bytes);
    Ok(Measured {
        seconds,
        puts: records,
        course: Vec::new(),
        user_bytes: records * (KEY_BYTES + run.value_bytes as u64),
        disk: machine.disk.ledger().since(&disk),
        programmed_bytes: (machine.flash.counters().pages_programmed - programs) * page_bytes,
        did: stat.since_opened,
        table_bytes: stat.segment_bytes,
    })
}
