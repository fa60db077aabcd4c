//! What the SSD sees of a cache in segments: whole ones are written, at once and in order, and whole ones are discarded
//! before they are written again. That nothing is read that was discarded every test of the engine sees (`Slow`).

use super::world::{DATA_START, Model, PAGES, World, options, run};
use crate::harness::{Kind, rng};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vellum_array::Device;
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::{CacheFormat, CacheOptions, CachedArray};
use vellum_base::sync::Mutex;
use vellum_base::{
    Allocation, BlockDevice, DeviceInfo, Env, Error, Kind as ErrorKind, Lba, Result, SECTOR_BYTES,
};
use vellum_sim::Sim;

const SEGMENT: u64 = 8;

/// A call that changes pages of the SSD: the first page, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Write(u64, u64),
    Discard(u64, u64),
}

type Discards = std::result::Result<(), ErrorKind>;

/// Records changes of pages; may have no use for discards.
struct Recorded {
    inner: Device,
    changes: Mutex<Vec<Change>>,
    discards: Discards,
}

impl Recorded {
    fn record(&self, lba: Lba, sectors: u64, change: fn(u64, u64) -> Change) {
        if (DATA_START..DATA_START + PAGES).contains(&lba.0) {
            self.changes.lock().push(change(lba.0 - DATA_START, sectors));
        }
    }
}

impl BlockDevice for Recorded {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        self.inner.read(lba, buf)
    }
    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        self.record(lba, (data.len() / SECTOR_BYTES) as u64, Change::Write);
        self.inner.write(lba, data, fua)
    }
    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.inner.trim(lba, sectors)
    }
    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.inner.write_zeroes(lba, sectors, fua)
    }
    fn discard(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.record(lba, sectors, Change::Discard);
        self.discards.map_err(|kind| Error::new(kind, "it keeps all"))?;
        self.inner.discard(lba, sectors)
    }
    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }
    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.inner.allocation(lba, sectors)
    }
}

/// Three tasks use a cache of six segments on such a device; its changes until it is closed, and those of the close.
fn used(seed: u64, has_nvram: bool, discards: Discards) -> (Vec<Change>, Vec<Change>) {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let world = World::new(Kind::all()[seed as usize % 8], Scheme::Kdd, env.clone(), seed);
        let world = if has_nvram { world.with_nvram() } else { world };
        let ssd = Arc::new(Recorded { inner: world.device(), changes: Mutex::default(), discards });
        let nvram = world.nvram.as_ref().map(|nvram| world.rig.device(nvram));
        let segment_pages = Some(SEGMENT as u32);
        let format = CacheFormat { segment_pages, ..CacheFormat::new(Scheme::Kdd) };
        // All of the window is used, so that the SSD is written often.
        let options = CacheOptions { window: Some(8), staging_bytes: Some(4096), ..options(&mut rng(seed)) };
        let array = world.rig.assemble(&[]);
        let cached = CachedArray::attach_with_nvram(array, ssd.clone(), nvram, &format, options).unwrap();
        let (cached, model) = (Arc::new(cached), Arc::new(Mutex::new(Model::new(0))));
        *model.lock() = Model::new(cached.info().sectors);
        run(&cached, &env, &model, seed, 500, Arc::new(|_| ()));
        let mut model = Arc::into_inner(model).unwrap().into_inner();
        model.assert_holds(&*cached, &[], "used");
        let status = cached.status();
        assert_eq!((status.detached, status.segment_pages), (None, SEGMENT as u32));
        let cached = Arc::into_inner(cached).unwrap();
        let discarded = world.seen.lock().as_ref().unwrap().discarded.load(Relaxed);
        assert_eq!(cached.status().discarded_bytes, discarded * SECTOR_BYTES as u64);
        world.assert_ledger(&cached);
        let before = std::mem::take(&mut *ssd.changes.lock());
        cached.close().unwrap();
        let at_close = std::mem::take(&mut *ssd.changes.lock());
        let cached = world.open(&[], options);
        assert_eq!(cached.status().emptied, None);
        model.assert_holds(&cached, &[], "opened again");
        cached.clean_all(|_| true).unwrap();
        cached.close().unwrap();
        world.assert_parity(&mut model, "used");
        (before, at_close)
    })
}

/// Pages are written in order, in calls of so many, and each segment is discarded between two rounds; returns how often
/// one was.
fn check_rounds(changes: &[Change], pages_at_once: u64) -> usize {
    assert_eq!(changes[0], Change::Discard(0, PAGES), "a new cache begins with an SSD that holds nothing");
    let (mut written, mut discards) = (BTreeSet::new(), 0);
    for change in &changes[1..] {
        match *change {
            Change::Write(first, pages) => {
                assert!(pages == pages_at_once && first.is_multiple_of(pages), "{change:?}");
                assert!(
                    (first..first + pages).all(|page| written.insert(page)),
                    "{change:?} without a discard"
                );
            }
            Change::Discard(first, pages) => {
                assert!(pages == SEGMENT && first.is_multiple_of(SEGMENT), "{change:?}");
                assert!(
                    (first..first + pages).all(|page| written.remove(&page)),
                    "{change:?} of what is not full"
                );
                discards += 1;
            }
        }
    }
    discards
}

#[test]
fn whole_segments_are_written_and_discarded() {
    let mut discards = 0;
    for seed in 0..16 {
        let (changes, at_close) = used(seed, false, Ok(()));
        discards += check_rounds(&changes, SEGMENT);
        assert!(changes.len() > 4, "hardly anything was written");
        // What there is of the last one.
        assert!(at_close.iter().filter(|c| matches!(c, Change::Write(..))).count() <= 1, "{at_close:?}");
    }
    assert!(discards > 40, "only {discards} segments were discarded");
}

#[test]
fn with_an_nvram_pages_are_written_one_by_one_and_segments_discarded() {
    let discards: usize = (0..16).map(|seed| check_rounds(&used(seed, true, Ok(())).0, 1)).sum();
    assert!(discards > 40, "only {discards} segments were discarded");
}

/// It is not asked again, and is a cache as any other.
#[test]
fn an_ssd_that_cannot_discard_is_as_good() {
    for (seed, error) in [(3, ErrorKind::Unsupported), (4, ErrorKind::Io)] {
        for has_nvram in [false, true] {
            let (changes, _) = used(seed, has_nvram, Err(error));
            let discards = changes.iter().filter(|change| matches!(change, Change::Discard(..)));
            assert_eq!(discards.count(), 1);
            assert!(changes.len() > 8, "hardly anything was written");
        }
    }
}
