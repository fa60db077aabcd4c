//! `kv dump`: prints a store as text, which `kv load` reads.

use super::advice::refuse_inside;
use super::lines::Form;
use super::notation::names;
use super::target::Part;
use super::walk::{Walk, walk, walk_log};
use crate::commands::disk::not_replaced;
use crate::failure::{Failure, Outcome, Verdict};
use crate::text;
use crate::ui::Ui;
use serde::Serialize;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use vellum::base::{Error, Kind, Reason, Result};
use vellum::kv::AnyStore;
use vellum::whole_file::{OWNER_ONLY, WholeFile};

/// The file that is dumped to could not be written.
const NOT_WRITTEN: Reason = Reason::new("kv-dump.not-written");

/// Write a store, or a part of it, as text, which `kv load` takes back
#[derive(clap::Args)]
#[command(after_help = "\
Lines of KEY<tab>VALUE, or of JSON (docs/json/kv.md), of one keyspace, as of one moment. With --json
what is printed is JSON.

Example:
  vellum kv dump s --output s.tsv
  vellum kv dump s --prefix user/ --form json | gzip > users.jsonl.gz
  vellum kv dump log-store --skip-damaged --output rest.tsv

Exit codes: 0 dumped, 1 dumped but for what is damaged (--skip-damaged), 2 usage, 3 I/O, 4 corrupt, 5 open elsewhere")]
pub struct Args {
    #[command(flatten)]
    part: Part,
    /// The file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// tsv or json [default: as the file's name ends, else tsv; what is printed: json with --json]
    #[arg(long, value_name = "FORM")]
    form: Option<Form>,
    /// Of a log store that opens: leave out records that are damaged, and say which
    #[arg(long)]
    skip_damaged: bool,
    /// Replace the file if it exists
    #[arg(long, requires = "output")]
    force: bool,
}

/// docs/json/kv.md
#[derive(Serialize)]
struct Dumped {
    records: u64,
    bytes: u64,
    /// What was omitted.
    problems: Vec<String>,
    /// Names of the other keyspaces.
    keyspaces_left_out: Vec<String>,
}

/// Result of a walk.
struct Walked {
    records: u64,
    problems: Vec<String>,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        if ui.json && self.output.is_none() && self.form == Some(Form::Tsv) {
            let error = Error::invalid("with --json what is printed is JSON, with --form tsv it is not");
            return Err(Failure::with_next(error, "leave one of them out, or say --output"));
        }
        let plan = Walk {
            bounds: self.part.range.bounds()?,
            reverse: false,
            limit: u64::MAX,
            values: true,
            form: self.form.unwrap_or_else(|| match &self.output {
                Some(path) => Form::of(path),
                None if ui.json => Form::Json,
                None => Form::Tsv,
            }),
            notation: self.part.range.notation(),
        };
        let store = self.part.target.open()?;
        if self.skip_damaged && matches!(store, AnyStore::Lsm(_)) {
            let error = Error::invalid("--skip-damaged is for log stores");
            let next = "leave it out; `vellum kv repair` makes a store of what is left of this one";
            return Err(Failure::with_next(error, next));
        }
        let left_out = self.left_out(&store);
        let problems = match &self.output {
            Some(path) => {
                let dumped = self.to_file(&store, plan, path, ui)?;
                ui.result(&dumped, || format!("{}: {} records\n", path.display(), dumped.records));
                dumped.problems
            }
            None => {
                let mut wanted = |lines: &str| {
                    ui.print(lines);
                    Ok(ui.has_listener())
                };
                self.walk(&store, plan, &mut wanted)?.problems
            }
        };
        store.close().map_err(|e| self.part.target.advise(e))?;
        // Who names a keyspace knows of them.
        if self.part.space.is_default() && !left_out.is_empty() {
            let others = text::counted(left_out.len() as u64, "other keyspace");
            ui.remark(format!("{others} not dumped: {} (--keyspace)", names(&left_out)));
        }
        problems.iter().for_each(|problem| ui.remark(format!("LEFT OUT: {problem}")));
        Ok(if problems.is_empty() { Verdict::Fine } else { Verdict::Problems })
    }

    /// Names of the keyspaces that are not dumped.
    fn left_out(&self, store: &AnyStore) -> Vec<String> {
        match store {
            AnyStore::Lsm(store) => {
                store.keyspaces().into_iter().filter(|name| !self.part.space.is(name)).collect()
            }
            AnyStore::Log(_) => Vec::new(),
        }
    }

    /// Walks a store. A log store has no parts to select.
    fn walk(
        &self,
        store: &AnyStore,
        plan: Walk,
        to: &mut dyn FnMut(&str) -> Result<bool>,
    ) -> std::result::Result<Walked, Failure> {
        let mut problems = Vec::new();
        let walked = match store {
            AnyStore::Lsm(store) => walk(&self.part.space.of(store)?, plan, to),
            AnyStore::Log(_) if !self.part.range.is_all() => return Err(self.part.target.has_no_order()),
            AnyStore::Log(log) => {
                self.part.space.scope(store)?;
                walk_log(log, plan, to, &mut |error| match error.kind() {
                    Kind::Corrupt if self.skip_damaged => {
                        problems.push(error.to_string());
                        Ok(())
                    }
                    _ => Err(error),
                })
            }
        };
        let records = walked.map_err(|e| self.part.target.advise(e))?;
        Ok(Walked { records, problems })
    }

    fn to_file(&self, store: &AnyStore, plan: Walk, path: &Path, ui: &Ui) -> Result<Dumped, Failure> {
        refuse_inside(path, self.part.target.path())?;
        let file = WholeFile::begin(path, self.force, OWNER_ONLY).map_err(not_replaced)?;
        let what = format!("write {}", path.display());
        let said = |e| Error::io(&what, e).because(NOT_WRITTEN);
        let (mut out, mut bytes) = (BufWriter::new(file.file()), 0);
        let mut write = |lines: &str| {
            bytes += lines.len() as u64;
            out.write_all(lines.as_bytes()).map_err(said).map(|()| true)
        };
        let advised = |failure: Failure| match failure.error().is_because(NOT_WRITTEN) {
            true => failure.instead_next(format!(
                "make room where {} is to be, or choose another place: nothing of it was left there",
                path.display()
            )),
            false => failure,
        };
        let walked = ui.during("dump", || self.walk(store, plan, &mut write)).map_err(advised)?;
        let Walked { records, problems } = walked;
        out.flush().map_err(|e| advised(said(e).into()))?;
        drop(out);
        file.finish().map_err(|e| advised(said(e).into()))?;
        let keyspaces_left_out = self.left_out(store);
        Ok(Dumped { records, bytes, problems, keyspaces_left_out })
    }
}
