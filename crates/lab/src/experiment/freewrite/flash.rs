//! Relinking on raw flash (docs/decisions/0025): tables that consist of their own superblock and of leaves left in
//! place, compared with the same engine rewriting everything, in flash programs including collection.

use super::bench::{KEY_BYTES, fill, settle};
use super::{Keys, PAPER, mb};
use crate::experiment::{Check, Experiment, Outcome, Scale, Setting, Table, each};
use std::sync::Arc;
use vellum_base::{Cause, Env, Flash, Geometry, Nanos, Result};
use vellum_kv::media::Relinking;
use vellum_kv::{Compression, CpuModel, FlashMedia, Options, Reuse, Store, StoreStat};
use vellum_media::nand::{Nand, NandParams};
use vellum_media::{Preset, Timed};
use vellum_sim::{Sim, SimConfig};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "freewrite-flash",
    paper: PAPER,
    figure: "beyond section 4",
    claim: "On raw flash of its own the store leaves what it need not change where it is: fewer flash programs, collection included, and never more than without by more than 2 %, and never slower by more",
    small: "64 MiB of records, loaded (clusters in rows of 20, these in no order), then twice as many updates, inserts or deletes, on flash of three times as much, levels 1 and 2 of a tenth and all of them; \
            some on less flash and on more; superblocks of 1 MiB, pages of 8 KiB",
    full: "256 MiB of records",
    run,
};

/// Processor costs, as in the experiments of FlashKV.
pub(super) const CPU: CpuModel = CpuModel {
    get: Nanos::from_us(5),
    put: Nanos::from_us(3),
    merge: Nanos::from_us(2),
    merge_kib: Nanos::from_us(4),
};
pub(super) const CORES: usize = 6;
const CHANNELS: u32 = 4;
const PAGE_BYTES: u32 = 8192;
/// Pages per block, including two for tags.
const PAGES: u32 = 34;
pub(super) const SUPERBLOCK_BYTES: u64 = (CHANNELS * PAGE_BYTES * (PAGES - 2)) as u64;

const VALUES: [usize; 5] = [100, 256, 512, 1024, 4096];
/// Points that are examined in detail.
const POINTS: [(Keys, usize); 4] = [
    (Keys::UniformUpdates, 1024),
    (Keys::ZipfUpdates, 1024),
    (Keys::ClusteredUpdates, 256),
    (Keys::ClusteredUpdates, 1024),
];
/// Bytes of flash per byte of records, in the grid and elsewhere.
pub(super) const ROOM: f64 = 3.0;
const ROOMS: [f64; 2] = [2.5, 4.0];
/// Shares of a superblock that must stay live.
const THRESHOLDS: [f64; 5] = [0.0, 0.1, 0.25, 0.5, 0.75];

#[derive(Clone, Copy)]
struct Run {
    keys: Keys,
    value_bytes: usize,
    bytes: u64,
    room: f64,
    /// How leaves are left in place, if at all.
    relinking: Option<Relinking>,
}

struct Measured {
    seconds: f64,
    puts: u64,
    programmed_bytes: u64,
    collected_bytes: u64,
    stat: StoreStat,
}

impl Measured {
    fn puts_per_second(&self) -> f64 {
        self.puts as f64 / self.seconds
    }
    /// By how many percent less is programmed than in `other`.
    fn less_than(&self, other: &Measured) -> f64 {
        100.0 * (1.0 - self.programmed_bytes as f64 / other.programmed_bytes as f64)
    }
    /// `bytes` in percent of what merges emitted.
    fn share(&self, bytes: u64) -> f64 {
        100.0 * bytes as f64 / self.stat.since_opened.emitted_bytes().max(1) as f64
    }
    /// Breakdown of what was programmed, in percent: flushes, which are unavoidable, and the rest.
    fn what_is_programmed(&self) -> String {
        let ledger = &self.stat.ledger;
        let share = |causes: &[Cause]| {
            let bytes: u64 = causes.iter().map(|cause| ledger.programmed_by(*cause)).sum();
            format!("{:.0} %", 100.0 * bytes as f64 / self.programmed_bytes.max(1) as f64)
        };
        let merges: Vec<Cause> =
            Cause::ALL.iter().copied().filter(|cause| cause.name().starts_with("compaction")).collect();
        format!(
            "Of what is programmed flushes are {}, merges {}, collection {}, tags and lists {}",
            share(&[Cause::Flush]),
            share(&merges),
            share(&[Cause::Gc]),
            share(&[Cause::StoreMetadata]),
        )
    }
    fn faster_than(&self, other: &Measured) -> f64 {
        100.0 * (self.puts_per_second() / other.puts_per_second() - 1.0)
    }
}

fn measure(run: &Run, seed: u64) -> Result<Measured> {
    let sim = Sim::with(SimConfig { cores: CORES, stack_bytes: 256 << 10, ..SimConfig::new(seed) });
    let env: Arc<dyn Env> = sim.env();
    let named = |e: vellum_base::Error| {
        let Run { keys, value_bytes, room, .. } = run;
        e.context(format!("{} keys, values of {value_bytes} bytes, {room} times the room", keys.name()))
    };
    sim.run(|| in_world(run, &env, seed)).map_err(named)
}

/// Flash of at least this many bytes, and the media of a store on it.
pub(super) fn machine(
    bytes: f64,
    env: &Arc<dyn Env>,
    seed: u64,
) -> Result<(Arc<Timed<Nand>>, Arc<FlashMedia>)> {
    let geometry = Geometry {
        channels: CHANNELS,
        dies_per_channel: 1,
        blocks_per_die: (bytes / SUPERBLOCK_BYTES as f64).ceil() as u32,
        pages_per_block: PAGES,
        page_bytes: PAGE_BYTES,
        oob_bytes: 0,
    };
    let mut timing = Preset::by_name("tlc-modern")?.timing;
    timing.erase = Nanos(timing.erase.0 / 4);
    let nand = Nand::ram(geometry, NandParams { seed, nvram_bytes: 16 << 20, ..NandParams::default() })?;
    let flash = Arc::new(Timed::new(Arc::new(nand), timing, env.clone()));
    FlashMedia::format(&*flash)?;
    let media = FlashMedia::open(flash.clone(), env.clone())?;
    Ok((flash, media))
}

/// Options for a store of this many bytes of records.
pub(super) fn options(bytes: u64, reuse: Reuse) -> Options {
    Options {
        compression: [Compression::None; _],
        cpu: CPU,
        memtable_bytes: (SUPERBLOCK_BYTES / 8 * 7) as usize,
        level0_compact: 4,
        level0_slow: 8,
        level0_stop: 12,
        level1_bytes: bytes / 10,
        cache_bytes: bytes as usize / 8,
        reuse: reuse.into(),
        ..Options::default()
    }
}

fn in_world(run: &Run, env: &Arc<dyn Env>, seed: u64) -> Result<Measured> {
    let (flash, media) = machine(run.bytes as f64 * run.room, env, seed)?;
    media.set_relinking(run.relinking.unwrap_or_default());
    let reuse = if run.relinking.is_some() { Reuse::Relink } else { Reuse::Off };
    let store = Store::open(media, env.clone(), options(run.bytes, reuse))?;
    let start = env.now();
    let records = run.bytes / (run.value_bytes as u64 + KEY_BYTES);
    let puts = fill(&store, run.keys, run.value_bytes, (records, seed), |_| {})?;
    let seconds = (env.now() - start).as_secs_f64();
    settle(env, || flash.counters());
    let stat = store.stat();
    let programmed_bytes = programmed(&flash);
    let collected_bytes = stat.ledger.programmed_by(Cause::Gc);
    store.close()?;
    Ok(Measured { seconds, puts, programmed_bytes, collected_bytes, stat })
}

/// Bytes programmed, for any cause.
pub(super) fn programmed(flash: &Timed<Nand>) -> u64 {
    flash.counters().pages_programmed * u64::from(PAGE_BYTES)
}

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let bytes = if setting.scale == Scale::Small { 64 << 20 } else { 256 << 20 };
    let at = |(keys, value_bytes), room, relinking| Run { keys, value_bytes, bytes, room, relinking };
    let both = |point, room| [None, Some(Relinking::default())].map(|way| at(point, room, way));
    let grid: Vec<Run> = Keys::GRID
        .iter()
        .flat_map(|keys| VALUES.map(|value_bytes| (*keys, value_bytes)))
        .flat_map(|point| both(point, ROOM))
        .collect();
    let rooms: Vec<Run> = POINTS
        .iter()
        .flat_map(|point| ROOMS.map(|room| (*point, room)))
        .flat_map(|(p, room)| both(p, room))
        .collect();
    let relinking = |live_min| Some(Relinking { live_min, ..Relinking::default() });
    let sweep: Vec<Run> = POINTS
        .iter()
        .flat_map(|point| THRESHOLDS.map(|live_min| at(*point, ROOM, relinking(live_min))))
        .collect();
    let all: Vec<Run> = grid.iter().chain(&rooms).chain(&sweep).copied().collect();
    let measured = each("Stores on raw flash", &all, setting, |run| measure(run, setting.seed))?;
    let (in_grid, rest) = measured.split_at(grid.len());
    let (in_rooms, swept) = rest.split_at(rooms.len());
    Ok(Outcome {
        tables: vec![
            pairs("Flash programs and throughput: flash of three times the records", &grid, in_grid),
            pairs("On less flash, and on more", &rooms, in_rooms),
            sweep_table(&sweep, swept),
        ],
        checks: checks(&grid, in_grid),
        notes: vec![
            "Programmed: every page of the flash, tags and lists included, until the store had settled; log and manifest are in NVRAM, in both cases".into(),
        ],
        ..Outcome::default()
    })
}

fn pairs(title: &str, runs: &[Run], measured: &[Measured]) -> Table {
    let columns = [
        "keys",
        "values, B",
        "flash, x of records",
        "programmed, MB",
        "relinked",
        "less, %",
        "of it collection, MB",
        "leaves kept, %",
        "left in place, %",
        "superblocks pinned",
        "puts/s",
        "relinked",
        "faster, %",
    ];
    let mut table = Table::new(title, columns);
    for (run, pair) in runs.chunks(2).zip(measured.chunks(2)) {
        let [off, on] = pair else { continue };
        let share = |bytes: u64| format!("{:.1}", on.share(bytes));
        table.rows.push(vec![
            run[0].keys.name().into(),
            run[0].value_bytes.to_string(),
            format!("{:.1}", run[0].room),
            mb(off.programmed_bytes),
            mb(on.programmed_bytes),
            format!("{:.1}", on.less_than(off)),
            mb(on.collected_bytes),
            share(on.stat.since_opened.reuse().kept_bytes),
            share(on.stat.since_opened.reuse().relinked_bytes),
            on.stat.placement.map_or(0, |placement| placement.pinned).to_string(),
            format!("{:.0}", off.puts_per_second()),
            format!("{:.0}", on.puts_per_second()),
            format!("{:.1}", on.faster_than(off)),
        ]);
    }
    table
}

fn sweep_table(runs: &[Run], measured: &[Measured]) -> Table {
    let columns = [
        "keys",
        "values, B",
        "least share live, %",
        "programmed, MB",
        "of it collection, MB",
        "left in place, MB",
        "puts/s",
    ];
    let mut table = Table::new("Reuse or copy: flash of three times the records", columns);
    for (run, m) in runs.iter().zip(measured) {
        table.rows.push(vec![
            run.keys.name().into(),
            run.value_bytes.to_string(),
            format!("{:.0}", 100.0 * run.relinking.unwrap_or_default().live_min),
            mb(m.programmed_bytes),
            mb(m.collected_bytes),
            mb(m.stat.since_opened.reuse().relinked_bytes),
            format!("{:.0}", m.puts_per_second()),
        ]);
    }
    table
}

fn checks(runs: &[Run], measured: &[Measured]) -> Vec<Check> {
    let pair_of = |keys, value_bytes| {
        let pairs = runs.chunks(2).zip(measured.chunks(2));
        let mut of = pairs.filter(|(run, _)| run[0].keys == keys && run[0].value_bytes == value_bytes);
        of.rfind(|(_, pair)| pair.len() == 2).map(|(_, pair)| (&pair[0], &pair[1]))
    };
    let reaches = |claim: &str, keys, value_bytes, target: f64, by: fn(&Measured, &Measured) -> f64| {
        let (found, why) = pair_of(keys, value_bytes)
            .map_or((0.0, String::new()), |(off, on)| (by(on, off), on.what_is_programmed()));
        let why = format!("shape: at least so much. {why}");
        let why = ("shape: at least so much", why.as_str());
        Check::new(claim, &format!("{target:.0} %"), format!("{found:.1} %"), found >= target, why)
    };
    let pairs = || measured.chunks(2).filter(|pair| pair.len() == 2);
    let worst = pairs().map(|pair| pair[1].less_than(&pair[0])).fold(f64::INFINITY, f64::min);
    let slowest = pairs().map(|pair| pair[1].faster_than(&pair[0])).fold(f64::INFINITY, f64::min);
    vec![
        reaches(
            "Values of 1 KiB, uniform updates: flash programs less",
            Keys::UniformUpdates,
            1024,
            53.0,
            Measured::less_than,
        ),
        reaches(
            "Values of 1 KiB, uniform updates: puts a second more",
            Keys::UniformUpdates,
            1024,
            30.0,
            Measured::faster_than,
        ),
        reaches(
            "Values of 256 B, clustered updates: flash programs less",
            Keys::ClusteredUpdates,
            256,
            40.0,
            Measured::less_than,
        ),
        Check::new(
            "Nowhere more is programmed than without, by more than 2 %",
            "at most 2 % more",
            format!("{:.1} % more at most", -worst),
            worst >= -2.0,
            ("shape: at most 2 % more", "shape: at most 2 % more"),
        ),
        Check::new(
            "Nowhere are updates slower than without, by more than 2 %",
            "at most 2 % slower",
            format!("{:.1} % slower at most", -slowest),
            slowest >= -2.0,
            ("shape: at most 2 % slower", "shape: at most 2 % slower"),
        ),
    ]
}
