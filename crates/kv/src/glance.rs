//! What the manifest alone says about a store, readable while another process has the store open. It is as of the last
//! edit; every flush, merge and new segment appends one. What came since is counted by the lengths of logs.
//!
//! 1. Nothing is locked or written.
//! 2. Logs are measured before the manifest is read. So while that says the same, what they hold only grows; after it
//!    says that a log is in tables, that log is not counted any more.

use crate::engine::Engine;
use crate::journal::{AREA_HEAD_BYTES, Area, AreaKind, Edit, TableMeta, record_bytes_of};
use crate::lifetime::Lifetime;
use crate::log;
use crate::lsm::recover;
use crate::lsm::stat::LevelStat;
use crate::manifest::{self, Current};
use crate::media::{AreaReader, Media, NvramLook, ZEROS_MAX};
use std::collections::BTreeSet;
use vellum_base::reason::CHANGED_MEANWHILE;
use vellum_base::{Error, Kind, Result};

/// How often a manifest may be replaced while it is read.
const REPLACED_MAX: usize = 16;

/// What the manifest of a store says.
#[derive(Clone, Debug)]
pub struct Glance {
    /// What the store holds, by its engine.
    pub held: Glanced,
    /// Counters since the store was created.
    pub lifetime: Lifetime,
    /// Number and bytes of each table.
    pub tables: Vec<(u64, u64)>,
    /// Bytes of records that are in logs and not yet in tables, as far as the writer handed them over: a little of what
    /// was not synced may be in its memory only. `None` if the logs could not be read.
    pub unflushed_log_bytes: Option<u64>,
}

/// What a store holds.
#[derive(Clone, Debug)]
pub enum Glanced {
    /// An ordered store.
    Lsm {
        /// Levels, from 0. Fields about units are 0: the manifest does not record them.
        levels: Vec<LevelStat>,
        /// Names of all keyspaces.
        keyspaces: Vec<String>,
    },
    /// A log store.
    Log {
        /// Segments stored in tables.
        segments: usize,
        /// Their bytes.
        segment_bytes: u64,
        /// Records in them, including overwritten ones and deletes.
        records: u64,
    },
}

/// What a glance reads; others may change it meanwhile.
trait Seen {
    fn current(&self) -> Result<Option<Vec<u8>>>;
    fn read(&self, area: Area) -> Result<Vec<u8>>;
    fn areas(&self) -> Result<Vec<Area>>;
    /// Bytes of records of a log. Where they are not told by its length, those of this store count.
    fn record_bytes(&self, log: Area, store: u64) -> Result<u64>;
}

impl Seen for &dyn Media {
    fn current(&self) -> Result<Option<Vec<u8>>> {
        Media::current(*self)
    }
    fn read(&self, area: Area) -> Result<Vec<u8>> {
        self.read_area(area)
    }
    fn areas(&self) -> Result<Vec<Area>> {
        (**self).areas()
    }
    fn record_bytes(&self, log: Area, store: u64) -> Result<u64> {
        match self.keeps_areas() {
            // A file ends where its log does, but for zeros ahead.
            true => Ok(end_of(&*self.open_area(log)?)?.saturating_sub(AREA_HEAD_BYTES as u64)),
            false => Ok(record_bytes_of(log, store, &self.read_area(log)?)),
        }
    }
}

impl Seen for NvramLook<'_> {
    fn current(&self) -> Result<Option<Vec<u8>>> {
        NvramLook::current(self)
    }
    fn read(&self, area: Area) -> Result<Vec<u8>> {
        self.read_area(area)
    }
    fn areas(&self) -> Result<Vec<Area>> {
        Ok(NvramLook::areas(self))
    }
    fn record_bytes(&self, log: Area, store: u64) -> Result<u64> {
        Ok(record_bytes_of(log, store, &self.read_area(log)?))
    }
}

impl Glance {
    /// Reads a medium that another process may be changing. `None` if there is no store.
    ///
    /// Errors: [`Kind::Busy`] if the manifest is replaced faster than it can be read.
    pub fn of(media: &dyn Media) -> Result<Option<Glance>> {
        Glance::of_seen(&media)
    }

    /// Reads the contents of the NVRAM of flash ([`FlashMedia`](crate::FlashMedia)) as of one moment. `None` if there
    /// is no store.
    pub fn of_nvram(contents: &[u8]) -> Result<Option<Glance>> {
        match NvramLook::at(contents)? {
            Some(look) => Glance::of_seen(&look),
            None => Ok(None),
        }
    }

    fn of_seen(seen: &impl Seen) -> Result<Option<Glance>> {
        let mut is_missed = false;
        for _ in 0..REPLACED_MAX {
            let current = match seen.current()? {
                Some(current) => current,
                None if is_missed => return Ok(None),
                // Some file systems do not list a file while it is replaced.
                None => {
                    is_missed = true;
                    continue;
                }
            };
            is_missed = false;
            match Glance::at(seen, Current::decode(&current)?) {
                Err(_) if seen.current()?.as_ref() != Some(&current) => {}
                done => return done.map(Some),
            }
        }
        let what = "the manifest is replaced faster than it can be read";
        Err(Error::new(Kind::Busy, what).because(CHANGED_MEANWHILE))
    }

    fn at(seen: &impl Seen, current: Current) -> Result<Glance> {
        let logs = logs_of(seen, current.store);
        let bytes = seen.read(Area::manifest(current.manifest))?;
        let edits = manifest::edits_in(current.manifest, Some(current.store), &bytes)?;
        let unflushed = |floor: u64, kept: &BTreeSet<u64>| {
            let counts = |log: &&(u64, u64)| log.0 >= floor && !kept.contains(&log.0);
            logs.ok().map(|logs| sum(logs.iter().filter(counts).map(|(_, bytes)| *bytes)))
        };
        match Engine::of_edits(&edits) {
            Engine::Log => Glance::of_log(edits, unflushed),
            Engine::Lsm => Glance::of_lsm(edits, unflushed),
        }
    }

    fn of_log(
        edits: Vec<Edit>,
        unflushed: impl FnOnce(u64, &BTreeSet<u64>) -> Option<u64>,
    ) -> Result<Glance> {
        let state = log::state_of(edits)?;
        let segment_bytes = sum(state.segments.iter().map(|meta| meta.bytes));
        let records = sum(state.segments.iter().map(|meta| meta.records));
        Ok(Glance {
            held: Glanced::Log { segments: state.segments.len(), segment_bytes, records },
            lifetime: state.lifetime,
            tables: state.segments.iter().map(|meta| (meta.number, meta.bytes)).collect(),
            unflushed_log_bytes: unflushed(state.floors.log_floor, &BTreeSet::new()),
        })
    }

    fn of_lsm(
        edits: Vec<Edit>,
        unflushed: impl FnOnce(u64, &BTreeSet<u64>) -> Option<u64>,
    ) -> Result<Glance> {
        let state = recover::state_of(edits)?;
        let level = |tables: &Vec<TableMeta>| LevelStat {
            tables: tables.len(),
            bytes: sum(tables.iter().map(|meta| meta.bytes)),
            entries: sum(tables.iter().map(|meta| meta.entries)),
            deletes: sum(tables.iter().map(|meta| meta.deletes)),
            older: sum(tables.iter().map(|meta| meta.older)),
            ..LevelStat::default()
        };
        let levels = state.levels.iter().map(level).collect();
        Ok(Glance {
            unflushed_log_bytes: unflushed(state.floors.log_floor, &state.kept_logs().collect()),
            held: Glanced::Lsm { levels, keyspaces: state.keyspaces.names() },
            lifetime: state.lifetime,
            tables: state.levels.iter().flatten().map(|meta| (meta.number, meta.bytes)).collect(),
        })
    }

    /// The engine.
    pub fn engine(&self) -> Engine {
        match self.held {
            Glanced::Lsm { .. } => Engine::Lsm,
            Glanced::Log { .. } => Engine::Log,
        }
    }
}

/// Number of each log, and bytes of its records. One that is removed meanwhile is in tables.
fn logs_of(seen: &impl Seen, store: u64) -> Result<Vec<(u64, u64)>> {
    let logs = seen.areas()?.into_iter().filter(|area| area.kind == AreaKind::Log);
    let measured = logs.map(|log| match seen.record_bytes(log, store) {
        Err(error) if error.kind() == Kind::Corrupt => Ok(None),
        bytes => bytes.map(|bytes| Some((log.number, bytes))),
    });
    measured.filter_map(Result::transpose).collect()
}

/// Where a log ends that zeros may follow; its last record may end with some. They may be cut off meanwhile.
fn end_of(log: &dyn AreaReader) -> Result<u64> {
    for _ in 0..REPLACED_MAX {
        let bytes = log.bytes()?;
        match end_before_zeros(log, bytes) {
            Err(_) if log.bytes()? < bytes => {}
            end => return end,
        }
    }
    Err(Error::new(Kind::Busy, "a log is written faster than it can be read").because(CHANGED_MEANWHILE))
}

fn end_before_zeros(log: &dyn AreaReader, bytes: u64) -> Result<u64> {
    let (mut end, mut piece) = (bytes, [0; 4096]);
    while end > bytes.saturating_sub(ZEROS_MAX as u64) {
        let from = end.saturating_sub(piece.len() as u64);
        let piece = &mut piece[..(end - from) as usize];
        log.read(from, piece)?;
        if let Some(last) = piece.iter().rposition(|byte| *byte != 0) {
            return Ok(from + last as u64 + 1);
        }
        end = from;
    }
    Ok(end)
}

/// Saturating, as damaged or hostile manifests may contain any numbers.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// CURRENT, by how often it was asked for, and no manifest.
    struct Seldom(fn(u64) -> Option<u64>, Cell<u64>);

    impl Seen for Seldom {
        fn current(&self) -> Result<Option<Vec<u8>>> {
            let manifest = (self.0)(self.1.replace(self.1.get() + 1));
            Ok(manifest.map(|manifest| Current::new(manifest, 1).encode().to_vec()))
        }
        fn read(&self, area: Area) -> Result<Vec<u8>> {
            Err(Error::corrupt(format!("{area} is missing")))
        }
        fn areas(&self) -> Result<Vec<Area>> {
            Ok(Vec::new())
        }
        fn record_bytes(&self, _log: Area, _store: u64) -> Result<u64> {
            Ok(0)
        }
    }

    #[test]
    fn what_is_replaced_while_it_is_read_is_read_again() {
        let seen = |current| {
            let glance = Glance::of_seen(&Seldom(current, Cell::new(0)));
            glance.map(|glance| glance.is_some()).map_err(|error| error.kind())
        };
        assert_eq!(seen(|_| None), Ok(false));
        assert_eq!(seen(|_| Some(7)), Err(Kind::Corrupt));
        assert_eq!(seen(|time| (time > 0).then_some(7)), Err(Kind::Corrupt), "it was not listed at first");
        assert_eq!(seen(Some), Err(Kind::Busy));
    }
}
