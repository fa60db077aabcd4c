//! LevelDB's compaction rules (version 1.14: `db/version_set.cc`, `db/db_impl.cc`), for comparison and for FlashKV's
//! paper mode, which is built on them.
//!
//! 1. Only the level that exceeds its size most is compacted; within it, the table after the one compacted last,
//!    round-robin (`PickCompaction`, `compact_pointer_`).
//! 2. Further tables of that level are added if that adds none of the next level (`SetupOtherInputs`).
//! 3. If no level is due: a table that gets searched in vain too often (`UpdateStats`, `allowed_seeks`).
//! 4. The task that compacts also flushes, and interrupts its compaction to do so (`DoCompactionWork`).
//! 5. While level 0 slows writers down each write takes a millisecond longer (`MakeRoomForWrite`).

use super::CompactionRules;
use crate::journal::LEVELS;
use crate::key::{LookupKey, Stamp};
use crate::lsm::compaction::{Job, Shape, Situation, job_of, next_piece, with_sharers};
use crate::lsm::core::Core;
use crate::lsm::room::Budget;
use crate::lsm::table::Table;
use crate::lsm::version::Version;
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Nanos, Result};

/// A table may be searched in vain once per this many of its bytes before it is compacted.
const BYTES_A_LOOK: u64 = 16 << 10;
const LOOKS_MIN: i64 = 100;
/// A compaction is extended up to this many full tables.
const TABLES_MAX: u64 = 25;
const WRITE_DELAY: Nanos = Nanos::from_ms(1);

#[derive(Default)]
pub(crate) struct LevelDb(Mutex<Past>);

impl CompactionRules for LevelDb {
    fn uses_spare_room(&self) -> bool {
        false
    }
    fn keeps_values_in_logs(&self) -> bool {
        false
    }
    fn flushes_beside_merges(&self) -> bool {
        false
    }
    fn merges_in_parts(&self) -> bool {
        false
    }
    fn aligns_cuts(&self) -> bool {
        false
    }
    fn gathers(&self) -> bool {
        false
    }
    fn write_delay(&self) -> Option<Nanos> {
        Some(WRITE_DELAY)
    }

    fn pick(&self, budget: &Budget<'_>, shape: &Shape, situation: Situation<'_>) -> Option<Job> {
        let table_bytes = budget.core.media.shape().table_bytes;
        self.0.lock().pick(budget.version, shape, &situation, table_bytes)
    }
    fn begins(&self, job: &Job) {
        self.0.lock().begins(job);
    }
    fn get(
        &self,
        core: &Core,
        version: &Version,
        wanted: LookupKey<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Stamp>> {
        let looked = get_to_account(version, wanted, out)?;
        if let Some((level, table)) = looked.in_vain
            && self.0.lock().looked_in_vain(level, table)
        {
            core.state.wake_tasks();
        }
        Ok(looked.found)
    }
}

/// What LevelDB remembers of compactions and gets.
#[derive(Default)]
struct Past {
    /// Per level, the largest key of the last compaction.
    turns: [Vec<u8>; LEVELS],
    /// By table number, the vain searches it may still have.
    looks: BTreeMap<u64, i64>,
    /// A table that has used them up: its level and number.
    tired: Option<(usize, u64)>,
}

impl Past {
    /// The next compaction that does not conflict with running ones.
    fn pick(
        &mut self,
        version: &Version,
        shape: &Shape,
        situation: &Situation<'_>,
        table_bytes: u64,
    ) -> Option<Job> {
        if let Some(job) = next_piece(version, situation) {
            return Some(job);
        }
        let due = (0..LEVELS - 1)
            .map(|level| (shape.fullness(version, level), level))
            .filter(|(score, level)| *score >= 1.0 || situation.is_requested(version, *level))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        match due {
            None => {
                self.forget_gone(version);
                self.tired_of(version, situation)
            }
            Some((_, 0)) => job_of(version, 0, version.levels[0].clone(), situation),
            Some((_, level)) => self.next_of(version, level, situation, table_bytes),
        }
    }

    /// The job of the next table in turn that conflicts with no running job.
    fn next_of(
        &self,
        version: &Version,
        level: usize,
        situation: &Situation<'_>,
        table_bytes: u64,
    ) -> Option<Job> {
        let tables = &version.levels[level];
        let first = tables.partition_point(|table| table.meta.largest <= self.turns[level]);
        let job = |at: usize| {
            let upper = vec![tables[(first + at) % tables.len()].clone()];
            job_of(version, level, grown(version, level, upper, table_bytes), situation)
        };
        (0..tables.len()).find_map(job)
    }

    fn tired_of(&self, version: &Version, situation: &Situation<'_>) -> Option<Job> {
        let (level, number) = self.tired?;
        if level == 0 {
            return job_of(version, 0, version.levels[0].clone(), situation);
        }
        let table = version.levels[level].iter().find(|table| table.meta.number == number)?;
        job_of(version, level, vec![table.clone()], situation)
    }

    /// Forgets the tired table if it no longer exists: no other could become tired otherwise.
    fn forget_gone(&mut self, version: &Version) {
        let is_there =
            |(level, tired): &(usize, u64)| version.levels[*level].iter().any(|t| t.meta.number == *tired);
        self.tired = self.tired.filter(is_there);
    }

    /// Notes that a job begins.
    fn begins(&mut self, job: &Job) {
        if let Some(last) = job.upper.last() {
            self.turns[job.claim.level] = last.meta.largest.clone();
        }
        self.tired = self.tired.filter(|(_, tired)| job.upper.iter().all(|t| t.meta.number != *tired));
        for (_, table) in job.replaced() {
            self.looks.remove(&table.meta.number);
        }
    }

    /// Notes that a get searched a table in vain. True if that was once too often.
    fn looked_in_vain(&mut self, level: usize, table: &Table) -> bool {
        let looks = (table.meta.bytes / BYTES_A_LOOK) as i64;
        let left = self.looks.entry(table.meta.number).or_insert(looks.max(LOOKS_MIN));
        *left -= 1;
        let tires = *left <= 0 && self.tired.is_none() && level + 1 < LEVELS;
        if tires {
            self.tired = Some((level, table.meta.number));
        }
        tires
    }
}

/// With tables beside it, as long as those of the next level stay the same.
fn grown(version: &Version, level: usize, upper: Vec<Arc<Table>>, table_bytes: u64) -> Vec<Arc<Table>> {
    let upper = with_sharers(version, level, upper);
    let below = |tables: &[Arc<Table>]| {
        let (first, last) = (tables.first()?, tables.last()?);
        Some(version.overlap(level + 1, &first.meta.smallest, &last.meta.largest))
    };
    let Some(lower) = below(&upper) else { return upper };
    let (Some(first), Some(last)) = (lower.first(), lower.last()) else { return upper };
    let more = version.overlap(
        level,
        first.meta.smallest.as_slice().min(&upper[0].meta.smallest),
        last.meta.largest.as_slice().max(&upper[upper.len() - 1].meta.largest),
    );
    let bytes: u64 = more.iter().chain(&lower).map(|table| table.meta.bytes).sum();
    let same = below(&more).is_some_and(|tables| tables.len() == lower.len());
    if same && bytes < TABLES_MAX * table_bytes { more } else { upper }
}

/// The result of a get and, if it searched more than one table, the first of them with its level.
struct Looked<'a> {
    found: Option<Stamp>,
    in_vain: Option<(usize, &'a Arc<Table>)>,
}

/// [`Version::get`], which also reports the table that LevelDB charges for the search.
fn get_to_account<'a>(version: &'a Version, wanted: LookupKey<'_>, out: &mut Vec<u8>) -> Result<Looked<'a>> {
    let key = wanted.key;
    let mut first: Option<(usize, &Arc<Table>)> = None;
    let mut in_vain = None;
    for (level, tables) in version.levels.iter().enumerate() {
        let from = if level == 0 { 0 } else { tables.partition_point(|t| t.meta.largest[..] < *key) };
        let reaches = |t: &&Arc<Table>| level == 0 || t.meta.smallest[..] <= *key;
        let reached = tables[from..].iter().take_while(reaches);
        for (at, table) in reached.enumerate().filter(|(_, table)| table.meta.has(key)) {
            in_vain = in_vain.or(first);
            first = first.or(Some((level, table)));
            if let Some(mut found) = table.get(wanted, out)? {
                if level == 0 {
                    found = version.newest(at + 1, wanted, found, out)?;
                }
                return Ok(Looked { found: Some(found), in_vain });
            }
        }
    }
    Ok(Looked { found: None, in_vain })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::compaction::{PartialMerges, Small};
    use crate::lsm::room::Room;

    #[test]
    fn a_tired_table_that_is_gone_is_forgotten() {
        let mut past = Past { tired: Some((0, 7)), ..Past::default() };
        let small = Small { count: 8, in_steps: true, each: 1 << 16, all: 1 << 19, table_bytes: 1 << 20 };
        let shape = Shape { level0_compact: 4, level1_bytes: 1 << 20, level_factor: 10, small };
        let room = Room {
            tables: 100,
            listed: u64::MAX,
            table_bytes: 1 << 20,
            whole_tables: false,
            is_tight: false,
        };
        let begun = PartialMerges::default();
        let situation = Situation::new(&[], &[], &begun, room);
        assert!(past.pick(&Version::default(), &shape, &situation, 1 << 20).is_none());
        assert_eq!(past.tired, None, "every flush would be merged at once, and no other table could tire");
    }
}
