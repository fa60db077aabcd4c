//! `kv stat`: what a store holds, and what it has written.

use super::advice::missing;
use super::target::Target;
use crate::failure::{Failure, Outcome, Verdict};
use crate::text;
use crate::ui::{Ui, json_line};
use serde::Serialize;
use std::collections::BTreeMap;
use vellum::base::{Cause, Kind};
use vellum::kv::media::Placement;
use vellum::kv::{AnyStore, Engine, Glance, Glanced, LevelStat, Lifetime, Store, log};

/// Show what a store holds, and why it wrote what it wrote
#[derive(clap::Args)]
#[command(after_help = "\
What was written is counted since the store was made; what a crash took with it is not. This
opening writes nothing. Of a store that another process has open, in a directory, on a device or on
a flash image, it shows what the manifest says, as of the last flush or merge, and how much came to
the log since. A program that embeds a store has all figures live (`Store::stat`), and so have
`kv load`, `compact` and `bench`.

Example:
  vellum kv stat s
  vellum kv stat s.flash --watch

Exit codes: 0 shown, 2 usage, 3 I/O, 4 corrupt, 5 open elsewhere")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// What the manifest says, again every second, until Ctrl-C; with --json a line each
    #[arg(long)]
    watch: bool,
}

/// docs/json/kv.md
#[derive(Serialize)]
pub struct Figures {
    pub engine: &'static str,
    #[serde(flatten)]
    pub held: Held,
    /// What merging or collecting does with units that it need not change.
    pub reuse_mode: &'static str,
    /// How two tables share units.
    pub sharing: &'static str,
    /// Size of the units that are kept.
    pub unit_bytes: u64,
    /// Placement of tables or segments on superblocks; only on flash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placed>,
    pub entries: u64,
    pub table_bytes: u64,
    #[serde(flatten)]
    pub since_opened: Writing,
    /// Since the store was created.
    pub lifetime: Writing,
}

/// Contents of a store, by engine.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Held {
    Lsm(Levels),
    Log(Segments),
}

/// Contents of an ordered store.
#[derive(Serialize)]
pub struct Levels {
    pub levels: Vec<Level>,
    pub keyspaces: Vec<String>,
    pub memtable_bytes: usize,
    pub unflushed_bytes: u64,
    /// Logs that hold values of tables of level 0.
    pub kept_logs: usize,
    pub kept_log_bytes: u64,
    pub pointed_bytes: u64,
    pub cache_bytes: usize,
    pub cache_hits: u64,
    pub cache_misses: u64,
    pub filter_stopped: u64,
    pub filter_wrong: u64,
}

/// Contents of a log store.
#[derive(Serialize)]
pub struct Segments {
    pub segments: usize,
    pub live_bytes: u64,
    pub delete_bytes: u64,
    pub garbage_bytes: u64,
    pub bubble_bytes: u64,
    pub segments_skipped: usize,
    pub open_bytes: u64,
    pub index_bytes: usize,
    pub records_read: u64,
    pub records_wrong: u64,
    pub collected_bytes: u64,
    pub copied_bytes: u64,
}

/// Superblocks, and what collection cost since the store was opened.
#[derive(Serialize)]
pub struct Placed {
    pub superblocks: u64,
    pub superblocks_free: u64,
    pub superblocks_pinned: u64,
    pub pinned_bytes: u64,
    pub pinned_live_bytes: u64,
    pub runs: u64,
    pub collections: u64,
    pub collected_bytes: u64,
}

/// What was written, by cause.
#[derive(Serialize)]
pub struct Writing {
    pub user_bytes: u64,
    pub written_bytes: u64,
    /// Of logs and manifests in NVRAM, for which no flash is programmed.
    pub nvram_bytes: u64,
    pub written: BTreeMap<&'static str, u64>,
    pub write_amplification: f64,
    pub flushes: u64,
    pub compactions: u64,
    pub moves: u64,
    pub moved_bytes: u64,
    pub ingested_bytes: u64,
    pub stalls: u64,
    pub stalled_ns: u64,
    pub slowed_ns: u64,
    pub reuse: Reuse,
}

/// Units that merging or collecting did not change, by how they were kept.
#[derive(Serialize)]
pub struct Reuse {
    pub islands: u64,
    pub bubbles: u64,
    pub bubble_bytes: u64,
    pub bubble_share: f64,
    pub inherited_bytes: u64,
    pub padding_share: f64,
    pub emitted_bytes: u64,
    pub kept_bytes: u64,
    /// Written again, so that a device that deduplicates recognises them.
    pub hashed_bytes: u64,
    pub remapped_bytes: u64,
    pub reflinked_bytes: u64,
    pub linked_bytes: u64,
}

/// A level that is not empty.
#[derive(Serialize)]
pub struct Level {
    pub level: usize,
    pub tables: usize,
    pub bytes: u64,
    pub entries: u64,
    pub deletes: u64,
    pub older: u64,
    /// Only if tables have been opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit_bytes_min: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit_bytes_max: Option<usize>,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        if self.watch {
            ui.watch(|| {
                let glimpse = self.glimpse()?.ok_or_else(|| missing(self.target.path()))?;
                Ok(if ui.json { json_line(&glimpse) } else { text::kv::glimpse(&glimpse) })
            })?;
            return Ok(Verdict::Fine);
        }
        let store = match self.target.open() {
            Err(failure) if failure.error().kind() == Kind::Busy => {
                let glimpse = self.glimpse()?.ok_or(failure)?;
                ui.result(&glimpse, || text::kv::glimpse(&glimpse));
                return Ok(Verdict::Fine);
            }
            opened => opened?,
        };
        let figures = Figures::of(&store);
        store.close().map_err(|e| self.target.advise(e))?;
        ui.result(&figures, || text::kv::figures(&figures));
        Ok(Verdict::Fine)
    }

    fn glimpse(&self) -> Result<Option<Glimpse>, Failure> {
        let glance = Store::glance(self.target.path()).map_err(|e| self.target.advise(e))?;
        Ok(glance.map(Glimpse::of))
    }
}

/// What the manifest of a store that may be in use says.
#[derive(Serialize)]
pub struct Glimpse {
    pub engine: &'static str,
    pub as_of_manifest: bool,
    #[serde(flatten)]
    pub held: Glimpsed,
    pub entries: u64,
    pub table_bytes: u64,
    /// Of records that are in logs and not yet in tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unflushed_log_bytes: Option<u64>,
    /// Since the store was created.
    pub lifetime: Writing,
}

/// Contents of a store according to its manifest, by engine.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Glimpsed {
    Lsm { levels: Vec<Level>, keyspaces: Vec<String> },
    Log { segments: usize },
}

impl Glimpse {
    fn of(glance: Glance) -> Glimpse {
        let (engine, lifetime) = (glance.engine().name(), Writing::of(&glance.lifetime));
        let unflushed_log_bytes = glance.unflushed_log_bytes;
        let (held, entries, table_bytes) = match glance.held {
            Glanced::Log { segments, segment_bytes, records } => {
                (Glimpsed::Log { segments }, records, segment_bytes)
            }
            Glanced::Lsm { levels, keyspaces } => {
                let levels = Level::all(&levels);
                let (entries, bytes) =
                    levels.iter().fold((0, 0), |(n, b), level| (n + level.entries, b + level.bytes));
                (Glimpsed::Lsm { levels, keyspaces }, entries, bytes)
            }
        };
        Glimpse { engine, as_of_manifest: true, held, entries, table_bytes, unflushed_log_bytes, lifetime }
    }
}

impl Level {
    /// Levels that are not empty.
    fn all(levels: &[LevelStat]) -> Vec<Level> {
        let levels = levels.iter().enumerate().filter(|(_, level)| level.tables > 0);
        let level = |(number, level): (usize, &LevelStat)| Level {
            level: number,
            tables: level.tables,
            bytes: level.bytes,
            entries: level.entries,
            deletes: level.deletes,
            older: level.older,
            unit_bytes_min: Some(level.unit_bytes_min).filter(|bytes| *bytes > 0),
            unit_bytes_max: Some(level.unit_bytes_max).filter(|bytes| *bytes > 0),
        };
        levels.map(level).collect()
    }
}

impl Figures {
    /// Figures of a store of either engine.
    pub fn of(store: &AnyStore) -> Figures {
        match store {
            AnyStore::Lsm(store) => Figures::of_lsm(store),
            AnyStore::Log(store) => Figures::of_log(&store.stat()),
        }
    }

    /// Figures of an ordered store.
    pub fn of_lsm(store: &Store) -> Figures {
        let stat = store.stat();
        let levels = Level::all(&stat.levels);
        Figures {
            engine: Engine::Lsm.name(),
            entries: levels.iter().map(|level| level.entries).sum(),
            table_bytes: levels.iter().map(|level| level.bytes).sum(),
            reuse_mode: stat.reuse_mode.name(),
            sharing: stat.sharing.name(),
            unit_bytes: stat.unit_bytes,
            since_opened: Writing::of(&stat.since_opened),
            placement: stat.placement.map(Placed::of),
            lifetime: Writing::of(&stat.lifetime),
            held: Held::Lsm(Levels {
                levels,
                keyspaces: store.keyspaces(),
                memtable_bytes: stat.memtable_bytes,
                unflushed_bytes: stat.unflushed_bytes,
                kept_logs: stat.kept_logs,
                kept_log_bytes: stat.kept_log_bytes,
                pointed_bytes: stat.pointed_bytes,
                cache_bytes: stat.cache_bytes,
                cache_hits: stat.cache_hits,
                cache_misses: stat.cache_misses,
                filter_stopped: stat.filter_stopped,
                filter_wrong: stat.filter_wrong,
            }),
        }
    }

    fn of_log(stat: &log::StoreStat) -> Figures {
        Figures {
            engine: Engine::Log.name(),
            entries: stat.keys,
            table_bytes: stat.segment_bytes,
            reuse_mode: stat.reuse_mode.name(),
            sharing: stat.sharing.name(),
            unit_bytes: stat.unit_bytes,
            since_opened: Writing::of(&stat.since_opened),
            lifetime: Writing::of(&stat.lifetime),
            placement: stat.placement.map(Placed::of),
            held: Held::Log(Segments {
                segments: stat.segments,
                live_bytes: stat.live_bytes,
                delete_bytes: stat.delete_bytes,
                garbage_bytes: stat.garbage_bytes,
                bubble_bytes: stat.bubble_bytes,
                segments_skipped: stat.segments_skipped,
                open_bytes: stat.open_bytes,
                index_bytes: stat.index_bytes,
                records_read: stat.records_read,
                records_wrong: stat.records_wrong,
                collected_bytes: stat.collected_bytes,
                copied_bytes: stat.copied_bytes,
            }),
        }
    }

    /// Bytes that are only in logs: of keys and values or, in a log store, of records.
    pub fn in_logs(&self) -> u64 {
        match &self.held {
            Held::Lsm(held) => held.unflushed_bytes + held.pointed_bytes,
            Held::Log(held) => held.open_bytes,
        }
    }

    /// Number of tables, and their bytes.
    pub fn tables(&self) -> (usize, u64) {
        let tables = match &self.held {
            Held::Lsm(held) => held.levels.iter().map(|level| level.tables).sum(),
            Held::Log(held) => held.segments,
        };
        (tables, self.table_bytes)
    }
}

impl Placed {
    fn of(told: Placement) -> Placed {
        Placed {
            superblocks: told.superblocks,
            superblocks_free: told.free,
            superblocks_pinned: told.pinned,
            pinned_bytes: told.pinned_bytes,
            pinned_live_bytes: told.pinned_live_bytes,
            runs: told.runs,
            collections: told.collections,
            collected_bytes: told.collected_bytes,
        }
    }
}

impl Writing {
    fn of(told: &Lifetime) -> Writing {
        let written = Cause::ALL.iter().map(|cause| (cause.name(), told.written_for(*cause)));
        let (stalls, stalled_ns) = told.stalls();
        Writing {
            user_bytes: told.user_bytes(),
            written_bytes: told.written_bytes(),
            nvram_bytes: told.nvram_bytes(),
            written: written.filter(|(_, bytes)| *bytes > 0).collect(),
            write_amplification: told.write_amplification(),
            flushes: told.flushes(),
            compactions: told.compactions(),
            moves: told.moves(),
            moved_bytes: told.moved_bytes(),
            ingested_bytes: told.ingested_bytes(),
            stalls,
            stalled_ns,
            slowed_ns: told.slowed_ns(),
            reuse: Reuse::of(told),
        }
    }
}

impl Reuse {
    fn of(told: &Lifetime) -> Reuse {
        let (reuse, emitted_bytes) = (told.reuse(), told.emitted_bytes());
        Reuse {
            islands: reuse.islands,
            bubbles: reuse.bubbles,
            bubble_bytes: reuse.bubble_bytes,
            bubble_share: reuse.bubble_share(),
            inherited_bytes: reuse.inherited_bytes,
            padding_share: reuse.padding_share(emitted_bytes),
            emitted_bytes,
            kept_bytes: reuse.kept_bytes,
            hashed_bytes: reuse.kept_bytes.saturating_sub(reuse.relinked_bytes),
            remapped_bytes: told.remapped_bytes(),
            reflinked_bytes: told.reflinked_bytes(),
            linked_bytes: told.linked_bytes(),
        }
    }
}
