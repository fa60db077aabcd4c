//! A store on raw flash (FlashKV, section 3.2): a table is a superblock, striped over all dies page by page; log,
//! manifest and CURRENT are in the device's NVRAM.
//!
//! Invariants
//! 1. No superblock is erased but by [`Media::erase_table`], when a program of its table failed, or when a new table
//!    takes it.
//! 2. The ledger's causes sum to the pages that the device programmed since it was opened, times their size.

mod pool;
mod queue;
mod superblock;
mod write;
mod zone;

pub use queue::Schedule;

use super::{AreaWriter, Asked, Intent, Media, MediaShape, TableReader, TableWriter};
use crate::journal::{Area, AreaKind};
use pool::Pool;
use queue::{Op, Road};
use std::sync::Arc;
use superblock::{DIES_MAX, Home};
use vellum_base::{
    Cause, Env, Error, Flash, IoClass, Kind, Ledger, LedgerSnapshot, Nanos, Nvram, PageAddr, Result,
};
use write::SuperblockWriter;
use zone::Zone;

/// Logs that fit the NVRAM at a time: the one being written, those of memtables on their way to tables, and those of
/// one that just arrived there.
const LOGS: usize = 6;

/// Raw flash with NVRAM as the home of a store.
///
/// ```
/// use std::sync::Arc;
/// use vellum_base::{Geometry, RealEnv};
/// use vellum_kv::{FlashMedia, Map, Options, Store};
/// use vellum_media::nand::{Nand, NandParams};
///
/// let geometry = Geometry { channels: 4, dies_per_channel: 1, blocks_per_die: 16, pages_per_block: 32,
///                           page_bytes: 8192, oob_bytes: 0 };
/// let nand = Nand::ram(geometry, NandParams { nvram_bytes: 1 << 20, ..NandParams::default() })?;
/// let (flash, env) = (Arc::new(nand), RealEnv::new());
/// FlashMedia::format(&*flash)?;
/// let store = Store::open(FlashMedia::open(flash, env.clone())?, env, Options::default())?;
/// store.put(b"parchment", b"dear")?;
/// assert_eq!(store.get(b"parchment")?.as_deref(), Some(&b"dear"[..]));
/// store.close()?;
/// # Ok::<(), vellum_base::Error>(())
/// ```
pub struct FlashMedia {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    flash: Arc<dyn Flash>,
    env: Arc<dyn Env>,
    zone: Zone,
    ledger: Ledger,
    pool: Arc<Pool>,
    road: Road,
}

impl FlashMedia {
    /// Prepares flash for a new store. What was on it is given up.
    pub fn format(flash: &dyn Flash) -> Result<()> {
        check_shape(flash)?;
        Zone::format(nvram(flash)?, LOGS)?;
        Ok(flash.sync()?)
    }

    /// Opens formatted flash that orders requests itself: everything is submitted at once. Looks at the first and last
    /// page of every erase block.
    pub fn open(flash: Arc<dyn Flash>, env: Arc<dyn Env>) -> Result<Arc<FlashMedia>> {
        FlashMedia::open_on(flash, env, None)
    }

    /// Opens formatted flash, with a queue and a task of `env` for each channel. The tasks end when the media are
    /// dropped.
    pub fn open_scheduled(
        flash: Arc<dyn Flash>,
        env: Arc<dyn Env>,
        schedule: Schedule,
    ) -> Result<Arc<FlashMedia>> {
        FlashMedia::open_on(flash, env, Some(schedule))
    }

    fn open_on(
        flash: Arc<dyn Flash>,
        env: Arc<dyn Env>,
        schedule: Option<Schedule>,
    ) -> Result<Arc<FlashMedia>> {
        check_shape(&*flash)?;
        let zone = Zone::open(nvram(&*flash)?)?;
        let pool = Arc::new(Pool::open(flash.clone()));
        let road = Road::new(flash.clone(), env.clone(), schedule);
        let inner = Inner { flash, env, zone, ledger: Ledger::default(), pool, road };
        Ok(Arc::new(FlashMedia { inner: Arc::new(inner) }))
    }
}

fn nvram(flash: &dyn Flash) -> Result<&dyn Nvram> {
    flash.nvram().ok_or_else(|| {
        Error::new(Kind::Unsupported, "this flash has no NVRAM; log and manifest of a store need some")
    })
}

fn check_shape(flash: &dyn Flash) -> Result<()> {
    let geometry = flash.geometry();
    geometry.validate()?;
    if geometry.dies() > DIES_MAX || geometry.pages_per_block < 3 {
        return Err(Error::new(
            Kind::Unsupported,
            format!("a store needs 3 pages in an erase block and at most {DIES_MAX} dies"),
        ));
    }
    Ok(())
}

impl Inner {
    fn nvram(&self) -> Result<&dyn Nvram> {
        nvram(&*self.flash)
    }

    fn take(&self, class: IoClass) -> Result<Home> {
        self.pool.take(&self.road, &*self.env, class)
    }

    fn release(&self, index: u32) -> Result<()> {
        self.pool.release(&self.road, index)
    }

    fn booked(&self, cause: Cause, bytes: u64) {
        self.ledger.programmed(cause, bytes);
    }
}

impl Media for FlashMedia {
    fn shape(&self) -> MediaShape {
        let geometry = self.inner.flash.geometry();
        let dies: Vec<u32> = (0..geometry.dies()).collect();
        let layout = self.inner.zone.layout();
        MediaShape {
            table_bytes: Home::new(geometry, 0, &dies).capacity(geometry),
            log_bytes: layout.capacity(AreaKind::Log) as u64,
            logs_max: layout.logs,
            manifest_bytes: layout.capacity(AreaKind::Manifest) as u64,
            whole_tables: true,
            counts_manifests: false,
        }
    }

    fn tables_free(&self) -> u64 {
        self.inner.pool.free() as u64
    }

    fn create_table(&self, number: u64, intent: Intent) -> Result<Box<dyn TableWriter>> {
        Ok(Box::new(SuperblockWriter::new(self.inner.clone(), number, intent)?))
    }

    fn open_table(&self, number: u64) -> Result<Arc<dyn TableReader>> {
        let home = self
            .inner
            .pool
            .home(number)
            .ok_or_else(|| Error::corrupt(format!("table {number} is missing")))?;
        Ok(Arc::new(SuperblockReader { inner: self.inner.clone(), home }))
    }

    fn erase_table(&self, number: u64) -> Result<()> {
        let gone = self.inner.pool.forget(number);
        gone.into_iter().try_for_each(|index| self.inner.release(index))
    }

    fn tables(&self) -> Result<Vec<u64>> {
        Ok(self.inner.pool.tables())
    }

    fn create_area(&self, area: Area) -> Result<Arc<dyn AreaWriter>> {
        let start = self.inner.zone.create(self.inner.nvram()?, area)?;
        Ok(Arc::new(NvramArea { inner: self.inner.clone(), start, kind: area.kind }))
    }

    fn read_area(&self, area: Area) -> Result<Vec<u8>> {
        self.inner.zone.read(self.inner.nvram()?, area)
    }

    fn sync_area(&self, _area: Area) -> Result<()> {
        Ok(self.inner.flash.sync()?)
    }

    fn remove_area(&self, area: Area) -> Result<()> {
        self.inner.zone.remove(self.inner.nvram()?, area)
    }

    fn sync_removals(&self) -> Result<()> {
        Ok(self.inner.flash.sync()?)
    }

    fn areas(&self) -> Result<Vec<Area>> {
        Ok(self.inner.zone.areas())
    }

    fn current(&self) -> Result<Option<Vec<u8>>> {
        self.inner.zone.current(self.inner.nvram()?)
    }

    fn set_current(&self, bytes: &[u8]) -> Result<()> {
        self.inner.zone.set_current(self.inner.nvram()?, bytes)?;
        Ok(self.inner.flash.sync()?)
    }

    fn ledger(&self) -> LedgerSnapshot {
        self.inner.ledger.snapshot()
    }
}

struct NvramArea {
    inner: Arc<Inner>,
    start: usize,
    kind: AreaKind,
}

impl AreaWriter for NvramArea {
    fn append(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let capacity = self.inner.zone.layout().capacity(self.kind);
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        if offset.checked_add(bytes.len()).is_none_or(|end| end > capacity) {
            return Err(Error::new(Kind::NoSpace, "the NVRAM's slot is full"));
        }
        Ok(self.inner.nvram()?.write(self.start + offset, bytes)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.inner.flash.sync()?)
    }
}

struct SuperblockReader {
    inner: Arc<Inner>,
    home: Home,
}

impl SuperblockReader {
    /// The pages with so many bytes at `offset`: each with where in it they begin, and how many they are.
    fn pages(&self, offset: u64, bytes: usize) -> Result<impl Iterator<Item = (PageAddr, usize, usize)>> {
        let geometry = self.inner.flash.geometry();
        let end = offset.checked_add(bytes as u64).filter(|end| *end <= self.home.capacity(geometry));
        let end = end.ok_or_else(|| Error::corrupt("a table is shorter than its index says"))?;
        let page_bytes = geometry.page_bytes as u64;
        Ok((offset / page_bytes..end.div_ceil(page_bytes)).map(move |page| {
            let (from, to) = (offset.max(page * page_bytes), end.min((page + 1) * page_bytes));
            (self.home.page(page), (from - page * page_bytes) as usize, (to - from) as usize)
        }))
    }
}

impl TableReader for SuperblockReader {
    fn bytes(&self) -> Result<u64> {
        Ok(self.home.capacity(self.inner.flash.geometry()))
    }

    fn read(&self, offset: u64, out: &mut [u8], class: IoClass) -> Result<Nanos> {
        let mut pages = self.pages(offset, out.len())?.peekable();
        if let Some((page, within, bytes)) = pages.next_if(|(_, _, bytes)| *bytes == out.len()) {
            return Ok(self.inner.road.read(class, page, within, &mut out[..bytes])?);
        }
        let op = |(page, offset, bytes)| Op::Read { page, offset, bytes };
        let pending = self.inner.road.submit(class, pages.map(op).collect());
        Ok(pending.wait_for_answer().into_read(out)?)
    }

    fn ask(&self, offset: u64, bytes: usize, class: IoClass) -> Result<Asked> {
        let op = |(page, offset, bytes)| Op::Read { page, offset, bytes };
        let pending = self.inner.road.submit(class, self.pages(offset, bytes)?.map(op).collect());
        let env = self.inner.env.clone();
        Ok(Asked::Coming(Box::new(move || {
            let mut out = vec![0; bytes];
            pending.wait(&*env).into_read(&mut out)?;
            Ok(out)
        })))
    }
}
