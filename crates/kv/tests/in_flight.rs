//! The power goes in the middle of virtual time: writers, a flush and compactions under way, programs and erases
//! queued on every die. What was queued never happened, what had begun is torn.

use crate::harness::{Model, Op, apply, batch_of, flash_with, forward, open_flash, small};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Env, Nanos, RealEnv};
use vellum_kv::{Bounds, Durability, FlashMedia, Store};
use vellum_media::nand::NandParams;
use vellum_media::timing::{Timed, Timing};
use vellum_sim::{Sim, SimEnv};

const WRITERS: u8 = 3;

/// What one writer wrote to keys that begin with its number; how much of it was promised to survive.
#[derive(Default)]
struct History {
    batches: Vec<Vec<Op>>,
    promised: usize,
}

fn timing() -> Timing {
    Timing {
        read: Nanos::from_us(50),
        program: Nanos::from_us(600),
        erase: Nanos::from_ms(3),
        suspend: Nanos::from_us(20),
        channel_bytes_per_second: 400_000_000,
    }
}

/// The key that holds the number of the writer's last batch.
fn last_key(writer: u8) -> Vec<u8> {
    vec![writer, 0xFF]
}

fn writer(store: &Store, env: &dyn Env, history: &Mutex<Vec<History>>, number: u8, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed ^ number as u64);
    loop {
        let mut ops: Vec<Op> = (0..rng.random_range(1..4))
            .map(|_| {
                let key = [&[number], format!("{:03}", rng.random_range(0..300)).as_bytes()].concat();
                match rng.random_range(0..4) {
                    0 => Op::Delete(key),
                    _ => Op::Put(key, vec![rng.random(); rng.random_range(0..600)]),
                }
            })
            .collect();
        let count = {
            let mut history = history.lock();
            let own = &mut history[number as usize];
            let count = own.batches.len() + 1;
            ops.push(Op::Put(last_key(number), (count as u64).to_le_bytes().to_vec()));
            own.batches.push(ops.clone());
            count
        };
        store.write(&batch_of(&ops), Durability::Buffered).expect("write");
        history.lock()[number as usize].promised = count;
        if rng.random_range(0..30) == 0 {
            env.sleep_until(env.now() + Nanos::from_us(rng.random_range(0..5000)));
        }
    }
}

fn check(store: &Store, history: &[History], context: &str) {
    for (number, own) in history.iter().enumerate() {
        let number = number as u8;
        let last = store.get(&last_key(number)).unwrap_or_else(|e| panic!("{context}: {e}"));
        let found = last.map_or(0, |last| u64::from_le_bytes(last.try_into().unwrap()) as usize);
        assert!(found >= own.promised, "{context}: writer {number}: {found} of {} promised", own.promised);
        let mut model = Model::new();
        own.batches[..found].iter().for_each(|ops| apply(&mut model, ops));
        let all = forward(store.iter(Bounds::prefix(&[number])).unwrap())
            .unwrap_or_else(|e| panic!("{context}: {e}"));
        assert!(all == model, "{context}: writer {number}");
    }
}

fn cut_in_flight(seed: u64) {
    let nand = flash_with(NandParams { seed, nvram_bytes: 1 << 20, erases_kept: 8, ..NandParams::default() });
    let sim = Sim::new(seed);
    let env: Arc<SimEnv> = sim.env();
    let flash = Arc::new(Timed::new(nand.clone(), timing(), env.clone()));
    let history: Arc<Mutex<Vec<History>>> = Arc::default();
    history.lock().resize_with(WRITERS as usize, History::default);
    let cut_at = Nanos::from_us(SmallRng::seed_from_u64(seed).random_range(100..700_000));
    let ended = sim.run_until(Nanos(u64::MAX), || {
        let media = FlashMedia::open(flash.clone(), env.clone()).unwrap();
        let store = Arc::new(Store::open(media, env.clone(), small()).unwrap());
        for number in 0..WRITERS {
            let (store, env, history) = (store.clone(), env.clone(), history.clone());
            env.clone().spawn("writer", Box::new(move || writer(&store, &*env, &history, number, seed)));
        }
        env.sleep_until(cut_at);
        flash.power_cut().unwrap();
        env.cut_power();
    });
    assert!(ended.is_none());
    nand.power_on();
    let context = format!("seed {seed}, cut at {cut_at}");
    let store = open_flash(&nand, RealEnv::new()).unwrap_or_else(|e| panic!("{context}: {e}"));
    check(&store, &history.lock(), &context);
    store.compact().unwrap_or_else(|e| panic!("{context}: {e}"));
    check(&store, &history.lock(), &format!("{context}, compacted"));
}

#[test]
fn cuts_with_programs_in_flight_lose_nothing_promised() {
    vellum_sim::check(0..80, cut_in_flight);
}
