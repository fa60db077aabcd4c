//! The map, reconstructed from events. Every change of the map is an event, and events are on flash: data slots name
//! their sector, log slots contain the records, map nodes have the state of 1024 sectors when they were written. For
//! each sector the event with the highest number decides:
//!
//! 1. The newest readable map node gives every sector of its range an event with the node's number.
//! 2. Every data slot is an event, and so are every record of a readable log slot, and the slots in NVRAM.
//! 3. An event is void if its place no longer has the same content (the slot has a higher number now, or the log number
//!    was reused). If it is that of a node or a packed sector, which certainly happened, the sector is *lost* unless a
//!    later event decides. If it is a remap, which a power cut may have undone, the previous event decides and the
//!    sector *may be stale*. It may also be stale if a torn slot, or a node that is gone, has a higher number.
//! 4. Pages without entries, and log slots without records, may have contained events of any sector. The limit of their
//!    numbers follows from the adjacent pages and from the newest root. A sector whose own event, and the checkpoint
//!    that can be followed, are older than that may be stale, even if it is a hole.

mod unseen;

use super::evidence::Evidence;
use super::picture::{Held, Picture, RING_MAX};
use super::repair::RepairReport;
use crate::format::log_slot::{LogSlot, Record};
use crate::format::nvram::NvramImage;
use crate::format::oob::SlotKind;
use crate::format::place::{At, PACKED_ENTRIES_MAX, Place};
use crate::format::root::Root;
use crate::format::{FANOUT, NO_SLOT, decode_node};
use crate::log::Log;
use crate::options::Identity;
use crate::read::read_checked;
use crate::roots::FoundRoot;
use std::collections::{BTreeMap, BTreeSet};
use vellum_base::hash::FixedMap;
use vellum_base::{Flash, Geometry, IoClass, SECTOR_BYTES, SlotAddr};

/// The newest known event of a sector.
#[derive(Clone, Copy)]
struct Newest {
    seq: u64,
    place: Place,
    /// Highest number of any evidence for the sector, void or not.
    seen: u64,
}

/// Sectors between two progress reports.
const PROGRESS_SECTORS: u64 = 1 << 16;

/// Stands for bytes that do not exist anywhere: no log slot has this number.
const LOST: Place = Place(0xFFFF_FFFD);

/// One use of a log number: the content of the slot, and its base number.
struct LogUse {
    base_seq: u64,
    slot: SlotAddr,
    /// First sector of each entry.
    sectors: Vec<u32>,
}

/// A map under reconstruction.
pub(super) struct Rebuild<'a> {
    flash: &'a dyn Flash,
    geometry: Geometry,
    identity: Identity,
    evidence: Evidence,
    held: BTreeMap<SlotAddr, Held>,
    report: RepairReport,
    newest: Vec<Newest>,
    logs: BTreeMap<u32, LogUse>,
    /// Numbers of unreadable log slots.
    unreadable_logs: BTreeSet<u32>,
    /// Highest possible number of an event that cannot be read.
    unseen_seq: u64,
    /// All events up to here are in nodes referenced by the newest root, or are known to be missing there.
    covered_seq: u64,
    /// The newest readable version of each directory: its number, and the slots of its nodes.
    directories: BTreeMap<u32, (u64, Vec<u32>)>,
    /// The use of a log number that a log node refers to, and the number of the directory that lists the node.
    settled: BTreeMap<u32, (u64, u64)>,
    records: Vec<(u64, u32, usize, Record)>,
    /// Highest number of each map node, readable or not.
    node_seqs: BTreeMap<u32, u64>,
    /// Nodes whose newest version is gone, with the highest number of an event it may have reflected.
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
            unreadable_logs: BTreeSet::new(),
            unseen_seq: 0,
            covered_seq: 0,
            directories: BTreeMap::new(),
            settled: BTreeMap::new(),
            records: Vec::new(),
            node_seqs: BTreeMap::new(),
            node_gaps: BTreeMap::new(),
        }
    }

    /// Runs all steps; returns the finished map and the report.
    pub(super) fn run(
        mut self,
        found: Option<&FoundRoot>,
        images: &[NvramImage],
        progress: &mut impl FnMut(u64, u64),
    ) -> (Picture, RepairReport) {
        let root = found.map(|f| &f.root);
        self.bound_unseen(found);
        self.read_logs(images);
        self.read_directories(root);
        self.find_covered(root);
        self.settle_logs();
        self.apply_records();
        self.begin_from_nodes();
        self.look_for_nodes();
        self.apply_data();
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

    /// Decodes every log slot, copies of one only once, and keeps its records.
    fn read_logs(&mut self, images: &[NvramImage]) {
        let mut bytes = [0; SECTOR_BYTES];
        let mut seen = BTreeSet::new();
        let numbers_max = Log::numbers_max(self.geometry.slots());
        let slots: Vec<_> = self.evidence.all_of(SlotKind::Log).collect();
        let (mut read, mut unread) = (BTreeSet::new(), Vec::new());
        for (slot, seq, log) in slots {
            let decoded = if self.read(slot, &mut bytes) { LogSlot::decode(&bytes) } else { None };
            match decoded.filter(|d| d.log == log && log < numbers_max) {
                Some(decoded) => {
                    read.insert((log, self.evidence.crc_of(slot)));
                    if seen.insert((log, decoded.base_seq)) {
                        self.use_log(&decoded, slot);
                    }
                }
                None => {
                    self.report.log_slots_unreadable += 1;
                    self.unreadable_logs.insert(log);
                    unread.push((seq, (log, self.evidence.crc_of(slot))));
                }
            }
        }
        // A log slot with a readable copy is not missing.
        let unread = unread.iter().filter(|(_, what)| !read.contains(what)).map(|(seq, _)| *seq);
        self.unseen_seq = unread.fold(self.unseen_seq, u64::max);
        for (age, image) in (0u32..).zip(images).filter(|(_, image)| image.log.len() <= SECTOR_BYTES) {
            if let Some(decoded) = LogSlot::decode(&image.log)
                && decoded.log < numbers_max
                && seen.insert((decoded.log, decoded.base_seq))
            {
                let slot = self.hold_open_log(decoded.log, &image.log, age);
                self.use_log(&decoded, slot);
            }
        }
    }

    /// Gives a log slot in NVRAM, which has no address yet, one beyond the device.
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
        let mut sectors = Vec::new();
        for (seq, record) in decoded.records() {
            self.evidence.newest_seq = self.evidence.newest_seq.max(seq);
            self.records.push((seq, decoded.log, sectors.len(), record));
            if let Record::Small { sector, .. } = record {
                sectors.push(sector);
            }
        }
        let this = LogUse { base_seq: decoded.base_seq, slot, sectors };
        match self.logs.get_mut(&decoded.log) {
            Some(known) if known.base_seq > this.base_seq => {}
            Some(known) => *known = this,
            None => {
                self.logs.insert(decoded.log, this);
            }
        }
    }

    /// Considers an event for `sector`.
    fn propose(&mut self, sector: u32, seq: u64, place: Place) {
        if let Some(newest) = self.newest.get_mut(sector as usize) {
            newest.seen = newest.seen.max(seq);
            if seq > newest.seq {
                (newest.seq, newest.place) = (seq, place);
            }
        }
    }

    /// Notes an event of `sector` whose outcome is unknown.
    fn suspect(&mut self, sector: u32, seq: u64) {
        if let Some(newest) = self.newest.get_mut(sector as usize) {
            newest.seen = newest.seen.max(seq);
        }
    }

    /// True if the place still has the content it had when event `seq` named it.
    fn holds(&self, place: Place, seq: u64) -> bool {
        match place.at() {
            At::Hole | At::Zero => true,
            At::Slot(slot) => self.evidence.of_kind(slot, SlotKind::Data).is_some_and(|(at, _)| at < seq),
            At::Packed { log, entry } => self
                .logs
                .get(&log)
                .is_some_and(|known| known.base_seq <= seq && (entry as usize) < known.sectors.len()),
        }
    }

    /// True if the place has the content found there by map record `seq`.
    fn is_meant(&self, place: Place, seq: u64, check: u32) -> bool {
        let same = match place.at() {
            At::Slot(slot) => self.evidence.crc_of(slot) == check,
            At::Packed { log, .. } => self.logs.get(&log).is_some_and(|known| known.base_seq as u32 == check),
            At::Hole | At::Zero => false,
        };
        same && self.holds(place, seq)
    }

    /// Nodes do not specify which use of a log number they refer to. If a later use may be unreadable, a packed sector
    /// is trusted in two cases: the entry was packed for the sector itself, or the number was not reused, that is, a
    /// directory newer than the node leads to the same use, or an older one did, and to the same place then. A record
    /// that put the sector there specifies the use.
    fn is_believed(&self, sector: u32, place: Place, seq: u64, before: Place) -> bool {
        let At::Packed { log, entry } = place.at() else { return true };
        let all_known = self.report.unreadable_pages == 0 && !self.unreadable_logs.contains(&log);
        let Some(known) = self.logs.get(&log).filter(|_| !all_known) else { return all_known };
        let not_again = self.settled.get(&log).is_some_and(|(directory, base)| {
            *base == known.base_seq && (*directory > seq || before == place)
        });
        let recorded = self.newest.get(sector as usize).is_some_and(|n| n.place == place && n.seq < seq);
        not_again || recorded || known.sectors.get(entry as usize) == Some(&sector)
    }

    /// The slot of a node according to the newest directory, and that directory's number.
    fn listed(&self, node: u32) -> Option<(SlotAddr, u64)> {
        let (seq, slots) = self.directories.get(&(node / FANOUT as u32))?;
        let slot = slots.get(node as usize % FANOUT).copied().filter(|slot| *slot != NO_SLOT)?;
        Some((SlotAddr(slot), *seq))
    }

    /// Reads the node of this kind and number from a slot.
    fn read_node(&self, slot: SlotAddr, kind: SlotKind, node: u32) -> Option<Vec<u32>> {
        let mut bytes = [0; SECTOR_BYTES];
        let named = self.evidence.of_kind(slot, kind).is_some_and(|(_, id)| id == node);
        if !named || !self.read(slot, &mut bytes) {
            return None;
        }
        let mut listed = vec![NO_SLOT; FANOUT];
        decode_node(&bytes, &mut listed);
        Some(listed)
    }

    /// Reads directories, and checks whether those named by the root exist.
    fn read_directories(&mut self, root: Option<&Root>) {
        let mut all: Vec<_> = self.evidence.all_of(SlotKind::Directory).collect();
        all.sort_unstable_by_key(|(_, seq, _)| std::cmp::Reverse(*seq));
        for (slot, seq, id) in all {
            if !self.directories.contains_key(&id)
                && let Some(listed) = self.read_node(slot, SlotKind::Directory, id)
            {
                self.directories.insert(id, (seq, listed));
            }
        }
        for (directory, slot) in (0u32..).zip(root.map_or(&[][..], |r| &r.directories)) {
            let named = self.evidence.of_kind(SlotAddr(*slot), SlotKind::Directory).is_some();
            if *slot != NO_SLOT && !named && !self.directories.contains_key(&directory) {
                self.report
                    .conflict(format!("directory {directory} is gone: missing map nodes go unnoticed"));
            }
        }
    }

    /// Follows directories and log nodes to the log slots that they refer to.
    fn settle_logs(&mut self) {
        let map_nodes = self.identity.sectors.div_ceil(FANOUT as u64) as u32;
        let mut bytes = [0; SECTOR_BYTES];
        let mut settled = BTreeMap::new();
        let mut node = (0, None);
        for log in self.logs.keys() {
            let number = map_nodes + log / FANOUT as u32;
            if node.0 != number {
                let found = self
                    .listed(number)
                    .and_then(|(slot, seq)| Some((seq, self.read_node(slot, SlotKind::LogNode, number)?)));
                node = (number, found);
            }
            let Some((seq, slots)) = &node.1 else { continue };
            let slot = SlotAddr(slots[*log as usize % FANOUT]);
            let named = self.evidence.of_kind(slot, SlotKind::Log).is_some_and(|(_, id)| id == *log);
            if named
                && self.read(slot, &mut bytes)
                && let Some(decoded) = LogSlot::decode(&bytes)
            {
                settled.insert(*log, (*seq, decoded.base_seq));
            }
        }
        self.settled = settled;
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
        let before = self.listed(node).and_then(|(slot, _)| self.read_node(slot, SlotKind::MapNode, node));
        for (i, place) in (0u32..).zip(places.map(Place)) {
            let sector = node * FANOUT as u32 + i;
            let before = before.as_ref().map_or(Place::HOLE, |places| Place(places[i as usize]));
            let known = self.holds(place, seq) && self.is_believed(sector, place, seq, before);
            self.propose(sector, seq, if known { place } else { LOST });
        }
    }

    /// Looks for missing map nodes, which are listed in directories.
    fn look_for_nodes(&mut self) {
        let map_nodes = self.identity.sectors.div_ceil(FANOUT as u64) as u32;
        for node in 0..map_nodes {
            let Some((slot, seq)) = self.listed(node) else { continue };
            let found = self.evidence.of_kind(slot, SlotKind::MapNode);
            if found.is_none_or(|(_, id)| id != node) && self.node_seqs.get(&node).is_none_or(|at| *at < seq)
            {
                let gap = self.node_gaps.entry(node).or_default();
                *gap = seq.max(*gap);
            }
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

    /// Reads everything the map refers to, and classifies the sectors by the results.
    fn verify(&mut self, progress: &mut impl FnMut(u64, u64)) {
        let sectors = self.identity.sectors;
        self.report.newer_may_be_gone = self.unseen_seq > self.covered_seq;
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
                if seen.max(gap) > seq || self.unseen_seq > seq.max(self.covered_seq) {
                    self.report.stale_sectors.push(sector);
                }
            }
            if sector % PROGRESS_SECTORS == 0 {
                progress(sector, sectors);
            }
        }
        progress(sectors, sectors);
    }

    /// No disk has so many sectors at one place, so excess references are not trusted.
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

/// Log slots with packed sectors in use.
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
