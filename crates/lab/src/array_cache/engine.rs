//! The same workload through the engine itself: `vellum-array` as it runs in production, in virtual time on the
//! disks and the SSD that `timed` models (docs/decisions/0023-array-cache.md).
//!
//! 1. Members are modelled drives, one call at a time in the order in which calls come. The array's log, and with it
//!    the bitmap of stale rows, is on a device that takes no time: the paper's NVRAM.
//! 2. Contents are real: a version of a sector differs from any other by the same number of bytes, that no codec
//!    shortens ([`DeltaModel::Same`](super::DeltaModel::Same)).

use super::Mode;
use super::timed::{Clocked, Hardware, Ssd, Times};
use super::workload::{PageKind, PageRequest, Workload};
use rand::RngCore;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::{CacheFormat, CacheOptions, CachedArray};
use vellum_array::{Array, Device, Format, LogPlace, Options, Shape, assemble, create};
use vellum_base::sync::Mutex;
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Env, Error, Lba, Nanos, Result, SECTOR_BYTES, Task};
use vellum_codes::pattern::Pattern;
use vellum_media::ramdisk::Power;
use vellum_media::{Hdd, RamDisk};
use vellum_sim::Sim;
use vellum_trace::generate::Seeded;

/// Sectors of a member beside its data: superblocks, bitmaps, a ring that nothing is written to.
const MEMBER_HEAD: u64 = 1 << 14;
const LOG_SECTORS: u64 = 1 << 14;

/// What the engine did.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// How long requests took.
    pub times: Times,
    /// Pages written to flash.
    pub flash_pages: u64,
    /// Share of reads and writes that hit.
    pub hit_ratio: f64,
    /// The array as it came out: the one to model.
    pub shape: Shape,
    /// Pages of its cache, likewise.
    pub pages: u32,
}

/// A workload of whole sectors whose versions differ by `changed_bytes` through the engine in this mode: so many
/// clients that each ask when they were answered, and a cache of about so many pages.
///
/// # Errors
/// What the engine says.
pub fn run_engine(
    mode: &Mode,
    workload: &Arc<Workload>,
    changed_bytes: usize,
    pages: u32,
    hardware: &Hardware,
    clients: usize,
    seed: u64,
) -> Result<Ran> {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let below = Below::new(mode, pages, hardware, &env, seed)?;
        let device = below.open(mode, pages, &env)?;
        let clock = closed_loop(device.clone(), workload.clone(), changed_bytes, clients, &env)?;
        let busy: f64 = below.members.iter().map(|member| member.report().busy.as_secs_f64()).sum();
        let times = clock.times(busy / below.members.len() as f64);
        let status = device.status();
        let (hits, all) = (
            status.read_hits + status.write_hits,
            status.read_hits + status.write_hits + status.read_misses + status.write_misses,
        );
        let ran = Ran {
            times,
            flash_pages: status.ledger.programmed_total() / SECTOR_BYTES as u64,
            hit_ratio: hits as f64 / all.max(1) as f64,
            shape: device.array().status().shape,
            pages: status.pages,
        };
        Arc::into_inner(device).expect("the clients are gone").close()?;
        Ok(ran)
    })
}

/// What lies below an array.
struct Below {
    members: Vec<Arc<Hdd<Arc<RamDisk>>>>,
    log: Device,
    ssd: Device,
}

impl Below {
    /// Every sector has its first version; that took no time.
    fn new(mode: &Mode, pages: u32, hardware: &Hardware, env: &Arc<dyn Env>, seed: u64) -> Result<Below> {
        let shape = &hardware.shape;
        let power = Power::new(seed);
        let sectors = shape.rows * u64::from(shape.chunk_sectors) + MEMBER_HEAD;
        let plain: Vec<_> = (0..shape.members).map(|_| RamDisk::new(sectors, &power)).collect();
        let log: Device = RamDisk::new(LOG_SECTORS, &power);
        let format =
            Format { chunk_sectors: shape.chunk_sectors, log: LogPlace::Device, ..Format::new(shape.level) };
        let devices: Vec<Device> = plain.iter().map(|disk| disk.clone() as Device).collect();
        create(&devices, Some(&log), &**env, &format)?;
        prefill(assemble(&devices, Some(&log), env.clone(), Options::default())?, shape)?;
        let drive = |disk: Arc<RamDisk>| Hdd::new(disk, env.clone(), hardware.disk).map(Arc::new);
        let members = plain.into_iter().map(drive).collect::<Result<_>>()?;
        let ssd = RamDisk::new(ssd_sectors(mode, pages), &power);
        let timed = Mutex::new(Ssd::new(&hardware.ssd));
        let ssd = Arc::new(TimedSsd { inner: ssd, env: env.clone(), timed });
        Ok(Below { members, log, ssd })
    }

    /// With the thresholds and buffers that the mode is modelled with; nothing is cleaned for idleness.
    fn open(&self, mode: &Mode, pages: u32, env: &Arc<dyn Env>) -> Result<Arc<CachedArray>> {
        let members: Vec<Device> = self.members.iter().map(|member| member.clone() as Device).collect();
        let array = assemble(&members, Some(&self.log), env.clone(), Options::default())?;
        let recipe = mode.recipe(pages);
        let options = CacheOptions {
            staging_bytes: Some(recipe.staging_bytes),
            window: Some(recipe.window),
            dirty_high: recipe.dirty_high,
            dirty_low: recipe.dirty_low,
            stale_rows_max: u64::MAX,
            idle_after: Nanos::from_secs_f64(1e6),
            without_cache: false,
        };
        let cached = match mode.scheme {
            Scheme::NoSsd => CachedArray::open(array, None, options),
            scheme => {
                let format = CacheFormat::new(scheme);
                CachedArray::attach(array, self.ssd.clone(), &format, options)
            }
        };
        cached.map(Arc::new)
    }
}

/// Writes the first version of every sector, row by row.
fn prefill(array: Array, shape: &Shape) -> Result<()> {
    let mut row = vec![0; shape.row_sectors() as usize * SECTOR_BYTES];
    for first in (0..shape.rows).map(|row| row * shape.row_sectors()) {
        (first..).zip(row.chunks_mut(SECTOR_BYTES)).for_each(|(lba, sector)| fill(lba, 0, 0, sector));
        array.write(Lba(first), &row, false)?;
    }
    array.close()
}

/// Of an SSD with so many pages, its log, its superblocks and what segments are aligned to.
fn ssd_sectors(mode: &Mode, pages: u32) -> u64 {
    let recipe = mode.recipe(pages);
    let head = u64::from(recipe.log_pages) + u64::from(recipe.segment_pages);
    u64::from(pages) + (head + 2).next_multiple_of(256) + 1
}

/// All requests by so many clients.
fn closed_loop(
    device: Arc<CachedArray>,
    workload: Arc<Workload>,
    changed_bytes: usize,
    clients: usize,
    env: &Arc<dyn Env>,
) -> Result<Clocked> {
    let (next, clock) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Clocked::new(env.now())?)));
    let failed: Arc<Mutex<Option<Error>>> = Arc::default();
    let client = |_| {
        let (device, workload, next) = (device.clone(), workload.clone(), next.clone());
        let (clock, failed, own_env) = (clock.clone(), failed.clone(), env.clone());
        let run = move || {
            let mut buffer = Vec::new();
            while let Some(request) = workload.requests.get(next.fetch_add(1, Relaxed)) {
                let came = own_env.now();
                let version = next.load(Relaxed) as u64;
                if let Err(error) = ask(&device, request, version, changed_bytes, &mut buffer) {
                    *failed.lock() = Some(error);
                    return;
                }
                clock.lock().answered(request.kind, came, own_env.now());
            }
        };
        env.clone().spawn("client", Box::new(run))
    };
    (0..clients).map(client).collect::<Vec<_>>().into_iter().for_each(Task::join);
    match failed.lock().take() {
        Some(error) => Err(error),
        None => Ok(Arc::into_inner(clock).expect("the clients are gone").into_inner()),
    }
}

fn ask(
    device: &CachedArray,
    request: &PageRequest,
    version: u64,
    changed_bytes: usize,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    let sectors = u64::from(request.sectors);
    buffer.resize(request.sectors as usize * SECTOR_BYTES, 0);
    match request.kind {
        PageKind::Read => device.read(request.lba, buffer),
        PageKind::Forget => device.trim(request.lba, sectors),
        PageKind::Write => {
            for (lba, sector) in (request.lba.0..).zip(buffer.chunks_mut(SECTOR_BYTES)) {
                fill(lba, version, changed_bytes, sector);
            }
            device.write(request.lba, buffer, false)
        }
    }
}

/// A version of a sector: its end is the sector's own, its beginning the version's.
fn fill(lba: u64, version: u64, changed_bytes: usize, sector: &mut [u8]) {
    Pattern::unique(lba + 1).fill(sector);
    // Not a pattern, too: what two of them differ by repeats every eight bytes.
    Seeded::new(version << 24).fill_bytes(&mut sector[..changed_bytes]);
}

/// A device as slow as an SSD of several dies. What does not move data takes no time.
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
