//! Arrays on disks in memory whose calls take random times, so that tasks interleave; and the obvious oracle.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use vellum_array::{Array, Device, Format, Level, LogPlace, Options, assemble, create};
use vellum_base::sync::Mutex;
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Env, Lba, Nanos, Result, SECTOR_BYTES};
use vellum_media::RamDisk;
use vellum_media::ramdisk::Power;

pub(crate) type Sector = [u8; SECTOR_BYTES];

/// What kind of array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub level: Level,
    pub members: usize,
    pub chunk_sectors: u32,
    pub log: LogPlace,
}

impl Kind {
    /// Small ones of all sorts: rows are few, and the log's ring is full all the time.
    pub fn all() -> Vec<Kind> {
        let mut kinds = Vec::new();
        for (level, members) in [(Level::Raid5, 3), (Level::Raid5, 5), (Level::Raid6, 4), (Level::Raid6, 6)] {
            for (chunk_sectors, log) in [(4, LogPlace::Members), (2, LogPlace::Device)] {
                kinds.push(Kind { level, members, chunk_sectors, log });
            }
        }
        kinds
    }

    /// Five members, and six: with the log on them and on a device.
    pub fn large() -> Vec<Kind> {
        Kind::all().into_iter().filter(|kind| kind.members > 4).collect()
    }

    pub fn format(&self) -> Format {
        Format { chunk_sectors: self.chunk_sectors, log: self.log, log_sectors: 1, ..Format::new(self.level) }
    }
}

/// Disks, one power, and an array's kind.
pub(crate) struct Rig {
    pub kind: Kind,
    pub env: Arc<dyn Env>,
    pub power: Arc<Power>,
    pub disks: Vec<Arc<RamDisk>>,
    pub log: Option<Arc<RamDisk>>,
}

/// Rows of a test's array, about.
const ROWS: u64 = 24;

impl Rig {
    /// A new array.
    pub fn new(kind: Kind, env: Arc<dyn Env>, seed: u64) -> Rig {
        Rig::of_sectors(256 + ROWS * u64::from(kind.chunk_sectors) + 1, kind, env, seed)
    }

    /// One whose disks have so many sectors.
    pub fn of_sectors(sectors: u64, kind: Kind, env: Arc<dyn Env>, seed: u64) -> Rig {
        let power = Power::new(seed);
        let disks: Vec<_> = (0..kind.members).map(|_| RamDisk::new(sectors, &power)).collect();
        let log = (kind.log == LogPlace::Device).then(|| RamDisk::new(75, &power));
        let rig = Rig { kind, env, power, disks, log };
        create(&rig.devices(&[]), rig.log_device().as_ref(), &*rig.env, &kind.format()).unwrap();
        rig
    }

    /// The disks but for those left out.
    pub fn devices(&self, without: &[usize]) -> Vec<Device> {
        let kept = self.disks.iter().enumerate().filter(|(role, _)| !without.contains(role));
        kept.map(|(_, disk)| self.device(disk)).collect()
    }

    pub fn device(&self, disk: &Arc<RamDisk>) -> Device {
        Slow::over(disk.clone(), &self.env)
    }

    pub fn log_device(&self) -> Option<Device> {
        self.log.as_ref().map(|log| self.device(log))
    }

    pub fn try_assemble(&self, without: &[usize]) -> Result<Array> {
        let options = Options { lanes: 2, force: false };
        assemble(&self.devices(without), self.log_device().as_ref(), self.env.clone(), options)
    }

    pub fn assemble(&self, without: &[usize]) -> Array {
        self.try_assemble(without).unwrap()
    }

    /// What is left after the power went, with power again.
    pub fn after_cut(&self, seed: u64) -> Rig {
        let power = Power::new(seed);
        Rig {
            kind: self.kind,
            env: self.env.clone(),
            disks: self.disks.iter().map(|disk| disk.after_cut(&power)).collect(),
            log: self.log.as_ref().map(|log| log.after_cut(&power)),
            power,
        }
    }

    /// The array, every sector written.
    pub fn filled(&self) -> (Array, Oracle) {
        let array = self.assemble(&[]);
        let oracle = filled(&array);
        (array, oracle)
    }

    /// The first sector behind the members' rings.
    pub fn ring_end(&self) -> u64 {
        5 + u64::from(vellum_array::examine(&self.device(&self.disks[0])).unwrap().plot.log_sectors)
    }

    /// Copies of all disks, with power of their own.
    pub fn fork(&self, seed: u64) -> Rig {
        let power = Power::new(seed);
        Rig {
            kind: self.kind,
            env: self.env.clone(),
            disks: self.disks.iter().map(|disk| disk.fork(&power)).collect(),
            log: self.log.as_ref().map(|log| log.fork(&power)),
            power,
        }
    }
}

/// A device whose calls take up to 100 microseconds, and which counts them.
pub(crate) struct Slow {
    inner: Arc<dyn BlockDevice>,
    env: Arc<dyn Env>,
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    /// Sectors.
    pub written: AtomicU64,
    /// Sectors.
    pub discarded: AtomicU64,
    /// Whether it is a device that trims.
    pub trims: AtomicBool,
    /// Sectors that were discarded and not written since: nobody may read them.
    gone: Mutex<BTreeSet<u64>>,
}

impl Slow {
    pub fn over(inner: Arc<dyn BlockDevice>, env: &Arc<dyn Env>) -> Arc<Slow> {
        let [reads, writes, written, discarded] = [const { AtomicU64::new(0) }; 4];
        let (trims, gone) = (AtomicBool::new(true), Mutex::default());
        Arc::new(Slow { inner, env: env.clone(), reads, writes, written, discarded, trims, gone })
    }

    fn wait(&self) {
        self.env.sleep_until(self.env.now() + Nanos(self.env.random() % 100_000));
    }
}

impl BlockDevice for Slow {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { trims: self.trims.load(Relaxed), ..self.inner.info() }
    }
    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        self.wait();
        self.reads.fetch_add(1, Relaxed);
        let end = lba.0 + (buf.len() / SECTOR_BYTES) as u64;
        let gone = self.gone.lock().range(lba.0..end).next().copied();
        self.inner.read(lba, buf)?;
        assert_eq!(gone, None, "a sector is read that was discarded");
        Ok(())
    }
    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        self.wait();
        let sectors = (data.len() / SECTOR_BYTES) as u64;
        self.writes.fetch_add(1, Relaxed);
        self.written.fetch_add(sectors, Relaxed);
        self.gone.lock().retain(|sector| !(lba.0..lba.0 + sectors).contains(sector));
        self.inner.write(lba, data, fua)
    }
    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.wait();
        self.inner.trim(lba, sectors)
    }
    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.wait();
        self.inner.write_zeroes(lba, sectors, fua)
    }
    fn discard(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.wait();
        self.inner.discard(lba, sectors)?;
        self.discarded.fetch_add(sectors, Relaxed);
        self.gone.lock().extend(lba.0..lba.0 + sectors);
        Ok(())
    }
    fn flush(&self) -> Result<()> {
        self.wait();
        self.inner.flush()
    }
    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.inner.allocation(lba, sectors)
    }
}

/// What happens before a write to these sectors, or before a flush, which has none; it may fail them.
type Hook = Box<dyn Fn(&Range<u64>) -> Result<()> + Send + Sync>;

/// A disk whose calls a test has a hand in.
pub(crate) struct Hooked {
    pub disk: Arc<RamDisk>,
    /// Writes and flushes.
    pub before_change: Hook,
    pub before_read: Hook,
}

/// For calls that a test has no hand in.
pub(crate) fn no_hook() -> Hook {
    Box::new(|_| Ok(()))
}

impl BlockDevice for Hooked {
    fn info(&self) -> DeviceInfo {
        self.disk.info()
    }
    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        (self.before_read)(&(lba.0..lba.0 + (buf.len() / SECTOR_BYTES) as u64))?;
        self.disk.read(lba, buf)
    }
    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        (self.before_change)(&(lba.0..lba.0 + (data.len() / SECTOR_BYTES) as u64))?;
        self.disk.write(lba, data, fua)
    }
    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.disk.trim(lba, sectors)
    }
    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.disk.write_zeroes(lba, sectors, fua)
    }
    fn flush(&self) -> Result<()> {
        (self.before_change)(&(0..0))?;
        self.disk.flush()
    }
    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.disk.allocation(lba, sectors)
    }
}

/// Content number `id`; 0 is zeros. The others are noise: no two differ by what could be packed.
pub(crate) fn content(id: u32) -> Sector {
    let mut sector = [0; SECTOR_BYTES];
    if id != 0 {
        let mut state = u64::from(id) << 32;
        for word in sector.chunks_exact_mut(8) {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            word.copy_from_slice(&(mixed ^ (mixed >> 27)).to_le_bytes());
        }
    }
    sector
}

/// Versions that each sector may have: the last flushed one first.
#[derive(Clone)]
pub(crate) struct Oracle {
    versions: Vec<Vec<Version>>,
    /// Grows with every request that begins or ends.
    clock: u64,
}

/// What was written to a sector: when that began, and when it was acknowledged, if it was.
#[derive(Clone, Copy, Debug)]
struct Version {
    id: u32,
    began: u64,
    ended: Option<u64>,
}

/// When a request began.
#[derive(Clone, Copy)]
pub(crate) struct Began(u64);

impl Oracle {
    pub fn new(sectors: u64) -> Oracle {
        let first = Version { id: 0, began: 0, ended: Some(0) };
        Oracle { versions: vec![vec![first]; sectors as usize], clock: 0 }
    }
    pub fn wrote(&mut self, lba: u64, id: u32) {
        let began = self.begins().0;
        self.versions[lba as usize].push(Version { id, began, ended: None });
    }
    /// A request begins now.
    pub fn begins(&mut self) -> Began {
        self.clock += 1;
        Began(self.clock)
    }
    /// A write of these sectors that began then is under way.
    pub fn writes(&mut self, Began(began): Began, lba: u64, id: u32) {
        self.versions[lba as usize].push(Version { id, began, ended: None });
    }
    /// It was acknowledged; with `fua` it is durable.
    pub fn acknowledged(&mut self, Began(began): Began, lbas: Range<u64>, fua: bool) {
        self.clock += 1;
        for versions in &mut self.versions[lbas.start as usize..lbas.end as usize] {
            let ours = versions.iter_mut().filter(|version| version.began == began);
            ours.for_each(|version| version.ended = Some(self.clock));
            if fua {
                versions.retain(|version| version.ended.is_none_or(|ended| ended >= began));
            }
        }
    }
    /// A flush that began then has returned: what was written over by something that had been acknowledged by then is
    /// nowhere any more.
    pub fn flush_returned(&mut self, Began(began): Began) {
        for versions in &mut self.versions {
            let durable = versions.iter().filter(|version| version.ended.is_some_and(|ended| ended < began));
            let Some(newest) = durable.map(|version| version.began).max() else { continue };
            versions.retain(|version| version.ended.is_none_or(|ended| ended >= newest));
        }
    }
    /// Sectors of which `is_mine` holds have their last version for sure.
    pub fn flushed(&mut self, is_mine: impl Fn(u64) -> bool) {
        for (_, versions) in self.versions.iter_mut().enumerate().filter(|(lba, _)| is_mine(*lba as u64)) {
            versions.drain(..versions.len() - 1);
        }
    }
    /// After a crash the array's word decides, and stands from then on.
    pub fn settle(&mut self, array: &dyn BlockDevice, context: &str) {
        let mut all = vec![0; self.versions.len() * SECTOR_BYTES];
        array.read(Lba(0), &mut all).unwrap_or_else(|e| panic!("{context}: {e}"));
        for (l, versions) in self.versions.iter_mut().enumerate() {
            let found = &all[l * SECTOR_BYTES..][..SECTOR_BYTES];
            let holds = versions.iter().rev().find(|version| content(version.id) == *found).copied();
            *versions =
                vec![holds.unwrap_or_else(|| panic!("{context}: sector {l} holds none of {versions:?}"))];
        }
    }
    /// The sector may hold this.
    pub fn assert_possible(&self, lba: u64, found: &[u8], context: &str) {
        let versions = &self.versions[lba as usize];
        assert!(
            versions.iter().any(|version| content(version.id) == found),
            "{context}: sector {lba} is none of {versions:?}"
        );
    }
    /// Every sector has its last version.
    pub fn assert_reads_back(&mut self, array: &dyn BlockDevice, context: &str) {
        self.flushed(|_| true);
        self.settle(array, context);
    }
}

/// Sector `l` of the device is content `l + 1`.
pub(crate) fn filled(device: &dyn BlockDevice) -> Oracle {
    let sectors = device.info().sectors;
    let mut oracle = Oracle::new(sectors);
    let data: Vec<u8> = (0..sectors as u32).flat_map(|l| content(l + 1)).collect();
    device.write(Lba(0), &data, false).unwrap();
    (0..sectors).for_each(|l| oracle.wrote(l, l as u32 + 1));
    oracle
}

/// A random request, at most `longest` sectors.
pub(crate) fn random_range(rng: &mut SmallRng, sectors: u64, longest: u64) -> (u64, u64) {
    let count = if rng.random_bool(0.5) { 1 } else { rng.random_range(1..=longest) };
    let count = count.min(sectors);
    (rng.random_range(0..=sectors - count), count)
}

pub(crate) fn rng(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed)
}
