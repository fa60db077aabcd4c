//! 4 KiB random writes and reads of a disk on flash in memory, on the real clock: the CPU cost of the engine itself.
//! All contents are distinct.
//!
//! `cargo bench -p vellum-disk --bench ram` takes the device size in GiB, the seconds to measure and the rounds from
//! VELLUM_BENCH (default `2 1 5`). `journal` is a disk that has a journal and looks for copies of it (the host names
//! the range, as discovery requires a file system); the writes go outside of it. `ecc` and `strong` (SHA-256)
//! fingerprint every write, however long that takes.

use std::sync::Arc;
use vellum_base::{BlockDevice, Geometry, Lba, RealEnv, Result};
use vellum_codes::HashKind;
use vellum_codes::pattern::Pattern;
use vellum_disk::{DedupMode, DedupWhen, Disk, Format, Options};
use vellum_media::nand::{Nand, NandParams};

const FULL: f64 = 0.7;
const JOURNAL_SECTORS: u64 = 16 * 1024;

fn main() {
    let text = std::env::var("VELLUM_BENCH").unwrap_or_default();
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let number = |i: usize, default| numbers.get(i).copied().unwrap_or(default);
    let (gib, seconds, rounds) = (number(0, 2), number(1, 1), number(2, 5));
    let sha256 = DedupMode::Strong(HashKind::Sha256);
    let modes = [DedupMode::None, DedupMode::Journal, DedupMode::Ecc, sha256];
    for (name, dedup) in modes.map(|mode| (mode.name(), mode)) {
        let (disk, sectors) = make(gib, dedup).expect("a disk");
        let mut bytes = [0; 4096];
        let mut random = Xorshift(0x9E37_79B9_7F4A_7C15);
        let at = |random: &mut Xorshift| Lba(JOURNAL_SECTORS + random.next() % (sectors - JOURNAL_SECTORS));
        let writes = median(rounds, || {
            rate(seconds, || {
                fill(random.next(), &mut bytes);
                disk.write(at(&mut random), &bytes, false).expect("write");
            })
        });
        let reads =
            median(rounds, || rate(seconds, || disk.read(at(&mut random), &mut bytes).expect("read")));
        println!("dedup {name}: {writes:.2} M writes, {reads:.2} M reads a second of core time");
    }
}

/// A disk that was written once, with noise in its journal.
fn make(gib: u64, dedup: DedupMode) -> Result<(Disk, u64)> {
    let geometry = Geometry {
        channels: 4,
        dies_per_channel: 1,
        blocks_per_die: (gib << 30 >> 23) as u32,
        pages_per_block: 128,
        page_bytes: 16384,
        oob_bytes: 256,
    };
    let flash = Arc::new(Nand::ram(geometry, NandParams::default())?);
    let sectors = (geometry.slots() as f64 * FULL) as u64;
    Disk::format(flash.clone(), RealEnv::new(), &Format { dedup, ..Format::new(sectors) })?;
    let journals = (dedup == DedupMode::Journal).then(|| vec![Lba(0)..Lba(JOURNAL_SECTORS)]);
    let options = Options { journals, dedup_when: DedupWhen::Inline, ..Options::default() };
    let disk = Disk::open(flash, RealEnv::new(), options)?;
    let mut bytes = [0; 4096];
    for sector in 0..sectors {
        fill(sector, &mut bytes);
        disk.write(Lba(sector), &bytes, false)?;
    }
    Ok((disk, sectors))
}

/// A content of which the flash in memory has to store every byte.
fn fill(id: u64, bytes: &mut [u8; 4096]) {
    Pattern::unique(id).fill(bytes);
    bytes[100] ^= 1;
}

struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Millions of calls per second of this thread's CPU time.
fn rate(seconds: u64, mut call: impl FnMut()) -> f64 {
    let (begun, mut calls) = (cpu_seconds(), 0u64);
    while cpu_seconds() - begun < seconds as f64 {
        (0..1000).for_each(|_| call());
        calls += 1000;
    }
    calls as f64 / (cpu_seconds() - begun) / 1e6
}

fn median(rounds: u64, mut round: impl FnMut() -> f64) -> f64 {
    let mut rates: Vec<f64> = (0..rounds).map(|_| round()).collect();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// CPU time of this thread: on an idle machine the same as elapsed time.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
