//! `kv get`: one value.

use super::notation::Notation;
use super::target::{Hex, Space, Target};
use crate::failure::{Outcome, Verdict};
use crate::ui::Ui;
use serde::Serialize;
use std::ffi::OsString;

/// Print the value of a key
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  vellum kv get s recto
  vellum kv get s picture --raw > picture.png

Exit codes: 0 printed, 1 no such key, 2 usage, 3 I/O, 4 corrupt, 5 open elsewhere")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    space: Space,
    /// The key
    #[arg(value_name = "KEY")]
    key: OsString,
    /// Print the bytes as they are, without a line's end
    #[arg(long, conflicts_with = "hex")]
    raw: bool,
    #[command(flatten)]
    hex: Hex,
}

/// docs/json/kv.md
#[derive(Serialize)]
struct Got {
    found: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
    value_bytes: Option<usize>,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let key = self.hex.read(&self.key)?;
        let store = self.target.open()?;
        let value = self.space.scope(&store)?.get(&store, &key).map_err(|e| self.target.advise(e))?;
        store.close().map_err(|e| self.target.advise(e))?;
        match (&value, ui.json) {
            (_, true) => ui.result(&Got::of(value.as_deref(), self.hex.notation()), String::new),
            (Some(value), _) if self.raw => ui.bytes(value),
            (Some(value), _) => {
                let mut text = String::new();
                self.hex.notation().write(value, &mut text);
                ui.print(text + "\n");
            }
            (None, _) => ui.remark("there is no such key"),
        }
        Ok(if value.is_some() { Verdict::Fine } else { Verdict::Problems })
    }
}

impl Got {
    fn of(value: Option<&[u8]>, notation: Notation) -> Got {
        let text = value.and_then(|value| std::str::from_utf8(value).ok());
        let text = text.filter(|_| notation == Notation::Text).map(String::from);
        let hex = value.filter(|_| text.is_none()).map(|value| {
            let mut hex = String::new();
            Notation::Hex.write(value, &mut hex);
            hex
        });
        Got { found: value.is_some(), value: text, value_hex: hex, value_bytes: value.map(<[u8]>::len) }
    }
}
