//! `debubble`: makes a compact, regular store from one with bubbles.

use super::advice::{advise_copy, refuse_inside};
use super::stat::Figures;
use super::target::{EngineArg, Target};
use crate::failure::{Outcome, Verdict};
use crate::text;
use crate::ui::Ui;
use serde::Serialize;
use std::path::PathBuf;
use vellum::base::Result;
use vellum::kv::{AnyStore, Building, Options, check_debubble, compare, debubble};

/// Make a compact store without bubbles of a key-value store that has some, of either engine
#[derive(clap::Args)]
#[command(after_help = "\
What merging or collecting with --reuse leaves empty, so that what follows keeps its place
(bubbles), is gone in OUT, and so is what is hidden or deleted. IN is only read. OUT is a store when
all of it is there: one that was cut short is none, and the next try begins anew. With --check
nothing is made: it is said whether IN and OUT hold the same.

Example:
  vellum debubble s s-plain
  vellum debubble s s-plain --check
  vellum debubble log-store ordered --engine lsm

Exit codes: 0 made, or both hold the same, 1 they do not, 2 usage or OUT is there, 3 I/O or no
room, 4 corrupt, 5 open elsewhere")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// The directory of the new store: empty, or not there
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// How keys are kept in OUT [default: as in IN]
    #[arg(long, value_name = "HOW", conflicts_with = "check")]
    engine: Option<EngineArg>,
    /// Make nothing; read both, and compare all they hold
    #[arg(long)]
    check: bool,
}

/// docs/json/kv.md
#[derive(Serialize)]
struct Made {
    path: String,
    engine: &'static str,
    keys: u64,
    /// For the original store, and for the new one.
    bytes_before: u64,
    bytes: u64,
    /// Apart from tables: what only logs hold.
    log_bytes_before: u64,
    log_bytes: u64,
}

/// docs/json/kv.md
#[derive(Serialize)]
struct Checked {
    keys: u64,
    different: u64,
    only_in_out: u64,
    same: bool,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        if !self.check {
            refuse_inside(&self.out, self.target.path())?;
        }
        let from = self.target.open()?;
        let verdict = if self.check { self.compare(&from, ui)? } else { self.make(&from, ui)? };
        from.close().map_err(|e| self.target.advise(e))?;
        Ok(verdict)
    }

    fn make(&self, from: &AnyStore, ui: &Ui) -> Outcome {
        let told = self.build(from).map_err(|e| advise_copy(e, self.target.path(), &self.out))?;
        ui.result(&told, || {
            let size = |tables, logs| match logs {
                0 => format!("{} of tables", text::bytes(tables)),
                _ => format!("{} of tables and {} in logs", text::bytes(tables), text::bytes(logs)),
            };
            let before = size(told.bytes_before, told.log_bytes_before);
            let now = size(told.bytes, told.log_bytes);
            format!("{}: {} keys in {now}; before {before}\n", told.path, told.keys)
        });
        Ok(Verdict::Fine)
    }

    /// OUT becomes a store only when it is complete.
    fn build(&self, from: &AnyStore) -> Result<Made> {
        let engine = self.engine.map_or(from.engine(), EngineArg::engine);
        check_debubble(from, engine)?;
        let building = Building::begin(&self.out)?;
        let made = AnyStore::open(building.path(), Some(engine), Options::default())?;
        let keys = debubble(from, &made)?;
        let (before, after) = (Figures::of(from), Figures::of(&made));
        made.close()?;
        building.finish()?;
        Ok(Made {
            path: self.out.display().to_string(),
            engine: engine.name(),
            keys,
            bytes_before: before.table_bytes,
            bytes: after.table_bytes,
            log_bytes_before: before.in_logs(),
            log_bytes: after.in_logs(),
        })
    }

    fn compare(&self, from: &AnyStore, ui: &Ui) -> Outcome {
        let out = Target::at(&self.out);
        let other = out.open()?;
        // The error names the table, but not the store.
        let compared = compare(from, &other).map_err(|e| self.target.advise(e))?;
        other.close().map_err(|e| out.advise(e))?;
        let same = compared.is_same();
        let told = Checked {
            keys: compared.keys,
            different: compared.different,
            only_in_out: compared.only_in_second,
            same,
        };
        ui.result(&told, || match same {
            true => format!("both hold the same {} keys\n", told.keys),
            false => format!(
                "of {} keys {} are missing or different in {}, which has {} of its own\n",
                told.keys,
                told.different,
                self.out.display(),
                told.only_in_out
            ),
        });
        Ok(if same { Verdict::Fine } else { Verdict::Problems })
    }
}
