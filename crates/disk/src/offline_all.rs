//! Deduplication of the whole disk without a table: `disk scrub --dedup`.
//!
//! Only spare areas are read to find candidates. An out-of-band entry has the CRC-32C of the slot's plain bytes,
//! however the flash below scrambles; slots of equal checksum are compared. If there are more slots than fit into
//! [`crate::Options::dedup_scan_bytes`], each pass processes a range of the checksums.
//!
//! Invariants:
//! 1. What is found without the lock is a hint: owners, bytes and room are checked again under it.
//! 2. Work and memory are bounded even if somebody constructs equal checksums: a slot is compared with at most
//!    [`LEADERS_MAX`] others, and a pass that would need more memory skips slots.

use crate::disk::Disk;
use crate::format::oob::{Oob, SlotKind};
use crate::format::place::Place;
use crate::ftl::Ftl;
use crate::map::Owner;
use crate::read::read_spare;
use serde::Serialize;
use std::ops::RangeInclusive;
use vellum_base::{BlockAddr, IoClass, Nanos, Result, SECTOR_BYTES, SlotAddr};

const HINT_BYTES: u64 = size_of::<Hint>() as u64;
/// Maximum number of different contents of one checksum that others are compared with.
const LEADERS_MAX: usize = 4;
/// Slots compared per acquisition of the lock.
const SLOTS_AT_ONCE: usize = 32;

/// Results of [`Disk::dedup_all`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DedupReport {
    /// Slots whose spare areas were read.
    pub slots_seen: u64,
    /// Of these, slots skipped because there were more with equal checksums than fit in memory.
    pub slots_left_out: u64,
    /// Slots read because their checksum equals that of another.
    pub slots_compared: u64,
    /// Sectors that now share the slot of another.
    pub sectors_remapped: u64,
    /// Bytes of flash freed: they are regained when their erase blocks are collected.
    pub bytes_freed: u64,
}

/// A hint: checksum of a slot, and the slot.
type Hint = (u32, SlotAddr);

impl Disk {
    /// Finds duplicate slots and merges them. `progress` gets the number of slots done, and of all slots.
    pub fn dedup_all(&self, mut progress: impl FnMut(u64, u64)) -> Result<DedupReport> {
        let (geometry, memory_bytes) = {
            let ftl = self.ftl.lock();
            (ftl.geometry, ftl.options.dedup_scan_bytes)
        };
        // Passes are not of equal size: half of the memory is a reserve for larger ones.
        let hints_max = (memory_bytes / HINT_BYTES).max(SLOTS_AT_ONCE as u64) as usize;
        let passes = (2 * geometry.slots()).div_ceil(hints_max as u64).min(1 << 32);
        let mut report = DedupReport::default();
        for pass in 0..passes {
            let checksums = part(pass, passes);
            let mut hints = Vec::with_capacity(hints_max.min(geometry.slots() as usize));
            for block in 0..geometry.blocks() {
                let done = u64::from(block) * u64::from(geometry.slots_per_block());
                progress((pass * geometry.slots() + done) / passes, geometry.slots());
                let found = self.hints_of(BlockAddr(block), &checksums)?;
                report.slots_seen += found.len() as u64;
                let room = found.len().min(hints_max - hints.len());
                report.slots_left_out += (found.len() - room) as u64;
                hints.extend_from_slice(&found[..room]);
            }
            hints.sort_unstable();
            for alike in hints.chunk_by(|a, b| a.0 == b.0).filter(|alike| alike.len() > 1) {
                self.merge_alike(alike, &mut report)?;
            }
        }
        progress(geometry.slots(), geometry.slots());
        Ok(report)
    }

    /// The slots of a block that are owned by sectors and have one of these checksums.
    fn hints_of(&self, block: BlockAddr, checksums: &RangeInclusive<u32>) -> Result<Vec<Hint>> {
        if self.ftl.lock().blocks.valid(block) == 0 {
            return Ok(Vec::new());
        }
        let written = self.flash.report(block).pages_written;
        let (entries, done) = read_spare(&*self.flash, IoClass::Background, block, 0, written)?;
        self.sleep_until(done);
        let ftl = self.ftl.lock();
        let first = block.0 * ftl.geometry.slots_per_block();
        let slots = (first..).map(SlotAddr).zip(entries.into_iter().flatten());
        let of_sectors = |entry: Oob| (entry.kind == SlotKind::Data).then_some(entry.data_crc);
        let hint = |(slot, entry): (SlotAddr, Option<Oob>)| {
            let checksum = entry.and_then(of_sectors).filter(|checksum| checksums.contains(checksum))?;
            matches!(ftl.map.owner(slot), Owner::Sector(_)).then_some((checksum, slot))
        };
        Ok(slots.filter_map(hint).collect())
    }

    /// Compares slots of equal checksum, and merges those with equal contents.
    fn merge_alike(&self, alike: &[Hint], report: &mut DedupReport) -> Result<()> {
        let mut leaders: Vec<SlotAddr> = Vec::new();
        for some in alike.chunks(SLOTS_AT_ONCE) {
            let done = {
                let mut ftl = self.lock_for_write()?;
                ftl.wait_until = Nanos::ZERO;
                ftl.merge_some(some, &mut leaders, report)?;
                ftl.wait_until
            };
            self.sleep_until(done);
        }
        Ok(())
    }
}

impl Ftl {
    /// The bytes of a slot owned by sectors, if they can be read.
    fn read_owned(&mut self, slot: SlotAddr) -> Result<Option<Box<[u8; SECTOR_BYTES]>>> {
        match self.map.owner(slot) {
            Owner::Sector(first) if !self.keeping.keeps(first) => self.read_or_none(Place::slot(slot)),
            _ => Ok(None),
        }
    }

    fn merge_some(
        &mut self,
        slots: &[Hint],
        leaders: &mut Vec<SlotAddr>,
        report: &mut DedupReport,
    ) -> Result<()> {
        // The lock was released in between, so they are read again.
        let mut led = Vec::new();
        for leader in leaders.drain(..) {
            led.extend(self.read_owned(leader)?.map(|data| (leader, data)));
        }
        for (_, slot) in slots {
            let Some(data) = self.read_owned(*slot)? else { continue };
            report.slots_compared += 1;
            let crc = vellum_codes::crc32c(&*data);
            match led.iter().position(|(leader, bytes)| leader != slot && *bytes == data) {
                Some(at) => {
                    let moved = self.merge(Place::slot(*slot), Place::slot(led[at].0), crc)?;
                    report.sectors_remapped += moved;
                    if self.map.owner(*slot) == Owner::Nobody {
                        report.bytes_freed += SECTOR_BYTES as u64;
                    } else {
                        led[at].0 = *slot; // the other takes no more owners
                    }
                }
                None if led.len() < LEADERS_MAX => led.push((*slot, data)),
                None => {}
            }
            self.settle()?;
        }
        leaders.extend(led.into_iter().map(|(leader, _)| leader));
        Ok(())
    }
}

/// The range of checksums of a pass.
fn part(pass: u64, passes: u64) -> RangeInclusive<u32> {
    let bound = |pass: u64| (pass << 32) / passes;
    bound(pass) as u32..=(bound(pass + 1) - 1) as u32
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn passes_cover_every_checksum_once() {
        for passes in [1u64, 2, 3, 7, 1000] {
            let parts: Vec<_> = (0..passes).map(|pass| part(pass, passes)).collect();
            assert_eq!((*parts[0].start(), *parts[passes as usize - 1].end()), (0, u32::MAX));
            assert!(parts.windows(2).all(|two| u64::from(*two[0].end()) + 1 == u64::from(*two[1].start())));
        }
    }
}
