//! Making a log store whole again that does not open, or does not read.
//!
//! 1. Nothing is erased before a manifest that does not need it is durable; a repair that was cut short is begun again.
//! 2. Whatever of a segment or a log checks out ends up in the store, in its place: what is newer hides it.
//! 3. Without a manifest, segments say their places and which logs are in them. Those that do not count as older than
//!    all that do: they hide nothing that is known to count. A segment whose sources are all there is left out.
//! 4. Records with equal hashes are told apart by marks (twins), which hold for one seed. If another seed counts now,
//!    every record is marked: keys are compared then.
//! 5. What cannot be read now, but may be at another time, is not given up: the repair fails, and leaves nothing.

mod salvage;
mod segments;

use super::collect::ORDERS;
use super::options::{Limits, Options};
use super::record::{Item, Items, Record};
use super::replay::{Content, ReplayedSegment, cut, cut_bytes, read_logs, take_batch};
use super::state::{ManifestState, state_of};
use crate::engine::Engine;
use crate::journal::{
    Area, AreaKind, Edit, Ending, Payload, SEQ_STORED_MAX, SegmentMeta, UNORDERED, of_another_store,
    salvage_records, store_of,
};
use crate::leftovers::number_after;
use crate::lifetime::Lifetime;
use crate::log::foot::Origin;
use crate::manifest;
use crate::media::{Media, Patient, check_shape};
use crate::obsolete::Obsolete;
use crate::repair::{Renewed, Repaired, give_up, known, manifest_in_force, missing};
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::{Env, Error, Result};

/// What all parts of a repair share.
struct Repair<'a> {
    media: &'a Arc<dyn Media>,
    env: &'a Arc<dyn Env>,
    limits: Limits,
    areas: Vec<Area>,
    tables: Vec<u64>,
    /// The number of the store, if anything says it.
    store: Option<u64>,
    numbers: AtomicU64,
    obsolete: Arc<Obsolete>,
    report: Repaired,
    /// CURRENT, or any edit, is one of ours.
    is_ours: bool,
    /// What keys are hashed with.
    seed: u64,
    /// The seed is from a manifest: all twins were marked by it.
    is_seed_known: bool,
    /// Segments of the repaired store, and those of them that were written by the repair.
    segments: Vec<SegmentMeta>,
    written: Vec<u64>,
    /// Logs that segments which count were made of.
    taken_logs: BTreeSet<u64>,
    last_seq: u64,
    lifetime: Lifetime,
}

/// What can be read of a log.
struct Salvaged {
    content: Content,
    /// Sequence numbers of its batches, from and below.
    batches: Vec<(u64, u64)>,
    /// The first that the log has, be it taken or not.
    first: Option<u64>,
}

/// Repairs the log store on `media`, which nobody else has open. Writes nothing where nothing is wrong. Open it
/// afterwards.
///
/// # Errors
///
/// `Invalid` if no log store is there, `Corrupt` if nothing of it can be read, `NoSpace` if there is no room for what
/// has to be written anew, `Unsupported` if something is of another store or of a later format, `Io` if something
/// cannot be read now that may be at another time. Nothing that counts was changed then: it can be begun again.
pub fn repair(media: &Arc<dyn Media>, env: &Arc<dyn Env>, options: &Options) -> Result<Repaired> {
    let media = &Patient::with(media);
    if Engine::of_remains(&**media)? != Some(Engine::Log) {
        return Err(Error::invalid("there is no log store here"));
    }
    check_shape(&media.shape())?;
    let (areas, tables) = (media.areas()?, media.tables()?);
    let numbers = areas.iter().map(|area| area.number).chain(tables.iter().copied());
    let next_number = number_after(numbers.chain([media.highest_table()]))?;
    let repair = Repair {
        media,
        env,
        limits: Limits::new(&**media, options),
        store: manifest::store_of_remains(&**media, &areas)?,
        areas,
        tables,
        numbers: AtomicU64::new(next_number),
        obsolete: Arc::default(),
        report: Repaired::default(),
        is_ours: false,
        seed: 0,
        is_seed_known: false,
        segments: Vec::new(),
        written: Vec::new(),
        taken_logs: BTreeSet::new(),
        last_seq: 0,
        lifetime: Lifetime::default(),
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
        let logs_stay = match &state {
            Some(state) => self.repair_by_manifest(state),
            None => self.repair_without_manifest(manifest).map(|()| false),
        };
        let logs_stay = logs_stay.inspect_err(|_| give_up(&**self.media, &self.tables))?;
        match self.report.problems.is_empty() {
            true => Ok(self.report),
            false => self.install(manifest, state.filter(|_| logs_stay)),
        }
    }

    fn problem(&mut self, what: impl std::fmt::Display) {
        self.report.problems.push(what.to_string());
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// The number of the manifest in force, and what it says, if it can be read.
    fn read_manifest(&mut self) -> Result<(Option<u64>, Option<ManifestState>)> {
        let read = |number| manifest::read_of(&**self.media, number, self.store).and_then(state_of);
        let (current, number) =
            manifest_in_force(&**self.media, &self.areas, |number| read(number).map(drop))?;
        let state = number.map(|number| known(read(number))).transpose()?;
        self.is_ours = current.map_err(|error| self.problem(error)).is_ok();
        let state = state.and_then(|state| state.map_err(|error| self.problem(error)).ok());
        Ok((number, state))
    }

    /// Repairs by a manifest: keeps what is in order. True if the logs are.
    fn repair_by_manifest(&mut self, state: &ManifestState) -> Result<bool> {
        (self.seed, self.is_seed_known, self.last_seq) = (state.seed, true, state.floors.last_seq);
        self.lifetime = state.lifetime.clone();
        self.numbers.fetch_max(state.next_number, Relaxed);
        // Nothing is written where logs are of another store.
        let read = known(read_logs(&**self.media, &self.areas, state, (self.store, Ending::Strict)))?;
        self.keep_listed_segments(state)?;
        let Err(error) = read else { return Ok(true) };
        self.problem(error);
        self.report.logs_damaged += 1;
        let mut batches = self.salvage_logs(state.floors.log_floor)?;
        self.report.entries_lost += missing(&mut batches, state.floors.last_seq);
        Ok(false)
    }

    /// Repairs without a manifest, or with only a part of one.
    fn repair_without_manifest(&mut self, manifest: Option<u64>) -> Result<()> {
        self.report.manifest_lost = true;
        let read = |number| manifest::read_what_can_be(&**self.media, number, self.store);
        let edits = manifest.map(read).transpose()?.unwrap_or_default();
        self.is_ours |= !edits.is_empty();
        for area in self.logs(0) {
            let bytes = known(self.media.read_area(area))?.ok();
            let wrote = bytes.and_then(|bytes| store_of(area, &bytes));
            if wrote.is_some() && wrote != self.store {
                return Err(of_another_store(area));
            }
        }
        let mut lifetimes = edits.iter().rev().map(|edit| &edit.lifetime);
        self.lifetime = lifetimes.find(|lifetime| !lifetime.is_empty()).cloned().unwrap_or_default();
        let log_floor = self.rebuild_without_manifest(&edits)?;
        self.salvage_logs(log_floor)?;
        match self.is_ours || !self.segments.is_empty() {
            true => Ok(()),
            // The store may be elsewhere.
            false => Err(Error::corrupt("nothing of a log store can be read here: nothing was changed")),
        }
    }

    /// Logs from a number on that are in no segment, the oldest first.
    fn logs(&self, floor: u64) -> Vec<Area> {
        let logs = self.areas.iter().filter(|area| area.kind == AreaKind::Log && area.number >= floor);
        let numbers: BTreeSet<u64> = logs.map(|area| area.number).collect();
        numbers.difference(&self.taken_logs).copied().map(Area::log).collect()
    }

    /// Makes segments of every batch that checks out. Of two with the same number, that of the newer log counts: the
    /// other is of an earlier run, which ended there. Returns the ranges of their numbers (from, below).
    fn salvage_logs(&mut self, floor: u64) -> Result<Vec<(u64, u64)>> {
        let (logs, mut below) = (self.logs(floor), SEQ_STORED_MAX);
        let (mut found, mut contents) = (Vec::new(), Vec::new());
        for area in logs.iter().rev() {
            match known(self.salvage_log(*area, below))? {
                Ok(Salvaged { content, batches, first }) => {
                    if !batches.is_empty() {
                        self.problem(format!("{area}: {} batches were taken from it", batches.len()));
                    }
                    found.extend(batches);
                    below = first.map_or(below, |first| first.min(below));
                    contents.push(content);
                }
                Err(error) => {
                    self.problem(error);
                    self.report.logs_damaged += 1;
                }
            }
        }
        self.report.batches += found.len() as u64;
        self.last_seq = found.iter().map(|(_, next)| next - 1).max().unwrap_or(0).max(self.last_seq);
        contents.reverse();
        self.write_logs(logs.iter().map(|area| area.number).collect(), &contents)?;
        Ok(found)
    }

    /// Batches with numbers below `below`.
    fn salvage_log(&self, area: Area, below: u64) -> Result<Salvaged> {
        let bytes = self.media.read_area(area)?;
        let records = salvage_records(area, self.store, &bytes)?;
        let (mut content, mut batches) = (Content::default(), Vec::new());
        for (seq, bytes) in &records {
            let mut batch = Content::default();
            let taken = take_batch(&mut batch, Payload { bytes, seq: *seq, at: 0 });
            let next = taken.ok().filter(|count| *count > 0).and_then(|count| seq.checked_add(count));
            if let Some(next) = next.filter(|next| *next <= below) {
                content.take(&batch);
                batches.push((*seq, next));
            }
        }
        Ok(Salvaged { content, batches, first: records.iter().map(|(seq, _)| *seq).min() })
    }

    /// Writes what logs held, the oldest first, into segments that are newer than all others.
    fn write_logs(&mut self, logs: Vec<u64>, contents: &[Content]) -> Result<()> {
        let most = cut_bytes(&self.limits, self.media.shape().whole_tables);
        let mut all: Vec<ReplayedSegment> = Vec::new();
        for content in contents {
            match self.is_seed_known {
                true => cut(content.bytes(), most, &mut all),
                false => cut(&as_twins(content.bytes()), most, &mut all),
            }
        }
        for ReplayedSegment { bytes, records, .. } in all {
            // They are left out as long as the logs are there.
            let origin = Origin { order: self.number() * ORDERS, sources: logs.clone(), ..Origin::default() };
            self.write(bytes, records, origin)?;
        }
        Ok(())
    }

    /// Puts the new manifest in force, then erases what it does not need. `state` if the logs that it counts on stay.
    fn install(mut self, manifest: Option<u64>, state: Option<ManifestState>) -> Result<Repaired> {
        let whole = Edit {
            segments: self.segments.clone(),
            seed: Some(self.seed),
            last_seq: Some(self.last_seq),
            next_number: Some(self.number()),
            log_floor: state.as_ref().map(|state| state.floors.log_floor),
            closed: state.as_ref().and_then(|state| state.floors.closed),
            lifetime: self.lifetime.clone(),
            ..Edit::default()
        };
        let renewed = Renewed {
            media: self.media,
            areas: &self.areas,
            before: &self.tables,
            manifest,
            store: self.store.unwrap_or_else(|| self.env.random()),
            comparator: UNORDERED,
            tables: self.segments.iter().map(|meta| meta.number).collect(),
            logs: BTreeSet::new(),
            logs_stay: state.is_some(),
        };
        let left = renewed.install(whole, || self.number())?;
        self.report.problems.extend(left);
        Ok(self.report)
    }
}

/// The same records, all marked as twins.
fn as_twins(records: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(records.len());
    for (_, item, _) in Items::new(records, 0) {
        if let Item::Record(record) = item {
            Record { twin: true, ..record }.write(&mut out);
        }
    }
    out
}
