//! `kv load`: many records from files.

use super::input::{Input, RecordFiles, each_record};
use super::stat::Figures;
use super::target::{Scope, Space, WriteTarget};
use crate::failure::{Failure, Outcome, Verdict};
use crate::text;
use crate::ui::Ui;
use serde::Serialize;
use vellum::base::{Env, Kind, RealEnv};
use vellum::kv::{AnyStore, Batch, Durability, Map};

/// Put every record of files into a store
#[derive(clap::Args)]
#[command(after_help = "\
Lines of KEY<tab>VALUE, or of JSON, as `vellum kv dump` writes them. All of it is safe from a power
cut when this returns; if it is ended before, the store holds the records up to some line. A line
that is no record ends it, and all before are in the store.

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

/// What was loaded so far.
#[derive(Default)]
struct Load {
    batch: Batch,
    records: u64,
    bytes: u64,
    /// Records that are in the store.
    written: u64,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let inputs = self.records.open()?;
        let env = RealEnv::new();
        let store = self.target.open()?;
        let scope = self.space.scope_or_new(&store)?;
        let mut load = Load::default();
        let loaded = self.load(&mut load, inputs, &store, &scope, ui);
        // What came before a line that is no record stays, as what came before the end of the process does.
        let kept = load.write(store.map()).and_then(|()| store.map().write(&Batch::new(), Durability::Sync));
        let done = loaded.and_then(|()| kept.map_err(|e| self.target.advise(e)));
        done.map_err(|failure| {
            let next = failure.next();
            failure.instead_next(format!(
                "{next}; the store has the first {} records of the input",
                load.written
            ))
        })?;
        // Where there is no room for tables it stays in the log.
        let flushed = ui.during("load", || store.map().flush());
        flushed.or_else(|e| if e.kind() == Kind::NoSpace { Ok(()) } else { Err(self.target.advise(e)) })?;
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
    ) -> Result<(), Failure> {
        let map = store.map();
        each_record(inputs, "load", ui, |key, value, from| {
            store.check_value(value.len()).map_err(|e| self.target.advise(e.context(from.place())))?;
            load.add(scope, key, value).map_err(|e| e.context(from.place()))?;
            match map.is_filled(&load.batch) {
                true => load.write(map).map_err(|e| self.target.advise(e)),
                false => Ok(()),
            }
        })
    }
}

impl Load {
    fn add(&mut self, scope: &Scope, key: &[u8], value: &[u8]) -> vellum::base::Result<()> {
        scope.put(&mut self.batch, key, value)?;
        self.records += 1;
        self.bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    fn write(&mut self, store: &dyn Map) -> vellum::base::Result<()> {
        store.write(&self.batch, Durability::None)?;
        self.written = self.records;
        self.batch.clear();
        Ok(())
    }
}
