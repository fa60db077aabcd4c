//! What differs between our own rules and those of LevelDB, on which FlashKV is built (docs/decisions/0018, *Two
//! modes*). [`Own`] and [`LevelDb`] answer the same questions in the same order; nothing else in the engine knows which
//! of them is in force.

mod leveldb;
mod own;

use crate::key::{LookupKey, Stamp};
use crate::lsm::compaction::{Job, Shape, Situation};
use crate::lsm::core::Core;
use crate::lsm::room::Budget;
use crate::lsm::version::Version;
use crate::options::Rules;
use leveldb::LevelDb;
use own::Own;
use vellum_base::{Nanos, Result};

/// What is compacted, when, and what writers do meanwhile.
pub(crate) trait CompactionRules: Send + Sync {
    /// Memtables and upper levels are larger while there is plenty of room.
    fn uses_spare_room(&self) -> bool;
    /// Flushes may leave values in the log (docs/decisions/0026).
    fn keeps_values_in_logs(&self) -> bool;
    /// Flushes have a task of their own; else a task that compacts flushes, too.
    fn flushes_beside_merges(&self) -> bool;
    /// A merge is split among idle tasks.
    fn merges_in_parts(&self) -> bool;
    /// Tables end where tables of the next level do.
    fn aligns_cuts(&self) -> bool;
    /// Small tables beside each other are merged within their level.
    fn gathers(&self) -> bool;
    /// How long each write is delayed while level 0 slows writers down; `None` for as long as their rate asks for.
    fn write_delay(&self) -> Option<Nanos>;

    /// The most urgent job that fits and does not conflict with running ones.
    fn pick(&self, budget: &Budget<'_>, shape: &Shape, situation: Situation<'_>) -> Option<Job>;
    /// Notes that a job begins.
    fn begins(&self, job: &Job);
    /// Finds an entry in the tables. Its value goes to `out`.
    fn get(
        &self,
        core: &Core,
        version: &Version,
        wanted: LookupKey<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Stamp>>;
}

impl Rules {
    /// The rules of this name, at the beginning.
    pub(crate) fn begin(self) -> Box<dyn CompactionRules> {
        match self {
            Rules::Vellum => Box::new(Own),
            Rules::LevelDb => Box::new(LevelDb::default()),
        }
    }
}
