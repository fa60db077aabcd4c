//! An array with a cache: attaching, opening, and the objects behind it.
//!
//! 1. Before anything else on the SSD changes, its superblock says that it was not closed. Without an NVRAM, an opening
//!    that finds this empties the cache.
//! 2. Array and cache are closed with the same new bond, the cache first. Once one of them is in use it no longer has
//!    that bond.
//! 3. A row is unknown if it is stale and the cache has nothing of it: its parity is recomputed from data.

use super::begin::Kept;
use super::behind::Behind;
use super::brain::Brain;
use super::cleaner::Cleaner;
use super::core::Core;
use super::logger::Logger;
use super::opening::{Opened, Plan, made, plan};
use super::options::{CacheFormat, CacheOptions};
use super::superblock::CacheSuperblock;
use crate::array::Array;
use crate::assemble::Device;
use crate::cache::policy::{Recipe, Scheme};
use crate::lane::Lanes;
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::{Env, Error, Result};

/// Concurrent calls that read pages of the SSD for a request, or write sectors again.
const READERS: usize = 8;

/// An array and its cache. Dropping it without [`CachedArray::close`] is like a power loss.
pub struct CachedArray {
    /// First, as fields are dropped in order: the cleaner, then tasks that work for requests, end before what they work
    /// on.
    pub(super) cleaner: Option<Cleaner>,
    pub(super) behind: Behind,
    pub(super) io: Lanes,
    /// With an NVRAM. It ends after those whose work it waits for.
    pub(super) logger: Option<Logger>,
    pub(super) core: Arc<Core>,
    pub(super) about: About,
}

/// What does not change while the cache is open.
pub(super) struct About {
    pub superblock: Option<CacheSuperblock>,
    /// Why the cache was emptied at the opening, if it was.
    pub emptied: Option<String>,
    /// The next page of the log to write.
    pub log_next: u64,
}

impl CachedArray {
    /// Makes the SSD the array's cache. The array is closed if that fails.
    ///
    /// # Errors
    /// [`vellum_base::Kind::Invalid`] if the SSD is too small or the array already has a cache,
    /// [`vellum_base::Kind::Busy`] if the SSD is already a cache or a member and `force` is not set.
    pub fn attach(
        array: Array,
        ssd: Device,
        format: &CacheFormat,
        options: CacheOptions,
    ) -> Result<CachedArray> {
        CachedArray::attach_with_nvram(array, ssd, None, format, options)
    }

    /// The same, with an NVRAM that keeps the cache's state across a power loss (KDD only).
    pub fn attach_with_nvram(
        array: Array,
        ssd: Device,
        nvram: Option<Device>,
        format: &CacheFormat,
        options: CacheOptions,
    ) -> Result<CachedArray> {
        match made(&array, &ssd, nvram.as_ref(), format, &options) {
            Ok(superblock) => {
                let opened = Opened::empty(superblock, None);
                CachedArray::with(array, Some(Kept { ssd, nvram, opened }), options)
            }
            Err(error) => refused(array, error),
        }
    }

    /// Opens an array with its cache; without one if `ssd` is `None` or unreadable, in which case deferred parity is
    /// recomputed from data. If that fails the array is closed, and its cache stays valid.
    ///
    /// # Errors
    /// [`vellum_base::Kind::Invalid`] if this is not the array's cache, or if a cache with valid content is absent,
    /// unless [`CacheOptions::without_cache`] is set; [`vellum_base::Kind::Corrupt`] if the SSD is no cache.
    pub fn open(array: Array, ssd: Option<Device>, options: CacheOptions) -> Result<CachedArray> {
        CachedArray::open_with_nvram(array, ssd, None, options)
    }

    /// The same, with the NVRAM that the cache has, or is to have from now on.
    pub fn open_with_nvram(
        array: Array,
        ssd: Option<Device>,
        nvram: Option<Device>,
        options: CacheOptions,
    ) -> Result<CachedArray> {
        match plan(&array.below(), ssd.as_ref(), nvram.as_ref(), &options) {
            Ok(Plan::With(opened)) => {
                let kept = ssd.map(|ssd| Kept { ssd, nvram, opened: *opened });
                CachedArray::with(array, kept, options)
            }
            Ok(Plan::WithoutCache(why)) => {
                let mut cached = CachedArray::with(array, None, options)?;
                cached.about.emptied = why;
                Ok(cached)
            }
            Err(error) => refused(array, error),
        }
    }

    fn with(array: Array, kept: Option<Kept>, options: CacheOptions) -> Result<CachedArray> {
        let shape = array.core().shape;
        let (ssd, brain, known, redo, about) = match kept {
            None => {
                array.core().bind(0)?;
                let brain =
                    Brain::new(Recipe::new(Scheme::NoSsd, 4).build(&shape)?, None, shape.row_sectors());
                let about = About { superblock: None, emptied: None, log_next: 0 };
                (None, brain, BTreeSet::new(), Vec::new(), about)
            }
            Some(kept) => kept.begin(&array, &options)?,
        };
        array.settle_doubts()?;
        let stale: BTreeSet<u64> = array.stale_rows(0, usize::MAX).into_iter().collect();
        let unknown = stale.difference(&known).copied().collect();
        let core = Arc::new(Core::new(array, ssd, brain, unknown, options.stale_rows_max));
        let io = Lanes::start(&core.env, "array-cache-io", READERS);
        core.redo(&redo, &io)?;
        Ok(CachedArray {
            cleaner: Some(Cleaner::start(&core, options.idle_after)),
            behind: Behind::start(&core.env),
            io,
            logger: core.nvram.is_some().then(|| Logger::start(&core)),
            core,
            about,
        })
    }

    /// Clock and tasks of the array.
    pub fn env(&self) -> Arc<dyn Env> {
        self.core.env.clone()
    }

    /// The array below.
    pub fn array(&self) -> &Array {
        &self.core.array
    }
}

fn refused(array: Array, error: Error) -> Result<CachedArray> {
    array
        .close()
        .map_err(|second| Error::new(error.kind(), format!("{error}; closing the array: {second}")))?;
    Err(error)
}
