//! One client, and one thing after the other.

use super::world::World;
use crate::harness::{Kind, random_range, rng};
use rand::Rng;
use rand::rngs::SmallRng;
use vellum_array::{Array, Repair};
use vellum_sim::Sim;

/// Rows in which more happens than in the others, so that one thing meets another.
const HAUNTED: u64 = 3;

/// See the module.
struct Steps {
    world: World,
    rng: SmallRng,
    array: Option<Array>,
    has_cuts: bool,
}

/// A random number of random steps. The power goes for odd seeds only.
pub(super) fn run(kind: Kind, seed: u64) {
    let sim = Sim::new(seed);
    sim.run(|| {
        let mut world = World::new(kind, sim.env(), seed, false);
        let array = Some(world.open(None).unwrap());
        let mut steps = Steps { world, rng: rng(seed), array, has_cuts: seed % 2 == 1 };
        for _ in 0..steps.rng.random_range(10..60) {
            steps.step();
        }
        steps.array = None;
        steps.come_back();
        steps.world.check();
    });
}

impl Steps {
    fn step(&mut self) {
        let is_off = self.world.rig.power.is_off();
        let goes_on = |array: &mut Array, rng: &mut SmallRng| {
            !is_off && (array.status().ended.is_none() || rng.random_bool(0.5))
        };
        match self.array.take_if(|array| goes_on(array, &mut self.rng)) {
            Some(array) => self.array = self.use_array(array),
            None => {
                self.array = None;
                self.reopen();
            }
        }
    }

    /// The power is back, if it was gone.
    fn come_back(&mut self) {
        if self.world.rig.power.is_off() || self.has_cuts && self.rng.random_bool(0.3) {
            let seed = self.rng.random();
            self.world.cut(seed);
        }
    }

    /// The array anew, amid all faults, perhaps without one of the disks, or after all is well again.
    fn reopen(&mut self) {
        self.come_back();
        if self.rng.random_bool(0.6) {
            self.world.check();
        }
        let without = self.rng.random_bool(0.2).then(|| self.role());
        self.array = self.world.open(without).ok();
    }

    fn role(&mut self) -> usize {
        self.rng.random_range(0..self.world.rig.kind.members)
    }

    /// Gives it back if it is still there.
    fn use_array(&mut self, array: Array) -> Option<Array> {
        match self.rng.random_range(0..100) {
            0..57 => self.be_host(&array),
            57..81 => self.administer(&array),
            81..84 => return self.shut(array),
            84..86 => self.world.calm(),
            86..88 if self.has_cuts => self.world.rig.power.cut_at(self.rng.random_range(1..40)),
            _ => self.break_something(&array),
        }
        Some(array)
    }

    fn be_host(&mut self, array: &Array) {
        let (world, rng, shape) = (&self.world, &mut self.rng, array.status().shape);
        let range = match rng.random_bool(0.3) {
            true => (rng.random_range(0..HAUNTED) * shape.row_sectors(), shape.row_sectors()),
            false => random_range(rng, shape.sectors(), 2 * shape.row_sectors()),
        };
        match rng.random_range(0..57) {
            0..3 => world.host.zero(array, range),
            3..30 => world.host.write(array, range, rng.random_bool(0.3)),
            30..45 => world.host.read(array, range),
            45..50 => world.host.flush(array),
            _ => world.host.put_off(array, range.0),
        }
    }

    fn administer(&mut self, array: &Array) {
        let (role, rows) = (self.role(), array.status().shape.rows);
        match self.rng.random_range(0..28) {
            0..3 => {
                let results = array.stale_rows(0, 3).into_iter().map(|row| array.resync(row));
                self.world.host.tell(format!("resync: {:?}", results.collect::<Vec<_>>()));
            }
            3..6 => self.world.host.tell(format!("fail {role}: {:?}", array.fail(role))),
            6..12 => drop(self.world.take_in(array)),
            12..18 => {
                let end = self.rng.random_range(0..2 * rows);
                let result = array.rebuild(false, |at| at.rows < end);
                self.world.host.tell(format!("rebuild to {end}: {result:?}"));
            }
            18..26 => self.replace(array, role),
            _ => {
                let result = array.scrub(0..rows, Repair::None, |_| true);
                self.world.host.tell(format!("scrub: {result:?}"));
                assert!(result.is_err() || result.is_ok_and(|scrub| scrub.mismatches == 0));
            }
        }
    }

    /// The new disk may fail, most of all when superblocks come to name it; at some row of the copy so do others, or
    /// the power goes soon.
    fn replace(&mut self, array: &Array, role: usize) {
        let (world, rng, rows) = (&mut self.world, &mut self.rng, array.status().shape.rows);
        let nth = match rng.random_range(0..4) {
            0 => 0,
            1 => rng.random_range(1..60),
            _ => rng.random_range(rows + 4..rows + 14),
        };
        let others = (0..world.rig.kind.members).filter(|_| rng.random_bool(0.2));
        let others: Vec<_> = others.map(|other| world.faults(other).clone()).collect();
        let at = if rng.random_bool(0.5) { rows - 1 } else { rng.random_range(0..rows) };
        let (what, cut_at) = (rng.random_range(0..3), self.has_cuts && rng.random_bool(0.5));
        let cut_at = cut_at.then(|| rng.random_range(1..40));
        world.host.tell(format!("at row {at} {} others fail, power goes: {cut_at:?}", others.len()));
        let power = world.rig.power.clone();
        world.replace(array, role, nth, |row| {
            if row == at {
                cut_at.iter().for_each(|calls| power.cut_at(*calls));
                others.iter().for_each(|faults| match what {
                    0 => faults.lock().writes = true,
                    1 => faults.lock().flushes = true,
                    _ => faults.lock().nth = 3,
                });
            }
        });
    }

    fn shut(&mut self, array: Array) -> Option<Array> {
        if self.rng.random_bool(0.5) {
            let result = array.close();
            self.world.host.tell(format!("close: {result:?}"));
            if result.is_ok() {
                self.world.host.flushed();
            }
        }
        None
    }

    fn break_something(&mut self, array: &Array) {
        let (role, shape, what) = (self.role(), array.status().shape, self.rng.random_range(0..6));
        let rows = if self.rng.random_bool(0.6) { HAUNTED } else { shape.rows };
        let sector = 256 + self.rng.random_range(0..rows * u64::from(shape.chunk_sectors));
        let mut faults = self.world.faults(role).lock();
        faults.lands = self.rng.random_bool(0.5);
        match what {
            0 => faults.writes = true,
            1 => (faults.writes, faults.flushes) = (true, true),
            2 => faults.flushes = true,
            3 => drop(faults.worn_out.insert(sector)),
            4 => drop(faults.unread.insert(sector)),
            _ => faults.nth = self.rng.random_range(1..20),
        }
        self.world.host.tell(format!("fault {what} of {role}, sector {sector}, lands: {}", faults.lands));
    }
}
