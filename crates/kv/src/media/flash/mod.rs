//! A store on raw flash (FlashKV, section 3.2): a table is a superblock, striped over all dies page by page; log,
//! manifest and CURRENT are in the device's NVRAM.
//!
//! Invariants
//! 1. A superblock is exactly one of: free (erased, or to be erased before its next table), home of a table, being
//!    written.
//! 2. No superblock is erased but by [`Media::erase_table`], when a program of its table failed, or when a new table
//!    takes it.
//! 3. The ledger's causes sum to the pages that the device programmed since it was opened, times their size.

mod superblock;
mod write;
mod zone;

use super::{AreaWriter, Intent, Media, MediaShape, TableReader, TableWriter};
use crate::journal::{Area, AreaKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use superblock::{DIES_MAX, Found, Home};
use vellum_base::sync::Mutex;
use vellum_base::{
    BlockState, Cause, Env, Error, Flash, FlashOp, IoClass, Kind, Ledger, LedgerSnapshot, Nanos, Nvram,
    Result,
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
/// use vellum_kv::{FlashMedia, Options, Store};
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
    blocks: Mutex<Superblocks>,
}

/// Who has which superblock.
#[derive(Default)]
struct Superblocks {
    /// Free, by erases so far: the least worn is used next.
    free: BTreeSet<(u64, u32)>,
    homes: BTreeMap<u64, Home>,
    /// Superblocks that hold a table's remains.
    remains: BTreeMap<u64, Vec<u32>>,
}

impl FlashMedia {
    /// Prepares flash for a new store. What was on it is given up.
    pub fn format(flash: &dyn Flash) -> Result<()> {
        check_shape(flash)?;
        Zone::format(nvram(flash)?, LOGS)?;
        Ok(flash.sync()?)
    }

    /// Opens formatted flash: looks at the first and last page of every erase block.
    pub fn open(flash: Arc<dyn Flash>, env: Arc<dyn Env>) -> Result<Arc<FlashMedia>> {
        check_shape(&*flash)?;
        let zone = Zone::open(nvram(&*flash)?)?;
        let mut blocks = Superblocks::default();
        for index in 0..flash.geometry().blocks_per_die {
            match superblock::look(&*flash, index) {
                Found::Empty => drop(blocks.free.insert((wear(&*flash, index), index))),
                Found::Table(tag, home) if !blocks.homes.contains_key(&tag.table) => {
                    blocks.homes.insert(tag.table, home);
                }
                Found::Table(tag, _) => blocks.remains.entry(tag.table).or_default().push(index),
                Found::Remains(Some(table)) => blocks.remains.entry(table).or_default().push(index),
                // Nobody's: erased when the superblock is used.
                Found::Remains(None) => drop(blocks.free.insert((wear(&*flash, index), index))),
            }
        }
        let inner = Inner { flash, env, zone, ledger: Ledger::default(), blocks: Mutex::new(blocks) };
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

fn wear(flash: &dyn Flash, index: u32) -> u64 {
    let geometry = flash.geometry();
    (0..geometry.dies()).map(|die| flash.report(geometry.block_on(die, index)).erase_count as u64).sum()
}

impl Inner {
    fn nvram(&self) -> Result<&dyn Nvram> {
        nvram(&*self.flash)
    }

    /// Takes the least worn free superblock, erased, with those of its blocks that are good.
    fn take(&self, class: IoClass) -> Result<Home> {
        loop {
            let Some((_, index)) = self.blocks.lock().free.pop_first() else {
                return Err(Error::new(Kind::NoSpace, "no superblock is free; delete keys, then compact"));
            };
            self.erase(index, class)?;
            let geometry = self.flash.geometry();
            let good =
                |die: &u32| self.flash.report(geometry.block_on(*die, index)).state == BlockState::Good;
            let dies: Vec<u32> = (0..geometry.dies()).filter(good).collect();
            if !dies.is_empty() {
                return Ok(Home::new(geometry, index, &dies));
            }
        }
    }

    /// Erases what is programmed of a superblock. A block that fails is bad from then on, and left out.
    fn erase(&self, index: u32, class: IoClass) -> Result<()> {
        let geometry = self.flash.geometry();
        for die in 0..geometry.dies() {
            let block = geometry.block_on(die, index);
            let report = self.flash.report(block);
            if report.pages_written > 0 && report.state == BlockState::Good {
                match self.flash.erase(class, block, Nanos::ZERO) {
                    Ok(_) | Err(vellum_base::FlashError::EraseFailed(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn release(&self, index: u32) -> Result<()> {
        self.erase(index, IoClass::Background)?;
        self.blocks.lock().free.insert((wear(&*self.flash, index), index));
        Ok(())
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
        }
    }

    fn tables_free(&self) -> u64 {
        self.inner.blocks.lock().free.len() as u64
    }

    fn create_table(&self, number: u64, intent: Intent) -> Result<Box<dyn TableWriter>> {
        Ok(Box::new(SuperblockWriter::new(self.inner.clone(), number, intent)?))
    }

    fn open_table(&self, number: u64) -> Result<Arc<dyn TableReader>> {
        let home = self.inner.blocks.lock().homes.get(&number).cloned();
        let home = home.ok_or_else(|| Error::corrupt(format!("table {number} is missing")))?;
        Ok(Arc::new(SuperblockReader { inner: self.inner.clone(), home }))
    }

    fn erase_table(&self, number: u64) -> Result<()> {
        let gone = {
            let mut blocks = self.inner.blocks.lock();
            let mut gone = blocks.remains.remove(&number).unwrap_or_default();
            gone.extend(blocks.homes.remove(&number).map(|home| home.index));
            gone
        };
        gone.into_iter().try_for_each(|index| self.inner.release(index))
    }

    fn tables(&self) -> Result<Vec<u64>> {
        let blocks = self.inner.blocks.lock();
        let all: BTreeSet<u64> = blocks.homes.keys().chain(blocks.remains.keys()).copied().collect();
        Ok(all.into_iter().collect())
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

impl TableReader for SuperblockReader {
    fn read(&self, offset: u64, out: &mut [u8], class: IoClass) -> Result<Nanos> {
        let page_bytes = self.inner.flash.geometry().page_bytes as u64;
        let end = offset.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.home.capacity(self.inner.flash.geometry())) {
            return Err(Error::corrupt("a table is shorter than its index says"));
        }
        let (mut at, mut rest, mut ops) = (offset, out, Vec::new());
        while !rest.is_empty() {
            let within = at % page_bytes;
            let (piece, later) = rest.split_at_mut(((page_bytes - within) as usize).min(rest.len()));
            let page = self.home.page(at / page_bytes);
            at += piece.len() as u64;
            rest = later;
            ops.push(FlashOp::Read { page, offset: within as u32, data: piece, oob: &mut [] });
        }
        Ok(self.inner.flash.submit(class, &mut ops).map_err(|e| e.error)?.at)
    }
}
