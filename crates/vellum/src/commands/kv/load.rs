//! `kv load`: loads many records from files.

use super::input::{Input, RecordFiles, each_record};
use super::space::{Scope, Space};
use super::stat::Figures;
use super::target::WriteTarget;
use crate::failure::{Failure, Outcome, Verdict};
use crate::text;
use crate::ui::Ui;
use serde::Serialize;
use vellum::base::{Env, Error, Kind, RealEnv, Result};
use vellum::kv::{AnyStore, Batch, Durability, Map};

/// Put every record of files into a store
#[derive(clap::Args)]
#[command(after_help = "\
Lines of KEY<tab>VALUE, or of JSON, as `vellum kv dump` writes them. All of it is safe from a power
cut when this returns; if it is ended before, the store holds the records up to some line. A line
that is no record ends it, and all before are in the store. Empty lines are skipped; a line may end
with CR LF.

Example:
  vellum kv load s s.tsv
  zcat users.jsonl.gz | vellum kv load s --form json

Exit codes: 0 loaded, 2 usage or a line that is no record, 3 I/O or no room, 4 corrupt, 5 open
elsewhere")]
pub struct Args {
    #[command(flatten)]
    target: WriteTarget,
    #[command(flatten)]
    space: Space,
    #[command(flatten)]
    records: RecordFiles,
}

/// docs/json/kv.md
#[derive(Serialize)]
struct Loaded {
    records: u64,
    bytes: u64,
    seconds: f64,
    #[serde(flatten)]
    figures: Figures,
}

/// State of the load.
#[derive(Default)]
struct Load {
    batch: Batch,
    records: u64,
    bytes: u64,
    /// Records in the store, which survive the end of the process.
    written: u64,
}

/// How much was saved when a load ended early.
enum Kept {
    /// The store has exactly what was written.
    All,
    /// No more could be written: the store has at least what was written before.
    AtLeast(Error),
    /// What was written could not be synced. The system may lose it.
    Unsynced(Error),
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let inputs = self.records.open()?;
        let env = RealEnv::new();
        let store = self.target.open_for(&self.space, &Batch::new())?;
        let scope = self.space.scope_or_new(&store)?;
        let mut load = Load::default();
        let loaded = self.load(&mut load, inputs, &store, &scope, ui);
        // Records before a malformed line stay in the store, like those before the end of the process.
        let (refused, kept) = load.keep(store.map());
        let has = kept.words(load.written);
        let refused = refused.or(kept.error()).map_or(Ok(()), |e| Err(self.target.advise(e)));
        loaded.and(refused).map_err(|failure| {
            let next = failure.next();
            failure.instead_next(format!("{next}; {has}"))
        })?;
        if load.records > 0 {
            match ui.during("load", || store.map().flush()) {
                // Without room for tables they stay in the log.
                Err(e) if e.kind() == Kind::NoSpace => {}
                flushed => flushed.map_err(|e| self.target.advise(e))?,
            }
        }
        let figures = Figures::of(&store);
        store.close().map_err(|e| self.target.advise(e))?;
        let (seconds, Load { records, bytes, .. }) = (env.now().0 as f64 / 1e9, load);
        let loaded = Loaded { records, bytes, seconds, figures };
        ui.result(&loaded, || {
            let rate = records as f64 / seconds.max(1e-9);
            let total = text::bytes(bytes);
            let head = format!(
                "{records} records, {total} of keys and values, in {seconds:.1} s ({rate:.0} a second)\n"
            );
            head + &text::kv::figures(&loaded.figures)
        });
        Ok(Verdict::Fine)
    }

    fn load(
        &self,
        load: &mut Load,
        inputs: Vec<Input>,
        store: &AnyStore,
        scope: &Scope,
        ui: &Ui,
    ) -> std::result::Result<(), Failure> {
        let map = store.map();
        each_record(inputs, "load", ui, |key, value, from| {
            store.map().check_value(value.len()).map_err(|e| self.target.advise(e.context(from.place())))?;
            load.add(scope, key, value).map_err(|e| e.context(from.place()))?;
            match map.is_filled(&load.batch) {
                true => load.write(map).map_err(|e| self.target.advise(e)),
                false => Ok(()),
            }
        })
    }
}

impl Load {
    fn add(&mut self, scope: &Scope, key: &[u8], value: &[u8]) -> Result<()> {
        scope.put(&mut self.batch, key, value)?;
        self.records += 1;
        self.bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    /// Writes the batch. Not buffered in the process: it would be counted, and lost if the next write fails.
    fn write(&mut self, store: &dyn Map) -> Result<()> {
        store.write(&self.batch, Durability::Buffered)?;
        self.written = self.records;
        self.batch.clear();
        Ok(())
    }

    /// Writes and syncs what is left. Returns why it was not written, if so: a store without room refuses a batch but
    /// remains usable.
    fn keep(&mut self, store: &dyn Map) -> (Option<Error>, Kept) {
        let refused = self.write(store).err();
        let kept = match store.write(&Batch::new(), Durability::Sync) {
            Ok(()) => Kept::All,
            Err(error) if refused.is_some() || error.kind() == Kind::Poisoned => Kept::AtLeast(error),
            Err(error) => Kept::Unsynced(error),
        };
        (refused, kept)
    }
}

impl Kept {
    /// Describes how much of the input the store has.
    fn words(&self, written: u64) -> String {
        match self {
            Kept::All => format!("the store has the first {written} records of the input"),
            Kept::AtLeast(_) if written == 0 => "the store may have no record of the input".into(),
            Kept::AtLeast(_) => format!("the store has at least the first {written} records of the input"),
            Kept::Unsynced(_) => "nobody knows how much of the input the store has: load all of it".into(),
        }
    }

    fn error(self) -> Option<Error> {
        match self {
            Kept::All => None,
            Kept::AtLeast(error) | Kept::Unsynced(error) => Some(error),
        }
    }
}
