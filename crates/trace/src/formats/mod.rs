//! Readers, one file per trace format, and detection of a file's format.
//!
//! A format is chosen by name, or detected by content where that is unambiguous. Five numbers in a row may be MQSim
//! (ns, 0 = write), DiskSim (ms, bit 0 = read) or the replayer's (ms, bytes): the same digits mean different things, so
//! these are never guessed.

pub mod blkparse;
mod disksim;
mod fio;
mod intake;
mod lines;
mod mqsim;
mod msr;
mod records;
mod replayer;
mod spc;
mod srt;
mod vscsi;

use crate::source::{ReadOptions, RequestSource};
use crate::vtrace::{MAGIC, Reader};
use lines::{Lines, Rows};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use vellum_base::{Error, Result};

/// First bytes of a zstd frame; such files are decompressed while reading.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// How much of a file is used to detect its format.
const SNIFF_BYTES: usize = 4096;

/// A trace format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Our own ([`crate::vtrace`]).
    Vtrace,
    /// MQSim and SSDSim ascii: nanoseconds, 512-byte sectors, 0 = write.
    Mqsim,
    /// DiskSim ascii: milliseconds, 512-byte blocks, bit 0 = read.
    Disksim,
    /// MSR Cambridge CSV: 100 ns, bytes, `Read`/`Write`.
    Msr,
    /// SPC: seconds, 512-byte blocks and bytes, `r`/`w`.
    Spc,
    /// fio iolog version 2 and 3.
    Fio,
    /// blkparse text.
    Blkparse,
    /// huaicheng's replayer: milliseconds, bytes, 1 = read.
    Replayer,
    /// VMware vscsi version 1 and 2.
    Vscsi,
    /// HP SRT.
    Srt,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 10] = [
        Format::Vtrace,
        Format::Mqsim,
        Format::Disksim,
        Format::Msr,
        Format::Spc,
        Format::Fio,
        Format::Blkparse,
        Format::Replayer,
        Format::Vscsi,
        Format::Srt,
    ];

    /// Stable name, as used in options.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Vtrace => "vtrace",
            Format::Mqsim => "mqsim",
            Format::Disksim => "disksim",
            Format::Msr => "msr",
            Format::Spc => "spc",
            Format::Fio => "fio",
            Format::Blkparse => "blkparse",
            Format::Replayer => "replayer",
            Format::Vscsi => "vscsi",
            Format::Srt => "srt",
        }
    }

    /// The format with this name (`ssdsim` is `mqsim`).
    pub fn by_name(name: &str) -> Result<Format> {
        let name = if name == "ssdsim" { "mqsim" } else { name };
        Format::ALL.into_iter().find(|f| f.name() == name).ok_or_else(|| {
            let known: Vec<_> = Format::ALL.iter().map(|f| f.name()).collect();
            Error::invalid(format!("no trace format '{name}'; there are {}", known.join(", ")))
        })
    }

    /// Detects the format of a file from its name and its first bytes (up to 4 KiB).
    pub fn sniff(name: &Path, first: &[u8]) -> Result<Format> {
        let text = String::from_utf8_lossy(first);
        by_magic(first).or_else(|| by_row(&text)).or_else(|| by_extension(name)).ok_or_else(|| {
            let numbers = text.lines().next().is_some_and(|l| lines::fields::<5>(l).is_some());
            Error::invalid(if first.is_empty() {
                "it is empty: there is nothing to replay"
            } else if numbers {
                "five numbers a line may be mqsim (ns, 512-byte sectors, 0 = write), disksim (ms, 512-byte \
                 blocks, bit 0 = read) or replayer (ms, bytes, 1 = read): say which format it is"
            } else {
                "cannot tell its trace format: say which it is"
            })
        })
    }
}

fn by_magic(first: &[u8]) -> Option<Format> {
    if first.starts_with(&MAGIC) {
        Some(Format::Vtrace)
    } else if first.starts_with(srt::MAGIC) {
        Some(Format::Srt)
    } else if first.starts_with(b"fio version ") {
        Some(Format::Fio)
    } else {
        let binary = first.iter().take(32).any(|b| *b < 9);
        vscsi::version_of(first).filter(|_| binary).map(|_| Format::Vscsi)
    }
}

fn by_row(text: &str) -> Option<Format> {
    let line = text.lines().find(|l| !l.starts_with("Timestamp,"))?;
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let is = |cell: &str, any: [&str; 2]| any.iter().any(|a| cell.eq_ignore_ascii_case(a));
    match (&words[..], &cells[..]) {
        ([device, _, _, _, _, _, ..], _) if blkparse::is_device(device) => Some(Format::Blkparse),
        (_, [_, _, _, kind, _, _, _]) if is(kind, ["read", "write"]) => Some(Format::Msr),
        (_, [_, _, _, kind, _, ..]) if is(kind, ["r", "w"]) => Some(Format::Spc),
        _ => None,
    }
}

fn by_extension(name: &Path) -> Option<Format> {
    let name = name.to_str()?;
    let name = name.strip_suffix(".zst").unwrap_or(name);
    match name.rsplit_once('.')?.1 {
        "vtrace" => Some(Format::Vtrace),
        "spc" => Some(Format::Spc),
        "csv" => Some(Format::Msr),
        "srt" => Some(Format::Srt),
        "vscsi" => Some(Format::Vscsi),
        "iolog" => Some(Format::Fio),
        _ => None,
    }
}

/// Opens a trace file, decompressing it if it is a zstd file; without `format`, that is detected.
pub fn open(path: &Path, format: Option<Format>, options: ReadOptions) -> Result<Box<dyn RequestSource>> {
    let io = |e| Error::io(format_args!("open {}", path.display()), e);
    let mut file = BufReader::with_capacity(1 << 16, File::open(path).map_err(io)?);
    let opened = if file.fill_buf().map_err(io)?.starts_with(&ZSTD_MAGIC) {
        let decoder = zstd::stream::read::Decoder::with_buffer(file).map_err(io)?;
        open_reader(BufReader::with_capacity(1 << 16, decoder), path, format, options)
    } else {
        open_reader(file, path, format, options)
    };
    opened.map_err(|e| e.context(path.display()))
}

/// Reads a trace from `input`. `name` is only a hint for detection if `format` is not given.
pub fn open_reader(
    mut input: impl BufRead + Send + 'static,
    name: &Path,
    format: Option<Format>,
    options: ReadOptions,
) -> Result<Box<dyn RequestSource>> {
    let buffered = input.fill_buf().map_err(|e| Error::io("read the trace", e))?;
    let first = buffered[..buffered.len().min(SNIFF_BYTES)].to_vec();
    let format = match format {
        Some(format) => format,
        None => Format::sniff(name, &first)?,
    };
    Ok(match format {
        Format::Vtrace => Box::new(Reader::new(input)?),
        Format::Mqsim => lines(input, mqsim::Mqsim, options),
        Format::Disksim => lines(input, disksim::Disksim, options),
        Format::Msr => lines(input, msr::Msr::default(), options),
        Format::Spc => lines(input, spc::Spc, options),
        Format::Fio => lines(input, fio::FioLog::default(), options),
        Format::Blkparse => lines(input, blkparse::Blkparse::new(options.blkparse_action), options),
        Format::Replayer => lines(input, replayer::Replayer, options),
        Format::Vscsi => Box::new(vscsi::open(input, &first, options)?),
        Format::Srt => Box::new(srt::open(input, options)?),
    })
}

fn lines(
    input: impl BufRead + Send + 'static,
    rows: impl Rows + 'static,
    options: ReadOptions,
) -> Box<dyn RequestSource> {
    Box::new(Lines::new(input, rows, options))
}
