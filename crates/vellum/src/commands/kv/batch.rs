//! `kv batch`: applies puts and deletes atomically.

use super::input::{Input, Written};
use super::lines::{Form, Line};
use super::target::{Space, WriteTarget};
use crate::failure::{Outcome, Verdict};
use crate::ui::Ui;
use serde::Serialize;
use std::path::PathBuf;
use vellum::kv::{Batch, Durability};

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

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let mut input = Input::open(self.file.as_ref(), &self.written)?;
        let store = self.target.open()?;
        let scope = self.space.scope_or_new(&store)?;
        let (mut batch, mut applied) = (Batch::new(), Applied::default());
        while let Some(line) = input.next(Form::read_step)? {
            match line {
                Line::Put(key, value) => {
                    let fits = store.check_value(value.len());
                    fits.map_err(|e| self.target.advise(e.context(input.place())))?;
                    scope.put(&mut batch, &key, &value).map_err(|e| e.context(input.place()))?;
                    applied.puts += 1;
                }
                Line::Delete(key) => {
                    scope.delete(&mut batch, &key).map_err(|e| e.context(input.place()))?;
                    applied.deletes += 1;
                }
            }
            if batch.bytes() > store.map().batch_bytes_max() {
                break; // the store reports it
            }
        }
        let done = store.map().write(&batch, Durability::Sync).and_then(|()| store.close());
        done.map_err(|e| self.target.advise(e))?;
        ui.result(&applied, || format!("{} puts and {} deletes\n", applied.puts, applied.deletes));
        Ok(Verdict::Fine)
    }
}
