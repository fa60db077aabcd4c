//! Media that fail under a store that goes on running: at every call of a short life, at random ones of long lives.
//! Clear errors, no panic, and what was synced is safe.

use crate::doubtful::{self, Doubtful};
use crate::harness::{Compared, batch_of, flash, media_of_seed, small};
use crate::history::{History, Style};
use crate::lives::end_at_every_call;
use crate::log::harness as logs;
use crate::zones;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use vellum_base::{Env, Error, Kind, Result};
use vellum_kv::{Durability, Map, Media, Store, log};
use vellum_media::nand::{Fault, Nand};
use vellum_media::zones::RamZones;
use vellum_sim::Sim;

const STYLE: Style = Style { keys: 300, value_bytes: 900 };
pub(crate) const EIO: i32 = 5;

/// A medium that fails as it is told.
pub(crate) trait Failing {
    fn open(&self, env: &Arc<dyn Env>) -> Result<Arc<dyn Media>>;
    /// The `nth` call from now will fail.
    fn arm(&self, nth: u64);
    /// True if it did.
    fn has_failed(&self) -> bool;
    /// It is plugged in again. If it was pulled, chance decides what is left of what was not safe.
    fn mend(&self, rng: &mut SmallRng);
}

impl Failing for Doubtful {
    fn open(&self, _env: &Arc<dyn Env>) -> Result<Arc<dyn Media>> {
        Ok(self.directory())
    }
    fn arm(&self, nth: u64) {
        self.0.lock().left = Some(nth);
    }
    fn has_failed(&self) -> bool {
        self.0.lock().left.is_none()
    }
    fn mend(&self, rng: &mut SmallRng) {
        let mut state = self.0.lock();
        if state.off {
            state.crash_by_chance(rng);
        }
        state.left = None;
    }
}

pub(crate) struct Board {
    pub(crate) nand: Arc<Nand>,
    pub(crate) seed: u64,
    pub(crate) fault: Fault,
}

impl Failing for Board {
    fn open(&self, env: &Arc<dyn Env>) -> Result<Arc<dyn Media>> {
        Ok(media_of_seed(self.seed, self.nand.clone(), env.clone())?)
    }
    fn arm(&self, nth: u64) {
        self.nand.arm(nth, self.fault);
    }
    fn has_failed(&self) -> bool {
        !self.nand.is_armed()
    }
    fn mend(&self, _rng: &mut SmallRng) {
        self.nand.power_on();
    }
}

pub(crate) struct Zoned {
    pub(crate) files: Doubtful,
    pub(crate) zones: Arc<RamZones>,
    pub(crate) is_pulled: bool,
}

impl Failing for Zoned {
    fn open(&self, _env: &Arc<dyn Env>) -> Result<Arc<dyn Media>> {
        Ok(zones::media(&self.files, &self.zones)?)
    }
    fn arm(&self, nth: u64) {
        match self.is_pulled {
            true => self.zones.power_cut_at(nth),
            false => self.zones.fail_at(nth),
        }
    }
    fn has_failed(&self) -> bool {
        !self.zones.is_armed()
    }
    fn mend(&self, _rng: &mut SmallRng) {
        self.zones.power_on();
    }
}

fn assert_clear(error: &Error, context: &str) {
    assert!(matches!(error.kind(), Kind::Io | Kind::Poisoned | Kind::PowerLost), "{context}: {error}");
}

pub(crate) type Open<M> = fn(Arc<dyn Media>, Arc<dyn Env>) -> Result<M>;

struct Engine<M> {
    open: Open<M>,
    close: fn(M) -> Result<()>,
    /// Writes read what is there before: they are refused if that fails, and the store goes on.
    reads_first: bool,
}

const ORDERED: Engine<Store> = Engine {
    open: |media, env| Store::open(media, env, small()),
    close: |store| store.close(),
    reads_first: false,
};
const LOG: Engine<log::Store> = Engine {
    open: |media, env| log::Store::open(media, env, logs::small()),
    close: |store| store.close(),
    reads_first: true,
};

/// Writes until something fails, and then some more.
fn write<M: Map>(
    (store, engine): (&M, &Engine<M>),
    history: &mut History,
    rng: &mut SmallRng,
    steps: usize,
    context: &str,
) {
    for step in 0..steps {
        let ops = history.next(rng, 1, &STYLE);
        let durability = if rng.random_range(0..8) == 0 { Durability::Sync } else { Durability::Buffered };
        let flush = step % 90 == 89;
        let written = store.write(&batch_of(&ops), durability);
        let was_refused = written.is_err();
        match written.and_then(|()| if flush { store.flush() } else { Ok(()) }) {
            Ok(()) if durability == Durability::Sync || flush => history.promise(),
            Ok(()) => {}
            Err(error) => {
                assert_clear(&error, context);
                if was_refused && engine.reads_first && store.sync().is_ok() {
                    history.take_back();
                    history.promise();
                    continue;
                }
                return assert_ended(store, context);
            }
        }
    }
}

/// Nothing is written any more. Reading goes on, as far as the medium does.
fn assert_ended(store: &impl Map, context: &str) {
    for again in [store.put(b"k", b"v"), store.sync(), store.flush(), store.compact()] {
        assert_clear(&again.expect_err(context), context);
    }
    let _ = (store.get(b"key0001"), store.verify(), store.each(&mut |_, _| Ok(())));
}

/// A life of so many steps on a medium whose `nth` call fails. True if there were so many.
fn life<M: Compared>(
    engine: &Engine<M>,
    medium: &impl Failing,
    (seed, steps, nth): (u64, usize, u64),
    what: &str,
) -> bool {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    let (mut history, mut rng) = (History::default(), SmallRng::seed_from_u64(seed));
    let context = format!("seed {seed}, {what} at call {nth}");
    let open = || (engine.open)(medium.open(&env)?, env.clone());
    sim.run(|| {
        medium.arm(nth);
        let closed = open().and_then(|store| {
            write((&store, engine), &mut history, &mut rng, steps, &context);
            (engine.close)(store)
        });
        if let Err(error) = closed {
            assert_clear(&error, &context);
        }
        let has_failed = medium.has_failed();
        medium.mend(&mut rng);
        let store = open().unwrap_or_else(|e| panic!("{context}: {e}"));
        history.settle(&store, &context);
        store.put(b"key0001", b"goes on").unwrap_or_else(|e| panic!("{context}: {e}"));
        has_failed
    })
}

/// Where there is no memory that is no failure: the log is written by calls then. Returns how often something was put
/// into memory.
fn in_a_directory<M: Compared>(engine: &Engine<M>, fault: doubtful::Fault) -> u32 {
    let puts = AtomicU32::new(0);
    end_at_every_call(0..2, 150, |seed, nth| {
        let files = Doubtful::default();
        files.0.lock().fault = fault;
        files.0.lock().no_memory = seed % 2 == 1;
        let has_failed = life(engine, &files, (seed, 250, nth), &format!("{fault:?}"));
        puts.fetch_add(files.0.lock().puts, Relaxed);
        has_failed
    });
    puts.into_inner()
}

fn at_every_call_of_a_directory(fault: doubtful::Fault) {
    let puts = in_a_directory(&ORDERED, fault);
    assert!(puts > 10_000, "{puts} in memory");
    in_a_directory(&LOG, fault);
}

#[test]
fn a_device_that_is_pulled_at_every_call() {
    at_every_call_of_a_directory(doubtful::Fault::Pulled);
}

#[test]
fn an_error_at_every_call() {
    at_every_call_of_a_directory(doubtful::Fault::Once);
}

/// Reads are calls, too.
fn on_flash<M: Compared>(engine: &Engine<M>, life_of: (u64, usize, u64), fault: Fault) -> bool {
    let seed = life_of.0;
    life(engine, &Board { nand: flash(seed), seed, fault }, life_of, &format!("{fault:?}"))
}

#[test]
fn an_error_at_every_call_of_flash() {
    let fault = Fault::Host { errno: EIO };
    end_at_every_call(0..2, 300, |seed, nth| on_flash(&ORDERED, (seed, 400, nth), fault));
    end_at_every_call(0..2, 300, |seed, nth| on_flash(&LOG, (seed, 250, nth), fault));
}

#[test]
fn flash_that_is_pulled_at_every_program_and_erase() {
    end_at_every_call(0..2, 80, |seed, nth| on_flash(&ORDERED, (seed, 600, nth), Fault::PowerCut));
    end_at_every_call(0..2, 80, |seed, nth| on_flash(&LOG, (seed, 600, nth), Fault::PowerCut));
}

#[test]
fn flash_that_fails_in_long_lives() {
    vellum_sim::check(200..240, |seed| {
        let (fault, calls) = match seed % 4 {
            0..2 => (Fault::Host { errno: EIO }, 3000),
            2 => (Fault::PowerCutInNvram, 2000),
            _ => (Fault::PowerCut, 600),
        };
        let life_of = (seed, 2000, 1 + seed * 7919 % calls);
        on_flash(&ORDERED, life_of, fault);
        on_flash(&LOG, life_of, fault);
    });
}

fn on_zones<M: Compared>(engine: &Engine<M>, life_of: (u64, usize, u64), is_pulled: bool) -> bool {
    let seed = life_of.0;
    let (files, zones) = zones::formatted((seed / 2).is_multiple_of(2), seed);
    let what = if is_pulled { "pulled" } else { "an error" };
    life(engine, &Zoned { files, zones, is_pulled }, life_of, what)
}

fn at_every_call_of_zones(is_pulled: bool) {
    end_at_every_call(0..4, 40, |seed, nth| on_zones(&ORDERED, (seed, 900, nth), is_pulled));
    end_at_every_call(0..4, 40, |seed, nth| on_zones(&LOG, (seed, 900, nth), is_pulled));
}

#[test]
fn an_error_at_every_call_of_zones() {
    at_every_call_of_zones(false);
}

#[test]
fn zones_that_are_pulled_at_every_call() {
    at_every_call_of_zones(true);
}

#[test]
fn zones_that_fail_in_long_lives() {
    vellum_sim::check(200..240, |seed| {
        let life_of = (seed, 3000, 1 + seed * 7919 % 200);
        on_zones(&ORDERED, life_of, seed % 2 == 0);
        on_zones(&LOG, life_of, seed % 2 == 0);
    });
}
