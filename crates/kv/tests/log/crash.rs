//! Power cuts: at every call of short lives, at random ones of long lives, and again during recovery; in a directory,
//! on flash, on zones.

use super::harness::of_seed;
use crate::harness::flash;
use crate::history::{History, Style};
use crate::lives::{Power, end_at_every_call, life_in_directory, live_on, write};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::Env;
use vellum_kv::FlashMedia;
use vellum_kv::log::Store;
use vellum_media::nand::{Fault, Nand};
use vellum_sim::Sim;

const STYLE: Style = Style { keys: 300, value_bytes: 900 };

fn life(seed: u64, steps: usize, nth: u64) -> bool {
    life_in_directory((seed, steps, nth), &STYLE, |media, env| Store::open(media, env, of_seed(seed)))
}

#[test]
fn a_log_store_cut_at_every_call() {
    end_at_every_call(10..12, 100, |seed, nth| life(seed, 250, nth));
}

#[test]
fn a_log_store_cut_at_random_calls_of_long_lives() {
    vellum_sim::check(50..80, |seed| {
        life(seed, 3000, 1 + seed * 7919 % 3000);
    });
}

/// Flash under one switch.
struct Board(Arc<Nand>);

impl Power for Board {
    fn is_off(&self) -> bool {
        self.0.is_off()
    }
    fn cycle(&self, _rng: &mut SmallRng) {
        self.0.power_on();
    }
    fn arm_for_recovery(&self, rng: &mut SmallRng) {
        match rng.random_range(0..3) {
            0 => self.0.power_cut_at(rng.random_range(1..30)),
            1 => self.0.arm(rng.random_range(1..6), Fault::PowerCutInNvram),
            _ => {}
        }
    }
    fn arm(&self, rng: &mut SmallRng) {
        match rng.random() {
            true => self.0.power_cut_at(rng.random_range(1..200)),
            false => self.0.arm(rng.random_range(1..400), Fault::PowerCutInNvram),
        }
    }
    fn disarm(&self) {
        self.0.disarm();
    }
}

fn life_on_flash(seed: u64, steps: usize, nth: u64, fault: Fault) -> bool {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    let (board, mut history) = (Board(flash(seed)), History::default());
    let mut rng = SmallRng::seed_from_u64(seed ^ nth << 32);
    let context = format!("seed {seed}, {fault:?} at {nth}");
    let open = || Store::open(FlashMedia::open(board.0.clone(), env.clone())?, env.clone(), of_seed(seed));
    sim.run(|| {
        board.0.arm(nth, fault);
        if let Ok(store) = open() {
            write(&store, &mut history, &mut rng, steps, &STYLE);
        }
        let cut = board.is_off();
        live_on(&board, open, &mut history, &mut rng, &STYLE, &context);
        cut
    })
}

#[test]
fn a_log_store_on_flash_cut_at_every_program_and_erase() {
    end_at_every_call(20..21, 60, |seed, nth| life_on_flash(seed, 1400, nth, Fault::PowerCut));
}

#[test]
fn a_log_store_on_flash_cut_at_every_nvram_write() {
    end_at_every_call(30..31, 100, |seed, nth| life_on_flash(seed, 200, nth, Fault::PowerCutInNvram));
}

#[test]
fn a_log_store_on_flash_cut_in_long_lives() {
    vellum_sim::check(300..320, |seed| {
        life_on_flash(seed, 3000, 1 + seed * 7919 % 900, Fault::PowerCut);
    });
}

#[test]
fn a_log_store_on_zones_cut_in_long_lives() {
    vellum_sim::check(400..420, |seed| {
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        let power = crate::zones::formatted(seed % 2 == 0, seed);
        let mut rng = SmallRng::seed_from_u64(seed);
        let (mut history, context) = (History::default(), format!("seed {seed}"));
        let open = || Store::open(crate::zones::media(&power.0, &power.1)?, env.clone(), of_seed(seed));
        sim.run(|| live_on(&power, open, &mut history, &mut rng, &STYLE, &context));
    });
}
