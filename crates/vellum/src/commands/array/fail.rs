//! `array fail`.

use super::target::{Shown, Target};
use crate::failure::{Outcome, Verdict};
use crate::ui::Ui;

/// Take a member out of an array, as if it had failed
#[derive(clap::Args)]
#[command(after_help = "\
What the member holds does not count any more; `vellum array add` takes another device in its place.

Example:
  vellum array fail a.toml 2

Exit codes: 0 it is out, 2 usage, or the array cannot do without it, 3 I/O, 4 corrupt, 5 in use")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// Its role: `vellum array detail` shows them
    #[arg(value_name = "ROLE")]
    role: usize,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let array = self.target.assemble(ui)?;
        array.fail(self.role)?;
        let shown = Shown::of(&array.status());
        array.close()?;
        ui.result(&shown, || shown.describe());
        Ok(Verdict::Fine)
    }
}
