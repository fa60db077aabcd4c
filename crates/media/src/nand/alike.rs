//! Similarity of neighbouring cells, which a scrambler is meant to prevent.
//!
//! Cells disturb their neighbours most if these hold the same all along a word line (within a page) or a bit line (the
//! same place in the pages before and after). Measured in 64-bit words, of which practically none are equal in noise.

use super::Nand;
use super::die::Die;
use vellum_base::{BlockAddr, Flash, FlashError};

const WORD_BYTES: usize = 8;

/// A part of a page, and the same part of the adjacent pages if they are programmed.
pub(super) struct Neighbourhood {
    here: Vec<u8>,
    beside: [Option<Vec<u8>>; 2],
}

impl Neighbourhood {
    /// Reads it from the store of a die.
    pub fn read(
        die: &mut Die,
        block: u32,
        page: u32,
        offset: usize,
        bytes: usize,
    ) -> Result<Self, FlashError> {
        let mut part = |page: u32| {
            let mut data = vec![0; bytes];
            die.store.read(block, page, offset, &mut data, &mut []).map(|()| data)
        };
        let here = part(page)?;
        let before = page.checked_sub(1).map(&mut part).transpose()?;
        let after = (page + 1 < die.blocks[block as usize].pages_written).then(|| part(page + 1)).transpose();
        Ok(Neighbourhood { here, beside: [before, after?] })
    }

    /// Share of the words from byte `from` to `to` that equal the word before them, or the same word in an adjacent
    /// page.
    pub fn alike(&self, from: usize, to: usize) -> f64 {
        let is_alike = |at: &usize| {
            let here = &self.here[*at..at + WORD_BYTES];
            let in_line = *at >= from + WORD_BYTES && self.here[at - WORD_BYTES..*at] == *here;
            in_line || self.beside.iter().flatten().any(|page| page[*at..at + WORD_BYTES] == *here)
        };
        let words = (from..to).step_by(WORD_BYTES);
        let count = words.len().max(1);
        words.filter(is_alike).count() as f64 / count as f64
    }
}

impl Nand {
    /// Similarity of the pages programmed in a block: 0 for noise, 1 if all hold one repeated pattern. Counts no reads
    /// of the device, as it is meant for the inspection of models.
    pub fn alikeness(&self, block: BlockAddr) -> Result<f64, FlashError> {
        let pages = self.report(block).pages_written;
        let bytes = self.geometry().page_bytes as usize;
        let (die, index) = self.locate(block);
        let mut die = die.lock();
        let each = (0..pages).map(|page| {
            Neighbourhood::read(&mut die, index, page, 0, bytes).map(|found| found.alike(0, bytes))
        });
        Ok(each.sum::<Result<f64, FlashError>>()? / f64::from(pages.max(1)))
    }
}
