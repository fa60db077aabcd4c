//! Reading the contents of a place, and verifying them.

use crate::format::oob::{OOB_ENTRY_BYTES, Oob};
use crate::format::place::{At, Place};
use crate::ftl::Ftl;
use vellum_base::{
    BlockAddr, Done, Error, Flash, FlashOp, IoClass, Nanos, PageAddr, Result, SECTOR_BYTES, SlotAddr,
};
use vellum_codes::lines;

impl Ftl {
    /// Reads the bytes at a place.
    pub(crate) fn read_place(&mut self, place: Place, class: IoClass, out: &mut [u8]) -> Result<()> {
        match place.at() {
            At::Hole | At::Zero => out.fill(0),
            At::Slot(slot) => self.read_slot(slot, class, out)?,
            At::Packed { log, entry } => self.read_packed(log, entry, class, out)?,
        }
        Ok(())
    }

    fn read_packed(&mut self, log: u32, entry: u32, class: IoClass, out: &mut [u8]) -> Result<()> {
        let gone = || {
            Error::corrupt(format!("a packed sector names entry {entry} of log slot {log}: no such entry"))
        };
        let packed = *self.log.packed(log, entry).ok_or_else(gone)?;
        let unpack = |bytes: &[u8], out: &mut [u8]| {
            lines::unpack(bytes, out)
                .map_err(|e| Error::corrupt(format!("log slot {log}, entry {entry}: {e}")))
        };
        if let Some(bytes) = self.log.in_memory(log, &packed) {
            return unpack(bytes, out);
        }
        let slot = self.log.info(log).and_then(|i| i.slot).ok_or_else(gone)?;
        let mut whole = [0; SECTOR_BYTES];
        self.read_slot(slot, class, &mut whole)?;
        let (from, to) = (packed.offset as usize, packed.offset as usize + packed.length as usize);
        unpack(whole.get(from..to).ok_or_else(gone)?, out)
    }

    /// Reads a slot and verifies its checksum.
    pub(crate) fn read_slot(&mut self, slot: SlotAddr, class: IoClass, out: &mut [u8]) -> Result<()> {
        let (page, index) = self.geometry.page_of_slot(slot);
        if let Some(bytes) = self.page.slot(page, index) {
            out.copy_from_slice(bytes);
            return Ok(());
        }
        let done = read_checked(&*self.flash, class, page, index, out)?;
        self.wait_until = self.wait_until.max(done);
        Ok(())
    }
}

/// Reads a slot from flash and verifies it against its out-of-band entry. Returns when the data is available.
pub(crate) fn read_checked(
    flash: &dyn Flash,
    class: IoClass,
    page: PageAddr,
    index: u32,
    out: &mut [u8],
) -> Result<Nanos> {
    read_with_entry(flash, class, page, index, out).map(|(_, done)| done.at)
}

/// The same, also returning the entry, and how many bits were corrected.
pub(crate) fn read_with_entry(
    flash: &dyn Flash,
    class: IoClass,
    page: PageAddr,
    index: u32,
    out: &mut [u8],
) -> Result<(Oob, Done)> {
    let mut oob = [0; crate::OOB_BYTES_MAX];
    let oob = &mut oob[..flash.geometry().oob_bytes as usize];
    let done = flash.read(class, page, index * SECTOR_BYTES as u32, out, oob)?;
    let slot = flash.geometry().slot_of(page, index);
    Oob::decode(&oob[index as usize * OOB_ENTRY_BYTES..], slot)
        .filter(|entry| entry.data_crc == vellum_codes::crc32c(out))
        .map(|entry| (entry, done))
        .ok_or_else(|| Error::corrupt(format!("slot {index} of {page} does not match its checksum")))
}

/// Reads slot `slot`, which metadata refers to, with its out-of-band entry.
pub(crate) fn read_named(flash: &dyn Flash, slot: SlotAddr, out: &mut [u8; SECTOR_BYTES]) -> Result<Oob> {
    let geometry = flash.geometry();
    if u64::from(slot.0) >= geometry.slots() {
        return Err(Error::corrupt(format!("slot {} is beyond the device", slot.0)));
    }
    let (page, index) = geometry.page_of_slot(slot);
    read_with_entry(flash, IoClass::Metadata, page, index, out).map(|(entry, _)| entry)
}

/// Out-of-band entries of pages `from` to `to` (exclusive) of a block; an unreadable page has none.
pub(crate) fn read_entries(
    flash: &dyn Flash,
    block: BlockAddr,
    from: u32,
    to: u32,
) -> Result<Vec<Vec<Option<Oob>>>> {
    read_spare(flash, IoClass::Metadata, block, from, to).map(|(entries, _)| entries)
}

/// The same, also returning when they are available.
pub(crate) fn read_spare(
    flash: &dyn Flash,
    class: IoClass,
    block: BlockAddr,
    from: u32,
    to: u32,
) -> Result<(Vec<Vec<Option<Oob>>>, Nanos)> {
    let geometry = flash.geometry();
    let oob_bytes = geometry.oob_bytes as usize;
    let mut oobs = vec![0; (to - from) as usize * oob_bytes];
    let mut ops: Vec<FlashOp<'_>> = oobs
        .chunks_exact_mut(oob_bytes)
        .enumerate()
        .map(|(i, oob)| FlashOp::Read { page: block.page(from + i as u32), offset: 0, data: &mut [], oob })
        .collect();
    let (mut begun, mut done) = (0, Nanos::ZERO);
    while begun < ops.len() {
        match flash.submit(class, &mut ops[begun..]) {
            Ok(all) => {
                done = done.max(all.at);
                break;
            }
            Err(e) if matches!(e.error, vellum_base::FlashError::Uncorrectable(_)) => {
                done = done.max(e.done.at);
                begun += e.index + 1;
            }
            Err(e) => return Err(e.error.into()),
        }
    }
    drop(ops);
    let decode = |(page, oob): (u32, &[u8])| {
        let entries = (0..geometry.slots_per_page()).zip(oob.chunks_exact(OOB_ENTRY_BYTES));
        entries.map(|(index, entry)| Oob::decode(entry, geometry.slot_of(block.page(page), index))).collect()
    };
    Ok(((from..).zip(oobs.chunks_exact(oob_bytes)).map(decode).collect(), done))
}
