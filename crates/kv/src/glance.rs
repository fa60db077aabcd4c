//! What the manifest alone says about a store, readable while another process has the store open. It is as of the last
//! edit; every flush, merge and new segment appends one.

use crate::engine::Engine;
use crate::journal::TableMeta;
use crate::lifetime::Lifetime;
use crate::log;
use crate::lsm::recover;
use crate::lsm::stat::LevelStat;
use crate::manifest::{self, Current};
use crate::media::Media;
use vellum_base::{Error, Result};

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

impl Glance {
    /// Reads a medium that another process may be changing. `None` if there is no store.
    pub fn of(media: &dyn Media) -> Result<Option<Glance>> {
        for _ in 0..REPLACED_MAX {
            let Some(current) = media.current()? else { return Ok(None) };
            match Glance::at(media, Current::decode(&current)?) {
                Err(_) if media.current()?.is_some_and(|now| now != current) => {}
                done => return done.map(Some),
            }
        }
        Err(Error::corrupt("the manifest is replaced again and again"))
    }

    fn at(media: &dyn Media, current: Current) -> Result<Glance> {
        let edits = manifest::read(media, current)?;
        if Engine::of_edits(&edits) == Engine::Log {
            let state = log::state_of(edits)?;
            let (segments, segment_bytes) =
                (state.segments.len(), sum(state.segments.iter().map(|meta| meta.bytes)));
            let records = sum(state.segments.iter().map(|meta| meta.records));
            return Ok(Glance {
                held: Glanced::Log { segments, segment_bytes, records },
                lifetime: state.lifetime,
                tables: state.segments.iter().map(|meta| (meta.number, meta.bytes)).collect(),
            });
        }
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

/// Saturating, as damaged or hostile manifests may contain any numbers.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}
