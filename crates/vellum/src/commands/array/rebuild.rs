//! `array rebuild`.

use super::target::Target;
use crate::failure::{Outcome, Verdict};
use crate::text;
use crate::ui::Ui;
use serde::Serialize;
use std::time::Duration;
use vellum::serve::Stop;

/// Fill the members that were added; goes on where it was stopped
#[derive(clap::Args)]
#[command(after_help = "\
Ctrl-C stops it. An array that is served is rebuilt there, and needs no rebuild by this command.

Example:
  vellum array rebuild a.toml
  vellum array rebuild a.toml --give-up --json

Exit codes: 0 rebuilt, 1 sectors are lost, or it was stopped, 2 usage, or nothing to do, 3 I/O, 4 corrupt, 5 in use")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// Go on over sectors that cannot be computed: they are lost, and named
    #[arg(long)]
    give_up: bool,
}

/// docs/json/array.md
#[derive(Serialize)]
struct Rebuilt {
    complete: bool,
    lost: Vec<(u64, u64)>,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let stop = Stop::on_signals()?;
        let array = self.target.assemble(ui)?;
        let mut progress = ui.progress("rebuild");
        let rebuilt = array.rebuild(self.give_up, |at| {
            progress(at.rows, at.of);
            !stop.wait(Some(Duration::ZERO))
        });
        array.close()?;
        let rebuilt = rebuilt?;
        let lost = rebuilt.lost.iter().map(|lost| (lost.start, lost.end - lost.start)).collect();
        let rebuilt = Rebuilt { complete: rebuilt.complete, lost };
        ui.result(&rebuilt, || rebuilt.describe());
        let fine = rebuilt.complete && rebuilt.lost.is_empty();
        Ok(if fine { Verdict::Fine } else { Verdict::Problems })
    }
}

impl Rebuilt {
    fn describe(&self) -> String {
        let how = if self.complete { "rebuilt" } else { "stopped; the same command goes on" };
        match self.lost.as_slice() {
            [] => format!("{how}\n"),
            lost => format!("{how}; lost sectors: {}\n", text::sector_ranges(lost)),
        }
    }
}
