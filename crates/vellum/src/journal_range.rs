//! A journal named by the host, written `OFFSET+LENGTH`: `4GiB+1GiB`.
//!
//! Invariants:
//! 1. A range is whole sectors, and at least one.
//! 2. What is written is read back exactly.

use crate::as_text::as_text;
use crate::config::Size;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use vellum_base::{DeviceInfo, Error, Lba, Result, SECTOR_BYTES};

/// Location of a journal, or of a part of one.
///
/// ```
/// let journal: vellum::JournalRange = "4GiB+1GiB".parse()?;
/// assert_eq!(journal.sectors().start.0, (4 << 30) / 4096);
/// # Ok::<(), vellum::base::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRange {
    sectors: Range<Lba>,
}

impl JournalRange {
    /// Its sectors.
    pub fn sectors(&self) -> Range<Lba> {
        self.sectors.clone()
    }
}

impl FromStr for JournalRange {
    type Err = Error;
    fn from_str(text: &str) -> Result<JournalRange> {
        let bad = || {
            Error::invalid(format!(
                "'{text}' is no journal; write OFFSET+LENGTH like 4GiB+128MiB, both whole sectors (multiples of 4KiB)"
            ))
        };
        let (offset, length) = text.split_once('+').ok_or_else(bad)?;
        let sectors = |text: &str| -> Result<u64> {
            let bytes = text.parse::<Size>().map_err(|_| bad())?.0;
            if bytes.is_multiple_of(SECTOR_BYTES as u64) {
                Ok(bytes / SECTOR_BYTES as u64)
            } else {
                Err(bad())
            }
        };
        let (first, count) = (sectors(offset)?, sectors(length)?);
        let end = first.checked_add(count).filter(|_| count > 0).ok_or_else(bad)?;
        Ok(JournalRange { sectors: Lba(first)..Lba(end) })
    }
}

impl fmt::Display for JournalRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |sectors: u64| Size(sectors * SECTOR_BYTES as u64).exact();
        let Range { start, end } = &self.sectors;
        write!(f, "{}+{}", size(start.0), size(end.0 - start.0))
    }
}

as_text!(JournalRange: ToString::to_string);

/// Value for [`vellum_disk::Options::journals`]: `None` if none is named, so that the disk searches itself.
pub fn named(journals: &[JournalRange]) -> Option<Vec<Range<Lba>>> {
    (!journals.is_empty()).then(|| journals.iter().map(JournalRange::sectors).collect())
}

/// Refuses journals that are not on the device, or overlap: the disk would ignore them silently.
pub(crate) fn check(journals: &[Range<Lba>], device: DeviceInfo) -> Result<()> {
    let mut sorted: Vec<_> = journals.iter().collect();
    sorted.sort_by_key(|range| range.start);
    for range in &sorted {
        let sectors = range.end.0.saturating_sub(range.start.0);
        device.check_range(range.start, sectors).map_err(|e| e.context("a journal that was named"))?;
    }
    match sorted.windows(2).find(|pair| pair[1].start < pair[0].end) {
        Some(pair) => Err(Error::invalid(format!("two journals were named that hold {}", pair[1].start))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for text in ["4GiB+1GiB", "0B+4KiB", "12345344B+64MiB"] {
            assert_eq!(text.parse::<JournalRange>().unwrap().to_string(), text);
        }
        for bad in ["", "1MiB", "+", "1+1", "0+0", "4KiB+", "1MiB-2MiB"] {
            assert!(bad.parse::<JournalRange>().is_err(), "{bad}");
        }
    }

    #[test]
    fn journals_lie_on_the_device_and_apart() {
        let device = DeviceInfo { sectors: 100, read_only: false, trims: true };
        let range = |a, b| Lba(a)..Lba(b);
        assert!(check(&[range(50, 100), range(0, 50)], device).is_ok());
        assert!(check(&[range(50, 101)], device).unwrap_err().to_string().contains("outside the device"));
        assert!(
            check(&[range(50, 60), range(0, 51)], device).unwrap_err().to_string().contains("two journals")
        );
    }
}
