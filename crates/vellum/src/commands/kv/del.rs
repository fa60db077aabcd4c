//! `kv del`: keys that are to go.

use super::reusing::Reusing;
use super::target::{Hex, Space, Target};
use crate::failure::{Outcome, Verdict};
use crate::ui::Ui;
use serde::Serialize;
use std::ffi::OsString;
use vellum::kv::{Batch, Durability};

/// Remove keys, all or none; when this returns that is safe from a power cut
#[derive(clap::Args)]
#[command(after_help = "\
A key that is not there is removed, too.

Example:
  vellum kv del s recto verso

Exit codes: 0 removed, 2 usage, 3 I/O or no room, 4 corrupt, 5 open elsewhere")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    space: Space,
    /// The keys
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<OsString>,
    #[command(flatten)]
    hex: Hex,
    #[command(flatten)]
    reusing: Reusing,
}

/// docs/json/kv.md
#[derive(Serialize)]
struct Removed {
    keys: usize,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let store = self.target.open_to_write(self.reusing)?;
        let (mut batch, scope) = (Batch::new(), self.space.scope(&store)?);
        for key in &self.keys {
            scope.delete(&mut batch, &self.hex.read(key)?)?;
        }
        let done = store.map().write(&batch, Durability::Sync).and_then(|()| store.close());
        done.map_err(|e| self.target.advise(e))?;
        ui.result(&Removed { keys: batch.len() }, String::new);
        Ok(Verdict::Fine)
    }
}
