//! Turns: access to pages of the cache, sectors and rows, in the order in which places were taken.
//!
//! 1. All places of a turn are taken at once, under the policy's lock: so turns at a place are in the order of the
//!    policy's decisions.
//! 2. A turn waits only for earlier ones, so there is no deadlock.

use crate::cache::step::PageNo;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use vellum_base::Lba;
use vellum_base::hash::FixedMap;
use vellum_base::sync::{Condvar, Mutex};

/// What a turn gives access to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// A page of the SSD.
    Page(PageNo),
    /// A sector of the array.
    Sector(Lba),
    /// Parity of a row.
    Parity(u64),
    /// Data of a row.
    Data(u64),
}

/// Exclusive or shared access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Shared,
    Alone,
}

/// See the module.
#[derive(Default)]
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    next: u64,
    queues: FixedMap<Place, VecDeque<(u64, Mode)>>,
    waiting: usize,
}

/// Places in queues, which are left when it is dropped.
pub(super) struct Turn {
    number: u64,
    places: Vec<(Place, Mode)>,
    turns: Arc<Turns>,
}

impl Turns {
    /// Takes places at the ends of their queues.
    pub fn take(self: &Arc<Turns>, places: Vec<(Place, Mode)>) -> Turn {
        let mut turn = Turn { number: 0, places: Vec::new(), turns: self.clone() };
        turn.extend(places);
        turn
    }

    /// Rows with a turn at their parity.
    pub fn rows(&self) -> BTreeSet<u64> {
        let row = |place: &Place| if let Place::Parity(row) = place { Some(*row) } else { None };
        self.state.lock().queues.keys().filter_map(row).collect()
    }
}

impl State {
    /// True if no turn before `number` conflicts.
    fn is_free(&self, place: &Place, mode: Mode, number: u64) -> bool {
        let mut before = self.queues[place].iter().take_while(|(other, _)| *other != number);
        before.all(|(_, other)| mode == Mode::Shared && *other == Mode::Shared)
    }
}

impl Turn {
    /// Adds places, at the ends of their queues. No turn taken since may have to wait for this one.
    pub fn extend(&mut self, places: Vec<(Place, Mode)>) {
        let mut state = self.turns.state.lock();
        if self.number == 0 {
            state.next += 1;
            self.number = state.next;
        }
        for (place, mode) in places {
            match self.places.iter_mut().find(|(mine, _)| *mine == place) {
                Some((_, mine)) if *mine == Mode::Alone || mode == Mode::Shared => {}
                Some((_, mine)) => {
                    *mine = mode;
                    let queue = state.queues.get_mut(&place).expect("it is in the queue");
                    let entry = queue.iter_mut().find(|(number, _)| *number == self.number);
                    entry.expect("it is in the queue").1 = mode;
                }
                None => {
                    state.queues.entry(place).or_default().push_back((self.number, mode));
                    self.places.push((place, mode));
                }
            }
        }
    }

    /// Waits until it is this turn's turn at all its places.
    pub fn wait(&self) {
        let mut state = self.turns.state.lock();
        for (place, mode) in &self.places {
            while !state.is_free(place, *mode, self.number) {
                state.waiting += 1;
                self.turns.changed.wait(&mut state);
                state.waiting -= 1;
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        for (place, _) in &self.places {
            if let Some(queue) = state.queues.get_mut(place) {
                queue.retain(|(number, _)| *number != self.number);
                if queue.is_empty() {
                    state.queues.remove(place);
                }
            }
        }
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.turns.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_base::{Env, Nanos};
    use vellum_sim::Sim;

    #[test]
    fn readers_share_and_writers_come_in_order() {
        let sim = Sim::new(1);
        let env: Arc<dyn Env> = sim.env();
        let seen = Arc::new(Mutex::new(Vec::new()));
        sim.run(|| {
            let turns = Arc::new(Turns::default());
            let page = Place::Page(PageNo(3));
            let modes = [Mode::Shared, Mode::Shared, Mode::Alone, Mode::Shared];
            let tasks = modes.into_iter().map(|mode| {
                let turn = turns.take(vec![(page, mode), (page, Mode::Shared)]);
                let (at, seen) = (env.clone(), seen.clone());
                let run = move || {
                    turn.wait();
                    at.sleep_until(at.now() + Nanos(10));
                    seen.lock().push(at.now().0);
                };
                env.clone().spawn("task", Box::new(run))
            });
            tasks.collect::<Vec<_>>().into_iter().for_each(vellum_base::Task::join);
            assert!(turns.state.lock().queues.is_empty());
        });
        assert_eq!(*seen.lock(), [10, 10, 20, 30]);
    }
}
