//! Bubble caps up to 96 %, as in Figures 7 and 8, on the LSM store; the paper has them for its log store.

use super::bench;
use super::{Keys, Kind, Measured, PAPER, Run, VALUE_BYTES, mb, notes, store_bytes};
use crate::experiment::{Check, Experiment, Outcome, Setting, Table, each};
use crate::report::{Chart, ChartKind};
use vellum_base::Result;
use vellum_kv::{Caps, Reuse};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "freewrite-caps",
    paper: PAPER,
    figure: "after Figures 7 and 8 (section 4.2), on LevelDB",
    claim: "The larger bubbles may be, the more is saved, up to a cap of 96 %, and still bubbles take less than 5 % of the space",
    small: "64 MiB of 512-byte values, mixed keys, bubble caps of 3 to 96 %, global cap of 5 %; sizes of LevelDB a sixteenth",
    full: "1 GiB, sizes as in the paper",
    run,
};

const CAPS: [f64; 6] = [0.03, 0.0625, 0.125, 0.25, 0.5, 0.96];

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let run = |reuse, bubble| Run {
        kind: Kind::Paper,
        keys: Keys::Mixed,
        value_bytes: VALUE_BYTES,
        bytes: store_bytes(setting),
        reuse,
        caps: Caps { bubble, ..Caps::default() },
    };
    let runs: Vec<Run> =
        std::iter::once(run(Reuse::Off, 0.0)).chain(CAPS.map(|cap| run(Reuse::Bubbles, cap))).collect();
    let measured = each("Bubble caps", &runs, setting, |run| bench::run(run, setting.seed))?;
    let Some((off, capped)) = measured.split_first() else { return Ok(Outcome::default()) };
    let less = |m: &Measured| 100.0 * (1.0 - m.stored_bytes() as f64 / off.stored_bytes() as f64);
    let columns =
        ["bubble cap, %", "puts/s", "written, MB", "less, %", "islands with a bubble, %", "bubbles, %"];
    let mut table = Table::new("LevelDB with bubbles", columns);
    for (cap, m) in CAPS.iter().zip(capped) {
        let reuse = m.stat.since_opened.reuse();
        table.rows.push(vec![
            format!("{:.1}", cap * 100.0),
            format!("{:.0}", m.puts_per_second()),
            mb(m.stored_bytes()),
            format!("{:.1}", less(m)),
            format!("{:.1}", 100.0 * reuse.bubbles as f64 / reuse.islands.max(1) as f64),
            format!("{:.2}", m.padding_percent()),
        ]);
    }
    let line = |value: &dyn Fn(&Measured) -> f64| {
        CAPS.iter().zip(capped).map(|(cap, m)| (cap * 100.0, value(m))).collect::<Vec<_>>()
    };
    let chart = Chart {
        title: "What bubble caps bring and cost".into(),
        x: "bubble cap, %".into(),
        y: "%".into(),
        kind: ChartKind::Lines {
            series: vec![
                ("less written".into(), line(&less)),
                ("space of bubbles".into(), line(&Measured::padding_percent)),
            ],
        },
    };
    let (first, last) = (less(&capped[0]), less(&capped[CAPS.len() - 1]));
    let most = capped.iter().map(Measured::padding_percent).fold(0.0, f64::max);
    Ok(Outcome {
        tables: vec![table],
        charts: vec![chart],
        checks: vec![
            Check::new(
                "A larger bubble cap saves more",
                "more throughput up to 96 %",
                format!("{first:.1} % less written at 3 %, {last:.1} % at 96 %"),
                last > first,
                ("shape: more at 96 % than at 3 %", "shape: more at 96 % than at 3 %"),
            ),
            Check::new(
                "At any cap bubbles take less than 5 %",
                "less than 5 %",
                format!("{most:.2} % at most"),
                most <= 5.0,
                ("shape: at most 5 %", "shape: at most 5 %"),
            ),
        ],
        notes: notes(),
    })
}
