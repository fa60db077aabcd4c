//! A store on raw flash (FlashKV, section 3.2): a table is a superblock, striped over all dies page by page; logs,
//! manifest and CURRENT are in the device's NVRAM. With relinking, a table consists of its superblock and extents of
//! other superblocks (docs/decisions/0025).
//!
//! Invariants
//! 1. A superblock is erased only when no table uses it any more (because of [`Tables::erase_table`], or because
//!    collection moved what was on it), when programming it failed, or before it is reused.
//! 2. The sum over the ledger's causes equals the bytes of the pages that the device programmed since it was opened.

mod book;
mod collect;
mod cover;
mod dies;
mod layout;
mod list;
mod look;
mod nvram;
mod places;
mod plan;
mod pool;
mod queue;
mod read;
mod rebuild;
mod stripe;
mod superblock;
mod survey;
mod write;

pub(crate) use list::fuzzed;
pub(crate) use look::NvramLook;
pub use pool::Relinking;
pub use queue::Schedule;

use super::{
    AreaWriter, Areas, Intent, Media, MediaShape, NAMELESS, Placement, Sharing, TableReader, TableWriter,
    Tables,
};
use crate::journal::{Area, AreaKind};
use book::Book;
use list::LIST;
use nvram::NvramAreas;
use pool::Pool;
use queue::Submitter;
use read::FlashReader;
use std::sync::Arc;
use superblock::{DIES_MAX, EXTENT_UNIT_BYTES};
use vellum_base::sync::Mutex;
use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::{
    BlockAddr, BlockState, Env, Error, Flash, FlashError, FlashOp, Geometry, IoClass, Kind, Ledger,
    LedgerSnapshot, Nanos, Nvram, Result,
};
use write::FlashWriter;

/// Logs that the NVRAM has slots for: the one being written, those of memtables that wait to be flushed, and those of
/// one that was just flushed.
const LOGS: usize = 6;
/// A table may have at most this many times the capacity of its own superblock.
const SUPERBLOCKS_MAX: u64 = 4;
/// Limit that follows from unit numbers: those of a table's list begin at [`LIST`].
const SUPERBLOCK_BYTES_MAX: u64 = LIST as u64 * EXTENT_UNIT_BYTES;

/// Raw flash with NVRAM as the medium of a store.
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
    areas: NvramAreas,
    ledger: Ledger,
    pool: Arc<Pool>,
    submitter: Submitter,
    /// Held during collection.
    collecting: Mutex<()>,
    counts: Counts,
}

/// Events counted since the flash was opened.
#[derive(Default)]
struct Counts {
    collections: AtomicU64,
    collected_bytes: AtomicU64,
    nvram_bytes: AtomicU64,
}

impl FlashMedia {
    /// Prepares flash for a new store and erases it. An error if it has no NVRAM, or its geometry does not suit.
    pub fn format(flash: &dyn Flash) -> Result<()> {
        check_shape(flash)?;
        NvramAreas::format(nvram(flash)?, LOGS, flash.geometry().blocks_per_die as usize)?;
        flash.sync()?;
        for block in (0..flash.geometry().blocks()).map(BlockAddr) {
            let report = flash.report(block);
            if report.pages_written > 0 && report.state == BlockState::Good {
                let erase = FlashOp::Erase { block, after: Nanos::ZERO };
                match flash.submit(IoClass::Background, &mut [erase]).map_err(|failed| failed.error) {
                    // The block is bad now, and not used any more.
                    Ok(_) | Err(FlashError::EraseFailed(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(flash.sync()?)
    }

    /// Opens formatted flash that schedules requests itself: everything is submitted at once. Reads the first and last
    /// page of every erase block, and waits for that: in virtual time, it is to be called by a task.
    pub fn open(flash: Arc<dyn Flash>, env: Arc<dyn Env>) -> Result<Arc<FlashMedia>> {
        FlashMedia::open_on(flash, env, None)
    }

    /// Opens formatted flash with a queue and a task for each channel. The tasks end when the medium is dropped.
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
        let areas = NvramAreas::open(nvram(&*flash)?)?;
        let pool = Arc::new(Pool::open(flash.clone(), &env)?);
        let submitter = Submitter::new(flash.clone(), env.clone(), schedule);
        let (ledger, collecting, counts) = (Ledger::default(), Mutex::new(()), Counts::default());
        let inner = Inner { flash, env, areas, ledger, pool, submitter, collecting, counts };
        Ok(Arc::new(FlashMedia { inner: Arc::new(inner) }))
    }

    /// Sets when leaves are relinked. The default is for normal use, other values for experiments.
    pub fn set_relinking(&self, relinking: Relinking) {
        self.inner.pool.set_relinking(relinking);
    }
}

/// Bytes of a superblock without bad blocks.
fn table_bytes(geometry: &Geometry) -> u64 {
    let pages = u64::from(geometry.dies()) * u64::from(geometry.pages_per_block.saturating_sub(2));
    pages * u64::from(geometry.page_bytes)
}

/// The same in units.
fn superblock_units(geometry: &Geometry) -> u32 {
    (table_bytes(geometry) / EXTENT_UNIT_BYTES).min(LIST.into()) as u32
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
    if table_bytes(geometry) >= SUPERBLOCK_BYTES_MAX {
        return Err(Error::new(Kind::Unsupported, "a store needs superblocks of less than 128 GiB"));
    }
    Ok(())
}

impl Inner {
    fn nvram(&self) -> Result<&dyn Nvram> {
        nvram(&*self.flash)
    }

    /// Changes the book, then erases superblocks that are no longer needed.
    fn with_book<T>(&self, change: impl FnOnce(&mut Book) -> T) -> Result<T> {
        let done = self.pool.with_book(change);
        self.pool.erase_unneeded(&self.submitter).map(|()| done)
    }

    /// Syncs the flash. [`Kind::NoSpace`] is turned into [`Kind::Io`], as callers would take it for `nothing has
    /// changed`.
    fn sync(&self) -> Result<()> {
        self.flash.sync().map_err(|error| match Error::from(error) {
            error if error.kind() == Kind::NoSpace => {
                Error::new(Kind::Io, error.to_string()).because(error.reason())
            }
            error => error,
        })
    }
}

impl Media for FlashMedia {
    fn shape(&self) -> MediaShape {
        let plan = self.inner.areas.plan();
        MediaShape {
            table_bytes: table_bytes(self.inner.flash.geometry()),
            unit_bytes: if self.inner.areas.relinks() { EXTENT_UNIT_BYTES } else { super::MEDIA_UNIT_BYTES },
            log_bytes: plan.capacity(AreaKind::Log) as u64,
            logs_max: plan.logs,
            manifest_bytes: plan.capacity(AreaKind::Manifest) as u64,
            whole_tables: true,
            areas_are_files: false,
        }
    }

    fn placement(&self) -> Option<Placement> {
        let (pool, counts) = (&self.inner.pool, &self.inner.counts);
        let (pinned, runs) = pool.with_book(|book| (book.pinned(), book.runs()));
        Some(Placement {
            superblocks: self.inner.flash.geometry().blocks_per_die as u64,
            free: pool.erased() as u64,
            pinned: pinned.superblocks,
            pinned_bytes: pinned.room * EXTENT_UNIT_BYTES,
            pinned_live_bytes: pinned.live * EXTENT_UNIT_BYTES,
            runs,
            collections: counts.collections.load(Relaxed),
            collected_bytes: counts.collected_bytes.load(Relaxed),
            nvram_bytes: counts.nvram_bytes.load(Relaxed),
        })
    }

    fn problems(&self) -> Vec<String> {
        self.inner.pool.problems(&self.inner.env)
    }

    fn current(&self) -> Result<Option<Vec<u8>>> {
        self.inner.areas.current(self.inner.nvram()?)
    }

    fn set_current(&self, bytes: &[u8]) -> Result<()> {
        self.inner.areas.set_current(self.inner.nvram()?, bytes)?;
        self.inner.sync()
    }

    fn ledger(&self) -> LedgerSnapshot {
        self.inner.ledger.snapshot()
    }
}

impl Tables for FlashMedia {
    fn tables_free(&self) -> u64 {
        self.inner.pool.free() as u64
    }

    fn tables_in_place_of(&self, tables: &[u64]) -> u64 {
        let tables = tables.iter().copied().collect();
        self.inner.pool.with_book(|book| book.freed_by(&tables))
    }

    fn create_table(&self, number: u64, intent: Intent) -> Result<Box<dyn TableWriter>> {
        Ok(Box::new(FlashWriter::new(self.inner.clone(), number, intent)?))
    }

    fn open_table(&self, number: u64) -> Result<Arc<dyn TableReader>> {
        let table = self.inner.pool.table(number);
        let table = table.ok_or_else(|| match number {
            NAMELESS => Error::corrupt("superblocks hold what may have been any table"),
            _ => Error::corrupt(format!("table {number} is missing")),
        })?;
        Ok(Arc::new(FlashReader { inner: self.inner.clone(), table }))
    }

    fn erase_table(&self, number: u64) -> Result<()> {
        self.inner.pool.forget(number);
        self.inner.pool.erase_unneeded(&self.inner.submitter)
    }

    fn tables(&self) -> Result<Vec<u64>> {
        Ok(self.inner.pool.tables())
    }

    fn sharing(&self, _unit_bytes: u64) -> Result<Sharing> {
        if !self.inner.areas.relinks() {
            return Ok(Sharing::None);
        }
        self.inner.pool.will_relink();
        Ok(Sharing::Relink)
    }

    fn highest_table(&self) -> u64 {
        self.inner.pool.highest()
    }
}

impl Areas for FlashMedia {
    fn create_area(&self, area: Area) -> Result<Arc<dyn AreaWriter>> {
        let start = self.inner.areas.create(self.inner.nvram()?, area)?;
        Ok(Arc::new(NvramArea { inner: self.inner.clone(), start, kind: area.kind }))
    }

    fn read_area(&self, area: Area) -> Result<Vec<u8>> {
        self.inner.areas.read(self.inner.nvram()?, area)
    }

    fn sync_area(&self, _area: Area) -> Result<()> {
        self.inner.sync()
    }

    fn trim_area(&self, area: Area, bytes: u64) -> Result<()> {
        self.inner.areas.trim(self.inner.nvram()?, area, bytes)
    }

    fn remove_area(&self, area: Area) -> Result<()> {
        self.inner.areas.remove(self.inner.nvram()?, area)
    }

    fn sync_removals(&self) -> Result<()> {
        self.inner.sync()
    }

    fn areas(&self) -> Result<Vec<Area>> {
        Ok(self.inner.areas.areas())
    }
}

struct NvramArea {
    inner: Arc<Inner>,
    start: usize,
    kind: AreaKind,
}

impl AreaWriter for NvramArea {
    fn append(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let capacity = self.inner.areas.plan().capacity(self.kind);
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        if offset.checked_add(bytes.len()).is_none_or(|end| end > capacity) {
            return Err(Error::new(Kind::NoSpace, "the NVRAM's slot is full"));
        }
        self.inner.nvram()?.write_apart(self.start + offset, bytes)?;
        self.inner.counts.nvram_bytes.fetch_add(bytes.len() as u64, Relaxed);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
}
