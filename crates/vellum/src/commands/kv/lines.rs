//! Keys and values in files, one record per line: `KEY<tab>VALUE`, or a JSON object.
//!
//! In JSON, `key` and `value` are text; other bytes are in hexadecimal in `key_hex` and `value_hex`.
//!
//! Invariants
//! 1. What [`Form::write`] writes, [`Form::read`] reads as the same bytes.
//! 2. A line is at most [`LINE_BYTES_MAX`] long, so that a file of another kind does not exhaust memory.

use super::notation::Notation;
use crate::harmless::harmless_json;
use clap::ValueEnum;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;
use std::io::{BufRead, Read};
use std::path::Path;
use vellum::base::{Error, Result};

/// A value of 64 MiB with each byte escaped as in JSON: `\u0000`.
pub const LINE_BYTES_MAX: u64 = 386 << 20;

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// KEY<tab>VALUE
    Tsv,
    /// {"key": KEY, "value": VALUE}
    Json,
}

/// A record, or in a batch, a key to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Sets a key.
    Put(Vec<u8>, Vec<u8>),
    /// Removes a key.
    Delete(Vec<u8>),
}

impl Form {
    /// The form of a file, from the extension of its name.
    pub fn of(path: &Path) -> Form {
        match path.extension().and_then(|end| end.to_str()) {
            Some("json" | "jsonl" | "ndjson") => Form::Json,
            _ => Form::Tsv,
        }
    }

    /// Appends the line of a record to `out`.
    pub fn write(self, key: &[u8], value: Option<&[u8]>, notation: Notation, out: &mut String) {
        match self {
            Form::Tsv => {
                notation.write(key, out);
                if let Some(value) = value {
                    out.push('\t');
                    notation.write(value, out);
                }
            }
            Form::Json => {
                let mut object = Map::new();
                json_field("key", key, notation, &mut object);
                if let Some(value) = value {
                    json_field("value", value, notation, &mut object);
                }
                out.push_str(&harmless_json(Value::Object(object).to_string()));
            }
        }
        out.push('\n');
    }

    /// Parses a line as a record.
    pub fn read(self, line: &[u8], notation: Notation) -> Result<Line> {
        match self {
            Form::Tsv => {
                let mut cells = line.splitn(2, |byte| *byte == b'\t');
                let key = notation.read(cells.next().unwrap_or_default())?;
                let value = cells.next().ok_or_else(|| Error::invalid("no tab between a key and a value"))?;
                Ok(Line::Put(key, notation.read(value)?))
            }
            Form::Json => match json_line(line)? {
                (None | Some("put"), object) => json_put(&object),
                (Some(other), _) => Err(Error::invalid(format!("kind '{other}' where all are puts"))),
            },
        }
    }

    /// Parses a line of a batch: `put<tab>KEY<tab>VALUE` or `del<tab>KEY`; in JSON `kind` is `put` or `del`.
    pub fn read_step(self, line: &[u8], notation: Notation) -> Result<Line> {
        match self {
            Form::Tsv => {
                if let Some(record) = line.strip_prefix(b"put\t") {
                    return self.read(record, notation);
                }
                match line.strip_prefix(b"del\t") {
                    Some(key) if key.contains(&b'\t') => {
                        Err(Error::invalid("del takes a key alone; a tab in a key is written \\t"))
                    }
                    Some(key) => Ok(Line::Delete(notation.read(key)?)),
                    None => Err(Error::invalid("a line begins with put or del, and a tab")),
                }
            }
            Form::Json => match json_line(line)? {
                (Some("put"), object) => json_put(&object),
                (Some("del"), object)
                    if ["value", "value_hex"].iter().any(|name| object.contains_key(*name)) =>
                {
                    Err(Error::invalid("a delete has no value"))
                }
                (Some("del"), object) => Ok(Line::Delete(json_bytes("key", &object)?)),
                _ => Err(Error::invalid("'kind' is put or del")),
            },
        }
    }
}

/// Reads the next line, without its terminator; `None` at the end of the file.
pub fn next_line<'a>(input: &mut dyn BufRead, line: &'a mut Vec<u8>) -> Result<Option<&'a [u8]>> {
    line.clear();
    let read = input.take(LINE_BYTES_MAX + 1).read_until(b'\n', line);
    match read.map_err(|e| Error::io("read", e))? as u64 {
        0 => Ok(None),
        bytes if bytes > LINE_BYTES_MAX => Err(Error::invalid("longer than any record")),
        _ => {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
        }
    }
}

fn json_field(name: &str, bytes: &[u8], notation: Notation, object: &mut Map<String, Value>) {
    match std::str::from_utf8(bytes) {
        Ok(text) if notation == Notation::Text => drop(object.insert(name.into(), text.into())),
        _ => {
            let mut text = String::new();
            Notation::Hex.write(bytes, &mut text);
            object.insert(format!("{name}_hex"), text.into());
        }
    }
}

/// An object without duplicate fields: of two with the same name, it would be chance which counts.
struct Fields(Map<String, Value>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Fields, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Fields;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> std::result::Result<Fields, A::Error> {
                let mut fields = Map::new();
                while let Some((name, value)) = from.next_entry::<String, Value>()? {
                    if fields.contains_key(&name) {
                        return Err(A::Error::custom(format!("'{name}' is there twice")));
                    }
                    fields.insert(name, value);
                }
                Ok(Fields(fields))
            }
        }
        from.deserialize_map(Each)
    }
}

/// An object, and its kind if it has one.
fn json_line(line: &[u8]) -> Result<(Option<&'static str>, Map<String, Value>)> {
    let Fields(object) =
        serde_json::from_slice(line).map_err(|e| Error::invalid(format!("no object of JSON: {e}")))?;
    let known = ["key", "key_hex", "value", "value_hex", "kind"];
    if let Some(other) = object.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(Error::invalid(format!("a field '{other}', which nobody knows")));
    }
    let kind = match object.get("kind").map(|kind| kind.as_str()) {
        None => None,
        Some(Some("put")) => Some("put"),
        Some(Some("del")) => Some("del"),
        Some(_) => return Err(Error::invalid("'kind' is put or del")),
    };
    Ok((kind, object))
}

fn json_put(object: &Map<String, Value>) -> Result<Line> {
    Ok(Line::Put(json_bytes("key", object)?, json_bytes("value", object)?))
}

fn json_bytes(name: &str, object: &Map<String, Value>) -> Result<Vec<u8>> {
    match (object.get(name), object.get(&format!("{name}_hex"))) {
        (Some(Value::String(text)), None) => Ok(text.clone().into_bytes()),
        (None, Some(Value::String(hex))) => Notation::Hex.read(hex.as_bytes()),
        _ => Err(Error::invalid(format!("either '{name}' or '{name}_hex', a text, has to be there"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_in_every_form() {
        let records: [(&[u8], &[u8]); 4] =
            [(b"", b""), (b"a\tb", b"1\n2"), (b"\xff\\x", "é".as_bytes()), (b"k", b"\xf0\x00")];
        let orders = "\u{1b}\u{7f}\u{80}\u{9b}\u{9f}\u{a0}".as_bytes();
        let records = records.into_iter().chain([(orders, orders)]);
        for form in [Form::Tsv, Form::Json] {
            for notation in [Notation::Text, Notation::Hex] {
                for (key, value) in records.clone() {
                    let mut text = String::new();
                    form.write(key, Some(value), notation, &mut text);
                    assert!(!text.contains(|c: char| c.is_control() && !"\t\n".contains(c)), "{text:?}");
                    let (mut input, mut line) = (text.as_bytes(), Vec::new());
                    let read = form.read(next_line(&mut input, &mut line).unwrap().unwrap(), notation);
                    assert_eq!(read.unwrap(), Line::Put(key.into(), value.into()), "{text}");
                    assert_eq!(next_line(&mut input, &mut line).unwrap(), None);
                }
            }
        }
    }

    #[test]
    fn steps_of_a_batch() {
        let tsv = |line: &str| Form::Tsv.read_step(line.as_bytes(), Notation::Text);
        assert_eq!(tsv("put\ta\tb\tc").unwrap(), Line::Put(b"a".into(), b"b\tc".into()));
        assert_eq!(tsv("del\ta").unwrap(), Line::Delete(b"a".into()));
        let json = |line: &str| Form::Json.read_step(line.as_bytes(), Notation::Text);
        assert_eq!(json(r#"{"kind":"del","key_hex":"ff"}"#).unwrap(), Line::Delete(b"\xff".into()));
        for line in ["", "put", "put\ta", "del", "del\ta\tb", "delete\ta", "a\tb"] {
            assert!(tsv(line).is_err(), "{line}");
        }
        let with_value = r#"{"kind":"del","key":"a","value":"b"}"#;
        for line in ["", "[]", r#"{"key":"a"}"#, r#"{"kind":"del"}"#, r#"{"kind":1,"key":"a"}"#, with_value] {
            assert!(json(line).is_err(), "{line}");
        }
    }

    #[test]
    fn lines_that_are_no_records_are_errors() {
        let read = |line: &str| Form::Json.read(line.as_bytes(), Notation::Text).is_err();
        assert!(read(r#"{"key":"a"}"#) && read(r#"{"key":"a","key_hex":"61","value":""}"#));
        assert!(read(r#"{"key":1,"value":"b"}"#) && read(r#"{"kee":"a","key":"a","value":"b"}"#));
        assert!(read(r#"{"kind":"del","key":"a"}"#));
        assert!(
            read(r#"{"key":"a","key":"b","value":"1"}"#) && read(r#"{"key":"a","value":"1","value":"1"}"#)
        );
        assert!(Form::Tsv.read(b"alone", Notation::Text).is_err());
        let (mut input, mut line) = (&b"a\r\nb"[..], Vec::new());
        assert_eq!(next_line(&mut input, &mut line).unwrap(), Some(&b"a"[..]));
        assert_eq!(next_line(&mut input, &mut line).unwrap(), Some(&b"b"[..]));
    }
}
