//! Simulated 4 KiB random writes at 85 % full, in steady state: how many per second on one core.
//!
//! The whole stack runs: disk, timing model, virtual time. `cargo bench -p vellum-disk --bench simulated -- '16 dies'`
//! runs only shapes with the argument in their name. Environment:
//!
//! * `VELLUM_BENCH`: GiB of the 16 dies, seconds per round, rounds (default `4 1 5`: the first figure within seconds;
//!   `32 1 6` for tables that exceed all caches).
//! * `VELLUM_BENCH_JSON`: a file of rows for `RESULTS.md` (docs/json/lab.md), from the crate's directory
//!   `../../docs/results/simulated.json`; rows of the same claim are replaced.
//!
//! The first shape is 16 dies of 4 KiB pages: a host's write is a program, and the few erase blocks that each die keeps
//! open or free are a small part of it. There are always 1024 blocks per die, so that write amplification does not
//! depend on the size. The other is a drive of 32 GiB as it is; its 64 dies of 256 blocks keep so many back that
//! collection has less spare space than the device's size suggests, and has to copy more.

#![expect(clippy::disallowed_methods, reason = "measures the time that passes outside of the simulation")]

use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use vellum_base::{BlockDevice, Env, Flash, Geometry, Lba, Nanos};
use vellum_codes::pattern::Pattern;
use vellum_disk::{DedupMode, Disk, Format, GcPolicy, Options};
use vellum_media::nand::{Nand, NandParams};
use vellum_media::presets::Preset;
use vellum_media::timing::Timed;
use vellum_sim::{Sim, SimEnv};

const GIB_DEFAULT: u32 = 4;
const FULL: f64 = 0.85;
const QUEUE_DEPTH: u64 = 32;
/// Blocks of a die that hold no data in steady state: open for the host and for collection, and free.
const BLOCKS_KEPT_BACK: u32 = 5;
/// Target for the 16 dies.
const TARGET_M_PER_S: f64 = 1.0;
const TARGET_BYTES_PER_SECTOR: f64 = 16.0;
const TARGET_FIRST_S: f64 = 5.0;

/// What to measure.
struct Shape {
    name: String,
    preset: Preset,
    gc: GcPolicy,
    seconds: u64,
    rounds: u64,
    has_target: bool,
}

/// The results.
struct Measured {
    first_s: f64,
    /// Millions of writes per second, ascending.
    rates: Vec<f64>,
    waf: f64,
    bytes_per_sector: f64,
    device_iops: f64,
}

fn main() {
    let text = std::env::var("VELLUM_BENCH").unwrap_or_default();
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let number = |i: usize, default| numbers.get(i).copied().unwrap_or(default);
    let (gib, seconds, rounds) = (number(0, GIB_DEFAULT.into()), number(1, 1), number(2, 5));
    let drive = Preset::by_name("mlc-1").expect("a preset");
    let runs = [
        (sixteen_dies(gib as u32), "greedy", GcPolicy::Greedy),
        (sixteen_dies(gib as u32), "cost-benefit", GcPolicy::CostBenefit),
        (drive, "greedy", GcPolicy::Greedy),
        (drive, "cost-benefit", GcPolicy::CostBenefit),
    ];
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let mut rows = Vec::new();
    for (preset, policy, gc) in runs {
        let gib = preset.geometry.capacity_bytes() >> 30;
        let name = format!("{}, {policy}, {gib} GiB", preset.name);
        if name.contains(&wanted) {
            let has_target = preset.name != drive.name && gc == GcPolicy::Greedy;
            let shape = Shape { name, preset, gc, seconds, rounds, has_target };
            let sim = Sim::new(1);
            let env = sim.env();
            let measured = sim.run(|| run(&env, &shape));
            rows.extend(rows_of(&shape, &measured, &format!("{gib} {seconds} {rounds}")));
        }
    }
    if let Ok(path) = std::env::var("VELLUM_BENCH_JSON") {
        write_rows(&path, rows);
    }
}

/// 16 dies of 1024 blocks; the size of a block follows from that of the device.
fn sixteen_dies(gib: u32) -> Preset {
    let geometry = Geometry {
        channels: 8,
        dies_per_channel: 2,
        blocks_per_die: 1024,
        pages_per_block: 16 * gib,
        page_bytes: 4096,
        oob_bytes: 32,
    };
    Preset { name: "16 dies", geometry, ..Preset::by_name("mlc-1").expect("a preset") }
}

fn run(env: &Arc<SimEnv>, shape: &Shape) -> Measured {
    let begun = Instant::now();
    let (geometry, name) = (shape.preset.geometry, &shape.name);
    let nand = Arc::new(Nand::ram(geometry, NandParams::default()).expect("a geometry"));
    let flash = Arc::new(Timed::new(nand, shape.preset.timing, env.clone()));
    let sectors = (geometry.slots() as f64 * FULL) as u64;
    let format = Format { dedup: DedupMode::None, ..Format::new(sectors) };
    Disk::format(flash.clone(), env.clone(), &format).expect("it fits");
    let options = Options { gc: shape.gc, ..Options::default() };
    let disk = Arc::new(Disk::open(flash.clone(), env.clone(), options).expect("it opens"));
    fill(&disk, sectors);
    // Steady state: as many random writes as the device has sectors.
    write_for(env, &disk, sectors, sectors, u64::MAX);
    let (before, virtual_before) = (disk.ledger(), env.now());
    let mut rates = Vec::new();
    let mut first_s = 0.0;
    for i in 0..shape.rounds.max(1) {
        rates.push(round(env, &disk, sectors, shape.seconds));
        if i == 0 {
            first_s = begun.elapsed().as_secs_f64();
            println!("{name}: {:.2} M/s, first figure after {first_s:.1} s", rates[0]);
        }
    }
    rates.sort_by(f64::total_cmp);
    let ledger = disk.ledger().since(&before);
    let modelled = Nanos(env.now().0 - virtual_before.0).as_secs_f64();
    let measured = Measured {
        first_s,
        rates,
        waf: ledger.waf(),
        bytes_per_sector: disk.stat().memory.map_bytes_per_sector,
        device_iops: (ledger.host_written_bytes / 4096) as f64 / modelled,
    };
    println!("{name}: {} of core time; {}", measured.rate(), measured.circumstances(&geometry));
    let programmed = flash.counters().pages_programmed * u64::from(geometry.page_bytes);
    assert_eq!(disk.ledger().programmed_total(), programmed, "the ledger equals the device");
    measured
}

impl Measured {
    fn median(&self) -> f64 {
        self.rates[self.rates.len() / 2]
    }

    fn rate(&self) -> String {
        let (lowest, highest) = (self.rates[0], self.rates[self.rates.len() - 1]);
        format!("{:.2} M/s ({lowest:.2} to {highest:.2})", self.median())
    }

    fn circumstances(&self, geometry: &Geometry) -> String {
        let in_play = 1.0 - f64::from(BLOCKS_KEPT_BACK * geometry.dies()) / f64::from(geometry.blocks());
        format!(
            "each write is {:.2} programs (greedy in theory {:.2}, {:.2} with the blocks that dies keep back); queue \
             depth {QUEUE_DEPTH}; engine {:.1} B/sector; the modelled device does {:.1} K IOPS; {} processes wanted the machine's {} cores",
            self.waf,
            waf_in_theory(FULL),
            waf_in_theory(FULL / in_play),
            self.bytes_per_sector,
            self.device_iops / 1e3,
            load(),
            std::thread::available_parallelism().map_or(1, usize::from)
        )
    }
}

/// The load average of the last minute.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().filter(|load| !load.is_empty()).unwrap_or("unknown").into()
}

/// The rows for `RESULTS.md`.
fn rows_of(shape: &Shape, measured: &Measured, arguments: &str) -> Vec<Value> {
    let Shape { name, preset, has_target, .. } = shape;
    let command =
        format!("VELLUM_BENCH='{arguments}' cargo bench -p vellum-disk --bench simulated -- '{name}'");
    let row = |claim: &str, target: String, ours: String, holds: bool, why: String| {
        json!({
            "claim": format!("simulated 4 KiB random writes, 85 % full, steady state, {name}: {claim}"),
            "target": target, "ours": ours, "command": command, "holds": holds, "why": why,
        })
    };
    let why = measured.circumstances(&preset.geometry);
    if !has_target {
        return vec![row("rate on one core", "shown, no target".into(), measured.rate(), true, why)];
    }
    let Measured { bytes_per_sector, first_s, .. } = *measured;
    let peers = "for scale, other simulators on machines of theirs: MQSim 32 K/s, SimpleSSD 8 K/s, FlashSim 43-74 K/s";
    let mut rows = vec![
        row(
            "rate on one core",
            format!("at least {TARGET_M_PER_S} M/s"),
            measured.rate(),
            measured.median() >= TARGET_M_PER_S,
            format!("{why}; {peers}"),
        ),
        row(
            "memory of the engine",
            format!("at most {TARGET_BYTES_PER_SECTOR} B/sector"),
            format!("{bytes_per_sector:.1} B/sector"),
            bytes_per_sector <= TARGET_BYTES_PER_SECTOR,
            "map, tags and owners of slots".into(),
        ),
    ];
    if preset.geometry == sixteen_dies(GIB_DEFAULT).geometry {
        rows.push(row(
            "first figure",
            format!("within {TARGET_FIRST_S} s"),
            format!("{first_s:.1} s"),
            first_s <= TARGET_FIRST_S,
            "formats, fills in order, writes as much again at random, measures for a second".into(),
        ));
    }
    rows
}

/// Puts the rows into the file, replacing those with the same claim.
fn write_rows(path: &str, rows: Vec<Value>) {
    let old = std::fs::read_to_string(path)
        .map_or(Vec::new(), |text| serde_json::from_str::<Vec<Value>>(&text).expect("the file holds rows"));
    let mut all: Vec<Value> =
        old.into_iter().filter(|o| rows.iter().all(|r| r["claim"] != o["claim"])).collect();
    all.extend(rows);
    let text = serde_json::to_string_pretty(&all).expect("rows are JSON") + "\n";
    std::fs::write(path, text).expect("the file can be written");
}

/// Write amplification of random writes to a device this full with large blocks that are emptied in the order in which
/// they were written, which for such writes is nearly the greedy order: `1 / (1 - v)` where `full = (v - 1) / ln v`
/// (Desnoyers, "Analytic Modeling of SSD Write Performance", SYSTOR 2012).
fn waf_in_theory(full: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..50 {
        let v: f64 = (low + high) / 2.0;
        if (v - 1.0) / v.ln() < full { low = v } else { high = v }
    }
    1.0 / (1.0 - low)
}

/// CPU time of this thread: on an idle machine the same as elapsed time.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Millions of writes per second of core time.
fn round(env: &Arc<SimEnv>, disk: &Arc<Disk>, sectors: u64, seconds: u64) -> f64 {
    let begun = cpu_seconds();
    let writes = write_for(env, disk, sectors, u64::MAX, seconds);
    writes as f64 / (cpu_seconds() - begun) / 1e6
}

fn fill(disk: &Disk, sectors: u64) {
    let mut data = vec![0; 64 * 4096];
    for first in (0..sectors).step_by(64) {
        let count = (sectors - first).min(64);
        for (i, sector) in data.chunks_exact_mut(4096).enumerate() {
            Pattern::unique(first + i as u64).fill(sector);
        }
        disk.write(Lba(first), &data[..count as usize * 4096], false).expect("fill");
    }
}

/// Random writes from `QUEUE_DEPTH` tasks until `most` are done or `seconds` of real time have passed.
fn write_for(env: &Arc<SimEnv>, disk: &Arc<Disk>, sectors: u64, most: u64, seconds: u64) -> u64 {
    let begun = Instant::now();
    let each = most / QUEUE_DEPTH;
    let done = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let workers: Vec<_> = (0..QUEUE_DEPTH)
        .map(|worker| {
            let (disk, done) = (disk.clone(), done.clone());
            let seed = env.random() ^ worker;
            let run = move || {
                let mut state = seed | 1;
                let mut data = [0; 4096];
                let common = Pattern::unique(seed);
                common.fill(&mut data);
                let mut count = 0;
                while count < each && (count % 1024 != 0 || begun.elapsed().as_secs() < seconds) {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    // A distinct content for the cost of one line: generating contents is not to be measured.
                    Pattern::new(common.full, state, u64::MAX).refill_head(&mut data);
                    disk.write(Lba(state % sectors), &data, false).expect("write");
                    count += 1;
                }
                done.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
            };
            env.clone().spawn("writer", Box::new(run))
        })
        .collect();
    workers.into_iter().for_each(vellum_base::Task::join);
    done.load(std::sync::atomic::Ordering::Relaxed)
}
