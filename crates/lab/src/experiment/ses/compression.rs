//! Section IV: fingerprints of compressed contents, and what compression before the scrambler would save.

use super::{PAPER, percent, span};
use crate::contents::tree;
use crate::experiment::{Check, Experiment, Outcome, Scale, Setting, Table};
use crate::report::{Chart, ChartKind};
use lz4_flex::block::{compress_into, get_maximum_output_size};
use std::path::PathBuf;
use vellum_base::hash::FixedSet;
use vellum_base::{Error, Result, SECTOR_BYTES};
use vellum_codes::lines;
use xxhash_rust::xxh3::xxh3_128;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "ses-compression",
    paper: PAPER,
    figure: "Section IV (compression)",
    claim: "Where a compressor is in front of the scrambler, fingerprints are taken from compressed contents",
    small: "lz4 of the first 32 MiB of files below each of /usr/include, /usr/share, /usr/lib and /usr/bin (or below \
            VELLUM_LAB_DATA), in chunks of 4 and 8 KiB",
    full: "the same with 4 GiB of each",
    run,
};

/// Environment variable that names a directory to compress instead.
const VARIABLE: &str = "VELLUM_LAB_DATA";
const DIRECTORIES: [&str; 4] = ["/usr/include", "/usr/share", "/usr/lib", "/usr/bin"];
const CHUNK_BYTES: [usize; 2] = [4096, 8192];
/// Compressed chunks take a multiple of this, and do not cross the end of a page.
const UNIT_BYTES: usize = 512;
const PAGE_BYTES: usize = 8192;
/// Largest packed sector of a disk: a bitmap and twelve lines (docs/decisions/0002).
const SMALL_BYTES_MAX: usize = 8 + 12 * 64;

/// Measurements of the chunks of a directory.
struct Measured {
    name: String,
    chunk_bytes: usize,
    plain_bytes: u64,
    /// Sum over all chunks of the compressed length, or of the original one if that is shorter.
    compressed_bytes: u64,
    all: Packing,
    distinct: Packing,
    /// Saved by the disk's packed sectors: as now, with sectors of few lines, and with compressed ones.
    lines_saved_bytes: u64,
    small_saved_bytes: u64,
    plain: FixedSet<u128>,
    compressed: FixedSet<u128>,
}

/// Packs chunks into pages, one after the other.
#[derive(Default)]
struct Packing {
    pages: u64,
    /// Bytes used of the last page.
    used: usize,
}

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let bytes_max = match setting.scale {
        Scale::Small => 32 << 20,
        Scale::Paper => 4 << 30,
    };
    let mut all = Vec::new();
    for directory in directories()? {
        setting.progress.begin(&directory.display().to_string(), 0);
        let mut measured = CHUNK_BYTES.map(|chunk_bytes| Measured::new(&directory, chunk_bytes));
        let paths = [directory];
        tree::each_piece(&paths, bytes_max, &mut |piece, _| {
            measured.iter_mut().for_each(|m| m.piece(piece));
            setting.progress.advance(piece.len() as u64);
        })?;
        all.extend(measured);
    }
    Ok(Outcome {
        tables: vec![table(&all)],
        charts: vec![chart(&all)],
        checks: vec![same_copies(&all), room(&all), in_packed_places(&all), beside_dedup(&all)],
        notes: vec![
            "What is compressed are files of this machine: the figures differ from machine to machine. docs/decisions has what follows"
                .into(),
            "Packed: a compressed chunk takes whole units of 512 bytes and does not go over the end of a page of 8 KiB. \
             Zeros are left out"
                .into(),
        ],
    })
}

fn directories() -> Result<Vec<PathBuf>> {
    let found: Vec<PathBuf> = match std::env::var_os(VARIABLE).map(PathBuf::from) {
        Some(named) => vec![named],
        None => DIRECTORIES.iter().map(PathBuf::from).filter(|d| d.is_dir()).collect(),
    };
    match found.is_empty() {
        true => Err(Error::invalid(format!("no directory to compress: name one in {VARIABLE}"))),
        false => Ok(found),
    }
}

impl Measured {
    fn new(directory: &std::path::Path, chunk_bytes: usize) -> Measured {
        let name = directory.file_name().unwrap_or(directory.as_os_str()).to_string_lossy().into_owned();
        Measured {
            name,
            chunk_bytes,
            plain_bytes: 0,
            compressed_bytes: 0,
            all: Packing::default(),
            distinct: Packing::default(),
            lines_saved_bytes: 0,
            small_saved_bytes: 0,
            plain: FixedSet::default(),
            compressed: FixedSet::default(),
        }
    }

    /// Adds part of a file; its last chunk is padded with zeros.
    fn piece(&mut self, piece: &[u8]) {
        let mut padded = vec![0; self.chunk_bytes];
        let mut out = vec![0; get_maximum_output_size(self.chunk_bytes)];
        for chunk in piece.chunks(self.chunk_bytes) {
            padded[..chunk.len()].copy_from_slice(chunk);
            padded[chunk.len()..].fill(0);
            if !vellum_codes::is_zero(&padded) {
                self.chunk(&padded, &mut out);
            }
        }
    }

    fn chunk(&mut self, chunk: &[u8], out: &mut [u8]) {
        let length = compress_into(chunk, out).unwrap_or(chunk.len());
        let stored = if length < chunk.len() { &out[..length] } else { chunk };
        self.plain_bytes += chunk.len() as u64;
        self.compressed_bytes += stored.len() as u64;
        self.all.add(stored.len());
        if chunk.len() == SECTOR_BYTES {
            let lines = lines::packed_len(lines::nonzero_lines(chunk));
            let saved =
                |length: usize| if length <= SMALL_BYTES_MAX { (SECTOR_BYTES - length) as u64 } else { 0 };
            self.lines_saved_bytes += saved(lines);
            self.small_saved_bytes += saved(lines).max(saved(stored.len()));
        }
        self.compressed.insert(xxh3_128(stored));
        if self.plain.insert(xxh3_128(chunk)) {
            self.distinct.add(stored.len());
        }
    }

    fn saved(&self, bytes: u64) -> f64 {
        1.0 - bytes as f64 / self.plain_bytes.max(1) as f64
    }

    fn small(&self, saved_bytes: u64) -> String {
        match self.chunk_bytes {
            SECTOR_BYTES => format!("{:.1}", saved_bytes as f64 * 100.0 / self.plain_bytes.max(1) as f64),
            _ => "-".into(),
        }
    }

    fn saved_by_dedup(&self) -> f64 {
        self.saved((self.plain.len() * self.chunk_bytes) as u64)
    }
}

impl Packing {
    fn add(&mut self, bytes: usize) {
        let units = bytes.next_multiple_of(UNIT_BYTES);
        if self.pages == 0 || self.used + units > PAGE_BYTES {
            self.pages += 1;
            self.used = 0;
        }
        self.used += units;
    }

    fn bytes(&self) -> u64 {
        self.pages * PAGE_BYTES as u64
    }
}

fn table(all: &[Measured]) -> Table {
    let columns = [
        "files",
        "chunks of",
        "MiB",
        "saved by lz4, %",
        "packed, %",
        "saved by dedup, %",
        "by both, packed, %",
        "in packed places, now, %",
        "with lz4, %",
        "distinct, plain",
        "distinct, compressed",
    ];
    let mut table = Table::new("Compression of real files", columns);
    for m in all {
        let share = |share: f64| format!("{:.1}", share * 100.0);
        table.rows.push(vec![
            m.name.clone(),
            format!("{} KiB", m.chunk_bytes >> 10),
            (m.plain_bytes >> 20).to_string(),
            share(m.saved(m.compressed_bytes)),
            share(m.saved(m.all.bytes())),
            share(m.saved_by_dedup()),
            share(m.saved(m.distinct.bytes())),
            m.small(m.lines_saved_bytes),
            m.small(m.small_saved_bytes),
            m.plain.len().to_string(),
            m.compressed.len().to_string(),
        ]);
    }
    table
}

fn chart(all: &[Measured]) -> Chart {
    let series = |name: &str, of: fn(&Measured) -> f64| {
        (name.to_string(), all.iter().map(|m| of(m).max(0.0) * 100.0).collect())
    };
    Chart {
        title: "Room saved".into(),
        x: "files, chunk size".into(),
        y: "% of bytes".into(),
        kind: ChartKind::Bars {
            groups: all.iter().map(|m| format!("{} {} KiB", m.name, m.chunk_bytes >> 10)).collect(),
            series: vec![
                series("lz4", |m| m.saved(m.compressed_bytes)),
                series("lz4, packed", |m| m.saved(m.all.bytes())),
                series("dedup", Measured::saved_by_dedup),
                series("both, packed", |m| m.saved(m.distinct.bytes())),
            ],
        },
    }
}

fn same_copies(all: &[Measured]) -> Check {
    let differing = all.iter().filter(|m| m.plain.len() != m.compressed.len()).count();
    let distinct: usize = all.iter().map(|m| m.plain.len()).sum();
    Check::new(
        "Fingerprints of compressed contents find the copies that those of plain contents find",
        "used instead (section IV)",
        format!("{distinct} distinct chunks either way, in {} of {} sets", all.len() - differing, all.len()),
        differing == 0,
        (
            "shape: as many distinct ones. The compressor is a function of its input, so equal stays equal, and what can be undone keeps \
             the different different: nothing is found more or less, and fingerprints of plain contents do as well",
            "shape: as many distinct ones",
        ),
    )
}

fn room(all: &[Measured]) -> Check {
    let of = |bytes: usize| all.iter().filter(move |m| m.chunk_bytes == bytes);
    let ideal = span(of(4096).map(|m| m.saved(m.compressed_bytes))).2;
    let packed = span(of(4096).map(|m| m.saved(m.all.bytes()))).2;
    let larger = span(of(8192).map(|m| m.saved(m.all.bytes()))).2;
    Check::new(
        "What lz4 would save where chunks are packed into pages",
        "not in the paper",
        format!("4 KiB: {ideal}, packed {packed}; 8 KiB, packed: {larger}"),
        true,
        ("shown: it needs places of any length, where the map has slots", ""),
    )
}

fn in_packed_places(all: &[Measured]) -> Check {
    let of = |bytes: fn(&Measured) -> u64| {
        let sectors = all.iter().filter(|m| m.chunk_bytes == SECTOR_BYTES);
        span(sectors.map(move |m| bytes(m) as f64 / m.plain_bytes.max(1) as f64)).2
    };
    Check::new(
        "What lz4 would save in the packed places that a disk has",
        "not in the paper",
        format!("{}, beside {} now", of(|m| m.small_saved_bytes), of(|m| m.lines_saved_bytes)),
        true,
        (
            "shown: they take a sector of up to 776 bytes, so only what compresses to a fifth is stored there",
            "",
        ),
    )
}

fn beside_dedup(all: &[Measured]) -> Check {
    let more = all.iter().map(|m| m.saved(m.distinct.bytes()) - m.saved(m.all.bytes()));
    let (_, _, text) = span(more);
    let best = all.iter().map(Measured::saved_by_dedup).fold(0.0, f64::max);
    Check::new(
        "What dedup saves where chunks are compressed anyway",
        "not in the paper",
        format!("{text} of all bytes more, beside up to {} without compression", percent(best)),
        true,
        ("shown: a copy saves what its compressed form takes", ""),
    )
}
