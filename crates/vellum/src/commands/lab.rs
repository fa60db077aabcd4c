//! `lab`: the papers' experiments.

use super::replay::command_line;
use crate::failure::{Failure, Outcome, Verdict};
use crate::report_file::ReportArgs;
use crate::text::{self, Align, Table};
use crate::ui::Ui;
use clap::{Subcommand, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use vellum::lab::experiment::{self, Experiment, Scale, Setting};
use vellum::lab::report::Page;
use vellum::lab::scoreboard;

/// Run the papers' experiments: their claims beside our figures
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Example:
  vellum lab list
  vellum lab run woj-fig5 --report fig5.html

Exit codes: 0 done and every claim holds, 1 a claim does not hold, 2 usage, 3 I/O"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    List(List),
    Run(Run),
    Scoreboard(Scoreboard),
}

/// List the experiments: paper, figure, claim
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  vellum lab list --json

Exit codes: 0 listed")]
struct List {}

/// Run one experiment
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  vellum lab run woj-fig5 --scale small --report fig5.html

Exit codes: 0 every claim holds, 1 a claim does not hold, 2 no such experiment or a report that
exists already, 3 I/O")]
struct Run {
    /// The experiment, as `lab list` names it
    #[arg(value_name = "NAME")]
    name: String,
    /// How large
    #[arg(long, value_name = "SCALE", default_value = "small")]
    scale: ScaleArg,
    /// Decides everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    report: ReportArgs,
}

/// Run every experiment, some at the paper's scale, and write RESULTS.md: it takes half an hour
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  vellum lab scoreboard
  vellum lab scoreboard --only flashkv-fig6,flashkv-fig7

Exit codes: 0 every claim holds, 1 some do not (RESULTS.md says why), 3 I/O")]
struct Scoreboard {
    /// Directory to write RESULTS.md into
    #[arg(long, value_name = "DIR", default_value = ".")]
    to: PathBuf,
    /// Run only these; of the others stays what RESULTS.md says
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Decides everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ScaleArg {
    /// A few seconds
    Small,
    /// As in the paper
    Paper,
}

/// docs/json/lab.md
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    paper: &'static str,
    figure: &'static str,
    claim: &'static str,
    small: &'static str,
    full: &'static str,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        match self.command {
            Command::List(_) => list(ui),
            Command::Run(args) => args.run(ui),
            Command::Scoreboard(args) => args.run(ui),
        }
    }
}

fn list(ui: &Ui) -> Outcome {
    let listed: Vec<Listed> = experiment::all().iter().map(Listed::of).collect();
    ui.result(&listed, || {
        let mut table = Table::new(&[Align::Left, Align::Left, Align::Left]);
        for e in experiment::all() {
            table.row([e.name, e.figure, e.claim]);
        }
        table.render("")
    });
    Ok(Verdict::Fine)
}

impl Listed {
    fn of(e: &Experiment) -> Listed {
        Listed {
            name: e.name,
            paper: e.paper,
            figure: e.figure,
            claim: e.claim,
            small: e.small,
            full: e.full,
        }
    }
}

impl Run {
    fn run(self, ui: &Ui) -> Outcome {
        let experiment =
            experiment::find(&self.name).map_err(|e| Failure::with_next(e, "vellum lab list"))?;
        self.report.check()?;
        let scale = match self.scale {
            ScaleArg::Small => Scale::Small,
            ScaleArg::Paper => Scale::Paper,
        };
        let outcome = (experiment.run)(&Setting { scale, seed: self.seed, progress: &ui.bars() })?;
        ui.result(&outcome, || text::outcome::render(experiment, &outcome));
        let page = || {
            let mut page = Page::new(format!("{}: {}", experiment.paper, experiment.figure));
            page.outcome(experiment, &outcome, &command_line());
            page
        };
        self.report.write(page, ui)?;
        let holds = outcome.checks.iter().all(|check| check.holds);
        Ok(if holds { Verdict::Fine } else { Verdict::Problems })
    }
}

impl Scoreboard {
    fn run(self, ui: &Ui) -> Outcome {
        let score = scoreboard::write(&self.to, &self.only, self.seed, &ui.bars())?;
        ui.result(&score, || {
            format!("{}: {} claims hold, {} do not\n", score.results.display(), score.held, score.missed)
        });
        Ok(if score.missed == 0 { Verdict::Fine } else { Verdict::Problems })
    }
}
