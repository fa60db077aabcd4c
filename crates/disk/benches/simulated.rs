//! Simulated 4 KiB random writes at 85 % full, in steady state: how many a second on one core.
//!
//! The whole stack runs: disk, timing model, virtual time. `cargo bench -p vellum-disk --bench simulated`
//! takes the device size in GiB, the seconds to measure and the rounds from VELLUM_BENCH (default `32 3 5`), and runs only what has the argument in its name (`-- '16 dies, greedy'`).
//!
//! The first shape is 16 dies of 4 KiB pages: a host's write is a program, and the few erase blocks that each die
//! keeps open or free are little of it. The second is that of a real drive; its 64 dies keep so many blocks back
//! that collection has less to spare than the device's size says, and has to copy more.

#![expect(clippy::disallowed_methods, reason = "measures the time that passes outside of the simulation")]

use std::sync::Arc;
use std::time::Instant;
use vellum_base::{BlockDevice, Env, Flash, Geometry, Lba, LedgerSnapshot, Nanos};
use vellum_codes::pattern::Pattern;
use vellum_disk::{DedupMode, Disk, Format, GcPolicy, Options};
use vellum_media::nand::{Nand, NandParams};
use vellum_media::presets::Preset;
use vellum_media::timing::Timed;
use vellum_sim::{Sim, SimEnv};

const FULL: f64 = 0.85;
const QUEUE_DEPTH: u64 = 32;

const SIXTEEN_DIES: Geometry = Geometry {
    channels: 8,
    dies_per_channel: 2,
    blocks_per_die: 1024,
    pages_per_block: 512,
    page_bytes: 4096,
    oob_bytes: 32,
};

fn main() {
    let text = std::env::var("VELLUM_BENCH").unwrap_or_default();
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let number = |i: usize, default| numbers.get(i).copied().unwrap_or(default);
    let (gib, seconds, rounds) = (number(0, 32), number(1, 3), number(2, 5));
    let drive = Preset::by_name("mlc-1").expect("a preset");
    let plain = Preset { name: "16 dies", geometry: SIXTEEN_DIES, ..drive };
    let runs = [
        (plain, "greedy", GcPolicy::Greedy),
        (plain, "cost-benefit", GcPolicy::CostBenefit),
        (drive, "greedy", GcPolicy::Greedy),
    ];
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    for (preset, policy, gc) in runs {
        let preset = preset.with_capacity(gib << 30).expect("a capacity");
        let name = format!("{}, {policy}", preset.name);
        if !name.contains(&wanted) {
            continue;
        }
        let sim = Sim::new(1);
        let env = sim.env();
        sim.run(|| run(&env, &preset, &name, gc, seconds, rounds));
    }
}

fn run(env: &Arc<SimEnv>, preset: &Preset, name: &str, gc: GcPolicy, seconds: u64, rounds: u64) {
    let geometry = preset.geometry;
    let nand = Arc::new(Nand::ram(geometry, NandParams::default()).expect("a geometry"));
    let flash = Arc::new(Timed::new(nand, preset.timing, env.clone()));
    let sectors = (geometry.slots() as f64 * FULL) as u64;
    let format = Format { dedup: DedupMode::None, ..Format::new(sectors) };
    Disk::format(flash.clone(), env.clone(), &format).expect("it fits");
    let options = Options { gc, ..Options::default() };
    let disk = Arc::new(Disk::open(flash.clone(), env.clone(), options).expect("it opens"));
    let begun = Instant::now();
    fill(&disk, sectors);
    // Steady state: as much again as the device holds, at random.
    write_for(env, &disk, sectors, sectors, u64::MAX);
    println!(
        "{name}: {} GiB raw, {sectors} sectors, ready after {:.1} s; engine {:.1} B/sector, queue depth \
         {QUEUE_DEPTH}; greedy collection would write {:.2} times in theory",
        geometry.capacity_bytes() >> 30,
        begun.elapsed().as_secs_f64(),
        disk.stat().memory.map_bytes_per_sector,
        waf_in_theory(FULL)
    );
    let mut rates: Vec<f64> = (0..rounds).map(|_| round(env, &disk, sectors, seconds)).collect();
    rates.sort_by(f64::total_cmp);
    println!(
        "{name}: median {:.2} M writes a second of core time, lowest {:.2}, highest {:.2}",
        rates[rates.len() / 2],
        rates[0],
        rates[rates.len() - 1]
    );
    let programmed = flash.counters().pages_programmed * u64::from(geometry.page_bytes);
    assert_eq!(disk.ledger().programmed_total(), programmed, "the ledger equals the device");
}

/// Write amplification of random writes to a device this full whose blocks are large and emptied in the order in
/// which they were written, which for such writes is nearly the greedy order: `1 / (1 - v)` where
/// `full = (v - 1) / ln v` (Desnoyers, "Analytic Modeling of SSD Write Performance", SYSTOR 2012).
fn waf_in_theory(full: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..50 {
        let v: f64 = (low + high) / 2.0;
        if (v - 1.0) / v.ln() < full { low = v } else { high = v }
    }
    1.0 / (1.0 - low)
}

/// Time this thread has computed: on an idle machine the same as passes.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn round(env: &Arc<SimEnv>, disk: &Arc<Disk>, sectors: u64, seconds: u64) -> f64 {
    let (before, virtual_before) = (disk.ledger(), env.now());
    let cpu_begun = cpu_seconds();
    let writes = write_for(env, disk, sectors, u64::MAX, seconds);
    let rate = writes as f64 / (cpu_seconds() - cpu_begun) / 1e6;
    let ledger: LedgerSnapshot = disk.ledger().since(&before);
    let modelled = Nanos(env.now().0 - virtual_before.0).as_secs_f64();
    println!(
        "  {rate:.2} M/s; waf {:.2}; modelled device {:.0} K IOPS",
        ledger.waf(),
        writes as f64 / modelled / 1e3
    );
    rate
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
                let mut count = 0;
                while count < each && (count % 1024 != 0 || begun.elapsed().as_secs() < seconds) {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    Pattern::unique(state).fill(&mut data);
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
