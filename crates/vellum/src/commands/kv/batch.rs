//! `kv batch`: applies puts and deletes atomically.

use super::input::{Input, Written};
use super::lines::{Form, Line};
use super::space::Space;
use super::target::WriteTarget;
use crate::failure::{Failure, Outcome, Verdict};
use crate::ui::Ui;
use serde::Serialize;
use std::path::PathBuf;
use vellum::base::Result;
use vellum::kv::reason::VALUE_TOO_LONG;
use vellum::kv::{BATCH_BYTES_MAX, Batch, Durability};

/// Apply puts and deletes from a file, all or none; when this returns they are safe from a power cut
#[derive(clap::Args)]
#[command(after_help = "\
A line each: put<tab>KEY<tab>VALUE or del<tab>KEY; or an object of JSON with `kind` put or del
(docs/json/kv.md). A batch has at most 1 GiB, in a log store a quarter of a segment (8 MiB with the
memtable that is the default); both have less on small devices and images.

Example:
  printf 'put\\tverso\\tleft\\ndel\\trecto\\n' | vellum kv batch s

Exit codes: 0 applied, 2 usage or a line that is none, 3 I/O or no room, 4 corrupt, 5 open elsewhere")]
pub struct Args {
    #[command(flatten)]
    target: WriteTarget,
    #[command(flatten)]
    space: Space,
    /// The file to read [default: standard input]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    written: Written,
}

/// docs/json/kv.md
#[derive(Default, Serialize)]
struct Applied {
    puts: u64,
    deletes: u64,
}

/// What the input says.
#[derive(Default)]
struct Step {
    batch: Batch,
    applied: Applied,
    /// Where its longest value is.
    longest: String,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        // All of it is read first: what is no batch creates no store.
        let Step { mut batch, applied, longest } = self.read()?;
        let placed = |failure: Failure| match failure.error().is_because(VALUE_TOO_LONG) {
            true => failure.context(&longest),
            false => failure,
        };
        let store = self.target.open_for(&self.space, &batch).map_err(placed)?;
        store.map().check_value(batch.value_bytes_max()).map_err(|e| placed(self.target.advise(e)))?;
        self.space.scope_or_new(&store)?.take(&mut batch);
        let done = store.map().write(&batch, Durability::Sync).and_then(|()| store.close());
        done.map_err(|e| self.target.advise(e))?;
        ui.result(&applied, || format!("{} puts and {} deletes\n", applied.puts, applied.deletes));
        Ok(Verdict::Fine)
    }

    fn read(&self) -> Result<Step> {
        let (mut step, mut input) = (Step::default(), Input::open(self.file.as_ref(), &self.written)?);
        while let Some(line) = input.next(Form::read_step)? {
            step.add(&line, &input).map_err(|e| e.context(input.place()))?;
            if step.batch.bytes() > BATCH_BYTES_MAX {
                break; // the store reports it
            }
        }
        Ok(step)
    }
}

impl Step {
    fn add(&mut self, line: &Line, input: &Input) -> Result<()> {
        let value_bytes_max = self.batch.value_bytes_max();
        match line {
            Line::Put(key, value) => self.batch.put(key, value)?,
            Line::Delete(key) => self.batch.delete(key)?,
        }
        match line {
            Line::Put(..) => self.applied.puts += 1,
            Line::Delete(_) => self.applied.deletes += 1,
        }
        if self.batch.value_bytes_max() > value_bytes_max {
            self.longest = input.place();
        }
        Ok(())
    }
}
