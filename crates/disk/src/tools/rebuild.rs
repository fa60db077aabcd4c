//! The map, put together from events. Every change of the map is one, and they are on flash: data slots name their
//! sector, log slots hold the records, map nodes say how 1024 sectors stood when they were written. For each
//! sector the event with the highest number decides:
//!
//! 1. The newest readable map node gives every sector of its range an event with the node's number.
//! 2. Every data slot is one, every record of a readable log slot is one, and so are the slots in NVRAM.
//! 3. An event whose place does not hold what it held then (the slot has a higher number now, the log number was
//!    used again) is void. If it is a node's or a packed sector's, which certainly happened, the sector is *lost*
//!    unless a later event decides; if it is a remap, which a power cut may have undone, the one before decides
//!    and the sector *may be stale*. So may it be if a torn slot, or a node that is gone, has a higher number.

use super::evidence::Evidence;
use super::picture::{Held, Picture, RING_MAX};
use super::repair::RepairReport;
use crate::format::log_slot::{LogSlot, Record};
use crate::format::nvram::NvramImage;
use crate::format::oob::SlotKind;
use crate::format::place::{At, LOG_NUMBERS_MAX, PACKED_ENTRIES_MAX, Place};
use crate::format::root::Root;
use crate::format::{FANOUT, NO_SLOT, decode_node};
use crate::ftl::read_checked;
use crate::options::Identity;
use std::collections::{BTreeMap, BTreeSet};
use vellum_base::hash::FixedMap;
use vellum_base::{Flash, Geometry, IoClass, SECTOR_BYTES, SlotAddr};

/// The newest event of a sector so far.
#[derive(Clone, Copy)]
struct Newest {
    seq: u64,
    place: Place,
    /// Highest number of any evidence for the sector, void or not.
    seen: u64,
}

/// Sectors between two calls of the progress function.
const PROGRESS_SECTORS: u64 = 1 << 16;

/// Stands for bytes that are nowhere: no log slot has this number.
const LOST: Place = Place(0xFFFF_FFFD);

/// One use of a log number: what the slot holds, and from which number on.
struct LogUse {
    base_seq: u64,
    slot: SlotAddr,
    small: u32,
}

/// A map under construction.
pub(super) struct Rebuild<'a> {
    flash: &'a dyn Flash,
    geometry: Geometry,
    identity: Identity,
    evidence: Evidence,
    held: BTreeMap<SlotAddr, Held>,
    report: RepairReport,
    newest: Vec<Newest>,
    logs: BTreeMap<u32, LogUse>,
    records: Vec<(u64, u32, usize, Record)>,
    /// Highest number of each map node, readable or not.
    node_seqs: BTreeMap<u32, u64>,
    /// Nodes whose newest version is gone, and the number up to which it may have known better.
    node_gaps: BTreeMap<u32, u64>,
}

impl<'a> Rebuild<'a> {
    pub(super) fn new(
        flash: &'a dyn Flash,
        identity: Identity,
        evidence: Evidence,
        held: BTreeMap<SlotAddr, Held>,
        report: RepairReport,
    ) -> Rebuild<'a> {
        let hole = Newest { seq: 0, place: Place::HOLE, seen: 0 };
        Rebuild {
            geometry: *flash.geometry(),
            newest: vec![hole; identity.sectors as usize],
            flash,
            identity,
            evidence,
            held,
            report,
            logs: BTreeMap::new(),
            records: Vec::new(),
            node_seqs: BTreeMap::new(),
            node_gaps: BTreeMap::new(),
        }
    }

    /// All steps; the finished map and what there is to say about it.
    pub(super) fn run(
        mut self,
        root: Option<&Root>,
        images: &[NvramImage],
        progress: &mut impl FnMut(u64, u64),
    ) -> (Picture, RepairReport) {
        self.read_logs(images);
        self.begin_from_nodes();
        self.look_at_directories(root);
        self.apply_data();
        self.apply_records();
        self.verify(progress);
        self.finish(root, images.first())
    }

    fn read(&self, slot: SlotAddr, out: &mut [u8; SECTOR_BYTES]) -> bool {
        if let Some(held) = self.held.get(&slot) {
            out.copy_from_slice(&held.data);
            return vellum_codes::crc32c(out) == held.data_crc;
        }
        let (page, index) = self.geometry.page_of_slot(slot);
        read_checked(self.flash, IoClass::Metadata, page, index, out).is_ok()
    }

    /// Opens every log slot, copies of one only once, and keeps its records.
    fn read_logs(&mut self, images: &[NvramImage]) {
        let mut bytes = [0; SECTOR_BYTES];
        let mut seen = BTreeSet::new();
        let slots: Vec<_> = self.evidence.all_of(SlotKind::Log).collect();
        for (slot, _, log) in slots {
            let decoded = if self.read(slot, &mut bytes) { LogSlot::decode(&bytes) } else { None };
            match decoded.filter(|d| d.log == log && log < LOG_NUMBERS_MAX) {
                Some(decoded) if seen.insert((log, decoded.base_seq)) => self.use_log(&decoded, slot),
                Some(_) => {}
                None => self.report.log_slots_unreadable += 1,
            }
        }
        for (age, image) in (0u32..).zip(images).filter(|(_, image)| image.log.len() <= SECTOR_BYTES) {
            if let Some(decoded) = LogSlot::decode(&image.log)
                && decoded.log < LOG_NUMBERS_MAX
                && seen.insert((decoded.log, decoded.base_seq))
            {
                let slot = self.hold_open_log(decoded.log, &image.log, age);
                self.use_log(&decoded, slot);
            }
        }
    }

    /// A log slot in NVRAM has no address yet: it gets one beyond the device.
    fn hold_open_log(&mut self, log: u32, open: &[u8], age: u32) -> SlotAddr {
        let mut data = open.to_vec();
        data.resize(SECTOR_BYTES, 0);
        let slot = SlotAddr(self.geometry.slots() as u32 + age);
        let data_crc = vellum_codes::crc32c(&data);
        self.held.insert(slot, Held { kind: SlotKind::Log, id: log, data_crc, data });
        slot
    }

    fn use_log(&mut self, decoded: &LogSlot<'_>, slot: SlotAddr) {
        self.report.log_slots_used += 1;
        let mut small = 0;
        for (seq, record) in decoded.records() {
            self.evidence.newest_seq = self.evidence.newest_seq.max(seq);
            self.records.push((seq, decoded.log, small, record));
            small += usize::from(matches!(record, Record::Small { .. }));
        }
        let this = LogUse { base_seq: decoded.base_seq, slot, small: small as u32 };
        match self.logs.get_mut(&decoded.log) {
            Some(known) if known.base_seq > this.base_seq => {}
            Some(known) => *known = this,
            None => {
                self.logs.insert(decoded.log, this);
            }
        }
    }

    /// Takes an event for `sector` into account.
    fn propose(&mut self, sector: u32, seq: u64, place: Place) {
        if let Some(newest) = self.newest.get_mut(sector as usize) {
            newest.seen = newest.seen.max(seq);
            if seq > newest.seq {
                (newest.seq, newest.place) = (seq, place);
            }
        }
    }

    /// There was an event, but what became of the sector cannot be told from it.
    fn suspect(&mut self, sector: u32, seq: u64) {
        if let Some(newest) = self.newest.get_mut(sector as usize) {
            newest.seen = newest.seen.max(seq);
        }
    }

    /// True if the place still holds what it held when the event `seq` named it.
    fn holds(&self, place: Place, seq: u64) -> bool {
        match place.at() {
            At::Hole | At::Zero => true,
            At::Slot(slot) => self.evidence.of_kind(slot, SlotKind::Data).is_some_and(|(at, _)| at < seq),
            At::Packed { log, entry } => {
                self.logs.get(&log).is_some_and(|known| known.base_seq <= seq && entry < known.small)
            }
        }
    }

    /// True if the place holds what the map record `seq` found there.
    fn is_meant(&self, place: Place, seq: u64, check: u32) -> bool {
        let same = match place.at() {
            At::Slot(slot) => self.evidence.crc_of(slot) == check,
            At::Packed { log, .. } => self.logs.get(&log).is_some_and(|known| known.base_seq as u32 == check),
            At::Hole | At::Zero => false,
        };
        same && self.holds(place, seq)
    }

    fn begin_from_nodes(&mut self) {
        let mut nodes: BTreeMap<u32, Vec<(u64, SlotAddr)>> = BTreeMap::new();
        for (slot, seq, id) in self.evidence.all_of(SlotKind::MapNode) {
            if u64::from(id) * (FANOUT as u64) < self.identity.sectors {
                nodes.entry(id).or_default().push((seq, slot));
            }
        }
        let mut bytes = [0; SECTOR_BYTES];
        for (node, mut versions) in nodes {
            versions.sort_unstable_by_key(|v| std::cmp::Reverse(*v));
            let readable = versions.iter().position(|(_, slot)| self.read(*slot, &mut bytes));
            self.node_seqs.insert(node, versions[0].0);
            if readable != Some(0) {
                self.node_gaps.insert(node, versions[0].0);
            }
            if let Some(at) = readable {
                self.begin_from(node, versions[at].0, &bytes);
            }
        }
    }

    fn begin_from(&mut self, node: u32, seq: u64, bytes: &[u8; SECTOR_BYTES]) {
        self.report.map_nodes_used += 1;
        let mut places = [0; FANOUT];
        decode_node(bytes, &mut places);
        for (i, place) in (0u32..).zip(places.map(Place)) {
            let place = if self.holds(place, seq) { place } else { LOST };
            self.propose(node * FANOUT as u32 + i, seq, place);
        }
    }

    /// Directories and the root know which nodes there should be.
    fn look_at_directories(&mut self, root: Option<&Root>) {
        let mut newest: BTreeMap<u32, (u64, SlotAddr)> = BTreeMap::new();
        let mut bytes = [0; SECTOR_BYTES];
        let directories: Vec<_> = self.evidence.all_of(SlotKind::Directory).collect();
        for (slot, seq, id) in directories {
            if newest.get(&id).is_none_or(|(known, _)| *known < seq) && self.read(slot, &mut bytes) {
                newest.insert(id, (seq, slot));
            }
        }
        for (directory, slot) in (0u32..).zip(root.map_or(&[][..], |r| &r.directories)) {
            let named = self.evidence.of_kind(SlotAddr(*slot), SlotKind::Directory).is_some();
            if *slot != NO_SLOT && !named && !newest.contains_key(&directory) {
                self.report
                    .conflict(format!("directory {directory} is gone: missing map nodes go unnoticed"));
            }
        }
        let mut listed = [0; FANOUT];
        for (directory, (seq, slot)) in newest {
            if !self.read(slot, &mut bytes) {
                continue;
            }
            decode_node(&bytes, &mut listed);
            for (i, slot) in (0u32..).zip(listed) {
                self.look_for_node(directory.saturating_mul(FANOUT as u32).saturating_add(i), slot, seq);
            }
        }
    }

    /// A directory with number `seq` says that `node` is in `slot`.
    fn look_for_node(&mut self, node: u32, slot: u32, seq: u64) {
        let wanted = u64::from(node) * (FANOUT as u64) < self.identity.sectors;
        let there =
            self.evidence.of_kind(SlotAddr(slot), SlotKind::MapNode).is_some_and(|(_, id)| id == node);
        if !wanted || slot == NO_SLOT || there {
            return;
        }
        if self.node_seqs.get(&node).is_none_or(|at| *at < seq) {
            let gap = self.node_gaps.entry(node).or_default();
            *gap = seq.max(*gap);
        }
    }

    fn apply_data(&mut self) {
        let slots: Vec<_> = self.evidence.all_of(SlotKind::Data).collect();
        for (slot, seq, sector) in slots {
            self.propose(sector, seq, Place::slot(slot));
        }
        for torn in std::mem::take(&mut self.evidence.torn) {
            if torn.kind == SlotKind::Data {
                self.suspect(torn.id, torn.seq);
            }
        }
    }

    fn apply_records(&mut self) {
        for (seq, log, entry, record) in std::mem::take(&mut self.records) {
            match record {
                Record::Map { sector, place, check } if self.is_meant(place, seq, check) => {
                    self.propose(sector, seq, place);
                }
                Record::Map { sector, .. } => self.suspect(sector, seq),
                Record::Run { first, place, count } => {
                    let end = (u64::from(first) + u64::from(count)).min(self.identity.sectors) as u32;
                    let place = if place == Place::ZERO { Place::ZERO } else { Place::HOLE };
                    (first..end).for_each(|sector| self.propose(sector, seq, place));
                }
                Record::Small { sector, .. } if entry < PACKED_ENTRIES_MAX => {
                    let place = Place::packed(log, entry);
                    let place = if self.holds(place, seq) { place } else { LOST };
                    self.propose(sector, seq, place);
                }
                Record::Small { sector, .. } => self.suspect(sector, seq),
            }
        }
    }

    /// Reads what the map came to name, and sorts the sectors by what they are.
    fn verify(&mut self, progress: &mut impl FnMut(u64, u64)) {
        let sectors = self.identity.sectors;
        self.thin_out_rings();
        let mut readable: FixedMap<SlotAddr, bool> = FixedMap::default();
        for sector in 0..sectors {
            let Newest { place, seq, seen } = self.newest[sector as usize];
            let gap = self.node_gaps.get(&(sector as u32 / FANOUT as u32)).copied().unwrap_or(0);
            if place == LOST {
                self.report.lost_sectors.push(sector);
            } else if !self.is_readable(place, &mut readable) {
                self.report.damaged_sectors.push(sector);
            } else {
                self.report.recovered_sectors += u64::from(place.holds_bytes());
                if seen.max(gap) > seq {
                    self.report.stale_sectors.push(sector);
                }
            }
            if sector % PROGRESS_SECTORS == 0 {
                progress(sector, sectors);
            }
        }
        progress(sectors, sectors);
    }

    /// No disk lets so many sectors share a place; what lies about that is not believed.
    fn thin_out_rings(&mut self) {
        let mut sharing: FixedMap<Place, usize> = FixedMap::default();
        for newest in self.newest.iter_mut().filter(|n| n.place != LOST && n.place.holds_bytes()) {
            let members = sharing.entry(newest.place).or_default();
            *members += 1;
            if *members > RING_MAX {
                self.report.conflict(format!("more than {RING_MAX} sectors share {:?}", newest.place.at()));
                newest.place = LOST;
            }
        }
    }

    fn is_readable(&self, place: Place, readable: &mut FixedMap<SlotAddr, bool>) -> bool {
        let At::Slot(slot) = place.at() else { return true };
        *readable.entry(slot).or_insert_with(|| self.read(slot, &mut [0; SECTOR_BYTES]))
    }

    fn finish(mut self, root: Option<&Root>, image: Option<&NvramImage>) -> (Picture, RepairReport) {
        self.report.map_nodes_old = self.node_gaps.keys().copied().collect();
        let lost = |(sector, newest): (u32, &Newest)| (newest.place == LOST).then_some(sector);
        let lost: Vec<u32> = (0u32..).zip(&self.newest).filter_map(lost).collect();
        let place = |newest: &Newest| if newest.place == LOST { Place::HOLE } else { newest.place };
        let ledger = image.map(|i| i.ledger).or(root.map(|r| r.ledger));
        let picture = Picture {
            identity: self.identity,
            life: root.map(|r| r.life).unwrap_or_default(),
            ledger: ledger.unwrap_or_default(),
            places: self.newest.iter().map(place).collect(),
            logs: used_logs(&self.newest, &self.logs),
            held: self.held,
            lost,
            seq: self.evidence.newest_seq.max(root.map_or(0, |r| r.checkpoint_seq.max(r.durable_seq))),
            nvram_generation: image.map_or(0, |i| i.generation),
        };
        (picture, self.report)
    }
}

/// Log slots that a sector is packed in.
fn used_logs(newest: &[Newest], logs: &BTreeMap<u32, LogUse>) -> BTreeMap<u32, SlotAddr> {
    let mut used = BTreeMap::new();
    for newest in newest.iter().filter(|n| n.place != LOST) {
        if let At::Packed { log, .. } = newest.place.at()
            && let Some(known) = logs.get(&log)
        {
            used.insert(log, known.slot);
        }
    }
    used
}
