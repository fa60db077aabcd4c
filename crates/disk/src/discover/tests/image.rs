//! A sparse disk in memory, in a form small enough to commit and to fuzz, and checks that every discovery must pass.
//! Shared with the fuzz target, so it refers to the module through its parent.
//!
//! ```text
//! image := sectors u64 LE · (lba u64 LE · zero-line-packed sector)*
//! ```

use super::discover::{Discovery, Journal, JournalState, READS_MAX, Sectors, discover};
use std::collections::BTreeMap;
use vellum_base::{Lba, Result, SECTOR_BYTES};
use vellum_codes::lines;

/// A disk; sectors not listed are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    pub sectors: u64,
    pub content: BTreeMap<u64, [u8; SECTOR_BYTES]>,
}

impl Sectors for Image {
    fn read(&mut self, lba: Lba, out: &mut [u8; SECTOR_BYTES]) -> Result<()> {
        assert!(lba.0 < self.sectors, "{lba} is beyond the disk");
        *out = self.content.get(&lba.0).copied().unwrap_or([0; SECTOR_BYTES]);
        Ok(())
    }
    fn sectors(&self) -> u64 {
        self.sectors
    }
}

impl Image {
    /// Decodes valid records, and stops at the first invalid one.
    pub fn decode(bytes: &[u8]) -> Image {
        let mut image = Image::default();
        let Some((sectors, mut rest)) = bytes.split_first_chunk() else {
            return image;
        };
        image.sectors = u64::from_le_bytes(*sectors);
        while let Some((lba, packed)) = rest.split_first_chunk() {
            let Some((map, _)) = packed.split_first_chunk() else { break };
            let length = lines::packed_len(u64::from_le_bytes(*map));
            let mut sector = [0; SECTOR_BYTES];
            if packed.len() < length || lines::unpack(&packed[..length], &mut sector).is_err() {
                break;
            }
            image.content.insert(u64::from_le_bytes(*lba), sector);
            rest = &packed[length..];
        }
        image
    }
}

/// Discovers, and checks properties of all results: bounds, consistency of the numbers, and that only the watched
/// sectors matter. Panics with the violation.
pub fn discover_checked(image: &mut Image) -> Discovery {
    let found = discover(image);
    assert!(found.sectors_read <= READS_MAX);
    assert!(found.watch().len() <= found.sectors_read as usize);
    assert!(!found.file_systems.is_empty());
    for (fs, journal) in found.journals() {
        check_journal(journal, image.sectors);
        assert!(journal.extents.iter().all(|e| e.start.0 * SECTOR_BYTES as u64 > fs.region_bytes.start));
        assert!(journal.extents.iter().all(|e| e.end.0 * SECTOR_BYTES as u64 <= fs.region_bytes.end));
        assert_eq!(journal.block_sectors as usize * SECTOR_BYTES, fs.block_bytes as usize);
    }
    for fs in &found.file_systems {
        assert!(!matches!(&fs.journal, JournalState::NoBenefit { reason } if reason.is_empty()));
    }
    let mut watched = Image { sectors: image.sectors, ..Image::default() };
    for lba in found.watch() {
        let mut content = [0; SECTOR_BYTES];
        image.read(lba, &mut content).expect("an image reads");
        assert!(!found.outdated_by(lba, &content));
        watched.content.insert(lba.0, content);
    }
    assert_eq!(discover(&mut watched), found, "the watched sectors alone tell the same");
    found
}

fn check_journal(journal: &Journal, disk_sectors: u64) {
    let length = |extents: &[std::ops::Range<Lba>]| extents.iter().map(|e| e.end.0 - e.start.0).sum::<u64>();
    assert_eq!(length(&journal.extents), journal.sectors());
    let log_blocks = (journal.log_blocks.end - journal.log_blocks.start) as u64;
    assert!(log_blocks > 0 && journal.log_blocks.start > 0 && journal.log_blocks.end <= journal.blocks);
    assert_eq!(length(&journal.log_extents()), log_blocks * journal.block_sectors as u64);
    let mut sorted = journal.extents.clone();
    sorted.sort_by_key(|extent| extent.start);
    assert!(sorted.iter().all(|extent| extent.start < extent.end && extent.end.0 <= disk_sectors));
    assert!(sorted.windows(2).all(|pair| pair[0].end <= pair[1].start), "extents overlap");
}
