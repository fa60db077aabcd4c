//! Prints an experiment: its claims, then its tables.

use super::{Align, Table};
use vellum::lab::experiment::{Experiment, Outcome, Table as Figures};

/// The claims with our results, then the figures.
pub fn render(experiment: &Experiment, outcome: &Outcome) -> String {
    let mut text = format!("{}, {}\n  {}\n\n", experiment.paper, experiment.figure, experiment.claim);
    for check in &outcome.checks {
        let verdict = if check.holds { "holds" } else { "DOES NOT HOLD" };
        text.push_str(&format!(
            "{verdict}: {}\n  paper: {}\n  ours:  {}\n  {}\n",
            check.claim, check.paper, check.ours, check.why
        ));
    }
    for table in &outcome.tables {
        text.push_str(&format!("\n{}\n{}", table.title, self::table(table)));
    }
    for note in &outcome.notes {
        text.push_str(&format!("\nnote: {note}\n"));
    }
    text
}

/// A table of figures.
pub fn table(figures: &Figures) -> String {
    let mut columns = vec![Align::Left];
    columns.extend(figures.columns.iter().skip(1).map(|_| Align::Right));
    let mut table = Table::new(&columns);
    table.row(figures.columns.clone());
    for row in &figures.rows {
        table.row(row.clone());
    }
    table.render("  ")
}
