//! What the choice of a job depends on besides the version: what is running and asked for, room, and how large levels
//! should be.

use super::gather::{Gather, Small};
use super::job::{Claim, Job, is_deleting};
use super::piece::PartialMerges;
use crate::journal::TableMeta;
use crate::lsm::manual::Request;
use crate::lsm::room::Room;
use crate::lsm::table::Table;
use crate::lsm::version::Version;
use std::collections::BTreeSet;
use std::sync::Arc;

/// See the module.
pub(crate) struct Situation<'a> {
    pub running: &'a [Claim],
    /// Levels and ranges to be merged whatever their size.
    pub requested: &'a [Request],
    /// Tables to be rewritten within their level.
    pub gathers: &'a [Gather],
    /// Tables that are not gathered unless asked for.
    pub in_vain: &'a BTreeSet<u64>,
    /// Merges in pieces that are not complete.
    pub begun: &'a PartialMerges,
    /// Of what is due what was asked for comes first.
    pub asked_first: bool,
    /// Reads have cost as much as merging level 0 ([`super::Toll`]).
    pub toll_is_due: bool,
    /// Free room, less what flushes and running jobs may need.
    pub room: Room,
    /// Tables that jobs of deeper levels must leave for deletes.
    pub reserve: u64,
    /// What the oldest snapshot sees. Where there is one, deletes may not free what they hide.
    pub oldest: Option<u64>,
}

impl<'a> Situation<'a> {
    /// Where nothing but this is to be known.
    pub(crate) fn new(
        running: &'a [Claim],
        requested: &'a [Request],
        begun: &'a PartialMerges,
        room: Room,
    ) -> Situation<'a> {
        let room = room.beside(running);
        let in_vain = const { &BTreeSet::new() };
        Situation {
            running,
            requested,
            gathers: &[],
            in_vain,
            begun,
            asked_first: false,
            toll_is_due: false,
            room,
            reserve: 0,
            oldest: None,
        }
    }

    /// True if a request concerns tables of the level.
    pub(crate) fn is_requested(&self, version: &Version, level: usize) -> bool {
        self.requested.iter().any(|request| request.level == level && request.is_open(version))
    }

    /// True if a request concerns this table of the level.
    pub(super) fn is_asked_for(&self, level: usize, table: &Table) -> bool {
        self.requested.iter().any(|request| request.level == level && request.is_for(&table.meta))
    }

    /// True if there is room for a job, about `kept` tables of which it keeps for good: what is left in the end must
    /// cover the reserve for deletes. That is not asked of merges of level 0 and of mostly deletes, which free room in
    /// the end.
    pub(super) fn has_room_for(&self, job: &Job, kept: u64) -> bool {
        let room = &self.room;
        let wins = !room.whole_tables || job.claim.level == 0 || self.frees_room(&job.upper);
        let left = room.free().saturating_add(job.claim.replaced);
        room.fits(job.claim.tables, job.replaced().count())
            && (wins || left >= self.reserve + kept.min(job.claim.tables))
    }

    /// True if merging these tables down frees room: most of their entries are deletes, and there is no snapshot that
    /// might see what they hide.
    pub(super) fn frees_room(&self, tables: &[Arc<Table>]) -> bool {
        self.oldest.is_none() && is_deleting(tables)
    }

    /// About as many bytes of a table as are left without the older versions that no snapshot sees.
    pub(super) fn left_of(&self, table: &TableMeta) -> u64 {
        if !table.is_outlived(self.oldest) {
            return table.merged_bytes();
        }
        let bytes = u128::from(table.merged_bytes()) * u128::from(table.entries - table.older);
        bytes.div_ceil(u128::from(table.entries)) as u64
    }

    /// True if no running job conflicts with the claim.
    pub(super) fn is_alone(&self, claim: &Claim) -> bool {
        !self.running.iter().any(|other| other.conflicts(claim))
    }
}

/// Target sizes of levels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub level0_compact: usize,
    pub level1_bytes: u64,
    pub level_factor: u64,
    pub small: Small,
}

impl Shape {
    /// Urgency of compacting a level: it is due from 1 on.
    pub(super) fn score(&self, version: &Version, level: usize, situation: &Situation<'_>) -> f64 {
        let full = self.fullness(version, level);
        match level {
            // One at a time: the running job will empty the level.
            0 if situation.running.iter().any(|claim| claim.level == 0) => 0.0,
            0 if situation.toll_is_due => full.max(1.0),
            _ => full,
        }
    }

    /// Size of a level relative to its target.
    pub(crate) fn fullness(&self, version: &Version, level: usize) -> f64 {
        if level == 0 {
            return version.levels[0].len() as f64 / self.level0_compact.max(1) as f64;
        }
        let factor = self.level_factor.max(2).saturating_pow(level as u32 - 1);
        version.bytes(level) as f64 / self.level1_bytes.saturating_mul(factor).max(1) as f64
    }
}
