//! Per-page data of the map: 24 bytes, as in the paper (kdd.txt, III.C); six more if sets are so large that links need
//! more than 16 bits.

use super::metalog::NOT_LOGGED;
use super::shape::PageState;
use std::ops::{Index, IndexMut};

/// A link to no page.
pub(super) const NONE: u32 = u32::MAX;
/// No page.
pub(super) const NOWHERE: u32 = u32::MAX;
/// The delta is in the staging buffer.
pub(super) const STAGED: u32 = u32::MAX - 1;

/// The entry of a page.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub lba_low: u32,
    /// For an old page, the page of its delta, or `STAGED`; for a new page, its old page.
    pub delta: u32,
    /// Where the newest log entry is, in the log's own terms. For a page of the window: its number of uses.
    pub log: u32,
    /// Offset and length of the delta. For a delta page, `offset` is the number of its valid deltas.
    pub offset: u16,
    pub bytes: u16,
    /// Low halves of the links.
    links: [u16; 3],
    pub lba_high: u8,
    pub state: PageState,
}

const _: () = assert!(size_of::<Entry>() == 24);

/// Links from a page to another of its set.
#[derive(Clone, Copy)]
pub(super) enum Link {
    /// The next in the hash chain.
    Chain,
    /// The next newer page of its list.
    Newer,
    /// The next older page of its list.
    Older,
}

/// The entries of all pages, by page number.
pub(super) struct Entries {
    entries: Vec<Entry>,
    /// High halves of the links; empty if sets are small.
    high: Vec<[u16; 3]>,
}

impl Entries {
    /// Entries of free pages, in sets of `ways`.
    pub fn new(pages: u32, ways: u32) -> Entries {
        let empty = Entry {
            lba_low: 0,
            delta: NOWHERE,
            log: NOT_LOGGED,
            offset: 0,
            bytes: 0,
            links: [u16::MAX; 3],
            lba_high: 0,
            state: PageState::Free,
        };
        // `u16::MAX` stands for no link.
        let is_wide = ways > u32::from(u16::MAX);
        let high = if is_wide { vec![[u16::MAX; 3]; pages as usize] } else { Vec::new() };
        Entries { entries: vec![empty; pages as usize], high }
    }

    /// The page that a link leads to, as its position in the set, or `NONE`.
    #[inline]
    pub fn link(&self, page: usize, link: Link) -> u32 {
        let low = self.entries[page].links[link as usize];
        match self.high.get(page) {
            Some(high) => u32::from(low) | u32::from(high[link as usize]) << 16,
            None if low == u16::MAX => NONE,
            None => low.into(),
        }
    }

    #[inline]
    pub fn set_link(&mut self, page: usize, link: Link, to: u32) {
        self.entries[page].links[link as usize] = to as u16;
        if let Some(high) = self.high.get_mut(page) {
            high[link as usize] = (to >> 16) as u16;
        }
    }
}

impl Index<usize> for Entries {
    type Output = Entry;
    #[inline]
    fn index(&self, page: usize) -> &Entry {
        &self.entries[page]
    }
}

impl IndexMut<usize> for Entries {
    #[inline]
    fn index_mut(&mut self, page: usize) -> &mut Entry {
        &mut self.entries[page]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_back_in_small_sets_and_large_ones() {
        for (ways, last) in [(65_535, 65_534), (65_536, 65_535), (1 << 24, (1 << 24) - 1)] {
            let mut entries = Entries::new(3, ways);
            for link in [Link::Chain, Link::Newer, Link::Older] {
                assert_eq!(entries.link(1, link), NONE);
                for to in [0, last, NONE, last / 2] {
                    entries.set_link(1, link, to);
                    assert_eq!(entries.link(1, link), to, "{ways} ways");
                }
            }
            assert_eq!(entries.link(2, Link::Chain), NONE);
        }
    }
}
