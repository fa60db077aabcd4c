//! `kv get`: prints the values of keys.

use super::lines::Form;
use super::notation::Notation;
use super::space::Space;
use super::target::{Hex, Target};
use crate::failure::{Failure, Outcome, Verdict};
use crate::ui::Ui;
use serde::Serialize;
use std::ffi::OsString;
use vellum::base::{Error, Result};

/// Print the value of a key, or keys and their values
#[derive(clap::Args)]
#[command(after_help = "\
Of several keys it prints a line each: KEY<tab>VALUE, of those that are there.

Example:
  vellum kv get s recto
  vellum kv get s recto verso
  vellum kv get s picture --raw > picture.png

Exit codes: 0 printed, 1 a key is not there, 2 usage, 3 I/O, 4 corrupt, 5 open elsewhere")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    space: Space,
    /// The key, or keys
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<OsString>,
    /// Print the bytes of one value as they are, without a line's end; not with --hex or --json
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
        if self.raw && (ui.json || self.keys.len() > 1) {
            let error = Error::invalid("--raw prints the bytes of one value, and nothing else");
            return Err(Failure::with_next(error, "leave it out, or --json, or ask for one key"));
        }
        let keys = self.keys.iter().map(|key| self.hex.read(key)).collect::<Result<Vec<_>>>()?;
        let store = self.target.open()?;
        let scope = self.space.scope(&store)?;
        let values = keys.iter().map(|key| scope.get(&store, key)).collect::<Result<Vec<_>>>();
        let values = values.and_then(|values| store.close().map(|()| values));
        let values = values.map_err(|e| self.target.advise(e))?;
        match (&keys[..], &values[..]) {
            ([_], [value]) => self.show(value.as_deref(), ui),
            _ => self.show_all(&keys, &values, ui),
        }
        Ok(if values.iter().all(Option::is_some) { Verdict::Fine } else { Verdict::Problems })
    }

    fn show(&self, value: Option<&[u8]>, ui: &Ui) {
        match value {
            _ if ui.json => ui.result(&Got::of(value, self.hex.notation()), String::new),
            Some(value) if self.raw => ui.bytes(value),
            Some(value) => {
                let mut text = String::new();
                self.hex.notation().write(value, &mut text);
                ui.print(text + "\n");
            }
            None => ui.remark("there is no such key"),
        }
    }

    fn show_all(&self, keys: &[Vec<u8>], values: &[Option<Vec<u8>>], ui: &Ui) {
        let (form, notation) = (if ui.json { Form::Json } else { Form::Tsv }, self.hex.notation());
        for (key, value) in keys.iter().zip(values) {
            let mut text = String::new();
            match value {
                Some(value) => {
                    form.write(key, Some(value), notation, &mut text);
                    ui.print(text);
                }
                None => {
                    notation.write(key, &mut text);
                    ui.remark(format!("there is no key {text}"));
                }
            }
        }
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
