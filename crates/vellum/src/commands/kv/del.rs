//! `kv del`: removes keys.

use super::reusing::Reusing;
use super::space::Space;
use super::target::{Range, Target};
use crate::failure::{Failure, Outcome, Verdict};
use crate::ui::Ui;
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use vellum::base::{Error, Result};
use vellum::kv::{Batch, Bounds, Durability, Keyspace, Map, Options, Store};

/// Remove keys, all or none, or a range of them; when this returns that is safe from a power cut
#[derive(clap::Args)]
#[command(after_help = "\
Say keys, or bounds: --from, --to, --prefix. A key that is not there is removed, too. A range is
removed some keys at a time, in order: if that is cut short, the rest is there, and the same command
removes it.

Example:
  vellum kv del s recto verso
  vellum kv del s --prefix drafts/

Exit codes: 0 removed, 2 usage, 3 I/O or no room, 4 corrupt, 5 open elsewhere")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    space: Space,
    /// The keys
    #[arg(value_name = "KEY", required_unless_present_any = ["from", "to", "prefix"],
          conflicts_with_all = ["from", "to", "prefix"])]
    keys: Vec<OsString>,
    #[command(flatten)]
    range: Range,
    #[command(flatten)]
    reusing: Reusing,
}

/// docs/json/kv.md
#[derive(Serialize)]
struct Removed {
    keys: u64,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        if self.range.has_empty() {
            let error = Error::invalid("an empty bound is none: more would go than was meant");
            return Err(Failure::with_next(error, "give it one byte at least, or name the keys"));
        }
        if !self.range.is_all() {
            return self.remove_range(ui);
        }
        let store = self.target.open_with(self.reusing.put_into(Options::default()))?;
        let (mut batch, scope) = (Batch::new(), self.space.scope(&store)?);
        for key in &self.keys {
            scope.delete(&mut batch, &self.range.notation().read(key.as_bytes())?)?;
        }
        let done = store.map().write(&batch, Durability::Sync).and_then(|()| store.close());
        done.map_err(|e| self.target.advise(e))?;
        ui.result(&Removed { keys: batch.len() as u64 }, String::new);
        Ok(Verdict::Fine)
    }

    fn remove_range(self, ui: &Ui) -> Outcome {
        let store = self.target.open_ordered_with(self.reusing.put_into(Options::default()))?;
        let (space, bounds) = (self.space.of(&store)?, self.range.bounds()?);
        let mut keys = 0;
        ui.during("del", || remove(&store, &space, bounds, &mut keys)).map_err(|e| {
            ui.remark(format!("{keys} keys were removed before that"));
            self.target.advise(e)
        })?;
        drop(space);
        store.close().map_err(|e| self.target.advise(e))?;
        ui.result(&Removed { keys }, || format!("removed {keys}\n"));
        Ok(Verdict::Fine)
    }
}

/// Removes all keys within the bounds, and counts them.
fn remove(store: &Store, space: &Keyspace, bounds: Bounds, removed: &mut u64) -> Result<()> {
    let mut last = Vec::new();
    loop {
        let mut iter = space.iter(bounds.clone())?;
        match removed {
            0 => iter.seek_to_first()?,
            _ => iter.seek(&last)?,
        }
        let mut batch = Batch::new();
        while iter.is_valid() && !store.is_filled(&batch) {
            last.clear();
            last.extend_from_slice(iter.key());
            batch.delete_in(space, &last)?;
            iter.next()?;
        }
        drop(iter);
        if batch.is_empty() {
            return store.sync();
        }
        store.write(&batch, Durability::Buffered)?;
        *removed += batch.len() as u64;
    }
}
