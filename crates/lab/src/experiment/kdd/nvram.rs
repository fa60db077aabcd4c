//! Cost of having no NVRAM: a power cut in the middle of a workload, with the engine on modelled disks.

use super::fio::{CLIENTS, workload};
use super::{CACHE_BYTES, PAPER, SSD, percent, shape};
use crate::array_cache::{CutRun, EngineRun, Hardware, Mode, Nvram};
use crate::experiment::{Check, Experiment, Outcome, Setting, Table, each};
use crate::report::{Chart, ChartKind};
use std::sync::Arc;
use vellum_base::Result;
use vellum_media::{HddModel, Preset};

const SETUP: &str = "a 60th of figure 10's, six times as long: 4 KiB requests, half of them reads, over 27 MB by a Zipf distribution of exponent 1.0001, 400 MB in all, 16 clients, a cache of 17 MB; \
                     the power goes when half of them were answered; the engine itself, with real contents that differ by 12 %";

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "kdd-nvram",
    paper: PAPER,
    figure: "beyond section III.C",
    claim: "The paper keeps metadata buffer and staged deltas in NVRAM; without one, all that was put off is made anew after a cut, and the cache is empty",
    small: SETUP,
    full: "the same",
    run,
};

/// The compared hosts: a mode, the contents of NVRAM, and a label.
const HOSTS: [(&str, Nvram, &str); 3] = [
    ("kdd", Nvram::Nothing, "none"),
    ("kdd", Nvram::ArrayLog, "the array's log"),
    ("kdd-nvram", Nvram::ArrayLogAndCache, "log and cache"),
];
const DIVISOR: u64 = 60;
const RUNS: u64 = 6;

fn host(mode: &str, nvram: Nvram, cut: bool, seed: u64) -> Result<CutRun> {
    let workload = Arc::new(workload(0.5, DIVISOR, RUNS, seed)?);
    let hardware = Hardware {
        shape: shape(workload.sectors),
        disk: HddModel::SATA_1TB_PLAIN,
        ssd: Preset::by_name(SSD)?,
    };
    let run = EngineRun {
        mode: Mode::by_name(mode)?,
        workload: &workload,
        changed_bytes: (0.12 * 4096.0) as usize,
        pages: (CACHE_BYTES / 4096 / DIVISOR) as u32,
        hardware: &hardware,
        clients: CLIENTS,
        seed,
    };
    run.run_with_cut(nvram, cut)
}

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let jobs: Vec<_> = HOSTS.iter().flat_map(|host| [false, true].map(|cut| (*host, cut))).collect();
    let found =
        each("Power cuts", &jobs, setting, |((mode, nvram, _), cut)| host(mode, *nvram, *cut, setting.seed))?;
    let checks = checks(&found);
    Ok(Outcome { tables: vec![table(&found)], charts: vec![chart(&found)], checks, notes: Vec::new() })
}

fn table(found: &[CutRun]) -> Table {
    let columns = [
        "in NVRAM, the power",
        "first half, ms",
        "open after, ms",
        "rows made anew",
        "all whole after, s",
        "first tenth behind, ms",
        "second half, ms",
        "second half, hits",
        "flash in all, MB",
    ];
    let mut table = Table::new("Half a workload, and the other half", columns);
    for (at, run) in found.iter().enumerate() {
        let (name, cut) = (HOSTS[at / 2].2, if at % 2 == 1 { "goes" } else { "stays" });
        let flash_pages = run.before.flash_pages + run.after.flash_pages;
        table.rows.push(vec![
            format!("{name}, {cut}"),
            format!("{:.2}", run.before.mean_ms()),
            format!("{:.1}", run.opening.as_secs_f64() * 1e3),
            run.unknown_rows.to_string(),
            format!("{:.1}", run.whole_after.as_secs_f64()),
            format!("{:.2}", run.after.means_ms[0]),
            format!("{:.2}", run.after.mean_ms()),
            percent(run.after.hit_ratio),
            format!("{:.1}", flash_pages as f64 * 4096.0 / 1e6),
        ]);
    }
    table
}

/// Response times after the cut, by tenths of the requests.
fn chart(found: &[CutRun]) -> Chart {
    let line = |(at, run): (usize, &CutRun)| {
        let tenths = run.after.means_ms.iter().enumerate();
        let name = format!("{}{}", HOSTS[at / 2].2, if at % 2 == 1 { ", cut" } else { "" });
        (name, tenths.map(|(tenth, mean)| ((tenth + 1) as f64 * 10.0, *mean)).collect())
    };
    Chart {
        title: "Mean response behind the cut".into(),
        x: "% of the requests behind it".into(),
        y: "ms".into(),
        kind: ChartKind::Lines { series: found.iter().enumerate().map(line).collect() },
    }
}

fn checks(found: &[CutRun]) -> Vec<Check> {
    let later = |cut: usize| found[cut].after.mean_ms() / found[cut - 1].after.mean_ms() - 1.0;
    let end = |run: &CutRun| run.after.means_ms[5..].iter().sum::<f64>();
    let later_in_the_end = |cut: usize| end(&found[cut]) / end(&found[cut - 1]) - 1.0;
    let hits = |run: usize| found[run].after.hit_ratio;
    let (none, kept) = (&found[1], &found[5]);
    vec![
        Check::new(
            "With an NVRAM for the cache a cut costs no row, and hits are as without it; opening takes longer",
            "nothing is lost",
            format!(
                "{} rows made anew, {} hits instead of {}, answers {}; open after {:.1} s instead of {:.1}",
                kept.unknown_rows,
                percent(hits(5)),
                percent(hits(4)),
                by(later(5)),
                kept.opening.as_secs_f64(),
                none.opening.as_secs_f64(),
            ),
            kept.unknown_rows == 0 && later(5) < 0.05 && hits(4) - hits(5) < 0.01,
            (
                "shape: no row, at most a hundredth of hits fewer, at most 5 % later",
                "shape: no row, at most a hundredth of hits fewer, at most 5 % later",
            ),
        ),
        Check::new(
            "Without one rows are made anew beside requests, which take as long as without a cut in the second half of what follows",
            "not in the paper",
            format!(
                "{} rows in {:.1} s; {} hits instead of {}; answers {}, in the second half {}",
                none.unknown_rows,
                none.whole_after.as_secs_f64(),
                percent(hits(1)),
                percent(hits(0)),
                by(later(1)),
                by(later_in_the_end(1)),
            ),
            none.unknown_rows > 0 && later_in_the_end(1) < 0.05,
            (
                "shape: some rows, and at most 5 % later from then on",
                "shape: some rows, and at most 5 % later from then on",
            ),
        ),
    ]
}

/// Formats how much later requests are answered.
fn by(share: f64) -> String {
    format!("{} {}", percent(share.abs()), if share < 0.0 { "sooner" } else { "later" })
}
