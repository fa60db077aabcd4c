//! `kv drop`: removes a keyspace.

use super::notation::names;
use super::reusing::Reusing;
use super::space::no_keyspaces;
use super::target::Target;
use crate::failure::{Failure, Outcome, Verdict};
use crate::ui::Ui;
use serde::Serialize;
use vellum::kv::{AnyStore, Options};

/// Drop a keyspace with all it holds
#[derive(clap::Args)]
#[command(after_help = "\
Tables that hold nothing else are erased at once, the rest when it is next rewritten.

Example:
  vellum kv drop s drafts

Exit codes: 0 dropped, 2 usage or no such keyspace, 3 I/O, 4 corrupt, 5 open elsewhere")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// The keyspace
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    reusing: Reusing,
}

/// docs/json/kv.md
#[derive(Serialize)]
struct Dropped {
    keyspaces: Vec<String>,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let AnyStore::Lsm(store) = self.target.open_with(self.reusing.put_into(Options::default()))? else {
            return Err(Failure::with_next(no_keyspaces(), "`vellum kv del` removes its keys, one by one"));
        };
        if !store.keyspaces().contains(&self.name) {
            let error = vellum::base::Error::invalid(format!("there is no keyspace {:?}", self.name));
            return Err(Failure::with_next(error, format!("one of: {}", names(&store.keyspaces()))));
        }
        store.drop_keyspace(&self.name).map_err(|e| self.target.advise(e))?;
        let dropped = Dropped { keyspaces: store.keyspaces() };
        store.close().map_err(|e| self.target.advise(e))?;
        ui.result(&dropped, String::new);
        Ok(Verdict::Fine)
    }
}
