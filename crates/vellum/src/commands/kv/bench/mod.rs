//! `kv bench`: engines side by side.
//!
//! On a modelled device (`modelled`) everything runs in this process, in virtual time. On a host, each engine runs in a
//! separate process, which is this command with `--one`, so that bytes written, processor time and memory are its own.
//! Engines take turns in each round.

mod modelled;
mod summary;

pub use modelled::Modelled;
pub use summary::{Bench, Figures};

use super::advice::next_of_sharing;
use super::reusing::Reusing;
use crate::failure::{Failure, Outcome, Verdict, kind_by_name};
use crate::text;
use crate::ui::{Ui, json_line};
use clap::ValueEnum;
use modelled::parse_board;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;
use vellum::base::{Env, Error, Kind as ErrorKind, Nanos, RealEnv, Result};
use vellum::kv::Durability;
use vellum::lab::Progress;
use vellum::lab::kv_bench::device::PAGES_PER_BLOCK;
use vellum::lab::kv_bench::{Compression, EngineKind, Plan, PlanReport, Setup, run, vellum_option_names};
use vellum::serve::Stop;
use vellum::trace::generate::kv::{Kind, Workload};
use vellum::{Share, Size};

/// Run workloads on key-value engines side by side, with the same keys, values, durability and memory
#[derive(clap::Args)]
#[command(after_help = "\
Engines: vellum, vellum-unmapped, vellum-flash, vellum-log, rocksdb-default, rocksdb-tuned,
rocksdb-mapped, leveldb-default, leveldb-tuned; rocksdb and leveldb are default and tuned, all is
vellum and those. vellum maps its files into memory, rocksdb-mapped its tables, as LevelDB does;
vellum-unmapped reads and writes by calls, as RocksDB does unless it is told to map; vellum-flash
has flash of its own, an image file there; vellum-log is the log store, which cannot scan (ycsb-e).
RocksDB and LevelDB are loaded from the system's libraries if they are there. Where --compression is
lz4, LevelDB has Snappy, its own quick codec.

Workloads: fillseq, fillrandom, overwrite, readrandom as in db_bench; ycsb-load, ycsb-a to ycsb-f;
ycsb is all of those. A workload that needs records goes on with the store of the one before, if
that has the same keys, else one is filled.

Latency is that of single requests; bytes are what the process handed to the file system until it
was idle.

With --device nothing here is written: stores run on the modelled board of the FlashKV paper, in
virtual time, the same every time, each loaded first. They are Vellum, Vellum-reuse (--reuse auto),
FlashKV and it without some of its parts (FlashKV-raw, -LRU, -NOOP, -1thread, -2threads), and
LevelDB (LevelDB-original, -ext4, -F2FS, -ParaFS; leveldb is those four). A superblock is a page of
8 KiB times --block-pages times channels, and a table is one: so a small store is like a large one
if --block-pages is small.

Example:
  vellum kv bench --workload fillrandom,overwrite --engine vellum,rocksdb --keys 4000000 --rounds 3
  vellum kv bench --workload ycsb --engine all --threads 2 --seconds 10 --json
  vellum kv bench --device open-channel-34 --engine vellum,flashkv,leveldb-ext4 --workload ycsb-a
                  --keys 100000 --value 1000 --threads 8 --block-pages 16 --cache 20MiB

Exit codes: 0 measured, 2 usage, 3 I/O or no such engine here, 4 an engine gave a wrong answer")]
pub struct Args {
    /// Workloads, in this order [default: fillrandom,overwrite,readrandom; with --device ycsb-a]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    workload: Option<Vec<String>>,
    /// Engines, which take turns
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "vellum")]
    engine: Vec<String>,
    /// Records
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Requests of a workload that does not fill a store [default: as many as keys]
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Longest time for such a workload
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Bytes of a value
    #[arg(long, value_name = "SIZE", default_value = "128")]
    value: Size,
    /// What is left of a value that is compressed
    #[arg(long, value_name = "SHARE", default_value = "50%")]
    compressible: Share,
    /// Clients at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// What an acknowledged write survives
    #[arg(long, value_name = "WHAT", default_value = "buffered")]
    durability: DurabilityArg,
    /// How values are compressed: none, lz4 or zstd
    #[arg(long, value_name = "HOW", default_value = "none", value_parser = parse_compression)]
    compression: Compression,
    /// Memory of a memtable; vellum-flash has 25MiB at most, as its logs are in an NVRAM
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    memtable: Size,
    /// Memtables at a time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..))]
    memtables: u8,
    /// Memory of the cache
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    cache: Size,
    /// Filter bits a key (of the tuned peers, too)
    #[arg(long, value_name = "N", default_value_t = 12)]
    filter_bits: u32,
    #[arg(long, value_name = "NAME=N", value_delimiter = ',', value_parser = parse_option, help = more_options())]
    vellum_options: Vec<(String, u64)>,
    #[command(flatten)]
    reusing: Reusing,
    /// More options for rocksdb-tuned, as RocksDB writes them: NAME=VALUE;...
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    rocksdb_options: String,
    /// Times that each engine runs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Flash of vellum-flash [default: 4GiB], or of a --device [default: so much that nothing is collected]
    #[arg(long, value_name = "SIZE")]
    flash: Option<Size>,
    /// Model a device, in virtual time: open-channel-34 is the board of the FlashKV paper, other numbers are of other
    /// channels
    #[arg(long, value_name = "BOARD", value_parser = parse_board, conflicts_with_all = ON_A_HOST)]
    device: Option<u32>,
    /// Pages of an erase block of the device
    #[arg(long, value_name = "N", default_value_t = PAGES_PER_BLOCK, requires = "device",
        value_parser = clap::value_parser!(u32).range(4..=4096))]
    block_pages: u32,
    /// Wait on the device until the store has nothing left to do between its load and the requests
    #[arg(long, requires = "device")]
    settle: bool,
    /// Where stores are made, and removed afterwards
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Decides everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Run this engine in this process, and print what it took
    #[arg(long, value_name = "NAME", hide = true)]
    one: Option<String>,
    /// The store of that engine
    #[arg(long, value_name = "DIR", hide = true, requires = "one")]
    store: Option<PathBuf>,
}

/// Options that have no meaning on a modelled device, where stores are configured as in the paper.
const ON_A_HOST: [&str; 16] = [
    "seconds",
    "compressible",
    "durability",
    "compression",
    "memtable",
    "memtables",
    "filter_bits",
    "vellum_options",
    "reuse",
    "bubble_cap",
    "global_cap",
    "unit",
    "island_min",
    "rocksdb_options",
    "rounds",
    "dir",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DurabilityArg {
    /// Nothing: it may wait in the process
    None,
    /// The end of the process
    Buffered,
    /// The loss of power
    Sync,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        if let Some(one) = &self.one {
            return self.run_one(one, ui);
        }
        if let Some(channels) = self.device {
            return self.run_modelled(channels, ui);
        }
        let plan = self.plan()?;
        let mut bench = self.bench(&plan);
        let engines = self.engines(&mut bench)?;
        check_scans(&engines, &plan.workloads)?;
        let stop = Stop::on_signals()?;
        let scratch = Scratch::new(&self.dir)?;
        bench.load_before = load_average();
        let bars = ui.bars();
        bars.begin("bench", u64::from(self.rounds) * engines.len() as u64);
        for round in 0..usize::from(self.rounds) {
            // The page cache depends on which engine ran before, so each round begins with a different one.
            for turn in 0..engines.len() {
                let engine = engines[(round + turn) % engines.len()];
                bench.add(engine, child(engine, &scratch.path, &stop)?);
                bars.advance(1);
            }
        }
        drop(bars);
        bench.load_after = load_average();
        bench.finish();
        ui.result(&bench, || text::kv_bench::render(&bench));
        Ok(Verdict::Fine)
    }

    /// The part that runs in a separate process.
    fn run_one(&self, name: &str, ui: &Ui) -> Outcome {
        let [kind] = EngineKind::named(name)[..] else { return Err(no_engine(name)) };
        let setup = Setup {
            dir: self.store.clone().unwrap_or_else(|| self.dir.join("store")),
            flash_bytes: self.flash.map_or(FLASH_BYTES, |size| size.0),
            memtable_bytes: bytes(self.memtable),
            memtables: self.memtables.into(),
            cache_bytes: bytes(self.cache),
            durability: match self.durability {
                DurabilityArg::None => Durability::None,
                DurabilityArg::Buffered => Durability::Buffered,
                DurabilityArg::Sync => Durability::Sync,
            },
            compression: self.compression,
            filter_bits: self.filter_bits,
            reuse: self.reusing.options(),
            vellum_options: self.vellum_options.clone(),
            rocksdb_options: self.rocksdb_options.clone(),
        };
        let env: Arc<dyn Env> = RealEnv::new();
        let quiet: Arc<dyn Progress + Send + Sync> = Arc::new(());
        let reports =
            run(&env, kind, &setup, &self.plan()?, &quiet).map_err(|e| match next_of_sharing(&e) {
                Some(next) => Failure::with_next(e.context(kind.name()), next),
                None => e.context(kind.name()).into(),
            })?;
        ui.print(json_line(&reports));
        Ok(Verdict::Fine)
    }

    fn plan(&self) -> Result<Plan, Failure> {
        let time_max = self.seconds.filter(|seconds| *seconds > 0.0);
        Ok(Plan {
            workloads: match &self.workload {
                Some(names) => workloads(names)?,
                None => vec![Workload::FillRandom, Workload::Overwrite, Workload::ReadRandom],
            },
            keys: self.keys,
            requests: self.requests,
            threads: self.threads.into(),
            value_bytes: bytes(self.value),
            compressible: self.compressible.0,
            time_max: time_max.map(|seconds| Nanos((seconds * 1e9) as u64)),
            seed: self.seed,
        })
    }

    /// The requested engines that are available. Missing ones are reported; it is an error if all are missing.
    fn engines(&self, bench: &mut Bench) -> Result<Vec<EngineKind>, Failure> {
        let mut engines = Vec::new();
        for name in &self.engine {
            let named = EngineKind::named(name);
            if named.is_empty() {
                return Err(no_engine(name));
            }
            engines.extend(named.into_iter().filter(|kind| !engines.contains(kind)).collect::<Vec<_>>());
        }
        engines.retain(|kind| bench.announce(*kind, bytes(self.memtable)));
        match engines.is_empty() {
            true => Err(Failure::with_next(
                Error::new(ErrorKind::Unsupported, "none of these engines is here"),
                "install a library (Debian: librocksdb7.8, libleveldb1d), or run with --engine vellum",
            )),
            false => Ok(engines),
        }
    }

    fn bench(&self, plan: &Plan) -> Bench {
        Bench {
            keys: plan.keys,
            value_bytes: plan.value_bytes,
            threads: plan.threads,
            durability: self.durability.to_possible_value().map_or_else(String::new, |v| v.get_name().into()),
            compression: self.compression.name(),
            memtable_bytes: self.memtable.0,
            memtables: self.memtables.into(),
            cache_bytes: self.cache.0,
            rounds: self.rounds,
            ..Bench::default()
        }
    }
}

/// Refuses early a workload that scans, on an engine without ordered keys.
fn check_scans(engines: &[EngineKind], workloads: &[Workload]) -> Result<(), Failure> {
    let lacking = engines.iter().find(|engine| !engine.scans());
    let scanning = workloads.iter().find(|workload| workload.mix().share(Kind::Scan) > 0.0);
    let (Some(engine), Some(workload)) = (lacking, scanning) else { return Ok(()) };
    let others: Vec<&str> = workloads.iter().filter(|other| *other != workload).map(|w| w.name()).collect();
    let what =
        format!("{} has no order of keys, so it cannot scan, as {} does", engine.name(), workload.name());
    let next = match others.as_slice() {
        [] => format!("another --engine, or another --workload than {}", workload.name()),
        others => format!("--workload {}, or without {}", others.join(","), engine.name()),
    };
    Err(Failure::with_next(Error::invalid(what), next))
}

/// Flash of `vellum-flash` by default.
const FLASH_BYTES: u64 = 4 << 30;
/// Polling interval for the end of an engine.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A directory for stores, removed when dropped.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new(dir: &Path) -> Result<Scratch> {
        let path = dir.join(format!("vellum-kv-bench.{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| Error::io(format!("make {}", path.display()), e))?;
        Ok(Scratch { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path); // there is nobody to tell, and nothing to do about it
    }
}

/// Runs one engine in a separate process with the same options.
fn child(engine: EngineKind, scratch: &Path, stop: &Stop) -> Result<Vec<PlanReport>, Failure> {
    let store = scratch.join(engine.name());
    let said = |e| Error::io("run this command again", e);
    // To files, so that nothing has to read them while it runs.
    let [out, err] = ["out", "err"].map(|name| scratch.join(name));
    let child = Command::new(std::env::current_exe().map_err(said)?)
        .args(std::env::args_os().skip(1).filter(|word| word != "--json"))
        .args(["--json", "--one", engine.name(), "--store"])
        .arg(&store)
        .stdout(File::create(&out).map_err(said)?)
        .stderr(File::create(&err).map_err(said)?)
        .spawn()
        .map_err(said)?;
    let status = end_of(child, stop)?;
    // Removed before the file system has written it all back, so that the next engine does not pay for that.
    let _ = std::fs::remove_dir_all(&store);
    let [out, err] = [out, err].map(|path| std::fs::read(path).unwrap_or_default());
    if status.success()
        && let Ok(reports) = serde_json::from_slice(&out)
    {
        return Ok(reports);
    }
    let told = String::from_utf8_lossy(&err).into_owned();
    let value: serde_json::Value = serde_json::from_str(told.trim()).unwrap_or_default();
    let error = value["error"].as_str().unwrap_or(&told).to_string();
    let error = Error::new(value["kind"].as_str().map_or(ErrorKind::Io, kind_by_name), error);
    Err(match value["next"].as_str() {
        Some(next) => Failure::with_next(error, next),
        None => error.context(status).into(),
    })
}

/// Waits for a process to end, and kills it when this one is to stop.
fn end_of(mut child: Child, stop: &Stop) -> Result<ExitStatus, Failure> {
    let said = |e| Error::io("wait for an engine", e);
    loop {
        // A signal from the terminal reaches both processes; what counts is that this one is to stop.
        if stop.wait(Some(LOOK_EVERY)) {
            child.kill().and_then(|()| child.wait()).map_err(said)?;
            let error = Error::new(ErrorKind::Io, "ended by a signal; what was made is removed");
            return Err(Failure::with_next(error, "run it again: nothing was measured"));
        }
        if let Some(status) = child.try_wait().map_err(said)? {
            return Ok(status);
        }
    }
}

fn workloads(names: &[String]) -> Result<Vec<Workload>, Failure> {
    let mut workloads = Vec::new();
    for name in names {
        match (name.as_str(), Workload::named(name)) {
            (_, Some(workload)) => workloads.push(workload),
            // E and D insert records, so they come last.
            ("ycsb", _) => workloads.extend([
                Workload::YcsbLoad,
                Workload::YcsbA,
                Workload::YcsbB,
                Workload::YcsbC,
                Workload::YcsbF,
                Workload::YcsbD,
                Workload::YcsbE,
            ]),
            _ => {
                let names: Vec<&str> = Workload::ALL.iter().map(|workload| workload.name()).collect();
                let error = Error::invalid(format!("there is no workload '{name}'"));
                return Err(Failure::with_next(error, format!("one of {}, ycsb", names.join(", "))));
            }
        }
    }
    Ok(workloads)
}

fn no_engine(name: &str) -> Failure {
    let names: Vec<&str> = EngineKind::ALL.iter().map(|kind| kind.name()).collect();
    let error = Error::invalid(format!("there is no engine '{name}'"));
    Failure::with_next(error, format!("one of {}, rocksdb, leveldb, all", names.join(", ")))
}

fn parse_compression(text: &str) -> Result<Compression, String> {
    let found = Compression::ALL.into_iter().find(|compression| compression.name() == text);
    found.ok_or_else(|| "none, lz4 or zstd".into())
}

fn more_options() -> String {
    format!(
        "More options for vellum: {} (how many are not compressed, from level 0 on)",
        vellum_option_names()
    )
}

fn parse_option(text: &str) -> Result<(String, u64), String> {
    let option = text.split_once('=').and_then(|(name, value)| Some((name.to_string(), value.parse().ok()?)));
    option.ok_or_else(|| "NAME=N".into())
}

fn bytes(size: Size) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

/// Load average of the last minute; 0 if unknown.
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}
