//! A drive's scrambler: raw dumps of known patterns, and what is learned from them (ses-dedup.txt, section III).
//!
//! Formats: docs/formats/ses-dump.md and docs/formats/scrambler.md.

mod lbas;
mod learn;
mod manifest;
mod pattern;
mod raw;
mod scrambler_file;

pub use lbas::LbaList;
pub use learn::{AddressKind, LearnOptions, Learned, learn};
pub use manifest::{Manifest, Piece, Pieces};
pub use pattern::Pattern;
pub use raw::{RawDump, dump, write_pattern};
pub use scrambler_file::{Evidence, ScramblerFile};

use std::io::Read;
use std::path::Path;
use vellum_base::{Error, Result};

/// Reads a text file of at most `bytes_max` bytes.
fn read_text(path: &Path, bytes_max: u64) -> Result<String> {
    let name = path.display();
    let file = std::fs::File::open(path).map_err(|e| Error::io(format!("open {name}"), e))?;
    let mut text = String::new();
    let read = file.take(bytes_max + 1).read_to_string(&mut text);
    match read {
        Ok(bytes) if bytes as u64 > bytes_max => {
            Err(Error::corrupt(format!("{name} has more than {bytes_max} bytes, which is no such file")))
        }
        Ok(_) => Ok(text),
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {
            Err(Error::corrupt(format!("{name} is not a text file")))
        }
        Err(e) => Err(Error::io(format!("read {name}"), e)),
    }
}
