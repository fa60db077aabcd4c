//! Which regions may have inconsistent parity, for arrays without a log: a bit is set, durably, before the first write
//! to a region.
//!
//! 1. A region's bit is cleared if no write to it was in flight at two flushes in succession: the second made durable
//!    whatever came before the first. Regions that are written constantly keep their bits, at no cost.
//! 2. This shortens a resync; it does not close the write hole.

use crate::array::Array;
use crate::assemble::region_rows;
use crate::core::Core;
use crate::superblock::LogPlace;
use std::collections::BTreeMap;
use vellum_base::sync::Mutex;
use vellum_base::{Kind, Result};

/// Regions whose bits are set, with their writes in flight.
#[derive(Default)]
pub(crate) struct Intents(Mutex<BTreeMap<u64, Region>>);

#[derive(Default)]
struct Region {
    under_way: u32,
    idle_flushes: u32,
}

impl Core {
    /// Called before a row changes in place.
    pub fn intend(&self, row: u64) -> Result<()> {
        if self.log_place != LogPlace::None {
            return Ok(());
        }
        let region = row / region_rows(&self.shape);
        let mut regions = self.intents.0.lock();
        let state = regions.entry(region).or_default();
        state.under_way += 1;
        state.idle_flushes = 0;
        drop(regions);
        self.intent.set(self, region)
    }

    /// Called when the row has changed.
    pub fn intended(&self, row: u64) {
        if let Some(state) = self.intents.0.lock().get_mut(&(row / region_rows(&self.shape))) {
            state.under_way = state.under_way.saturating_sub(1);
        }
    }

    /// Flushes all members, and clears the bits of idle regions.
    pub fn flush(&self) -> Result<()> {
        let idle = |state: &mut Region| {
            state.idle_flushes += u32::from(state.under_way == 0);
        };
        self.intents.0.lock().values_mut().for_each(idle);
        self.flush_members()?;
        self.intents.0.lock().retain(|region, state| {
            let keep = state.under_way > 0 || state.idle_flushes < 2;
            if !keep {
                self.intent.clear(*region);
            }
            keep
        });
        Ok(())
    }
}

impl Core {
    /// Clears all bits: all parity is consistent.
    pub fn clear_intents(&self) -> Result<()> {
        if self.log_place != LogPlace::None {
            return Ok(());
        }
        self.intent.ones(0, usize::MAX).into_iter().for_each(|region| self.intent.clear(region));
        self.intent.write_all(self)
    }
}

impl Array {
    /// Recomputes parity in all regions whose bits are set. A row with an unreadable sector becomes stale: it is not
    /// known whether its parity covers that sector's newest version.
    pub(crate) fn resync_intended(&self) -> Result<()> {
        let core = self.core();
        let rows = region_rows(&core.shape);
        for region in core.intent.ones(0, usize::MAX) {
            let end = ((region + 1) * rows).min(core.shape.rows);
            for row in region * rows..end {
                match core.resync_row(row) {
                    Err(error) if error.kind() != Kind::PowerLost && core.check_writable().is_ok() => {
                        core.stale.set(core, row)?;
                    }
                    result => result?,
                }
            }
        }
        core.flush_members()?;
        core.clear_intents()
    }
}
