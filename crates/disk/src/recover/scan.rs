//! Scans for events after the checkpoint: slots on flash, staged slots and log records, each with its number.

use super::Recovery;
use super::replay::describe;
use crate::blocks::State;
use crate::format::log_slot::{LogSlot, LogWriter, Record};
use crate::format::nvram::NvramImage;
use crate::format::oob::{Oob, SlotKind};
use crate::map::Owner;
use crate::read::{read_entries, read_named};
use crate::room::slots_of;
use vellum_base::hash::{FixedMap, FixedSet};
use vellum_base::{BlockAddr, BlockState, Cause, Error, Flash, PageAddr, Result, SECTOR_BYTES, SlotAddr};

/// An event after the checkpoint.
pub(super) enum Event {
    Data { sector: u32, slot: SlotAddr, crc: u32 },
    Log { log: u32, slot: SlotAddr },
    Record { log: u32, entry: usize, record: Record },
}

/// Slots on flash with numbers beyond the checkpoint.
pub(super) struct Scan {
    pub events: Vec<(u64, Event)>,
    /// Bytes by cause, of slots beyond the number of the ledger.
    pub beyond_ledger: [u64; Cause::COUNT],
    pub last_seq: u64,
}

impl Scan {
    /// The data slots found, with their number and checksum.
    pub(super) fn found(&self) -> FixedMap<SlotAddr, (u64, u32)> {
        let data = |(seq, event): &(u64, Event)| match event {
            Event::Data { slot, crc, .. } => Some((*slot, (*seq, *crc))),
            _ => None,
        };
        self.events.iter().filter_map(data).collect()
    }
}

impl Recovery {
    /// Finds all slots with numbers beyond the checkpoint.
    pub(super) fn scan(&mut self) -> Result<Scan> {
        let mut scan = Scan { events: Vec::new(), beyond_ledger: [0; Cause::COUNT], last_seq: 0 };
        let geometry = self.ftl.geometry;
        for block in (0..geometry.blocks()).map(BlockAddr) {
            let report = self.ftl.flash.report(block);
            // The NVRAM image's open page may be the first of its block.
            let opens = |i: &NvramImage| !i.staged.is_empty() && i.open.is_some_and(|(b, _)| b == block.0);
            let staged = self.images.iter().any(opens);
            let state = match (report.state, report.pages_written) {
                (BlockState::Bad, 0) if !staged => State::Bad,
                (BlockState::Good, 0) if !staged => State::Free,
                _ => State::Open,
            };
            self.ftl.blocks.load(block, state, report.erase_count);
            if report.pages_written > 0 {
                self.scan_block(block, report.pages_written, &mut scan)?;
            }
        }
        Ok(scan)
    }

    /// Scans a block from its end, until a page older than the checkpoint.
    fn scan_block(&mut self, block: BlockAddr, written: u32, scan: &mut Scan) -> Result<()> {
        const STRIDE: u32 = 64;
        let mut to = written;
        let mut stride = 1;
        let mut others_follow = false;
        while to > 0 {
            let from = to.saturating_sub(stride);
            let pages = read_entries(&*self.ftl.flash, block, from, to)?;
            for (i, entries) in pages.iter().enumerate().rev() {
                let page = block.page(from + i as u32);
                // Not according to the number of written pages: in a half-erased block that is all of them.
                let is_last = !others_follow;
                let newest = entries.iter().flatten().map(|e| e.seq).max();
                if newest.is_some_and(|seq| seq <= self.ftl.log.checkpoint_seq) {
                    return Ok(());
                }
                // Only the last page of a block can be torn: pages are programmed in order.
                if newest.is_none() && others_follow {
                    self.suspects.insert(page);
                }
                others_follow |= entries.iter().flatten().any(|e| e.kind != SlotKind::Root);
                self.add_page(page, entries, is_last, scan);
            }
            to = from;
            stride = STRIDE;
        }
        Ok(())
    }

    fn add_page(&mut self, page: PageAddr, entries: &[Option<Oob>], last_of_block: bool, scan: &mut Scan) {
        for (index, entry) in entries.iter().enumerate() {
            let Some(entry) = entry else { continue };
            scan.last_seq = scan.last_seq.max(entry.seq);
            if entry.seq > self.ledger_seq {
                scan.beyond_ledger[entry.cause as usize] += SECTOR_BYTES as u64;
            }
            let slot = self.ftl.geometry.slot_of(page, index as u32);
            let event = match entry.kind {
                SlotKind::Data if u64::from(entry.id) < self.ftl.map.sectors() => {
                    Event::Data { sector: entry.id, slot, crc: entry.data_crc }
                }
                SlotKind::Log => Event::Log { log: entry.id, slot },
                _ => continue,
            };
            // Data not covered by a flush may be torn.
            let vouched = entry.seq <= self.durable_seq && !last_of_block;
            let mut bytes = [0; SECTOR_BYTES];
            if entry.seq > self.ftl.log.checkpoint_seq && (vouched || self.readable(slot, &mut bytes)) {
                scan.events.push((entry.seq, event));
            }
        }
    }

    fn readable(&self, slot: SlotAddr, bytes: &mut [u8; SECTOR_BYTES]) -> bool {
        read_named(&*self.ftl.flash, slot, bytes).is_ok()
    }

    /// Adds the staged slots of the NVRAM images, as if they had reached flash.
    pub(super) fn add_image_events(&mut self, scan: &mut Scan) {
        for image in &self.images {
            scan.last_seq = scan.last_seq.max(image.durable_seq);
            let Some((block, page)) = image.open.filter(|(b, _)| *b < self.ftl.geometry.blocks()) else {
                continue;
            };
            for (index, (entry, _)) in image.staged.iter().enumerate() {
                let slot = self.ftl.geometry.slot_of(BlockAddr(block).page(page), index as u32);
                let event = match entry.kind {
                    SlotKind::Data if u64::from(entry.id) < self.ftl.map.sectors() => {
                        Event::Data { sector: entry.id, slot, crc: entry.data_crc }
                    }
                    SlotKind::Log => Event::Log { log: entry.id, slot },
                    _ => continue,
                };
                if entry.seq > self.ftl.log.checkpoint_seq {
                    scan.events.push((entry.seq, event));
                }
            }
        }
    }

    /// Decodes the log slots beyond the checkpoint, wherever they are, and adds their records.
    pub(super) fn add_log_records(&mut self, scan: &mut Scan) -> Result<()> {
        let of_log = |(_, event): &(u64, Event)| match event {
            Event::Log { log, slot } => Some((*log, *slot)),
            _ => None,
        };
        let stored: Vec<(u32, SlotAddr)> = scan.events.iter().filter_map(of_log).collect();
        let mut bytes = [0; SECTOR_BYTES];
        let (mut seen, mut unreadable) = (FixedSet::default(), Vec::new());
        for (log, slot) in stored {
            if self.slot_bytes(slot, &mut bytes).is_err() {
                unreadable.push((log, slot));
                continue;
            }
            if let Some(decoded) = LogSlot::decode(&bytes).filter(|d| d.log == log)
                && seen.insert((log, decoded.base_seq))
            {
                let newest = self.found_logs.entry(log).or_default();
                *newest = describe(&decoded).max(*newest);
                add_records(&decoded, self.ftl.log.checkpoint_seq, scan);
            }
        }
        // If collection copied a log slot, one readable copy is enough.
        for (_, slot) in unreadable.iter().filter(|(log, _)| !self.found_logs.contains_key(log)) {
            self.suspects.insert(self.ftl.geometry.page_of_slot(*slot).0);
        }
        self.add_image_logs(scan)
    }

    /// Refuses a disk on which a page with events beyond the checkpoint has rotted: data flushed there is lost, and the
    /// sectors affected are unknown. If nothing in its block is needed, except what NVRAM holds, the block may only
    /// have been half erased.
    pub(super) fn refuse_rot(&self) -> Result<()> {
        let is_needed = |slot| self.ftl.map.owner(slot) != Owner::Nobody && self.only_staged(slot).is_none();
        let slots = |block| slots_of(&self.ftl.geometry, block);
        match self.suspects.iter().find(|page| slots(page.block).any(is_needed)) {
            Some(page) => Err(Error::corrupt(format!(
                "{page} cannot be read, and what was flushed there since the last checkpoint is unknown"
            ))),
            None => Ok(()),
        }
    }

    /// Adds the log slots in NVRAM that did not reach flash: the newest is continued, an older one stored again.
    fn add_image_logs(&mut self, scan: &mut Scan) -> Result<()> {
        let logs: Vec<Vec<u8>> = self.images.iter().rev().map(|i| i.log.clone()).collect();
        for (age, bytes) in logs.iter().enumerate() {
            let Some(decoded) = LogSlot::decode(bytes) else { continue };
            // It is on flash after all, found by the scan or in the checkpoint; or the number was reused since.
            if self.log_described(decoded.log).is_some_and(|(base, _)| base >= decoded.base_seq) {
                continue;
            }
            add_records(&decoded, self.ftl.log.checkpoint_seq, scan);
            self.found_logs.insert(decoded.log, describe(&decoded));
            self.ftl.log.ensure(decoded.log)?.slot = None;
            if age == 0 {
                self.ftl.log.open = LogWriter::resume(bytes);
            } else {
                self.ftl.log.load_sealed(decoded.log, bytes.clone());
            }
        }
        Ok(())
    }

    /// The bytes of a slot, from flash or from an NVRAM image's open page.
    pub(super) fn slot_bytes(&self, slot: SlotAddr, out: &mut [u8; SECTOR_BYTES]) -> Result<()> {
        match self.only_staged(slot) {
            Some(data) => out.copy_from_slice(data),
            None => {
                read_named(&*self.ftl.flash, slot, out)?;
            }
        }
        Ok(())
    }

    /// The staged bytes of a slot whose page was still open, and that did not reach flash.
    fn only_staged(&self, slot: SlotAddr) -> Option<&[u8]> {
        let (page, index) = self.ftl.geometry.page_of_slot(slot);
        let at_page = |i: &&NvramImage| i.open == Some((page.block.0, page.page));
        let image = self.images.iter().rev().find(at_page)?;
        let (entry, data) = image.staged.get(index as usize)?;
        (!is_on_flash(&*self.ftl.flash, slot, entry)).then_some(&data[..])
    }
}

/// True if a staged slot was programmed at its intended address. Older contents there are from before the block's
/// erase.
pub(super) fn is_on_flash(flash: &dyn Flash, slot: SlotAddr, staged: &Oob) -> bool {
    read_named(flash, slot, &mut [0; SECTOR_BYTES]).is_ok_and(|entry| entry.seq >= staged.seq)
}

fn add_records(log: &LogSlot<'_>, after: u64, scan: &mut Scan) {
    let mut entry = 0;
    for (seq, record) in log.records() {
        scan.last_seq = scan.last_seq.max(seq);
        if seq > after {
            scan.events.push((seq, Event::Record { log: log.log, entry, record }));
        }
        entry += usize::from(matches!(record, Record::Small { .. }));
    }
}
