//! Evidence on a flash: the out-of-band entry of every slot, without the bytes.

use crate::format::nvram::{NvramImage, area_bytes};
use crate::format::oob::{Oob, SlotKind};
use crate::read::{read_checked, read_entries};
use vellum_base::{BlockAddr, Flash, IoClass, PageAddr, Result, SECTOR_BYTES, SlotAddr};

/// Entries of all slots, and counts of those without.
pub(super) struct Evidence {
    seqs: Vec<u64>,
    ids: Vec<u32>,
    crcs: Vec<u32>,
    /// `SlotKind as u8`; 0 if there is no entry.
    kinds: Vec<u8>,
    pub pages_written: u64,
    /// Written pages without a single valid entry.
    pub unreadable_pages: u64,
    /// Highest number that may have been in those: lower than that of the next page of the block that has entries, as
    /// blocks are filled in order of numbers; unlimited if there is none.
    pub unseen_seq: u64,
    /// Entries of slots torn by a power cut: in the last written page of their block, with invalid contents.
    pub torn: Vec<Oob>,
    /// Highest number on the flash.
    pub newest_seq: u64,
}

impl Evidence {
    /// Reads the entries of all slots. Nothing up to `durable_seq` counts as torn, unless a later opening found it so.
    /// `progress` gets the number of blocks done, and of all blocks.
    pub(super) fn collect(
        flash: &dyn Flash,
        durable_seq: u64,
        progress: &mut impl FnMut(u64, u64),
    ) -> Result<Evidence> {
        let slots = flash.geometry().slots() as usize;
        let mut evidence = Evidence {
            seqs: vec![0; slots],
            ids: vec![0; slots],
            crcs: vec![0; slots],
            kinds: vec![0; slots],
            pages_written: 0,
            unreadable_pages: 0,
            unseen_seq: 0,
            torn: Vec::new(),
            newest_seq: 0,
        };
        let blocks = flash.geometry().blocks();
        for block in (0..blocks).map(BlockAddr) {
            evidence.read_block(flash, block, durable_seq)?;
            progress(u64::from(block.0) + 1, blocks.into());
        }
        Ok(evidence)
    }

    fn read_block(&mut self, flash: &dyn Flash, block: BlockAddr, durable_seq: u64) -> Result<()> {
        let written = flash.report(block).pages_written.min(flash.geometry().pages_per_block);
        if written == 0 {
            return Ok(());
        }
        self.pages_written += u64::from(written);
        let mut unseen = false;
        for (page, entries) in (0u32..).zip(read_entries(flash, block, 0, written)?) {
            match entries.iter().flatten().map(|entry| entry.seq).min() {
                None => {
                    self.unreadable_pages += 1;
                    unseen = true;
                }
                Some(next) if std::mem::take(&mut unseen) => {
                    self.unseen_seq = self.unseen_seq.max(next.saturating_sub(1));
                }
                Some(_) => {}
            }
            for (index, entry) in (0u32..).zip(entries) {
                let Some(entry) = entry else { continue };
                let (last, full) = (page + 1 == written, written == flash.geometry().pages_per_block);
                if last && (!full || entry.seq > durable_seq) && !is_sound(flash, block.page(page), index) {
                    self.torn.push(entry);
                } else {
                    self.set(flash.geometry().slot_of(block.page(page), index), &entry);
                }
            }
        }
        if unseen {
            self.unseen_seq = u64::MAX;
        }
        Ok(())
    }

    /// Sets the entry of a slot.
    pub(super) fn set(&mut self, slot: SlotAddr, entry: &Oob) {
        self.seqs[slot.index()] = entry.seq;
        self.ids[slot.index()] = entry.id;
        self.crcs[slot.index()] = entry.data_crc;
        self.kinds[slot.index()] = entry.kind as u8;
        self.newest_seq = self.newest_seq.max(entry.seq);
    }

    /// The number of a slot; 0 if it has no entry.
    pub(super) fn seq_of(&self, slot: SlotAddr) -> u64 {
        self.seqs[slot.index()]
    }

    /// The checksum of a slot's bytes, according to its entry.
    pub(super) fn crc_of(&self, slot: SlotAddr) -> u32 {
        self.crcs.get(slot.index()).copied().unwrap_or(0)
    }

    /// Number and id of a slot if it is of `kind`.
    pub(super) fn of_kind(&self, slot: SlotAddr, kind: SlotKind) -> Option<(u64, u32)> {
        let at = slot.index();
        (self.kinds.get(at).copied() == Some(kind as u8)).then(|| (self.seqs[at], self.ids[at]))
    }

    /// All slots of a kind: address, number, id.
    pub(super) fn all_of(&self, kind: SlotKind) -> impl Iterator<Item = (SlotAddr, u64, u32)> + '_ {
        (0..self.kinds.len() as u32).map(SlotAddr).filter_map(move |slot| {
            let (seq, id) = self.of_kind(slot, kind)?;
            Some((slot, seq, id))
        })
    }
}

fn is_sound(flash: &dyn Flash, page: PageAddr, index: u32) -> bool {
    let mut bytes = [0; SECTOR_BYTES];
    read_checked(flash, IoClass::Metadata, page, index, &mut bytes).is_ok()
}

/// Valid NVRAM images, newest first; of the disk `uuid`, if that is known.
pub(super) fn nvram_images(flash: &dyn Flash, uuid: Option<[u8; 16]>) -> Result<Vec<NvramImage>> {
    let bytes = area_bytes(flash.geometry().slots_per_page());
    let is_ours = |image: &NvramImage| uuid.is_none_or(|u| u == image.uuid) && image.fits(flash.geometry());
    let mut images = Vec::new();
    if let Some(nvram) = flash.nvram().filter(|n| n.bytes() >= 2 * bytes) {
        let mut area = vec![0; bytes];
        for offset in [0, bytes] {
            nvram.read(offset, &mut area)?;
            images.extend(NvramImage::decode(&area).filter(|image| is_ours(image)));
        }
    }
    images.sort_by_key(|image| std::cmp::Reverse(image.generation));
    Ok(images)
}
