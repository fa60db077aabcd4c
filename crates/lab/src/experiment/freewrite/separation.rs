//! Separation of values from keys on raw flash, compared with leaving leaves in place.
//!
//! A store that separates values has a log of values, which is collected, and an ordered index of keys with pointers.
//! The first is represented by our log store, the second by our ordered store with pointers as values. Each is run by
//! itself with the same updates on flash of the same size, and their flash programs are added.

use super::bench::{KEY_BYTES, fill, settle};
use super::flash::{CORES, CPU, ROOM, SUPERBLOCK_BYTES, machine, options, programmed};
use super::{Keys, PAPER};
use crate::experiment::{Check, Experiment, Outcome, Scale, Setting, Table, each};
use std::sync::Arc;
use vellum_base::{Env, Flash, Result};
use vellum_kv::{Map, Reuse, Store, log};
use vellum_sim::{Sim, SimConfig};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "freewrite-separation",
    paper: PAPER,
    figure: "beyond section 4",
    claim: "Where values are large a store that keeps them apart from their keys programs less flash than one that merges them, and less than one that leaves in place what it need not change",
    small: "64 MiB of records, loaded (clusters in rows of 20, these in no order), then twice as many updates, on flash of three times as much, as in freewrite-flash; keys and pointers, 20 bytes a record, \
            in an ordered store of their own",
    full: "256 MiB of records",
    run,
};

const KEYS: [Keys; 2] = [Keys::UniformUpdates, Keys::ClusteredUpdates];
const VALUES: [usize; 4] = [1024, 2048, 4096, 16384];
const POINTER_BYTES: usize = 12;
/// A store of keys and pointers alone gets a byte of flash for this many of the others, not what its records need.
const LARGE_SHARE: u64 = 4;
/// Share of garbage from which the log is collected if it may take more of the flash than by default.
const LATE: f64 = 0.6;

#[derive(Clone, Copy)]
enum Kind {
    Ordered,
    /// A log that is collected from this share of garbage on.
    Log(f64),
}

/// Indices in [`WAYS`].
const MERGED: usize = 0;
const RELINKED: usize = 1;
const SEPARATED: usize = 2;
const SEPARATED_REUSE: usize = 3;

/// How values of one size are stored.
const WAYS: [(Kind, Reuse); 5] = [
    (Kind::Ordered, Reuse::Off),
    (Kind::Ordered, Reuse::Relink),
    (Kind::Log(0.4), Reuse::Off),
    (Kind::Log(0.4), Reuse::Relink),
    (Kind::Log(LATE), Reuse::Relink),
];

fn is_separated(way: usize) -> bool {
    matches!(WAYS[way].0, Kind::Log(_))
}

#[derive(Clone, Copy)]
struct Run {
    kind: Kind,
    reuse: Reuse,
    keys: Keys,
    value_bytes: usize,
    records: u64,
    flash_bytes: f64,
}

#[derive(Clone, Copy)]
struct Measured {
    puts: u64,
    seconds: f64,
    programmed_bytes: u64,
}

fn measure(run: &Run, seed: u64) -> Result<Measured> {
    let sim = Sim::with(SimConfig { cores: CORES, stack_bytes: 256 << 10, ..SimConfig::new(seed) });
    let env: Arc<dyn Env> = sim.env();
    let named = |e: vellum_base::Error| {
        e.context(format!("{} keys, values of {} bytes", run.keys.name(), run.value_bytes))
    };
    sim.run(|| in_world(run, &env, seed)).map_err(named)
}

fn in_world(run: &Run, env: &Arc<dyn Env>, seed: u64) -> Result<Measured> {
    let (flash, media) = machine(run.flash_bytes, env, seed)?;
    let bytes = run.records * (KEY_BYTES + run.value_bytes as u64);
    let log = |garbage_share| log::Options {
        segment_bytes: SUPERBLOCK_BYTES,
        garbage_share,
        reuse: run.reuse.into(),
        cpu: CPU,
        ..log::Options::default()
    };
    let store: Box<dyn Map> = match run.kind {
        Kind::Ordered => Box::new(Store::open(media, env.clone(), options(bytes, run.reuse))?),
        Kind::Log(garbage_share) => Box::new(log::Store::open(media, env.clone(), log(garbage_share))?),
    };
    let start = env.now();
    let puts = fill(&*store, run.keys, run.value_bytes, (run.records, seed), |_| {})?;
    let seconds = (env.now() - start).as_secs_f64();
    settle(env, || flash.counters());
    store.sync()?;
    Ok(Measured { puts, seconds, programmed_bytes: programmed(&flash) })
}

/// Results of all ways for one size of values.
struct Cell {
    keys: Keys,
    value_bytes: usize,
    /// Indexed like [`WAYS`].
    ways: Vec<Measured>,
    /// The store of keys and pointers, with the same updates.
    pointers: Measured,
}

impl Cell {
    fn user_bytes(&self) -> f64 {
        (self.pointers.puts * (KEY_BYTES + self.value_bytes as u64)) as f64
    }

    /// Bytes programmed per byte of user data; includes keys and pointers if values are in a log.
    fn programs(&self, way: usize) -> f64 {
        let pointers = if is_separated(way) { self.pointers.programmed_bytes } else { 0 };
        (self.ways[way].programmed_bytes + pointers) as f64 / self.user_bytes()
    }

    /// The two stores of a way that separates run one after the other.
    fn puts_per_second(&self, way: usize) -> f64 {
        let pointers = if is_separated(way) { self.pointers.seconds } else { 0.0 };
        self.pointers.puts as f64 / (self.ways[way].seconds + pointers)
    }

    /// Reduction of bytes programmed by one way relative to another, in percent.
    fn less(&self, way: usize, other: usize) -> f64 {
        100.0 * (1.0 - self.programs(way) / self.programs(other))
    }

    /// Saving by leaving leaves in place, in percent of that by the first way of separation.
    fn spared(&self) -> f64 {
        let [merged, relinked, separated] = [MERGED, RELINKED, SEPARATED].map(|way| self.programs(way));
        100.0 * (merged - relinked) / (merged - separated)
    }
}

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let bytes = if setting.scale == Scale::Small { 64 << 20 } else { 256 << 20 };
    let flash_bytes = bytes as f64 * ROOM;
    let points: Vec<(Keys, usize)> =
        KEYS.iter().flat_map(|keys| VALUES.map(|value_bytes| (*keys, value_bytes))).collect();
    let of = |(keys, value_bytes): &(Keys, usize)| {
        let records = bytes / (KEY_BYTES + *value_bytes as u64);
        let run =
            |kind, reuse, value_bytes| Run { kind, reuse, keys: *keys, value_bytes, records, flash_bytes };
        let pointers = run(Kind::Ordered, Reuse::Off, POINTER_BYTES);
        WAYS.map(|(kind, reuse)| run(kind, reuse, *value_bytes)).into_iter().chain([pointers])
    };
    let pointers = KEY_BYTES + POINTER_BYTES as u64;
    let large = Run {
        kind: Kind::Ordered,
        reuse: Reuse::Off,
        keys: Keys::UniformUpdates,
        value_bytes: POINTER_BYTES,
        records: bytes / LARGE_SHARE / pointers,
        flash_bytes,
    };
    let runs: Vec<Run> = points.iter().flat_map(of).chain([large]).collect();
    let measured = each("Values apart from keys", &runs, setting, |run| measure(run, setting.seed))?;
    let cell = |((keys, value_bytes), all): (&(Keys, usize), &[Measured])| Cell {
        keys: *keys,
        value_bytes: *value_bytes,
        ways: all[..WAYS.len()].to_vec(),
        pointers: all[WAYS.len()],
    };
    let cells: Vec<Cell> = points.iter().zip(measured.chunks(WAYS.len() + 1)).map(cell).collect();
    let large = &measured[measured.len() - 1];
    let large_programs = large.programmed_bytes as f64 / (large.puts * pointers) as f64;
    let at_most = |bytes: usize| large_programs * pointers as f64 / (KEY_BYTES as usize + bytes) as f64;
    Ok(Outcome {
        tables: vec![programs(&cells), throughput(&cells)],
        checks: checks(&cells),
        notes: vec![
            "Separated: the log store with the values, as measured, and the ordered store with keys and pointers of 12 bytes, measured by itself, without reuse; programs are added, and so are the times. \
             In the columns of the log, reuse is the log's".into(),
            format!(
                "So few keys and pointers are hardly ever merged. An ordered store of {} MiB of nothing else programs {large_programs:.1} bytes for each of theirs: in so large a store they would come to \
                 {:.2} for each of the user's bytes with values of 1 KiB, {:.3} with 4 KiB",
                (bytes / LARGE_SHARE) >> 20,
                at_most(1024),
                at_most(4096),
            ),
            "At each update the log store reads what it replaces, to count garbage".into(),
        ],
        ..Outcome::default()
    })
}

const NAMES: [&str; 5] =
    ["merged", "relinked", "separated", "separated, reuse", "separated, reuse, from 60 % garbage"];

fn programs(cells: &[Cell]) -> Table {
    let last = [
        "of it keys and pointers",
        "separated less than merged, %",
        "with reuse less than relinked, %",
        "of what separation spares relinking spares, %",
    ];
    let columns = ["keys", "values, B"].into_iter().chain(NAMES).chain(last);
    let mut table = Table::new("Bytes programmed for each of the user's", columns);
    for cell in cells {
        let mut row = vec![cell.keys.name().into(), cell.value_bytes.to_string()];
        row.extend((0..WAYS.len()).map(|way| format!("{:.2}", cell.programs(way))));
        row.push(format!("{:.3}", cell.pointers.programmed_bytes as f64 / cell.user_bytes()));
        let less = [cell.less(SEPARATED, MERGED), cell.less(SEPARATED_REUSE, RELINKED), cell.spared()];
        row.extend(less.map(|percent| format!("{percent:.1}")));
        table.rows.push(row);
    }
    table
}

fn throughput(cells: &[Cell]) -> Table {
    let mut table = Table::new("Puts a second", ["keys", "values, B"].into_iter().chain(NAMES));
    for cell in cells {
        let mut row = vec![cell.keys.name().into(), cell.value_bytes.to_string()];
        row.extend((0..WAYS.len()).map(|way| format!("{:.0}", cell.puts_per_second(way))));
        table.rows.push(row);
    }
    table
}

fn checks(cells: &[Cell]) -> Vec<Check> {
    let least = |from: usize, percent: &dyn Fn(&Cell) -> f64| {
        let large = cells.iter().filter(|cell| cell.value_bytes >= from);
        large.map(percent).fold(f64::INFINITY, f64::min)
    };
    let check = |claim, target, found: f64, bound: f64, shape| {
        Check::new(claim, target, format!("{found:.1} % at least"), found > bound, (shape, shape))
    };
    let less = "shape: less in every row";
    vec![
        check(
            "Values of 4 KiB and more: separated, less is programmed than merged",
            "less",
            least(4096, &|cell| cell.less(SEPARATED, MERGED)),
            0.0,
            less,
        ),
        check(
            "Values of 2 KiB and more: separated, with reuse, less is programmed than relinked",
            "less",
            least(2048, &|cell| cell.less(SEPARATED_REUSE, RELINKED)),
            0.0,
            less,
        ),
        check(
            "Values of 1 KiB and more: of what separation spares, relinking spares most, in order",
            "more than half",
            least(1024, &Cell::spared),
            50.0,
            "shape: more than half in every row",
        ),
    ]
}
