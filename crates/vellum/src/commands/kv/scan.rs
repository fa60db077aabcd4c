//! `kv scan`: prints keys and values in order.

use super::lines::Form;
use super::target::Part;
use super::walk::{Walk, walk};
use crate::failure::{Outcome, Verdict};
use crate::ui::Ui;
use serde::Serialize;

/// Print keys and values in order
#[derive(clap::Args)]
#[command(after_help = "\
A line each: KEY<tab>VALUE, or with --json an object (docs/json/kv.md). Keys of a log store have no
order: `vellum kv dump` prints them.

Example:
  vellum kv scan s --from a --to b --limit 10
  vellum kv scan s --prefix user/ --reverse --keys
  vellum kv scan s --prefix user/ --count

Exit codes: 0 printed, 2 usage, 3 I/O, 4 corrupt, 5 open elsewhere")]
pub struct Args {
    #[command(flatten)]
    part: Part,
    /// From the last to the first
    #[arg(long)]
    reverse: bool,
    /// No more than so many
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Keys only
    #[arg(long)]
    keys: bool,
    /// Only how many there are
    #[arg(long)]
    count: bool,
}

/// docs/json/kv.md
#[derive(Serialize)]
struct Counted {
    keys: u64,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let store = self.part.target.open_ordered()?;
        let plan = Walk {
            bounds: self.part.range.bounds()?,
            reverse: self.reverse,
            limit: self.limit.unwrap_or(u64::MAX),
            values: !self.keys && !self.count,
            form: if ui.json { Form::Json } else { Form::Tsv },
            notation: self.part.range.notation(),
        };
        let mut wanted = |lines: &str| {
            if !self.count {
                ui.print(lines);
            }
            Ok(ui.has_listener())
        };
        let space = self.part.space.of(&store)?;
        let walked = match self.count {
            true => ui.during("scan", || walk(&space, plan, &mut wanted)),
            false => walk(&space, plan, &mut wanted),
        };
        let keys = walked.map_err(|e| self.part.target.advise(e))?;
        store.close().map_err(|e| self.part.target.advise(e))?;
        if self.count {
            ui.result(&Counted { keys }, || format!("{keys}\n"));
        }
        Ok(Verdict::Fine)
    }
}
