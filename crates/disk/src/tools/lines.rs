//! The lines of a dump: one JSON object each, in the order of docs/formats/disk-dump.md.
//!
//! The last line has a checksum of all others, so that a truncated dump is detected.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, Read, Write};
use vellum_base::{Error, Geometry, Kind, Result};

/// Version of the dump format.
pub(super) const DUMP_VERSION: u32 = 1;
/// Maximum length of a line accepted by a reader: a held slot in hexadecimal digits is the longest line.
pub(super) const LINE_BYTES_MAX: u64 = 64 * 1024;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Line {
    /// First: identity of the disk.
    Disk {
        version: u32,
        uuid: String,
        sectors: u64,
        dedup: String,
        #[serde(default)]
        keep_copies: bool,
        seed: u64,
        spare_blocks: u32,
        tbw_bytes: u64,
        /// No event has a higher number.
        seq: u64,
        checkpoint_seq: u64,
        geometry: Geometry,
    },
    /// Lifetime counters.
    Life { host_commands: u64, opened: u64, unsafe_shutdowns: u64, powered_ns: u64 },
    /// The ledger with named entries; zeros are omitted.
    Ledger {
        host_read_bytes: u64,
        host_written_bytes: u64,
        programmed: BTreeMap<String, u64>,
        avoided: BTreeMap<String, u64>,
    },
    /// The newest root.
    Root { block: u32, page: u32, seq: u64, clean: bool },
    /// The location of a directory of the checkpoint.
    Directory { directory: u32, slot: u32 },
    /// The location of a node of the checkpoint.
    Node { node: u32, kind: NodeKind, slot: u32 },
    /// An erase block that is not free.
    Block { block: u32, state: String, erase_count: u32, pages_written: u32, valid_slots: u32 },
    /// A log slot with packed sectors: the entries in use, each with the length of its bytes.
    Log { log: u32, slot: u32, entries: Vec<(u32, u16)> },
    /// A slot that is not on flash: in NVRAM, or in memory when the dump was made.
    Held { slot: u32, kind: HeldKind, id: u32, data_crc: u32, data: String },
    /// `count` sectors from `sector` on. Sectors in no such line are holes.
    Map { sector: u64, count: u64, place: Places },
    /// Last: the number of lines before, and their checksum.
    End { lines: u64, crc: u32 },
}

/// Kinds of node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NodeKind {
    Map,
    Log,
}

/// Kinds of held slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HeldKind {
    Data,
    Log,
}

/// Places of a run of sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Places {
    /// All zeros.
    Zero,
    /// This slot and the following ones.
    Slot(u32),
    /// This entry of a log slot and the following ones.
    Packed { log: u32, entry: u32 },
}

/// Writes lines and counts them.
pub(super) struct LineWriter<'a> {
    out: &'a mut dyn Write,
    lines: u64,
    crc: u32,
}

impl<'a> LineWriter<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> LineWriter<'a> {
        LineWriter { out, lines: 0, crc: 0 }
    }

    pub(super) fn write(&mut self, line: &Line) -> Result<()> {
        let text =
            serde_json::to_string(line).map_err(|e| Error::new(Kind::Io, format!("write the dump: {e}")))?;
        self.crc = chain(self.crc, text.as_bytes());
        self.lines += 1;
        writeln!(self.out, "{text}").map_err(|e| Error::io("write the dump", e))
    }

    /// Writes the last line; returns the total number of lines.
    pub(super) fn finish(mut self) -> Result<u64> {
        self.write(&Line::End { lines: self.lines, crc: self.crc })?;
        self.out.flush().map_err(|e| Error::io("write the dump", e))?;
        Ok(self.lines)
    }
}

/// Calls `visit` with every line but the last; refuses an incomplete dump.
pub(super) fn read_lines(
    dump: &mut dyn BufRead,
    mut visit: impl FnMut(u64, Line) -> Result<()>,
) -> Result<()> {
    let (mut number, mut crc, mut text) = (0, 0, String::new());
    loop {
        text.clear();
        let got =
            dump.take(LINE_BYTES_MAX).read_line(&mut text).map_err(|e| Error::io("read the dump", e))?;
        if got == 0 {
            return Err(Error::corrupt(format!("the dump ends after line {number}, without its last line")));
        }
        number += 1;
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let line: Line = serde_json::from_str(text)
            .map_err(|e| Error::corrupt(format!("line {number} of the dump makes no sense: {e}")))?;
        if let Line::End { lines, crc: expected } = line {
            return match (lines + 1, expected) == (number, crc) {
                true => Ok(()),
                false => {
                    Err(Error::corrupt("the dump was changed or lines are missing: its checksum is wrong"))
                }
            };
        }
        crc = chain(crc, text.as_bytes());
        visit(number, line).map_err(|e| e.context(format!("line {number} of the dump")))?;
    }
}

fn chain(crc: u32, line: &[u8]) -> u32 {
    vellum_codes::crc32c(&[&crc.to_le_bytes(), line].concat())
}

/// Lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Decodes hexadecimal digits.
pub(super) fn unhex(text: &str) -> Result<Vec<u8>> {
    let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
    let pair = |two: &[u8]| Some(digit(two[0])? << 4 | digit(*two.get(1)?)?);
    text.as_bytes()
        .chunks(2)
        .map(pair)
        .collect::<Option<_>>()
        .ok_or_else(|| Error::corrupt("hexadecimal digits are expected"))
}
