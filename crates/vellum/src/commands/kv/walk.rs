//! Walking a store from key to key, and printing it.

use super::lines::Form;
use super::notation::Notation;
use vellum::base::{Error, Result};
use vellum::kv::{Bounds, Keyspace, log};

/// Size of the chunks that are handed on.
const CHUNK_BYTES: usize = 64 << 10;

/// What to walk, and how to print it.
pub struct Walk {
    pub bounds: Bounds,
    pub reverse: bool,
    pub limit: u64,
    pub values: bool,
    pub form: Form,
    pub notation: Notation,
}

/// Passes whole lines to `to` until that returns false. Returns the number of records.
pub fn walk(space: &Keyspace, plan: Walk, to: &mut dyn FnMut(&str) -> Result<bool>) -> Result<u64> {
    let mut iter = space.iter(plan.bounds.clone())?;
    match plan.reverse {
        true => iter.seek_to_last()?,
        false => iter.seek_to_first()?,
    }
    let mut lines = Lines { plan: &plan, to, text: String::new(), records: 0 };
    let mut stepped = Ok(());
    while iter.is_valid() && lines.records < plan.limit && lines.add(iter.key(), iter.value())? {
        stepped = if plan.reverse { iter.prev() } else { iter.next() };
        if stepped.is_err() {
            break;
        }
    }
    // Records read before an error are passed on.
    lines.end().and_then(|records| stepped.map(|()| records))
}

/// The same for a store without order, whole. `unread` is called with why a record cannot be read.
pub fn walk_log(
    store: &log::Store,
    plan: Walk,
    to: &mut dyn FnMut(&str) -> Result<bool>,
    unread: &mut dyn FnMut(Error) -> Result<()>,
) -> Result<u64> {
    let mut lines = Lines { plan: &plan, to, text: String::new(), records: 0 };
    for pair in store.iter() {
        let (key, value) = match pair {
            Ok(pair) => pair,
            Err(error) => match unread(error) {
                Ok(()) => continue,
                Err(error) => return lines.end().and(Err(error)),
            },
        };
        if !lines.add(&key, &value)? {
            break;
        }
    }
    lines.end()
}

/// Lines not yet passed on.
struct Lines<'a> {
    plan: &'a Walk,
    to: &'a mut dyn FnMut(&str) -> Result<bool>,
    text: String,
    records: u64,
}

impl Lines<'_> {
    /// False if no more are wanted.
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        let Walk { values, form, notation, .. } = self.plan;
        form.write(key, values.then_some(value), *notation, &mut self.text);
        self.records += 1;
        if self.text.len() < CHUNK_BYTES {
            return Ok(true);
        }
        let wanted = (self.to)(&self.text);
        self.text.clear();
        wanted
    }

    fn end(self) -> Result<u64> {
        (self.to)(&self.text)?;
        Ok(self.records)
    }
}
