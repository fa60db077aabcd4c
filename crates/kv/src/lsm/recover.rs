//! Recovery: reads CURRENT, manifest, tables and logs, and finds leftovers to be removed.
//!
//! 1. Nothing is erased before everything that the manifest relies on was found without damage.
//! 2. Logs form a chain (`journal/chain.rs`). Those not on it are leftovers.

use crate::journal::{COMPARATOR, Edit, Ending, Floors, LEVELS, Previous, TableMeta, check_comparator};
use crate::leftovers::{Leftovers, no_current, number_after};
use crate::lifetime::Lifetime;
use crate::lsm::core::Frozen;
use crate::lsm::keyspace::Keyspaces;
use crate::lsm::limits::Limits;
use crate::lsm::replay::{Replayed, read_logs, replay};
use crate::lsm::table::{Library, Table};
use crate::lsm::version::Version;
use crate::manifest::{self, Current};
use crate::media::Media;
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::{Error, Result};

/// What was found.
pub(crate) struct Recovered {
    pub current: Current,
    pub version: Version,
    pub floors: Floors,
    pub next_number: u64,
    /// Memtables to be flushed at once, oldest first.
    pub frozen: Vec<Frozen>,
    /// The active memtable.
    pub active: Replayed,
    /// The newest log and its length.
    pub previous: Previous,
    pub leftovers: Leftovers,
    pub lifetime: Lifetime,
}

/// State of the manifest after its last edit.
pub(crate) struct ManifestState {
    pub levels: [Vec<TableMeta>; LEVELS],
    pub floors: Floors,
    pub next_number: u64,
    pub keyspaces: Keyspaces,
    pub lifetime: Lifetime,
}

impl ManifestState {
    /// Logs that tables point into.
    pub(crate) fn kept_logs(&self) -> impl Iterator<Item = u64> {
        self.levels[0].iter().flat_map(|meta| &meta.logs).map(|log| log.number)
    }
}

/// Recovers the store; `None` if there is none.
pub(crate) fn recover(
    media: &dyn Media,
    library: &Arc<Library>,
    limits: &Limits,
    ending: Ending,
) -> Result<Option<Recovered>> {
    let (areas, tables) = (media.areas()?, media.tables()?);
    let Some(current) = Current::of(media)? else {
        return no_current(&areas, &tables).map(|()| None);
    };
    let state = state_of(manifest::read(media, current)?)?;
    let version = open_tables(&state, media, library)?;
    let logs = read_logs(media, &areas, &state, (Some(current.store), ending))?;
    let numbers = areas.iter().map(|area| area.number).chain(tables.iter().copied());
    let numbers = numbers.chain([media.highest_table(), state.next_number.saturating_sub(1)]);
    let next_number = number_after(numbers)?;
    let wanted: BTreeSet<u64> = state.levels.iter().flatten().map(|meta| meta.number).collect();
    let kept = logs.iter().map(|log| log.number).chain(state.kept_logs()).collect();
    let leftovers = Leftovers::but((tables, areas), &wanted, &kept, (current.manifest, state.next_number));
    let last_seq = logs.iter().map(|log| log.last_seq).max().unwrap_or(0).max(state.floors.last_seq);
    let previous =
        logs.last().map_or(Previous::default(), |log| Previous { number: log.number, length: log.length });
    let (frozen, active) = replay(logs, limits);
    Ok(Some(Recovered {
        current,
        version,
        floors: Floors { last_seq, ..state.floors },
        next_number,
        frozen,
        active,
        previous,
        leftovers,
        lifetime: state.lifetime,
    }))
}

/// Plays the edits.
pub(crate) fn state_of(edits: Vec<Edit>) -> Result<ManifestState> {
    let mut state = ManifestState {
        levels: Default::default(),
        floors: Floors::default(),
        next_number: 1,
        keyspaces: Keyspaces::default(),
        lifetime: Lifetime::default(),
    };
    for edit in edits {
        check_comparator(&edit, COMPARATOR)?;
        state.floors = state.floors.after(&edit);
        if !edit.lifetime.is_empty() {
            state.lifetime = edit.lifetime.clone();
        }
        state.keyspaces.apply(&edit);
        for (level, number) in &edit.removed {
            let tables = &mut state.levels[*level as usize];
            let Some(at) = tables.iter().position(|meta| meta.number == *number) else {
                return Err(Error::corrupt(format!("manifest: table {number} is not in level {level}")));
            };
            tables.swap_remove(at);
        }
        for (level, meta) in edit.added {
            // Earlier programs did not say the next number with each merge.
            state.next_number = state.next_number.max(meta.number.saturating_add(1));
            state.levels[level as usize].push(meta);
        }
        state.next_number = edit.next_number.unwrap_or(0).max(state.next_number);
    }
    number_after(std::iter::once(state.next_number.saturating_sub(1)))?; // an error if nothing can have such a number
    Ok(state)
}

fn open_tables(state: &ManifestState, media: &dyn Media, library: &Arc<Library>) -> Result<Version> {
    let mut version = Version { keyspaces: state.keyspaces.clone(), ..Version::default() };
    for (level, metas) in state.levels.iter().enumerate() {
        for meta in metas {
            version.levels[level].push(Table::on(library, media, meta.clone())?);
        }
    }
    version.sort();
    version.check_guesses()?;
    Ok(version)
}
