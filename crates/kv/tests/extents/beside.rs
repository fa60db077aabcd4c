//! Writers and readers beside each other, in virtual time, while collection moves what they write and read.

use super::damage::write;
use super::{ALL, INTENT, UNIT, Unit, content, contents, flash};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Env, IoClass, Kind, Nanos, Result};
use vellum_kv::media::{Schedule, Stored, Tables};
use vellum_kv::{FlashMedia, Media};
use vellum_media::nand::NandParams;
use vellum_media::timing::{Timed, Timing};
use vellum_sim::Sim;

const TIMING: Timing = Timing {
    read: Nanos::from_us(50),
    program: Nanos::from_us(600),
    erase: Nanos::from_ms(3),
    suspend: Nanos::from_us(20),
    channel_bytes_per_second: 400_000_000,
};

/// What a table holds. Who reads it holds this, too, and it is not erased before.
type Held = Arc<Vec<Unit>>;

struct World {
    media: Arc<FlashMedia>,
    env: Arc<dyn Env>,
    tables: Mutex<BTreeMap<u64, Held>>,
    next: Mutex<u64>,
}

impl World {
    fn collections(&self) -> u64 {
        self.media.placement().unwrap().collections
    }

    fn number(&self) -> u64 {
        let mut next = self.next.lock();
        *next += 1;
        *next
    }

    fn any(&self, rng: &mut SmallRng) -> Option<(u64, Held)> {
        let tables = self.tables.lock();
        let nth = rng.random_range(0..tables.len().max(1));
        tables.iter().nth(nth).map(|(number, held)| (*number, held.clone()))
    }

    /// A table of new units, and of parts of others.
    fn write(&self, rng: &mut SmallRng) -> Result<()> {
        let number = self.number();
        let mut writer = self.media.create_table(number, INTENT)?;
        let (mut units, mut own) = (Vec::new(), 0);
        for _ in 0..rng.random_range(2..8) {
            let count: u32 = rng.random_range(1..7);
            // Twice as many at most are new: what is stored may have to be written, too.
            if (units.len() + 12) as u64 * UNIT as u64 > writer.capacity() {
                break;
            }
            if let Some((table, there)) = self.any(rng).filter(|_| rng.random_range(0..3) > 0) {
                let offset = rng.random_range(0..there.len());
                let part = &there[offset..there.len().min(offset + count as usize)];
                let bytes = contents(part.iter().copied());
                writer.append_stored(&bytes, Stored { table, offset: (offset * UNIT) as u64 })?;
                units.extend_from_slice(part);
            }
            let part: Vec<Unit> = (own..own + count).map(|unit| (number, unit)).collect();
            writer.append(&contents(part.iter().copied()))?;
            units.extend(part);
            own += count;
            self.env.sleep_until(self.env.now() + Nanos::from_us(rng.random_range(0..3000)));
        }
        writer.finish(0)?;
        self.tables.lock().insert(number, Arc::new(units));
        Ok(())
    }

    fn erase(&self, rng: &mut SmallRng) -> Result<()> {
        let Some((table, _)) = self.any(rng) else { return Ok(()) };
        let Some(held) = self.tables.lock().remove(&table) else { return Ok(()) };
        while Arc::strong_count(&held) > 1 {
            self.env.sleep_until(self.env.now() + Nanos::from_us(50));
        }
        self.media.erase_table(table)
    }

    fn read(&self, rng: &mut SmallRng, context: &str) {
        let Some((table, held)) = self.any(rng) else {
            return self.env.sleep_until(self.env.now() + Nanos::from_us(1000));
        };
        let reader = self.media.open_table(table).unwrap_or_else(|e| panic!("{context}: {e}"));
        let asked = reader.ask(0, held.len() * UNIT, IoClass::Background).unwrap();
        self.env.sleep_until(self.env.now() + Nanos::from_us(rng.random_range(0..2000)));
        let bytes = asked.wait(&*self.env).unwrap_or_else(|e| panic!("{context}: {e}"));
        for (unit, found) in held.iter().zip(bytes.chunks(UNIT)) {
            assert!(found == content(*unit), "{context}: table {table}: {unit:?}");
        }
    }
}

fn live_beside(seed: u64, schedule: Schedule) {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    let nand = flash(seed, NandParams::default(), 22, 8192);
    sim.run(|| {
        let flash = Arc::new(Timed::new(nand, TIMING, env.clone()));
        let media = FlashMedia::open_scheduled(flash, env.clone(), schedule).unwrap();
        media.set_relinking(ALL);
        media.sharing(64).unwrap();
        let (tables, next) = (Mutex::default(), Mutex::new(0));
        let world = Arc::new(World { media, env: env.clone(), tables, next });
        let spawn = |task: u64| {
            let (world, mut rng) = (world.clone(), SmallRng::seed_from_u64(seed << 8 | task));
            let body = move || {
                // Until something has been collected: where many tables are erased that takes long.
                for step in (0..).take_while(|step| *step < 120 || world.collections() == 0) {
                    let context = format!("seed {seed}, task {task}, step {step}");
                    assert!(step < 5000, "{context}: nothing is collected");
                    let result = match (task, rng.random_range(0..10)) {
                        (0..2, 0..4) => world.erase(&mut rng),
                        (0..2, _) => world.write(&mut rng),
                        _ => {
                            (0..4).for_each(|_| world.read(&mut rng, &context));
                            Ok(())
                        }
                    };
                    match result {
                        Err(e) if e.kind() == Kind::NoSpace => world.erase(&mut rng).unwrap(),
                        other => other.unwrap_or_else(|e| panic!("{context}: {e}")),
                    }
                }
            };
            env.clone().spawn("beside", Box::new(body))
        };
        let tasks: Vec<_> = (0..4).map(spawn).collect();
        tasks.into_iter().for_each(|task| task.join());
        assert_eq!(world.media.problems(), Vec::<String>::new(), "seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        (0..100).for_each(|_| world.read(&mut rng, "at the end"));
    });
}

/// While collection copies and erases, what it will win is promised as before, and every superblock is somewhere.
#[test]
fn promises_hold_while_superblocks_are_collected() {
    let (sim, nand) = (Sim::new(1), flash(1, NandParams::default(), 22, 8192));
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let flash = Arc::new(Timed::new(nand, TIMING, env.clone()));
        let media = FlashMedia::open_scheduled(flash, env.clone(), Schedule::Priority).unwrap();
        media.set_relinking(ALL);
        media.sharing(64).unwrap();
        let mut next = 1;
        while media.placement().unwrap().free > 2 {
            write(&media, next, 40, &[]);
            write(&media, next + 1, 1, &[next]);
            media.erase_table(next).unwrap();
            env.sleep_until(env.now() + Nanos::from_ms(20));
            next += 2;
        }
        write(&media, next, 1, &[]);
        assert_eq!(media.placement().unwrap().free, 1);
        let (promised, done) = (media.tables_free(), Arc::new(Mutex::new(false)));
        assert!(promised > 10, "{promised}");
        let (watched, watch_env, is_done) = (media.clone(), env.clone(), done.clone());
        let watch = move || {
            for nth in 0.. {
                if *is_done.lock() {
                    break;
                }
                // The table that waits has its superblock when the collection is done, and not before.
                let taken = watched.placement().unwrap().collections;
                assert!(watched.tables_free() + taken >= promised, "{} of {promised}", watched.tables_free());
                // Who reads by a layout that counts no more keeps what was collected from being erased.
                let reader = watched.open_table(2 + 2 * (nth % 3)).unwrap();
                drop(reader.ask(0, 2 * UNIT, IoClass::Background).unwrap());
                // It reads: not so often that the flash comes to nothing else.
                if nth % 20 == 0 {
                    assert_eq!(watched.problems(), Vec::<String>::new());
                }
                watch_env.sleep_until(watch_env.now() + Nanos::from_us(300));
            }
        };
        let watcher = env.clone().spawn("watch", Box::new(watch));
        write(&media, next + 1, 1, &[]);
        env.sleep_until(env.now() + Nanos::from_ms(50));
        *done.lock() = true;
        watcher.join();
        assert_eq!(media.placement().unwrap().collections, 1);
        assert_eq!(media.tables_free() + 1, promised);
    });
}

#[test]
fn what_is_moved_is_read_and_taken_over_meanwhile() {
    vellum_sim::check(400..416, |seed| {
        let schedule = if seed % 2 == 0 { Schedule::Priority } else { Schedule::Noop };
        live_beside(seed, schedule);
    });
}
