//! The translation layer: places writes, finds the bytes of reads, and records every change as an event.
//!
//! All state is behind one lock (see disk.rs). The time that a request has to wait for is gathered in
//! [`Ftl::wait_until`]; the sleep follows after the lock is released. There are two sleeps with the lock held: one
//! before a root is written, and one in `write_nvram`, until programs complete whose bytes are still in the previous
//! image.
//!
//! Invariants:
//! 1. Every change of the map has a sequence number, and either a slot's out-of-band entry or a log record.
//! 2. `durable_seq` only grows, and only once everything up to it is on flash or in NVRAM and synced.
//! 3. A slot loses its owner only after the event that moved the owner has its number.
//! 4. Bytes recorded in the ledger equal bytes programmed.

use crate::blocks::Blocks;
use crate::budget::Budget;
use crate::checked::Checked;
use crate::checkpoint::Checkpoint;
use crate::format::log_slot::SMALL_MAX;
use crate::format::oob::SlotKind;
use crate::format::place::{At, Place};
use crate::format::root::LifeCounters;
use crate::frontier::{Frontier, OpenPage};
use crate::gc::Collector;
use crate::journal_watch::JournalWatch;
use crate::keeping::Keeping;
use crate::log::{Log, Packed};
use crate::map::{Map, Owner};
use crate::marks::Marks;
use crate::nodes::Nodes;
use crate::options::{Identity, Options};
use crate::policy::Policy;
use crate::refill::Refill;
use crate::sampling::Sampling;
use crate::seeds::{LastPage, PlainCount};
use std::collections::VecDeque;
use std::sync::Arc;
use vellum_base::{
    Avoided, Cause, Env, Error, Flash, Geometry, IoClass, Kind, Ledger, Nanos, Result, SECTOR_BYTES, SlotAddr,
};
use vellum_codes::{Digest, lines};

/// An incoming sector, with what is computed before the lock is taken.
pub(crate) struct Incoming<'a> {
    pub data: &'a [u8],
    pub is_zero: bool,
    pub crc: u32,
    pub digest: Option<Digest>,
    /// Not fingerprinted for lack of time: copies are looked for later.
    pub passed_by: bool,
    /// Bitmap of non-zero lines, if few enough to pack.
    pub small: Option<u64>,
}

impl<'a> Incoming<'a> {
    /// Bytes to be stored as they are.
    pub(crate) fn plain(data: &'a [u8], crc: u32) -> Incoming<'a> {
        Incoming { data, is_zero: false, crc, digest: None, passed_by: false, small: None }
    }

    fn tag(&self) -> u16 {
        tag_of(self.crc)
    }
}

/// The result of looking for a copy.
enum Found {
    Copy(Place),
    Nothing,
    /// The data to compare with would have arrived too late.
    TooLate,
}

/// 16 bits of a content's checksum, never 0.
pub(crate) fn tag_of(crc: u32) -> u16 {
    (crc as u16).max(1)
}

/// The state of the translation layer; see the module.
pub(crate) struct Ftl {
    pub flash: Arc<dyn Flash>,
    pub env: Arc<dyn Env>,
    pub geometry: Geometry,
    pub ledger: Arc<Ledger>,
    pub identity: Identity,
    pub options: Options,
    pub map: Map,
    pub checked: Checked,
    pub blocks: Blocks,
    pub log: Log,
    pub nodes: Nodes,
    pub policy: Policy,
    pub budget: Arc<Budget>,
    pub marks: Marks,
    pub refill: Refill,
    pub keeping: Keeping,
    pub life: LifeCounters,
    /// For host data, log slots and nodes.
    pub frontiers: Vec<Frontier>,
    pub page: OpenPage,
    /// For each die, the sectors stored plain in the previous page.
    pub last_pages: Vec<LastPage>,
    pub plain: PlainCount,
    pub collectors: Vec<Collector>,
    pub checkpoint: Checkpoint,
    /// Number of the last event.
    pub seq: u64,
    pub durable_seq: u64,
    pub nvram_generation: u64,
    /// When everything programmed before the last NVRAM image completes.
    pub nvram_ready_at: Nanos,
    /// When everything programmed so far completes.
    pub last_done: Nanos,
    /// When the data read by the current request is available.
    pub wait_until: Nanos,
    /// Completion times of the programs in flight, for [`Ftl::admit`].
    pub in_flight: VecDeque<Nanos>,
    pub next_die: u32,
    pub making_room: bool,
    /// A program failed and its slots moved since the open log slot was last sealed.
    pub moved_from_bad: bool,
    pub poisoned: Option<String>,
    pub pack: bool,
    pub watch: JournalWatch,
    /// Decides whether to compare with the contents of a sector whose tag is unknown.
    pub untagged: Sampling,
    /// Number of sectors read in for the policy since the disk was opened.
    pub learned_sectors: u64,
}

impl Ftl {
    /// A translation layer over `flash` with an empty map.
    pub(crate) fn new(flash: Arc<dyn Flash>, env: Arc<dyn Env>, identity: Identity, options: Options) -> Ftl {
        let geometry = *flash.geometry();
        let dies = geometry.dies() as usize;
        let budget = Arc::new(Budget::new(identity.dedup, &options));
        Ftl {
            ledger: Arc::new(Ledger::default()),
            map: Map::new(identity.sectors, geometry.slots()),
            checked: Checked::default(),
            blocks: Blocks::new(geometry),
            log: Log::new(0, 0, Log::numbers_max(geometry.slots())),
            nodes: Nodes::new(identity.sectors),
            policy: Policy::new(&identity, &options),
            refill: Refill::of(&geometry, identity.dedup == crate::DedupMode::Ecc),
            marks: if budget.marks() { Marks::new(identity.sectors) } else { Marks::default() },
            budget,
            keeping: Keeping::default(),
            life: LifeCounters::default(),
            frontiers: vec![Frontier::default(); dies],
            page: OpenPage::new(&geometry),
            last_pages: vec![LastPage::default(); dies],
            plain: PlainCount::default(),
            collectors: (0..dies).map(|_| Collector::default()).collect(),
            checkpoint: Checkpoint::new(&options, identity.sectors, geometry.slots()),
            seq: 0,
            durable_seq: 0,
            nvram_generation: 0,
            nvram_ready_at: Nanos::ZERO,
            last_done: Nanos::ZERO,
            wait_until: Nanos::ZERO,
            in_flight: VecDeque::new(),
            next_die: 0,
            making_room: false,
            moved_from_bad: false,
            poisoned: None,
            pack: options.pack.unwrap_or(identity.dedup == crate::DedupMode::Journal),
            watch: JournalWatch::default(),
            untagged: Sampling::default(),
            learned_sectors: 0,
            flash,
            env,
            geometry,
            identity,
            options,
        }
    }

    /// Writes one sector.
    pub(crate) fn write(&mut self, sector: u32, incoming: &Incoming<'_>) -> Result<()> {
        self.watch.note_write(sector, incoming.data);
        self.map.prefetch(sector);
        self.expect_program(incoming)?;
        if let At::Slot(slot) = self.map.place(sector).at() {
            self.map.prefetch_owner(slot);
            self.blocks.prefetch(self.geometry.block_of_slot(slot));
        }
        if self.options.elide && self.elided(sector, incoming)? {
            return Ok(());
        }
        let is_kept = self.keeping.keeps(sector);
        let digest = incoming.digest.filter(|_| !is_kept);
        let mut passed_by = incoming.passed_by && !is_kept;
        if let Some(digest) = digest {
            match self.find_copy(sector, digest, incoming)? {
                Found::Copy(place) => {
                    self.ledger.avoided(self.policy.reason(), SECTOR_BYTES as u64);
                    if place != self.map.place(sector) {
                        self.remap(sector, place, incoming.crc)?;
                    }
                    self.policy.stored(sector, digest, incoming.data, &self.map);
                    return Ok(());
                }
                Found::TooLate => passed_by = true,
                Found::Nothing => {}
            }
        }
        match incoming.small {
            Some(lines) if self.pack => self.write_packed(sector, incoming, lines)?,
            _ => self.write_slot(sector, incoming)?,
        }
        match digest {
            _ if passed_by => self.marks.set(sector),
            Some(digest) => self.policy.stored(sector, digest, incoming.data, &self.map),
            None => {}
        }
        Ok(())
    }

    /// Opens a page now if the write will probably need one, so that any collection overlaps with the prefetches for
    /// the sector. If there is no page, the error is returned later, by the caller that needs one.
    fn expect_program(&mut self, incoming: &Incoming<'_>) -> Result<()> {
        let may_need_none = incoming.is_zero || incoming.digest.is_some() || incoming.small.is_some();
        if may_need_none {
            return Ok(());
        }
        match self.prepare_page() {
            Err(e) if e.kind() == Kind::NoSpace && self.poisoned.is_none() => Ok(()),
            prepared => prepared,
        }
    }

    /// True if the sector needs no program because it is zero, or already holds these bytes.
    fn elided(&mut self, sector: u32, incoming: &Incoming<'_>) -> Result<bool> {
        if incoming.is_zero {
            self.ledger.avoided(Avoided::Zero, SECTOR_BYTES as u64);
            self.set_run(sector, 1, Place::ZERO)?;
            return Ok(true);
        }
        if !self.has_already(sector, incoming)? {
            return Ok(false);
        }
        self.ledger.avoided(Avoided::SameContent, SECTOR_BYTES as u64);
        Ok(true)
    }

    /// True if the sector holds these bytes. If its tag has been unknown since the disk was opened, only a comparison
    /// can tell, which pays for some workloads and never for others (docs/decisions/0006).
    fn has_already(&mut self, sector: u32, incoming: &Incoming<'_>) -> Result<bool> {
        let (place, tag) = (self.map.place(sector), self.map.tag(sector));
        if !place.holds_bytes() {
            return Ok(false);
        }
        let may_be = if tag == 0 { self.untagged.looks() } else { tag == incoming.tag() };
        if !may_be {
            return Ok(false);
        }
        let equal = self.holds(place, incoming.data)?;
        if tag == 0 {
            self.untagged.learned(equal);
        }
        if equal {
            self.map.set_tag(sector, incoming.tag());
        }
        Ok(equal)
    }

    /// Finds a place with the same bytes as `incoming` that `sector` may share.
    fn find_copy(&mut self, sector: u32, digest: Digest, incoming: &Incoming<'_>) -> Result<Found> {
        let begun = if self.budget.limits() { self.env.now() } else { Nanos::ZERO };
        let waited = std::mem::take(&mut self.wait_until);
        let found = self.compare_candidates(sector, digest, incoming)?;
        let read_at = std::mem::replace(&mut self.wait_until, waited);
        if self.budget.limits() {
            let now = self.env.now();
            self.budget.spend(begun, now, Nanos::ZERO);
            if self.budget.is_late(begun, read_at) {
                return Ok(Found::TooLate);
            }
        }
        self.wait_until = waited.max(read_at);
        Ok(found)
    }

    fn compare_candidates(&mut self, sector: u32, digest: Digest, incoming: &Incoming<'_>) -> Result<Found> {
        let trusted = self.policy.trusts_fingerprint(self.options.unverified);
        let candidates = self.policy.candidates(sector, digest, incoming.tag(), &self.map);
        for place in candidates.as_slice().iter().copied().filter(|p| p.holds_bytes()) {
            let Some(member) = self.first_owner(place) else { continue };
            if !self.keeping.keeps(member)
                && !self.map.is_full(member)
                && (trusted || self.holds(place, incoming.data)?)
            {
                return Ok(Found::Copy(place));
            }
        }
        Ok(Found::Nothing)
    }

    /// True if the bytes at `place` are `data`. An unreadable copy does not count.
    fn holds(&mut self, place: Place, data: &[u8]) -> Result<bool> {
        if let Some(equal) = self.policy.compare_cached(place, data, &self.map) {
            return Ok(equal);
        }
        let mut stored = [0; SECTOR_BYTES];
        match self.read_place(place, IoClass::Foreground, &mut stored) {
            Ok(()) => Ok(stored == *data),
            Err(e) if e.kind() == Kind::Corrupt => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The first member of the ring at `place`.
    pub(crate) fn first_owner(&self, place: Place) -> Option<u32> {
        match place.at() {
            At::Slot(slot) => match self.map.owner(slot) {
                Owner::Sector(first) => Some(first),
                _ => None,
            },
            At::Packed { log, entry } => self.log.packed(log, entry)?.owner,
            At::Hole | At::Zero => None,
        }
    }

    /// Makes `sector` share `place`, which has owners.
    pub(crate) fn remap(&mut self, sector: u32, place: Place, crc: u32) -> Result<()> {
        let Some(member) = self.first_owner(place) else {
            return Err(Error::corrupt("a copy vanished while it was being shared"));
        };
        self.seq += 1;
        self.record_map(sector, place, crc)?;
        self.detach(sector);
        self.map.join(sector, member);
        self.map.set_tag(sector, tag_of(crc));
        self.nodes.mark_sector(sector);
        Ok(())
    }

    pub(crate) fn write_slot(&mut self, sector: u32, incoming: &Incoming<'_>) -> Result<()> {
        let slot = self.store(SlotKind::Data, sector, incoming.data, incoming.crc, Cause::HostData)?;
        self.detach(sector);
        self.map.place_alone(sector, Place::slot(slot));
        self.adopt(slot, Owner::Sector(sector), incoming.tag());
        self.nodes.mark_sector(sector);
        Ok(())
    }

    fn write_packed(&mut self, sector: u32, incoming: &Incoming<'_>, lines: u64) -> Result<()> {
        let mut packed = Vec::with_capacity(SMALL_MAX);
        lines::pack(incoming.data, &mut packed);
        debug_assert_eq!(packed.len(), lines::packed_len(lines));
        self.seq += 1;
        let writer = self.log.writer(self.seq, Some(packed.len()))?;
        let (entry, offset, length) = writer.push_small(self.seq, sector, &packed);
        let log = writer.log();
        let place = Place::packed(log, entry);
        self.detach(sector);
        self.map.place_alone(sector, place);
        self.map.set_tag(sector, incoming.tag());
        let info = self.log.info_mut(log);
        info.packed.push(Packed { offset, length, owner: Some(sector) });
        info.live += 1;
        info.last_seq = self.seq;
        self.nodes.mark_sector(sector);
        self.ledger.avoided(Avoided::Packed, (SECTOR_BYTES - packed.len()) as u64);
        Ok(())
    }

    /// Makes `count` sectors from `first` holes or zeros. Returns how many of them held bytes.
    pub(crate) fn set_run(&mut self, first: u32, count: u32, place: Place) -> Result<u64> {
        let (mut changed, mut held) = (false, 0);
        for sector in first..first + count {
            let old = self.map.place(sector);
            if old != place {
                if !changed {
                    self.seq += 1;
                    changed = true;
                }
                held += u64::from(old.holds_bytes());
                self.watch.note_cleared(sector);
                self.detach(sector);
                self.map.place_alone(sector, place);
                self.nodes.mark_sector(sector);
            }
        }
        if changed {
            self.record_run(first, place, count)?;
        }
        Ok(held)
    }

    /// Logs that `count` sectors from `first` are holes or zeros, with the current number.
    pub(crate) fn record_run(&mut self, first: u32, place: Place, count: u32) -> Result<()> {
        let writer = self.log.writer(self.seq, None)?;
        writer.push_run(self.seq, first, place, count);
        let log = writer.log();
        self.log.info_mut(log).last_seq = self.seq;
        Ok(())
    }

    /// Logs that `sector` is now at `place`, with the current number. `crc` is that of the bytes there: if their
    /// program is lost in a power cut that the record survives, replay will notice.
    pub(crate) fn record_map(&mut self, sector: u32, place: Place, crc: u32) -> Result<()> {
        let check = match place.at() {
            At::Packed { log, .. } => self.log.info(log).map_or(0, |i| i.base_seq as u32),
            _ => crc,
        };
        let writer = self.log.writer(self.seq, None)?;
        writer.push_map(self.seq, sector, place, check);
        let log = writer.log();
        self.log.info_mut(log).last_seq = self.seq;
        Ok(())
    }

    /// Detaches `sector` from its place; a place that loses its last sector is released.
    fn detach(&mut self, sector: u32) {
        self.policy.overwritten(sector);
        self.marks.clear(sector);
        let place = self.map.place(sector);
        if !place.holds_bytes() {
            return;
        }
        let left = self.map.leave(sector, Place::HOLE);
        match (place.at(), left) {
            (At::Slot(slot), Some(member)) => self.map.set_owner(slot, Owner::Sector(member)),
            (At::Slot(slot), None) => {
                self.policy.released(place);
                self.disown(slot);
            }
            (At::Packed { log, entry }, left) => self.leave_packed(log, entry, left),
            (At::Hole | At::Zero, _) => {}
        }
    }

    fn leave_packed(&mut self, log: u32, entry: u32, left: Option<u32>) {
        let info = self.log.info_mut(log);
        info.packed[entry as usize].owner = left;
        if left.is_none() {
            info.live -= 1;
            self.policy.released(Place::packed(log, entry as usize));
            self.release_log_slot(log);
        }
    }

    /// Releases a log slot if nothing needs it.
    pub(crate) fn release_log_slot(&mut self, log: u32) {
        if let Some(slot) = self.log.release_if_unneeded(log, self.seq) {
            self.disown(slot);
            self.nodes.mark_log(log);
        }
    }

    /// Removes the owner of a slot.
    pub(crate) fn disown(&mut self, slot: SlotAddr) {
        self.map.set_owner(slot, Owner::Nobody);
        self.blocks.invalidate(self.geometry.block_of_slot(slot), self.seq);
    }

    /// Gives a slot just stored to `owner`, and records the tag of its content.
    pub(crate) fn adopt(&mut self, slot: SlotAddr, owner: Owner, tag: u16) {
        if let Owner::Sector(sector) = owner {
            self.map.set_tag(sector, tag);
        }
        self.give(slot, owner);
    }

    pub(crate) fn give(&mut self, slot: SlotAddr, owner: Owner) {
        self.map.set_owner(slot, owner);
        self.blocks.validate(self.geometry.block_of_slot(slot));
    }
}
