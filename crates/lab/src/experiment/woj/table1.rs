//! Table 1: throughput of hash functions, measured on this machine in real time.

use super::{PAPER, ratio};
use crate::experiment::{Check, Experiment, Outcome, Scale, Setting, Table};
use crate::report::{Chart, ChartKind};
use std::hint::black_box;
use std::time::{Duration, Instant};
use vellum_base::{Result, SECTOR_BYTES};
use vellum_codes::{HashKind, fingerprint};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "woj-table1",
    paper: PAPER,
    figure: "Table 1 (section 1.3)",
    claim: "Hash functions that resist collisions are slower than a fast SSD writes (900 MB/s): SHA-1 470 MiB/s at 3 GHz; \
            xxHash and CRC-32C are more than ten times as fast",
    small: "4 KiB sectors from cache, 30 ms a function, one core of this machine",
    full: "4 KiB sectors from cache, 1 s a function, one core of this machine",
    run,
};

/// Number of sectors hashed in turn: half a megabyte, which stays in the processor's cache.
const SECTORS: usize = 128;

/// A function, and the paper's MiB/s at 3.0 and 1.2 GHz.
struct Function {
    name: &'static str,
    paper: Option<(f64, f64)>,
    hash: fn(&[u8]) -> u64,
}

const FUNCTIONS: [Function; 8] = [
    Function { name: "MD5", paper: Some((526.1, 215.3)), hash: |s| HashKind::Md5.digest(s).0 as u64 },
    Function { name: "SHA-1", paper: Some((470.1, 172.5)), hash: |s| HashKind::Sha1.digest(s).0 as u64 },
    Function { name: "SHA-256", paper: Some((204.1, 79.2)), hash: |s| HashKind::Sha256.digest(s).0 as u64 },
    Function { name: "CRC-32C", paper: Some((7631.3, 3050.7)), hash: |s| vellum_codes::crc32c(s).into() },
    Function { name: "xxHash64", paper: Some((5715.4, 2285.2)), hash: |s| xxhash_rust::xxh64::xxh64(s, 0) },
    Function { name: "xxHash64 of 64 bytes", paper: None, hash: |s| HashKind::Head64.digest(s).0 as u64 },
    Function { name: "seeded xxh3 (Vellum)", paper: None, hash: |s| fingerprint::seeded64(7, s) },
    Function { name: "BLAKE3", paper: None, hash: |s| HashKind::Blake3.digest(s).0 as u64 },
];

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let budget = match setting.scale {
        Scale::Small => Duration::from_millis(30),
        Scale::Paper => Duration::from_secs(1),
    };
    setting.progress.begin("hash functions", FUNCTIONS.len() as u64);
    let data: Vec<u8> = (0..SECTORS * SECTOR_BYTES).map(|i| (i * 31 % 251) as u8).collect();
    let rates = FUNCTIONS.map(|function| {
        let rate = mib_per_second(function.hash, &data, budget);
        setting.progress.advance(1);
        rate
    });
    let by = |name: &str| FUNCTIONS.iter().position(|f| f.name == name).map_or(0.0, |i| rates[i]);
    Ok(Outcome {
        tables: vec![table(&rates)],
        charts: vec![chart(&rates)],
        checks: vec![
            weak_is_cheap(by("xxHash64"), by("SHA-1")),
            strong_is_slow(by("SHA-1")),
            ours_is_cheap(by("seeded xxh3 (Vellum)"), by("xxHash64")),
        ],
        notes: vec![
            "Measured in real time: these figures, unlike all others, differ from run to run and machine to machine. The \
             modelled experiments use the paper's rates."
                .into(),
            format!(
                "This processor has {}instructions for SHA. SHA-512 is left out: no mode uses it.",
                if has_sha_instructions() { "" } else { "no " }
            ),
        ],
    })
}

fn has_sha_instructions() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("sha");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Hashes all sectors repeatedly for `budget`; returns the best of three rounds.
#[expect(clippy::disallowed_methods, reason = "measures this machine, not an engine")]
fn mib_per_second(hash: fn(&[u8]) -> u64, data: &[u8], budget: Duration) -> f64 {
    let mut best = 0.0f64;
    for _round in 0..3 {
        let started = Instant::now();
        let mut bytes = 0;
        while started.elapsed() < budget / 3 {
            for sector in data.chunks_exact(SECTOR_BYTES) {
                black_box(hash(black_box(sector)));
            }
            bytes += data.len();
        }
        best = best.max(bytes as f64 / f64::from(1 << 20) / started.elapsed().as_secs_f64());
    }
    best
}

fn table(rates: &[f64]) -> Table {
    let columns =
        ["function over 4 KiB", "this machine, MiB/s", "paper at 3.0 GHz, MiB/s", "paper at 1.2 GHz, MiB/s"];
    let mut table = Table::new("Throughput of hash functions", columns);
    for (function, rate) in FUNCTIONS.iter().zip(rates) {
        let paper = |of: fn((f64, f64)) -> f64| {
            function.paper.map_or("not in the table".to_string(), |p| format!("{:.0}", of(p)))
        };
        table.rows.push(vec![function.name.into(), format!("{rate:.0}"), paper(|p| p.0), paper(|p| p.1)]);
    }
    table
}

fn chart(rates: &[f64]) -> Chart {
    // The last but two would dwarf the others: a hash of 64 bytes is 64 times as fast by definition.
    let shown = || FUNCTIONS.iter().zip(rates).filter(|(f, _)| f.paper.is_some());
    Chart {
        title: "Throughput of hash functions over 4 KiB".into(),
        x: "function".into(),
        y: "MiB/s".into(),
        kind: ChartKind::Bars {
            groups: shown().map(|(f, _)| f.name.to_string()).collect(),
            series: vec![
                ("this machine".into(), shown().map(|(_, rate)| *rate).collect()),
                ("paper, 3.0 GHz".into(), shown().map(|(f, _)| f.paper.map_or(0.0, |p| p.0)).collect()),
                ("paper, 1.2 GHz".into(), shown().map(|(f, _)| f.paper.map_or(0.0, |p| p.1)).collect()),
            ],
        },
    }
}

fn weak_is_cheap(xxhash: f64, sha1: f64) -> Check {
    let times = ratio(xxhash, sha1);
    Check::new(
        "xxHash is more than ten times as fast as SHA-1",
        "12.2 times",
        format!("{times:.1} times"),
        times > 10.0,
        (
            "shape: more than ten times",
            "shape: more than ten times. Processors with instructions for SHA, which the paper's has not, hash faster",
        ),
    )
}

fn strong_is_slow(sha1: f64) -> Check {
    let mb = sha1 * 1.048_576;
    Check::new(
        "SHA-1 is slower than the fast SSD writes sequentially",
        "470 MiB/s against 900 MB/s",
        format!("{mb:.0} MB/s against 900 MB/s"),
        mb < 900.0,
        (
            "shape: less than 900 MB/s on one core",
            "shape: less than 900 MB/s on one core. Processors with instructions for SHA hash faster; SSDs have become \
             faster, too",
        ),
    )
}

fn ours_is_cheap(seeded: f64, xxhash: f64) -> Check {
    let times = ratio(seeded, xxhash);
    Check::new(
        "Vellum's seeded hash of the whole sector costs no more than the paper's xxHash of it",
        "not in the paper",
        format!("{times:.1} times the throughput of xxHash64"),
        times >= 1.0,
        ("shape: at least 1", "shape: at least 1"),
    )
}
