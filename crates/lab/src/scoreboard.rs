//! Runs all experiments at small scale, and some at the paper's, and writes `RESULTS.md`, including what benches
//! measured on real kernels.

use crate::Progress;
use crate::experiment::{self, Check, Experiment, Outcome, Scale, Setting};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use vellum_base::{Error, Result};

/// Where benches leave their rows, relative to the directory of `RESULTS.md`.
const MEASURED_DIRECTORY: &str = "docs/results";

/// Where charts are written, relative to the same directory.
const CHART_DIRECTORY: &str = "docs/results/charts";

/// Experiments whose claims depend on the paper's sizes: at the small scale indexes, on which bubbles save nothing, are
/// a tenth of tables, and caches have few sets. They take minutes each.
const AT_PAPER_SCALE: [&str; 15] = [
    "kdd-fig4",
    "kdd-fig5",
    "kdd-fig6",
    "kdd-fig7",
    "kdd-fig8",
    "kdd-fig9",
    "kdd-fig10",
    "kdd-fig11",
    "freewrite-fig2",
    "freewrite-fig3",
    "freewrite-fig4",
    "freewrite-fig5",
    "freewrite-fig6",
    "freewrite-fig7",
    "freewrite-fig8",
];

/// How many claims hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Score {
    /// Path of the file written.
    pub results: PathBuf,
    /// Claims that hold.
    pub held: u64,
    /// Claims that do not hold; `RESULTS.md` says why.
    pub missed: u64,
}

/// A row measured by a bench, from a file of `docs/results` (an array of these; docs/json/lab.md).
#[derive(Clone, Debug, Deserialize)]
struct MeasuredRow {
    claim: String,
    target: String,
    ours: String,
    command: String,
    /// None if there is no target: the row is shown but not counted.
    holds: Option<bool>,
    why: String,
}

/// Runs every experiment and writes `RESULTS.md` into `directory`, including what benches measured
/// (`docs/results/*.json` there). If `only` names some, only these are run, and the sections of the others are kept.
///
/// # Errors
/// [`Kind::Invalid`](vellum_base::Kind::Invalid) if the file has no section to keep.
pub fn write(directory: &Path, only: &[String], seed: u64, progress: &dyn Progress) -> Result<Score> {
    only.iter().try_for_each(|name| experiment::find(name).map(drop))?;
    let all: Vec<&Experiment> = experiment::all().iter().collect();
    write_of(&all, only, directory, seed, progress)
}

/// The same for the given experiments only.
fn write_of(
    experiments: &[&'static Experiment],
    only: &[String],
    directory: &Path,
    seed: u64,
    progress: &dyn Progress,
) -> Result<Score> {
    let measured = measured_rows(&directory.join(MEASURED_DIRECTORY))?;
    let path = directory.join("RESULTS.md");
    let before = if only.is_empty() { String::new() } else { read(&path)? };
    let mut sections = String::new();
    for experiment in experiments.iter().copied() {
        if !only.is_empty() && !only.iter().any(|name| name == experiment.name) {
            sections += kept(&before, experiment.name)?;
            continue;
        }
        let outcome = (experiment.run)(&Setting { scale: scale_of(experiment), seed, progress });
        let outcome = outcome.map_err(|e| e.context(experiment.name))?;
        section(&mut sections, experiment, &outcome);
        draw(directory, experiment.name, &outcome)?;
    }
    let page = page(&sections, &measured, seed);
    std::fs::write(&path, &page).map_err(|e| Error::io(format_args!("write {}", path.display()), e))?;
    let rows_with = |cell: &str| page.lines().filter(|line| line.contains(cell)).count() as u64;
    Ok(Score { results: path, held: rows_with(" | yes | "), missed: rows_with(" | **no** | ") })
}

/// Writes the charts of an experiment, replacing its earlier ones.
fn draw(directory: &Path, name: &str, outcome: &Outcome) -> Result<()> {
    let charts = directory.join(CHART_DIRECTORY);
    let io = |e| Error::io(format_args!("write charts into {}", charts.display()), e);
    std::fs::create_dir_all(&charts).map_err(io)?;
    for file in std::fs::read_dir(&charts).map_err(io)? {
        let path = file.map_err(io)?.path();
        let of = path.file_stem().and_then(|stem| stem.to_str()?.rsplit_once('-'));
        if of.is_some_and(|(of, _)| of == name) {
            std::fs::remove_file(path).map_err(io)?;
        }
    }
    for (number, chart) in (1..).zip(&outcome.charts) {
        std::fs::write(charts.join(format!("{name}-{number}.svg")), chart.image()?).map_err(io)?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| Error::io(format_args!("read {}", path.display()), e))
}

/// The section of a page on an experiment.
fn kept<'a>(page: &'a str, name: &str) -> Result<&'a str> {
    let head = format!("\n## {name}\n");
    let Some(from) = page.find(&head) else {
        return Err(Error::invalid(format!("RESULTS.md says nothing of {name}: run it, too")));
    };
    let until = page[from + head.len()..].find("\n## ").map_or(page.len(), |at| from + head.len() + at);
    Ok(&page[from..until])
}

/// The rows of all files, in the order of their names. A malformed file is an error that names it.
fn measured_rows(directory: &Path) -> Result<Vec<MeasuredRow>> {
    let io = |e| Error::io(format_args!("read {}", directory.display()), e);
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(io(e)),
    };
    let mut paths = entries.map(|e| Ok(e?.path())).collect::<std::io::Result<Vec<_>>>().map_err(io)?;
    paths.retain(|path| path.extension().is_some_and(|e| e == "json"));
    paths.sort();
    let mut rows = Vec::new();
    for path in paths {
        let text = read(&path)?;
        let of_file: Vec<MeasuredRow> = serde_json::from_str(&text).map_err(|e| {
            Error::invalid(format!("{}: not rows of results ({e}); see docs/json/lab.md", path.display()))
        })?;
        rows.extend(of_file);
    }
    Ok(rows)
}

fn scale_of(experiment: &Experiment) -> Scale {
    if AT_PAPER_SCALE.contains(&experiment.name) { Scale::Paper } else { Scale::Small }
}

fn page(sections: &str, measured: &[MeasuredRow], seed: u64) -> String {
    let mut out = format!(
        "# Results\n\nGenerated by `vellum lab scoreboard --seed {seed}`: do not edit. Every claim of a paper that an \
         experiment checks, the paper's figure, ours (at small scale, or at the paper's where its command says so), and \
         whether the shape that must hold does. What \
         does not hold stays here, with the reason. Everything but `woj-table1`, `woj-fig8` and `ses-compression` (which look at the \
         machine they run on) is a function of the seed.\n\n\
         A claim *holds* when its shape does (the relation that the paper's argument needs), not when figures agree: \
         the devices are models fitted to data sheets, and are not tuned to the results.\n"
    );
    if !measured.is_empty() {
        out += "\n## Measured on real kernels and against peers\n\n";
        out += "| Claim | Target | Ours | Holds | Why | Command |\n|---|---|---|---|---|---|\n";
        for row in measured {
            let cells = [&row.claim, &row.target, &row.ours].map(|text| cell(text));
            let [claim, target, ours] = cells;
            let holds = row.holds.map_or("-", word);
            let (why, command) = (cell(&row.why), cell(&row.command));
            let _ = writeln!(out, "| {claim} | {target} | {ours} | {holds} | {why} | `{command}` |");
        }
    }
    out + sections
}

fn section(out: &mut String, experiment: &Experiment, outcome: &Outcome) {
    let Experiment { name, figure, paper, claim, small, full, .. } = experiment;
    let (set_up, options) = match scale_of(experiment) {
        Scale::Small => (small, ""),
        Scale::Paper => (full, " --scale paper"),
    };
    let _ = write!(
        out,
        "\n## {name}\n\n{paper}. {figure}.\n\n> {claim}.\n\nSet-up: {set_up}.\n\n```\nvellum lab run {name}{options}\n```\n\n\
         | Claim | Paper | Ours | Holds | Why |\n|---|---|---|---|---|\n"
    );
    for Check { claim, paper, ours, holds, why } in &outcome.checks {
        let [claim, paper, ours, why] = [claim, paper, ours, why].map(|text| cell(text));
        let _ = writeln!(out, "| {claim} | {paper} | {ours} | {} | {why} |", word(*holds));
    }
    for note in &outcome.notes {
        let _ = write!(out, "\n- {note}");
    }
    if !outcome.notes.is_empty() {
        out.push('\n');
    }
    for (number, chart) in (1..).zip(&outcome.charts) {
        let _ = write!(out, "\n![{}]({CHART_DIRECTORY}/{name}-{number}.svg)\n", chart.title);
    }
}

fn word(holds: bool) -> &'static str {
    if holds { "yes" } else { "**no**" }
}

/// Escapes text for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Chart, ChartKind};

    static STAND_IN: Experiment = Experiment {
        name: "stand-in",
        paper: "P",
        figure: "Figure 0",
        claim: "seeds are numbers",
        small: "s",
        full: "f",
        run: |setting| {
            let check = |ours: u64, holds| Check {
                claim: "c".into(),
                paper: "1".into(),
                ours: ours.to_string(),
                holds,
                why: "w".into(),
            };
            let checks = vec![check(setting.seed, true), check(7, false), check(8, true)];
            let kind = ChartKind::Lines { series: vec![("s".into(), vec![(1.0, 2.0)])] };
            let charts = vec![Chart { title: "drawn".into(), x: "x".into(), y: "y".into(), kind }];
            Ok(Outcome { checks, notes: vec!["a note".into()], charts, ..Outcome::default() })
        },
    };

    #[test]
    fn the_page_holds_every_claim_and_the_score_counts_them() {
        let directory = tempfile::tempdir().unwrap();
        let score = write_of(&[&STAND_IN], &[], directory.path(), 3, &()).unwrap();
        assert_eq!((score.held, score.missed), (2, 1));
        let text = std::fs::read_to_string(directory.path().join("RESULTS.md")).unwrap();
        assert_eq!(text.matches(" | yes | ").count(), 2);
        assert_eq!(text.matches(" | **no** | ").count(), 1);
        for part in
            ["vellum lab run stand-in", "--seed 3", "| c | 1 | 3 | yes | w |", "\n- a note\n", "> seeds are"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("real kernels"), "no bench has left rows here");
        let chart = "docs/results/charts/stand-in-1.svg";
        assert!(text.contains(&format!("![drawn]({chart})")));
        assert!(
            std::fs::read_to_string(directory.path().join(chart)).unwrap().contains("<title>drawn</title>")
        );
    }

    #[test]
    fn what_is_not_run_again_stays() {
        static OTHER: Experiment = Experiment { name: "other", ..STAND_IN };
        let directory = tempfile::tempdir().unwrap();
        let all = [&STAND_IN, &OTHER];
        let only = ["other".to_string()];
        assert!(write_of(&all, &only, directory.path(), 5, &()).is_err(), "there is nothing to keep");
        write_of(&all, &[], directory.path(), 3, &()).unwrap();
        let score = write_of(&all, &only, directory.path(), 5, &()).unwrap();
        assert_eq!((score.held, score.missed), (4, 2));
        let text = std::fs::read_to_string(directory.path().join("RESULTS.md")).unwrap();
        let (kept, fresh) = text.split_once("## other").unwrap();
        assert!(kept.contains("| c | 1 | 3 | yes") && fresh.contains("| c | 1 | 5 | yes"), "{text}");
    }

    #[test]
    fn measured_rows_are_merged_and_bad_files_named() {
        let directory = tempfile::tempdir().unwrap();
        let rows = directory.path().join("rows");
        assert!(measured_rows(&rows).unwrap().is_empty(), "no directory, no rows");
        std::fs::create_dir(&rows).unwrap();
        let row = |claim: &str| {
            format!(
                r#"[{{"claim":"{claim}","target":"1 | 2","ours":"3","command":"cargo bench","holds":false,"why":"w"}}]"#
            )
        };
        std::fs::write(rows.join("b.json"), row("second")).unwrap();
        std::fs::write(rows.join("a.json"), row("first")).unwrap();
        std::fs::write(rows.join("notes.txt"), "not a row").unwrap();
        let found = measured_rows(&rows).unwrap();
        assert_eq!(found.iter().map(|r| r.claim.as_str()).collect::<Vec<_>>(), ["first", "second"]);
        let text = page("", &found, 9);
        assert!(
            text.contains("real kernels")
                && text.contains("--seed 9")
                && text.contains("1 \\| 2 | 3 | **no**")
        );
        std::fs::write(rows.join("c.json"), "{}").unwrap();
        let error = measured_rows(&rows).unwrap_err().to_string();
        assert!(error.contains("c.json") && error.contains("docs/json/lab.md"), "{error}");
    }
}
