//! Opening a disk: checkpoint, then the events after it, then everything that can be computed.
//!
//! Steps and their reasons are in docs/formats/disk.md, Recovery. Nothing is written while recovering, but for
//! what an NVRAM image kept for a page that was torn; a second power cut finds the same input.

use crate::blocks::State;
use crate::format::log_slot::{LogSlot, LogWriter, Record};
use crate::format::nvram::NvramImage;
use crate::format::oob::{OOB_ENTRY_BYTES, Oob, SlotKind};
use crate::format::place::{At, Place};
use crate::format::root::Root;
use crate::format::{FANOUT, NO_SLOT, decode_node};
use crate::frontier::Frontier;
use crate::ftl::{Ftl, Recorded, read_checked};
use crate::log::{Log, Packed};
use crate::map::Owner;
use crate::options::Options;
use crate::persist::read_nvram;
use std::sync::Arc;
use vellum_base::hash::{FixedMap, FixedSet};
use vellum_base::{
    BlockAddr, BlockState, Cause, Env, Error, Flash, FlashOp, Geometry, IoClass, Ledger, LedgerSnapshot,
    PageAddr, Result, SECTOR_BYTES, SlotAddr,
};

/// A root and where it was found.
pub(crate) struct FoundRoot {
    pub root: Root,
    pub seq: u64,
    pub at: PageAddr,
}

/// One thing that happened after the checkpoint.
enum Event {
    Data { sector: u32, slot: SlotAddr, crc: u32 },
    Log { log: u32, slot: SlotAddr },
    Record { log: u32, entry: usize, record: Record },
}

/// Slots found on flash whose number is beyond the checkpoint.
struct Scan {
    events: Vec<(u64, Event)>,
    /// Bytes found by cause, of slots beyond the ledger's own number.
    beyond_ledger: [u64; Cause::COUNT],
    last_seq: u64,
}

/// Opens the disk on `flash`.
pub(crate) fn recover(flash: Arc<dyn Flash>, env: Arc<dyn Env>, options: Options) -> Result<Ftl> {
    let geometry = *flash.geometry();
    check_geometry(&geometry)?;
    let newest = find_roots(&*flash)?.into_iter().max_by_key(|r| r.seq).ok_or_else(|| {
        Error::corrupt(
            "there is no Vellum disk on this flash. Make one with `vellum disk create`, or, if there was one, \
             try `vellum disk repair`",
        )
    })?;
    // Never an older root: what it lists may be erased since.
    Recovery::load(flash, env, options, &newest)
        .and_then(|r| r.finish(&newest))
        .map_err(|e| e.context("the disk cannot be opened as it is (try `vellum disk repair`)"))
}

/// Refuses devices whose pages cannot carry our out-of-band entries.
pub(crate) fn check_geometry(geometry: &Geometry) -> Result<()> {
    geometry.validate()?;
    let needed = geometry.slots_per_page() as usize * OOB_ENTRY_BYTES;
    if (geometry.oob_bytes as usize) < needed || geometry.oob_bytes as usize > crate::OOB_BYTES_MAX {
        return Err(Error::invalid(format!(
            "this flash has {} out-of-band bytes a page; a disk needs {needed} to {}",
            geometry.oob_bytes,
            crate::OOB_BYTES_MAX
        )));
    }
    Ok(())
}

/// Out-of-band entries of the first `pages` pages of a block, from page `from`.
pub(crate) fn read_entries(
    flash: &dyn Flash,
    block: BlockAddr,
    from: u32,
    to: u32,
) -> Result<Vec<Vec<Option<Oob>>>> {
    let geometry = flash.geometry();
    let (slots, oob_bytes) = (geometry.slots_per_page() as usize, geometry.oob_bytes as usize);
    let mut oobs = vec![0; (to - from) as usize * oob_bytes];
    let mut ops: Vec<FlashOp<'_>> = oobs
        .chunks_exact_mut(oob_bytes)
        .enumerate()
        .map(|(i, oob)| FlashOp::Read { page: block.page(from + i as u32), offset: 0, data: &mut [], oob })
        .collect();
    let mut begun = 0;
    while begun < ops.len() {
        match flash.submit(IoClass::Metadata, &mut ops[begun..]) {
            Ok(_) => break,
            Err(e) if matches!(e.error, vellum_base::FlashError::Uncorrectable(_)) => begun += e.index + 1,
            Err(e) => return Err(e.error.into()),
        }
    }
    drop(ops);
    let decode = |oob: &[u8]| oob.chunks_exact(OOB_ENTRY_BYTES).take(slots).map(Oob::decode).collect();
    Ok(oobs.chunks_exact(oob_bytes).map(decode).collect())
}

/// Every readable root on the device.
pub(crate) fn find_roots(flash: &dyn Flash) -> Result<Vec<FoundRoot>> {
    let mut roots = Vec::new();
    for block in (0..flash.geometry().blocks()).map(BlockAddr) {
        let written = flash.report(block).pages_written;
        if written > flash.geometry().pages_per_block {
            return Err(Error::corrupt(format!("{block} says that {written} pages of it are written")));
        }
        if written == 0 {
            continue;
        }
        // A root block is told by its first page; if that is torn, by the others.
        let first = read_entries(flash, block, 0, 1)?;
        let holds_roots = match first[0].first() {
            Some(Some(entry)) => entry.kind == SlotKind::Root,
            _ => written > 1,
        };
        if !holds_roots {
            continue;
        }
        for (page, entries) in read_entries(flash, block, 0, written)?.iter().enumerate() {
            let Some(Some(entry)) = entries.first() else { continue };
            if entry.kind == SlotKind::Root {
                let at = block.page(page as u32);
                let mut bytes = [0; SECTOR_BYTES];
                if read_checked(flash, IoClass::Metadata, at, 0, &mut bytes).is_ok()
                    && let Some(root) = Root::decode(&bytes)?
                {
                    roots.push(FoundRoot { root, seq: entry.seq, at });
                }
            }
        }
    }
    Ok(roots)
}

impl Scan {
    /// The data slots found, with their number and checksum.
    fn found(&self) -> FixedMap<SlotAddr, (u64, u32)> {
        let data = |(seq, event): &(u64, Event)| match event {
            Event::Data { slot, crc, .. } => Some((*slot, (*seq, *crc))),
            _ => None,
        };
        self.events.iter().filter_map(data).collect()
    }
}

struct Recovery {
    ftl: Ftl,
    /// NVRAM images, older first.
    images: Vec<NvramImage>,
    /// Everything up to here was durable, by what roots and images say.
    durable_seq: u64,
    ledger_seq: u64,
    ledger: LedgerSnapshot,
    log_slots: Vec<(u32, SlotAddr)>,
    /// Slots beyond the checkpoint that checked out, with their number and checksum.
    found: FixedMap<SlotAddr, (u64, u32)>,
    /// Log slots looked at: the number that their records count from, and how many sectors they pack.
    found_logs: FixedMap<u32, (u64, u32)>,
}

impl Recovery {
    /// The checkpoint of `found`: nodes into the map.
    fn load(
        flash: Arc<dyn Flash>,
        env: Arc<dyn Env>,
        options: Options,
        found: &FoundRoot,
    ) -> Result<Recovery> {
        let root = &found.root;
        let geometry = *flash.geometry();
        if root.identity.sectors == 0 || root.identity.sectors > geometry.slots() {
            return Err(Error::corrupt(format!("the root claims {} sectors", root.identity.sectors)));
        }
        let numbers_max = Log::numbers_max(geometry.slots());
        if root.log_numbers > numbers_max || root.checkpoint_seq > found.seq {
            return Err(Error::corrupt(format!("the root claims {} log slots", root.log_numbers)));
        }
        let mut images = match flash.nvram() {
            Some(nvram) => read_nvram(nvram, geometry.slots_per_page(), root.identity.uuid)?,
            None => Vec::new(),
        };
        images.retain(|image| image.fits(&geometry));
        let image = images.last();
        let (ledger, ledger_seq) = match image {
            Some(i) if i.durable_seq >= found.seq => (i.ledger, i.durable_seq),
            _ => (root.ledger, found.seq),
        };
        let durable_seq = image.map_or(0, |i| i.durable_seq).max(root.durable_seq);
        let mut ftl = Ftl::new(flash, env, root.identity, options);
        ftl.log = Log::new(root.log_numbers, root.checkpoint_seq, numbers_max);
        ftl.life = root.life;
        ftl.checkpoint.resume(root.checkpoint_seq);
        ftl.checkpoint.root_seq = found.seq;
        ftl.checkpoint.root_host_bytes = root.ledger.host_written_bytes;
        let mut recovery = Recovery {
            ftl,
            images,
            durable_seq,
            ledger_seq,
            ledger,
            log_slots: Vec::new(),
            found: FixedMap::default(),
            found_logs: FixedMap::default(),
        };
        recovery.load_nodes(&root.directories)?;
        Ok(recovery)
    }

    fn load_nodes(&mut self, directories: &[u32]) -> Result<()> {
        let mut listed = [0; FANOUT];
        for (d, slot) in directories.iter().enumerate().filter(|(_, s)| **s != NO_SLOT) {
            self.read_node(*slot, SlotKind::Directory, d as u32, &mut listed)?;
            self.ftl.nodes.load_directory(d as u32, SlotAddr(*slot), &listed);
        }
        for node in 0..self.ftl.nodes.count() {
            let Some(slot) = self.ftl.nodes.slot(node) else { continue };
            let map_nodes = self.ftl.nodes.map_nodes();
            if node < map_nodes {
                self.read_node(slot.0, SlotKind::MapNode, node, &mut listed)?;
                let first = node * FANOUT as u32;
                let count = (self.ftl.map.sectors() - u64::from(first)).min(FANOUT as u64) as usize;
                for (i, place) in listed[..count].iter().enumerate() {
                    self.ftl.map.load(first + i as u32, Place(*place));
                }
            } else {
                self.read_node(slot.0, SlotKind::LogNode, node, &mut listed)?;
                let first = (node - map_nodes) * FANOUT as u32;
                for (i, slot) in listed.iter().enumerate().filter(|(_, s)| **s != NO_SLOT) {
                    self.ftl.log.ensure(first + i as u32)?.slot = Some(SlotAddr(*slot));
                }
            }
        }
        Ok(())
    }

    fn read_node(&self, slot: u32, kind: SlotKind, id: u32, out: &mut [u32; FANOUT]) -> Result<()> {
        let mut bytes = [0; SECTOR_BYTES];
        let entry = read_slot_of(&self.ftl, SlotAddr(slot), &mut bytes)?;
        if (entry.kind, entry.id) != (kind, id) {
            return Err(Error::corrupt(format!(
                "slot {slot} should hold node {id}, holds {:?} {}",
                entry.kind, entry.id
            )));
        }
        decode_node(&bytes, out);
        Ok(())
    }

    fn finish(mut self, found: &FoundRoot) -> Result<Ftl> {
        let mut scan = self.scan()?;
        self.add_image_events(&mut scan);
        self.add_log_records(&mut scan)?;
        scan.events.sort_by_key(|(seq, _)| *seq);
        self.found = scan.found();
        self.apply(&scan.events)?;
        self.load_packed()?;
        self.link()?;
        self.close_blocks(found);
        self.settle_ledger(&scan, found);
        self.ftl.seq = self.ftl.seq.max(scan.last_seq).max(found.seq).max(self.durable_seq);
        self.ftl.log.finish_loading();
        self.rescue_staged()?;
        self.ftl.flash.sync()?;
        Ok(self.ftl)
    }

    /// Finds every slot whose number is beyond the checkpoint.
    fn scan(&mut self) -> Result<Scan> {
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
        while to > 0 {
            let from = to.saturating_sub(stride);
            let pages = read_entries(&*self.ftl.flash, block, from, to)?;
            for (i, entries) in pages.iter().enumerate().rev() {
                let page = block.page(from + i as u32);
                let newest = entries.iter().flatten().map(|e| e.seq).max();
                if newest.is_some_and(|seq| seq <= self.ftl.log.checkpoint_seq) {
                    return Ok(());
                }
                self.add_page(page, entries, page.page + 1 == written, scan);
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
            // What a flush did not vouch for may be torn.
            let vouched = entry.seq <= self.durable_seq && !last_of_block;
            let mut bytes = [0; SECTOR_BYTES];
            if entry.seq > self.ftl.log.checkpoint_seq && (vouched || self.readable(slot, &mut bytes)) {
                scan.events.push((entry.seq, event));
            }
        }
    }

    fn readable(&self, slot: SlotAddr, bytes: &mut [u8; SECTOR_BYTES]) -> bool {
        read_slot_of(&self.ftl, slot, bytes).is_ok()
    }

    /// The staged slots of the NVRAM images, as if they had reached flash.
    fn add_image_events(&mut self, scan: &mut Scan) {
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

    /// Opens the log slots beyond the checkpoint, wherever they are, and adds their records.
    fn add_log_records(&mut self, scan: &mut Scan) -> Result<()> {
        let stored: Vec<(u32, SlotAddr, u64)> = scan
            .events
            .iter()
            .filter_map(
                |(seq, e)| if let Event::Log { log, slot } = e { Some((*log, *slot, *seq)) } else { None },
            )
            .collect();
        let mut bytes = [0; SECTOR_BYTES];
        let mut seen_base = FixedSet::default();
        for (log, slot, _) in stored {
            if self.slot_bytes(slot, &mut bytes).is_err() {
                continue;
            }
            if let Some(decoded) = LogSlot::decode(&bytes).filter(|d| d.log == log)
                && seen_base.insert((log, decoded.base_seq))
            {
                let newest = self.found_logs.entry(log).or_default();
                *newest = describe(&decoded).max(*newest);
                add_records(&decoded, self.ftl.log.checkpoint_seq, scan);
            }
        }
        self.add_image_logs(scan)
    }

    /// The log slots in NVRAM that did not reach flash: the newest is gone on with, an older one stored again.
    fn add_image_logs(&mut self, scan: &mut Scan) -> Result<()> {
        let logs: Vec<Vec<u8>> = self.images.iter().rev().map(|i| i.log.clone()).collect();
        for (age, bytes) in logs.iter().enumerate() {
            let Some(decoded) = LogSlot::decode(bytes) else { continue };
            // On flash after all, by the scan or by the checkpoint; or the number was used again since.
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

    /// Bytes of a slot, from flash or from the NVRAM image's open page.
    fn slot_bytes(&self, slot: SlotAddr, out: &mut [u8; SECTOR_BYTES]) -> Result<()> {
        if let Some((entry, data)) = self.staged_at(slot)
            && read_slot_of(&self.ftl, slot, out).map(|e| e.seq).ok() != Some(entry.seq)
        {
            out.copy_from_slice(data);
            return Ok(());
        }
        read_slot_of(&self.ftl, slot, out).map(|_| ())
    }

    fn staged_at(&self, slot: SlotAddr) -> Option<(&Oob, &[u8])> {
        let (page, index) = self.ftl.geometry.page_of_slot(slot);
        let at_page = |i: &&NvramImage| i.open == Some((page.block.0, page.page));
        let image = self.images.iter().rev().find(at_page)?;
        image.staged.get(index as usize).map(|(oob, data)| (oob, &data[..]))
    }

    /// Applies the events in order. A record whose target never reached flash did not happen.
    fn apply(&mut self, events: &[(u64, Event)]) -> Result<()> {
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
            Record::Map { sector, place, check }
                if u64::from(sector) < sectors && self.existed(place, seq, check) =>
            {
                self.set(sector, place);
            }
            Record::Run { first, place, count } if u64::from(first) + u64::from(count) <= sectors => {
                for sector in first..first + count {
                    self.set(sector, if place == Place::ZERO { Place::ZERO } else { Place::HOLE });
                }
            }
            Record::Small { sector, .. } if u64::from(sector) < sectors && entry < 64 => {
                self.set(sector, Place::packed(log, entry));
            }
            _ => {}
        }
    }

    fn set(&mut self, sector: u32, place: Place) {
        self.ftl.map.load(sector, place);
        self.ftl.nodes.mark_sector(sector);
    }

    /// True if the place that the record `seq` names held the bytes it meant. If their program was lost in the
    /// cut, something older may be there; if an earlier crash had undone the record, something younger.
    fn existed(&mut self, place: Place, seq: u64, check: u32) -> bool {
        match place.at() {
            At::Slot(slot) if u64::from(slot.0) < self.ftl.geometry.slots() => {
                let found = self.found.get(&slot).copied().or_else(|| self.before_checkpoint(slot));
                found.is_some_and(|(stored, crc)| stored < seq && crc == check)
            }
            At::Packed { log, entry } => self
                .log_described(log)
                .is_some_and(|(base, packed)| base < seq && base as u32 == check && entry < packed),
            _ => false,
        }
    }

    /// Number and checksum of a slot that is older than the checkpoint.
    fn before_checkpoint(&self, slot: SlotAddr) -> Option<(u64, u32)> {
        let (page, index) = self.ftl.geometry.page_of_slot(slot);
        let pages = read_entries(&*self.ftl.flash, page.block, page.page, page.page + 1).ok()?;
        let entry = pages[0].get(index as usize).copied().flatten()?;
        (entry.seq <= self.ftl.log.checkpoint_seq).then_some((entry.seq, entry.data_crc))
    }

    /// Base and packed sectors of a log slot, wherever it is.
    fn log_described(&mut self, log: u32) -> Option<(u64, u32)> {
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

    /// Entries of every known log slot, so that packed sectors can be read.
    fn load_packed(&mut self) -> Result<()> {
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
                    match self.slot_bytes(slot, &mut bytes) {
                        Ok(()) => LogSlot::decode(&bytes).filter(|d| d.log == log),
                        Err(_) => None,
                    }
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
        Ok(())
    }

    /// Builds rings, owners and valid counts from the places.
    fn link(&mut self) -> Result<()> {
        for sector in 0..self.ftl.map.sectors() as u32 {
            let place = self.ftl.map.place(sector);
            self.ftl.map.place_alone(sector, place);
            match place.at() {
                At::Hole | At::Zero => {}
                At::Slot(slot) => self.link_slot(sector, place, slot)?,
                At::Packed { log, entry } => {
                    let damaged = || {
                        Error::corrupt(format!("sector {sector} is packed in log slot {log}, which is gone"))
                    };
                    if self.ftl.log.packed(log, entry).is_none() {
                        return Err(damaged());
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

    fn link_slot(&mut self, sector: u32, place: Place, slot: SlotAddr) -> Result<()> {
        if u64::from(slot.0) >= self.ftl.geometry.slots() {
            return Err(Error::corrupt(format!("sector {sector} is mapped beyond the device")));
        }
        match self.ftl.map.owner(slot) {
            Owner::Sector(member) => self.ftl.map.join(sector, member),
            _ => {
                self.ftl.map.place_alone(sector, place);
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

    /// Blocks that were written are closed; the newest root's block goes on taking roots.
    fn close_blocks(&mut self, found: &FoundRoot) {
        let written: Vec<BlockAddr> = self.ftl.blocks.in_state(State::Open).collect();
        for block in written {
            let report = self.ftl.flash.report(block);
            if self.resumable() == Some(block.page(report.pages_written)) {
                continue;
            } else if block == found.at.block && report.state == BlockState::Good {
                self.ftl.blocks.set_root(block);
                self.ftl.checkpoint.root_at = Some(block.page(report.pages_written));
            } else if report.state == BlockState::Bad {
                self.ftl.retire(block);
            } else {
                // Seq 0: what is dead now was dead on flash already.
                self.ftl.blocks.load_closed(block, 0);
            }
        }
    }

    /// Continues the ledger so that it equals the device again.
    fn settle_ledger(&mut self, scan: &Scan, found: &FoundRoot) {
        let device = self.ftl.flash.counters().pages_programmed * u64::from(self.ftl.geometry.page_bytes);
        let mut ledger = self.ledger;
        let mut missing = device.saturating_sub(ledger.programmed_total());
        for (total, found) in ledger.programmed.iter_mut().zip(scan.beyond_ledger) {
            let booked = found.min(missing);
            *total += booked;
            missing -= booked;
        }
        ledger.programmed[Cause::BeforePowerCut as usize] += missing;
        // Programs that were booked but never begun when the power went.
        let mut excess = ledger.programmed_total().saturating_sub(device);
        for total in &mut ledger.programmed {
            let taken = excess.min(*total);
            *total -= taken;
            excess -= taken;
        }
        self.ftl.ledger = Arc::new(Ledger::resume(&ledger));
        self.ftl.nvram_generation = self.images.last().map_or(0, |i| i.generation);
        let clean = found.root.clean && scan.last_seq <= found.seq;
        self.ftl.life.opened += 1;
        self.ftl.life.unsafe_shutdowns += u64::from(!clean);
    }

    /// The open page of the newest NVRAM image, if it can still be programmed where it was to go.
    fn resumable(&self) -> Option<PageAddr> {
        let image = self.images.last().filter(|i| !i.staged.is_empty())?;
        let (block, page) = image.open.filter(|(b, _)| *b < self.ftl.geometry.blocks())?;
        let report = self.ftl.flash.report(BlockAddr(block));
        let open = report.state == BlockState::Good && report.pages_written == page;
        open.then_some(BlockAddr(block).page(page))
    }

    /// Slots that only NVRAM holds: the open page is gone on with, those of torn pages are stored anew.
    fn rescue_staged(&mut self) -> Result<()> {
        self.ftl.durable_seq = self.ftl.seq;
        let before = self.ftl.seq;
        let resumed = self.resumable();
        if let (Some(at), Some(image)) = (resumed, self.images.last()) {
            self.ftl.frontiers[self.ftl.geometry.die_of(at.block) as usize] = Frontier::resume(at);
            self.ftl.page.at = Some(at);
            for (entry, data) in &image.staged {
                self.ftl.page.oobs.push(*entry);
                self.ftl.page.data.extend_from_slice(data);
            }
        }
        for image in std::mem::take(&mut self.images) {
            self.rescue(&image, resumed)?;
        }
        self.ftl.store_sealed()?;
        if self.ftl.seq == before {
            return Ok(());
        }
        // Until what was rescued is finished, the images must stay as they are.
        self.ftl.env.sleep_until(self.ftl.last_done);
        self.ftl.persist_and_sync()
    }

    fn rescue(&mut self, image: &NvramImage, resumed: Option<PageAddr>) -> Result<()> {
        let Some((block, page)) = image.open.filter(|(b, _)| *b < self.ftl.geometry.blocks()) else {
            return Ok(());
        };
        let page = BlockAddr(block).page(page);
        if resumed == Some(page) {
            return Ok(());
        }
        let mut on_flash = [0; SECTOR_BYTES];
        for (index, (entry, data)) in image.staged.iter().enumerate() {
            let from = self.ftl.geometry.slot_of(page, index as u32);
            let stored = read_slot_of(&self.ftl, from, &mut on_flash).is_ok_and(|e| e.seq == entry.seq);
            let owner = self.ftl.map.owner(from);
            if !stored && owner != Owner::Nobody {
                let id = if let Owner::Sector(first) = owner { first } else { entry.id };
                let to = self.ftl.store(entry.kind, id, data, entry.data_crc, Cause::Refresh)?;
                self.ftl.relocate(from, to, entry.data_crc, Recorded::FirstOwner)?;
            }
        }
        Ok(())
    }
}

fn describe(log: &LogSlot<'_>) -> (u64, u32) {
    let packed = log.records().filter(|(_, r)| matches!(r, Record::Small { .. })).count();
    (log.base_seq, packed as u32)
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

/// Reads a slot with its out-of-band entry; an error unless both check out.
pub(crate) fn read_slot_of(ftl: &Ftl, slot: SlotAddr, out: &mut [u8; SECTOR_BYTES]) -> Result<Oob> {
    if u64::from(slot.0) >= ftl.geometry.slots() {
        return Err(Error::corrupt(format!("slot {} is beyond the device", slot.0)));
    }
    let (page, index) = ftl.geometry.page_of_slot(slot);
    let mut oob = [0; crate::OOB_BYTES_MAX];
    let oob = &mut oob[..ftl.geometry.oob_bytes as usize];
    ftl.flash.read(IoClass::Metadata, page, index * SECTOR_BYTES as u32, out, oob)?;
    Oob::decode(&oob[index as usize * OOB_ENTRY_BYTES..])
        .filter(|e| e.data_crc == vellum_codes::crc32c(out))
        .ok_or_else(|| Error::corrupt(format!("slot {} does not match its checksum", slot.0)))
}
