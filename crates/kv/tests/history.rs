//! What was written and what was promised to survive; the oracle of every test that cuts the power.
//!
//! The promise: what is there after a crash is a prefix of what was written, and no shorter than what was promised.
//! Every batch sets a key to its number, so the prefix can be told.

use crate::harness::{Compared, Model, Op, apply};
use rand::Rng;
use rand::rngs::SmallRng;

/// What batches are made of.
pub(crate) struct Style {
    pub keys: u32,
    pub value_bytes: usize,
}

/// What one writer wrote, and how much of it was promised to survive.
#[derive(Default)]
pub(crate) struct History {
    /// What the writer's keys begin with.
    prefix: Vec<u8>,
    batches: Vec<Vec<Op>>,
    promised: usize,
}

impl History {
    /// Of a writer who has the keys that begin with `prefix` to itself.
    pub(crate) fn of(prefix: &[u8]) -> History {
        History { prefix: prefix.to_vec(), ..History::default() }
    }

    fn key(&self, name: &str) -> Vec<u8> {
        [&self.prefix, name.as_bytes()].concat()
    }

    /// The next batch, which may or may not happen: `count` puts and deletes, and its number.
    pub(crate) fn next(&mut self, rng: &mut SmallRng, count: usize, style: &Style) -> Vec<Op> {
        let number = self.batches.len() as u64 + 1;
        let mut ops: Vec<Op> = (0..count)
            .map(|_| {
                let key = self.key(&format!("key{:04}", rng.random_range(0..style.keys)));
                match rng.random_range(0..4) {
                    0 => Op::Delete(key),
                    _ => Op::Put(key, vec![number as u8; rng.random_range(0..style.value_bytes)]),
                }
            })
            .collect();
        ops.push(Op::Put(self.key("~last"), number.to_le_bytes().to_vec()));
        self.batches.push(ops.clone());
        ops
    }

    /// The last batch was refused: it never was.
    pub(crate) fn take_back(&mut self) {
        self.batches.pop();
    }

    /// Everything written so far will survive.
    pub(crate) fn promise(&mut self) {
        self.promised = self.batches.len();
    }

    /// Compares a store that goes on: it holds everything.
    pub(crate) fn compare(&self, store: &impl Compared, context: &str) {
        let mut model = Model::new();
        self.batches.iter().for_each(|ops| apply(&mut model, ops));
        store.assert_same_from(&self.prefix, &model, context);
    }

    /// Compares a recovered store; what it holds is history from then on, and survives what comes.
    pub(crate) fn settle(&mut self, store: &impl Compared, context: &str) {
        let last = store.get(&self.key("~last")).unwrap_or_else(|e| panic!("{context}: {e}"));
        let found = last.map_or(0, |last| u64::from_le_bytes(last.try_into().unwrap()) as usize);
        let (promised, written) = (self.promised, self.batches.len());
        assert!(
            found >= promised,
            "{context}: {found} batches of {promised} that were promised, {written} written"
        );
        self.batches.truncate(found);
        self.compare(store, context);
        self.promise();
    }
}
