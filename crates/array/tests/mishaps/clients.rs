//! Clients that write all the time, each to sectors of its own, while things happen.

use super::host::Host;
use super::world::World;
use crate::harness::{Kind, random_range, rng};
use rand::Rng;
use rand::rngs::SmallRng;
use std::sync::Arc;
use vellum_array::{Array, Repair};
use vellum_base::{BlockDevice, Env, Nanos, Task};
use vellum_sim::Sim;

const CLIENTS: u64 = 3;
const ROUNDS: u64 = 3;
const REQUESTS: usize = 20;

/// Rounds of load, each on the array anew. The power goes for odd seeds only.
pub(super) fn run(kind: Kind, seed: u64) {
    let sim = Sim::new(seed);
    sim.run(|| {
        let (mut world, mut rng) = (World::new(kind, sim.env(), seed, true), rng(seed));
        for _ in 0..ROUNDS {
            let array = Arc::new(world.open(None).unwrap());
            let clients = (0..CLIENTS).map(|client| start(&world, &array, client, rng.random()));
            let clients: Vec<Task> = clients.collect();
            if seed % 2 == 1 && rng.random_bool(0.5) {
                world.rig.power.cut_at(rng.random_range(1..600));
            }
            for _ in 0..rng.random_range(2..9) {
                let env = &world.rig.env;
                env.sleep_until(env.now() + Nanos(rng.random_range(0..1_500_000)));
                if !something_happens(&mut world, &array, &mut rng) {
                    break;
                }
            }
            clients.into_iter().for_each(Task::join);
            drop(array);
            if world.rig.power.is_off() {
                world.cut(rng.random());
            }
            world.check();
        }
    });
}

fn start(world: &World, array: &Arc<Array>, client: u64, seed: u64) -> Task {
    let (array, host, env) = (array.clone(), world.host.clone(), world.rig.env.clone());
    let run = move || {
        let mut rng = rng(seed);
        (0..REQUESTS).for_each(|_| request(&array, &host, &*env, client, &mut rng));
    };
    world.rig.env.clone().spawn("client", Box::new(run))
}

fn request(array: &Array, host: &Host, env: &dyn Env, client: u64, rng: &mut SmallRng) {
    let own = array.info().sectors / CLIENTS;
    let (lba, count) = random_range(rng, own, 14);
    let range = (client * own + lba, count);
    match rng.random_range(0..10) {
        0..6 => host.write(array, range, rng.random_bool(0.3)),
        6..9 => host.read(array, range),
        // Others write meanwhile: what it means for them is not known here.
        _ => drop(array.flush()),
    }
    if rng.random_bool(0.3) {
        env.sleep_until(env.now() + Nanos(rng.random_range(0..300_000)));
    }
}

/// False: which disk is a member's is not known.
fn something_happens(world: &mut World, array: &Array, rng: &mut SmallRng) -> bool {
    let (role, shape) = (rng.random_range(0..world.rig.kind.members), array.status().shape);
    let sector = 256 + rng.random_range(0..shape.rows * u64::from(shape.chunk_sectors));
    let what = rng.random_range(0..16);
    world.host.tell(format!("event {what} of {role}, sector {sector}"));
    match what {
        0 => world.faults(role).lock().writes = true,
        1 => world.faults(role).lock().flushes = true,
        2..5 => drop(world.faults(role).lock().worn_out.insert(sector)),
        5..7 => drop(world.faults(role).lock().unread.insert(sector)),
        7 => world.faults(role).lock().nth = rng.random_range(1..20),
        8 => world.calm(),
        9 => world.host.tell(format!("fail: {:?}", array.fail(role))),
        10..12 => return world.take_in(array),
        12..14 => world.host.tell(format!("rebuild: {:?}", array.rebuild(false, |_| true))),
        14 => {
            let nth = if rng.random_bool(0.3) { rng.random_range(1..60) } else { 0 };
            return world.replace(array, role, nth, |_| {});
        }
        _ => {
            let scrubbed = array.scrub(0..shape.rows, Repair::None, |_| true);
            assert!(scrubbed.is_err() || scrubbed.is_ok_and(|scrub| scrub.mismatches == 0));
        }
    }
    true
}
