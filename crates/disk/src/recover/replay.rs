//! Replays the events after the checkpoint, in order. A record whose target never reached flash did not take effect.

use super::Recovery;
use super::scan::Event;
use crate::format::log_slot::{LogSlot, Record};
use crate::format::place::{At, PACKED_ENTRIES_MAX, Place};
use crate::read::read_entries;
use vellum_base::{BlockState, Result, SECTOR_BYTES, SlotAddr};

impl Recovery {
    /// Applies the events in order. A record whose target never reached flash did not take effect.
    pub(super) fn apply(&mut self, events: &[(u64, Event)]) -> Result<()> {
        for (seq, event) in events {
            match event {
                Event::Data { sector, slot, .. } => self.set(*sector, Place::slot(*slot)),
                Event::Log { log, slot } => {
                    self.ftl.log.ensure(*log)?.slot = Some(*slot);
                    self.ftl.nodes.mark_log(*log);
                }
                Event::Record { log, entry, record } => {
                    let info = self.ftl.log.ensure(*log)?;
                    info.last_seq = info.last_seq.max(*seq);
                    self.apply_record(*seq, *log, *entry, *record);
                }
            }
        }
        Ok(())
    }

    fn apply_record(&mut self, seq: u64, log: u32, entry: usize, record: Record) {
        let sectors = self.ftl.map.sectors();
        match record {
            Record::Map { sector, place, check } if u64::from(sector) < sectors => {
                match self.existed(place, seq, check) {
                    true => self.set(sector, place),
                    false => drop(self.undone.insert(sector)),
                }
            }
            Record::Run { first, place, count } if u64::from(first) + u64::from(count) <= sectors => {
                for sector in first..first + count {
                    self.set(sector, if place == Place::ZERO { Place::ZERO } else { Place::HOLE });
                }
            }
            Record::Small { sector, .. } if u64::from(sector) < sectors && entry < PACKED_ENTRIES_MAX => {
                self.set(sector, Place::packed(log, entry));
            }
            _ => {}
        }
    }

    fn set(&mut self, sector: u32, place: Place) {
        self.undone.remove(&sector);
        self.ftl.map.load(sector, place);
        self.ftl.nodes.mark_sector(sector);
    }

    /// True if the place named by record `seq` held the intended bytes. If their program was lost in the cut, something
    /// older may be there; if an earlier crash had undone the record, something newer.
    fn existed(&mut self, place: Place, seq: u64, check: u32) -> bool {
        match place.at() {
            At::Slot(slot) if u64::from(slot.0) < self.ftl.geometry.slots() => {
                let found = self.found.get(&slot).copied();
                let held = |(stored, crc)| stored < seq && crc == check;
                found.map_or_else(|| self.existed_before(slot, seq, held), held)
            }
            At::Packed { log, entry } => match self.log_described(log) {
                Some((base, packed)) => base < seq && base as u32 == check && entry < packed,
                None => {
                    let slot = self.ftl.log.info(log).and_then(|i| i.slot);
                    slot.is_some_and(|slot| self.is_damaged(slot, seq))
                }
            },
            _ => false,
        }
    }

    /// The same for a slot that must be older than the checkpoint.
    fn existed_before(&mut self, slot: SlotAddr, seq: u64, held: impl Fn((u64, u32)) -> bool) -> bool {
        let (page, index) = self.ftl.geometry.page_of_slot(slot);
        let pages = read_entries(&*self.ftl.flash, page.block, page.page, page.page + 1);
        let entries = pages.map_or(Vec::new(), |mut pages| pages.remove(0));
        match entries.get(index as usize).copied().flatten() {
            Some(entry) => entry.seq <= self.ftl.log.checkpoint_seq && held((entry.seq, entry.data_crc)),
            None => entries.iter().all(Option::is_none) && self.is_damaged(slot, seq),
        }
    }

    /// True if the unreadable slot named by record `seq` has rotted: then its sectors are damaged, rather than of an
    /// earlier version. False if its program may have been torn, or never begun, since the preceding erase was torn. A
    /// page that is not the last of its block is checked again once it is known whether the block is needed. The last
    /// page of a bad block may have failed to program; its intended contents moved, and are vouched for by the records
    /// of the move, not by this one.
    fn is_damaged(&mut self, slot: SlotAddr, seq: u64) -> bool {
        let (page, _) = self.ftl.geometry.page_of_slot(slot);
        let report = self.ftl.flash.report(page.block);
        let written = report.pages_written;
        if report.state == BlockState::Bad && page.page + 1 == written {
            return false;
        }
        let is_finished = seq <= self.finished_seq;
        if !is_finished && page.page + 1 < written {
            self.suspects.insert(page);
        }
        is_finished && page.page < written
    }

    /// Base and number of packed sectors of a log slot, wherever it is.
    pub(super) fn log_described(&mut self, log: u32) -> Option<(u64, u32)> {
        if let Some(described) = self.found_logs.get(&log) {
            return Some(*described);
        }
        let slot = self.ftl.log.info(log)?.slot?;
        let mut bytes = [0; SECTOR_BYTES];
        self.slot_bytes(slot, &mut bytes).ok()?;
        let described = describe(&LogSlot::decode(&bytes).filter(|d| d.log == log)?);
        self.found_logs.insert(log, described);
        Some(described)
    }
}

/// The base of a log slot's record numbers, and the number of sectors it packs.
pub(super) fn describe(log: &LogSlot<'_>) -> (u64, u32) {
    let packed = log.records().filter(|(_, r)| matches!(r, Record::Small { .. })).count();
    (log.base_seq, packed as u32)
}
