//! What tables share: leaves that stay where they are on flash, and which are worth it (docs/decisions/0025).

use super::super::dies::data_units;
use super::super::list::Run;
use super::super::superblock::EXTENT_UNIT_BYTES;
use super::super::table_bytes;
use super::{Pool, State};
use crate::media::Stored;

/// Default limit of runs: one per this many bytes of flash, but at least `RUNS_MAX_LEAST`.
const RUN_FLASH_BYTES: u64 = 16 << 10;
const RUNS_MAX_LEAST: u64 = 1 << 20;

/// When a leaf that a merge does not have to change stays where it is on flash (docs/decisions/0025).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Relinking {
    /// Least fraction of its superblock that is expected to be live after the merge, from 0 to 1.
    pub live_min: f64,
    /// Fraction of all superblocks that should be free. While fewer are, the superblock of a leaf must also be at least
    /// as live as those that would have to be collected to reach this fraction: one that is less live would be among
    /// them soon.
    pub free_min: f64,
    /// Most runs (extents) that all tables together may consist of; each takes about 80 bytes of memory. Once there are
    /// as many, leaves are rewritten. `None` for one run per 16 KiB of flash, but no less than a million.
    pub runs_max: Option<u64>,
}

impl Default for Relinking {
    fn default() -> Relinking {
        Relinking { live_min: 0.0, free_min: 0.25, runs_max: None }
    }
}

/// Totals of a table written by a merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::media::flash) struct Emitted {
    pub bytes: u64,
    /// Of these, bytes that were unchanged.
    pub unchanged: u64,
}

/// A part of a range that is stored already, as offered to a table being written.
pub(in crate::media::flash) struct Offered {
    pub bytes: u64,
    /// The runs that it is, if the table uses it now.
    pub linked: Option<Vec<Run>>,
}

impl Pool {
    pub(in crate::media::flash) fn set_relinking(&self, relinking: Relinking) {
        self.state.lock().relinking = relinking;
    }

    /// Turns relinking on. From now on one superblock is kept for collection, so that [`Pool::free`] does not drop when
    /// tables begin to share.
    pub(in crate::media::flash) fn will_relink(&self) {
        self.state.lock().relinks = true;
    }

    pub(in crate::media::flash) fn relinks(&self) -> bool {
        self.state.lock().relinks
    }

    /// True if tables may share a superblock of `bytes` bytes.
    pub(in crate::media::flash) fn may_share(&self, bytes: u64) -> bool {
        bytes / EXTENT_UNIT_BYTES >= data_units(&*self.flash, self.state.lock().width_min)
    }

    /// The fraction of a superblock that has to be live for its units to be linked: that of the superblocks which would
    /// be collected to have as many free as there should be. If there are enough, only [`Relinking::live_min`].
    pub(in crate::media::flash) fn price(&self) -> f64 {
        let state = self.state.lock();
        let wanted = state.relinking.free_min * f64::from(self.flash.geometry().blocks_per_die);
        let price = match (wanted as u64).checked_sub(state.erased() as u64) {
            None | Some(0) => 0.0,
            Some(missing) => state.book.price(missing),
        };
        price.max(state.relinking.live_min)
    }

    /// True if tables may link more: collection can still run, and the limit of runs is not reached.
    fn has_room(&self, state: &State) -> bool {
        let most = state.relinking.runs_max.unwrap_or_else(|| {
            let geometry = self.flash.geometry();
            let flash_bytes = table_bytes(geometry) * u64::from(geometry.blocks_per_die);
            (flash_bytes / RUN_FLASH_BYTES).max(RUNS_MAX_LEAST)
        });
        state.erased() > 0 && state.book.runs() < most
    }

    /// Offers stored bytes to `table`, which is being written, and links those parts whose superblocks are live to at
    /// least the fraction `least`. `None` if they are not found.
    pub(in crate::media::flash) fn link(
        &self,
        table: u64,
        from: Stored,
        bytes: u64,
        least: f64,
    ) -> Option<Vec<Offered>> {
        let mut state = self.state.lock();
        let extents = state.book.find(from.table, from.offset, bytes)?;
        let offered = extents.into_iter().map(|extent| {
            let is_room = self.has_room(&state);
            Offered {
                bytes: extent.bytes(),
                linked: state.book.link(table, &extent, |s| is_room && s.live_share() >= least),
            }
        });
        Some(offered.collect())
    }

    /// True if all of these bytes could be linked.
    pub(in crate::media::flash) fn may_link(&self, from: Stored, bytes: u64, least: f64) -> bool {
        let state = self.state.lock();
        let Some(extents) = state.book.find(from.table, from.offset, bytes) else { return false };
        let is_room = self.has_room(&state);
        extents.iter().all(|extent| state.book.may_link(extent, |s| is_room && s.live_share() >= least))
    }

    /// Totals of the table that a merge wrote last.
    pub(in crate::media::flash) fn last_merge(&self) -> Emitted {
        self.state.lock().last_merge
    }

    /// Records the totals of a table written by a merge.
    pub(in crate::media::flash) fn merged(&self, emitted: Emitted) {
        self.state.lock().last_merge = emitted;
    }
}
