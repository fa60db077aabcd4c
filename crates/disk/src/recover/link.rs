//! Everything computed from the places: rings, owners, valid counts, and owners of metadata.

use super::Recovery;
use crate::blocks::State;
use crate::format::log_slot::{LogSlot, Record};
use crate::format::place::{At, PACKED_ENTRIES_MAX};
use crate::log::Packed;
use crate::map::Owner;
use vellum_base::hash::FixedSet;
use vellum_base::{Error, Result, SECTOR_BYTES, SlotAddr};

/// Maximum number of unreadable log slots with packed sectors on a disk that can be opened: each takes 768 bytes of
/// memory, whatever its 4 KiB on flash really hold.
const DAMAGED_LOGS_MAX: usize = 1 << 14;

impl Recovery {
    /// Loads the entries of every known log slot, so that packed sectors can be read. Returns the unreadable log slots.
    pub(super) fn load_packed(&mut self) -> Result<FixedSet<u32>> {
        let mut damaged = FixedSet::default();
        let mut bytes = [0; SECTOR_BYTES];
        for log in 0..self.ftl.log.numbers() {
            let unstored = self.ftl.log.unstored(log);
            if unstored.is_some() {
                self.ftl.log.info_mut(log).slot = None;
            }
            let slot = self.ftl.log.info(log).and_then(|i| i.slot);
            let decoded = match (&unstored, slot) {
                (Some(unstored), _) => LogSlot::decode(unstored),
                (None, Some(slot)) if u64::from(slot.0) < self.ftl.geometry.slots() => {
                    self.log_slots.push((log, slot));
                    if self.slot_bytes(slot, &mut bytes).is_err() {
                        damaged.insert(log);
                        continue;
                    }
                    LogSlot::decode(&bytes).filter(|d| d.log == log)
                }
                (None, Some(_)) => {
                    return Err(Error::corrupt(format!("log slot {log} is said to be beyond the device")));
                }
                (None, None) => continue,
            };
            let Some(decoded) = decoded else { continue };
            let packed = decoded.records().filter_map(|(_, record)| match record {
                Record::Small { offset, length, .. } => Some(Packed { offset, length, owner: None }),
                _ => None,
            });
            let (packed, last_seq): (Vec<Packed>, _) =
                (packed.collect(), decoded.records().map(|(s, _)| s).max());
            let base_seq = decoded.base_seq;
            let info = self.ftl.log.info_mut(log);
            info.base_seq = base_seq;
            info.packed = packed;
            info.last_seq = last_seq.unwrap_or(0);
        }
        Ok(damaged)
    }

    /// Marks all possible entries of an unreadable log slot as unreadable, as it is unknown which of them exist.
    fn load_damaged(&mut self, log: u32) {
        let unreadable = Packed { offset: 0, length: 0, owner: None };
        self.ftl.log.info_mut(log).packed = vec![unreadable; PACKED_ENTRIES_MAX];
    }

    /// Builds rings, owners and valid counts from the places; every sector has its place, and is alone there so far. Of
    /// the `damaged` log slots, only those with packed sectors count: a log node may still name one that was released
    /// and erased since it was written.
    pub(super) fn link(&mut self, damaged: &FixedSet<u32>) -> Result<()> {
        let mut damaged_kept = 0;
        for sector in 0..self.ftl.map.sectors() as u32 {
            let place = self.ftl.map.place(sector);
            match place.at() {
                At::Hole | At::Zero => {}
                At::Slot(slot) => self.link_slot(sector, slot)?,
                At::Packed { log, entry } => {
                    if self.ftl.log.packed(log, entry).is_none() {
                        damaged_kept += 1;
                        let gone = !damaged.contains(&log);
                        if gone || damaged_kept > DAMAGED_LOGS_MAX {
                            let how = if gone { "gone" } else { "unreadable like too many others" };
                            return Err(Error::corrupt(format!(
                                "sector {sector} is packed in log slot {log}, which is {how}"
                            )));
                        }
                        self.load_damaged(log);
                    }
                    let info = self.ftl.log.info_mut(log);
                    let packed = &mut info.packed[entry as usize];
                    match packed.owner {
                        Some(member) => self.ftl.map.join(sector, member),
                        None => {
                            packed.owner = Some(sector);
                            info.live += 1;
                        }
                    }
                }
            }
        }
        self.own_metadata()
    }

    fn link_slot(&mut self, sector: u32, slot: SlotAddr) -> Result<()> {
        if u64::from(slot.0) >= self.ftl.geometry.slots() {
            return Err(Error::corrupt(format!("sector {sector} is mapped beyond the device")));
        }
        match self.ftl.map.owner(slot) {
            Owner::Sector(member) => self.ftl.map.join(sector, member),
            _ => {
                if self.ftl.blocks.state(self.ftl.geometry.block_of_slot(slot)) != State::Open {
                    return Err(Error::corrupt(format!("sector {sector} is mapped to an erased block")));
                }
                self.ftl.adopt(slot, Owner::Sector(sector), 0);
            }
        }
        Ok(())
    }

    fn own_metadata(&mut self) -> Result<()> {
        let mut owned: Vec<(SlotAddr, Owner)> = Vec::new();
        for (log, slot) in &self.log_slots {
            let info = self.ftl.log.info(*log);
            if info.is_some_and(|i| i.live > 0 || i.last_seq > self.ftl.log.checkpoint_seq) {
                owned.push((*slot, Owner::Log(*log)));
            } else {
                self.ftl.log.info_mut(*log).slot = None;
            }
        }
        let nodes = &self.ftl.nodes;
        owned.extend((0..nodes.count()).filter_map(|n| Some((nodes.slot(n)?, Owner::Node(n)))));
        let directories = 0..nodes.directories().len() as u32;
        owned.extend(directories.filter_map(|d| Some((nodes.directory(d)?, Owner::Directory(d)))));
        for (slot, owner) in owned {
            let block = self.ftl.geometry.block_of_slot(slot);
            if self.ftl.map.owner(slot) != Owner::Nobody || self.ftl.blocks.state(block) != State::Open {
                return Err(Error::corrupt(format!(
                    "{owner:?} claims slot {}, which is not its own",
                    slot.0
                )));
            }
            self.ftl.adopt(slot, owner, 0);
        }
        Ok(())
    }
}
