//! Pattern sectors: synthetic 4 KiB contents that are fully determined by 24 bytes.
//!
//! A trace cannot include the bytes it recorded, but what an engine saves depends on which sectors are equal, which are
//! equal in their first 64 bytes, and which lines are zero. A pattern sector preserves exactly these properties:
//!
//! 1. line 0 depends only on `head` (all zero if `head` is 0);
//! 2. each other line depends only on `full` and its position;
//! 3. lines whose bit in `lines` is clear are zero.
//!
//! Modelled flash stores only the 24 bytes of such a sector, so a long simulation fits in memory.

use crate::lines::{LINE_BYTES, LINES};
use crate::wide;

pub(crate) const WORDS_PER_LINE: usize = LINE_BYTES / 8;
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The 24 bytes that determine a pattern sector; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// Identifies the whole content. Not zero.
    pub full: u64,
    /// Identifies the first 64 bytes; zero if and only if line 0 is zero.
    pub head: u64,
    /// Bitmap of the non-zero 64-byte lines. Bit 0 is set if and only if `head` is not zero.
    pub lines: u64,
}

impl Pattern {
    /// A pattern of these parts, made consistent: `full` 0 becomes 1, and bit 0 of `lines` follows `head`.
    pub const fn new(full: u64, head: u64, lines: u64) -> Pattern {
        let full = if full == 0 { 1 } else { full };
        Pattern { full, head, lines: if head == 0 { lines & !1 } else { lines | 1 } }
    }

    /// A content without zero lines, different for each `id` below 2^59.
    pub const fn unique(id: u64) -> Pattern {
        let mixed = (id ^ (id >> 31)).wrapping_mul(STEP) | 1;
        Pattern::new(mixed, mixed ^ 0x5555_5555_5555_5554, u64::MAX)
    }

    /// Writes the sector to `out`.
    ///
    /// # Panics
    /// If `out` is not 4096 bytes.
    pub fn fill(&self, out: &mut [u8]) {
        assert_eq!(out.len(), 4096);
        if self.lines == u64::MAX {
            return wide::fill_all_lines(out, self.head, self.full);
        }
        for (i, line) in out.chunks_exact_mut(LINE_BYTES).enumerate() {
            match self.word_source(i) {
                Some(source) => fill_line(source, i, line),
                None => line.fill(0),
            }
        }
    }

    /// Writes only line 0, for a sector that differs from this pattern only in `head`.
    ///
    /// # Panics
    /// If `out` is not 4096 bytes.
    pub fn refill_head(&self, out: &mut [u8]) {
        assert_eq!(out.len(), 4096);
        fill_line(self.head, 0, &mut out[..LINE_BYTES]);
    }

    /// The pattern whose content is exactly `sector`, if there is one.
    ///
    /// # Panics
    /// If `sector` is not 4096 bytes.
    pub fn recognise(sector: &[u8]) -> Option<Pattern> {
        assert_eq!(sector.len(), 4096);
        if !looks_right(sector) {
            return None;
        }
        let (head, full) = (word(sector, 0), word(sector, LINE_BYTES));
        if head != 0 && full != 0 && wide::has_all_lines(sector, head, full) {
            return Some(Pattern { full, head, lines: u64::MAX });
        }
        Pattern::recognise_among_zeros(sector)
    }

    /// As [`Pattern::recognise`], for a sector that may have zero lines.
    fn recognise_among_zeros(sector: &[u8]) -> Option<Pattern> {
        let (mut full, mut lines, mut wrong) = (0, 0, [0; WORDS_PER_LINE]);
        let head = word(sector, 0);
        for (i, line) in sector.chunks_exact(LINE_BYTES).enumerate() {
            let source = word(line, 0);
            let present = source != 0;
            lines |= u64::from(present) << i;
            if i > 0 && present {
                full = if full == 0 { source } else { full };
                wrong[0] |= source ^ full;
            }
            compare_line(source, i, line, &mut wrong);
        }
        if wrong != [0; WORDS_PER_LINE] {
            return None;
        }
        // If only line 0 is non-zero, any `full` fits: `head` is used.
        let full = if full == 0 { head } else { full };
        (full != 0).then_some(Pattern { full, head, lines })
    }

    fn word_source(&self, line: usize) -> Option<u64> {
        match (self.lines >> line & 1, line) {
            (0, _) => None,
            (_, 0) => Some(self.head),
            _ => Some(self.full),
        }
    }
}

/// Word 0 of a line is its source. The others are the source XOR a constant that depends on the position.
pub(crate) static POSITIONS: [[u64; WORDS_PER_LINE]; LINES] = {
    let mut positions = [[0; WORDS_PER_LINE]; LINES];
    let mut at = 0;
    while at < LINES * WORDS_PER_LINE {
        let (line, w) = (at / WORDS_PER_LINE, at % WORDS_PER_LINE);
        positions[line][w] = if w == 0 { 0 } else { STEP.wrapping_mul(at as u64) };
        at += 1;
    }
    positions
};

/// Differences between the constants of consecutive lines.
pub(crate) const STEPS: [u64; WORDS_PER_LINE] = {
    let mut steps = [STEP.wrapping_mul(WORDS_PER_LINE as u64); WORDS_PER_LINE];
    steps[0] = 0;
    steps
};

#[inline]
fn fill_line(source: u64, line: usize, out: &mut [u8]) {
    for (position, to) in POSITIONS[line].iter().zip(out.chunks_exact_mut(8)) {
        to.copy_from_slice(&(source ^ position).to_le_bytes());
    }
}

/// ORs into `wrong` the bits in which the line differs from the one filled from `source` (from zeros if `source` is 0).
/// Treats all lines the same and without branches, so that the compiler vectorises it.
#[inline]
fn compare_line(source: u64, line: usize, bytes: &[u8], wrong: &mut [u64; WORDS_PER_LINE]) {
    let present = if source == 0 { 0 } else { u64::MAX };
    for (w, position) in POSITIONS[line].iter().enumerate() {
        wrong[w] |= word(bytes, w * 8) ^ (source ^ position) & present;
    }
}

/// A cheap first check that nearly every sector without a pattern fails.
fn looks_right(sector: &[u8]) -> bool {
    [0, 1, 63].into_iter().all(|line| {
        let bytes = &sector[line * LINE_BYTES..][..LINE_BYTES];
        let source = word(bytes, 0);
        source == 0 || word(bytes, 8) == source ^ POSITIONS[line][1]
    })
}

#[inline(always)]
pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    let mut out = [0; 8];
    out.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::nonzero_lines;
    use proptest::prelude::*;

    fn sector(p: Pattern) -> Vec<u8> {
        let mut out = vec![0; 4096];
        p.fill(&mut out);
        out
    }

    proptest! {
        #[test]
        fn what_is_filled_is_recognised(full: u64, head: u64, lines: u64) {
            let p = Pattern::new(full, head, lines);
            let bytes = sector(p);
            if bytes.iter().any(|b| *b != 0) {
                let found = Pattern::recognise(&bytes).expect("our own pattern");
                prop_assert!(sector(found) == bytes);
            }
        }

        #[test]
        fn a_changed_byte_is_never_taken_for_the_pattern(id: u64, at in 0usize..4096, flip in 1u8..) {
            let mut bytes = sector(Pattern::unique(id));
            bytes[at] ^= flip;
            if let Some(p) = Pattern::recognise(&bytes) {
                prop_assert!(sector(p) == bytes);
            }
        }
    }

    #[test]
    fn equality_structure_is_kept() {
        let a = sector(Pattern::new(1, 9, !0));
        let b = sector(Pattern::new(2, 9, !0));
        assert!(a != b && a[..64] == b[..64]);
        let c = sector(Pattern::new(3, 0, 0b1000));
        assert_eq!(nonzero_lines(&c), 0b1000);
        assert!(Pattern::recognise(&[1; 4096]).is_none());
        let unique: std::collections::BTreeSet<_> = (0..1000).map(|i| sector(Pattern::unique(i))).collect();
        assert_eq!(unique.len(), 1000);
    }
}
