//! A store of either engine.

use super::{Fresh, Options, Store, checkpoint, media_at, named};
use crate::reason::{COMPRESSES_NOTHING, OTHER_ENGINE};
use std::path::Path;
use std::sync::Arc;
use vellum_base::{Env, Error, RealEnv, Result};
use vellum_kv::{Batch, Engine, Map, Media, check_sharing, log};

/// Segments of a log store are smaller than memtables by this factor: three of them are in memory at a time.
const SEGMENTS_A_MEMTABLE: u64 = 2;

/// A store of the engine that its manifest states. What both engines have in common is in [`AnyStore::map`].
#[derive(Debug)]
pub enum AnyStore {
    /// Ordered.
    Lsm(Store),
    /// Not ordered.
    Log(log::Store),
}

impl AnyStore {
    /// Opens the store at `path`, as [`Store::open`] does. A new one uses the engine `wanted`, by default the ordered
    /// one; an existing one must use that engine, if given. A log store ignores options that it does not have, and its
    /// segments are half as large as a memtable. If opening fails, nothing is left where there was nothing.
    /// [`vellum_kv::Reuse::Relink`] fails if nothing can be in two tables at once, as does
    /// [`vellum_kv::Reuse::Bubbles`] on flash or zones, below which nothing deduplicates.
    pub fn open(path: impl AsRef<Path>, wanted: Option<Engine>, options: Options) -> Result<AnyStore> {
        AnyStore::open_for(path, wanted, options, &Batch::new())
    }

    /// The same, for a batch that is to be written: a new store that could not take it is not created.
    pub fn open_for(
        path: impl AsRef<Path>,
        wanted: Option<Engine>,
        options: Options,
        batch: &Batch,
    ) -> Result<AnyStore> {
        let (path, fresh) = (path.as_ref(), Fresh::at(path.as_ref(), options.read_only));
        let media = media_at(path, options.read_only);
        let opened = media.and_then(|media| AnyStore::on(media, wanted, options, batch));
        opened.inspect_err(|_| fresh.undo()).map_err(|e| named(e, path))
    }

    /// The same on any medium.
    pub(super) fn on(
        media: Arc<dyn Media>,
        wanted: Option<Engine>,
        options: Options,
        batch: &Batch,
    ) -> Result<AnyStore> {
        if !options.read_only {
            check_sharing(&*media, &options.reuse)?;
        }
        let env: Arc<dyn Env> = RealEnv::new();
        let is = Engine::of(&*media)?;
        if let (Some(wanted), Some(is)) = (wanted, is)
            && wanted != is
        {
            let what = format!("it is a store of engine {}, not {}", is.name(), wanted.name());
            return Err(Error::invalid(what).because(OTHER_ENGINE));
        }
        let engine = is.or(wanted).unwrap_or_default();
        if engine == Engine::Log && options.compression != Options::default().compression {
            return Err(Error::invalid("a log store compresses nothing").because(COMPRESSES_NOTHING));
        }
        if is.is_none() && options.create_if_missing {
            would_take(engine, &media, &options, batch)?;
        }
        Ok(match engine {
            Engine::Lsm => AnyStore::Lsm(Store(vellum_kv::Store::open(media, env, options)?)),
            Engine::Log => AnyStore::Log(log::Store::open(media, env, log_options(&options))?),
        })
    }

    /// Its engine.
    pub fn engine(&self) -> Engine {
        match self {
            AnyStore::Lsm(_) => Engine::Lsm,
            AnyStore::Log(_) => Engine::Log,
        }
    }

    /// The common interface of both engines.
    pub fn map(&self) -> &dyn Map {
        match self {
            AnyStore::Lsm(store) => &**store,
            AnyStore::Log(store) => store,
        }
    }

    /// Makes a store in the directory `path`, which must be empty or not exist, with the current contents of this one
    /// ([`Map::checkpoint`]).
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        checkpoint(self.map(), path.as_ref())
    }

    /// Closes it; fails unless everything is durable.
    pub fn close(self) -> Result<()> {
        match self {
            AnyStore::Lsm(store) => store.close(),
            AnyStore::Log(store) => store.close(),
        }
    }
}

/// Fails if a store that is yet to be made could not take this batch.
fn would_take(engine: Engine, media: &Arc<dyn Media>, options: &Options, batch: &Batch) -> Result<()> {
    match engine {
        Engine::Lsm => vellum_kv::Store::check_batch_on(media, options, batch),
        Engine::Log => log::Store::check_batch_on(media, &log_options(options), batch),
    }
}

fn log_options(options: &Options) -> log::Options {
    log::Options {
        create_if_missing: options.create_if_missing,
        read_only: options.read_only,
        strict_log: options.strict_log,
        segment_bytes: options.memtable_bytes as u64 / SEGMENTS_A_MEMTABLE,
        reuse: options.reuse,
        cpu: options.cpu,
        ..log::Options::default()
    }
}
