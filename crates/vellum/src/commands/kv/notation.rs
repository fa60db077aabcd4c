//! Bytes as text: printable text stands for itself, other bytes are escaped with a backslash; or all in hexadecimal.
//!
//! Invariants
//! 1. Text contains no tab and no line end, so both can separate keys and values.
//! 2. What is written is read as the same bytes.

use std::fmt::Write;
use vellum::base::{Error, Result};

/// How bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// Text with the escapes `\\`, `\t`, `\n`, `\r`, `\xHH`.
    Text,
    /// Two hexadecimal digits per byte.
    Hex,
}

impl Notation {
    /// The notation selected by `--hex`.
    pub fn of(hex: bool) -> Notation {
        if hex { Notation::Hex } else { Notation::Text }
    }

    /// Appends `bytes` to `out`.
    pub fn write(self, bytes: &[u8], out: &mut String) {
        match self {
            Notation::Hex => bytes.iter().for_each(|byte| hex_byte(*byte, out)),
            Notation::Text => {
                for chunk in bytes.utf8_chunks() {
                    chunk.valid().chars().for_each(|c| write_char(c, out));
                    chunk.invalid().iter().for_each(|byte| escaped(*byte, out));
                }
            }
        }
    }

    /// The bytes that `text` represents.
    pub fn read(self, text: &[u8]) -> Result<Vec<u8>> {
        match self {
            Notation::Hex => read_hex(text),
            Notation::Text => read_text(text),
        }
    }
}

/// Names, for people: as keys are written.
pub fn names(names: &[String]) -> String {
    let mut text = String::new();
    for (at, name) in names.iter().enumerate() {
        text.push_str(if at > 0 { ", " } else { "" });
        Notation::Text.write(name.as_bytes(), &mut text);
    }
    text
}

fn write_char(c: char, out: &mut String) {
    match c {
        '\\' => out.push_str("\\\\"),
        '\t' => out.push_str("\\t"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        c if c.is_control() => c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| escaped(byte, out)),
        c => out.push(c),
    }
}

fn escaped(byte: u8, out: &mut String) {
    out.push_str("\\x");
    hex_byte(byte, out);
}

fn hex_byte(byte: u8, out: &mut String) {
    let _ = write!(out, "{byte:02x}"); // cannot fail
}

fn read_hex(text: &[u8]) -> Result<Vec<u8>> {
    let wrong = || Error::invalid(format!("'{}' is not hexadecimal, two digits a byte", shown(text)));
    match text.len() % 2 {
        0 => text.chunks(2).map(|pair| byte(pair).ok_or_else(wrong)).collect(),
        _ => Err(wrong()),
    }
}

fn read_text(text: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut left = text;
    while let Some((first, rest)) = left.split_first() {
        let (value, len) = match (first, rest) {
            (b'\\', [b'\\', ..]) => (b'\\', 2),
            (b'\\', [b't', ..]) => (b'\t', 2),
            (b'\\', [b'n', ..]) => (b'\n', 2),
            (b'\\', [b'r', ..]) => (b'\r', 2),
            (b'\\', [b'x', digits @ ..]) => match digits.get(..2).and_then(byte) {
                Some(value) => (value, 4),
                None => return Err(backslash(left)),
            },
            (b'\\', _) => return Err(backslash(left)),
            (other, _) => (*other, 1),
        };
        bytes.push(value);
        left = &left[len..];
    }
    Ok(bytes)
}

fn byte(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| (digits[at] as char).to_digit(16);
    Some((digit(0)? * 16 + digit(1)?) as u8)
}

fn backslash(text: &[u8]) -> Error {
    Error::invalid(format!("'{}': after a backslash comes \\, t, n, r or xHH", shown(text)))
}

/// The beginning of malformed text, for a message.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(16)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::SmallRng};

    #[test]
    fn all_bytes_come_back() {
        let mut rng = SmallRng::seed_from_u64(1);
        let alphabet = "a\\\t\n\r\0\x7fé\u{85}\u{2028}𝄞".as_bytes();
        for _ in 0..20_000 {
            let len = rng.random_range(0..12);
            let wild = rng.random_bool(0.5);
            let bytes: Vec<u8> = (0..len)
                .map(|_| if wild { rng.random() } else { alphabet[rng.random_range(0..alphabet.len())] })
                .collect();
            for notation in [Notation::Text, Notation::Hex] {
                let mut text = String::new();
                notation.write(&bytes, &mut text);
                assert!(!text.contains(['\t', '\n', '\r', '\0']), "{text:?}");
                assert_eq!(notation.read(text.as_bytes()).unwrap(), bytes, "{text:?}");
            }
        }
    }

    #[test]
    fn text_stays_text() {
        let written = |bytes: &[u8]| {
            let mut text = String::new();
            Notation::Text.write(bytes, &mut text);
            text
        };
        assert_eq!(written("größe 1".as_bytes()), "größe 1");
        assert_eq!(written(b"a\\b\x00\xff"), "a\\\\b\\x00\\xff");
    }

    #[test]
    fn what_is_no_notation_is_an_error() {
        for text in ["\\", "a\\q", "\\x", "\\x1", "\\xg0", "\\x+1"] {
            assert!(Notation::Text.read(text.as_bytes()).is_err(), "{text}");
        }
        for text in ["1", "0g", "+1", "é"] {
            assert!(Notation::Hex.read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
