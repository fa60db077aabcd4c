//! The file ZONES in a store's directory: it names the device that holds the tables, and the directory they belong to.
//! See docs/formats/kv-zones.md.

use crate::media::{Directory, ZONES};
use crate::reason;
use vellum_base::{Error, Kind, Result};

/// Start of the last line, which is there if the file system has stable directory numbers.
const DIRECTORY: &str = "directory ";

/// The device that holds the tables of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneHome {
    /// Path of the device.
    pub device: String,
    /// Size of its zones in bytes.
    pub zone_bytes: u64,
}

/// The contents of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub home: ZoneHome,
    /// Identifies the store; the label on the device has the same.
    pub id: [u8; 16],
    /// [`Directory::number`] of the directory that the tables belong to.
    directory: Option<u64>,
}

impl Note {
    pub(super) fn new(device: &str, id: [u8; 16], zone_bytes: u64) -> Note {
        Note { home: ZoneHome { device: device.to_string(), zone_bytes }, id, directory: None }
    }

    /// The note of a directory; `None` if it holds the tables itself.
    pub(super) fn of(directory: &Directory) -> Result<Option<Note>> {
        let Some(bytes) = directory.note(ZONES)? else { return Ok(None) };
        let damaged = || Error::corrupt("the file ZONES is damaged").because(reason::DEVICE_UNKNOWN);
        Note::decode(&bytes).map(Some).ok_or_else(damaged)
    }

    /// The note of a directory; an error if it has none.
    pub(super) fn needed(directory: &Directory) -> Result<Note> {
        Note::of(directory)?
            .ok_or_else(|| Error::invalid("the store in this directory has its tables there, too"))
    }

    /// Replaces the note of a directory, atomically.
    pub(super) fn set(self, directory: &Directory) -> Result<()> {
        directory.set_note(ZONES, Note { directory: directory.number(), ..self }.encode().as_bytes())
    }

    /// An error if the tables belong to another directory, of which this one is a copy: tables written since would look
    /// like leftovers here, and be erased.
    pub(super) fn check_directory(&self, directory: &Directory) -> Result<()> {
        match (self.directory, directory.number()) {
            (Some(owner), Some(number)) if owner != number => {
                let device = &self.home.device;
                let what =
                    format!("this directory is a copy of the one that the tables on {device} belong to");
                Err(Error::new(Kind::Unsupported, what).because(reason::DIRECTORY_COPIED))
            }
            _ => Ok(()),
        }
    }

    fn encode(&self) -> String {
        let hex: String = self.id.iter().map(|byte| format!("{byte:02x}")).collect();
        let ZoneHome { device, zone_bytes } = &self.home;
        let directory = self.directory.map(|number| format!("{DIRECTORY}{number}\n"));
        format!("{device}\n{hex}\n{zone_bytes}\n{}", directory.unwrap_or_default())
    }

    /// From the end: paths may have any bytes.
    fn decode(bytes: &[u8]) -> Option<Note> {
        let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
        let (rest, last) = text.rsplit_once('\n')?;
        let (rest, zone_bytes, directory) = match last.strip_prefix(DIRECTORY) {
            Some(number) => {
                let (rest, zone_bytes) = rest.rsplit_once('\n')?;
                (rest, zone_bytes, Some(number.parse().ok()?))
            }
            None => (rest, last, None),
        };
        let (device, hex) = rest.rsplit_once('\n')?;
        let id = u128::from_str_radix(hex, 16).ok().filter(|_| hex.len() == 32)?.to_be_bytes();
        let home = ZoneHome { device: device.to_string(), zone_bytes: zone_bytes.parse().ok()? };
        Some(Note { home, id, directory })
    }
}

/// Decodes fuzzed bytes; what is decoded is encoded to something of the same meaning.
pub(super) fn fuzzed(bytes: &[u8]) {
    if let Some(note) = Note::decode(bytes) {
        assert_eq!(Note::decode(note.encode().as_bytes()), Some(note));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_round_trip_and_those_of_before_have_no_directory() {
        for directory in [None, Some(u64::MAX)] {
            let note = Note { directory, ..Note::new("/dev/a\ndirectory 3", [0xA7; 16], 1 << 28) };
            assert_eq!(Note::decode(note.encode().as_bytes()), Some(note));
        }
        let before = format!("/dev/sdb\n{}\n4096\n", "0a".repeat(16));
        let note = Note::decode(before.as_bytes()).unwrap();
        assert_eq!(note, Note::new("/dev/sdb", [10; 16], 4096));
        for text in ["", "\n", "a\nb\n", "/dev/sdb\n00\n4096\n", "4096\ndirectory 7\n"] {
            assert_eq!(Note::decode(text.as_bytes()), None, "{text:?}");
        }
    }
}
