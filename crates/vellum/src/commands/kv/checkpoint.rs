//! `kv checkpoint`: copies the current state of a store.

use super::advice::{advise, advise_copy, refuse_inside};
use super::target::Target;
use crate::failure::{Outcome, Verdict};
use crate::text;
use crate::ui::Ui;
use serde::Serialize;
use std::path::PathBuf;
use vellum::kv::Store;

/// Make a store that holds what another one holds now
#[derive(clap::Args)]
#[command(after_help = "\
Tables are linked where both directories are on one file system, so that this takes hardly any time
or room, and copied elsewhere. The store is only read. INTO is a store when all of it is there: one
that was cut short is none, and the next try begins anew.

Example:
  vellum kv checkpoint s s-monday

Exit codes: 0 made, 2 usage or a directory that is not empty, 3 I/O or no room, 4 corrupt, 5 open
elsewhere")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// The directory of the new store: empty, or not there
    #[arg(value_name = "INTO")]
    into: PathBuf,
}

/// docs/json/kv.md
#[derive(Serialize)]
struct Made {
    path: String,
    tables: usize,
    table_bytes: u64,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        refuse_inside(&self.into, self.target.path())?;
        let store = self.target.open()?;
        let copied = ui.during("checkpoint", || store.checkpoint(&self.into));
        copied.map_err(|e| advise_copy(e, self.target.path(), &self.into))?;
        store.close().map_err(|e| self.target.advise(e))?;
        let made = Store::glance(&self.into).map_err(|e| advise(e, &self.into))?;
        let tables = made.map_or_else(Vec::new, |made| made.tables);
        let (tables, table_bytes) = (tables.len(), tables.iter().map(|(_, bytes)| bytes).sum());
        let made = Made { path: self.into.display().to_string(), tables, table_bytes };
        ui.result(&made, || {
            let size = text::bytes(made.table_bytes);
            let tables = text::counted(made.tables as u64, "table");
            format!("{}: {tables}, {size}\n", made.path)
        });
        Ok(Verdict::Fine)
    }
}
