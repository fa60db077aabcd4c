//! Figure 4: cost of the metadata log by size of its partition.

use super::workloads::TABLE_I;
use super::{NOTE, PAPER, divisor, pages, percent, range, shape};
use crate::array_cache::{Deltas, Mode, count};
use crate::experiment::{Check, Experiment, Outcome, Setting, Table, each};
use crate::report::{Chart, ChartKind};
use vellum_array::cache::Recipe;
use vellum_base::Result;

pub(crate) const FIG4: Experiment = Experiment {
    name: "kdd-fig4",
    paper: PAPER,
    figure: "Figure 4 (section IV.A)",
    claim: "With 0.59 % of the SSD for the metadata log, metadata are less than 1.55, 1.51, 1.42 and 1.79 % of what is written to flash (Fin1, Hm0, Fin2, Web0)",
    small: "workloads after Table I at a 20th of its size, KDD-25 %, caches of 10 and 20 % of the pages, partitions of 0.45 to 0.98 %",
    full: "the same at Table I's size",
    run,
};

/// Shares of the SSD. The paper begins at 0.39 %, where a log of its 16-byte entries just holds one per page; ours has
/// headers, and needs a tenth more.
const PARTITIONS: [f64; 5] = [0.0045, 0.0050, 0.0059, 0.0078, 0.0098];
const CACHES: [f64; 2] = [0.1, 0.2];

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let jobs: Vec<_> = TABLE_I.iter().flat_map(|row| CACHES.map(|cache| (*row, cache))).collect();
    let mode = Mode::by_name("kdd-25")?;
    let found = each("Metadata", &jobs, setting, |(row, cache)| {
        let workload = row.workload(divisor(setting), setting.seed)?;
        let pages = pages(&workload, *cache);
        let share = |partition: f64| {
            let recipe = Recipe { log_pages: (f64::from(pages) * partition) as u32, ..mode.recipe(pages) };
            let mut policy = recipe.build(&shape(workload.sectors))?;
            let totals = count(
                &mut *policy,
                &workload,
                &mut Deltas::new(mode.deltas, setting.seed, &workload)?,
                mode.partial,
            );
            Ok(totals.log_share())
        };
        PARTITIONS.into_iter().map(share).collect::<Result<Vec<f64>>>()
    })?;
    let columns = ["workload, cache".to_string()].into_iter();
    let columns = columns.chain(PARTITIONS.map(|partition| format!("{:.2} %", partition * 100.0)));
    let mut table = Table::new("Metadata in what is written to flash, %", columns);
    let name = |at: usize| format!("{} {:.0} %", jobs[at].0.name, jobs[at].1 * 100.0);
    for (at, shares) in found.iter().enumerate() {
        let cells = shares.iter().map(|share| format!("{:.2}", share * 100.0));
        table.rows.push(std::iter::once(name(at)).chain(cells).collect());
    }
    let line = |(at, shares): (usize, &Vec<f64>)| {
        (name(at), PARTITIONS.iter().zip(shares).map(|(x, y)| (x * 100.0, y * 100.0)).collect())
    };
    let chart = Chart {
        title: "Metadata in what is written to flash".into(),
        x: "partition, % of the SSD".into(),
        y: "%".into(),
        kind: ChartKind::Lines { series: found.iter().enumerate().map(line).collect() },
    };
    let (low, high) = range(found.iter().map(|shares| shares[2]));
    let falls = found.iter().all(|shares| shares.windows(2).all(|pair| pair[1] <= pair[0] * 1.02));
    Ok(Outcome {
        tables: vec![table],
        charts: vec![chart],
        checks: vec![
            Check::new(
                "At 0.59 % metadata are less than 2 % of what is written",
                "1.42 to 1.79 %",
                format!("{} to {}", percent(low), percent(high)),
                high < 0.02,
                ("shape: less than 2 % everywhere", "shape: less than 2 % everywhere"),
            ),
            Check::new(
                "A larger partition costs less",
                "yes",
                if falls { "yes" } else { "no" }.into(),
                falls,
                ("shape: never more with a larger one", "shape: never more with a larger one"),
            ),
        ],
        notes: vec![NOTE.into()],
    })
}
