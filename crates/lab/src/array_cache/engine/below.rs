//! The devices under a cached array: modelled drives, a modelled SSD, and non-volatile memory.

use super::EngineRun;
use super::clients::fill;
use crate::array_cache::timed::Ssd;
use std::sync::Arc;
use vellum_array::cache::engine::{CacheFormat, CacheOptions, CachedArray};
use vellum_array::cache::{Recipe, Scheme};
use vellum_array::{Array, Device, Format, LogPlace, Options, Shape, assemble, create};
use vellum_base::sync::Mutex;
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Env, Lba, Nanos, Result, SECTOR_BYTES};
use vellum_media::ramdisk::Power;
use vellum_media::{Hdd, HddModel, Preset, RamDisk};

/// Sectors of a member apart from its data: superblocks, bitmaps, the ring of a log on the members.
const MEMBER_HEAD: u64 = 1 << 14;
const LOG_SECTORS: u64 = 1 << 14;
/// 4 MiB for a cache: many times what it stages.
const NVRAM_SECTORS: u64 = 1 << 10;

/// Contents of non-volatile memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nvram {
    /// Nothing: the array's log, and with it the bitmap of stale rows, is on the members.
    Nothing,
    /// The array's log: as in the paper, for a cache whose memory is lost in a power cut.
    ArrayLog,
    /// Also what the cache has in memory, which thus survives a power cut.
    ArrayLogAndCache,
}

/// See the module.
pub(super) struct Below {
    pub power: Arc<Power>,
    disks: Vec<Arc<RamDisk>>,
    members: Vec<Arc<Hdd<Arc<RamDisk>>>>,
    log: Option<Arc<RamDisk>>,
    ssd: Arc<RamDisk>,
    timed_ssd: Device,
    nvram: Option<Arc<RamDisk>>,
    models: (HddModel, Preset),
    env: Arc<dyn Env>,
}

impl Below {
    /// Every sector has its first version; writing these took no time.
    pub fn new(run: &EngineRun<'_>, nvram: Nvram, env: &Arc<dyn Env>) -> Result<Below> {
        let (shape, models) = (&run.hardware.shape, (run.hardware.disk, run.hardware.ssd));
        let power = Power::new(run.seed);
        let sectors = shape.rows * u64::from(shape.chunk_sectors) + MEMBER_HEAD;
        let disks: Vec<_> = (0..shape.members).map(|_| RamDisk::new(sectors, &power)).collect();
        let log = (nvram != Nvram::Nothing).then(|| RamDisk::new(LOG_SECTORS, &power));
        let place = if log.is_some() { LogPlace::Device } else { LogPlace::Members };
        let format = Format { chunk_sectors: shape.chunk_sectors, log: place, ..Format::new(shape.level) };
        let (devices, log_device) = (plain(&disks), log.clone().map(|log| log as Device));
        create(&devices, log_device.as_ref(), &**env, &format)?;
        prefill(assemble(&devices, log_device.as_ref(), env.clone(), Options::default())?, shape)?;
        let kept = (nvram == Nvram::ArrayLogAndCache).then(|| RamDisk::new(NVRAM_SECTORS, &power));
        let ssd = RamDisk::new(ssd_sectors(&run.mode.recipe(run.pages)), &power);
        Below::of(power, disks, log, ssd, kept, models, env)
    }

    fn of(
        power: Arc<Power>,
        disks: Vec<Arc<RamDisk>>,
        log: Option<Arc<RamDisk>>,
        ssd: Arc<RamDisk>,
        nvram: Option<Arc<RamDisk>>,
        models: (HddModel, Preset),
        env: &Arc<dyn Env>,
    ) -> Result<Below> {
        let drive = |disk: &Arc<RamDisk>| Hdd::new(disk.clone(), env.clone(), models.0).map(Arc::new);
        let members = disks.iter().map(drive).collect::<Result<_>>()?;
        let timed = Mutex::new(Ssd::new(&models.1));
        let timed_ssd = Arc::new(TimedSsd { inner: ssd.clone(), env: env.clone(), timed });
        Ok(Below { power, disks, members, log, ssd, timed_ssd, nvram, models, env: env.clone() })
    }

    /// What is left after a power cut, with the power on again.
    pub fn after_cut(&self, seed: u64) -> Result<Below> {
        let power = Power::new(seed);
        let left = |disk: &Arc<RamDisk>| disk.after_cut(&power);
        let disks = self.disks.iter().map(left).collect();
        let (log, nvram) = (self.log.as_ref().map(left), self.nvram.as_ref().map(left));
        Below::of(power.clone(), disks, log, left(&self.ssd), nvram, self.models, &self.env)
    }

    /// The array with a new cache, with the thresholds and buffers of the mode's model; nothing is cleaned because of
    /// idleness.
    pub fn attach(&self, run: &EngineRun<'_>) -> Result<Arc<CachedArray>> {
        let (array, options) = (self.assemble()?, options(run));
        let cached = match run.mode.scheme {
            Scheme::NoSsd => CachedArray::open(array, None, options),
            scheme => {
                let (format, nvram) = (CacheFormat::new(scheme), self.nvram());
                CachedArray::attach_with_nvram(array, self.timed_ssd.clone(), nvram, &format, options)
            }
        };
        cached.map(Arc::new)
    }

    /// The array with its existing cache.
    pub fn open(&self, run: &EngineRun<'_>) -> Result<Arc<CachedArray>> {
        let ssd = (run.mode.scheme != Scheme::NoSsd).then(|| self.timed_ssd.clone());
        CachedArray::open_with_nvram(self.assemble()?, ssd, self.nvram(), options(run)).map(Arc::new)
    }

    /// Seconds that members were busy, on average.
    pub fn busy_s(&self) -> f64 {
        let busy: f64 = self.members.iter().map(|member| member.report().busy.as_secs_f64()).sum();
        busy / self.members.len() as f64
    }

    fn assemble(&self) -> Result<Array> {
        let members: Vec<Device> = self.members.iter().map(|member| member.clone() as Device).collect();
        let log = self.log.clone().map(|log| log as Device);
        assemble(&members, log.as_ref(), self.env.clone(), Options::default())
    }

    fn nvram(&self) -> Option<Device> {
        self.nvram.clone().map(|nvram| nvram as Device)
    }
}

fn plain(disks: &[Arc<RamDisk>]) -> Vec<Device> {
    disks.iter().map(|disk| disk.clone() as Device).collect()
}

fn options(run: &EngineRun<'_>) -> CacheOptions {
    let recipe = run.mode.recipe(run.pages);
    CacheOptions {
        staging_bytes: Some(recipe.staging_bytes),
        window: Some(recipe.window),
        dirty_high: recipe.dirty_high,
        dirty_low: recipe.dirty_low,
        stale_rows_max: u64::MAX,
        idle_after: Nanos::from_secs_f64(1e6),
        without_cache: false,
    }
}

/// Writes the first version of every sector, row by row.
fn prefill(array: Array, shape: &Shape) -> Result<()> {
    let mut row = vec![0; shape.row_sectors() as usize * SECTOR_BYTES];
    for first in (0..shape.rows).map(|row| row * shape.row_sectors()) {
        let sectors = (first..).zip(row.chunks_mut(SECTOR_BYTES));
        sectors.for_each(|(lba, sector)| fill(lba, 0, 0, sector));
        array.write(Lba(first), &row, false)?;
    }
    array.close()
}

/// Sectors of an SSD with its pages, its log, its superblocks and the alignment of segments.
fn ssd_sectors(recipe: &Recipe) -> u64 {
    let head = u64::from(recipe.log_pages) + u64::from(recipe.segment_pages);
    u64::from(recipe.pages) + (head + 2).next_multiple_of(256) + 1
}

/// A device as slow as an SSD of several dies. Calls that move no data take no time.
struct TimedSsd {
    inner: Arc<RamDisk>,
    env: Arc<dyn Env>,
    timed: Mutex<Ssd>,
}

impl TimedSsd {
    fn serve(&self, reads: usize, writes: usize) {
        let page = |bytes: usize| (bytes / SECTOR_BYTES) as u32;
        let done = self.timed.lock().serve(self.env.now(), page(reads), page(writes));
        self.env.sleep_until(done);
    }
}

impl BlockDevice for TimedSsd {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        self.inner.read(lba, buf)?;
        self.serve(buf.len(), 0);
        Ok(())
    }
    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        self.inner.write(lba, data, fua)?;
        self.serve(0, data.len());
        Ok(())
    }
    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.inner.trim(lba, sectors)
    }
    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.inner.write_zeroes(lba, sectors, fua)
    }
    fn discard(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.inner.discard(lba, sectors)
    }
    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }
    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.inner.allocation(lba, sectors)
    }
}
