//! The whole state of a disk, detached from any flash: the content of a dump, and the result of a repair.
//!
//! [`Picture::install`] makes it the disk's newest checkpoint. Slots on flash stay where they are; only slots whose
//! bytes are in the picture itself are programmed again.

use super::shadow::Shadow;
use crate::blocks::State;
use crate::format::log_slot::{LogSlot, Record};
use crate::format::nvram::area_bytes;
use crate::format::oob::SlotKind;
use crate::format::place::{At, Place};
use crate::format::root::LifeCounters;
use crate::ftl::Ftl;
use crate::log::{Log, Packed};
use crate::map::{Map, OWNERS_MAX, Owner};
use crate::options::{Identity, Options};
use crate::read::{read_checked, read_entries};
use crate::recover::recover;
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::{
    BlockAddr, BlockState, Cause, Env, Error, Flash, IoClass, Kind, Ledger, LedgerSnapshot, Result,
    SECTOR_BYTES, SlotAddr,
};

/// Maximum number of sectors at one place.
pub(super) const RING_MAX: usize = OWNERS_MAX;

/// The state; see the module.
pub(super) struct Picture {
    pub identity: Identity,
    pub life: LifeCounters,
    pub ledger: LedgerSnapshot,
    /// Place of every sector. Slots are addresses on flash or in `held`.
    pub places: Vec<Place>,
    /// Locations of the log slots with packed sectors.
    pub logs: BTreeMap<u32, SlotAddr>,
    /// Slots that are not on flash (any more), by the address used for them in `places` and `logs`.
    pub held: BTreeMap<SlotAddr, Held>,
    /// Sectors whose bytes are lost, ascending: reads of them must fail. Their places are holes.
    pub lost: Vec<u32>,
    /// No event of the disk has a higher number.
    pub seq: u64,
    pub nvram_generation: u64,
}

/// A slot carried in memory.
#[derive(Clone)]
pub(super) struct Held {
    pub kind: SlotKind,
    pub id: u32,
    pub data_crc: u32,
    pub data: Vec<u8>,
}

/// Where the new checkpoint is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// In free erase blocks: no slot moves, nothing is erased.
    Free,
    /// There are too few: dead blocks are erased, others collected, before the checkpoint is valid.
    Collected,
}

impl Picture {
    /// Tries the picture on a shadow of the flash: it must fit, open, and have the same places. Returns how to install
    /// it.
    pub(super) fn rehearse(&self, flash: &Arc<dyn Flash>, env: &Arc<dyn Env>) -> Result<Room> {
        match self.rehearse_in(Room::Free, flash, env) {
            Err(e) if e.kind() == Kind::NoSpace => self.rehearse_in(Room::Collected, flash, env),
            result => result,
        }
    }

    fn rehearse_in(&self, room: Room, flash: &Arc<dyn Flash>, env: &Arc<dyn Env>) -> Result<Room> {
        let shadow: Arc<dyn Flash> = Arc::new(Shadow::new(flash.clone())?);
        self.install(room, shadow.clone(), env.clone())
            .map_err(|e| e.context("the new checkpoint cannot be written"))?;
        let opened = recover(shadow, env.clone(), Options::default())
            .map_err(|e| e.context("the new checkpoint would not open"))?;
        for (sector, place) in self.places.iter().enumerate() {
            let found = opened.map.place(sector as u32);
            let carried = matches!(place.at(), At::Slot(s) if self.held.contains_key(&s))
                || self.lost.binary_search(&(sector as u32)).is_ok();
            if found != *place && !carried && !same_content(&**flash, *place, &*opened.flash, found) {
                return Err(Error::corrupt(format!(
                    "the new checkpoint would put sector {sector} at {found:?} instead of {place:?}"
                )));
            }
        }
        Ok(room)
    }

    /// Writes the picture as the newest checkpoint. Returns when that has completed on the flash.
    pub(super) fn install(&self, room: Room, flash: Arc<dyn Flash>, env: Arc<dyn Env>) -> Result<()> {
        let mut ftl = Ftl::new(flash, env.clone(), self.identity, Options::default());
        ftl.seq = self.seq;
        ftl.life = self.life;
        ftl.nvram_generation = self.nvram_generation;
        ftl.checkpoint.resume(self.seq);
        let device = ftl.flash.counters().pages_programmed * u64::from(ftl.geometry.page_bytes);
        ftl.ledger = Arc::new(Ledger::resume(&balanced(self.ledger, device)));
        load_blocks(&mut ftl);
        self.load_logs(&mut ftl)?;
        self.link(&mut ftl)?;
        self.own_logs(&mut ftl)?;
        close_blocks(&mut ftl, self.seq);
        ftl.set_making_room(room == Room::Free);
        self.store_held(&mut ftl)?;
        self.store_lost(&mut ftl)?;
        mark_used_nodes(&mut ftl);
        ftl.complete_checkpoint(false)?;
        store_all(&mut ftl)?;
        forget_nvram(&mut ftl)?;
        ftl.write_root(ftl.log.checkpoint_seq, true)?;
        env.sleep_until(ftl.last_done);
        Ok(())
    }

    fn load_logs(&self, ftl: &mut Ftl) -> Result<()> {
        let numbers = self.logs.last_key_value().map_or(0, |(log, _)| log + 1);
        ftl.log = Log::new(numbers, self.seq, Log::numbers_max(ftl.geometry.slots()));
        for (log, slot) in &self.logs {
            let mut bytes = [0; SECTOR_BYTES];
            self.read(ftl, *slot, &mut bytes)?;
            let (base_seq, packed) = packed_entries(&bytes, *log)
                .ok_or_else(|| Error::corrupt(format!("slot {} does not hold log slot {log}", slot.0)))?;
            let info = ftl.log.ensure(*log)?;
            (info.base_seq, info.packed) = (base_seq, packed);
        }
        Ok(())
    }

    fn read(&self, ftl: &Ftl, slot: SlotAddr, out: &mut [u8; SECTOR_BYTES]) -> Result<()> {
        if let Some(held) = self.held.get(&slot) {
            out.copy_from_slice(&held.data);
            return Ok(());
        }
        let (page, index) = ftl.geometry.page_of_slot(slot);
        read_checked(&*ftl.flash, IoClass::Metadata, page, index, out).map(|_| ())
    }

    /// Builds rings, owners and valid counts. Sectors of held slots are left to [`Picture::store_held`].
    fn link(&self, ftl: &mut Ftl) -> Result<()> {
        for (sector, place) in self.places.iter().enumerate() {
            let sector = sector as u32;
            match place.at() {
                At::Hole | At::Zero => ftl.map.place_alone(sector, *place),
                At::Slot(slot) if self.held.contains_key(&slot) => {
                    ftl.map.place_alone(sector, Place::HOLE);
                }
                At::Slot(slot) => link_slot(ftl, sector, slot)?,
                At::Packed { log, entry } => link_packed(ftl, sector, log, entry)?,
            }
        }
        for sector in &self.lost {
            ftl.map.place_alone(*sector, Place::HOLE);
        }
        Ok(())
    }

    fn own_logs(&self, ftl: &mut Ftl) -> Result<()> {
        for (log, slot) in &self.logs {
            let live = ftl.log.info(*log).is_some_and(|info| info.live > 0);
            if live && !self.held.contains_key(slot) {
                claim(ftl, *slot, Owner::Log(*log))?;
                ftl.log.info_mut(*log).slot = Some(*slot);
                ftl.nodes.mark_log(*log);
            }
        }
        Ok(())
    }

    /// Programs the slots that are not on flash, and moves their sectors there.
    fn store_held(&self, ftl: &mut Ftl) -> Result<()> {
        let mut members: BTreeMap<SlotAddr, Vec<u32>> = BTreeMap::new();
        for (sector, place) in self.places.iter().enumerate() {
            if let At::Slot(slot) = place.at()
                && self.held.contains_key(&slot)
            {
                members.entry(slot).or_default().push(sector as u32);
            }
        }
        for (slot, sectors) in &members {
            let held = &self.held[slot];
            store_shared(ftl, sectors, &held.data, held.data_crc)?;
        }
        for (log, slot) in &self.logs {
            let Some(held) = self.held.get(slot) else { continue };
            if ftl.log.info(*log).is_some_and(|info| info.live > 0) {
                let stored = ftl.store(SlotKind::Log, *log, &held.data, held.data_crc, Cause::Refresh)?;
                ftl.log.info_mut(*log).slot = Some(stored);
                ftl.adopt(stored, Owner::Log(*log), 0);
                ftl.nodes.mark_log(*log);
            }
        }
        ftl.settle()
    }

    /// Stores lost sectors in shared slots that fail their checksum, so that reads fail until they are rewritten.
    fn store_lost(&self, ftl: &mut Ftl) -> Result<()> {
        let nothing = [0; SECTOR_BYTES];
        let wrong = !vellum_codes::crc32c(&nothing);
        self.lost.chunks(RING_MAX).try_for_each(|sectors| store_shared(ftl, sectors, &nothing, wrong))
    }
}

/// The base number of a log slot, and the sectors packed in it; `None` if these bytes are not log slot `log`.
pub(super) fn packed_entries(slot: &[u8], log: u32) -> Option<(u64, Vec<Packed>)> {
    let decoded = LogSlot::decode(slot).filter(|d| d.log == log)?;
    let entry = |(_, record)| match record {
        Record::Small { offset, length, .. } => Some(Packed { offset, length, owner: None }),
        _ => None,
    };
    Some((decoded.base_seq, decoded.records().filter_map(entry).collect()))
}

/// True if both places are slots with the same checksum: collection moved one to the other.
fn same_content(flash: &dyn Flash, place: Place, shadow: &dyn Flash, moved: Place) -> bool {
    let crc_of = |flash: &dyn Flash, place: Place| match place.at() {
        At::Slot(slot) if u64::from(slot.0) < flash.geometry().slots() => {
            let (page, index) = flash.geometry().page_of_slot(slot);
            let entries = read_entries(flash, page.block, page.page, page.page + 1).ok()?;
            Some(entries[0].get(index as usize).copied().flatten()?.data_crc)
        }
        _ => None,
    };
    let crc = crc_of(flash, place);
    crc.is_some() && crc == crc_of(shadow, moved)
}

/// The ledger, adjusted to what the device programmed.
fn balanced(mut ledger: LedgerSnapshot, device_bytes: u64) -> LedgerSnapshot {
    let missing = device_bytes.saturating_sub(ledger.programmed_total());
    ledger.programmed[Cause::BeforePowerCut as usize] += missing;
    let mut excess = ledger.programmed_total().saturating_sub(device_bytes);
    for total in &mut ledger.programmed {
        let taken = excess.min(*total);
        *total -= taken;
        excess -= taken;
    }
    ledger
}

fn load_blocks(ftl: &mut Ftl) {
    for block in (0..ftl.geometry.blocks()).map(BlockAddr) {
        let report = ftl.flash.report(block);
        let state = match (report.state, report.pages_written) {
            (BlockState::Bad, 0) => State::Bad,
            (BlockState::Good, 0) => State::Free,
            _ => State::Open,
        };
        ftl.blocks.load(block, state, report.erase_count);
    }
}

/// Closes written blocks. Those that are dead now (old nodes and roots) are not erased before the new checkpoint is
/// durable.
fn close_blocks(ftl: &mut Ftl, seq: u64) {
    let written: Vec<BlockAddr> = ftl.blocks.in_state(State::Open).collect();
    for block in written {
        match ftl.flash.report(block).state {
            BlockState::Bad => ftl.retire(block),
            BlockState::Good => ftl.blocks.load_closed(block, seq),
        }
    }
}

fn claim(ftl: &mut Ftl, slot: SlotAddr, owner: Owner) -> Result<()> {
    let written = u64::from(slot.0) < ftl.geometry.slots()
        && ftl.blocks.state(ftl.geometry.block_of_slot(slot)) == State::Open;
    if !written || ftl.map.owner(slot) != Owner::Nobody {
        return Err(Error::corrupt(format!("slot {} cannot belong to {owner:?}", slot.0)));
    }
    ftl.adopt(slot, owner, 0);
    Ok(())
}

fn link_slot(ftl: &mut Ftl, sector: u32, slot: SlotAddr) -> Result<()> {
    if u64::from(slot.0) < ftl.geometry.slots()
        && let Owner::Sector(member) = ftl.map.owner(slot)
    {
        return join(&mut ftl.map, sector, member);
    }
    claim(ftl, slot, Owner::Sector(sector))?;
    ftl.map.place_alone(sector, Place::slot(slot));
    Ok(())
}

fn link_packed(ftl: &mut Ftl, sector: u32, log: u32, entry: u32) -> Result<()> {
    let Some(packed) = ftl.log.packed(log, entry) else {
        return Err(Error::corrupt(format!(
            "sector {sector} is packed in log slot {log}, which has no such entry"
        )));
    };
    if let Some(member) = packed.owner {
        return join(&mut ftl.map, sector, member);
    }
    ftl.map.place_alone(sector, Place::packed(log, entry as usize));
    let info = ftl.log.info_mut(log);
    info.packed[entry as usize].owner = Some(sector);
    info.live += 1;
    Ok(())
}

fn join(map: &mut Map, sector: u32, member: u32) -> Result<()> {
    if map.is_full(member) {
        return Err(Error::corrupt(format!(
            "more than {RING_MAX} sectors share the place of sector {member}"
        )));
    }
    map.join(sector, member);
    Ok(())
}

/// Stores one slot shared by all of `sectors`.
fn store_shared(ftl: &mut Ftl, sectors: &[u32], data: &[u8], data_crc: u32) -> Result<()> {
    let Some((first, others)) = sectors.split_first() else { return Ok(()) };
    let slot = ftl.store(SlotKind::Data, *first, data, data_crc, Cause::Refresh)?;
    ftl.map.place_alone(*first, Place::slot(slot));
    ftl.adopt(slot, Owner::Sector(*first), 0);
    others.iter().try_for_each(|other| join(&mut ftl.map, *other, *first))
}

/// Programs what would otherwise be kept in NVRAM.
fn store_all(ftl: &mut Ftl) -> Result<()> {
    ftl.set_making_room(true);
    ftl.log.seal();
    ftl.store_sealed()?;
    ftl.program_open_page()?;
    ftl.env.sleep_until(ftl.last_done);
    ftl.flash.sync()?;
    ftl.durable_seq = ftl.seq;
    Ok(())
}

/// Clears NVRAM images: their contents are on flash now, or not part of this picture.
fn forget_nvram(ftl: &mut Ftl) -> Result<()> {
    let bytes = area_bytes(ftl.geometry.slots_per_page());
    if let Some(nvram) = ftl.flash.nvram().filter(|nvram| nvram.bytes() >= 2 * bytes) {
        for offset in [0, bytes] {
            nvram.write(offset, &[0; 16])?;
        }
    }
    Ok(())
}

fn mark_used_nodes(ftl: &mut Ftl) {
    for sector in 0..ftl.map.sectors() as u32 {
        if ftl.map.place(sector) != Place::HOLE {
            ftl.nodes.mark_sector(sector);
        }
    }
}
