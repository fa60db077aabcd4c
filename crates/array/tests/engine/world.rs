//! An array with a cache on disks in memory, tasks that use it, and the plain model of what it holds.

use crate::harness::{Kind, Rig, Slow, content as noise, rng};
use rand::Rng;
use rand::rngs::SmallRng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vellum_array::cache::engine::{CacheFormat, CacheOptions, CacheStatus, CachedArray, Foreseen, foresee};
use vellum_array::cache::{Scheme, encode_delta};
use vellum_array::{Array, Device, survey};
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Env, Kind as ErrorKind, Lba, Nanos, Result, SECTOR_BYTES, Task};
use vellum_codes::crc32c;
use vellum_codes::pattern::Pattern;
use vellum_media::RamDisk;

/// Tasks that use it at once; sector `l` is written by task `l % TASKS`. They share rows.
pub const TASKS: u64 = 3;
/// Pages of the cache.
pub const PAGES: u64 = 48;
/// 256 KiB in each half.
const NVRAM_SECTORS: u64 = 128;
/// Where they begin.
pub const DATA_START: u64 = 256;

pub const SCHEMES: [Scheme; 6] =
    [Scheme::KddPaper, Scheme::Kdd, Scheme::Leavo, Scheme::WriteThrough, Scheme::WriteAround, Scheme::Larc];

/// Those that put parity off.
pub const DEFERRING: [Scheme; 3] = [Scheme::KddPaper, Scheme::Kdd, Scheme::Leavo];

/// Version `id` of a sector: versions differ by little, much, or everything, by what can be packed and what cannot.
pub fn content(lba: u64, id: u32) -> Vec<u8> {
    let mut sector = vec![0; SECTOR_BYTES];
    if id == 0 {
        return sector;
    }
    Pattern::unique(lba + 1).fill(&mut sector);
    let changed = [0, 12, 300, 1900, SECTOR_BYTES - 8][id as usize % 5];
    let mut other = noise(id);
    if id % 10 < 5 {
        Pattern::unique(1 << 40 | u64::from(id)).fill(&mut other);
    }
    let at = (id as usize * 37) % (SECTOR_BYTES - 7 - changed);
    sector[at..at + changed].copy_from_slice(&other[..changed]);
    sector[..4].copy_from_slice(&id.to_le_bytes());
    sector
}

#[test]
fn versions_make_deltas_of_every_kind() {
    let (mut none, mut given_up, mut kept) = (0, 0, [0; 2]);
    let pairs = (1..100).flat_map(|old| (1..100).map(move |new| (old * 101, new * 101)));
    for (old, new) in pairs.filter(|(old, new)| old != new) {
        let mut coded = Vec::new();
        let fits = encode_delta(&content(7, old), &content(7, new), &mut coded);
        match coded.len() {
            _ if !fits => none += 1,
            bytes if bytes * 4 > SECTOR_BYTES * 3 => given_up += 1,
            bytes => kept[usize::from(bytes * 8 > SECTOR_BYTES)] += 1,
        }
    }
    assert!(none > 100 && given_up > 20 && kept.iter().all(|kept| *kept > 100), "{none} {given_up} {kept:?}");
}

/// Versions that each sector may have, the last flushed one first, and whether it has the last for sure.
#[derive(Clone)]
pub struct Model(Vec<Vec<u32>>, Vec<bool>);

impl Model {
    pub fn new(sectors: u64) -> Model {
        Model(vec![vec![0]; sectors as usize], vec![true; sectors as usize])
    }
    pub fn wrote(&mut self, lba: u64, id: u32) {
        self.0[lba as usize].push(id);
        self.1[lba as usize] = true;
    }
    /// The power went: a sector has any of its versions, the one that is read next.
    pub fn was_cut(&mut self) {
        self.1.fill(false);
    }
    /// A sector is read by the one who writes it.
    fn assert_read(&mut self, lba: u64, found: &[u8]) {
        let (versions, is_sure) = (&mut self.0[lba as usize], &mut self.1[lba as usize]);
        let mut may_be = versions.iter().rev().take(if *is_sure { 1 } else { usize::MAX });
        let id = may_be.find(|id| content(lba, **id) == found).copied();
        let id = id.unwrap_or_else(|| panic!("sector {lba} is none of {versions:?}, sure: {is_sure}"));
        if !*is_sure {
            (*versions, *is_sure) = (vec![id], true);
        }
    }
    /// The task's own sectors have their last versions for sure.
    pub fn flushed(&mut self, task: u64) {
        let own = self.0.iter_mut().zip(&self.1).skip(task as usize).step_by(TASKS as usize);
        for (versions, _) in own.filter(|(_, is_sure)| **is_sure) {
            versions.drain(..versions.len() - 1);
        }
    }
    pub fn sectors(&self) -> u64 {
        self.0.len() as u64
    }
    pub fn last(&self, lba: u64) -> u32 {
        *self.0[lba as usize].last().unwrap()
    }
    /// The device's word decides, and stands from then on. Sectors of `lost` may be errors.
    pub fn settle(&mut self, device: &dyn BlockDevice, lost: &[u64], context: &str) {
        let mut found = vec![0; SECTOR_BYTES];
        for (l, versions) in (0u64..).zip(&mut self.0) {
            match device.read(Lba(l), &mut found) {
                Ok(()) => {}
                Err(_) if lost.contains(&l) => continue,
                Err(error) => panic!("{context}: sector {l}: {error}"),
            }
            let holds = versions.iter().rev().find(|id| content(l, **id) == found).copied();
            *versions =
                vec![holds.unwrap_or_else(|| panic!("{context}: sector {l} holds none of {versions:?}"))];
        }
    }
    /// Every sector has its last version, but for those that are lost.
    pub fn assert_holds(&mut self, device: &dyn BlockDevice, lost: &[u64], context: &str) {
        self.0.iter_mut().for_each(|versions| drop(versions.drain(..versions.len() - 1)));
        self.settle(device, lost, context);
    }
}

/// An array's disks and an SSD.
pub struct World {
    pub rig: Rig,
    pub ssd: Arc<RamDisk>,
    /// The cache's, if it has one.
    pub nvram: Option<Arc<RamDisk>>,
    pub scheme: Scheme,
    /// The SSD as the engine has it.
    pub seen: Mutex<Option<Arc<Slow>>>,
}

pub fn options(rng: &mut SmallRng) -> CacheOptions {
    CacheOptions {
        staging_bytes: Some(if rng.random_bool(0.7) { 4096 } else { 12_000 }),
        window: Some([0, 8, 60][rng.random_range(0..3)]),
        dirty_high: rng.random_range(0.3..0.8),
        dirty_low: 0.3,
        stale_rows_max: rng.random_range(3..30),
        idle_after: Nanos(if rng.random_bool(0.3) { 200_000 } else { 1_000_000_000 }),
        without_cache: false,
    }
}

/// Nothing is cleaned unless it must be, and nothing is in memory only.
pub fn lazy() -> CacheOptions {
    CacheOptions {
        staging_bytes: Some(4096),
        window: Some(0),
        dirty_high: 0.95,
        dirty_low: 0.5,
        stale_rows_max: 1000,
        idle_after: Nanos(1 << 60),
        without_cache: false,
    }
}

impl World {
    pub fn new(kind: Kind, scheme: Scheme, env: Arc<dyn Env>, seed: u64) -> World {
        let rig = Rig::new(kind, env, seed);
        let ssd = RamDisk::new(DATA_START + PAGES + 1, &rig.power);
        World { rig, ssd, nvram: None, scheme, seen: Mutex::default() }
    }

    /// With the smallest NVRAM that there may be.
    pub fn with_nvram(self) -> World {
        World { nvram: Some(RamDisk::new(NVRAM_SECTORS, &self.rig.power)), ..self }
    }

    /// With so many pages: a page of its log has 253 entries.
    pub fn with_pages(self, pages: u64) -> World {
        World { ssd: RamDisk::new(DATA_START + pages + 1, &self.rig.power), ..self }
    }

    /// The generation of the half of its NVRAM that counts: it grows when a half is full.
    pub fn nvram_generation(&self) -> u64 {
        let mut sector = vec![0; SECTOR_BYTES];
        let generations = [0, NVRAM_SECTORS / 2].map(|half| {
            self.nvram.as_ref().unwrap().read(Lba(half), &mut sector).unwrap();
            u64::from_le_bytes(sector[24..32].try_into().unwrap())
        });
        generations.into_iter().max().unwrap()
    }

    /// Rows that were being cleaned when the power went, as its NVRAM says (docs/formats/array.md): nobody knows
    /// whether their parity has their deltas.
    pub fn rows_being_cleaned(&self) -> BTreeSet<u64> {
        let number = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let half_bytes = NVRAM_SECTORS as usize / 2 * SECTOR_BYTES;
        let mut halves = [0, NVRAM_SECTORS / 2].map(|first| {
            let mut half = vec![0; half_bytes];
            self.nvram.as_ref().unwrap().read(Lba(first), &mut half).unwrap();
            half
        });
        halves.sort_by_key(|half| if half.starts_with(b"VLMCNVRM") { number(half, 24) } else { 0 });
        let [_, newest] = halves;
        let (mark, mut rest, mut begun) = (number(&newest, 56), &newest[SECTOR_BYTES..], BTreeMap::new());
        loop {
            let sizes = if rest.len() < 16 { 0 } else { number(rest, 0) };
            let (crc, bytes) = (sizes as u32, (sizes >> 32) as usize);
            let is_whole = bytes > 0 && 16 + bytes <= rest.len() && number(rest, 8) == mark;
            if !is_whole || crc != crc32c(&rest[4..16 + bytes]) {
                return begun.into_keys().collect();
            }
            let (mut records, behind) = (&rest[16..16 + bytes], &rest[16 + bytes..]);
            while !records.is_empty() {
                let bytes = usize::from(u16::from_le_bytes(records[..2].try_into().unwrap()));
                let (record, more) = records.split_at(4 + bytes);
                match record[2] {
                    10 => drop(begun.insert(number(record, 4), number(record, 12))),
                    11 if begun.get(&number(record, 4)) <= Some(&number(record, 12)) => {
                        begun.remove(&number(record, 4));
                    }
                    _ => {}
                }
                records = more;
            }
            rest = behind;
        }
    }

    /// Whether the first page of its log was written.
    pub fn has_logged(&self) -> bool {
        let mut sector = vec![0; SECTOR_BYTES];
        self.ssd.read(Lba(1), &mut sector).unwrap();
        sector.starts_with(b"VLMCLOGP")
    }

    fn nvram_device(&self) -> Option<Device> {
        self.nvram.as_ref().map(|nvram| self.rig.device(nvram))
    }

    pub fn device(&self) -> Arc<Slow> {
        let slow = Slow::over(self.ssd.clone(), &self.rig.env);
        *self.seen.lock() = Some(slow.clone());
        slow
    }

    /// A new cache.
    pub fn attach(&self, options: CacheOptions) -> CachedArray {
        self.attach_to(self.rig.assemble(&[]), options)
    }

    /// The same of an array over these disks.
    pub fn attach_to(&self, array: Array, options: CacheOptions) -> CachedArray {
        // Segments where there are some: KDD in vellum mode.
        let segment_pages = Some([8, 4, 0, 8][self.rig.kind.members - 3]);
        let format = CacheFormat { ways: 16, segment_pages, ..CacheFormat::new(self.scheme) };
        CachedArray::attach_with_nvram(array, self.device(), self.nvram_device(), &format, options).unwrap()
    }

    /// What `detail` foresees is what is found.
    pub fn open(&self, without: &[usize], options: CacheOptions) -> CachedArray {
        let foreseen = self.foresee(without);
        let cached = self.try_open(without, options).unwrap();
        if let Ok(foreseen) = foreseen {
            assert_eq!(found(&cached), foreseen);
        }
        cached
    }

    /// What an opening will find, as far as reading tells; an error if it is refused, but by force.
    pub fn foresee(&self, without: &[usize]) -> Result<Foreseen> {
        let there = self.rig.disks.iter().enumerate().filter(|(role, _)| !without.contains(role));
        let devices: Vec<Device> = there.map(|(_, disk)| disk.clone() as Device).collect();
        let survey = survey(&devices).unwrap();
        let log = self.rig.log.clone().map(|log| log as Device);
        let stale = survey.stale_rows(&devices, log.as_ref())?;
        let (ssd, nvram) = (self.ssd.clone() as Device, self.nvram.clone().map(|nvram| nvram as Device));
        foresee(&survey, &stale, Some(&ssd), nvram.as_ref())
    }

    pub fn try_open(&self, without: &[usize], options: CacheOptions) -> Result<CachedArray> {
        let array = self.rig.try_assemble(without)?;
        CachedArray::open_with_nvram(array, Some(self.device()), self.nvram_device(), options)
    }

    /// The same devices.
    pub fn again(&self) -> World {
        let Rig { kind, env, power, disks, log } = &self.rig;
        let (env, power, disks, log) = (env.clone(), power.clone(), disks.clone(), log.clone());
        World {
            rig: Rig { kind: *kind, env, power, disks, log },
            ssd: self.ssd.clone(),
            nvram: self.nvram.clone(),
            scheme: self.scheme,
            seen: Mutex::default(),
        }
    }

    /// What is left after the power went.
    pub fn after_cut(&self, seed: u64) -> World {
        let rig = self.rig.after_cut(seed);
        let nvram = self.nvram.as_ref().map(|nvram| nvram.after_cut(&rig.power));
        World { ssd: self.ssd.after_cut(&rig.power), nvram, rig, scheme: self.scheme, seen: Mutex::default() }
    }

    /// The ledger says what was written to the SSD.
    pub fn assert_ledger(&self, cached: &CachedArray) {
        let written = self.seen.lock().as_ref().unwrap().written.load(Relaxed) * SECTOR_BYTES as u64;
        assert_eq!(cached.status().ledger.programmed_total(), written, "{:?}", cached.status().ledger);
    }

    /// Whatever member is left out, the model's data are read.
    pub fn assert_parity(&self, model: &mut Model, context: &str) {
        for role in 0..self.rig.kind.members {
            let array = self.rig.fork(1).assemble(&[role]);
            model.assert_holds(&array, &[], &format!("{context}, without member {role}"));
        }
    }
}

/// What an opening found.
pub fn found(cached: &CachedArray) -> Foreseen {
    let CacheStatus { stale_rows, unknown_rows, emptied, .. } = cached.status();
    Foreseen { stale_rows, known_rows: stale_rows - unknown_rows, emptied }
}

/// One task's requests until the power goes, or they are done. Half of them go to a few rows.
fn client(
    cached: &CachedArray,
    model: &Mutex<Model>,
    task: u64,
    seed: u64,
    steps: usize,
    event: &(dyn Fn(usize) + Send + Sync),
) -> Result<()> {
    let mut rng = rng(seed * TASKS + task);
    let sectors = cached.info().sectors;
    let mut id = seed as u32 % 1000 * 1000 + task as u32 * 100_000;
    for step in 0..steps {
        if task == 0 {
            event(step);
        }
        id += rng.random_range(1..4);
        let span = if rng.random_bool(0.6) { sectors / 8 } else { sectors };
        let lba = rng.random_range(0..span / TASKS) * TASKS + task;
        match rng.random_range(0..20) {
            0..11 => {
                model.lock().wrote(lba, id);
                cached.write(Lba(lba), &content(lba, id), rng.random_bool(0.2))?;
            }
            11..16 => {
                let count = if rng.random_bool(0.7) { 1 } else { rng.random_range(1..12) };
                let count = count.min(sectors - lba);
                let mut out = vec![0; count as usize * SECTOR_BYTES];
                cached.read(Lba(lba), &mut out)?;
                // Our own sectors are what we wrote last.
                for l in (lba..lba + count).filter(|l| l % TASKS == task) {
                    let found = &out[(l - lba) as usize * SECTOR_BYTES..][..SECTOR_BYTES];
                    model.lock().assert_read(l, found);
                }
            }
            16 => {
                model.lock().wrote(lba, 0);
                cached.trim(Lba(lba), 1)?;
            }
            17 => rng_nap(cached, &mut rng),
            _ => {
                cached.flush()?;
                model.lock().flushed(task);
            }
        }
    }
    Ok(())
}

/// Lets the array be idle for a while.
fn rng_nap(cached: &CachedArray, rng: &mut SmallRng) {
    let env = cached.env();
    env.sleep_until(env.now() + Nanos(rng.random_range(0..3_000_000)));
}

/// Runs the tasks, until the power goes or a disk has no room.
pub fn run(
    cached: &Arc<CachedArray>,
    env: &Arc<dyn Env>,
    model: &Arc<Mutex<Model>>,
    seed: u64,
    steps: usize,
    event: Arc<dyn Fn(usize) + Send + Sync>,
) {
    let tasks = (0..TASKS).map(|task| {
        let (cached, model, event) = (cached.clone(), model.clone(), event.clone());
        let run = move || match client(&cached, &model, task, seed, steps, &*event) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::PowerLost | ErrorKind::NoSpace) => {}
            Err(error) => panic!("task {task}: {error}"),
        };
        env.clone().spawn("client", Box::new(run))
    });
    tasks.collect::<Vec<_>>().into_iter().for_each(Task::join);
}

/// One writer of runs of sectors, and of whole rows that are zeroed, whatever the others do: alone.
pub fn run_long(cached: &CachedArray, model: &mut Model, seed: u64, steps: usize) -> Result<()> {
    let mut rng = rng(seed);
    let (sectors, per_row) = (cached.info().sectors, cached.array().status().shape.row_sectors());
    for id in (501..).take(steps) {
        let count = rng.random_range(1..=per_row * 2).min(sectors);
        let lba = rng.random_range(0..=sectors - count);
        match rng.random_range(0..8) {
            0 => {
                (lba..lba + count).for_each(|l| model.wrote(l, 0));
                cached.write_zeroes(Lba(lba), count, false)?;
            }
            1..3 => {
                let mut out = vec![0; count as usize * SECTOR_BYTES];
                cached.read(Lba(lba), &mut out)?;
                for (l, found) in (lba..).zip(out.chunks(SECTOR_BYTES)) {
                    assert!(found == content(l, model.last(l)), "sector {l}");
                }
            }
            _ => {
                (lba..lba + count).for_each(|l| model.wrote(l, id));
                let data: Vec<u8> = (lba..lba + count).flat_map(|l| content(l, id)).collect();
                cached.write(Lba(lba), &data, false)?;
            }
        }
    }
    Ok(())
}

/// The array alone.
pub fn alone(world: &World, without: &[usize]) -> Array {
    world.rig.assemble(without)
}
