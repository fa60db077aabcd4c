//! The seeds of the flash's scrambler for each slot, and which slots it must not scramble.
//!
//! A host that scrambles as well wants its data stored plain ([`crate::ses`]). But cells disturb their neighbours if
//! these are alike, which is why drives have scramblers. So storing data plain has limits:
//!
//! 1. Host data are stored plain only if the host scrambles; everything else has a seed that no other slot has.
//! 2. No sector is stored plain that repeats itself along the page, or that equals the sector at the same position in
//!    the previous page of its erase block. It is stored as it came over the bus: as noise.
//!
//! Another place would do for one such sector, but not for many: a file full of one pattern meets itself everywhere.

use crate::format::oob::SlotKind;
use crate::ftl::Ftl;
use vellum_base::{PLAIN_SEED, PageAddr, SECTOR_BYTES};

/// Maximum number of words of a sector that equal the previous word: an eighth.
const REPEATS_MAX: usize = SECTOR_BYTES / 8 / 8;

/// What was stored plain in the page last programmed on a die.
#[derive(Clone, Default)]
pub(crate) struct LastPage {
    at: Option<PageAddr>,
    /// Checksum of each slot's data; `None` for those stored as noise.
    plain: Vec<Option<u32>>,
}

/// Sectors of host data programmed since the disk was opened, if the host scrambles.
#[derive(Clone, Copy, Default)]
pub(crate) struct PlainCount {
    /// Stored plain.
    pub plain: u64,
    /// Stored as noise nevertheless.
    pub noise: u64,
}

impl Ftl {
    /// Counts the sectors of the open page, which was programmed with these seeds.
    pub(crate) fn count_plain(&mut self, seeds: &[u64]) {
        if self.options.host_scrambles {
            let data = self.page.oobs.iter().zip(seeds).filter(|(entry, _)| entry.kind == SlotKind::Data);
            for (_, seed) in data {
                let count = if *seed == PLAIN_SEED { &mut self.plain.plain } else { &mut self.plain.noise };
                *count += 1;
            }
        }
    }

    /// The seeds of the open page's slots. `last` is the data of the last slot, if that is not gathered with the
    /// others. The caller is about to program the page.
    pub(crate) fn seeds(&mut self, page: PageAddr, last: Option<&[u8]>) -> [u64; crate::SLOTS_PER_PAGE_MAX] {
        let mut seeds = [0; crate::SLOTS_PER_PAGE_MAX];
        for (seed, entry) in seeds.iter_mut().zip(&self.page.oobs) {
            *seed = entry.seed();
        }
        if self.options.host_scrambles {
            self.leave_plain(page, last, &mut seeds);
        }
        seeds
    }

    fn leave_plain(&mut self, page: PageAddr, last: Option<&[u8]>, seeds: &mut [u64]) {
        let die = self.geometry.die_of(page.block) as usize;
        let before = std::mem::take(&mut self.last_pages[die]);
        let is_next = before.at.is_some_and(|at| at.block == page.block && at.page + 1 == page.page);
        let gathered = self.page.data.chunks_exact(SECTOR_BYTES).chain(last);
        let mut plain = before.plain.clone();
        plain.resize(self.page.oobs.len(), None);
        for (slot, (entry, data)) in self.page.oobs.iter().zip(gathered).enumerate() {
            let above = before.plain.get(slot).filter(|_| is_next);
            let repeats = above == Some(&Some(entry.data_crc)) || repeats_itself(data);
            let leave = entry.kind == SlotKind::Data && !repeats;
            plain[slot] = leave.then_some(entry.data_crc);
            if leave {
                seeds[slot] = PLAIN_SEED;
            }
        }
        self.last_pages[die] = LastPage { at: Some(page), plain };
    }
}

/// True if more than an eighth of the words equal the previous word.
fn repeats_itself(sector: &[u8]) -> bool {
    let (words, _) = sector.as_chunks::<8>();
    words.iter().zip(&words[1..]).filter(|(a, b)| a == b).count() > REPEATS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_repeat_themselves_or_do_not() {
        let text: Vec<u8> = (0..SECTOR_BYTES as u32).map(|i| (((i * i) >> 5) | 1) as u8).collect();
        assert!(!repeats_itself(&text));
        assert!(repeats_itself(&[0x5A; SECTOR_BYTES]));
        assert!(repeats_itself(&b"ABCDEFGH".repeat(512)));
        let mut tail = text.clone();
        tail[4096 - 400..].fill(0);
        assert!(!repeats_itself(&tail), "a tenth of zeros is little");
        tail[2048..].fill(0);
        assert!(repeats_itself(&tail));
    }
}
