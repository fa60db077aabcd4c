//! The interface of all policies, and their construction.
//!
//! Obligations of a driver:
//! 1. It asks for one sector at a time. It carries out the steps before it asks for the same sector again, or for a
//!    sector of a row named by the steps.
//! 2. Before a write it asks for the [`Policy::base`], reads it and passes the length of the delta. If the base is gone
//!    by then, the policy ignores the delta.

use super::bare::{Bare, NoSsd};
use super::kdd::Kdd;
use super::leavo::Leavo;
use super::shape::CacheShape;
use super::staging::DELTA_BYTES_MAX;
use super::step::{LogEntry, Newest, PageNo, Staged, Steps};
use crate::layout::Shape;
use vellum_base::{Error, Lba, Result, SECTOR_BYTES};

/// Pages per segment if the cache is large enough: 2 MiB, an erase block.
const SEGMENT_PAGES_MAX: u32 = 512;
/// Segments are made smaller to have at least this many; otherwise too large a share of the cache would be free.
const SEGMENTS_WANTED: u32 = 32;

/// Decides what is kept in the cache. See the module.
pub trait Policy: Send {
    /// The page to which a write of this sector needs the delta; `None` if it needs none.
    fn base(&self, lba: Lba) -> Option<PageNo>;

    /// Where the newest version of a sector is.
    fn newest(&self, lba: Lba) -> Newest;

    /// Handles a read of one sector; returns where its newest version is before the steps.
    fn read(&mut self, lba: Lba, steps: &mut Steps) -> Newest;

    /// Handles a write of one sector. `delta_bytes` is the length of the delta to [`Policy::base`]; `None` without a
    /// base, or if it cannot be read.
    fn write(&mut self, lba: Lba, delta_bytes: Option<usize>, steps: &mut Steps);

    /// The sector is about to be zeroed or trimmed on the array: it is dropped from the cache, and its parity is
    /// brought up to date.
    fn forget(&mut self, lba: Lba, steps: &mut Steps);

    /// Updates the parity of a row.
    fn clean_row(&mut self, row: u64, steps: &mut Steps);

    /// Does a little cleaning, as the array is idle. False if there is nothing to clean.
    fn idle(&mut self, steps: &mut Steps) -> bool;

    /// Sets whether parity may be deferred from now on: not while a member is lost.
    fn allow_deferring(&mut self, allowed: bool);

    /// Adds to the bytes that may be written to flash; a negative number accounts for writes other than of data and
    /// deltas. Ignored by policies without a budget.
    fn grant(&mut self, _bytes: i64) {}

    /// Prepares a clean stop: empties the staging buffer, and cleans what [`Policy::entries`] cannot represent.
    fn settle(&mut self, _steps: &mut Steps) {}

    /// The log entries from which [`Recipe::restore`] can restore this cache: the coldest pages of each kind first.
    /// Empty if it cannot be restored.
    fn entries(&self) -> Vec<LogEntry> {
        Vec::new()
    }

    /// Counts of pages by state.
    fn census(&self) -> Census;
}

/// Counts of a cache's pages by state, and other fill levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Free pages.
    pub free: u64,
    /// Pages with the content of the array.
    pub clean: u64,
    /// Pages with the version that parity covers, while the array is newer.
    pub old: u64,
    /// Pages with the newest version of an old page's sector.
    pub new: u64,
    /// Delta pages.
    pub delta: u64,
    /// Bytes in the staging buffer, including heads of deltas.
    pub staged_bytes: u64,
    /// Valid pages of the log.
    pub log_pages: u64,
    /// Pages in memory; included in the counts above.
    pub window: u64,
    /// Bytes that may be written to flash now, if there is a budget; may be negative.
    pub budget_left: Option<i64>,
}

/// The policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// No SSD.
    NoSsd,
    /// Writes go to the array only; reads fill.
    WriteAround,
    /// Writes go to the array and the cache.
    WriteThrough,
    /// Write-through for sectors missed a second time within a while (Huang et al., MSST 2013).
    Larc,
    /// Old and new versions in the cache, deferred parity (Lee et al., SAC 2015).
    Leavo,
    /// Old versions and deltas, as in kdd.txt.
    KddPaper,
    /// The same with admission, a limit on delta length, and a budget (vellum mode).
    Kdd,
}

impl Scheme {
    /// All policies.
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

    /// The policy with this name.
    pub fn by_name(name: &str) -> Option<Scheme> {
        Scheme::ALL.into_iter().find(|scheme| scheme.name() == name)
    }
}

/// Size and thresholds of a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// The policy.
    pub scheme: Scheme,
    /// Pages for data and deltas; rounded down to whole sets.
    pub pages: u32,
    /// Pages per set; fewer if the cache is smaller.
    pub ways: u16,
    /// KDD in vellum mode: pages per segment, which are written in order and discarded together; 0: pages are written
    /// in place. With segments the cache is a single set.
    pub segment_pages: u32,
    /// Pages of the metadata log; raised to what `pages` require.
    pub log_pages: u32,
    /// Bytes of the staging buffer, including heads of deltas.
    pub staging_bytes: usize,
    /// Cleaning begins when this share of a set is neither free nor clean...
    pub dirty_high: f64,
    /// ...and ends at this one.
    pub dirty_low: f64,
    /// KDD: with a longer delta, parity is written at once, and the page dropped.
    pub delta_bytes_max: usize,
    /// KDD in vellum mode: pages in memory, where sectors stay until it is known whether they are worth writing to
    /// flash. They are lost in a power failure, so this is 0 if a cache must survive one.
    pub window: u16,
    /// KDD in vellum mode: misses in longer sequential runs are not admitted.
    pub run_max: u64,
    /// KDD in vellum mode: bytes that may be written to flash at the start; more can be granted later. `None`: no
    /// limit.
    pub budget: Option<i64>,
}

impl Recipe {
    /// As in the paper: 4 KiB of staging, a log of 0.59 % of the SSD. The paper does not say when cleaning begins
    /// (docs/decisions/0023-array-cache.md). KDD in vellum mode cleans earlier, and stages more.
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

    /// Creates the cache for an array of this shape.
    ///
    /// # Errors
    /// [`vellum_base::Kind::Invalid`] for thresholds out of order, and for a cache that is too small.
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

    /// Restores a cache with the content of an earlier one.
    ///
    /// # Errors
    /// [`vellum_base::Kind::Corrupt`] if that content is inconsistent.
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

/// Pages per segment: 2 MiB, or less if there would be too few segments; 0 if a segment would be hardly more than a
/// page.
pub(super) fn segment_pages(pages: u32) -> u32 {
    let most = (pages / SEGMENTS_WANTED).min(SEGMENT_PAGES_MAX);
    if most < 4 { 0 } else { 1 << most.ilog2() }
}

/// Pages in memory: a 32nd of the cache, at least 1 MiB and at most 64 MiB.
fn window(pages: u32) -> u16 {
    (pages / 32).clamp(256, 1 << 14) as u16
}

/// State of a cache from its log and NVRAM.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// Entries of the log, then of the metadata buffer; later ones override earlier ones. Each with the sequence number
    /// of its log page, or `None` if it was in the buffer.
    pub entries: Vec<(LogEntry, Option<u64>)>,
    /// The oldest valid page of the log, and the next to be written.
    pub log: (u64, u64),
    /// Deltas in the staging buffer, in the order of their arrival.
    pub staged: Vec<Staged>,
}
