//! The interface that all policies share, and how one is made.
//!
//! A driver's part:
//! 1. It asks for one sector at a time, and carries the steps out before it asks for the same sector again, or any of
//!    its row if steps name the row.
//! 2. Before a write it asks for the [`Policy::base`], reads it and says how long the delta is. If the base has gone in
//!    between, the policy does not mind: the delta is not used.

use super::bare::{Bare, NoSsd};
use super::kdd::Kdd;
use super::leavo::Leavo;
use super::shape::CacheShape;
use super::staging::DELTA_BYTES_MAX;
use super::step::{LogEntry, Newest, PageNo, Staged, Steps};
use crate::layout::Shape;
use vellum_base::{Error, Lba, Result, SECTOR_BYTES};

/// Pages of a segment where there are enough: 2 MiB, an erase block.
const SEGMENT_PAGES_MAX: u32 = 512;
/// With fewer segments too much of the cache would be free: smaller ones are taken.
const SEGMENTS_WANTED: u32 = 32;

/// Decides what is kept in the cache. See the module.
pub trait Policy: Send {
    /// The page against which a write of this sector wants a delta. None: it wants none.
    fn base(&self, lba: Lba) -> Option<PageNo>;

    /// Where the newest version of a sector is.
    fn newest(&self, lba: Lba) -> Newest;

    /// A read of one sector; where its newest version is, before the steps.
    fn read(&mut self, lba: Lba, steps: &mut Steps) -> Newest;

    /// A write of one sector. `delta_bytes` is the length of the delta against [`Policy::base`], None if there is none:
    /// no base, or one that cannot be read.
    fn write(&mut self, lba: Lba, delta_bytes: Option<usize>, steps: &mut Steps);

    /// The sector is about to be zeroed or trimmed on the array: the cache has nothing of it afterwards, and its parity
    /// is not put off.
    fn forget(&mut self, lba: Lba, steps: &mut Steps);

    /// Brings the parity of a row up to date.
    fn clean_row(&mut self, row: u64, steps: &mut Steps);

    /// The array is idle: a little cleaning. False if there is nothing to clean.
    fn idle(&mut self, steps: &mut Steps) -> bool;

    /// Whether parity may be put off from now on: not while a disk is lost.
    fn allow_deferring(&mut self, allowed: bool);

    /// So many more bytes may be written to flash, or fewer: what is not data or deltas was written by others. A policy
    /// without a budget takes no notice.
    fn grant(&mut self, _bytes: i64) {}

    /// Before a clean stop: nothing is staged any more, and what [`Policy::entries`] cannot say is cleaned.
    fn settle(&mut self, _steps: &mut Steps) {}

    /// What a log must hold for [`Recipe::restore`] to make this cache again: the coldest pages of each kind first.
    /// Empty if it cannot.
    fn entries(&self) -> Vec<LogEntry> {
        Vec::new()
    }

    /// How full it is.
    fn census(&self) -> Census;
}

/// How full a cache is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Pages with nothing in them.
    pub free: u64,
    /// Pages that are what the array holds.
    pub clean: u64,
    /// Pages that are what parity knows, while the array is newer.
    pub old: u64,
    /// Pages that are the newest version of an old one's sector.
    pub new: u64,
    /// Pages of deltas.
    pub delta: u64,
    /// Bytes in the staging buffer, heads included.
    pub staged_bytes: u64,
    /// Pages of the log that count.
    pub log_pages: u64,
    /// Pages in memory, which are among those above.
    pub window: u64,
    /// Bytes that may be written to flash now, if there is a budget; fewer than none if more were.
    pub budget_left: Option<i64>,
}

/// Which policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// No SSD.
    NoSsd,
    /// Writes pass by; reads fill.
    WriteAround,
    /// Writes go to both.
    WriteThrough,
    /// The same for what is missed a second time within a while (Huang et al., MSST 2013).
    Larc,
    /// Old and new versions in the cache, parity put off (Lee et al., SAC 2015).
    Leavo,
    /// Old versions and deltas, as in kdd.txt.
    KddPaper,
    /// The same with admission, give-up rule and budget.
    Kdd,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Scheme; 7] = [
        Scheme::NoSsd,
        Scheme::WriteAround,
        Scheme::WriteThrough,
        Scheme::Larc,
        Scheme::Leavo,
        Scheme::KddPaper,
        Scheme::Kdd,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Scheme::NoSsd => "nossd",
            Scheme::WriteAround => "wa",
            Scheme::WriteThrough => "wt",
            Scheme::Larc => "larc",
            Scheme::Leavo => "leavo",
            Scheme::KddPaper => "kdd-paper",
            Scheme::Kdd => "kdd",
        }
    }

    /// The one of this name.
    pub fn by_name(name: &str) -> Option<Scheme> {
        Scheme::ALL.into_iter().find(|scheme| scheme.name() == name)
    }
}

/// Size and thresholds of a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// Which policy.
    pub scheme: Scheme,
    /// Pages for data and deltas; rounded down to whole sets.
    pub pages: u32,
    /// Pages of a set; fewer if there are fewer.
    pub ways: u16,
    /// KDD in vellum mode: pages of a segment, that are written in order and given up together; 0: pages are written
    /// in place. With segments the cache is one set.
    pub segment_pages: u32,
    /// Pages of the metadata log; raised to what `pages` need.
    pub log_pages: u32,
    /// Bytes of the staging buffer, heads of deltas included.
    pub staging_bytes: usize,
    /// Cleaning begins when this share of a set is not free and not clean...
    pub dirty_high: f64,
    /// ...and ends at this one.
    pub dirty_low: f64,
    /// KDD gives longer deltas up: parity is written at once, and the page dropped.
    pub delta_bytes_max: usize,
    /// KDD in vellum mode: pages in memory, where sectors are until it is known whether they are worth flash. They are
    /// lost with the power, so this is 0 where a cache is to outlive a cut.
    pub window: u16,
    /// KDD in vellum mode: misses in longer runs of sectors pass by.
    pub run_max: u64,
    /// KDD in vellum mode: bytes that may be written to flash at the start; more when they are granted. None: there is
    /// no limit.
    pub budget: Option<i64>,
}

impl Recipe {
    /// As in the paper: 4 KiB of staging, a log of 0.59 % of the SSD. When cleaning begins it does not say
    /// (docs/decisions/0023-array-cache.md). KDD in vellum mode cleans sooner, and stages more.
    pub fn new(scheme: Scheme, pages: u32) -> Recipe {
        let paper = Recipe {
            scheme,
            pages,
            ways: 512,
            segment_pages: 0,
            log_pages: (f64::from(pages) * 0.0059) as u32,
            staging_bytes: 4096,
            dirty_high: 0.8,
            dirty_low: 0.75,
            window: 0,
            delta_bytes_max: DELTA_BYTES_MAX,
            run_max: u64::MAX,
            budget: None,
        };
        match scheme {
            Scheme::Kdd => Recipe {
                segment_pages: segment_pages(pages),
                staging_bytes: staging_bytes(pages),
                dirty_high: 0.5,
                dirty_low: 0.45,
                window: window(pages),
                delta_bytes_max: 3072,
                run_max: 256,
                ..paper
            },
            _ => paper,
        }
    }

    /// The cache in front of an array of this shape.
    ///
    /// # Errors
    /// [`vellum_base::Kind::Invalid`] for thresholds that are not in order, and for a cache that is too small.
    pub fn build(&self, array: &Shape) -> Result<Box<dyn Policy>> {
        let shape = self.shape(array)?;
        Ok(match self.scheme {
            Scheme::NoSsd => Box::new(NoSsd),
            Scheme::WriteAround | Scheme::WriteThrough | Scheme::Larc => {
                Box::new(Bare::new(shape, self.scheme))
            }
            Scheme::Leavo => Box::new(Leavo::new(shape, self)),
            Scheme::KddPaper | Scheme::Kdd => Box::new(Kdd::new(shape, self)),
        })
    }

    /// A cache with what an earlier one has left.
    ///
    /// # Errors
    /// [`vellum_base::Kind::Corrupt`] if that cannot be.
    pub fn restore(&self, array: &Shape, restored: &Restored) -> Result<Box<dyn Policy>> {
        let shape = self.shape(array)?;
        Ok(match self.scheme {
            Scheme::NoSsd => Box::new(NoSsd),
            Scheme::WriteAround | Scheme::WriteThrough | Scheme::Larc => {
                Box::new(Bare::restore(shape, self, restored)?)
            }
            Scheme::Leavo => Box::new(Leavo::restore(shape, self, restored)?),
            Scheme::KddPaper | Scheme::Kdd => Box::new(Kdd::restore(shape, self, restored)?),
        })
    }

    fn shape(&self, array: &Shape) -> Result<CacheShape> {
        let in_order = 0.0 < self.dirty_low && self.dirty_low <= self.dirty_high && self.dirty_high < 1.0;
        if !in_order {
            return Err(Error::invalid("cleaning takes thresholds with 0 < low <= high < 1"));
        }
        let (window, segment_pages) = match self.scheme {
            Scheme::Kdd => (self.window, self.segment_pages),
            _ => (0, 0),
        };
        CacheShape::new(array, self.pages, self.ways, window, segment_pages)
    }
}

/// Memory for staged deltas: a 64th of the cache, at most 4 MiB.
fn staging_bytes(pages: u32) -> usize {
    (pages as usize * SECTOR_BYTES / 64).clamp(2 * SECTOR_BYTES, 4 << 20)
}

/// Pages of a segment: 2 MiB, less where there would be too few of them; 0 where a segment would be hardly more than a
/// page.
pub(super) fn segment_pages(pages: u32) -> u32 {
    let most = (pages / SEGMENTS_WANTED).min(SEGMENT_PAGES_MAX);
    if most < 4 { 0 } else { 1 << most.ilog2() }
}

/// Pages in memory: a 32nd of the cache, at least 1 MiB and at most 64 MiB.
fn window(pages: u32) -> u16 {
    (pages / 32).clamp(256, 1 << 14) as u16
}

/// What a log and an NVRAM hold of a cache.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// Entries of the log and, behind them, of the metadata buffer; later ones count. With each the sequence of its
    /// page of the log, None if it was in the buffer.
    pub entries: Vec<(LogEntry, Option<u64>)>,
    /// The oldest page of the log that counts, and the next to be written.
    pub log: (u64, u64),
    /// Deltas in the staging buffer, in the order in which they came.
    pub staged: Vec<Staged>,
}
