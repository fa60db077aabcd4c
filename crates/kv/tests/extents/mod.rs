//! Tables on flash that share superblocks, without a store above them: random lives beside what every unit should hold,
//! with power cuts, programs and erases that fail, bad blocks from the factory, and openings in between.

mod beside;
mod damage;
mod price;
mod reading;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::{BlockState, Cause, Env, Flash, Geometry, IoClass, Kind, Result};
use vellum_kv::media::{Intent, Parallelism, Relinking, Schedule, Stored, Tables};
use vellum_kv::{FlashMedia, Media};
use vellum_media::nand::{Fault, Nand, NandParams};
use vellum_sim::Sim;

const UNIT: usize = 4096;
const INTENT: Intent =
    Intent { cause: Cause::Compaction2, class: IoClass::Background, parallelism: Parallelism::Full };
/// Everything that can stay does.
const ALL: Relinking = Relinking { live_min: 0.0, free_min: 0.0, runs_max: None };

/// A unit by who wrote it, and which of its own it is.
type Unit = (u64, u32);

fn content(unit: Unit) -> Vec<u8> {
    contents_of(UNIT, [unit])
}

fn contents(units: impl IntoIterator<Item = Unit>) -> Vec<u8> {
    contents_of(UNIT, units)
}

/// So many bytes of each. In one piece: not byte by byte, which would take most of the time of these tests.
fn contents_of(unit_bytes: usize, units: impl IntoIterator<Item = Unit>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (table, unit) in units {
        let (mut rng, at) = (SmallRng::seed_from_u64(table << 20 | u64::from(unit)), bytes.len());
        bytes.resize(at + unit_bytes, 0);
        rng.fill(&mut bytes[at..]);
    }
    bytes
}

fn flash(seed: u64, params: NandParams, superblocks: u32, page_bytes: u32) -> Arc<Nand> {
    // 16 data pages of 4 KiB on each of four dies, or as many bytes of longer ones.
    let pages_per_block = 2 + 16 * 4096 / page_bytes;
    let geometry = Geometry {
        channels: 4,
        dies_per_channel: 1,
        blocks_per_die: superblocks,
        pages_per_block,
        page_bytes,
        oob_bytes: 0,
    };
    let nand = Nand::ram(geometry, NandParams { seed, nvram_bytes: 1 << 20, ..params }).unwrap();
    FlashMedia::format(&nand).unwrap();
    Arc::new(nand)
}

/// Media, and beside them what every table holds.
struct Life {
    flash: Arc<Nand>,
    env: Arc<dyn Env>,
    schedule: Option<Schedule>,
    /// Bytes of what tables are made of.
    unit: usize,
    /// None while the power is off.
    open: Option<Arc<FlashMedia>>,
    wanted: BTreeMap<u64, Vec<Unit>>,
    next: u64,
    collections: u64,
    /// Pages programmed when it was opened.
    before: u64,
}

fn open(flash: &Arc<Nand>, env: &Arc<dyn Env>, schedule: Option<Schedule>) -> Result<Arc<FlashMedia>> {
    let media = match schedule {
        Some(schedule) => FlashMedia::open_scheduled(flash.clone(), env.clone(), schedule)?,
        None => FlashMedia::open(flash.clone(), env.clone())?,
    };
    media.set_relinking(ALL);
    media.sharing(64)?;
    Ok(media)
}

impl Life {
    fn new(flash: &Arc<Nand>, env: &Arc<dyn Env>, schedule: Option<Schedule>, unit: usize) -> Life {
        let media = open(flash, env, schedule).unwrap();
        let (flash, env, before) = (flash.clone(), env.clone(), flash.counters().pages_programmed);
        Life {
            flash,
            env,
            schedule,
            unit,
            open: Some(media),
            wanted: BTreeMap::new(),
            next: 1,
            collections: 0,
            before,
        }
    }

    fn media(&self) -> &FlashMedia {
        self.open.as_ref().unwrap()
    }

    /// Programs and erases that failed.
    fn failures(&self) -> u64 {
        self.flash.counters().program_failures + self.flash.counters().erase_failures
    }

    /// How often was collected, all told.
    fn collections(&self) -> u64 {
        let now = self.open.as_ref().map(|media| media.placement().unwrap().collections);
        self.collections + now.unwrap_or(0)
    }

    /// What the media say they did is what the flash did, and everybody is where it should be.
    fn check(&self, context: &str) {
        assert_eq!(self.media().problems(), Vec::<String>::new(), "{context}");
        for table in self.wanted.keys() {
            self.read(*table, context);
        }
    }

    fn check_ledger(&self, context: &str) {
        let programmed = self.flash.counters().pages_programmed - self.before;
        let page_bytes = u64::from(self.flash.geometry().page_bytes);
        assert_eq!(self.media().ledger().programmed_total(), programmed * page_bytes, "{context}");
    }

    fn read(&self, table: u64, context: &str) {
        let units = &self.wanted[&table];
        let reader = self.media().open_table(table).unwrap_or_else(|e| panic!("{context}: {e}"));
        let mut bytes = vec![0; units.len() * self.unit];
        reader.read(0, &mut bytes, IoClass::Foreground).unwrap_or_else(|e| panic!("{context}: {e}"));
        for (unit, found) in units.iter().zip(bytes.chunks(self.unit)) {
            let is_right = found == contents_of(self.unit, [*unit]);
            assert!(is_right, "{context}: table {table}, of {}: {unit:?}", self.next);
        }
        assert_eq!(reader.bytes().unwrap(), bytes.len() as u64, "{context}");
    }

    /// A table of runs of its own units and of others'. Its number if it was finished.
    fn write(&mut self, rng: &mut SmallRng, runs: usize) -> Result<Option<u64>> {
        let number = self.next;
        self.next += 1;
        let (free, failed) = (self.media().tables_free(), self.failures());
        let begun = self.media().create_table(number, INTENT);
        let mut writer = match begun {
            Err(e) if e.kind() == Kind::NoSpace => {
                assert!(free == 0 || self.failures() > failed, "{free} were promised");
                return Err(e);
            }
            other => other?,
        };
        let (mut units, mut own) = (Vec::new(), 0);
        // Short runs, or as many bytes as of large units.
        let times = if rng.random_range(0..3) > 0 { (UNIT / self.unit) as u32 } else { 1 };
        for _ in 0..rng.random_range(1..=runs) {
            let count: u32 = rng.random_range(1..14 * times);
            let left = (writer.capacity() / self.unit as u64).saturating_sub(units.len() as u64) as u32;
            let count = count.min(left);
            if count == 0 {
                break;
            }
            let source = rng.random_range(0..self.wanted.len().max(1));
            let other = self.wanted.iter().nth(source).map(|(table, there)| (*table, there.clone()));
            match other.filter(|_| rng.random_range(0..3) > 0) {
                Some((table, there)) => {
                    let offset = rng.random_range(0..there.len());
                    let part = &there[offset..there.len().min(offset + count as usize)];
                    let bytes = contents_of(self.unit, part.iter().copied());
                    let from = Stored { table, offset: (offset * self.unit) as u64 };
                    // What is not taken over is written, and no one's but this table's: the bytes are the same.
                    writer.append_stored(&bytes, from)?;
                    units.extend_from_slice(part);
                }
                None => {
                    let part: Vec<Unit> = (own..own + count).map(|unit| (number, unit)).collect();
                    let bytes = contents_of(self.unit, part.iter().copied());
                    writer.append(&bytes)?;
                    units.extend(part);
                    own += count;
                }
            }
        }
        if rng.random_range(0..6) == 0 || units.is_empty() {
            return Ok(None);
        }
        writer.finish(0)?;
        self.wanted.insert(number, units);
        let left = self.media().tables_free();
        assert!(left + 1 >= free || self.failures() > failed, "{free} were promised, {left} are left");
        Ok(Some(number))
    }

    fn erase(&mut self, rng: &mut SmallRng) -> Result<()> {
        let nth = rng.random_range(0..self.wanted.len().max(1));
        let Some(table) = self.wanted.keys().nth(nth).copied() else { return Ok(()) };
        self.wanted.remove(&table);
        self.media().erase_table(table)
    }

    fn step(&mut self, rng: &mut SmallRng) -> Result<()> {
        match rng.random_range(0..20) {
            0..8 => self.erase(rng),
            8 => {
                // Many short runs: lists are as long as they can be.
                match self.write(rng, 200) {
                    Err(e) if e.kind() == Kind::NoSpace => self.erase(rng),
                    other => other.map(drop),
                }
            }
            _ => match self.write(rng, 12) {
                Err(e) if e.kind() == Kind::NoSpace => self.erase(rng),
                other => other.map(drop),
            },
        }
    }

    /// Opens the flash anew, perhaps only after another cut, and gives up what is not wanted.
    fn reopen(&mut self, rng: &mut SmallRng, context: &str) {
        self.collections += self.media().placement().unwrap().collections;
        if !self.flash.is_off() {
            self.check_ledger(context);
        }
        loop {
            // Nothing of what waited in queues may happen in another life.
            self.open = None;
            self.flash.power_on();
            if rng.random_range(0..3) == 0 {
                self.flash.power_cut_at(rng.random_range(1..60));
            }
            match self.try_reopen() {
                Err(e) if e.kind() != Kind::PowerLost => panic!("{context}: {e}"),
                _ => self.flash.disarm(),
            }
            if !self.flash.is_off() {
                break;
            }
        }
        self.check(context);
    }

    fn try_reopen(&mut self) -> Result<()> {
        self.before = self.flash.counters().pages_programmed;
        self.open = Some(open(&self.flash, &self.env, self.schedule)?);
        let found = self.media().tables()?;
        self.next = found.iter().copied().fold(self.media().highest_table(), u64::max) + 1;
        for table in self.wanted.keys() {
            assert!(found.contains(table), "table {table} is not found");
        }
        found
            .into_iter()
            .filter(|table| !self.wanted.contains_key(table))
            .try_for_each(|t| self.media().erase_table(t))
    }
}

/// A life of so many steps, with openings, and with `fault` now and then; of more, until it is busy enough by how many
/// of these fired, and how often was collected.
fn life(
    seed: u64,
    steps: usize,
    fault: Option<Fault>,
    schedule: Option<Schedule>,
    params: NandParams,
    is_busy: fn(u64, u64) -> bool,
) {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    let page_bytes = [4096, 8192, 16384][(seed % 3) as usize];
    let unit = [64, 1088, UNIT][(seed / 3 % 3) as usize];
    let flash = flash(seed, params, 24, page_bytes);
    sim.run(|| {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut life = Life::new(&flash, &env, schedule, unit);
        let (mut fired, mut step) = (0, 0);
        while step < steps || !is_busy(fired + life.failures(), life.collections()) {
            assert!(step < 40 * steps, "seed {seed}: {fired} fired, {} collections", life.collections());
            let context = format!("seed {seed}, step {step}, {fault:?}");
            if let Some(fault) = fault
                && rng.random_range(0..15) == 0
            {
                flash.disarm();
                let within = if fault == Fault::EraseFails { 20 } else { 150 };
                flash.arm(rng.random_range(1..within), fault);
            }
            match life.step(&mut rng) {
                Ok(()) if !flash.is_off() => {}
                // What waits in queues may tell nobody.
                Err(e) if e.kind() != Kind::PowerLost => panic!("{context}: {e}"),
                _ => {
                    fired += 1;
                    life.reopen(&mut rng, &context);
                }
            }
            if step % 25 == 0 {
                flash.disarm();
                match flash.is_off() {
                    true => life.reopen(&mut rng, &context),
                    false => life.check(&context),
                }
            }
            if rng.random_range(0..40) == 0 {
                flash.disarm();
                life.reopen(&mut rng, &context);
            }
            step += 1;
        }
        flash.disarm();
        life.reopen(&mut rng, "at the end");
        // Nothing is left behind by anybody.
        while !life.wanted.is_empty() {
            life.erase(&mut rng).unwrap();
        }
        let placement = life.media().placement().unwrap();
        let geometry = *flash.geometry();
        let width = |index: u32| {
            let blocks = (0..geometry.dies()).map(|die| geometry.block_on(die, index));
            blocks.filter(|block| flash.report(*block).state == BlockState::Good).count()
        };
        let widths = (0..geometry.blocks_per_die).map(width);
        // Narrow ones are left alone.
        let least = widths.clone().max().unwrap().div_ceil(2).max(1);
        let usable = widths.filter(|width| *width >= least).count() as u64;
        assert_eq!((placement.free, placement.pinned), (usable, 0), "seed {seed}");
    });
}

#[test]
fn what_is_shared_is_read_whatever_comes() {
    vellum_sim::check(0..12, |seed| {
        life(seed, 600, None, None, NandParams::default(), |_, collections| collections > 0);
    });
}

#[test]
fn what_is_shared_is_read_behind_queues() {
    vellum_sim::check(100..106, |seed| {
        let schedule = if seed % 2 == 0 { Schedule::Priority } else { Schedule::Noop };
        life(seed, 400, None, Some(schedule), NandParams::default(), |_, collections| collections > 0);
    });
}

#[test]
fn what_is_shared_survives_cuts() {
    vellum_sim::check(200..230, |seed| {
        let schedule = (seed % 3 == 0).then_some(Schedule::Priority);
        let params = NandParams { erases_kept: (seed % 2) as usize * 8, ..NandParams::default() };
        let is_busy = |cuts, collections| cuts > 5 && collections > 0;
        life(seed, 500, Some(Fault::PowerCut), schedule, params, is_busy);
    });
}

#[test]
fn what_is_shared_survives_what_fails_and_superblocks_of_all_widths() {
    vellum_sim::check(300..320, |seed| {
        let fault = if seed % 2 == 0 { Fault::ProgramFails } else { Fault::EraseFails };
        let schedule = (seed % 3 == 0).then_some(Schedule::Priority);
        let params = NandParams { factory_bad_share: 0.08, ..NandParams::default() };
        // Where many have failed hardly any two superblocks are as wide.
        let is_busy = |failed, collections| failed > 3 && (collections > 0 || failed > 12);
        life(seed, 500, Some(fault), schedule, params, is_busy);
    });
}
