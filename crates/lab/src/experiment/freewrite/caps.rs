//! Bubble caps up to 96 %: Figures 7 and 8 on the log store, and the same on the LSM store.

use super::bench;
use super::{Keys, Kind, Measured, PAPER, Run, VALUE_BYTES, mb, notes, notes_on_collecting, store_bytes};
use crate::experiment::{Check, Experiment, Outcome, Setting, Table, each};
use crate::report::{Chart, ChartKind};
use vellum_base::Result;
use vellum_kv::{Caps, Reuse, ReuseOptions};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "freewrite-caps",
    paper: PAPER,
    figure: "after Figures 7 and 8 (section 4.2), on LevelDB",
    claim: "The larger bubbles may be, the more is saved, up to a cap of 96 %, and still bubbles take less than 5 % of the space",
    small: "64 MiB of 512-byte values, mixed keys, bubble caps of 3 to 96 %, global cap of 5 %; sizes of LevelDB a sixteenth",
    full: "1 GiB of 512-byte values, mixed keys, bubble caps of 3 to 96 %, global cap of 5 %; sizes of LevelDB as in the paper",
    run,
};

pub(crate) const FIG7: Experiment = Experiment {
    name: "freewrite-fig7",
    figure: "Figure 7 (section 4.2)",
    claim: "The larger bubbles may be, the faster collecting a FAWN store is: 1.9 times as fast with a cap of 96 %, and still bubbles take less than 5 % of the space",
    small: "64 MiB of 512-byte values, mixed keys, bubble caps of 3 to 96 %, global cap of 5 %; then all is collected",
    full: "1 GiB of 512-byte values, mixed keys, bubble caps of 3 to 96 %, global cap of 5 %; then all is collected",
    run: run_fig7,
    ..EXPERIMENT
};

pub(crate) const FIG8: Experiment = Experiment {
    name: "freewrite-fig8",
    figure: "Figure 8 (section 4.2)",
    claim: "The larger bubbles may be, the more blocks have one",
    run: run_fig8,
    ..FIG7
};

const CAPS: [f64; 6] = [0.03, 0.0625, 0.125, 0.25, 0.5, 0.96];
/// Size of the blocks by which Figure 8 counts bubbles.
const BLOCK_BYTES: u64 = 4096;

/// A line of a chart: its name, and its value for each cap.
type Series<'a> = (&'a str, &'a dyn Fn(&Measured) -> f64);

/// A store without bubbles, and with each cap.
struct Sweep {
    off: Measured,
    capped: Vec<Measured>,
}

impl Sweep {
    fn of(kind: Kind, setting: &Setting<'_>) -> Result<Sweep> {
        let run = |reuse: Reuse, bubble| Run {
            kind,
            keys: Keys::Mixed,
            value_bytes: VALUE_BYTES,
            bytes: store_bytes(setting),
            reuse: ReuseOptions { caps: Caps { bubble, ..Caps::default() }, ..reuse.into() },
        };
        let runs: Vec<Run> =
            std::iter::once(run(Reuse::Off, 0.0)).chain(CAPS.map(|cap| run(Reuse::Bubbles, cap))).collect();
        let mut measured = each("Bubble caps", &runs, setting, |run| bench::run(run, setting.seed))?;
        let off = measured.remove(0);
        Ok(Sweep { off, capped: measured })
    }

    fn less(&self, m: &Measured) -> f64 {
        100.0 * (1.0 - m.stored_bytes() as f64 / self.off.stored_bytes() as f64)
    }

    fn times_faster(&self, m: &Measured) -> f64 {
        m.puts_per_second() / self.off.puts_per_second()
    }

    fn first_and_last(&self, of: impl Fn(&Measured) -> f64) -> (f64, f64) {
        (of(&self.capped[0]), of(&self.capped[CAPS.len() - 1]))
    }

    fn table(&self, title: &str) -> Table {
        let columns = [
            "bubble cap, %",
            "records/s",
            "times as fast",
            "written, MB",
            "less, %",
            "islands with a bubble, %",
            "blocks with a bubble, %",
            "bubbles, %",
        ];
        let mut table = Table::new(title, columns);
        for (cap, m) in CAPS.iter().zip(&self.capped) {
            let reuse = m.did.reuse();
            table.rows.push(vec![
                format!("{:.1}", cap * 100.0),
                format!("{:.0}", m.puts_per_second()),
                format!("{:.2}", self.times_faster(m)),
                mb(m.stored_bytes()),
                format!("{:.1}", self.less(m)),
                format!("{:.1}", 100.0 * reuse.bubbles as f64 / reuse.islands.max(1) as f64),
                format!("{:.1}", blocks_with_bubble(m)),
                format!("{:.2}", m.padding_percent()),
            ]);
        }
        table
    }

    fn chart(&self, title: &str, series: &[Series<'_>]) -> Chart {
        let line = |value: &dyn Fn(&Measured) -> f64| {
            CAPS.iter().zip(&self.capped).map(|(cap, m)| (cap * 100.0, value(m))).collect::<Vec<_>>()
        };
        Chart {
            title: title.into(),
            x: "bubble cap, %".into(),
            y: "%".into(),
            kind: ChartKind::Lines {
                series: series.iter().map(|(name, value)| (name.to_string(), line(*value))).collect(),
            },
        }
    }

    fn space(&self) -> Check {
        let most = self.capped.iter().map(Measured::padding_percent).fold(0.0, f64::max);
        Check::new(
            "At any cap bubbles take less than 5 %",
            "less than 5 %",
            format!("{most:.2} % at most"),
            most <= 5.0,
            ("shape: at most 5 %", "shape: at most 5 %"),
        )
    }
}

/// Blocks that begin with or contain a bubble, in percent of all blocks emitted.
fn blocks_with_bubble(m: &Measured) -> f64 {
    100.0 * m.did.reuse().bubbles as f64 * BLOCK_BYTES as f64 / m.did.emitted_bytes().max(1) as f64
}

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let sweep = Sweep::of(Kind::Paper, setting)?;
    let less = |m: &Measured| sweep.less(m);
    let series: [Series<'_>; 2] = [("less written", &less), ("space of bubbles", &Measured::padding_percent)];
    let (first, last) = sweep.first_and_last(less);
    Ok(Outcome {
        tables: vec![sweep.table("LevelDB with bubbles")],
        charts: vec![sweep.chart("What bubble caps bring and cost", &series)],
        checks: vec![
            Check::new(
                "A larger bubble cap saves more",
                "more throughput up to 96 %",
                format!("{first:.1} % less written at 3 %, {last:.1} % at 96 %"),
                last > first,
                ("shape: more at 96 % than at 3 %", "shape: more at 96 % than at 3 %"),
            ),
            sweep.space(),
        ],
        notes: notes(),
    })
}

fn run_fig7(setting: &Setting<'_>) -> Result<Outcome> {
    let sweep = Sweep::of(Kind::Collect, setting)?;
    let more = |m: &Measured| 100.0 * (sweep.times_faster(m) - 1.0);
    let series: [Series<'_>; 2] =
        [("more throughput", &more), ("space of bubbles", &Measured::padding_percent)];
    let (first, last) = sweep.first_and_last(|m| sweep.times_faster(m));
    Ok(Outcome {
        tables: vec![sweep.table("Collecting with bubbles")],
        charts: vec![sweep.chart("What bubble caps bring and cost", &series)],
        checks: vec![
            Check::new(
                "A bubble cap of 96 %: throughput",
                "1.9 x",
                format!("{last:.2} x"),
                last >= 1.9,
                ("shape: at least 1.9 x", "shape: at least 1.9 x"),
            ),
            Check::new(
                "A larger bubble cap saves more",
                "more throughput up to 96 %",
                format!("{first:.2} x at 3 %, {last:.2} x at 96 %"),
                last > first,
                ("shape: more at 96 % than at 3 %", "shape: more at 96 % than at 3 %"),
            ),
            sweep.space(),
        ],
        notes: notes_on_collecting(),
    })
}

fn run_fig8(setting: &Setting<'_>) -> Result<Outcome> {
    let sweep = Sweep::of(Kind::Collect, setting)?;
    let (first, last) = sweep.first_and_last(blocks_with_bubble);
    let less = |m: &Measured| sweep.less(m);
    let series: [Series<'_>; 2] = [("blocks with a bubble", &blocks_with_bubble), ("less written", &less)];
    Ok(Outcome {
        tables: vec![sweep.table("Collecting with bubbles")],
        charts: vec![sweep.chart("Blocks with bubbles", &series)],
        checks: vec![Check::new(
            "A larger bubble cap puts bubbles into more blocks",
            "more blocks up to 96 %",
            format!("{first:.1} % of blocks at 3 %, {last:.1} % at 96 %"),
            last > first,
            ("shape: more at 96 % than at 3 %", "shape: more at 96 % than at 3 %"),
        )],
        notes: notes_on_collecting(),
    })
}
