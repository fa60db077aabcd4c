//! Simulated 4 KiB random writes at 85 % full, in steady state: how many a second on one core.
//!
//! The whole stack runs: disk, timing model, virtual time. `cargo bench -p vellum-disk --bench simulated`
//! takes the device size in GiB, the seconds to measure and the rounds from VELLUM_BENCH (default `32 3 5`).

use std::sync::Arc;
use std::time::Instant;
use vellum_base::{BlockDevice, Env, Flash, Lba, LedgerSnapshot, Nanos};
use vellum_codes::pattern::Pattern;
use vellum_disk::{DedupMode, Disk, Format, GcPolicy, Options};
use vellum_media::nand::{Nand, NandParams};
use vellum_media::presets::Preset;
use vellum_media::timing::Timed;
use vellum_sim::Sim;

const FULL: f64 = 0.85;
const QUEUE_DEPTH: u64 = 32;

fn main() {
    let text = std::env::var("VELLUM_BENCH").unwrap_or_default();
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let number = |i: usize, default| numbers.get(i).copied().unwrap_or(default);
    let (gib, seconds, rounds) = (number(0, 32), number(1, 3), number(2, 5));
    for (name, gc) in [("greedy", GcPolicy::Greedy), ("cost-benefit", GcPolicy::CostBenefit)] {
        Sim::new(1).run_bench(gib, seconds, rounds, name, gc);
    }
}

trait Bench {
    fn run_bench(self, gib: u64, seconds: u64, rounds: u64, name: &str, gc: GcPolicy);
}

impl Bench for Sim {
    fn run_bench(self, gib: u64, seconds: u64, rounds: u64, name: &str, gc: GcPolicy) {
        let env = self.env();
        self.run(|| {
            let preset = Preset::by_name("mlc-1").and_then(|p| p.with_capacity(gib << 30)).expect("a preset");
            let nand = Arc::new(Nand::ram(preset.geometry, NandParams::default()).expect("a geometry"));
            let flash = Arc::new(Timed::new(nand, preset.timing, env.clone()));
            let sectors = (preset.geometry.slots() as f64 * FULL) as u64;
            let format = Format { dedup: DedupMode::None, ..Format::new(sectors) };
            Disk::format(flash.clone(), env.clone(), &format).expect("it fits");
            let options = Options { gc, ..Options::default() };
            let disk = Arc::new(Disk::open(flash.clone(), env.clone(), options).expect("it opens"));
            let begun = Instant::now();
            fill(&disk, sectors);
            // Steady state: as much again as the device holds, at random.
            write_for(&env, &disk, sectors, sectors, u64::MAX);
            let ready = begun.elapsed();
            let stat = disk.stat();
            println!(
                "{name}: {gib} GiB raw, {sectors} sectors, ready after {:.1} s; engine {:.1} B/sector, queue depth {QUEUE_DEPTH}",
                ready.as_secs_f64(),
                stat.memory.map_bytes_per_sector
            );
            let mut rates: Vec<f64> = (0..rounds).map(|_| round(&env, &disk, sectors, seconds)).collect();
            rates.sort_by(f64::total_cmp);
            println!(
                "{name}: median {:.2} M writes a second of core time, lowest {:.2}, highest {:.2}",
                rates[rates.len() / 2],
                rates[0],
                rates[rates.len() - 1]
            );
            let counters = flash.counters();
            let programmed = counters.pages_programmed * u64::from(preset.geometry.page_bytes);
            assert_eq!(disk.ledger().programmed_total(), programmed, "the ledger equals the device");
        });
    }
}

/// Time this thread has computed: on an idle machine the same as passes.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn round(env: &Arc<vellum_sim::SimEnv>, disk: &Arc<Disk>, sectors: u64, seconds: u64) -> f64 {
    let (before, virtual_before) = (disk.ledger(), env.now());
    let (begun, cpu_begun) = (Instant::now(), cpu_seconds());
    let writes = write_for(env, disk, sectors, u64::MAX, seconds);
    let rate = writes as f64 / (cpu_seconds() - cpu_begun) / 1e6;
    let by_clock = writes as f64 / begun.elapsed().as_secs_f64() / 1e6;
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
fn write_for(env: &Arc<vellum_sim::SimEnv>, disk: &Arc<Disk>, sectors: u64, most: u64, seconds: u64) -> u64 {
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
