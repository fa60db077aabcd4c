//! `restore`: writes the metadata of a dump as a new checkpoint, after verifying that the flash still holds every byte
//! that it refers to.

use super::dump::following;
use super::evidence::{Evidence, nvram_images};
use super::lines::{DUMP_VERSION, HeldKind, Line, Places, hex, read_lines, unhex};
use super::picture::{Held, Picture, RING_MAX, packed_entries};
use crate::format::oob::SlotKind;
use crate::format::place::{At, LOG_NUMBERS_MAX, PACKED_ENTRIES_MAX, Place};
use crate::format::root::LifeCounters;
use crate::options::{DedupMode, Identity};
use crate::read::read_checked;
use crate::recover::check_geometry;
use crate::roots::find_roots;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::Arc;
use vellum_base::hash::{FixedMap, FixedSet};
use vellum_base::{
    Avoided, BlockAddr, Cause, Env, Error, Flash, Geometry, IoClass, LedgerSnapshot, Result, SECTOR_BYTES,
    SlotAddr,
};

/// Maximum number of reasons listed; further ones are only counted.
const LISTED_MAX: usize = 8;

/// What was restored, and what was lost by that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RestoreReport {
    /// Sectors that hold bytes now.
    pub mapped_sectors: u64,
    /// Slots on flash that were read and match the dump.
    pub slots_checked: u64,
    /// Slots contained in the dump, which were programmed again.
    pub slots_programmed: u64,
    /// Sectors written to flash after the dump was made: these writes are lost.
    pub newer_writes_lost: u64,
    /// Log slots stored after the dump was made: their trims, remaps and packed sectors are lost.
    pub newer_log_slots_lost: u64,
}

/// Makes the metadata in `dump` the newest checkpoint of the disk on `flash`.
///
/// Refuses with a list of reasons, and writes nothing, if a slot that the dump maps is gone, reused, or unreadable.
/// Changes after the dump was made are lost; the report says how many. A power cut during the restore does no harm as
/// long as the dump is kept: run it again.
pub fn restore(dump: &mut dyn BufRead, flash: Arc<dyn Flash>, env: Arc<dyn Env>) -> Result<RestoreReport> {
    check_geometry(flash.geometry())?;
    let mut reader = Reader::new(*flash.geometry());
    read_lines(dump, |number, line| reader.take(number, line))?;
    let Reader { picture, erase_counts, .. } = reader;
    let mut picture =
        picture.ok_or_else(|| Error::corrupt("the dump has no line that says what the disk is"))?;
    check_owner(&picture.identity, &*flash)?;
    let evidence = Evidence::collect(&*flash, 0, &mut |_, _| {})?;
    let mut checker = Checker {
        flash: &*flash,
        erase_counts,
        reasons: Vec::new(),
        refused: 0,
        report: RestoreReport::default(),
    };
    checker.check(&picture, &evidence);
    let mut report = checker.verdict()?;
    let newer = |kind| evidence.all_of(kind).filter(|(_, seq, _)| *seq > picture.seq).count() as u64;
    report.newer_writes_lost = newer(SlotKind::Data);
    report.newer_log_slots_lost = newer(SlotKind::Log);
    // The new checkpoint must be newer than everything on flash and in NVRAM.
    for image in nvram_images(&*flash, None)? {
        picture.seq = picture.seq.max(image.durable_seq);
        picture.nvram_generation = picture.nvram_generation.max(image.generation);
    }
    picture.seq = picture.seq.max(evidence.newest_seq);
    let room = picture.rehearse(&flash, &env)?;
    picture.install(room, flash, env)?;
    Ok(report)
}

/// Refuses a dump of another disk than the one on the flash. Without a root that cannot be checked.
fn check_owner(dumped: &Identity, flash: &dyn Flash) -> Result<()> {
    let newest = find_roots(flash)?.into_iter().max_by_key(|found| found.seq);
    match newest.map(|found| found.root.identity.uuid) {
        Some(here) if here != dumped.uuid => Err(Error::invalid(format!(
            "this dump is of another disk: of {}, and on this flash is {}",
            hex(&dumped.uuid),
            hex(&here)
        ))),
        _ => Ok(()),
    }
}

/// Builds a picture from lines.
struct Reader {
    geometry: Geometry,
    picture: Option<Picture>,
    erase_counts: BTreeMap<BlockAddr, u32>,
    owners: FixedMap<Place, usize>,
}

impl Reader {
    fn new(geometry: Geometry) -> Reader {
        Reader { geometry, picture: None, erase_counts: BTreeMap::new(), owners: FixedMap::default() }
    }

    fn take(&mut self, number: u64, line: Line) -> Result<()> {
        if matches!(line, Line::Disk { .. }) != (number == 1) {
            return Err(Error::corrupt("the first line, and no other, says what the disk is"));
        }
        match line {
            Line::Disk { .. } => self.picture = Some(self.identity(line)?),
            Line::Block { block, erase_count, .. } => {
                self.erase_counts.insert(BlockAddr(block), erase_count);
            }
            Line::Root { .. } | Line::Directory { .. } | Line::Node { .. } | Line::End { .. } => {}
            other => {
                let picture = self.picture.as_mut().ok_or_else(|| Error::corrupt("no disk yet"))?;
                add(picture, &mut self.owners, other)?;
            }
        }
        Ok(())
    }

    fn identity(&self, line: Line) -> Result<Picture> {
        let Line::Disk {
            version,
            uuid,
            sectors,
            dedup,
            keep_copies,
            seed,
            spare_blocks,
            tbw_bytes,
            seq,
            geometry,
            ..
        } = line
        else {
            return Err(Error::corrupt("not a disk"));
        };
        if version != DUMP_VERSION {
            return Err(Error::corrupt(format!(
                "the dump has version {version}; this program reads version {DUMP_VERSION}. Use a newer release"
            )));
        }
        if geometry != self.geometry {
            return Err(Error::invalid(format!(
                "the dump is of a flash of another shape: {geometry}; this one is {}",
                self.geometry
            )));
        }
        if sectors == 0 || sectors > geometry.slots() || seq >= 1 << 62 {
            return Err(Error::corrupt(format!("{sectors} sectors and number {seq} are out of range")));
        }
        let uuid = <[u8; 16]>::try_from(unhex(&uuid)?).map_err(|_| Error::corrupt("a uuid has 32 digits"))?;
        let dedup = DedupMode::by_name(&dedup)
            .ok_or_else(|| Error::corrupt(format!("there is no dedup mode {dedup:?}")))?;
        Ok(Picture {
            identity: Identity { uuid, sectors, seed, dedup, keep_copies, spare_blocks, tbw_bytes },
            life: LifeCounters::default(),
            ledger: LedgerSnapshot::default(),
            places: vec![Place::HOLE; sectors as usize],
            logs: BTreeMap::new(),
            held: BTreeMap::new(),
            lost: Vec::new(),
            seq,
            nvram_generation: 0,
        })
    }
}

fn add(picture: &mut Picture, owners: &mut FixedMap<Place, usize>, line: Line) -> Result<()> {
    match line {
        Line::Life { host_commands, opened, unsafe_shutdowns, powered_ns } => {
            picture.life = LifeCounters { host_commands, opened, unsafe_shutdowns, powered_ns };
        }
        Line::Ledger { host_read_bytes, host_written_bytes, programmed, avoided } => {
            picture.ledger = LedgerSnapshot { host_read_bytes, host_written_bytes, ..Default::default() };
            let causes: Vec<&str> = Cause::ALL.iter().map(|c| c.name()).collect();
            let reasons: Vec<&str> = Avoided::ALL.iter().map(|r| r.name()).collect();
            book(&mut picture.ledger.programmed, &causes, programmed)?;
            book(&mut picture.ledger.avoided, &reasons, avoided)?;
        }
        Line::Log { log, slot, .. } => {
            let known = picture.logs.insert(log, SlotAddr(slot));
            if log >= LOG_NUMBERS_MAX || known.is_some() {
                return Err(Error::corrupt(format!("log slot {log} is out of range or comes twice")));
            }
        }
        Line::Held { slot, kind, id, data_crc, data } => {
            let data = unhex(&data)?;
            if data.len() != SECTOR_BYTES {
                return Err(Error::corrupt(format!("a slot has {SECTOR_BYTES} bytes, not {}", data.len())));
            }
            let kind = if kind == HeldKind::Data { SlotKind::Data } else { SlotKind::Log };
            picture.held.insert(SlotAddr(slot), Held { kind, id, data_crc, data });
        }
        Line::Map { sector, count, place } => map_run(picture, owners, sector, count, place)?,
        _ => {}
    }
    Ok(())
}

fn book(to: &mut [u64], names: &[&str], from: BTreeMap<String, u64>) -> Result<()> {
    for (name, bytes) in from {
        let at = names.iter().position(|n| *n == name);
        let at = at.ok_or_else(|| Error::corrupt(format!("the ledger knows no {name:?}")))?;
        to[at] = bytes.min(1 << 56);
    }
    Ok(())
}

fn map_run(
    picture: &mut Picture,
    owners: &mut FixedMap<Place, usize>,
    sector: u64,
    count: u64,
    place: Places,
) -> Result<()> {
    let sectors = picture.identity.sectors;
    if count == 0 || sector >= sectors || count > sectors - sector {
        return Err(Error::corrupt(format!("{count} sectors from {sector} are outside the disk")));
    }
    let first = match place {
        Places::Zero => Place::ZERO,
        Places::Slot(slot) if slot < 1 << 31 => Place::slot(SlotAddr(slot)),
        Places::Packed { log, entry } if log < LOG_NUMBERS_MAX && (entry as usize) < PACKED_ENTRIES_MAX => {
            Place::packed(log, entry as usize)
        }
        _ => return Err(Error::corrupt(format!("there is no place {place:?}"))),
    };
    for i in 0..count as u32 {
        let at = sector as u32 + i;
        let place = following(first, i).ok_or_else(|| Error::corrupt(format!("sector {at} has no place")))?;
        if picture.places[at as usize] != Place::HOLE {
            return Err(Error::corrupt(format!("sector {at} is mapped twice")));
        }
        picture.places[at as usize] = place;
        if place.holds_bytes() {
            let sharing = owners.entry(place).or_default();
            *sharing += 1;
            if *sharing > RING_MAX {
                return Err(Error::corrupt(format!(
                    "more than {RING_MAX} sectors share the place of sector {at}"
                )));
            }
        }
    }
    Ok(())
}

/// Compares what the dump refers to with the contents of the flash.
struct Checker<'a> {
    flash: &'a dyn Flash,
    erase_counts: BTreeMap<BlockAddr, u32>,
    reasons: Vec<String>,
    refused: u64,
    report: RestoreReport,
}

impl Checker<'_> {
    fn check(&mut self, picture: &Picture, evidence: &Evidence) {
        let mut entries: FixedMap<u32, usize> = FixedMap::default();
        for (log, slot) in &picture.logs {
            if let Some(found) = self.check_log(picture, evidence, *log, *slot) {
                entries.insert(*log, found);
            }
        }
        let mut seen: FixedSet<SlotAddr> = FixedSet::default();
        for (sector, place) in picture.places.iter().enumerate() {
            self.report.mapped_sectors += u64::from(place.holds_bytes());
            match place.at() {
                At::Hole | At::Zero => {}
                At::Slot(slot) => {
                    if seen.insert(slot)
                        && let Err(why) = self.check_slot(picture, evidence, slot, SlotKind::Data, None)
                    {
                        self.refuse(format!("sector {sector}: {why}"));
                    }
                }
                At::Packed { log, entry } => match entries.get(&log) {
                    Some(found) if (entry as usize) < *found => {}
                    Some(_) => self.refuse(format!("sector {sector}: log slot {log} has no entry {entry}")),
                    None => self.refuse(format!("sector {sector}: log slot {log} is not there")),
                },
            }
        }
    }

    /// The number of packed sectors in the log slot.
    fn check_log(
        &mut self,
        picture: &Picture,
        evidence: &Evidence,
        log: u32,
        slot: SlotAddr,
    ) -> Option<usize> {
        let bytes = self.check_slot(picture, evidence, slot, SlotKind::Log, Some(log));
        let entries = bytes.and_then(|bytes| {
            packed_entries(&bytes[..], log).ok_or_else(|| format!("slot {} is not that log slot", slot.0))
        });
        match entries {
            Ok((_, entries)) => Some(entries.len()),
            Err(why) => {
                self.refuse(format!("log slot {log}: {why}"));
                None
            }
        }
    }

    /// The bytes of a slot, if it has the same content as when the dump was made.
    fn check_slot(
        &mut self,
        picture: &Picture,
        evidence: &Evidence,
        slot: SlotAddr,
        kind: SlotKind,
        id: Option<u32>,
    ) -> Result<Box<[u8; SECTOR_BYTES]>, String> {
        let mut bytes = Box::new([0; SECTOR_BYTES]);
        let number = slot.0;
        if let Some(held) = picture.held.get(&slot) {
            bytes.copy_from_slice(&held.data);
            self.report.slots_programmed += 1;
            return match held.kind == kind && id.is_none_or(|id| id == held.id) {
                true if vellum_codes::crc32c(&held.data) == held.data_crc => Ok(bytes),
                true => Err(format!("slot {number} in the dump does not match its checksum")),
                false => Err(format!("slot {number} in the dump holds {:?} {}", held.kind, held.id)),
            };
        }
        let geometry = self.flash.geometry();
        if u64::from(number) >= geometry.slots() {
            return Err(format!("slot {number} is beyond the flash"));
        }
        let block = geometry.block_of_slot(slot);
        if self.erase_counts.get(&block) != Some(&self.flash.report(block).erase_count) {
            return Err(format!("slot {number} is gone: {block} was erased since the dump was made"));
        }
        let Some((seq, found_id)) = evidence.of_kind(slot, kind) else {
            return Err(format!("slot {number} holds no {kind:?}"));
        };
        if seq > picture.seq || id.is_some_and(|id| id != found_id) {
            return Err(format!("slot {number} holds something else ({kind:?} {found_id}, number {seq})"));
        }
        let (page, index) = geometry.page_of_slot(slot);
        read_checked(self.flash, IoClass::Metadata, page, index, &mut bytes[..])
            .map_err(|e| e.to_string())?;
        self.report.slots_checked += 1;
        Ok(bytes)
    }

    fn refuse(&mut self, why: String) {
        self.refused += 1;
        if self.reasons.len() < LISTED_MAX {
            self.reasons.push(why);
        }
    }

    fn verdict(self) -> Result<RestoreReport> {
        if self.refused == 0 {
            return Ok(self.report);
        }
        let more = match self.refused - self.reasons.len() as u64 {
            0 => String::new(),
            more => format!("\n  and {more} more"),
        };
        Err(Error::corrupt(format!(
            "the flash does not hold what the dump names, so nothing was written (`vellum disk repair` keeps what \
             it can):\n  {}{more}",
            self.reasons.join("\n  ")
        )))
    }
}
