//! The papers' experiments, one file each, each registered by one line in [`all`].

pub(crate) mod flashkv;
mod freewrite;
mod kdd;
mod ses;
mod woj;

use crate::Progress;
use crate::report::Chart;
use serde::Serialize;
use std::sync::atomic::{AtomicUsize, Ordering};
use vellum_base::sync::Mutex;
use vellum_base::{Error, Result};

/// An experiment of a paper, and the shape that its result must have.
pub struct Experiment {
    /// Its name, as `vellum lab run` takes it.
    pub name: &'static str,
    /// The paper: short name and title.
    pub paper: &'static str,
    /// The figure, table or section.
    pub figure: &'static str,
    /// The paper's claim, with its figures.
    pub claim: &'static str,
    /// The set-up at small scale.
    pub small: &'static str,
    /// The set-up at paper scale.
    pub full: &'static str,
    /// Runs it.
    pub run: fn(&Setting<'_>) -> Result<Outcome>,
}

/// Parameters of a run.
pub struct Setting<'a> {
    /// Scale of the run.
    pub scale: Scale,
    /// Seed for everything random.
    pub seed: u64,
    /// Receives progress.
    pub progress: &'a dyn Progress,
}

/// Scale of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// A few seconds.
    #[default]
    Small,
    /// As in the paper.
    Paper,
}

/// Result of an experiment. The JSON form is documented in docs/json/lab.md and stable.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Tables of figures.
    pub tables: Vec<Table>,
    /// The same figures as charts.
    pub charts: Vec<Chart>,
    /// Whether the claims hold.
    pub checks: Vec<Check>,
    /// Remarks for the reader.
    pub notes: Vec<String>,
}

/// A table of figures. The first column names the row.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Column headings, with units.
    pub columns: Vec<String>,
    /// Rows, each as long as `columns`.
    pub rows: Vec<Vec<String>>,
}

/// A claim of the paper compared with our result.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// The claim.
    pub claim: String,
    /// The paper's figure.
    pub paper: String,
    /// Our figure.
    pub ours: String,
    /// Whether the required shape holds.
    pub holds: bool,
    /// The shape, and why it holds or does not.
    pub why: String,
}

/// Every experiment.
pub fn all() -> &'static [Experiment] {
    &ALL
}

static ALL: [Experiment; 40] = [
    woj::table1::EXPERIMENT,
    woj::fig2::EXPERIMENT,
    woj::fig3::EXPERIMENT,
    woj::fig5::EXPERIMENT,
    woj::fig6::EXPERIMENT,
    woj::fig7::EXPERIMENT,
    woj::fig8::EXPERIMENT,
    woj::metadata::EXPERIMENT,
    woj::vellum::EXPERIMENT,
    ses::fig1::EXPERIMENT,
    ses::table3::EXPERIMENT,
    ses::fig2::EXPERIMENT,
    ses::fig4::EXPERIMENT,
    ses::table4::EXPERIMENT,
    ses::fig5::EXPERIMENT,
    ses::compression::EXPERIMENT,
    flashkv::fig6::EXPERIMENT,
    flashkv::fig7::EXPERIMENT,
    flashkv::fig8::EXPERIMENT,
    kdd::metadata::FIG4,
    kdd::counted::FIG5,
    kdd::counted::FIG6,
    kdd::counted::FIG7,
    kdd::counted::FIG8,
    kdd::timed::FIG9,
    kdd::fio::FIG10,
    kdd::fio::FIG11,
    kdd::engine::EXPERIMENT,
    kdd::nvram::EXPERIMENT,
    freewrite::fig2::EXPERIMENT,
    freewrite::fig3::EXPERIMENT,
    freewrite::fig4::EXPERIMENT,
    freewrite::fig5::EXPERIMENT,
    freewrite::fig6::EXPERIMENT,
    freewrite::caps::FIG7,
    freewrite::caps::FIG8,
    freewrite::caps::EXPERIMENT,
    freewrite::grid::EXPERIMENT,
    freewrite::flash::EXPERIMENT,
    freewrite::separation::EXPERIMENT,
];

/// The chapter of `vellum tour` on key-value stores.
pub fn key_value_chapter() -> &'static Experiment {
    static CHAPTER: Experiment = flashkv::tour::CHAPTER;
    &CHAPTER
}

/// The chapter of `vellum tour` on merges that do not rewrite unchanged data.
pub fn reuse_chapter() -> &'static Experiment {
    static CHAPTER: Experiment = freewrite::tour::CHAPTER;
    &CHAPTER
}

/// The chapter of `vellum tour` on caches of an array.
pub fn cache_chapter() -> &'static Experiment {
    static CHAPTER: Experiment = kdd::tour::CHAPTER;
    &CHAPTER
}

/// The experiment with this name.
pub fn find(name: &str) -> Result<&'static Experiment> {
    all().iter().find(|e| e.name == name).ok_or_else(|| {
        let names: Vec<_> = all().iter().map(|e| e.name).collect();
        Error::invalid(format!("no experiment '{name}'; there are {}", names.join(", ")))
    })
}

impl Check {
    /// A claim; `why` has the reasons for when it holds, and for when it does not.
    fn new(claim: &str, paper: &str, ours: String, holds: bool, why: (&str, &str)) -> Check {
        let why = if holds { why.0 } else { why.1 };
        Check { claim: claim.into(), paper: paper.into(), ours, holds, why: why.into() }
    }
}

impl Table {
    pub(crate) fn new(
        title: impl Into<String>,
        columns: impl IntoIterator<Item = impl Into<String>>,
    ) -> Table {
        let columns = columns.into_iter().map(Into::into).collect();
        Table { title: title.into(), columns, rows: Vec::new() }
    }
}

/// Runs all jobs on all cores; results are in the order of the jobs. Every job is a virtual world of its own, so
/// results do not depend on the order of execution.
fn each<J: Sync, R: Send>(
    what: &str,
    jobs: &[J],
    setting: &Setting<'_>,
    run: impl Fn(&J) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    setting.progress.begin(what, jobs.len() as u64);
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<R>)>> = Mutex::default();
    let work = || {
        while let Some((at, job)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, jobs.get(at)?)))
        {
            let result = run(job);
            results.lock().push((at, result));
            setting.progress.advance(1);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(jobs.len());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut results = results.into_inner();
    results.sort_by_key(|(at, _)| *at);
    if results.len() < jobs.len() {
        return Err(Error::invalid("an experiment lost a run"));
    }
    results.into_iter().map(|(_, result)| result).collect()
}
