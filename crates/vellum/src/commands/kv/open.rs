//! `kv open`: a store made, or recovered.

use super::stat::Figures;
use super::target::WriteTarget;
use crate::failure::{Outcome, Verdict};
use crate::text;
use crate::ui::Ui;
use serde::Serialize;

/// Make a store if there is none; recover it if it was not closed
#[derive(clap::Args)]
#[command(after_help = "\
Every other command recovers a store, too; this one does nothing else, and says what is in it.

Example:
  vellum kv open s

Exit codes: 0 open and closed again, 2 usage, 3 I/O, 4 corrupt, 5 open elsewhere")]
pub struct Args {
    #[command(flatten)]
    target: WriteTarget,
}

/// docs/json/kv.md
#[derive(Serialize)]
struct Opened {
    path: String,
    made: bool,
    #[serde(flatten)]
    figures: Figures,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let made = self.target.is_new();
        let store = self.target.open()?;
        let figures = Figures::of(&store);
        store.close().map_err(|e| self.target.advise(e))?;
        let opened = Opened { path: self.target.name(), made, figures };
        ui.result(&opened, || match made {
            true => format!("{}: a new store\n", opened.path),
            false => text::kv::figures(&opened.figures),
        });
        Ok(Verdict::Fine)
    }
}
