//! Opening a store: CURRENT, manifest, tables, logs; then what is left over is removed.
//!
//! 1. Nothing is erased before all that the manifest counts on was found in order.
//! 2. Logs are a chain: each names the one before it that held anything, and how long it was. What is not on the
//!    chain that ends in the newest log is left over from an earlier life.
//! 3. A log that is shorter than the next one says was torn, and what comes after it never happened; unless something
//!    says that it was durable: that is damage.

use crate::batch::check_payload;
use crate::core::Frozen;
use crate::journal::{Area, AreaKind, Edit, LEVELS, Previous, Records, TableMeta};
use crate::keyspace::Keyspaces;
use crate::lifetime::Lifetime;
use crate::manifest::{self, Current};
use crate::media::Media;
use crate::memtable::Memtable;
use crate::table::{Library, Table};
use crate::version::Version;
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::{Error, Result};

/// What was found.
pub(crate) struct Recovered {
    pub current: Option<Current>,
    pub version: Version,
    pub log_floor: u64,
    pub last_seq: u64,
    pub next_number: u64,
    /// Memtables that go straight to tables, oldest first.
    pub frozen: Vec<Frozen>,
    /// The newest log's memtable, and the log.
    pub active: (Memtable, Option<u64>),
    /// The newest log, and how long it is.
    pub previous: Previous,
    pub leftovers: Leftovers,
    pub lifetime: Lifetime,
}

/// What nothing counts on.
#[derive(Default)]
pub(crate) struct Leftovers {
    tables: Vec<u64>,
    areas: Vec<Area>,
}

impl Leftovers {
    /// Removes them; the newest log first, each for good before the next: a log that is there counts on the one
    /// before it.
    pub(crate) fn remove(&self, media: &dyn Media) -> Result<()> {
        let (mut logs, manifests): (Vec<Area>, Vec<Area>) =
            self.areas.iter().partition(|area| area.kind == AreaKind::Log);
        logs.sort_by_key(|log| std::cmp::Reverse(log.number));
        for log in logs {
            media.remove_area(log)?;
            media.sync_removals()?;
        }
        manifests.into_iter().try_for_each(|area| media.remove_area(area))?;
        self.tables.iter().try_for_each(|table| media.erase_table(*table))
    }
}

/// State of the manifest after its last edit.
pub(crate) struct Told {
    pub levels: [Vec<TableMeta>; LEVELS],
    pub log_floor: u64,
    pub last_seq: u64,
    pub next_number: u64,
    pub closed: Option<(u64, u64)>,
    pub keyspaces: Keyspaces,
    pub lifetime: Lifetime,
}

/// Reads the store. `None` if there is none.
pub(crate) fn recover(media: &dyn Media, library: &Arc<Library>) -> Result<Option<Recovered>> {
    let (areas, tables) = (media.areas()?, media.tables()?);
    let Some(bytes) = media.current()? else {
        return no_current(&areas, &tables).map(|()| None);
    };
    let current = Current::decode(&bytes)?;
    let told = tell(manifest::read(media, current.manifest)?)?;
    let version = open_tables(&told, media, library)?;
    let mut logs = Logs::read(media, &areas, &told)?;
    let seen = areas.iter().map(|a| a.number).chain(tables.iter().copied()).max();
    let wanted: BTreeSet<u64> = told.levels.iter().flatten().map(|meta| meta.number).collect();
    let kept: BTreeSet<u64> = logs.chain.iter().map(|log| log.number).collect();
    let leftovers = Leftovers {
        tables: tables.into_iter().filter(|table| !wanted.contains(table)).collect(),
        areas: areas
            .into_iter()
            .filter(|area| match area.kind {
                AreaKind::Log => !kept.contains(&area.number),
                AreaKind::Manifest => area.number != current.manifest,
            })
            .collect(),
    };
    let last_seq = logs.chain.iter().map(|log| log.last_seq).max().unwrap_or(0).max(told.last_seq);
    let newest = logs.chain.pop();
    let previous = newest
        .as_ref()
        .map_or(Previous::default(), |log| Previous { number: log.number, length: log.length });
    let active = newest.map_or((Memtable::default(), None), |log| (log.memtable, Some(log.number)));
    let mut frozen: Vec<Frozen> = Vec::new();
    let mut next_log = previous.number;
    for log in logs.chain.into_iter().rev() {
        let (memtable, logs) = (Arc::new(log.memtable), vec![log.number]);
        frozen.insert(0, Frozen { memtable, logs, next_log, last_seq: log.last_seq });
        next_log = log.number;
    }
    Ok(Some(Recovered {
        current: Some(current),
        version,
        log_floor: told.log_floor,
        last_seq,
        next_number: told.next_number.max(seen.map_or(0, |number| number + 1)),
        frozen,
        active,
        previous,
        leftovers,
        lifetime: told.lifetime,
    }))
}

/// Without CURRENT there is no store, or one whose making was cut short; anything more is damage.
fn no_current(areas: &[Area], tables: &[u64]) -> Result<()> {
    let manifests = areas.iter().filter(|area| area.kind == AreaKind::Manifest).count();
    if !tables.is_empty() || manifests > 1 || areas.len() > manifests {
        return Err(Error::corrupt("CURRENT is missing, though there are tables or logs"));
    }
    Ok(())
}

/// Plays the edits.
pub(crate) fn tell(edits: Vec<Edit>) -> Result<Told> {
    let mut told = Told {
        levels: Default::default(),
        log_floor: 0,
        last_seq: 0,
        next_number: 1,
        closed: None,
        keyspaces: Keyspaces::default(),
        lifetime: Lifetime::default(),
    };
    for edit in edits {
        if !edit.lifetime.is_empty() {
            told.lifetime = edit.lifetime.clone();
        }
        told.keyspaces.apply(&edit);
        for (level, number) in &edit.removed {
            let tables = &mut told.levels[*level as usize];
            let Some(at) = tables.iter().position(|meta| meta.number == *number) else {
                return Err(Error::corrupt(format!("manifest: table {number} is not in level {level}")));
            };
            tables.swap_remove(at);
        }
        for (level, meta) in edit.added {
            told.levels[level as usize].push(meta);
        }
        told.log_floor = edit.log_floor.unwrap_or(told.log_floor);
        // A flush after an ingest may be of a memtable from before it.
        told.last_seq = edit.last_seq.unwrap_or(0).max(told.last_seq);
        told.next_number = edit.next_number.unwrap_or(told.next_number);
        told.closed = edit.closed.or(told.closed);
    }
    Ok(told)
}

fn open_tables(told: &Told, media: &dyn Media, library: &Arc<Library>) -> Result<Version> {
    let mut version = Version { keyspaces: told.keyspaces.clone(), ..Version::default() };
    for (level, metas) in told.levels.iter().enumerate() {
        for meta in metas {
            let table = Table::open(library, media.open_table(meta.number)?, meta.clone())?;
            version.levels[level].push(Arc::new(table));
        }
    }
    version.sort();
    Ok(version)
}

/// An error if the logs that the manifest counts on are not in order.
pub(crate) fn read_logs(media: &dyn Media, areas: &[Area], told: &Told) -> Result<()> {
    Logs::read(media, areas, told).map(drop)
}

/// A log that was read.
struct LogRead {
    number: u64,
    memtable: Memtable,
    length: u64,
    last_seq: u64,
    marked: bool,
}

struct Logs {
    /// Oldest first.
    chain: Vec<LogRead>,
}

impl Logs {
    fn read(media: &dyn Media, areas: &[Area], told: &Told) -> Result<Logs> {
        let mut numbers: Vec<u64> = areas
            .iter()
            .filter(|area| area.kind == AreaKind::Log && area.number >= told.log_floor)
            .map(|area| area.number)
            .collect();
        numbers.sort_unstable();
        let heads = numbers.iter().map(|number| Ok((*number, head_of(media, *number)?)));
        let heads: Vec<(u64, Option<Previous>)> = heads.collect::<Result<_>>()?;
        let chain = chain_of(&heads, told)?;
        let mut logs = Logs { chain: Vec::new() };
        for (at, (number, _)) in chain.iter().enumerate() {
            // A log counts as far as the next one says; what follows is from after a crash that cut it there.
            let limit = chain.get(at + 1).map(|(_, previous)| previous.length);
            let closed = told.closed.filter(|(log, _)| log == number).map(|(_, length)| length);
            let log = read_log(media, *number, limit, &told.keyspaces)?;
            if closed.is_some_and(|closed| log.length < closed) {
                return Err(Error::corrupt(format!(
                    "log {number} is shorter than when the store was closed"
                )));
            }
            let torn = limit.is_some_and(|limit| log.length < limit);
            logs.chain.push(log);
            if torn {
                logs.end_after_torn(media, &chain[at + 1..], told)?;
                break;
            }
        }
        Ok(logs)
    }

    /// What follows a torn log never happened, unless something says that it was durable.
    fn end_after_torn(&self, media: &dyn Media, later: &[(u64, Previous)], told: &Told) -> Result<()> {
        let number = self.chain.last().map_or(0, |log| log.number);
        for (other, _) in later {
            let durable = told.closed.is_some_and(|(log, _)| log == *other)
                || read_log(media, *other, None, &told.keyspaces)?.marked;
            if durable {
                return Err(Error::corrupt(format!(
                    "log {number} is damaged: log {other}, which is later, was durable"
                )));
            }
        }
        Ok(())
    }
}

/// What the log's head says; `None` if it is torn.
fn head_of(media: &dyn Media, number: u64) -> Result<Option<Previous>> {
    let bytes = media.read_area(Area::log(number))?;
    Ok(Records::open(Area::log(number), &bytes)?.map(|records| records.previous()))
}

/// The logs that lead to the newest, oldest first.
fn chain_of(heads: &[(u64, Option<Previous>)], told: &Told) -> Result<Vec<(u64, Previous)>> {
    let missing = |number: u64| Err(Error::corrupt(format!("log {number} is missing")));
    if let Some((closed, _)) = told.closed.filter(|(closed, _)| *closed >= told.log_floor)
        && !heads.iter().any(|(number, head)| *number == closed && head.is_some())
    {
        return missing(closed);
    }
    let mut chain = Vec::new();
    let newest = heads.iter().rev().find_map(|(number, head)| Some((*number, (*head)?)));
    let Some(mut next) = newest else {
        return if told.log_floor > 0 { missing(told.log_floor) } else { Ok(chain) };
    };
    loop {
        chain.insert(0, next);
        let previous = next.1.number;
        if previous < told.log_floor || previous == 0 || previous >= next.0 {
            break;
        }
        match heads.iter().find(|(number, _)| *number == previous) {
            Some((number, Some(head))) => next = (*number, *head),
            _ => return missing(previous),
        }
    }
    match chain.first() {
        Some((first, _)) if told.log_floor > 0 && *first != told.log_floor => missing(told.log_floor),
        _ => Ok(chain),
    }
}

fn read_log(media: &dyn Media, number: u64, limit: Option<u64>, keyspaces: &Keyspaces) -> Result<LogRead> {
    let area = Area::log(number);
    let mut bytes = media.read_area(area)?;
    if let Some(limit) = limit {
        bytes.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    }
    let Some(mut records) = Records::open(area, &bytes)? else {
        return Err(Error::corrupt(format!("{area} lost its head")));
    };
    let memtable = Memtable::default();
    let mut next_seq = records.seq();
    while let Some((seq, payload)) = records.next()? {
        let count =
            check_payload(payload, |keyspace| keyspaces.knows(keyspace)).map_err(|e| e.context(area))?;
        let next = seq.checked_add(count).filter(|next| *next <= crate::key::SEQ_MAX);
        // An ingest takes a number without a record; a mark tells.
        let expected = next_seq.max(records.marked_seq());
        let Some(next) = next.filter(|_| seq == expected && count > 0) else {
            return Err(Error::corrupt(format!(
                "{area}: a batch out of sequence, at byte {}",
                records.offset()
            )));
        };
        memtable.insert(payload, seq);
        next_seq = next;
    }
    let (length, marked) = (records.offset(), records.safe() > 0);
    Ok(LogRead { number, memtable, length, last_seq: next_seq.saturating_sub(1), marked })
}
