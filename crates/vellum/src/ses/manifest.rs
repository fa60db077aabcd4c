//! A raw dump: its manifest, and the keystreams in it (docs/formats/ses-dump.md).

use super::{Pattern, read_text};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use vellum_base::{Error, Result};
use vellum_codes::scrambler::PIECE_BYTES_MIN;

const FORMAT: &str = "vellum-ses-dump";
const VERSION: u32 = 1;
const MANIFEST_BYTES_MAX: u64 = 16 << 20;
const PIECE_BYTES_MAX: usize = 64 << 10;
const DUMP_BYTES_MAX: u64 = 256 << 20;

/// The manifest of a dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    format: String,
    version: u32,
    file: String,
    /// Bytes per piece.
    pub piece_bytes: usize,
    /// Pieces per erase block, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pieces_per_block: Option<u64>,
    pieces: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lba: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    page: Option<u64>,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    count: u64,
    pattern: Pattern,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    fresh: bool,
}

/// One piece of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Sector address, if known.
    pub lba: Option<u64>,
    /// Number of the page, if known.
    pub page: Option<u64>,
    /// The keystream, except for wrong bits: what was stored XOR what was written.
    pub keystream: Vec<u8>,
    /// Used only to verify what was learned, never to learn from.
    pub fresh: bool,
}

/// The pieces of a dump, or of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    /// Bytes per piece.
    pub piece_bytes: usize,
    /// Pieces per erase block, if known.
    pub pieces_per_block: Option<u64>,
    /// The pieces, in the order of the dumps.
    pub pieces: Vec<Piece>,
    /// The different patterns among them.
    pub patterns: BTreeSet<Pattern>,
}

fn one() -> u64 {
    1
}

fn is_one(count: &u64) -> bool {
    *count == 1
}

impl Manifest {
    /// A manifest without pieces; their bytes will be in `file`.
    pub fn new(file: &str, piece_bytes: usize, pieces_per_block: Option<u64>) -> Manifest {
        let (format, file) = (FORMAT.to_string(), file.to_string());
        Manifest { format, version: VERSION, file, piece_bytes, pieces_per_block, pieces: Vec::new() }
    }

    /// Adds the next piece of the file.
    pub fn push(&mut self, lba: u64, page: u64, pattern: &Pattern, fresh: bool) {
        if let Some(last) = self.pieces.last_mut()
            && last.lba.is_some_and(|first| first + last.count == lba)
            && last.page.is_some_and(|first| first + last.count == page)
            && last.pattern == *pattern
        {
            last.count += 1;
            return;
        }
        let (lba, page) = (Some(lba), Some(page));
        let entry = Entry { lba, page, count: 1, pattern: pattern.clone(), file: None, offset: None, fresh };
        self.pieces.push(entry);
    }

    /// Its text, as written to a file.
    pub fn to_text(&self) -> String {
        toml::to_string(self).expect("a manifest has a TOML form")
    }

    fn read(path: &Path) -> Result<Manifest> {
        let text = read_text(path, MANIFEST_BYTES_MAX)?;
        let manifest: Manifest = toml::from_str(&text).map_err(|e| Error::corrupt(e.to_string()))?;
        manifest.check()?;
        Ok(manifest)
    }

    fn check(&self) -> Result<()> {
        if self.format != FORMAT || self.version != VERSION {
            let (format, version) = (&self.format, self.version);
            return Err(Error::corrupt(format!("format {format} {version}, not {FORMAT} {VERSION}")));
        }
        if !(PIECE_BYTES_MIN..=PIECE_BYTES_MAX).contains(&self.piece_bytes) {
            let bounds = format!("{PIECE_BYTES_MIN} to {PIECE_BYTES_MAX}");
            return Err(Error::corrupt(format!("piece_bytes is {}, not {bounds}", self.piece_bytes)));
        }
        if self.pieces_per_block == Some(0) {
            return Err(Error::corrupt("pieces_per_block is 0"));
        }
        Ok(())
    }
}

impl Pieces {
    /// Reads a dump: the manifest at `path`, and the files beside it. Adds its pieces.
    pub fn add(&mut self, path: &Path, fresh: bool) -> Result<()> {
        let manifest = Manifest::read(path).map_err(|e| e.context(path.display()))?;
        let first = self.pieces.is_empty();
        if !first && self.piece_bytes != manifest.piece_bytes {
            let (ours, other) = (self.piece_bytes, manifest.piece_bytes);
            return Err(Error::invalid(format!(
                "{} has pieces of {other} bytes, not {ours}",
                path.display()
            )));
        }
        self.piece_bytes = manifest.piece_bytes;
        self.pieces_per_block = match first {
            true => manifest.pieces_per_block,
            false => self.pieces_per_block.filter(|ours| manifest.pieces_per_block == Some(*ours)),
        };
        let mut reader = Reader { dir: path.parent().unwrap_or(Path::new("")), open: BTreeMap::new() };
        for entry in &manifest.pieces {
            self.add_entry(&manifest, entry, &mut reader, fresh).map_err(|e| e.context(path.display()))?;
        }
        Ok(())
    }

    fn add_entry(
        &mut self,
        dump: &Manifest,
        entry: &Entry,
        reader: &mut Reader<'_>,
        fresh: bool,
    ) -> Result<()> {
        let piece_bytes = dump.piece_bytes as u64;
        let present = self.pieces.len() as u64 * piece_bytes;
        let is_small =
            entry.count.checked_mul(piece_bytes).is_some_and(|new| present + new <= DUMP_BYTES_MAX);
        let last = |first: Option<u64>| first.unwrap_or(0).checked_add(entry.count);
        if !is_small {
            return Err(Error::invalid(format!("more than {} MiB of pieces", DUMP_BYTES_MAX >> 20)));
        }
        if entry.count == 0 {
            return Err(Error::corrupt("an entry of no pieces: count is 0"));
        }
        if entry.lba.or(entry.page).is_none() {
            return Err(Error::corrupt("pieces with neither lba nor page"));
        }
        if last(entry.lba).is_none() || last(entry.page).is_none() {
            return Err(Error::corrupt("addresses beyond 64 bits"));
        }
        let file = entry.file.as_ref().unwrap_or(&dump.file);
        let begin = reader.offset(file, entry.offset)?;
        for i in 0..entry.count {
            let at = begin
                .checked_add(i * piece_bytes)
                .ok_or_else(|| Error::corrupt("an offset beyond 64 bits"))?;
            let (lba, page) = (entry.lba.map(|lba| lba + i), entry.page.map(|page| page + i));
            let mut keystream = reader.read(file, at, dump.piece_bytes)?;
            let mut written = vec![0; dump.piece_bytes];
            match (&entry.pattern, lba) {
                (Pattern::File(name), _) => written = reader.read_other(name, at, dump.piece_bytes)?,
                (Pattern::Lba, None) => return Err(Error::corrupt("pattern lba, but no lba")),
                (pattern, lba) => pattern.fill(lba.unwrap_or(0), &mut written),
            }
            keystream.iter_mut().zip(&written).for_each(|(stored, written)| *stored ^= written);
            self.pieces.push(Piece { lba, page, keystream, fresh: fresh || entry.fresh });
        }
        self.patterns.insert(entry.pattern.clone());
        Ok(())
    }
}

/// The files of a dump, and how far each has been read.
struct Reader<'a> {
    dir: &'a Path,
    open: BTreeMap<String, (File, u64)>,
}

impl Reader<'_> {
    fn file(&mut self, name: &str) -> Result<&mut (File, u64)> {
        if !self.open.contains_key(name) {
            let path = self.dir.join(name);
            let file = File::open(&path).map_err(|e| Error::io(format!("open {}", path.display()), e))?;
            self.open.insert(name.to_string(), (file, 0));
        }
        Ok(self.open.get_mut(name).expect("it was just opened"))
    }

    /// Offset of a piece: as stated, or after the previous one.
    fn offset(&mut self, name: &str, said: Option<u64>) -> Result<u64> {
        let (_, behind) = self.file(name)?;
        Ok(said.unwrap_or(*behind))
    }

    fn read(&mut self, name: &str, at: u64, bytes: usize) -> Result<Vec<u8>> {
        let (file, behind) = self.file(name)?;
        let read = read_at(file, name, at, bytes)?;
        *behind = at + bytes as u64;
        Ok(read)
    }

    fn read_other(&mut self, name: &str, at: u64, bytes: usize) -> Result<Vec<u8>> {
        read_at(&self.file(name)?.0, name, at, bytes)
    }
}

fn read_at(file: &File, name: &str, at: u64, bytes: usize) -> Result<Vec<u8>> {
    let mut out = vec![0; bytes];
    match file.read_exact_at(&mut out, at) {
        Ok(()) => Ok(out),
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(Error::corrupt(format!("{name} ends before the piece at byte {at}")))
        }
        Err(e) => Err(Error::io(format!("read {name}"), e)),
    }
}
