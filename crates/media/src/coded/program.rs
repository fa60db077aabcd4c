//! Programming coded pages: scrambles the data of each slot, computes their parity, and assembles the spare area.

use super::spare::{Entry, PLAIN};
use super::{Coded, Coder, Scratch, Tally, both};
use std::sync::LazyLock;
use vellum_base::flash::BatchError;
use vellum_base::{Done, Flash, FlashError, FlashOp, IoClass, PageAddr, SECTOR_BYTES, Scrambling, Source};
use vellum_codes::crc32c;

static CRC_OF_ZEROS: LazyLock<u32> = LazyLock::new(|| crc32c(&[0; SECTOR_BYTES]));

/// Where the bytes to be stored in a slot are.
#[derive(Clone, Copy)]
enum Stored<'a> {
    /// In the caller's buffer, to be stored as they are.
    Given(&'a [u8]),
    /// In [`Scratch::sectors`], from this offset.
    Staged(usize),
    /// Nowhere: they are zeros.
    Zeros,
}

/// A page being assembled.
struct Draft<'a, 'b> {
    coder: &'b Coder,
    page: PageAddr,
    seeds: &'a [u64],
    /// Its spare area.
    spare: &'b mut [u8],
    sectors: &'b mut Vec<u8>,
    /// The slots of its batch so far.
    slots: &'b mut Vec<Stored<'a>>,
    /// Its next slot.
    slot: usize,
}

impl<F: Flash + Tally> Coded<F> {
    /// Runs independent programs at the front of `ops`. Returns how many.
    pub(super) fn program_some(
        &self,
        coder: &Coder,
        class: IoClass,
        ops: &[FlashOp<'_>],
    ) -> Result<(usize, Done), BatchError> {
        let mut scratch = coder.take_scratch();
        scratch.spare.clear();
        scratch.sectors.clear();
        let result = self.program_with(coder, class, ops, &mut scratch);
        coder.put_back(scratch);
        result
    }

    fn program_with(
        &self,
        coder: &Coder,
        class: IoClass,
        ops: &[FlashOp<'_>],
        scratch: &mut Scratch,
    ) -> Result<(usize, Done), BatchError> {
        let mut slots = Vec::with_capacity(ops.len() * self.geometry.slots_per_page() as usize);
        let (mut count, mut bits_corrected, mut refused) = (0, 0, None);
        for op in ops {
            let FlashOp::Program { page, parts, oob, seeds } = op else { break };
            if copies_from_any(parts, &ops[..count]) {
                break;
            }
            match self.draft(coder, class, *page, (parts, oob, seeds), scratch, &mut slots) {
                Ok(bits) => bits_corrected = bits_corrected.max(bits),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
            count += 1;
        }
        let before = Done { bits_corrected, ..Done::default() };
        let result = self.program_drafts(coder, class, &ops[..count], scratch, &slots);
        match (result, refused) {
            (Ok(done), None) => Ok((count, both(before, done))),
            (Ok(done), Some(error)) => Err(BatchError { index: count, done: both(before, done), error }),
            (Err(e), _) => Err(BatchError { done: both(before, e.done), ..e }),
        }
    }

    /// Passes down the programs of `ops`, whose slots and spare areas have been assembled.
    fn program_drafts(
        &self,
        coder: &Coder,
        class: IoClass,
        ops: &[FlashOp<'_>],
        scratch: &Scratch,
        slots: &[Stored<'_>],
    ) -> Result<Done, BatchError> {
        if ops.is_empty() {
            return Ok(Done::default());
        }
        let per_page = self.geometry.slots_per_page() as usize;
        let slots = slots[..ops.len() * per_page].iter();
        let sources: Vec<Source<'_>> = slots.map(|slot| slot.source(&scratch.sectors)).collect();
        let spares = scratch.spare.chunks_exact(coder.layout.bytes());
        let mut below = Vec::with_capacity(ops.len());
        for ((op, parts), oob) in ops.iter().zip(sources.chunks_exact(per_page)).zip(spares) {
            if let FlashOp::Program { page, .. } = op {
                below.push(FlashOp::Program { page: *page, parts, oob, seeds: &[] });
            }
        }
        self.inner.submit(class, &mut below)
    }

    /// Assembles a page. Returns the most bits corrected in a codeword of what it copies.
    fn draft<'a>(
        &self,
        coder: &Coder,
        class: IoClass,
        page: PageAddr,
        (parts, oob, seeds): (&'a [Source<'a>], &'a [u8], &'a [u64]),
        scratch: &mut Scratch,
        slots: &mut Vec<Stored<'a>>,
    ) -> Result<u32, FlashError> {
        self.check_fits(page, parts, oob)?;
        let at = scratch.spare.len();
        scratch.spare.resize(at + coder.layout.bytes(), 0);
        let Scratch { spare, sectors, source } = scratch;
        let mut draft = Draft { coder, page, seeds, spare: &mut spare[at..], sectors, slots, slot: 0 };
        let bits = match parts.iter().all(is_aligned) {
            true => self.draft_slots(&mut draft, class, parts, source)?,
            false => self.draft_bytes(&mut draft, class, parts)?,
        };
        coder.layout.seal(draft.spare, oob);
        Ok(bits)
    }

    fn check_fits(&self, at: PageAddr, parts: &[Source<'_>], oob: &[u8]) -> Result<(), FlashError> {
        if at.block.0 >= self.geometry.blocks() || at.page >= self.geometry.pages_per_block {
            return Err(FlashError::Rule(format!("{at} is outside the device")));
        }
        let (total, geometry) = (parts.iter().map(Source::len).sum::<usize>(), &self.geometry);
        if total == geometry.page_bytes as usize && oob.len() <= geometry.oob_bytes as usize {
            return Ok(());
        }
        let (page, there, oob) = (geometry.page_bytes, geometry.oob_bytes, oob.len());
        let what =
            format!("a program of {total} bytes, {oob} out of band, does not fit a page of {page} + {there}");
        Err(FlashError::Rule(what))
    }

    /// Assembles a page of parts aligned to slots.
    fn draft_slots<'a>(
        &self,
        draft: &mut Draft<'a, '_>,
        class: IoClass,
        mut parts: &'a [Source<'a>],
        source: &mut Vec<u8>,
    ) -> Result<u32, FlashError> {
        let (mut bits, mut register) = (0, None);
        while let Some((part, rest)) = parts.split_first() {
            parts = rest;
            match part {
                Source::Bytes(bytes) => bytes.chunks_exact(SECTOR_BYTES).for_each(|sector| draft.add(sector)),
                Source::Pad(bytes) => {
                    (0..*bytes as usize / SECTOR_BYTES).for_each(|_| draft.add_zeros());
                }
                Source::Copy { page, offset, bytes } => {
                    let mut end = *offset as usize + *bytes as usize;
                    while let Some((next, rest)) = parts.split_first()
                        && let Source::Copy { page: same, offset, bytes } = next
                        && (same, *offset as usize) == (page, end)
                    {
                        (end, parts) = (end + *bytes as usize, rest);
                    }
                    let again = register.replace(*page) == Some(*page);
                    bits = bits.max(self.draft_copy(
                        draft,
                        class,
                        *page,
                        (*offset as usize, end),
                        again,
                        source,
                    )?);
                }
            }
        }
        Ok(bits)
    }

    /// Adds slots copied from bytes `from` to `to` of another page. `source` is the buffer of that page's spare area;
    /// if the page is copied from `again`, it is already there, with its head opened.
    fn draft_copy(
        &self,
        draft: &mut Draft<'_, '_>,
        class: IoClass,
        page: PageAddr,
        (from, to): (usize, usize),
        again: bool,
        source: &mut Vec<u8>,
    ) -> Result<u32, FlashError> {
        if to > self.geometry.page_bytes as usize {
            return Err(FlashError::Rule(format!("a copy reaches beyond the end of {page}")));
        }
        let (coder, at) = (draft.coder, draft.sectors.len());
        draft.sectors.resize(at + to - from, 0);
        let data = &mut draft.sectors[at..];
        source.resize(coder.layout.bytes(), 0);
        let bits = match again {
            true => {
                self.inner.read(class, page, from as u32, data, &mut [])?;
                (!is_erased(source)).then_some(0)
            }
            false => {
                self.inner.read(class, page, from as u32, data, source)?;
                self.open_head(coder, page, source).map_err(|_| self.uncorrectable(page))?
            }
        };
        let slots = (from / SECTOR_BYTES..to / SECTOR_BYTES).zip((at..).step_by(SECTOR_BYTES));
        let Some(bits) = bits else {
            slots.for_each(|(_, at)| draft.add_staged(at));
            return Ok(0);
        };
        let bits = bits.max(self.correct(coder, page, from, data, source)?);
        slots.for_each(|(slot, at)| draft.add_copy(slot, at, source));
        Ok(bits)
    }

    /// Assembles a page of unaligned parts, from their bytes.
    #[cold]
    fn draft_bytes(
        &self,
        draft: &mut Draft<'_, '_>,
        class: IoClass,
        parts: &[Source<'_>],
    ) -> Result<u32, FlashError> {
        let (start, mut bits) = (draft.sectors.len(), 0);
        for part in parts {
            let at = draft.sectors.len();
            draft.sectors.resize(at + part.len(), 0);
            match part {
                Source::Bytes(bytes) => draft.sectors[at..].copy_from_slice(bytes),
                Source::Copy { page, offset, .. } => {
                    let done = self.read(class, *page, *offset, &mut draft.sectors[at..], &mut [])?;
                    bits = bits.max(done.bits_corrected);
                }
                Source::Pad(_) => {}
            }
        }
        let slots = (start..draft.sectors.len()).step_by(SECTOR_BYTES);
        slots.for_each(|at| draft.add_staged(at));
        Ok(bits)
    }
}

impl<'a> Stored<'a> {
    fn source<'b>(&self, sectors: &'b [u8]) -> Source<'b>
    where
        'a: 'b,
    {
        match *self {
            Stored::Given(bytes) => Source::Bytes(bytes),
            Stored::Staged(at) => Source::Bytes(&sectors[at..at + SECTOR_BYTES]),
            Stored::Zeros => Source::Pad(SECTOR_BYTES as u32),
        }
    }
}

impl<'a> Draft<'a, '_> {
    /// Sets the next slot to these bytes.
    fn add(&mut self, sector: &'a [u8]) {
        if self.coder.keystreams.is_some() {
            let at = self.sectors.len();
            self.sectors.extend_from_slice(sector);
            return self.add_staged(at);
        }
        self.coder.code.encode(sector, &mut self.spare[self.coder.parity_of(self.slot)]);
        self.push(Stored::Given(sector), Entry { seed: PLAIN, crc: crc32c(sector) });
    }

    /// Sets the next slot to the bytes at `at` of the staged sectors.
    fn add_staged(&mut self, at: usize) {
        let sector = &mut self.sectors[at..at + SECTOR_BYTES];
        let crc = crc32c(sector);
        let seed = self.coder.seed(self.page, self.slot, self.seeds);
        if let Some(keystreams) = &self.coder.keystreams {
            keystreams.xor(seed, 0, sector);
        }
        self.coder.code.encode(sector, &mut self.spare[self.coder.parity_of(self.slot)]);
        self.push(Stored::Staged(at), Entry { seed, crc });
    }

    /// Sets the next slot to a copy of slot `from` of another page, whose spare area is `source`; its stored bytes are
    /// at `at` of the staged sectors.
    fn add_copy(&mut self, from: usize, at: usize, source: &[u8]) {
        let entry = self.coder.layout.entry(source, from);
        if let (Scrambling::ByPage { .. }, Some(keystreams)) =
            (self.coder.coding.scrambling, &self.coder.keystreams)
        {
            keystreams.xor(entry.seed, 0, &mut self.sectors[at..at + SECTOR_BYTES]);
            return self.add_staged(at);
        }
        let parity = &source[self.coder.parity_of(from)];
        self.spare[self.coder.parity_of(self.slot)].copy_from_slice(parity);
        self.push(Stored::Staged(at), entry);
    }

    /// Sets the next slot to zeros that are never read.
    fn add_zeros(&mut self) {
        self.push(Stored::Zeros, Entry { seed: PLAIN, crc: *CRC_OF_ZEROS });
    }

    fn push(&mut self, stored: Stored<'a>, entry: Entry) {
        self.coder.layout.set_entry(self.spare, self.slot, entry);
        self.slots.push(stored);
        self.slot += 1;
    }
}

impl Coder {
    /// The range of the parity of a slot in the spare area.
    pub(super) fn parity_of(&self, slot: usize) -> std::ops::Range<usize> {
        self.layout.parity(slot * SECTOR_BYTES, (slot + 1) * SECTOR_BYTES)
    }

    /// The scrambler seed of a slot.
    fn seed(&self, page: PageAddr, slot: usize, seeds: &[u64]) -> u64 {
        match self.coding.scrambling {
            Scrambling::Off => PLAIN,
            Scrambling::BySector => seeds.get(slot).copied().unwrap_or_else(|| {
                // No sector has an address with this bit.
                1 << 63 | u64::from(self.geometry.slot_of(page, slot as u32).0)
            }),
            Scrambling::ByPage { period } => {
                u64::from(page.page % period) * u64::from(self.geometry.slots_per_page()) + slot as u64
            }
        }
    }
}

fn is_aligned(part: &Source<'_>) -> bool {
    let offset = if let Source::Copy { offset, .. } = part { *offset } else { 0 };
    part.len().is_multiple_of(SECTOR_BYTES) && (offset as usize).is_multiple_of(SECTOR_BYTES)
}

fn is_erased(spare: &[u8]) -> bool {
    spare.iter().all(|byte| *byte == 0xFF)
}

/// True if `parts` copy from a page that one of `ops` programs.
fn copies_from_any(parts: &[Source<'_>], ops: &[FlashOp<'_>]) -> bool {
    let is_programmed =
        |from: &PageAddr| ops.iter().any(|op| matches!(op, FlashOp::Program { page, .. } if page == from));
    parts.iter().any(|part| matches!(part, Source::Copy { page, .. } if is_programmed(page)))
}
