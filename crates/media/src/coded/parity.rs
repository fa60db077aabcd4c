//! Access to the parity of coded pages, as that of unscrambled data (ses-dedup.txt, section III.C).

use super::{Coded, Coder, Tally};
use vellum_base::{Done, Flash, FlashError, IoClass, PageAddr, Parity, SECTOR_BYTES, Scrambling};

impl<F: Flash + Tally> Coded<F> {
    fn coder(&self) -> &Coder {
        self.coder.as_ref().expect("`Coded::parity` asked")
    }
}

impl<F: Flash + Tally> Parity for Coded<F> {
    fn code(&self) -> &'static str {
        self.coder().code.name()
    }

    fn scrambling(&self) -> Scrambling {
        self.coder().coding.scrambling
    }

    fn bytes(&self) -> usize {
        self.coder().layout.parity_bytes()
    }

    fn of_data(&self, sector: &[u8], parity: &mut [u8]) {
        assert_eq!(sector.len(), SECTOR_BYTES, "bytes of a sector");
        self.coder().code.encode(sector, parity);
    }

    fn scramble(&self, seed: u64, sector: &mut [u8]) {
        if let (Scrambling::BySector, Some(keystreams)) = (self.scrambling(), &self.coder().keystreams) {
            keystreams.xor(seed, 0, sector);
        }
    }

    fn of_page(&self, class: IoClass, page: PageAddr, parity: &mut [u8]) -> Result<Done, FlashError> {
        let (coder, page_bytes) = (self.coder(), self.geometry.page_bytes as usize);
        assert_eq!(parity.len(), coder.code.parity_bytes_of(page_bytes), "parity bytes of a page");
        let mut scratch = coder.take_scratch();
        scratch.spare.resize(coder.layout.bytes(), 0);
        let spare = &mut scratch.spare[..];
        let read = self.inner.read(class, page, 0, &mut [], spare);
        let done = read.and_then(|done| {
            match self.open_head(coder, page, spare)? {
                Some(_) => coder.plain_parity(spare, parity),
                None => coder.code.encode(&vec![0xFF; page_bytes], parity),
            }
            Ok(done)
        });
        coder.put_back(scratch);
        done
    }
}

impl Coder {
    /// The parity of the unscrambled data of every slot, from a spare area with an opened head.
    fn plain_parity(&self, spare: &[u8], parity: &mut [u8]) {
        for (slot, parity) in parity.chunks_exact_mut(self.layout.parity_bytes()).enumerate() {
            parity.copy_from_slice(&spare[self.parity_of(slot)]);
            if let Some(keystreams) = &self.keystreams {
                keystreams.unmask(self.layout.entry(spare, slot).seed, parity);
            }
        }
    }
}
