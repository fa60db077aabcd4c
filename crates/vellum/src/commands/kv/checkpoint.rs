//! `kv checkpoint`: a store as it is now, elsewhere.

use super::stat::Figures;
use super::target::Target;
use crate::failure::{Failure, Outcome, Verdict};
use crate::ui::Ui;
use serde::Serialize;
use std::path::PathBuf;
use vellum::base::{Error, Kind};

/// Make a store that holds what another one holds now
#[derive(clap::Args)]
#[command(after_help = "\
Tables are linked where both directories are on one file system, so that this takes hardly any time
or room, and copied elsewhere. The store is only read.

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
        let store = self.target.open()?;
        if self.into.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
            let error = Error::invalid(format!("{} is not empty", self.into.display()));
            return Err(Failure::with_next(error, "choose another directory: nothing is replaced"));
        }
        store.checkpoint(&self.into).map_err(|e| match e.kind() {
            Kind::Busy => Failure::from(e),
            _ => self.target.advise(e),
        })?;
        let (tables, table_bytes) = Figures::of(&store).tables();
        store.close().map_err(|e| self.target.advise(e))?;
        let made = Made { path: self.into.display().to_string(), tables, table_bytes };
        ui.result(&made, || format!("{}: {} tables\n", made.path, made.tables));
        Ok(Verdict::Fine)
    }
}
