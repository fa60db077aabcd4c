//! `kv repair`: makes a store from the remains of one.

use super::target::Target;
use crate::failure::{Failure, Outcome, Verdict};
use crate::text;
use crate::ui::Ui;
use serde::Serialize;
use std::collections::BTreeSet;
use vellum::base::{Error, Kind};
use vellum::kv::reason::DEVICE_UNKNOWN;
use vellum::kv::{Repaired, Store};

/// Make a store of what is left of a damaged one
#[derive(clap::Args)]
#[command(after_help = "\
Tables that are in order stay; of those that are not, what can be read is written anew; logs are
read as far as they can be. Without --write it is tried out, and nothing is changed: what would be
written anew goes to the directory for temporary files (TMPDIR) meanwhile. Keep a copy of the
directory first, and of the device if the tables are on one. Of a log store tables are its segments,
and entries its records.

Example:
  vellum kv repair s
  cp -r s s-copy && vellum kv repair s --write

Exit codes: 0 nothing was wrong, or all was won back, 1 problems found, or something is or may be
lost, or be back that was deleted, 2 usage, or a file that is no flash image, 3 no store, I/O or no
room, 4 nothing of it can be read, 5 open elsewhere")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// Do it
    #[arg(long)]
    write: bool,
}

/// docs/json/kv.md
#[derive(Serialize)]
struct Report {
    written: bool,
    tables_kept: usize,
    tables_rewritten: usize,
    tables_doubtful: usize,
    tables_lost: usize,
    entries_lost: u64,
    logs_damaged: usize,
    batches: u64,
    /// No manifest said which tables are current.
    without_manifest: bool,
    /// Keyspaces that have new names: the problems say which.
    #[serde(skip)]
    names_lost: usize,
    nvram_doubtful: bool,
    problems: Vec<String>,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let path = self.target.remains()?;
        let repaired = ui.during("repair", || match self.write {
            true => Store::repair(path),
            false => Store::rehearse_repair(path),
        });
        let (mended, mut repaired) = repaired.map_err(|e| self.no_use(e))?;
        repaired.problems.splice(..0, mended.problems);
        let report = Report::of(repaired, self.write, mended.nvram_doubtful);
        ui.result(&report, || report.text());
        let is_wrong = !report.problems.is_empty();
        if is_wrong && !self.write {
            ui.remark("nothing was changed; --write does it");
        }
        Ok(if report.is_doubtful() || is_wrong && !self.write { Verdict::Problems } else { Verdict::Fine })
    }

    /// Advice other than to repair.
    fn no_use(&self, error: Error) -> Failure {
        match error.kind() {
            Kind::Corrupt if !error.is_because(DEVICE_UNKNOWN) => Failure::with_next(
                error,
                "nothing here is enough to make a store of: go back to a copy or a checkpoint",
            ),
            _ => self.target.advise(error),
        }
    }
}

impl Report {
    fn of(mut repaired: Repaired, write: bool, nvram_doubtful: bool) -> Report {
        let mut said = BTreeSet::new();
        repaired.problems.retain(|problem| said.insert(problem.clone()));
        Report {
            written: write && !repaired.problems.is_empty(),
            tables_kept: repaired.tables_kept,
            tables_rewritten: repaired.tables_rewritten,
            tables_doubtful: repaired.tables_doubtful,
            tables_lost: repaired.tables_lost,
            entries_lost: repaired.entries_lost,
            logs_damaged: repaired.logs_damaged,
            batches: repaired.batches,
            without_manifest: repaired.manifest_lost,
            names_lost: repaired.names_lost,
            nvram_doubtful,
            problems: repaired.problems,
        }
    }

    /// True if something is or may be lost, or deleted entries may be back.
    fn is_doubtful(&self) -> bool {
        let lost = self.tables_lost > 0 || self.entries_lost > 0 || self.logs_damaged > 0;
        lost || self.tables_doubtful > 0 || self.without_manifest || self.nvram_doubtful
    }

    fn text(&self) -> String {
        let mut text = String::new();
        self.problems.iter().for_each(|problem| text.push_str(&format!("PROBLEM: {problem}\n")));
        if self.problems.is_empty() {
            return "nothing is wrong\n".to_string();
        }
        let would = if self.written { "" } else { "with --write: " };
        text.push_str(&format!(
            "{would}{} kept, {} written anew, {} lost; {} entries known to be lost; {} batches from logs\n",
            text::counted(self.tables_kept as u64, "table"),
            self.tables_rewritten,
            self.tables_lost,
            self.entries_lost,
            self.batches
        ));
        if self.written && self.names_lost > 0 {
            text.push_str(
                "a keyspace gets its name back by `vellum kv dump PATH --keyspace lost-N --output FILE`, `vellum kv \
                 load PATH FILE --keyspace NAME` and `vellum kv drop PATH lost-N`\n",
            );
        }
        if self.tables_lost > 0 || self.entries_lost > 0 {
            text.push_str(
                "keys whose newest entry is lost may have older values, or be back that were deleted\n",
            );
        }
        if self.tables_doubtful > 0 {
            text.push_str(
                "tables held what was not written there: what was taken of them may be of another store, or older\n",
            );
        }
        if self.logs_damaged > 0 {
            text.push_str("a log was damaged: the last that was written to it may be lost, too, without being counted\n");
        }
        text
    }
}
