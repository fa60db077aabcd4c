//! The stored form of surveys: runs of new contents, of zeros, and of repeated contents.
//!
//! ```text
//! "VLMCONT1"                                      magic and version
//! length, UTF-8                                   what was surveyed
//! number of files, then the chunks of each
//! number of chunks, then runs until all are there: (length << 2 | kind)
//!   kind 0   new: contents that were never there before
//!   kind 1   again: as the chunks `back` before, which follows; a run may overlap what it repeats
//!   kind 2   zeros
//! CRC-32C of all before, four bytes, little endian
//! ```
//!
//! Numbers are unsigned LEB128. Contents are numbered from 1 in order of first appearance.

use super::{Contents, ZERO};
use vellum_base::{Error, Result};

const MAGIC: &[u8; 8] = b"VLMCONT1";
const NEW: u64 = 0;
const AGAIN: u64 = 1;
const ZEROS: u64 = 2;
/// Most chunks of a survey: 256 GiB.
const CHUNKS_MAX: u64 = 1 << 27;

/// Encodes a survey.
pub fn encode(contents: &Contents) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    put(&mut out, contents.about.len() as u64);
    out.extend(contents.about.as_bytes());
    put(&mut out, contents.files.len() as u64);
    contents.files.iter().for_each(|chunks| put(&mut out, (*chunks).into()));
    put(&mut out, contents.chunks.len() as u64);
    put_runs(&mut out, &contents.chunks);
    let crc = vellum_codes::crc32c(&out);
    out.extend(crc.to_le_bytes());
    out
}

/// Decodes a survey. Invalid input is [`vellum_base::Kind::Corrupt`].
pub fn decode(bytes: &[u8]) -> Result<Contents> {
    parse(bytes).ok_or_else(|| Error::corrupt("this is no survey of contents, or a damaged one"))
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_runs(out: &mut Vec<u8>, chunks: &[u32]) {
    // Position of the last occurrence of each content.
    let mut last = vec![0usize];
    let mut at = 0;
    while at < chunks.len() {
        let (kind, length, back) = run_at(chunks, at, &last);
        put(out, (length as u64) << 2 | kind);
        if kind == AGAIN {
            put(out, back as u64);
        }
        for (i, number) in chunks[at..at + length].iter().enumerate() {
            let number = *number as usize;
            if number == last.len() {
                last.push(at + i);
            } else {
                last[number] = at + i;
            }
        }
        at += length;
    }
}

/// The longest run from `at`: its kind, its length and, for a repeated one, how far back the original is.
fn run_at(chunks: &[u32], at: usize, last: &[usize]) -> (u64, usize, usize) {
    let first = chunks[at];
    let rest = &chunks[at..];
    if first == ZERO {
        return (ZEROS, rest.iter().take_while(|number| **number == ZERO).count(), 0);
    }
    if first as usize == last.len() {
        let new = rest.iter().zip(first..).take_while(|(number, next)| **number == *next).count();
        return (NEW, new, 0);
    }
    let back = at - last[first as usize];
    let again = (at..chunks.len()).take_while(|i| chunks[*i] == chunks[i - back]).count();
    (AGAIN, again, back)
}

fn parse(bytes: &[u8]) -> Option<Contents> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    if vellum_codes::crc32c(body) != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut left = body.strip_prefix(MAGIC)?;
    let length = usize::try_from(take(&mut left)?).ok()?;
    let (about, rest) = left.split_at_checked(length)?;
    left = rest;
    let count = take(&mut left)?;
    // Each file takes at least a byte of input, so memory is bounded by the length of the input.
    let files = (0..count.min(left.len() as u64 + 1))
        .map(|_| u32::try_from(take(&mut left)?).ok())
        .collect::<Option<Vec<u32>>>()?;
    let in_files = files.iter().map(|chunks| u64::from(*chunks)).sum::<u64>();
    let chunks = parse_runs(&mut left, in_files)?;
    let whole = files.len() as u64 == count;
    (whole && left.is_empty()).then_some(Contents {
        about: String::from_utf8(about.into()).ok()?,
        files,
        chunks,
    })
}

/// Fails before taking memory if the number of chunks is not that of the files.
fn parse_runs(left: &mut &[u8], in_files: u64) -> Option<Vec<u32>> {
    let count = take(left).filter(|count| *count <= CHUNKS_MAX && *count == in_files)?;
    let (mut chunks, mut next) = (Vec::new(), 1u32);
    while (chunks.len() as u64) < count {
        let run = take(left)?;
        let length =
            Some(run >> 2).filter(|length| (1..=count - chunks.len() as u64).contains(length))? as usize;
        match run & 3 {
            NEW => {
                chunks.extend(next..next + length as u32);
                next += length as u32;
            }
            AGAIN => {
                let from =
                    chunks.len().checked_sub(usize::try_from(take(left)?).ok().filter(|back| *back > 0)?)?;
                for i in from..from + length {
                    chunks.push(chunks[i]);
                }
            }
            ZEROS => chunks.resize(chunks.len() + length, ZERO),
            _ => return None,
        }
    }
    Some(chunks)
}

fn take(left: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = left.split_first()?;
        *left = rest;
        let part = u64::from(byte & 0x7F);
        if part << shift >> shift != part {
            return None;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Renumbers by order of first appearance.
    fn in_order(raw: Vec<u8>) -> Vec<u32> {
        let mut names = vec![0u8];
        let mut number = |raw: u8| match names.iter().position(|name| *name == raw) {
            Some(at) => at as u32,
            None => {
                names.push(raw);
                names.len() as u32 - 1
            }
        };
        raw.into_iter().map(&mut number).collect()
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_back(raw in prop::collection::vec(0u8..40, 0..400), cut in 0usize..400) {
            let chunks = in_order(raw);
            let cut = cut.min(chunks.len());
            let files = vec![cut as u32, (chunks.len() - cut) as u32];
            let contents = Contents { about: "é".into(), files, chunks };
            prop_assert_eq!(decode(&encode(&contents)).unwrap(), contents);
        }

        #[test]
        fn damage_is_an_error(raw in prop::collection::vec(0u8..40, 1..100), at: prop::sample::Index, flip in 1u8..) {
            let chunks = in_order(raw);
            let contents = Contents { about: "x".into(), files: vec![chunks.len() as u32], chunks };
            let mut bytes = encode(&contents);
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn any_bytes_behind_a_right_checksum_are_no_panic(tail in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut bytes = [MAGIC.as_slice(), &tail].concat();
            bytes.extend(vellum_codes::crc32c(&bytes).to_le_bytes());
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn a_claim_of_much_takes_no_memory() {
        for tail in
            [vec![0, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F], vec![0, 1, 0xFF, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0x3F]]
        {
            let mut bytes = [MAGIC.as_slice(), &tail].concat();
            bytes.extend(vellum_codes::crc32c(&bytes).to_le_bytes());
            assert!(decode(&bytes).is_err());
        }
    }
}
