//! The table of tasks.
//!
//! Invariants
//! 1. A slot is free, or holds one task from its start to its end. Task numbers are never reused.
//! 2. `coroutine` is `None` while the task runs or is unwound; it stays so if the task panics.

use crate::coroutine::Coroutine;
use crate::events::{Slot, TASKS_MAX};

/// An entry of the table.
pub(crate) struct Entry {
    /// 0 for a free slot.
    pub(crate) number: u64,
    pub(crate) name: Box<str>,
    pub(crate) coroutine: Option<Box<Coroutine>>,
    /// When it last began to wait for a lock, a condition or a join.
    pub(crate) parked_at: u64,
}

/// The table of tasks.
#[derive(Default)]
pub(crate) struct Tasks {
    entries: Vec<Entry>,
    free: Vec<Slot>,
    started: u64,
}

impl Tasks {
    /// Adds a task. Returns its slot and number.
    pub(crate) fn insert(&mut self, name: &str, coroutine: Coroutine, now: u64) -> (Slot, u64) {
        self.started += 1;
        let entry = Entry {
            number: self.started,
            name: name.into(),
            coroutine: Some(Box::new(coroutine)),
            parked_at: now,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                assert!(self.entries.len() < TASKS_MAX, "a simulation has at most {TASKS_MAX} tasks at once");
                self.entries.push(entry);
                self.entries.len() as Slot - 1
            }
        };
        (slot, self.started)
    }

    /// Frees the slot of a task whose coroutine was taken.
    pub(crate) fn remove(&mut self, slot: Slot) {
        let entry = &mut self.entries[slot as usize];
        debug_assert!(entry.number != 0 && entry.coroutine.is_none());
        entry.number = 0;
        entry.name = Box::default();
        self.free.push(slot);
    }

    #[inline]
    pub(crate) fn get(&mut self, slot: Slot) -> &mut Entry {
        &mut self.entries[slot as usize]
    }

    /// Whether task `number` still occupies `slot`.
    pub(crate) fn is_alive(&self, slot: Slot, number: u64) -> bool {
        self.entries[slot as usize].number == number
    }

    /// All tasks that have not ended.
    pub(crate) fn alive(&self) -> impl Iterator<Item = (Slot, &Entry)> {
        self.entries.iter().enumerate().filter(|(_, e)| e.number != 0).map(|(slot, e)| (slot as Slot, e))
    }

    /// Number of tasks that have not ended.
    pub(crate) fn count(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Takes the coroutine of any task that is not running.
    pub(crate) fn take_any(&mut self) -> Option<(Slot, Box<Coroutine>)> {
        self.entries
            .iter_mut()
            .enumerate()
            .find_map(|(slot, entry)| entry.coroutine.take().map(|coroutine| (slot as Slot, coroutine)))
    }

    /// Name of task `number`, if it has not ended.
    pub(crate) fn name(&self, number: u64) -> Option<&str> {
        self.entries.iter().find(|entry| entry.number == number && number != 0).map(|entry| &*entry.name)
    }
}
