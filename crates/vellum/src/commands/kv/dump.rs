//! `kv dump`: a store as text, which `kv load` takes back.

use super::lines::Form;
use super::target::Part;
use super::walk::{Walk, walk};
use crate::commands::disk::create_file;
use crate::failure::{Failure, Outcome, Verdict};
use crate::ui::Ui;
use serde::Serialize;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use vellum::base::{Error, Result};
use vellum::kv::Keyspace;

/// Write a store, or a part of it, as text, which `kv load` takes back
#[derive(clap::Args)]
#[command(after_help = "\
Lines of KEY<tab>VALUE, or of JSON (docs/json/kv.md), as of one moment.

Example:
  vellum kv dump s --to s.tsv
  vellum kv dump s --prefix user/ --form json | gzip > users.jsonl.gz

Exit codes: 0 dumped, 2 usage, 3 I/O, 4 corrupt, 5 open elsewhere")]
pub struct Args {
    #[command(flatten)]
    part: Part,
    /// The file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// tsv or json [default: as the file's name ends, else tsv]
    #[arg(long, value_name = "FORM")]
    form: Option<Form>,
    /// Replace the file if it exists
    #[arg(long, requires = "output")]
    force: bool,
}

/// docs/json/kv.md
#[derive(Serialize)]
struct Dumped {
    records: u64,
    bytes: u64,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let plan = Walk {
            bounds: self.part.range.bounds()?,
            reverse: false,
            limit: u64::MAX,
            values: true,
            form: self.form.unwrap_or_else(|| self.output.as_deref().map_or(Form::Tsv, Form::of)),
            notation: self.part.range.notation(),
        };
        let store = self.part.target.open()?;
        let space = self.part.space.of(&store)?;
        match &self.output {
            Some(path) => {
                let dumped = self.to_file(&space, plan, path)?;
                ui.result(&dumped, || format!("{}: {} records\n", path.display(), dumped.records));
            }
            None => {
                let mut wanted = |lines: &str| {
                    ui.print(lines);
                    Ok(ui.has_listener())
                };
                walk(&space, plan, &mut wanted).map_err(|e| self.part.target.advise(e))?;
            }
        }
        store.close().map_err(|e| self.part.target.advise(e))?;
        Ok(Verdict::Fine)
    }

    fn to_file(&self, space: &Keyspace, plan: Walk, path: &Path) -> Result<Dumped, Failure> {
        let file = create_file(path, self.force)?;
        let said = |e| Error::io(format!("write {}", path.display()), e);
        let (mut out, mut bytes) = (BufWriter::new(&file), 0);
        let mut write = |lines: &str| {
            bytes += lines.len() as u64;
            out.write_all(lines.as_bytes()).map_err(said).map(|()| true)
        };
        let records = walk(space, plan, &mut write).map_err(|e| self.part.target.advise(e))?;
        out.flush().and_then(|()| file.sync_all()).map_err(said)?;
        Ok(Dumped { records, bytes })
    }
}
