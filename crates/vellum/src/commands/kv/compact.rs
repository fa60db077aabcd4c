//! `kv compact`: removes all hidden and deleted entries.

use super::compressing::Compressing;
use super::reusing::Reusing;
use super::stat::Figures;
use super::target::Part;
use crate::failure::{Outcome, Verdict};
use crate::text;
use crate::ui::Ui;
use serde::Serialize;
use vellum::base::{Env, RealEnv};
use vellum::kv::{AnyStore, Options};

/// Merge all levels of a store, or of a range of keys, or collect a log; nothing stays that is hidden or deleted
#[derive(clap::Args)]
#[command(after_help = "\
Writes every record that is there once. A store does not need it: it compacts in the background
while it is in use.

Example:
  vellum kv compact s
  vellum kv compact s --prefix user/

Exit codes: 0 compacted, 2 usage, 3 I/O or no room, 4 corrupt, 5 open elsewhere")]
pub struct Args {
    #[command(flatten)]
    part: Part,
    #[command(flatten)]
    compressing: Compressing,
    #[command(flatten)]
    reusing: Reusing,
}

/// docs/json/kv.md
#[derive(Serialize)]
struct Compacted {
    seconds: f64,
    #[serde(flatten)]
    figures: Figures,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let env = RealEnv::new();
        let options = self.compressing.put_into(self.reusing.put_into(Options::default()));
        let store = self.part.target.open_with(options)?;
        let is_part = !self.part.range.is_all() || !self.part.space.is_default();
        let compacted = match &store {
            AnyStore::Lsm(store) if is_part => {
                let (space, bounds) = (self.part.space.of(store)?, self.part.range.bounds()?);
                ui.during("compact", || space.compact_range(bounds))
            }
            AnyStore::Log(_) if !self.part.range.is_all() => return Err(self.part.target.has_no_order()),
            _ => {
                self.part.space.scope(&store)?;
                ui.during("compact", || store.map().compact())
            }
        };
        compacted.map_err(|e| self.part.target.advise(e))?;
        let compacted = Compacted { seconds: env.now().0 as f64 / 1e9, figures: Figures::of(&store) };
        store.close().map_err(|e| self.part.target.advise(e))?;
        ui.result(&compacted, || text::kv::figures(&compacted.figures));
        Ok(Verdict::Fine)
    }
}
