//! `check` verifies the consistency of a disk; `scrub` verifies that everything can be read.

use crate::disk::{Disk, refuse_poisoned};
use crate::ftl::Ftl;
use crate::map::Owner;
use crate::read::read_with_entry;
use crate::room::slots_of;
use serde::Serialize;
use std::ops::Range;
use vellum_base::hash::FixedSet;
use vellum_base::{IoClass, Result, SECTOR_BYTES, SlotAddr};

/// Maximum number of problems and damaged sectors listed; further ones are only counted.
const LISTED_MAX: usize = 100;
/// Maximum number of ranges of damaged sectors listed.
const RANGES_MAX: usize = 1000;
/// Slots processed per acquisition of the lock.
const SCRUB_SLOTS: u32 = 256;
/// Results of `check`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckReport {
    /// Slots read and compared with their checksums.
    pub slots_read: u64,
    /// Sectors whose bytes cannot be read, ascending; the first 100.
    pub damaged_sectors: Vec<u64>,
    /// The same as (first sector, number of sectors); the first 1000.
    pub damaged_ranges: Vec<(u64, u64)>,
    /// Their total number, including those not listed.
    pub damaged_count: u64,
    /// Inconsistencies of the map with what it is computed from, and of the ledger with the device.
    pub problems: Vec<String>,
    /// Slots moved because they needed so many bits corrected that they are about to fail
    /// ([`Flash::failing_bits`](vellum_base::Flash::failing_bits)).
    pub refreshed: u64,
    /// Bits that the flash corrected during the check.
    pub bits_corrected: u64,
    /// Reads during the check that it could not correct.
    pub reads_uncorrectable: u64,
}

impl CheckReport {
    /// True if no problems were found.
    pub fn is_clean(&self) -> bool {
        self.damaged_count == 0 && self.problems.is_empty()
    }

    fn problem(&mut self, what: String) {
        if self.problems.len() < LISTED_MAX {
            self.problems.push(what);
        }
    }

    /// Adds a damaged sector. Sectors are visited in the order of their places, so they arrive unsorted.
    fn damaged(&mut self, sector: u32) {
        let sector = u64::from(sector);
        self.damaged_count += 1;
        if let Err(at) = self.damaged_sectors.binary_search(&sector) {
            self.damaged_sectors.insert(at, sector);
            self.damaged_sectors.truncate(LISTED_MAX);
        }
        insert(&mut self.damaged_ranges, sector);
        self.damaged_ranges.truncate(RANGES_MAX);
    }
}

/// Adds a sector to sorted ranges that do not touch.
fn insert(ranges: &mut Vec<(u64, u64)>, sector: u64) {
    let after = ranges.partition_point(|(first, _)| *first <= sector);
    let end = after.checked_sub(1).map(|before| ranges[before].0 + ranges[before].1);
    let follows = end.is_some_and(|end| end >= sector);
    let precedes = ranges.get(after).is_some_and(|(first, _)| *first == sector + 1);
    match (follows, precedes) {
        (true, _) if end > Some(sector) => {}
        (true, true) => ranges[after - 1].1 += 1 + ranges.remove(after).1,
        (true, false) => ranges[after - 1].1 += 1,
        (false, true) => ranges[after] = (sector, ranges[after].1 + 1),
        (false, false) => ranges.insert(after, (sector, 1)),
    }
}

impl Disk {
    /// Compares the map with its definition and the ledger with the device, and, with `read`, reads every slot. Writes
    /// nothing. `progress` gets the number of slots done, and of all slots.
    pub fn check(&self, read: bool, mut progress: impl FnMut(u64, u64)) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        self.ftl.lock().check_structures(&mut report);
        if read {
            self.read_all(&mut report, false, &mut progress)?;
        }
        Ok(report)
    }

    /// Reads every valid slot; moves those that needed nearly as many bits corrected as is possible.
    pub fn scrub(&self, mut progress: impl FnMut(u64, u64)) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        self.read_all(&mut report, true, &mut progress)?;
        Ok(report)
    }

    /// A step of an incremental scrub: reads up to `slots` slots from `first` as [`Disk::scrub`] does, and adds the
    /// results to `report`. Returns where the next step begins: slot 0 after the last.
    pub fn scrub_some(&self, first: SlotAddr, slots: u32, report: &mut CheckReport) -> Result<SlotAddr> {
        let all = self.ftl.lock().geometry.slots() as u32;
        let end = first.0.saturating_add(slots.max(1)).min(all);
        self.read_some(first.0..end, true, report)?;
        Ok(SlotAddr(if end < all { end } else { 0 }))
    }

    fn read_all(
        &self,
        report: &mut CheckReport,
        refresh: bool,
        progress: &mut impl FnMut(u64, u64),
    ) -> Result<()> {
        let slots = self.ftl.lock().geometry.slots() as u32;
        for first in (0..slots).step_by(SCRUB_SLOTS as usize) {
            self.read_some(first..(first + SCRUB_SLOTS).min(slots), refresh, report)?;
            progress(first.into(), slots.into());
        }
        progress(slots.into(), slots.into());
        Ok(())
    }

    fn read_some(&self, slots: Range<u32>, refresh: bool, report: &mut CheckReport) -> Result<()> {
        let done = {
            let mut ftl = self.ftl.lock();
            if refresh {
                refuse_poisoned(&ftl)?;
            }
            let before = ftl.flash.counters();
            for slot in slots {
                ftl.check_slot(SlotAddr(slot), refresh, report)?;
            }
            if refresh {
                ftl.settle()?;
            }
            let now = ftl.flash.counters();
            report.bits_corrected += now.bits_corrected - before.bits_corrected;
            report.reads_uncorrectable += now.reads_uncorrectable - before.reads_uncorrectable;
            ftl.wait_until
        };
        self.sleep_until(done);
        Ok(())
    }
}

impl Ftl {
    fn check_structures(&self, report: &mut CheckReport) {
        let is_valid = |slot: &SlotAddr| self.map.owner(*slot) != Owner::Nobody;
        let valid_of = |block| slots_of(&self.geometry, block).filter(is_valid).count() as u32;
        for checked in [self.blocks.self_check(valid_of), self.check_collectors()] {
            if let Err(what) = checked {
                report.problem(what);
            }
        }
        self.check_rings(report);
        let device = self.flash.counters().pages_programmed * u64::from(self.geometry.page_bytes);
        let ledger = self.ledger.snapshot().programmed_total();
        if device != ledger {
            report.problem(format!("the ledger knows of {ledger} bytes programmed, the device of {device}"));
        }
    }

    /// Checks that every sector is in exactly the ring of its place.
    fn check_rings(&self, report: &mut CheckReport) {
        let mut places = FixedSet::default();
        let mut in_rings = 0u64;
        let mut holding = 0u64;
        for sector in 0..self.map.sectors() as u32 {
            let place = self.map.place(sector);
            if !place.holds_bytes() {
                continue;
            }
            holding += 1;
            if places.insert(place.0) {
                match self.first_owner(place) {
                    Some(first) => {
                        for member in self.map.ring(first).take(crate::map::OWNERS_MAX + 1) {
                            in_rings += 1;
                            if self.map.place(member) != place {
                                report.problem(format!("sector {member} is in a ring of another place"));
                            }
                        }
                    }
                    None => report.problem(format!("the place of sector {sector} has no owner")),
                }
            }
        }
        if in_rings != holding {
            report.problem(format!("{holding} sectors hold bytes, {in_rings} are in rings"));
        }
    }

    fn check_slot(&mut self, slot: SlotAddr, refresh: bool, report: &mut CheckReport) -> Result<()> {
        let owner = self.map.owner(slot);
        if owner == Owner::Nobody {
            return Ok(());
        }
        report.slots_read += 1;
        let (page, index) = self.geometry.page_of_slot(slot);
        if self.page.slot(page, index).is_some() {
            return Ok(()); // not programmed yet
        }
        let mut bytes = [0; SECTOR_BYTES];
        if let Ok((_, done)) = read_with_entry(&*self.flash, IoClass::Background, page, index, &mut bytes) {
            self.wait_until = self.wait_until.max(done.at);
            let is_failing = done.bits_corrected >= self.flash.failing_bits();
            if refresh && is_failing && self.renew(slot, owner)? {
                report.refreshed += 1;
            }
            return Ok(());
        }
        match owner {
            Owner::Sector(first) => self.map.ring(first).for_each(|s| report.damaged(s)),
            Owner::Log(log) => self.damaged_in_log(log, report),
            Owner::Node(_) | Owner::Directory(_) => {
                // The map is in memory: rewriting it repairs the damage.
                if let Owner::Node(node) = owner {
                    self.nodes.mark(node);
                }
                self.checkpoint.hurry();
                report
                    .problem(format!("metadata in slot {} cannot be read; it will be written anew", slot.0));
            }
            Owner::Nobody => {}
        }
        Ok(())
    }

    /// Has the contents of a slot reprogrammed. True if it was moved now; nodes and directories are rewritten by the
    /// next checkpoint.
    fn renew(&mut self, slot: SlotAddr, owner: Owner) -> Result<bool> {
        match owner {
            Owner::Node(node) => self.nodes.mark(node),
            Owner::Directory(directory) => self.nodes.mark_directory(directory),
            Owner::Sector(_) | Owner::Log(_) | Owner::Nobody => return self.refresh(slot),
        }
        self.checkpoint.hurry();
        Ok(false)
    }

    fn damaged_in_log(&self, log: u32, report: &mut CheckReport) {
        let entries = self.log.info(log).map_or(&[][..], |i| &i.packed);
        for first in entries.iter().filter_map(|p| p.owner) {
            self.map.ring(first).for_each(|s| report.damaged(s));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_are_what_a_set_holds(sectors in proptest::collection::vec(0u32..300, 0..400)) {
            let mut report = CheckReport::default();
            sectors.iter().for_each(|s| report.damaged(*s));
            let set: BTreeSet<u64> = sectors.iter().map(|s| u64::from(*s)).collect();
            let ranges = &report.damaged_ranges;
            let listed: Vec<u64> = ranges.iter().flat_map(|(first, count)| *first..first + count).collect();
            prop_assert_eq!(&listed, &set.iter().copied().collect::<Vec<_>>());
            prop_assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0), "{ranges:?}");
            prop_assert_eq!(&report.damaged_sectors, &set.into_iter().take(LISTED_MAX).collect::<Vec<_>>());
        }
    }
}
