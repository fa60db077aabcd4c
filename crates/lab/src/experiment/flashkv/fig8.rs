//! Figure 8: the gain of each optimisation.

use super::bench::Measured;
use super::system::System;
use super::{
    PAPER, RUN_FOLLOWS_LOAD, Run, accounts, beside_the_paper, board, least_and_most, letter, load, mean,
    records, run_all, times, workloads,
};
use crate::experiment::{Check, Experiment, Outcome, Setting, Table};
use crate::report::{Chart, ChartKind};
use vellum_base::Result;
use vellum_trace::generate::kv::Workload;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "flashkv-fig8",
    paper: PAPER,
    figure: "Figure 8 (section 4.4)",
    claim: "The compaction-aware cache brings 1.25 to 1.64 x, the priority scheduler up to 20 %, the second compaction task 58 % in A and F, adaptive \
            parallelism 8 to 15 % in B and C; all together 1.8 x",
    small: "80,000 records of 1000 bytes, then as many requests of YCSB A, C and D, on 32 channels",
    full: "200,000 records, then as many requests of YCSB A, B, C, D and F, on 32 channels",
    run,
};

const SYSTEMS: [System; 6] =
    [System::Raw, System::Lru, System::Noop, System::OneThread, System::TwoThreads, System::FlashKv];

struct Point {
    workload: Workload,
    cells: Vec<Measured>,
}

impl Point {
    fn cell(&self, system: System) -> &Measured {
        let at = SYSTEMS.iter().position(|s| *s == system).unwrap_or(0);
        &self.cells[at]
    }

    fn ops(&self, system: System) -> f64 {
        self.cell(system).ops_per_second()
    }

    /// FlashKV's throughput relative to that of a version.
    fn gain(&self, over: System) -> f64 {
        self.ops(System::FlashKv) / self.ops(over)
    }
}

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let mut runs = Vec::new();
    for workload in workloads(setting) {
        let (board, load) = (board(setting, 32, 24.0), load(setting, *workload, records(setting)));
        runs.extend(SYSTEMS.map(|system| Run { system, board, load }));
    }
    let mut measured = run_all("Versions of FlashKV", &runs, setting)?.into_iter();
    let point = |workload: &Workload| {
        let cells = measured.by_ref().take(SYSTEMS.len()).collect();
        Point { workload: *workload, cells }
    };
    let points: Vec<Point> = workloads(setting).iter().map(point).collect();
    let named = |p: &Point| (format!("{}: ", letter(p.workload)), p.cells.clone());
    Ok(Outcome {
        tables: vec![table(&points), accounts(&SYSTEMS, points.iter().map(named))],
        charts: vec![chart(&points), paper(&points)],
        checks: vec![
            cache(&points),
            scheduler(&points),
            threads(&points),
            adaptive(&points),
            all(&points),
            whole(&points),
        ],
        notes: vec![RUN_FOLLOWS_LOAD.into()],
    })
}

fn table(points: &[Point]) -> Table {
    let heads = SYSTEMS.iter().map(|system| system.name().to_string());
    let mut table = Table::new(
        "Requests a second, FlashKV being 1",
        std::iter::once("workload".to_string()).chain(heads).chain(["FlashKV, 1000 requests/s".to_string()]),
    );
    for point in points {
        let mut row = vec![letter(point.workload)];
        row.extend(SYSTEMS.iter().map(|system| format!("{:.2}", 1.0 / point.gain(*system))));
        row.push(format!("{:.1}", point.ops(System::FlashKv) / 1e3));
        table.rows.push(row);
    }
    table
}

fn chart(points: &[Point]) -> Chart {
    let series = SYSTEMS.iter().map(|system| {
        (system.name().to_string(), points.iter().map(|point| 1.0 / point.gain(*system)).collect())
    });
    Chart {
        title: "Versions of FlashKV (Figure 8)".into(),
        x: "YCSB workload".into(),
        y: "requests a second, FlashKV being 1".into(),
        kind: ChartKind::Bars {
            groups: points.iter().map(|point| letter(point.workload)).collect(),
            series: series.collect(),
        },
    }
}

fn paper(points: &[Point]) -> Chart {
    let gain = |over: System, at: &[Workload]| least_and_most(of(points, at).map(|p| p.gain(over)));
    let all: Vec<Workload> = points.iter().map(|p| p.workload).collect();
    let threads = of(points, &WRITES).map(|p| p.ops(System::TwoThreads) / p.ops(System::OneThread));
    let rows = [
        ("cache", gain(System::Lru, &all), (1.25, 1.64)),
        ("scheduler", gain(System::Noop, &all), (1.06, 1.2)),
        ("two tasks, A and F", least_and_most(threads), (1.58, 1.58)),
        ("half the channels, B and C", gain(System::TwoThreads, &READS), (1.08, 1.15)),
        ("all", gain(System::Raw, &all), (1.8, 1.8)),
    ];
    beside_the_paper("What each part brings, beside the paper", "times the requests a second", &rows)
}

fn of<'a>(points: &'a [Point], workloads: &'a [Workload]) -> impl Iterator<Item = &'a Point> {
    points.iter().filter(|point| workloads.contains(&point.workload))
}

const WRITES: [Workload; 2] = [Workload::YcsbA, Workload::YcsbF];
const READS: [Workload; 2] = [Workload::YcsbB, Workload::YcsbC];

fn cache(points: &[Point]) -> Check {
    let found = least_and_most(points.iter().map(|p| p.gain(System::Lru)));
    Check::new(
        "The compaction-aware cache brings 1.25 to 1.64 times the throughput of LRU",
        "1.25 to 1.64 x",
        times(found),
        found.0 > 1.0 && found.1 >= 1.25,
        (
            "shape: something at every workload, 1.25 x at one. Ours also gives the cache what replaces leaves that were in use",
            "shape: something at every workload, 1.25 x at one",
        ),
    )
}

fn scheduler(points: &[Point]) -> Check {
    let found = least_and_most(points.iter().map(|p| p.gain(System::Noop)));
    Check::new(
        "The priority scheduler brings up to 20 %",
        "6 to 20 %",
        times(found),
        found.1 >= 1.2 && found.0 >= 1.0,
        (
            "shape: 20 % at one workload, nothing lost at any",
            "shape: 20 % at one workload, nothing lost at any",
        ),
    )
}

fn threads(points: &[Point]) -> Check {
    let ratio = |p: &Point| p.ops(System::TwoThreads) / p.ops(System::OneThread);
    let gain = mean(of(points, &WRITES).map(ratio));
    let seconds = |p: &Point, system| p.cell(system).load.as_secs_f64();
    let load = mean(points.iter().map(|p| seconds(p, System::OneThread) / seconds(p, System::TwoThreads)));
    Check::new(
        "Two compaction tasks bring 58 % in A and F",
        "58 %",
        format!("{:.0} %; {:.0} % in the load phase", (gain - 1.0) * 100.0, (load - 1.0) * 100.0),
        gain >= 1.58,
        (
            "shape: at least 58 %",
            "shape: at least 58 %. LevelDB's rules name one level at a time: while level 0 is merged, or while one table of a level overlaps with all of the next, \
             the second task has nothing to do but flush",
        ),
    )
}

fn adaptive(points: &[Point]) -> Check {
    let ratio = |p: &Point| p.gain(System::TwoThreads);
    let gain = mean(of(points, &READS).map(ratio));
    Check::new(
        "Adaptive parallelism brings 8 to 15 % in B and C",
        "8 to 15 %",
        format!("{:.0} %", (gain - 1.0) * 100.0),
        gain >= 1.08,
        (
            "shape: at least 8 %",
            "shape: at least 8 %. A read meets a busy channel as often whether programs keep half of the channels busy for twice as long or all of them for half, and \
             the scheduler lets it wait for one program in both. Merging goes on beside it, so a compaction takes longer, and reads look into more tables meanwhile",
        ),
    )
}

fn all(points: &[Point]) -> Check {
    let gain = mean(points.iter().map(|p| p.gain(System::Raw)));
    Check::new(
        "All optimisations together bring 1.8 times the raw throughput",
        "1.8 x",
        format!("{gain:.2} x"),
        gain >= 1.8,
        (
            "shape: at least 1.8 x, geometric mean",
            "shape: at least 1.8 x, geometric mean. The sum of what is above",
        ),
    )
}

/// Time of FlashKV without each of its parts, relative to FlashKV, for load and run together.
fn whole(points: &[Point]) -> Check {
    let beside = |p: &Point, over| p.cell(over).seconds() / p.cell(System::FlashKv).seconds();
    let gain = |over| mean(points.iter().map(|p| beside(p, over)));
    let parts = [
        ("cache", gain(System::Lru)),
        ("scheduler", gain(System::Noop)),
        ("two tasks", gain(System::OneThread)),
        ("half the channels", gain(System::TwoThreads)),
    ];
    let parts: Vec<String> = parts.map(|(part, gain)| format!("{part} {gain:.2}")).into();
    let all = gain(System::Raw);
    Check::new(
        "Load and run together: all optimisations bring 1.8 times the raw throughput",
        "1.8 x",
        format!("{all:.2} x ({})", parts.join(", ")),
        all >= 1.8,
        (
            "shape: at least 1.8 x, geometric mean. The paper does not say whether Figure 8 has the load in it",
            "shape: at least 1.8 x, geometric mean. The paper does not say whether Figure 8 has the load in it",
        ),
    )
}
