//! `kv ingest`: adds sorted records, written only once.

use super::input::{Input, RecordFiles, each_record};
use super::space::Space;
use super::target::WriteTarget;
use crate::failure::{Failure, Outcome, Verdict};
use crate::text;
use crate::ui::Ui;
use serde::Serialize;
use vellum::base::{Env, Error, RealEnv};
use vellum::kv::reason::KEYS_OUT_OF_ORDER;
use vellum::kv::{Building, Ingested, Keyspace};

/// Put sorted records into a store, all or none, writing each of them once
#[derive(clap::Args)]
#[command(after_help = "\
Takes the same files as `vellum kv load`, whose keys must ascend from line to line, bytewise, as
they are without escapes (sort(1) orders lines with \\x.. wrongly: use --hex there). They become
tables as they are, without a log; what is there under the same keys is replaced.

Example:
  LC_ALL=C sort r.tsv | vellum kv ingest s
  vellum kv dump other | vellum kv ingest s --keyspace other

Exit codes: 0 done, 2 usage, a line that is no record or a key out of order, 3 I/O or no room, 4
corrupt, 5 open elsewhere")]
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
struct Done {
    records: u64,
    table_bytes: u64,
    tables: usize,
    /// The level that received most tables.
    level: usize,
    seconds: f64,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let env = RealEnv::new();
        let inputs = self.records.open()?;
        // A new store is built aside: none is left if its records are not taken.
        let building = self.target.begin_ordered()?;
        let target = building.as_ref().map(|building| self.target.at(building.path()));
        let ingested = self.fill(target.as_ref().unwrap_or(&self.target), inputs, ui)?;
        building.map_or(Ok(()), Building::finish).map_err(|e| self.target.advise(e))?;
        let levels = ingested.tables.iter().enumerate();
        let done = Done {
            records: ingested.entries,
            table_bytes: ingested.bytes,
            tables: ingested.tables.iter().sum(),
            level: levels.max_by_key(|(_, tables)| **tables).map_or(0, |(level, _)| level),
            seconds: env.now().0 as f64 / 1e9,
        };
        ui.result(&done, || {
            let (records, tables, level) = (done.records, done.tables, done.level);
            let (size, seconds) = (text::bytes(done.table_bytes), done.seconds);
            format!("{records} records in {tables} tables of level {level}, {size}, in {seconds:.1} s\n")
        });
        Ok(Verdict::Fine)
    }

    fn fill(&self, target: &WriteTarget, inputs: Vec<Input>, ui: &Ui) -> Result<Ingested, Failure> {
        let store = target.open_ordered(&self.space)?;
        let space = self.space.or_new(&store).map_err(|e| self.target.advise(e))?;
        let ingested = self.ingest(inputs, &space, ui)?;
        store.close().map_err(|e| self.target.advise(e))?;
        Ok(ingested)
    }

    fn ingest(&self, inputs: Vec<Input>, space: &Keyspace, ui: &Ui) -> Result<Ingested, Failure> {
        let mut ingest = space.ingest().map_err(|e| self.target.advise(e))?;
        each_record(inputs, "ingest", ui, |key, value, from| {
            ingest.put(key, value).map_err(|e| self.out_of_order(e.context(from.place())))
        })?;
        ingest.finish().map_err(|e| self.target.advise(e))
    }

    fn out_of_order(&self, error: Error) -> Failure {
        match error.is_because(KEYS_OUT_OF_ORDER) {
            true => Failure::with_next(
                error,
                "sort them (LC_ALL=C sort; with --hex where keys have escapes), or use `vellum kv load`, which takes any order",
            ),
            false => self.target.advise(error),
        }
    }
}
