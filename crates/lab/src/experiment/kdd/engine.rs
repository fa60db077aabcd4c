//! Whether the model behind Figures 9 to 11 agrees with the engine: the same requests through both, on the same
//! modelled disks.

use super::fio::{CLIENTS, workload};
use super::{CACHE_BYTES, PAPER, SSD, percent, range, shape};
use crate::array_cache::{Arrivals, DeltaModel, Deltas, EngineRun, Hardware, Mode, Ran, Times, Totals, time};
use crate::experiment::{Check, Experiment, Outcome, Setting, Table, each};
use crate::report::{Chart, ChartKind};
use std::sync::Arc;
use vellum_base::Result;
use vellum_media::{HddModel, Preset};

const SETUP: &str = "a 60th of figure 10's: 4 KiB requests over 27 MB by a Zipf distribution of exponent 1.0001, 67 MB in all, 16 clients, a cache of 17 MB; \
                     contents are real, and differ by the mean delta";

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "kdd-engine",
    paper: PAPER,
    figure: "beyond section IV",
    claim: "Not in the paper: what is simulated is what is run",
    small: SETUP,
    full: "the same",
    run,
};

const MODES: [&str; 6] = ["nossd", "wa", "wt", "leavo", "kdd-25", "kdd"];
const READ_SHARES: [f64; 2] = [0.0, 0.5];
const DIVISOR: u64 = 60;

/// Results of the engine, and of the model.
struct Both {
    engine: Ran,
    totals: Totals,
    times: Times,
}

fn both(mode: &str, read_share: f64, seed: u64) -> Result<Both> {
    let mode = Mode::by_name(mode)?;
    let share = if mode.name == "kdd" { 0.12 } else { 0.25 };
    let workload = Arc::new(workload(read_share, DIVISOR, 1, seed)?);
    let pages = (CACHE_BYTES / 4096 / DIVISOR) as u32;
    let hardware = Hardware {
        shape: shape(workload.sectors),
        disk: HddModel::SATA_1TB_PLAIN,
        ssd: Preset::by_name(SSD)?,
    };
    let run = EngineRun {
        mode,
        workload: &workload,
        changed_bytes: (share * 4096.0) as usize,
        pages,
        hardware: &hardware,
        clients: CLIENTS,
        seed,
    };
    let engine = run.run()?;
    let modelled = Hardware { shape: engine.shape, ..hardware };
    let pages = if engine.pages > 0 { engine.pages } else { pages };
    let mut policy = mode.recipe(pages).build(&engine.shape)?;
    let mut deltas = Deltas::new(DeltaModel::Same { share }, seed, &workload)?;
    let arrivals = Arrivals::Closed { clients: CLIENTS };
    let (totals, times) = time(&mut *policy, &workload, &mut deltas, mode.partial, &modelled, arrivals)?;
    Ok(Both { engine, totals, times })
}

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let jobs: Vec<_> = READ_SHARES.iter().flat_map(|share| MODES.map(|mode| (*share, mode))).collect();
    let found = each("Engine and model", &jobs, setting, |(share, mode)| both(mode, *share, setting.seed))?;
    let columns = [
        "policy, reads",
        "engine, ms",
        "model, ms",
        "engine, hits",
        "model, hits",
        "engine, flash MB",
        "model, flash MB",
    ];
    let mut table = Table::new("The engine and its model", columns);
    for ((share, mode), both) in jobs.iter().zip(&found) {
        let mb = |pages: u64| format!("{:.1}", pages as f64 * 4096.0 / 1e6);
        table.rows.push(vec![
            format!("{mode}, {:.0} %", share * 100.0),
            format!("{:.2}", both.engine.times.all.mean_ms),
            format!("{:.2}", both.times.all.mean_ms),
            percent(both.engine.hit_ratio),
            percent(both.totals.hit_ratio()),
            mb(both.engine.flash_pages),
            mb(both.totals.flash_pages()),
        ]);
    }
    let groups = jobs.iter().map(|(share, mode)| format!("{mode} {:.0} %", share * 100.0)).collect();
    let means = |of: &dyn Fn(&Both) -> f64| found.iter().map(of).collect::<Vec<f64>>();
    let series = vec![
        ("engine".to_string(), means(&|both| both.engine.times.all.mean_ms)),
        ("model".to_string(), means(&|both| both.times.all.mean_ms)),
    ];
    let chart = Chart {
        title: "Mean response".into(),
        x: "policy and read rate".into(),
        y: "ms".into(),
        kind: ChartKind::Bars { groups, series },
    };
    Ok(Outcome { tables: vec![table], charts: vec![chart], checks: checks(&found), notes: Vec::new() })
}

fn checks(found: &[Both]) -> Vec<Check> {
    let slower = range(found.iter().map(|both| both.engine.times.all.mean_ms / both.times.all.mean_ms));
    let flash = range(
        found
            .iter()
            .filter(|both| both.totals.flash_pages() > 0)
            .map(|both| both.engine.flash_pages as f64 / both.totals.flash_pages() as f64),
    );
    let sooner = range(found.chunks(MODES.len()).map(|row| {
        let mean = |at: usize| row[at].engine.times.all.mean_ms;
        1.0 - mean(4) / mean(0)
    }));
    let within = |(low, high): (f64, f64), by: f64| low >= 1.0 - by && high <= 1.0 + by;
    let times = |(low, high): (f64, f64)| format!("{low:.2} to {high:.2} times the model's");
    vec![
        Check::new(
            "The engine answers when its model says so",
            "not in the paper",
            times(slower),
            within(slower, 0.2),
            ("shape: within a fifth", "shape: within a fifth"),
        ),
        Check::new(
            "The engine writes as much flash as its model says",
            "not in the paper",
            times(flash),
            within(flash, 0.1),
            ("shape: within a tenth", "shape: within a tenth"),
        ),
        Check::new(
            "The engine with KDD-25 % answers sooner than the engine without SSD",
            "42.1 to 43.3 %",
            format!("{} to {}", percent(sooner.0), percent(sooner.1)),
            sooner.0 >= 0.2,
            ("shape: at least a fifth sooner", "shape: at least a fifth sooner"),
        ),
    ]
}
