//! `kv put`: sets one key.

use super::space::Space;
use super::target::{Hex, WriteTarget};
use crate::failure::{Outcome, Verdict};
use crate::ui::Ui;
use serde::Serialize;
use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use vellum::base::{Error, Result};
use vellum::kv::{Batch, Durability, VALUE_BYTES_MAX};

/// Set a key; when this returns it is safe from a power cut
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  vellum kv put s recto right
  vellum kv put s picture --value-from picture.png

Exit codes: 0 set, 2 usage, 3 I/O or no room, 4 corrupt, 5 open elsewhere")]
pub struct Args {
    #[command(flatten)]
    target: WriteTarget,
    #[command(flatten)]
    space: Space,
    /// The key
    #[arg(value_name = "KEY")]
    key: OsString,
    /// Its value
    #[arg(value_name = "VALUE", required_unless_present = "value_from")]
    value: Option<OsString>,
    /// The file that is the value, bytes as they are; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    value_from: Option<PathBuf>,
    #[command(flatten)]
    hex: Hex,
}

/// docs/json/kv.md
#[derive(Serialize)]
struct Set {
    key_bytes: usize,
    value_bytes: usize,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let key = self.hex.read(&self.key)?;
        let value = self.value()?;
        let mut batch = Batch::new();
        batch.put(&key, &value)?;
        let store = self.target.open_for(&self.space, &batch)?;
        store.map().check_value(value.len()).map_err(|e| self.target.advise(e))?;
        self.space.scope_or_new(&store)?.take(&mut batch);
        let put = store.map().write(&batch, Durability::Sync).and_then(|()| store.close());
        put.map_err(|e| self.target.advise(e))?;
        ui.result(&Set { key_bytes: key.len(), value_bytes: value.len() }, String::new);
        Ok(Verdict::Fine)
    }

    /// Reads the value. A file that is too long is not read to its end.
    fn value(&self) -> Result<Vec<u8>> {
        let Some(path) = &self.value_from else {
            return self.hex.read(self.value.as_deref().unwrap_or_default());
        };
        let said = |e| Error::io(format!("read {}", path.display()), e);
        let input: Box<dyn Read> = match path.as_os_str() == "-" {
            true => Box::new(std::io::stdin().lock()),
            false => Box::new(std::fs::File::open(path).map_err(said)?),
        };
        let mut value = Vec::new();
        input.take(VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut value).map_err(said)?;
        match value.len() > VALUE_BYTES_MAX {
            true => {
                let what = format!("{} has more bytes than any value, {VALUE_BYTES_MAX}", path.display());
                Err(Error::invalid(what))
            }
            false => Ok(value),
        }
    }
}
