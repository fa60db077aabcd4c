//! Going through a store from key to key, and writing it down.

use super::lines::Form;
use super::notation::Notation;
use vellum::base::Result;
use vellum::kv::{Bounds, Keyspace};

/// So much is gathered before it is handed on.
const CHUNK_BYTES: usize = 64 << 10;

/// Where to go, and what to write.
pub struct Walk {
    pub bounds: Bounds,
    pub reverse: bool,
    pub limit: u64,
    pub values: bool,
    pub form: Form,
    pub notation: Notation,
}

/// Hands whole lines to `to` until it wants no more. Returns how many records there were.
pub fn walk(space: &Keyspace, plan: Walk, to: &mut dyn FnMut(&str) -> Result<bool>) -> Result<u64> {
    let mut iter = space.iter(plan.bounds)?;
    match plan.reverse {
        true => iter.seek_to_last()?,
        false => iter.seek_to_first()?,
    }
    let (mut lines, mut records) = (String::new(), 0);
    while iter.is_valid() && records < plan.limit {
        let value = plan.values.then(|| iter.value());
        plan.form.write(iter.key(), value, plan.notation, &mut lines);
        records += 1;
        if lines.len() >= CHUNK_BYTES {
            if !to(&lines)? {
                return Ok(records);
            }
            lines.clear();
        }
        match plan.reverse {
            true => iter.prev()?,
            false => iter.next()?,
        }
    }
    to(&lines)?;
    Ok(records)
}
