//! `kv ingest`: sorted records, written once.

use super::input::Input;
use super::lines::{Form, Line};
use super::target::{Hex, Space, WriteTarget};
use crate::failure::{Failure, Outcome, Verdict};
use crate::text;
use crate::ui::Ui;
use serde::Serialize;
use std::path::PathBuf;
use vellum::base::{Env, Kind, RealEnv};
use vellum::kv::{Ingested, Keyspace};

/// Put sorted records into a store, all or none, writing each of them once
#[derive(clap::Args)]
#[command(after_help = "\
Takes the same files as `vellum kv load`, whose keys must ascend from line to line, bytewise. They become tables as they
are, without a log; what is there under the same keys is replaced.

Example:
  LC_ALL=C sort r.tsv | vellum kv ingest s
  vellum kv dump other | vellum kv ingest s --keyspace other

Exit codes: 0 done, 2 usage, a line that is no record or a key out of order, 3 I/O or no room, 4 corrupt,
5 open elsewhere")]
pub struct Args {
    #[command(flatten)]
    target: WriteTarget,
    #[command(flatten)]
    space: Space,
    /// The files to read [default: standard input]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// tsv or json [default: as the file's name ends, else tsv]
    #[arg(long, value_name = "FORM")]
    form: Option<Form>,
    #[command(flatten)]
    hex: Hex,
}

/// docs/json/kv.md
#[derive(Serialize)]
struct Done {
    records: u64,
    table_bytes: u64,
    tables: usize,
    /// The level that most tables went to.
    level: usize,
    seconds: f64,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let env = RealEnv::new();
        let inputs = Input::all(&self.files, self.form, self.hex.notation())?;
        let store = self.target.open()?;
        let space = self.space.or_new(&store).map_err(|e| self.target.advise(e))?;
        let ingested = self.ingest(inputs, &space, ui)?;
        store.close().map_err(|e| self.target.advise(e))?;
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

    fn ingest(&self, inputs: Vec<Input>, space: &Keyspace, ui: &Ui) -> Result<Ingested, Failure> {
        const TELL_EVERY: u64 = 1 << 20;
        let all = inputs.iter().map(|input| input.bytes).sum();
        let (mut progress, mut before, mut told) = (ui.progress("ingest"), 0, 0);
        let mut ingest = space.ingest().map_err(|e| self.target.advise(e))?;
        for mut input in inputs {
            while let Some(line) = input.next(Form::read)? {
                if let Line::Put(key, value) = line {
                    ingest.put(&key, &value).map_err(|e| self.out_of_order(e.context(input.place())))?;
                }
                let read = before + input.read_bytes;
                if read - told >= TELL_EVERY {
                    progress(read, all);
                    told = read;
                }
            }
            before += input.read_bytes;
        }
        ingest.finish().map_err(|e| self.target.advise(e))
    }

    fn out_of_order(&self, error: vellum::base::Error) -> Failure {
        match error.kind() {
            Kind::Invalid => Failure::with_next(
                error,
                "sort them (LC_ALL=C sort), or use `vellum kv load`, which takes any order",
            ),
            _ => self.target.advise(error),
        }
    }
}
