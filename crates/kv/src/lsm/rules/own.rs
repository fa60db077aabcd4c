//! Our own rules: any level that is due is compacted, beside others; levels grow into the room there is; reads and
//! writes pay no more than what merging would gain them.

use super::CompactionRules;
use crate::key::{LookupKey, Stamp};
use crate::lsm::compaction::{Job, Shape, Situation, pick};
use crate::lsm::core::Core;
use crate::lsm::room::Budget;
use crate::lsm::version::Version;
use vellum_base::{Nanos, Result};

/// They have no state: what a job needs to know is in the version and in its [`Situation`].
pub(crate) struct Own;

impl CompactionRules for Own {
    fn uses_spare_room(&self) -> bool {
        true
    }
    fn keeps_values_in_logs(&self) -> bool {
        true
    }
    fn flushes_beside_merges(&self) -> bool {
        true
    }
    fn merges_in_parts(&self) -> bool {
        true
    }
    fn aligns_cuts(&self) -> bool {
        true
    }
    fn gathers(&self) -> bool {
        true
    }
    fn write_delay(&self) -> Option<Nanos> {
        None
    }

    fn pick(&self, budget: &Budget<'_>, shape: &Shape, situation: Situation<'_>) -> Option<Job> {
        let (core, version) = (budget.core, budget.version);
        // While room is short it is kept for writers and for deletes, not used to make reads cheaper.
        let situation = Situation {
            toll_is_due: core.toll.is_due(version) && budget.has_plenty(),
            reserve: budget.kept_for_deletes(),
            oldest: core.oldest_snapshot(),
            ..situation
        };
        pick(version, shape, &situation)
    }
    fn begins(&self, _: &Job) {}
    fn get(
        &self,
        _: &Core,
        version: &Version,
        wanted: LookupKey<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Stamp>> {
        version.get(wanted, out)
    }
}
