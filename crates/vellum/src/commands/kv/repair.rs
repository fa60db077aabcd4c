//! `kv repair`: a store made of what is left of one.

use super::target::{NO_CURRENT, Strict, Target};
use super::verify::{self, Seen};
use crate::failure::{Failure, Outcome, Verdict};
use crate::ui::Ui;
use serde::Serialize;
use std::collections::BTreeSet;
use vellum::base::{Error, Kind};
use vellum::kv::{Repaired, Store};

/// Make a store of what is left of a damaged one
#[derive(clap::Args)]
#[command(after_help = "\
Tables that are in order stay; of those that are not, what can be read is written anew; logs are
read as far as they can be. Without --write it says what is wrong, and changes nothing. Keep a copy
of the directory first, and of the device if the tables are on one. Of a log store tables are its
segments, and entries its records.

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
    /// No manifest said which tables count.
    without_manifest: bool,
    nvram_doubtful: bool,
    problems: Vec<String>,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let path = self.target.remains()?;
        if !self.write {
            return self.look(ui);
        }
        let repaired = ui.during("repair", || Store::repair(path));
        let (mended, mut repaired) = repaired.map_err(|e| self.no_use(e))?;
        repaired.problems.splice(..0, mended.problems);
        let lost = repaired.tables_lost > 0 || repaired.entries_lost > 0 || repaired.logs_damaged > 0;
        let is_doubtful = repaired.tables_doubtful > 0 || repaired.untold || mended.nvram_doubtful;
        let report = Report::of(repaired, mended.nvram_doubtful);
        ui.result(&report, || report.text());
        Ok(if lost || is_doubtful { Verdict::Problems } else { Verdict::Fine })
    }

    /// What is wrong; a store that does not open has that for a problem.
    fn look(&self, ui: &Ui) -> Outcome {
        let mended = Store::image_problems(self.target.path()).unwrap_or_default();
        let only = |problems| Seen { problems, ..Seen::default() };
        let seen = match ui.during("verify", || verify::look(&self.target, Strict { strict: true })) {
            _ if self.target.lacks_current() => only(vec![NO_CURRENT.into()]),
            Err(failure) if failure.error().kind() == Kind::Corrupt => {
                only(why_it_does_not_open(mended.problems, failure.error().to_string()))
            }
            other => other?,
        };
        let verdict = seen.verdict();
        let repaired = Repaired { tables_kept: seen.tables, problems: seen.problems, ..Repaired::default() };
        let report = Report { written: false, ..Report::of(repaired, mended.nvram_doubtful) };
        ui.result(&report, || report.text());
        if verdict == Verdict::Problems {
            ui.remark(
                "nothing was changed; --write makes a store of what is left, if anything of it can be read",
            );
        }
        Ok(verdict)
    }

    /// Advice that does not lead back here.
    fn no_use(&self, error: Error) -> Failure {
        match error.kind() {
            Kind::Corrupt => Failure::with_next(
                error,
                "nothing here is enough to make a store of: go back to a copy or a checkpoint",
            ),
            _ => self.target.advise(error),
        }
    }
}

/// What is wrong with the image, if it is on one, and the error, unless that says the same.
fn why_it_does_not_open(mut of_image: Vec<String>, error: String) -> Vec<String> {
    if !of_image.iter().any(|problem| error.contains(problem)) {
        of_image.push(error);
    }
    of_image
}

impl Report {
    fn of(mut repaired: Repaired, nvram_doubtful: bool) -> Report {
        let mut said = BTreeSet::new();
        repaired.problems.retain(|problem| said.insert(problem.clone()));
        Report {
            written: !repaired.problems.is_empty(),
            tables_kept: repaired.tables_kept,
            tables_rewritten: repaired.tables_rewritten,
            tables_doubtful: repaired.tables_doubtful,
            tables_lost: repaired.tables_lost,
            entries_lost: repaired.entries_lost,
            logs_damaged: repaired.logs_damaged,
            batches: repaired.batches,
            without_manifest: repaired.untold,
            nvram_doubtful,
            problems: repaired.problems,
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        self.problems.iter().for_each(|problem| text.push_str(&format!("PROBLEM: {problem}\n")));
        match (self.problems.is_empty(), self.written) {
            (true, _) => text.push_str("nothing is wrong\n"),
            (_, false) => {}
            (_, true) => text.push_str(&format!(
                "{} tables kept, {} written anew, {} lost; {} entries known to be lost; {} batches from logs\n",
                self.tables_kept, self.tables_rewritten, self.tables_lost, self.entries_lost, self.batches
            )),
        }
        if self.written && self.problems.iter().any(|problem| problem.contains("the name of keyspace")) {
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
