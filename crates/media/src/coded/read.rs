//! Reading coded pages: first the head, then the parity of the requested data, then correction if needed.

use super::spare::Head;
use super::{Coded, Coder, Tally};
use vellum_base::flash::BatchError;
use vellum_base::{Done, Flash, FlashError, FlashOp, IoClass, PageAddr, SECTOR_BYTES};
use vellum_codes::crc32c;

impl<F: Flash + Tally> Coded<F> {
    /// Runs the reads at the front of `ops`. Returns how many.
    pub(super) fn read_some(
        &self,
        coder: &Coder,
        class: IoClass,
        ops: &mut [FlashOp<'_>],
    ) -> Result<(usize, Done), BatchError> {
        let count = ops.iter().take_while(|op| self.is_of_whole_codewords(coder, op)).count();
        if count == 0 {
            let done = self.read_odd(coder, class, &mut ops[0]);
            let failed = |error| BatchError { index: 0, done: Done::default(), error };
            return done.map(|done| (1, done)).map_err(failed);
        }
        let mut scratch = coder.take_scratch();
        let done = self.read_whole(coder, class, &mut ops[..count], &mut scratch.spare);
        coder.put_back(scratch);
        done.map(|done| (count, done))
    }

    /// True for a read within the page that is aligned to codewords.
    fn is_of_whole_codewords(&self, coder: &Coder, op: &FlashOp<'_>) -> bool {
        let FlashOp::Read { offset, data, oob, .. } = op else { return false };
        let (from, to) = (*offset as usize, *offset as usize + data.len());
        let codeword = coder.code.data_bytes();
        to <= self.geometry.page_bytes as usize
            && from.is_multiple_of(codeword)
            && to.is_multiple_of(codeword)
            && (oob.is_empty() || oob.len() == self.geometry.oob_bytes as usize)
    }

    /// Reads of whole codewords.
    fn read_whole(
        &self,
        coder: &Coder,
        class: IoClass,
        ops: &mut [FlashOp<'_>],
        spare: &mut Vec<u8>,
    ) -> Result<Done, BatchError> {
        let spare_bytes = coder.layout.bytes();
        spare.resize(ops.len() * spare_bytes, 0);
        let mut below: Vec<FlashOp<'_>> = Vec::with_capacity(ops.len());
        for (op, spare) in ops.iter_mut().zip(spare.chunks_exact_mut(spare_bytes)) {
            if let FlashOp::Read { page, offset, data, .. } = op {
                below.push(FlashOp::Read { page: *page, offset: *offset, data, oob: spare });
            }
        }
        let (there, mut done, failed) = match self.inner.submit(class, &mut below) {
            Ok(done) => (below.len(), done, None),
            Err(e) => (e.index, e.done, Some(e.error)),
        };
        drop(below);
        let read = ops[..there].iter_mut().zip(spare.chunks_exact_mut(spare_bytes));
        for (index, (op, spare)) in read.enumerate() {
            let FlashOp::Read { page, offset, data, oob } = op else { continue };
            match self.decode(coder, *page, *offset as usize, data, spare, oob) {
                Ok(bits) => done.bits_corrected = done.bits_corrected.max(bits),
                Err(error) => return Err(BatchError { index, done, error }),
            }
        }
        match failed {
            None => Ok(done),
            Some(error) => Err(BatchError { index: there, done, error }),
        }
    }

    /// Runs a read that is not aligned to codewords, or out of range.
    #[cold]
    fn read_odd(&self, coder: &Coder, class: IoClass, op: &mut FlashOp<'_>) -> Result<Done, FlashError> {
        let FlashOp::Read { page, offset, data, oob } = op else { return Ok(Done::default()) };
        let (from, to) = (*offset as usize, *offset as usize + data.len());
        let page_bytes = self.geometry.page_bytes as usize;
        if to > page_bytes || !(oob.is_empty() || oob.len() == self.geometry.oob_bytes as usize) {
            let oob = oob.len();
            return Err(FlashError::Rule(format!(
                "a read up to byte {to}, {oob} out of band, does not fit a page of {page_bytes} + {}",
                self.geometry.oob_bytes
            )));
        }
        let codeword = coder.code.data_bytes();
        let start = from / codeword * codeword;
        let mut whole = vec![0; to.next_multiple_of(codeword) - start];
        let done = self.read(class, *page, start as u32, &mut whole, oob)?;
        data.copy_from_slice(&whole[from - start..to - start]);
        Ok(done)
    }

    /// Turns what was read from below into what was programmed. Returns the most bits corrected in a codeword.
    fn decode(
        &self,
        coder: &Coder,
        page: PageAddr,
        offset: usize,
        data: &mut [u8],
        spare: &mut [u8],
        oob: &mut [u8],
    ) -> Result<u32, FlashError> {
        let opened = self.open_head(coder, page, spare).inspect_err(|_| {
            self.inner.tally(0, u64::from(!data.is_empty())); // a scan of spare areas may find torn pages
        })?;
        let Some(bits) = opened else {
            oob.fill(0xFF);
            return self.check_erased(page, data);
        };
        if !oob.is_empty() {
            oob.copy_from_slice(coder.layout.oob(spare));
        }
        let worst = bits.max(self.correct(coder, page, offset, data, spare)?);
        coder.descramble(offset, data, spare);
        Ok(worst)
    }

    /// Classifies a spare area and corrects its head. Returns the number of wrong bits; `None` for that of an erased
    /// page. A lost page is counted only by callers that wanted data.
    pub(super) fn open_head(
        &self,
        coder: &Coder,
        page: PageAddr,
        spare: &mut [u8],
    ) -> Result<Option<u32>, FlashError> {
        match coder.layout.open(spare) {
            Head::Coded { bits: 0 } => Ok(Some(0)),
            Head::Coded { bits } => {
                self.inner.tally(bits.into(), 0);
                Ok(Some(bits))
            }
            Head::Erased => Ok(None),
            Head::Lost => Err(FlashError::Uncorrectable(page)),
        }
    }

    /// An erased page has no spare area, so it must have no data either: otherwise its program was torn.
    fn check_erased(&self, page: PageAddr, data: &[u8]) -> Result<u32, FlashError> {
        match data.iter().all(|byte| *byte == 0xFF) {
            true => Ok(0),
            false => Err(self.uncorrectable(page)),
        }
    }

    /// Corrects stored data and their parity. `spare` has an opened head. Returns the most bits corrected in a
    /// codeword.
    pub(super) fn correct(
        &self,
        coder: &Coder,
        page: PageAddr,
        offset: usize,
        data: &mut [u8],
        spare: &mut [u8],
    ) -> Result<u32, FlashError> {
        let (code, end) = (coder.code, offset + data.len());
        if code.check(data, &spare[coder.layout.parity(offset, end)]) {
            return Ok(0);
        }
        let (mut rest, mut at, mut worst) = (data, offset, 0);
        while at < end {
            let to = end.min((at / SECTOR_BYTES + 1) * SECTOR_BYTES);
            let (part, tail) = std::mem::take(&mut rest).split_at_mut(to - at);
            if !code.check(part, &spare[coder.layout.parity(at, to)]) {
                worst = worst.max(self.mend(coder, page, at, part, spare)?);
            }
            (rest, at) = (tail, to);
        }
        Ok(worst)
    }

    /// Corrects the slot of which `part` is a part. All of it is needed to verify its checksum.
    #[cold]
    fn mend(
        &self,
        coder: &Coder,
        page: PageAddr,
        offset: usize,
        part: &mut [u8],
        spare: &mut [u8],
    ) -> Result<u32, FlashError> {
        let slot = offset / SECTOR_BYTES;
        let (start, within) = (slot * SECTOR_BYTES, offset % SECTOR_BYTES);
        let mut sector = vec![0; SECTOR_BYTES];
        if part.len() < SECTOR_BYTES {
            self.inner.read(IoClass::Background, page, start as u32, &mut sector, &mut [])?;
        }
        sector[within..within + part.len()].copy_from_slice(part);
        let parity = &mut spare[coder.layout.parity(start, start + SECTOR_BYTES)];
        let corrected = coder.code.correct(&mut sector, parity).map_err(|_| self.uncorrectable(page))?;
        part.copy_from_slice(&sector[within..within + part.len()]);
        coder.descramble(start, &mut sector, spare);
        if crc32c(&sector) != coder.layout.entry(spare, slot).crc {
            return Err(self.uncorrectable(page));
        }
        self.inner.tally(corrected.bits.into(), 0);
        Ok(corrected.worst)
    }

    #[cold]
    pub(super) fn uncorrectable(&self, page: PageAddr) -> FlashError {
        self.inner.tally(0, 1);
        FlashError::Uncorrectable(page)
    }
}

impl Coder {
    /// Descrambles data from `offset` of a page on; the head is open.
    fn descramble(&self, offset: usize, mut data: &mut [u8], spare: &[u8]) {
        let Some(keystreams) = &self.keystreams else { return };
        let mut at = offset;
        while !data.is_empty() {
            let (slot, within) = (at / SECTOR_BYTES, at % SECTOR_BYTES);
            let (part, tail) = data.split_at_mut(data.len().min(SECTOR_BYTES - within));
            keystreams.xor(self.layout.entry(spare, slot).seed, within, part);
            at += part.len();
            data = tail;
        }
    }
}
