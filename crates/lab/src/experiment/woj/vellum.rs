//! Vellum's journal mode compared with the paper's rule: how much each removes, and what each corrupts.

use super::{Bench, DMDEDUP, NONE, Operations, PAPER, VELLUM, WOJ, fast, file_system, ratio, span};
use crate::experiment::{Check, Experiment, Outcome, Scale, Setting, Table};
use crate::replay::ModeResult;
use crate::report::{Chart, ChartKind};
use vellum_base::{Lba, Result, SECTOR_BYTES};
use vellum_trace::generate::ext::{Config, DataMode, Ext, FileOperation as Op};
use vellum_trace::generate::files::{self, FileSize};
use vellum_trace::generate::leveldb::{self, KeyOrder};
use vellum_trace::source::from_iter;
use vellum_trace::{Content, Request, RequestSource};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "woj-vs-vellum",
    paper: PAPER,
    figure: "Section 2.2, beside Vellum",
    claim: "There always exists a match for a home write, a fingerprint of 64 bytes finds it, and correctness is not \
            compromised",
    small: "16 MiB a workload, bulk 512 MiB; 32 MiB journal, 1 GiB ext3 on the fast SSD",
    full: "1 GiB a workload, bulk 8 GiB; 256 MiB journal, 32 GiB ext3 on the fast SSD",
    run,
};

const CONFIGURATIONS: [(&str, &str); 4] = [NONE, DMDEDUP, WOJ, VELLUM];
/// Indices of the cells that are examined most.
const PAPERS: usize = 2;
const OURS: usize = 3;

struct Workload {
    name: &'static str,
    operations: fn(u64, u64) -> Operations,
    lazy: bool,
    /// Several tasks run concurrently, as in filebench and LevelDB.
    several_tasks: bool,
    /// Limit on programs relative to `data=ordered`.
    ordered_max: Option<f64>,
}

const WORKLOADS: [Workload; 8] = [
    Workload {
        name: "sequential, fsync every 1000",
        operations: |blocks, seed| Box::new(files::write_sequential(blocks, 1000, false, seed)),
        lazy: false,
        several_tasks: false,
        ordered_max: Some(1.02),
    },
    Workload {
        // Long enough that what is left in the log at the end matters little.
        name: "bulk, no fsync",
        operations: |blocks, seed| {
            Box::new(files::write_sequential((blocks * 32).min(2 << 20), 0, false, seed))
        },
        lazy: false,
        several_tasks: false,
        ordered_max: None,
    },
    Workload {
        name: "copy of small files",
        operations: |blocks, seed| Box::new(files::copy(blocks / 32, FileSize::Small, seed)),
        lazy: false,
        several_tasks: false,
        ordered_max: Some(1.02),
    },
    Workload {
        name: "random, fdatasync every 4",
        operations: |blocks, seed| {
            let data_only = |op| if let Op::Fsync(file) = op { Op::Fdatasync(file) } else { op };
            Box::new(files::write_random(blocks / 4, blocks / 4, 4, true, seed).map(data_only))
        },
        lazy: false,
        several_tasks: false,
        ordered_max: Some(1.15),
    },
    Workload {
        name: "varmail",
        operations: |blocks, seed| Box::new(files::varmail(100, blocks / 16, seed)),
        lazy: false,
        several_tasks: true,
        ordered_max: None,
    },
    Workload {
        name: "fileserver",
        operations: |blocks, seed| Box::new(files::fileserver(40, blocks / 64, seed)),
        lazy: false,
        several_tasks: true,
        ordered_max: None,
    },
    Workload {
        name: "LevelDB fillrandom",
        operations: |blocks, seed| Box::new(leveldb::puts(blocks * 4, 1000, KeyOrder::Random, seed)),
        lazy: false,
        several_tasks: true,
        ordered_max: None,
    },
    Workload {
        name: "varmail during lazy inode-table init",
        operations: |blocks, seed| Box::new(files::varmail(100, blocks / 16, seed)),
        lazy: true,
        several_tasks: true,
        ordered_max: None,
    },
];

struct Point {
    workload: &'static Workload,
    journaled: Vec<ModeResult>,
    ordered: ModeResult,
}

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let blocks = match setting.scale {
        Scale::Small => 4096,
        Scale::Paper => 1 << 18,
    };
    let points: Vec<Point> = WORKLOADS.iter().map(|w| measure(setting, w, blocks)).collect::<Result<_>>()?;
    Ok(Outcome {
        tables: vec![table(&points), ordered_table(&points)],
        charts: vec![removed_chart(&points), wrong_chart(&points), throughput_chart(&points)],
        checks: vec![
            removes_all(&points),
            collisions(&points),
            removes_more(&points),
            corrupts(&points),
            never_corrupts(&points),
            as_fast_as_none(&points),
            faster_than_strong(&points),
            like_ordered(&points),
        ],
        notes: vec![
            "Lazy inode-table initialisation, as the kernel does after a quick mkfs: zeros go straight home while the \
             journal is in use. They never passed the journal, which the paper's rule takes for granted."
                .into(),
            "data=ordered runs with Vellum's journal mode, too, so that only the way through the journal differs.".into(),
        ],
    })
}

fn measure(setting: &Setting<'_>, workload: &'static Workload, blocks: u64) -> Result<Point> {
    let journal = Config { several_tasks: workload.several_tasks, ..file_system(setting) };
    let ordered = Config { mode: DataMode::Ordered, ..journal };
    let open = |config: Config| -> Result<Box<dyn RequestSource>> {
        let requests = Ext::new(config, (workload.operations)(blocks, setting.seed))?;
        Ok(if workload.lazy { Box::new(lazily_initialised(requests, config)) } else { Box::new(requests) })
    };
    let preset = fast()?;
    let bench = |file_system, configurations| Bench { setting, preset, file_system, configurations };
    let journaled = bench(journal, &CONFIGURATIONS).replay(&|| open(journal))?;
    let mut beside = bench(ordered, &CONFIGURATIONS[OURS..]).replay(&|| open(ordered))?;
    Ok(Point { workload, journaled, ordered: beside.remove(0) })
}

/// After every commit, zeroes a few sectors of inode tables at the end of the device, each once.
fn lazily_initialised(requests: impl RequestSource, config: Config) -> impl RequestSource {
    const SECTORS: u64 = 8;
    let mut at = config.device_bytes.0 / SECTOR_BYTES as u64 * 7 / 8;
    let end = config.device_bytes.0 / SECTOR_BYTES as u64;
    let with_zeros = requests.map_while(Result::ok).flat_map(move |request| {
        let commit = request.fua && at + SECTORS <= end;
        let zeroing = commit.then(|| {
            at += SECTORS;
            let zeros = vec![Content::Zero; SECTORS as usize];
            Request::write(request.time, Lba(at - SECTORS), zeros, false)
        });
        std::iter::once(request).chain(zeroing)
    });
    from_iter(with_zeros)
}

fn removed(cell: &ModeResult) -> f64 {
    cell.home.removed_percent().unwrap_or(0.0)
}

fn rate(cell: &ModeResult) -> f64 {
    ratio(cell.host_sectors_written as f64 * SECTOR_BYTES as f64 * 1e3, cell.duration_ns as f64)
}

fn to_ordered(point: &Point) -> f64 {
    ratio(point.journaled[OURS].ledger.programmed_bytes as f64, point.ordered.ledger.programmed_bytes as f64)
}

fn table(points: &[Point]) -> Table {
    let columns = [
        "workload",
        "home writes",
        "removed by WOJ_xxh64, %",
        "by Vellum, %",
        "wrong sectors, WOJ_xxh64",
        "Vellum",
        "No_Dedup_DJ, MB/s",
        "Dmdedup_sha1, MB/s",
        "WOJ_xxh64, MB/s",
        "Vellum, MB/s",
    ];
    let mut table = Table::new("data=journal on the fast SSD (MB/s of what the host writes)", columns);
    for p in points {
        let (paper, ours) = (&p.journaled[PAPERS], &p.journaled[OURS]);
        let mut row = vec![
            p.workload.name.to_string(),
            ours.home.written.to_string(),
            format!("{:.2}", removed(paper)),
            format!("{:.2}", removed(ours)),
            paper.wrong_sectors.to_string(),
            ours.wrong_sectors.to_string(),
        ];
        row.extend(p.journaled.iter().map(|cell| format!("{:.1}", rate(cell))));
        table.rows.push(row);
    }
    table
}

fn ordered_table(points: &[Point]) -> Table {
    let columns =
        ["workload", "data=ordered, MiB", "data=journal on Vellum, MiB", "times", "No_Dedup_DJ, MiB"];
    let mut table = Table::new("Programmed to flash", columns);
    let mib = |cell: &ModeResult| format!("{:.1}", cell.ledger.programmed_bytes as f64 / f64::from(1 << 20));
    for p in points {
        table.rows.push(vec![
            p.workload.name.into(),
            mib(&p.ordered),
            mib(&p.journaled[OURS]),
            format!("{:.3}", to_ordered(p)),
            mib(&p.journaled[0]),
        ]);
    }
    table
}

fn chart(title: &str, y: &str, points: &[Point], cells: &[usize], of: fn(&ModeResult) -> f64) -> Chart {
    let series = cells.iter().map(|c| {
        let values = points.iter().map(|p| of(&p.journaled[*c])).collect();
        (CONFIGURATIONS[*c].0.to_string(), values)
    });
    let short = |p: &Point| p.workload.name.split([',', ' ']).next().unwrap_or_default().to_string();
    let groups = points.iter().map(|p| if p.workload.lazy { "lazy init".into() } else { short(p) }).collect();
    let kind = ChartKind::Bars { groups, series: series.collect() };
    Chart { title: title.into(), x: "workload".into(), y: y.into(), kind }
}

fn removed_chart(points: &[Point]) -> Chart {
    chart("Home writes removed", "% of home writes", points, &[PAPERS, OURS], removed)
}

fn wrong_chart(points: &[Point]) -> Chart {
    chart("Sectors that hold wrong bytes", "sectors", points, &[PAPERS, OURS], |c| c.wrong_sectors as f64)
}

fn throughput_chart(points: &[Point]) -> Chart {
    chart("Throughput on the fast SSD", "MB/s written by the host", points, &[0, 1, PAPERS, OURS], rate)
}

fn removes_all(points: &[Point]) -> Check {
    let (low, _, text) = span(points.iter().map(|p| removed(&p.journaled[OURS])));
    Check::new(
        "Home writes of data=journal are removed",
        "a match always exists (section 2.2)",
        format!("Vellum {text} %"),
        low >= 99.5,
        (
            "shape: at least 99.5 % by Vellum in every workload",
            "shape: at least 99.5 % by Vellum in every workload",
        ),
    )
}

fn collisions(points: &[Point]) -> Check {
    let (low, _, text) =
        span(points.iter().filter(|p| !p.workload.lazy).map(|p| removed(&p.journaled[PAPERS])));
    Check::new(
        "Fingerprint collisions have a negligible effect on what WOJ removes",
        "negligible (sections 2.2 and 3.5)",
        format!("WOJ_xxh64 removes {text} % of home writes that passed the journal"),
        low >= 95.0,
        (
            "shape: at least 95 % in every workload",
            "shape: at least 95 % in every workload. Metadata blocks share their first 64 bytes, and a content that is twice \
             in the journal (a copy soon after its source) counts as a collision as well",
        ),
    )
}

fn removes_more(points: &[Point]) -> Check {
    let gains = points.iter().map(|p| removed(&p.journaled[OURS]) - removed(&p.journaled[PAPERS]));
    let (low, _, text) = span(gains);
    Check::new(
        "Vellum removes at least what the paper's rule removes",
        "not in the paper",
        format!("{text} points more"),
        low >= 0.0,
        ("shape: never less", "shape: never less"),
    )
}

fn wrong(points: &[Point], cell: usize, lazy: bool) -> u64 {
    points.iter().filter(|p| p.workload.lazy == lazy).map(|p| p.journaled[cell].wrong_sectors).sum()
}

fn corrupts(points: &[Point]) -> Check {
    let [plain, lazy] = [false, true].map(|lazy| wrong(points, PAPERS, lazy));
    Check::new(
        "WOJ's correctness is not compromised by weak fingerprints",
        "not compromised (section 2.2)",
        format!("{plain} wrong sectors, and {lazy} during lazy inode-table initialisation"),
        plain + lazy == 0,
        (
            "shape: no wrong sector",
            "shape: no wrong sector. A write that never passed the journal and begins like one that did is mapped to it",
        ),
    )
}

fn never_corrupts(points: &[Point]) -> Check {
    let ours = wrong(points, OURS, false) + wrong(points, OURS, true);
    Check::new(
        "Vellum's journal mode corrupts nothing in the same workloads",
        "not in the paper",
        format!("{ours} wrong sectors"),
        ours == 0,
        ("shape: no wrong sector: bytes are compared", "shape: no wrong sector"),
    )
}

fn as_fast_as_none(points: &[Point]) -> Check {
    let (low, _, text) = span(points.iter().map(|p| ratio(rate(&p.journaled[OURS]), rate(&p.journaled[0]))));
    Check::new(
        "Dedup costs next to no throughput",
        "highest of all (Figure 2)",
        format!("Vellum has {text} times No_Dedup_DJ's throughput"),
        low >= 0.95,
        ("shape: at least 0.95 times in every workload", "shape: at least 0.95 times in every workload"),
    )
}

fn faster_than_strong(points: &[Point]) -> Check {
    let (_, high, text) = span(points.iter().map(|p| ratio(rate(&p.journaled[OURS]), rate(&p.journaled[1]))));
    Check::new(
        "Throughput up to 2.7 times that of full dedup with SHA-1",
        "up to 2.7 times (section 5)",
        format!("Vellum {text} times"),
        high >= 2.7,
        (
            "shape: 2.7 times in one workload. SHA-1 bounds full dedup at 493 MB/s of host writes; home writes, which \
             program nothing, cross the link while the flash programs journal copies at 900 MB/s: 3.65 times at the most",
            "shape: 2.7 times in one workload; 3.65 times is the most that flash and hash allow",
        ),
    )
}

fn like_ordered(points: &[Point]) -> Check {
    let bounded: Vec<_> = points.iter().filter_map(|p| Some((p, p.workload.ordered_max?))).collect();
    let texts =
        bounded.iter().map(|(p, max)| format!("{}: {:.4} (at most {max})", p.workload.name, to_ordered(p)));
    Check::new(
        "data=journal programs as little as data=ordered does",
        "not in the paper",
        texts.collect::<Vec<_>>().join("; "),
        bounded.iter().all(|(p, max)| to_ordered(p) <= *max),
        (
            "shape: within the bounds",
            "shape: within the bounds. Descriptors, commits and the log of remaps are what data=journal has more of",
        ),
    )
}
