//! `kv verify`: reads and checks everything.

use super::target::{Strict, Target};
use crate::failure::{Outcome, Verdict};
use crate::text;
use crate::ui::Ui;
use serde::Serialize;
use vellum::kv::Store;

/// Read everything of a store and check it; changes nothing
#[derive(clap::Args)]
#[command(after_help = "\
Checksums of every leaf, the order of keys, filters, counts and bounds, that tables of a level do
not overlap, logs, and the manifest.

Example:
  vellum kv verify s

Exit codes: 0 all is well, 1 problems found, 2 usage, 3 I/O, 4 too corrupt to open, 5 open elsewhere")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    strict: Strict,
}

/// docs/json/kv.md
#[derive(Default, Serialize)]
pub struct Seen {
    pub tables: usize,
    pub entries: u64,
    pub bytes: u64,
    pub logs: usize,
    pub problems: Vec<String>,
    pub remarks: Vec<String>,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let seen = ui.during("verify", || look(&self.target, self.strict))?;
        ui.result(&seen, || seen.text());
        Ok(seen.verdict())
    }
}

/// Reads and checks a store.
fn look(target: &Target, strict: Strict) -> Result<Seen, crate::failure::Failure> {
    let store = target.open_if_strict(strict)?;
    let seen = store.map().verify().map_err(|e| target.advise(e))?;
    // While it is open it is not written to by others.
    let of_image = Store::image_problems(target.path()).map_err(|e| target.advise(e))?;
    store.close().map_err(|e| target.advise(e))?;
    let vellum::kv::Verified { tables, entries, bytes, logs, mut problems, remarks } = seen;
    problems.extend(of_image.problems);
    Ok(Seen { tables, entries, bytes, logs, problems, remarks })
}

impl Seen {
    /// For display.
    pub fn text(&self) -> String {
        let of = if self.problems.is_empty() { "" } else { " in those that are in order" };
        let bytes = text::bytes(self.bytes);
        let tables = text::counted(self.tables as u64, "table");
        let entries = if self.entries == 1 { "entry" } else { "entries" };
        let logs = text::counted(self.logs as u64, "log");
        let mut text = format!("{tables} with {} {entries}{of}, {bytes}, and {logs} read\n", self.entries);
        self.problems.iter().for_each(|problem| text.push_str(&format!("PROBLEM: {problem}\n")));
        for remark in &self.remarks {
            text.push_str(&format!(
                "NOTE: {remark}: not synced, so perhaps a loss of power; the next command that writes gives up what \
                 follows, `vellum kv repair` takes it before\n"
            ));
        }
        text + match (self.problems.is_empty(), self.remarks.is_empty()) {
            (false, _) => "",
            (true, false) => "all that was synced is well\n",
            (true, true) => "all is well\n",
        }
    }

    /// Whether there were problems.
    pub fn verdict(&self) -> Verdict {
        if self.problems.is_empty() { Verdict::Fine } else { Verdict::Problems }
    }
}
