//! Copies of valid slots to other pages of their die by copy-back, as many at a time as fit in a batch.
//!
//! 1. The checksums of the contents are copied too, so damage stays detectable. An unreadable slot moves as [`LOST`],
//!    and reads of its sectors keep failing.
//! 2. Owners are moved only once the copy is programmed.

use crate::SLOTS_PER_PAGE_MAX;
use crate::format::oob::{OOB_ENTRY_BYTES, Oob, SlotKind};
use crate::ftl::Ftl;
use crate::map::Owner;
use crate::store::Recorded;
use vellum_base::flash::BatchError;
use vellum_base::{
    Cause, Done, FlashError, FlashOp, IoClass, PageAddr, Result, SECTOR_BYTES, SlotAddr, Source,
};

/// Maximum number of slots copied in one batch: at least a page of them.
const BATCH_SLOTS: usize = SLOTS_PER_PAGE_MAX;

/// Stands for a checksum that cannot match: it is not that of the zeros stored for a lost slot.
const LOST: u32 = 0xDEAD_0BAD;

/// Buffers reused by successive batches.
#[derive(Default)]
pub(crate) struct CopyBuffers {
    /// New out-of-band entries, one per slot.
    entries: Vec<Oob>,
    /// Out-of-band bytes of the source pages.
    oob: Vec<u8>,
}

impl Ftl {
    /// Copies `slots` to `first` and the pages after it, as far as they fit in a batch and the block, and moves their
    /// owners. Returns how many were copied; also fewer if the block goes bad.
    pub(crate) fn copy_slots(&mut self, first: PageAddr, slots: &[SlotAddr], cause: Cause) -> Result<usize> {
        let per_page = self.geometry.slots_per_page() as usize;
        let room = (self.geometry.pages_per_block - first.page) as usize * per_page;
        let most = room.min(BATCH_SLOTS / per_page * per_page);
        let slots = &slots[..slots.len().min(most)];
        for slot in slots {
            if let Owner::Sector(first) = self.map.owner(*slot) {
                self.map.prefetch_place(first);
            }
        }
        let die = self.geometry.die_of(first.block) as usize;
        let mut buffers = std::mem::take(&mut self.collectors[die].buffers);
        let copied = self.copy_with(&mut buffers, first, slots, cause);
        self.collectors[die].buffers = buffers;
        copied
    }

    fn copy_with(
        &mut self,
        buffers: &mut CopyBuffers,
        first: PageAddr,
        slots: &[SlotAddr],
        cause: Cause,
    ) -> Result<usize> {
        self.renew_entries(buffers, slots, cause)?;
        let copied = self.program_copies(first, slots, &mut buffers.entries, cause)?;
        let to = self.geometry.slot_of(first, 0).0;
        for (to, (from, entry)) in (to..).map(SlotAddr).zip(slots[..copied].iter().zip(&buffers.entries)) {
            self.relocate(*from, to, entry.data_crc, Recorded::FirstOwner)?;
        }
        if copied < slots.len() {
            self.retire(first.block);
        }
        Ok(copied)
    }

    /// Fills `buffers.entries` with the out-of-band entries of the copies of `slots`.
    fn renew_entries(&mut self, buffers: &mut CopyBuffers, slots: &[SlotAddr], cause: Cause) -> Result<()> {
        let starts = self.read_old_entries(&mut buffers.oob, slots)?;
        buffers.entries.clear();
        for (slot, start) in slots.iter().zip(starts) {
            let (kind, id) = match self.map.owner(*slot) {
                Owner::Sector(first) => (SlotKind::Data, first),
                Owner::Log(log) => (SlotKind::Log, log),
                _ => (SlotKind::Padding, 0),
            };
            self.seq += 1;
            let old = Oob::decode(&buffers.oob[start..], *slot);
            let data_crc = old.map_or(LOST, |entry| entry.data_crc);
            buffers.entries.push(Oob { seq: self.seq, id, data_crc, kind, cause });
        }
        Ok(())
    }

    /// Reads the out-of-band bytes of the pages of `slots`, each page once; zeros if that fails. Returns the offset in
    /// `oob` of each slot's entry.
    fn read_old_entries(&mut self, oob: &mut Vec<u8>, slots: &[SlotAddr]) -> Result<[usize; BATCH_SLOTS]> {
        let oob_bytes = self.geometry.oob_bytes as usize;
        oob.resize(BATCH_SLOTS * oob_bytes, 0);
        let mut chunks = oob.chunks_exact_mut(oob_bytes);
        let mut ops: [FlashOp<'_>; BATCH_SLOTS] = std::array::from_fn(|_| {
            let oob = chunks.next().unwrap_or_default();
            FlashOp::Read { page: PageAddr::default(), offset: 0, data: &mut [], oob }
        });
        let mut starts = [0; BATCH_SLOTS];
        let (mut pages, mut last) = (0, None);
        for (slot, start) in slots.iter().zip(&mut starts) {
            let (of_slot, index) = self.geometry.page_of_slot(*slot);
            if last.replace(of_slot) != Some(of_slot) {
                if let FlashOp::Read { page, .. } = &mut ops[pages] {
                    *page = of_slot;
                }
                pages += 1;
            }
            *start = (pages - 1) * oob_bytes + index as usize * OOB_ENTRY_BYTES;
        }
        self.read_each(&mut ops[..pages])?;
        Ok(starts)
    }

    /// Runs reads of out-of-band bytes; the bytes of unreadable ones are set to zero.
    fn read_each(&mut self, mut ops: &mut [FlashOp<'_>]) -> Result<()> {
        while let Err(BatchError { index, error, .. }) = self.flash.submit(IoClass::Background, ops) {
            let FlashError::Uncorrectable(_) = error else { return Err(self.poison(error.into())) };
            if let FlashOp::Read { oob, .. } = &mut ops[index] {
                oob.fill(0);
            }
            ops = &mut ops[index + 1..];
        }
        Ok(())
    }

    /// Programs copies of `slots` from page `first` on. Returns how many: fewer if the block goes bad.
    fn program_copies(
        &mut self,
        first: PageAddr,
        slots: &[SlotAddr],
        entries: &mut [Oob],
        cause: Cause,
    ) -> Result<usize> {
        let per_page = self.geometry.slots_per_page() as usize;
        let mut copied = 0;
        while copied < slots.len() {
            let page = first.block.page(first.page + (copied / per_page) as u32);
            let (left, entries) = (&slots[copied..], &mut entries[copied..]);
            let (pages, done, error) = match self.submit_copies(page, left, entries) {
                Ok(done) => (left.len().div_ceil(per_page), done, None),
                Err(e) => (e.index, e.done, Some(e.error)),
            };
            let now = left.len().min(pages * per_page);
            self.book_copies(page, pages as u32, now as u32, cause);
            self.last_done = self.last_done.max(done.at);
            copied += now;
            match error {
                None => {}
                Some(FlashError::ProgramFailed(bad)) => {
                    self.leave_bad_copy(bad);
                    break;
                }
                Some(FlashError::Uncorrectable(rotten))
                    if self.give_up(rotten, &left[now..], &mut entries[now..]) => {}
                Some(e) => return Err(self.poison(e.into())),
            }
        }
        Ok(copied)
    }

    /// Submits copies of `slots` to page `first` and those after it; the last page may be padded.
    fn submit_copies(
        &self,
        first: PageAddr,
        slots: &[SlotAddr],
        entries: &[Oob],
    ) -> Result<Done, BatchError> {
        let per_page = self.geometry.slots_per_page() as usize;
        let to = self.geometry.slot_of(first, 0).0;
        let mut oob = [0; BATCH_SLOTS * OOB_ENTRY_BYTES];
        let mut parts = [Source::Pad(0); BATCH_SLOTS + 1];
        for (i, (slot, entry)) in slots.iter().zip(entries).enumerate() {
            let (page, index) = self.geometry.page_of_slot(*slot);
            let (offset, bytes) = (index * SECTOR_BYTES as u32, SECTOR_BYTES as u32);
            parts[i] = match entry.data_crc {
                LOST => Source::Pad(bytes),
                _ => Source::Copy { page, offset, bytes },
            };
            entry.encode(SlotAddr(to + i as u32), &mut oob[i * OOB_ENTRY_BYTES..]);
        }
        let pages = slots.len().div_ceil(per_page);
        parts[slots.len()] = Source::Pad(((pages * per_page - slots.len()) * SECTOR_BYTES) as u32);
        let mut ops: [FlashOp<'_>; BATCH_SLOTS] = std::array::from_fn(|i| {
            let (from, to) = (i * per_page, slots.len().min((i + 1) * per_page));
            let with_padding = to + usize::from(i + 1 == pages);
            FlashOp::Program {
                page: first.block.page(first.page + i as u32),
                parts: parts.get(from..with_padding).unwrap_or_default(),
                oob: oob.get(from * OOB_ENTRY_BYTES..to * OOB_ENTRY_BYTES).unwrap_or_default(),
                seeds: &[],
            }
        });
        self.flash.submit(IoClass::Background, &mut ops[..pages])
    }

    /// Accounts for copies programmed to `pages` pages from `first` on, with `slots` slots.
    fn book_copies(&mut self, first: PageAddr, pages: u32, slots: u32, cause: Cause) {
        let die = self.geometry.die_of(first.block) as usize;
        self.collectors[die].frontier.advance(pages);
        self.ledger.programmed(cause, u64::from(slots) * SECTOR_BYTES as u64);
        let padding = pages * self.geometry.slots_per_page() - slots;
        if padding > 0 {
            self.ledger.programmed(Cause::Padding, u64::from(padding) * SECTOR_BYTES as u64);
        }
    }

    /// Abandons a destination block that has gone bad. It is retired once the owners of what was copied have moved.
    fn leave_bad_copy(&mut self, page: PageAddr) {
        self.ledger.programmed(Cause::Failed, self.geometry.page_bytes.into());
        let die = self.geometry.die_of(page.block) as usize;
        self.collectors[die].frontier.abandon();
    }

    /// Marks as [`LOST`] the slots of page `rotten` that cannot be read. False if there are none.
    fn give_up(&self, rotten: PageAddr, slots: &[SlotAddr], entries: &mut [Oob]) -> bool {
        let mut found = false;
        for (slot, entry) in slots.iter().zip(entries) {
            let (page, index) = self.geometry.page_of_slot(*slot);
            if page == rotten && entry.data_crc != LOST {
                let offset = index * SECTOR_BYTES as u32;
                let read =
                    self.flash.read(IoClass::Background, page, offset, &mut [0; SECTOR_BYTES], &mut []);
                if matches!(read, Err(FlashError::Uncorrectable(_))) {
                    entry.data_crc = LOST;
                    found = true;
                }
            }
        }
        found
    }
}
