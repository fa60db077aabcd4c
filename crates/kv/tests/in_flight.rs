//! The power goes in the middle of virtual time: writers, a flush and compactions under way, programs and erases
//! queued on every die. What was queued never happened, what had begun is torn.

use crate::harness::{Compared, batch_of, flash_with, of_seed, open_flash, small};
use crate::history::{History, Style};
use crate::log::harness as logs;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{BlockAddr, Env, Flash, Kind, Nanos, RealEnv};
use vellum_kv::media::Schedule;
use vellum_kv::{Durability, FlashMedia, Map, Media, Store, log};
use vellum_media::nand::NandParams;
use vellum_media::timing::{Timed, Timing};
use vellum_sim::{Sim, SimEnv};

const WRITERS: u8 = 3;

const STYLE: Style = Style { keys: 300, value_bytes: 600 };

pub(crate) fn timing() -> Timing {
    Timing {
        read: Nanos::from_us(50),
        program: Nanos::from_us(600),
        erase: Nanos::from_ms(3),
        suspend: Nanos::from_us(20),
        channel_bytes_per_second: 400_000_000,
    }
}

fn writer(store: &impl Map, env: &dyn Env, history: &Mutex<History>, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    loop {
        let count = rng.random_range(1..4);
        let ops = history.lock().next(&mut rng, count, &STYLE);
        store.write(&batch_of(&ops), Durability::Buffered).expect("write");
        history.lock().promise();
        if rng.random_range(0..30) == 0 {
            env.sleep_until(env.now() + Nanos::from_us(rng.random_range(0..5000)));
        }
    }
}

fn ordered(media: Arc<dyn Media>, env: Arc<dyn Env>, seed: u64) -> Store {
    Store::open(media, env, of_seed(seed)).unwrap()
}

fn settle(store: &impl Compared, histories: &[Arc<Mutex<History>>], context: &str) {
    for (number, history) in histories.iter().enumerate() {
        history.lock().settle(store, &format!("{context}, writer {number}"));
    }
}

fn cut_in_flight<S: Compared + 'static>(
    seed: u64,
    schedule: Option<Schedule>,
    open: impl Fn(Arc<dyn Media>, Arc<dyn Env>) -> S,
) {
    let nand = flash_with(NandParams { seed, nvram_bytes: 1 << 20, erases_kept: 8, ..NandParams::default() });
    let sim = Sim::new(seed);
    let env: Arc<SimEnv> = sim.env();
    let flash = Arc::new(Timed::new(nand.clone(), timing(), env.clone()));
    let histories: Vec<_> = (0..WRITERS).map(|number| Arc::new(Mutex::new(History::of(&[number])))).collect();
    let cut_at = Nanos::from_us(SmallRng::seed_from_u64(seed).random_range(100..700_000));
    let ended = sim.run_until(Nanos(u64::MAX), || {
        let media = match schedule {
            None => FlashMedia::open(flash.clone(), env.clone()),
            Some(schedule) => FlashMedia::open_scheduled(flash.clone(), env.clone(), schedule),
        };
        let media = media.unwrap();
        let store = Arc::new(open(media, env.clone()));
        for (number, history) in histories.iter().enumerate() {
            let (store, env, history, seed) =
                (store.clone(), env.clone(), history.clone(), seed ^ number as u64);
            env.clone().spawn("writer", Box::new(move || writer(&*store, &*env, &history, seed)));
        }
        env.sleep_until(cut_at);
        flash.power_cut().unwrap();
        env.cut_power();
    });
    assert!(ended.is_none());
    nand.power_on();
    let context = format!("seed {seed}, cut at {cut_at}");
    let env = RealEnv::new();
    let store = open(FlashMedia::open(nand, env.clone()).unwrap_or_else(|e| panic!("{context}: {e}")), env);
    settle(&store, &histories, &context);
    store.compact().unwrap_or_else(|e| panic!("{context}: {e}"));
    settle(&store, &histories, &format!("{context}, compacted"));
}

/// Opening flash reads the first and last page of every erase block that was written to, dies beside each other.
#[test]
fn recovery_takes_the_time_of_its_reads() {
    let nand = flash_with(NandParams { nvram_bytes: 1 << 20, ..NandParams::default() });
    let store = open_flash(&nand, RealEnv::new()).unwrap();
    (0..10_000u32).for_each(|n| store.put(&n.to_be_bytes(), &[n as u8; 500]).unwrap());
    store.close().unwrap();
    let (geometry, sim) = (*nand.geometry(), Sim::new(1));
    let written =
        (0..geometry.blocks()).map(BlockAddr).filter(|block| nand.report(*block).pages_written > 0).count()
            as u64;
    let flash = Arc::new(Timed::new(nand, timing(), sim.env()));
    let env: Arc<SimEnv> = sim.env();
    let took = sim.run(|| {
        FlashMedia::open(flash, env.clone()).unwrap();
        env.now()
    });
    let reads = 2 * written / u64::from(geometry.dies());
    let (least, most) = (reads * timing().read.0, 2 * reads * timing().read.0);
    assert!(written > 50 && (least..most).contains(&took.0), "{took} for {written} blocks");
}

/// Logs take slots of NVRAM, six here, until they are flushed, which these openings have no time for: whichever finds
/// none waits for it, and has what is in all the others flushed together.
#[test]
fn openings_that_are_cut_short_at_once_leave_room_for_the_next() {
    let nand = flash_with(NandParams { nvram_bytes: 320 << 10, ..NandParams::default() });
    for opening in 0..40u32 {
        let sim = Sim::new(opening.into());
        let env: Arc<SimEnv> = sim.env();
        let flash = Arc::new(Timed::new(nand.clone(), timing(), env.clone()));
        let ended = sim.run_until(Nanos(u64::MAX), || {
            let media = FlashMedia::open(flash.clone(), env.clone()).unwrap();
            let store = Store::open(media, env.clone(), small()).unwrap();
            store.put(&opening.to_be_bytes(), &[7; 100]).unwrap();
            flash.power_cut().unwrap();
            env.cut_power();
        });
        assert!(ended.is_none());
        nand.power_on();
    }
    let store = open_flash(&nand, RealEnv::new()).unwrap();
    let is_there = |opening: u32| store.get(&opening.to_be_bytes()).unwrap().is_some();
    assert!((0..40).all(is_there));
    assert!(store.stat().levels[0].tables <= 40 / 5, "{:?}", store.stat().levels[0]);
}

#[test]
fn cuts_of_long_lives_with_programs_in_flight_lose_nothing_promised() {
    vellum_sim::check(0..80, |seed| cut_in_flight(seed, None, |media, env| ordered(media, env, seed)));
}

#[test]
fn cuts_of_long_lives_with_requests_in_queues_lose_nothing_promised() {
    let cut = |seed| {
        cut_in_flight(seed, Some(Schedule::Priority), |media, env| ordered(media, env, seed));
    };
    vellum_sim::check(1000..1060, cut);
}

#[test]
fn cuts_of_long_lives_of_log_stores_in_flight_lose_nothing_promised() {
    let open = |media, env, seed| log::Store::open(media, env, logs::of_seed(seed)).unwrap();
    vellum_sim::check(0..80, |seed| {
        let schedule = Some(Schedule::Priority).filter(|_| seed % 5 % 2 == 1);
        cut_in_flight(seed, schedule, |media, env| open(media, env, seed));
    });
}

/// Whoever closes the store waits for a table that is being written, and time passes.
#[test]
fn a_store_is_closed_beside_an_ingest_in_virtual_time() {
    let sim = Sim::new(1);
    let env: Arc<SimEnv> = sim.env();
    let ended = sim.run_until(Nanos::from_ms(60_000), || {
        let nand = flash_with(NandParams { nvram_bytes: 1 << 20, ..NandParams::default() });
        let flash = Arc::new(Timed::new(nand, timing(), env.clone()));
        let store = Store::open(FlashMedia::open(flash, env.clone()).unwrap(), env.clone(), small()).unwrap();
        let space = store.create_keyspace("space").unwrap();
        let ingest = move || {
            let mut ingest = space.ingest().unwrap();
            (0..5000u32).find_map(|n| ingest.put(&n.to_be_bytes(), &[7; 900]).err()).unwrap().kind()
        };
        let told = Arc::new(Mutex::new(None));
        let of_task = told.clone();
        let task = env.clone().spawn("ingest", Box::new(move || *of_task.lock() = Some(ingest())));
        env.sleep_until(env.now() + Nanos::from_ms(20));
        store.close().unwrap();
        task.join();
        *told.lock()
    });
    assert_eq!(ended, Some(Some(Kind::Poisoned)));
}

/// Whoever waits for a segment to be sealed while there is nothing to collect lets time pass.
#[test]
fn log_stores_seal_in_virtual_time() {
    let sim = Sim::new(1);
    let env: Arc<SimEnv> = sim.env();
    let ended = sim.run_until(Nanos::from_ms(10_000), || {
        let nand = flash_with(NandParams { nvram_bytes: 1 << 20, ..NandParams::default() });
        let flash = Arc::new(Timed::new(nand, timing(), env.clone()));
        let media = FlashMedia::open(flash, env.clone()).unwrap();
        let store = log::Store::open(media, env.clone(), logs::small()).unwrap();
        store.put(b"k", b"v").unwrap();
        store.flush().unwrap();
        store.stat().keys
    });
    assert_eq!(ended, Some(1));
}
