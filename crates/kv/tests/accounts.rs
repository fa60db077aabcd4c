//! The ledger equals the device, an idle store writes nothing, a full one loses nothing, and failing flash is worked
//! around.

use crate::harness::{Model, assert_same, directory, flash, flash_with, open, open_flash, small};
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::flash::BatchError;
use vellum_base::sync::Mutex;
use vellum_base::{
    BlockAddr, BlockReport, Cause, Done, Env, Flash, FlashCounters, FlashError, FlashOp, Geometry, IoClass,
    Kind, Nanos, Nvram, RealEnv,
};
use vellum_kv::media::Schedule;
use vellum_kv::{FlashMedia, Map, Media, Options, Store};
use vellum_media::nand::{Nand, NandParams, Wear};
use vellum_sim::Sim;

/// Flash that remembers which channels each batch of programs went to.
struct OneHalf {
    inner: Arc<Nand>,
    batches: Mutex<Vec<(IoClass, BTreeSet<u32>)>>,
}

impl OneHalf {
    fn new(inner: Arc<Nand>) -> OneHalf {
        OneHalf { inner, batches: Mutex::default() }
    }
}

impl Flash for OneHalf {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }
    fn submit(&self, class: IoClass, ops: &mut [FlashOp<'_>]) -> Result<Done, BatchError> {
        let channel = |op: &FlashOp<'_>| match op {
            FlashOp::Program { page, .. } => {
                Some(self.geometry().channel_of(self.geometry().die_of(page.block)))
            }
            _ => None,
        };
        let channels: BTreeSet<u32> = ops.iter().filter_map(channel).collect();
        if !channels.is_empty() {
            self.batches.lock().push((class, channels));
        }
        self.inner.submit(class, ops)
    }
    fn report(&self, block: BlockAddr) -> BlockReport {
        self.inner.report(block)
    }
    fn counters(&self) -> FlashCounters {
        self.inner.counters()
    }
    fn sync(&self) -> Result<(), FlashError> {
        self.inner.sync()
    }
    fn nvram(&self) -> Option<&dyn Nvram> {
        self.inner.nvram()
    }
}

fn pair(i: u32) -> (Vec<u8>, Vec<u8>) {
    (format!("key{:05}", i * 7919 % 4000).into_bytes(), vec![i as u8; 100 + i as usize % 200])
}

#[test]
fn the_ledger_equals_the_device() {
    let flash = flash(1);
    let media = FlashMedia::open(flash.clone(), RealEnv::new()).unwrap();
    let store = Store::open(media.clone(), RealEnv::new(), small()).unwrap();
    for i in 0..6000 {
        let (key, value) = pair(i);
        store.put(&key, &value).unwrap();
    }
    store.compact().unwrap();
    let stat = store.stat();
    let user: usize = (0..6000).map(|i| pair(i).0.len() + pair(i).1.len()).sum();
    assert_eq!(stat.since_opened.user_bytes(), user as u64, "keys and values, without framing");
    assert!(stat.since_opened.write_amplification() > 1.0);
    store.close().unwrap();
    let ledger = media.ledger();
    assert_eq!(ledger.programmed_total(), flash.counters().pages_programmed * 4096);
    for cause in [Cause::Flush, Cause::Compaction1, Cause::StoreMetadata] {
        assert!(ledger.programmed_by(cause) > 0, "{}", cause.name());
    }
}

#[test]
fn an_idle_store_writes_nothing() {
    let flash = flash(2);
    let sim = Sim::new(2);
    let env = sim.env();
    sim.run(|| {
        let store = open_flash(&flash, env.clone()).unwrap();
        for i in 0..3000 {
            let (key, value) = pair(i);
            store.put(&key, &value).unwrap();
        }
        env.sleep_until(Nanos::from_ms(1000));
        let before = (flash.counters(), store.stat().ledger);
        env.sleep_until(Nanos::from_ms(3_600_000));
        assert_eq!(before, (flash.counters(), store.stat().ledger));
        store.close().unwrap();
        let closed = flash.counters();
        let store = open_flash(&flash, env.clone()).unwrap();
        assert!(store.get(&pair(5).0).unwrap().is_some());
        store.close().unwrap();
        assert_eq!(flash.counters().pages_programmed, closed.pages_programmed, "opening and closing writes");
    });
}

/// Clients that only read, a compaction of deep levels beside them: it is written to one half of the channels, then to
/// the other.
#[test]
fn few_writes_leave_half_the_channels_to_readers() {
    for (readers, half) in [(true, true), (false, false)] {
        let sim = Sim::new(9);
        let env = sim.env();
        let flash = Arc::new(OneHalf::new(flash(9)));
        sim.run(|| {
            let media = FlashMedia::open(flash.clone(), env.clone()).unwrap();
            let store = Store::open(media, env.clone(), small()).unwrap();
            (0..9000).for_each(|i| store.put(&pair(i).0, &pair(i).1).unwrap());
            store.flush().unwrap();
            env.sleep_until(env.now() + Nanos::from_ms(1000));
            if readers {
                (0..30_000).for_each(|i| drop(store.get(&pair(i).0).unwrap()));
            }
            flash.batches.lock().clear();
            store.compact().unwrap();
            store.close().unwrap();
        });
        let batches = flash.batches.lock();
        let deep = batches.iter().filter(|(class, _)| *class == IoClass::Background);
        let narrow =
            deep.clone().filter(|(_, c)| c.iter().all(|c| *c < 2) || c.iter().all(|c| *c >= 2)).count();
        assert!(deep.clone().count() > 4, "nothing deep was written");
        assert_eq!(narrow > deep.count() / 2, half, "readers: {readers}; {batches:?}");
    }
}

/// Puts new keys until one is refused.
fn fill_up(store: &Store, model: &mut Model, from: u32) -> vellum_base::Error {
    let error = (from..).find_map(|i| {
        let key = format!("key{:08}", i.wrapping_mul(2_654_435_761) % 100_000_000).into_bytes();
        let value = vec![i as u8; 900];
        let result = store.put(&key, &value);
        if result.is_ok() {
            model.insert(key, value);
        }
        result.err()
    });
    error.unwrap()
}

#[test]
fn a_full_device_loses_nothing_and_takes_deletes() {
    vellum_sim::check(0..3, |seed| {
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| fills_and_deletes(&flash(seed), &env, &format!("seed {seed}")));
    });
}

fn fills_and_deletes(flash: &Arc<Nand>, env: &Arc<dyn Env>, context: &str) {
    let mut model = Model::new();
    let store = open_flash(flash, env.clone()).unwrap();
    let error = fill_up(&store, &mut model, 0);
    assert_eq!(error.kind(), Kind::NoSpace, "{context}: {error}");
    let raw = flash.geometry().capacity_bytes() as usize / 900;
    assert!(model.len() > raw * 2 / 5, "{context}: full after {} of {raw} entries", model.len());
    assert_same(&store, &model, "full");
    store.close().unwrap();
    let store = open_flash(flash, env.clone()).unwrap();
    assert_same(&store, &model, "full, and opened again");
    for round in 1..4 {
        let context = format!("{context}, round {round}");
        let gone: Vec<Vec<u8>> = model.keys().step_by(2).cloned().collect();
        for key in gone {
            store.delete(&key).unwrap_or_else(|e| panic!("{context}: {e}"));
            model.remove(&key);
        }
        store.compact().unwrap_or_else(|e| panic!("{context}: {e}"));
        let before = model.len();
        let error = fill_up(&store, &mut model, round * 1_000_000);
        assert_eq!(error.kind(), Kind::NoSpace, "{context}: {error}");
        assert!(model.len() > before * 3 / 2, "{context}: {before} keys, then {}", model.len());
        assert_same(&store, &model, "full again");
    }
}

#[test]
fn bad_blocks_and_failing_programs_are_worked_around() {
    let wear = Wear { program_failure: 0.001, erase_failure: 0.01, ..Wear::default() };
    for seed in 0..4 {
        let params = NandParams {
            seed,
            nvram_bytes: 1 << 20,
            factory_bad_share: 0.05,
            wear: wear.clone(),
            ..NandParams::default()
        };
        let flash: Arc<Nand> = flash_with(params);
        let media = match seed % 2 {
            0 => FlashMedia::open(flash.clone(), RealEnv::new()),
            _ => FlashMedia::open_scheduled(flash.clone(), RealEnv::new(), Schedule::Priority),
        };
        let media = media.unwrap();
        let store = Store::open(media.clone(), RealEnv::new(), Options { ..small() }).unwrap();
        let mut model = Model::new();
        // How much is merged is a matter of time, and what fails a matter of chance.
        for i in (0..80_000).take_while(|i| *i < 8000 || flash.counters().program_failures == 0) {
            let (key, value) = pair(i % 8000);
            store.put(&key, &value).unwrap_or_else(|e| panic!("seed {seed}, put {i}: {e}"));
            model.insert(key, value);
        }
        assert_same(&store, &model, "on failing flash");
        store.close().unwrap();
        assert!(flash.counters().program_failures > 0, "seed {seed}: nothing failed");
        assert_eq!(
            media.ledger().programmed_total(),
            flash.counters().pages_programmed * 4096,
            "seed {seed}"
        );
        let store = open_flash(&flash, RealEnv::new()).unwrap();
        assert_same(&store, &model, "on failing flash, opened again");
    }
}

#[test]
fn filters_are_counted() {
    let store = open_flash(&flash(6), RealEnv::new()).unwrap();
    (0..4000).for_each(|i| store.put(&pair(i).0, &pair(i).1).unwrap());
    store.compact().unwrap();
    (0..4000).for_each(|i| drop(store.get(&pair(i).0).unwrap().unwrap()));
    assert_eq!((store.stat().filter_wrong, store.stat().filter_stopped), (0, 0), "a key was not found");
    (0..20_000u32).for_each(|i| assert_eq!(store.get(format!("key0{i:05}x").as_bytes()).unwrap(), None));
    let stat = store.stat();
    assert!(stat.filter_stopped > 10_000 && stat.filter_wrong_share() < 0.02, "{stat:?}");
}

#[test]
fn limits_are_refused_by_name() {
    let store = open_flash(&flash(5), RealEnv::new()).unwrap();
    let most = store.value_bytes_max();
    let key = vec![7; vellum_kv::KEY_BYTES_MAX];
    store.put(b"", b"empty").unwrap();
    assert_eq!(key.len(), (64 << 10) - 1, "docs/decisions/0017 says so");
    store.put(&[], &vec![1; most]).unwrap();
    for (key, value) in [
        (&b"k"[..], 1 << 30),
        (&[0; vellum_kv::KEY_BYTES_MAX + 1], 1),
        (&[0; 1 << 17], 1),
        (b"k", store.batch_bytes_max() + 1),
    ] {
        let error = store.put(key, &vec![0; value]).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
    }
    assert_eq!(store.get(&key).unwrap(), None);
    assert_eq!(store.get(&[0; 1 << 17]).unwrap_err().kind(), Kind::Invalid);
    store.flush().unwrap();
    assert_eq!(store.get(b"").unwrap().map(|v| v.len()), Some(most));
}

#[test]
fn the_accounts_of_a_life_go_on_from_opening_to_opening() {
    let dir = tempfile::tempdir().unwrap();
    let (mut user, mut written, mut flushes) = (0, 0, 0);
    for round in 0..4u32 {
        let media = directory(dir.path());
        let store = open(media.clone()).unwrap();
        let (before, opening) = (store.stat().lifetime, store.stat().since_opened);
        assert_eq!((before.user_bytes(), before.flushes()), (user, flushes), "round {round}");
        // The edit of closing counts itself; what making a store takes is in the ledger.
        let ledger = media.ledger().programmed_total();
        assert_eq!(before.written_bytes(), written + ledger, "round {round}: {before:?}");
        for n in 0..3000u32 {
            store.put(&(n * 7919 % 3000).to_be_bytes(), &[round as u8; 200]).unwrap();
        }
        store.compact().unwrap();
        let stat = store.stat();
        (user, flushes) = (user + stat.since_opened.user_bytes(), flushes + stat.since_opened.flushes());
        let since = stat.since_opened;
        assert_eq!(stat.lifetime.user_bytes(), user);
        for cause in Cause::ALL.iter().copied() {
            let total = before.written_for(cause) - opening.written_for(cause) + since.written_for(cause);
            assert_eq!(stat.lifetime.written_for(cause), total, "{}", cause.name());
            assert_eq!(since.written_for(cause), stat.ledger.programmed_by(cause));
        }
        store.close().unwrap();
        written += media.ledger().programmed_total();
    }
    assert!(user > 4 * 3000 * 200 && flushes > 8, "{user} bytes, {flushes} flushes");
}

#[test]
fn a_crash_takes_no_more_of_the_accounts_than_came_after_the_last_edit() {
    let files = crate::doubtful::Doubtful::default();
    let env: Arc<dyn vellum_base::Env> = RealEnv::new();
    let store = crate::files::open(&files, &env).unwrap();
    for n in 0..3000u32 {
        store.put(&n.to_be_bytes(), &[7; 200]).unwrap();
    }
    store.flush().unwrap();
    let flushed = store.stat().lifetime.user_bytes();
    store.put(b"later", b"v").unwrap();
    let written = store.stat().lifetime.user_bytes();
    files.0.lock().off = true;
    drop(store);
    files.0.lock().crash(|_| true, |_, written| written);
    let store = crate::files::open(&files, &env).unwrap();
    // A merge in the background may have been an edit after the last put.
    let found = store.stat().lifetime.user_bytes();
    assert!((flushed..=written).contains(&found), "{found} is not within {flushed} and {written}");
    assert!(store.get(b"later").unwrap().is_some());
}
