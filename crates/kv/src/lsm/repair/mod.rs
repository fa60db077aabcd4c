//! Making a store whole again that does not open, or does not read.
//!
//! 1. Nothing is erased before a manifest that does not need it is durable; a repair that was cut short is begun again.
//! 2. Whatever of a table or a log checks out ends up in the store, unless something newer hides it, or it is where
//!    none belongs: that is said.
//! 3. What the manifest says of levels is kept where the manifest can be read.
//! 4. A log that tables point into is not replayed: what it holds is in them, or in what they were merged into.

mod flushed;
mod logs;
mod tables;
mod values;

use crate::engine::Engine;
use crate::journal::{Area, AreaKind, COMPARATOR, Edit, Previous, Wal, of_another_store};
use crate::lsm::keyspace::Keyspaces;
use crate::lsm::recover::{Told, number_after, tell};
use crate::manifest::{self, Current, Manifest};
use crate::media::Media;
use crate::options::Options;
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::{Env, Error, Kind, Result};

/// What [`repair`] did, and what it lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Tables that were in order and stay.
    pub tables_kept: usize,
    /// Tables that were damaged, or that no manifest vouched for, and are written anew.
    pub tables_rewritten: usize,
    /// Tables of which nothing could be read.
    pub tables_lost: usize,
    /// Entries that are known to be lost, as far as they could be counted: those of damaged tables, and those of
    /// damaged logs where something that is newer was found.
    pub entries_lost: u64,
    /// Logs that were damaged: what they held last may be lost without being counted.
    pub logs_damaged: usize,
    /// Batches that were taken from damaged logs.
    pub batches: u64,
    /// No manifest said which tables count: what was deleted may be back, and what was merged away.
    pub untold: bool,
    /// What was found, in words; nothing if there was nothing to repair, and then nothing was written.
    pub problems: Vec<String>,
}

/// What all parts of a repair share.
struct Repair<'a> {
    media: &'a Arc<dyn Media>,
    env: &'a Arc<dyn Env>,
    options: &'a Options,
    /// The number of the store, if anything says it.
    store: Option<u64>,
    numbers: AtomicU64,
    report: Repaired,
    /// Tables that are to be in the store.
    added: Vec<(u8, crate::journal::TableMeta)>,
    keyspaces: Keyspaces,
    /// Keyspaces of what is saved without a manifest, or is written anew.
    spaces: BTreeSet<u8>,
    last_seq: u64,
    /// CURRENT, or an edit of a manifest, is one of ours.
    is_ours: bool,
    /// Logs that tables point into; of use where no manifest tells.
    pointed_logs: BTreeSet<u64>,
    /// Logs that another store wrote.
    foreign: BTreeSet<u64>,
    /// Sequence numbers of batches that were taken from logs, from and below.
    salvaged: Vec<(u64, u64)>,
}

/// Repairs the store on `media`, which nobody else has open. Writes nothing where nothing is wrong. Open it afterwards.
pub fn repair(media: &Arc<dyn Media>, env: &Arc<dyn Env>, options: &Options) -> Result<Repaired> {
    let (areas, tables) = (media.areas()?, media.tables()?);
    let numbers = areas.iter().map(|area| area.number).chain(tables.iter().copied());
    let next_number = number_after(numbers.chain([media.highest_table()]))?;
    if areas.is_empty() && tables.is_empty() && matches!(media.current(), Ok(None)) {
        return Err(Error::invalid("there is no key-value store here"));
    }
    // To this repair its segments would be damaged tables.
    if Engine::of_remains(&**media)? == Some(Engine::Log) {
        return Err(Error::new(Kind::Unsupported, "it is a log store, which cannot be repaired yet"));
    }
    let mut repair = Repair {
        media,
        env,
        options,
        store: manifest::store_of_remains(&**media, &areas),
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
    let (current, told) = repair.read_manifest(&areas)?;
    let told = told.filter(|told| repair.is_current(told, &tables));
    repair.find_foreign(&areas, told.as_ref())?;
    let logs = match &told {
        Some(told) => {
            repair.told_tables(told)?;
            repair.told_logs(&areas, told)?
        }
        None => {
            repair.report.untold = true;
            repair.untold_tables(&tables)?;
            let logs = areas.iter().filter(|area| area.kind == AreaKind::Log).map(|area| area.number);
            let logs = logs.filter(|log| !repair.pointed_logs.contains(log));
            let (foreign, own): (Vec<u64>, Vec<u64>) = logs.partition(|log| repair.foreign.contains(log));
            foreign.into_iter().for_each(|log| repair.problem(of_another_store(Area::log(log))));
            repair.salvage_logs(own)?;
            repair.check_ours()?;
            None
        }
    };
    if repair.report.problems.is_empty() {
        return Ok(repair.report);
    }
    let mut edit = repair.whole(logs.and(told.as_ref()));
    edit.lifetime = told.map(|told| told.lifetime).unwrap_or_default();
    repair.install(current, edit, &areas, logs.is_some())
}

/// An error at once if something is not damaged, but cannot be read now, or is of a format that this program does not
/// know.
fn known<T>(read: Result<T>) -> Result<Result<T>> {
    match read {
        Err(error) if error.kind() != Kind::Corrupt => Err(error),
        other => Ok(other),
    }
}

/// The logs are in order and stay.
#[derive(Clone, Copy)]
struct LogsKept;

impl Repair<'_> {
    fn problem(&mut self, what: impl std::fmt::Display) {
        self.report.problems.push(what.to_string());
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// CURRENT, and what the manifest in force says, if it can be read. The keyspaces as far as they can.
    fn read_manifest(&mut self, areas: &[Area]) -> Result<(Option<Current>, Option<Told>)> {
        let current = self.media.current().and_then(|bytes| match bytes {
            Some(bytes) => Current::decode(&bytes),
            None => Err(Error::corrupt("CURRENT is missing")),
        });
        let current = known(current)?;
        let number = match &current {
            Ok(current) => Some(current.manifest),
            // The newest there is; an older one would lack tables that are there.
            Err(_) => {
                let numbers = areas.iter().filter(|area| area.kind == AreaKind::Manifest);
                numbers.map(|area| area.number).max()
            }
        };
        let current = current.map_err(|error| self.problem(error)).ok();
        self.is_ours = current.is_some();
        let Some(number) = number else { return Ok((current, None)) };
        let told = known(manifest::read_of(&**self.media, number, self.store).and_then(tell))?;
        if let Ok(told) = &told {
            self.keyspaces = told.keyspaces.clone();
            self.is_ours = true;
            self.last_seq = told.last_seq;
            self.numbers.fetch_max(told.next_number, Relaxed);
        } else {
            let edits = manifest::read_what_can_be(&**self.media, number, self.store);
            self.is_ours |= !edits.is_empty();
            edits.iter().for_each(|edit| self.keyspaces.apply(edit));
        }
        Ok((current, told.map_err(|error| self.problem(error)).ok()))
    }

    /// Without a manifest, an error if nothing was found that says whose these files are.
    fn check_ours(&self) -> Result<()> {
        match !self.is_ours && self.added.is_empty() && self.salvaged.is_empty() {
            true => Err(Error::corrupt("nothing of a key-value store can be read here: nothing was changed")),
            false => Ok(()),
        }
    }

    /// False if the manifest lost its last edits: it names tables that are gone, and others are there that were made of
    /// them. What else is there is left over.
    fn is_current(&mut self, told: &Told, tables: &[u64]) -> bool {
        let named: BTreeSet<u64> = told.levels.iter().flatten().map(|meta| meta.number).collect();
        let there: BTreeSet<u64> = tables.iter().copied().collect();
        let gone: BTreeSet<u64> = named.difference(&there).copied().collect();
        let is_heir = |number: &u64| {
            self.lineage_of(*number)
                .is_some_and(|lineage| lineage.merged.iter().any(|number| gone.contains(number)))
        };
        let stale = !gone.is_empty() && there.difference(&named).any(is_heir);
        if stale {
            self.problem("the manifest lost its end");
        }
        !stale
    }

    /// The manifest's first edit; `logs` if the logs stay.
    fn whole(&mut self, logs: Option<&Told>) -> Edit {
        for number in std::mem::take(&mut self.spaces) {
            if !self.keyspaces.knows(number) {
                self.problem(format!("the name of keyspace {number} is lost; it is \"lost-{number}\" now"));
                let created = vec![(number, format!("lost-{number}"))];
                self.keyspaces.apply(&Edit { created, ..Edit::default() });
            }
        }
        let mut whole = Edit {
            last_seq: Some(self.last_seq),
            next_number: Some(self.number()),
            log_floor: logs.map(|told| told.log_floor),
            closed: logs.and_then(|told| told.closed),
            added: std::mem::take(&mut self.added),
            ..Edit::default()
        };
        self.keyspaces.describe(&mut whole);
        whole
    }

    /// Puts the new manifest in force, then erases what it does not need.
    fn install(
        mut self,
        current: Option<Current>,
        mut whole: Edit,
        areas: &[Area],
        logs_stay: bool,
    ) -> Result<Repaired> {
        let wanted: BTreeSet<u64> = whole.added.iter().map(|(_, meta)| meta.number).collect();
        let kept: BTreeSet<u64> = whole
            .added
            .iter()
            .flat_map(|(_, meta)| &meta.logs)
            .map(|log| log.number)
            .chain(self.foreign.iter().copied())
            .collect();
        // There may be room for two manifests only; the newest stays until there is a new one.
        let manifests = areas.iter().filter(|area| area.kind == AreaKind::Manifest);
        let newest = current.map(|current| current.manifest).or(manifests.clone().map(|a| a.number).max());
        for old in manifests.clone().filter(|area| Some(area.number) != newest) {
            self.media.remove_area(*old)?;
        }
        let store = self.store.unwrap_or_else(|| self.env.random());
        let mut manifest = Manifest::new(self.media.clone(), store, COMPARATOR, None);
        let first_log = (!logs_stay).then(|| self.number());
        whole.log_floor = first_log.or(whole.log_floor);
        manifest.append(&Edit::default(), || whole, || self.number())?;
        manifests.filter(|area| Some(area.number) == newest).try_for_each(|a| self.media.remove_area(*a))?;
        if let Some(first_log) = first_log {
            let is_gone = |area: &&Area| area.kind == AreaKind::Log && !kept.contains(&area.number);
            for log in areas.iter().rev().filter(is_gone) {
                self.media.remove_area(*log)?;
                self.media.sync_removals()?;
            }
            // Where this is cut short before it, the log is missing, and is repaired.
            Wal::new(store, Previous::default(), None).begin(&**self.media, first_log, self.last_seq + 1)?;
        }
        for table in self.media.tables()?.into_iter().filter(|table| !wanted.contains(table)) {
            if let Err(error) = self.media.erase_table(table) {
                self.problem(format!("table {table}, which is not needed, cannot be erased: {error}"));
            }
        }
        Ok(self.report)
    }
}
