//! What is written to a drive in order to learn its scrambler.

use crate::as_text::as_text;
use std::fmt;
use std::str::FromStr;
use vellum_base::{Error, Result};

const HEX_BYTES_MAX: usize = 64;

/// Known content of a sector or page.
///
/// ```
/// use vellum::ses::Pattern;
/// let mut sector = [0; 16];
/// "lba".parse::<Pattern>()?.fill(0x102, &mut sector);
/// assert_eq!(sector, *b"\x02\x01\0\0\0\0\0L\x02\x01\0\0\0\0\0L");
/// # Ok::<(), vellum::base::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// These bytes, repeated: `zero`, `ones`, `hex:55aa`.
    Bytes(Vec<u8>),
    /// The sector's address in 7 bytes, least significant first, and an `L`, repeated: `lba`.
    Lba,
    /// The contents of a file at the same offset as in the dump: `file:NAME`.
    File(String),
}

impl Pattern {
    /// Writes the pattern of a sector to `out`. Does nothing for a pattern from a file.
    pub fn fill(&self, lba: u64, out: &mut [u8]) {
        let repeat = |bytes: &[u8], out: &mut [u8]| {
            out.iter_mut().zip(bytes.iter().cycle()).for_each(|(to, from)| *to = *from);
        };
        match self {
            Pattern::Bytes(bytes) => repeat(bytes, out),
            Pattern::Lba => repeat(&(lba & u64::MAX >> 8 | u64::from(b'L') << 56).to_le_bytes(), out),
            Pattern::File(_) => {}
        }
    }
}

impl FromStr for Pattern {
    type Err = Error;
    fn from_str(text: &str) -> Result<Pattern> {
        let bad = || {
            Error::invalid(format!(
                "no pattern '{text}': zero, ones, lba, hex: and up to {HEX_BYTES_MAX} bytes such as hex:55aa, or file:NAME"
            ))
        };
        match text.split_once(':').unwrap_or((text, "")) {
            ("zero", "") => Ok(Pattern::Bytes(vec![0])),
            ("ones", "") => Ok(Pattern::Bytes(vec![0xFF])),
            ("lba", "") => Ok(Pattern::Lba),
            ("hex", digits) => {
                let byte = |pair: &[u8]| {
                    let text =
                        std::str::from_utf8(pair).ok().filter(|_| pair.len() == 2 && pair[0] != b'+')?;
                    u8::from_str_radix(text, 16).ok()
                };
                let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
                bytes.filter(|b| (1..=HEX_BYTES_MAX).contains(&b.len())).map(Pattern::Bytes).ok_or_else(bad)
            }
            ("file", name) if !name.is_empty() => Ok(Pattern::File(name.into())),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Bytes(bytes) if bytes[..] == [0] => f.write_str("zero"),
            Pattern::Bytes(bytes) if bytes[..] == [0xFF] => f.write_str("ones"),
            Pattern::Bytes(bytes) => {
                f.write_str("hex:")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Pattern::Lba => f.write_str("lba"),
            Pattern::File(name) => write!(f, "file:{name}"),
        }
    }
}

as_text!(Pattern: ToString::to_string);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_read_as_they_are_written() {
        for text in ["zero", "ones", "lba", "hex:55aa", "hex:000102", "file:plain.bin"] {
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
        }
        for text in ["", "zeros", "hex:", "hex:5", "hex:zz", "hex:é1", "file:", "lba:1", "hex:+1"] {
            let read = text.parse::<Pattern>();
            assert!(read.is_err(), "{text}: {read:?}");
        }
        assert!(format!("hex:{}", "00".repeat(65)).parse::<Pattern>().is_err());
    }
}
