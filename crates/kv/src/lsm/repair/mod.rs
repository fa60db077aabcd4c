//! Repair of a store that cannot be opened or read.
//!
//! 1. Nothing is erased before a manifest that does not need it is durable; an interrupted repair can be started again.
//! 2. Whatever passes its checks, in a table or a log, ends up in the store, unless newer entries hide it or it is
//!    where nothing belongs; the latter is reported.
//! 3. If the manifest can be read, tables keep the levels that it states.
//! 4. A log that tables point into is not replayed: its entries are in these tables, or in those they were merged into.

mod flushed;
mod logs;
mod tables;
mod values;

use crate::engine::Engine;
use crate::journal::{Area, AreaKind, COMPARATOR, Edit, LogPart, lacks_a_log, of_another_store};
use crate::leftovers::number_after;
use crate::lsm::keyspace::Keyspaces;
use crate::lsm::recover::{ManifestState, state_of};
use crate::lsm::table::Table;
use crate::manifest;
use crate::media::{Media, Patient};
use crate::options::Options;
use crate::repair::{Named, Renewed, Repaired, give_up, known, manifest_in_force};
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::{Env, Error, Kind, Result};

/// State shared by the steps of a repair.
struct Repair<'a> {
    media: &'a Arc<dyn Media>,
    env: &'a Arc<dyn Env>,
    options: &'a Options,
    /// Areas found at the start.
    areas: Vec<Area>,
    tables: Vec<u64>,
    /// The store's identity number, if it can be found.
    store: Option<u64>,
    numbers: AtomicU64,
    report: Repaired,
    /// Tables of the repaired store, with their levels.
    added: Vec<(u8, crate::journal::TableMeta)>,
    keyspaces: Keyspaces,
    /// Keyspaces of entries that were saved without a manifest, or rewritten.
    spaces: BTreeSet<u8>,
    last_seq: u64,
    /// CURRENT or an edit of a manifest decodes: this is a store.
    is_ours: bool,
    /// Logs that tables point into; used if there is no manifest.
    pointed_logs: BTreeSet<u64>,
    /// Logs that another store wrote.
    foreign: BTreeSet<u64>,
    /// Ranges of sequence numbers (from, below) of batches recovered from logs.
    salvaged: Vec<(u64, u64)>,
}

/// Repairs the store on `media`, which must not be open elsewhere, and reports what was found. Writes nothing if
/// nothing is wrong. Errors: [`Kind::Invalid`] if there is no store, [`Kind::Unsupported`] for a log store, and
/// failures of the medium.
pub fn repair(media: &Arc<dyn Media>, env: &Arc<dyn Env>, options: &Options) -> Result<Repaired> {
    let media = &Patient::with(media);
    let (areas, tables) = (media.areas()?, media.tables()?);
    let numbers = areas.iter().map(|area| area.number).chain(tables.iter().copied());
    let next_number = number_after(numbers.chain([media.highest_table()]))?;
    if areas.is_empty() && tables.is_empty() && matches!(media.current(), Ok(None)) {
        return Err(Error::invalid("there is no key-value store here"));
    }
    let store = manifest::store_of_remains(&**media, &areas)?;
    // This repair would take its segments for damaged tables.
    if Engine::of_remains(&**media)? == Some(Engine::Log) {
        return Err(Error::new(Kind::Unsupported, "it is a log store, which `log::repair` repairs"));
    }
    let repair = Repair {
        media,
        env,
        options,
        areas,
        tables,
        store,
        numbers: AtomicU64::new(next_number),
        report: Repaired::default(),
        added: Vec::new(),
        keyspaces: Keyspaces::default(),
        spaces: BTreeSet::new(),
        last_seq: 0,
        is_ours: false,
        pointed_logs: BTreeSet::new(),
        foreign: BTreeSet::new(),
        salvaged: Vec::new(),
    };
    repair.run()
}

impl Repair<'_> {
    fn run(mut self) -> Result<Repaired> {
        let (manifest, state) = self.read_manifest()?;
        let state = match state {
            Some(state) if self.is_current(&state)? => Some(state),
            _ => None,
        };
        self.find_foreign(state.as_ref())?;
        let logs_stay = match &state {
            Some(state) => self.keep_listed_tables(state).and_then(|()| self.keep_logs(state)),
            None => self.repair_without_manifest().map(|()| false),
        };
        let logs_stay = logs_stay.inspect_err(|_| give_up(&**self.media, &self.tables))?;
        if self.report.problems.is_empty() {
            return Ok(self.report);
        }
        let mut edit = self.whole(state.as_ref().filter(|_| logs_stay));
        edit.lifetime = state.map(|state| state.lifetime).unwrap_or_default();
        self.install(manifest, edit, logs_stay)
    }

    /// Saves all that can be saved where no manifest says what counts.
    fn repair_without_manifest(&mut self) -> Result<()> {
        self.report.manifest_lost = true;
        self.rebuild_without_manifest()?;
        let logs = self.areas.iter().filter(|area| area.kind == AreaKind::Log).map(|area| area.number);
        let logs = logs.filter(|log| !self.pointed_logs.contains(log));
        let (foreign, own): (Vec<u64>, Vec<u64>) = logs.partition(|log| self.foreign.contains(log));
        foreign.into_iter().for_each(|log| self.problem(of_another_store(Area::log(log))));
        let tables: Vec<Arc<Table>> =
            self.added.iter().map(|(_, meta)| self.open(meta)).collect::<Result<_>>()?;
        self.salvage_logs(own, &tables)?;
        self.check_ours()
    }

    fn problem(&mut self, what: impl std::fmt::Display) {
        self.report.problems.push(what.to_string());
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// The number of the manifest in force, and what it says, if it can be read; takes the keyspaces as far as it can.
    fn read_manifest(&mut self) -> Result<(Option<u64>, Option<ManifestState>)> {
        let (media, store) = (self.media, self.store);
        let read = |number| manifest::read_of(&**media, number, store).and_then(state_of);
        let (current, number) = manifest_in_force(&**media, &self.areas, |number| read(number).map(drop))?;
        let current = current.map_err(|error| self.problem(error)).ok();
        self.is_ours = current.is_some();
        let Some(number) = number else { return Ok((None, None)) };
        let state = known(read(number))?;
        if let Ok(state) = &state {
            self.keyspaces = state.keyspaces.clone();
            self.is_ours = true;
            self.last_seq = state.floors.last_seq;
            self.numbers.fetch_max(state.next_number, Relaxed);
        } else {
            let edits = manifest::read_what_can_be(&**self.media, number, self.store)?;
            self.is_ours |= !edits.is_empty();
            edits.iter().for_each(|edit| self.keyspaces.apply(edit));
        }
        Ok((Some(number), state.map_err(|error| self.problem(error)).ok()))
    }

    /// Without a manifest: an error if nothing was found that shows that these files are a store's.
    fn check_ours(&self) -> Result<()> {
        match !self.is_ours && self.added.is_empty() && self.salvaged.is_empty() {
            true => Err(Error::corrupt("nothing of a key-value store can be read here: nothing was changed")),
            false => Ok(()),
        }
    }

    /// False if the manifest lost its last edits: there are tables that were made of what is gone, or one that is newer
    /// than all that it names.
    fn is_current(&mut self, state: &ManifestState) -> Result<bool> {
        let metas = state.levels.iter().flatten();
        let is_gone = |log: &LogPart| !self.areas.contains(&Area::log(log.number));
        let spoiled = metas.clone().filter(|meta| meta.logs.iter().any(is_gone));
        let [tables, spoiled] =
            [metas.clone().map(|meta| meta.number).collect(), spoiled.map(|meta| meta.number).collect()];
        let lacks_log = lacks_a_log(&**self.media, &self.areas, self.store, state.floors.log_floor);
        let named = Named { tables, spoiled, lacks_log, next_number: state.next_number };
        let is_current = named.is_current(&self.tables, |number, gone| {
            Ok(self.foot_of_table(number)?.is_some_and(|foot| {
                gone.has_any(&foot.lineage.merged, number)
                    || lacks_log && foot.seq_max > state.floors.last_seq
            }))
        })?;
        if !is_current {
            self.problem("the manifest lost its end");
        }
        Ok(is_current)
    }

    /// The manifest's first edit; `logs` if the logs stay.
    fn whole(&mut self, logs: Option<&ManifestState>) -> Edit {
        for number in std::mem::take(&mut self.spaces) {
            if !self.keyspaces.knows(number) {
                self.problem(format!("the name of keyspace {number} is lost; it is \"lost-{number}\" now"));
                self.report.names_lost += 1;
                let created = vec![(number, format!("lost-{number}"))];
                self.keyspaces.apply(&Edit { created, ..Edit::default() });
            }
        }
        let mut whole = Edit {
            last_seq: Some(self.last_seq),
            next_number: Some(self.number()),
            log_floor: logs.map(|state| state.floors.log_floor),
            closed: logs.and_then(|state| state.floors.closed),
            added: std::mem::take(&mut self.added),
            ..Edit::default()
        };
        self.keyspaces.describe(&mut whole);
        whole
    }

    /// Puts the new manifest in force, then erases what it does not need.
    fn install(mut self, manifest: Option<u64>, whole: Edit, logs_stay: bool) -> Result<Repaired> {
        let pointed = whole.added.iter().flat_map(|(_, meta)| &meta.logs).map(|log| log.number);
        let renewed = Renewed {
            media: self.media,
            areas: &self.areas,
            before: &self.tables,
            manifest,
            store: self.store.unwrap_or_else(|| self.env.random()),
            comparator: COMPARATOR,
            tables: whole.added.iter().map(|(_, meta)| meta.number).collect(),
            logs: pointed.chain(self.foreign.iter().copied()).collect(),
            logs_stay,
        };
        let left = renewed.install(whole, || self.number())?;
        self.report.problems.extend(left);
        Ok(self.report)
    }
}
