//! The translation layer: writes find a place, reads find the bytes, and every change becomes an event.
//!
//! All state is behind one lock (see disk.rs). Nothing here sleeps (but a checkpoint, once, before its root):
//! what a request has to wait for is gathered in [`Ftl::wait_until`], and slept for after the lock is released.
//!
//! Invariants:
//! 1. Every change of the map has a sequence number, and either a slot's out-of-band entry or a log record.
//! 2. `durable_seq` only grows, and only when everything up to it is on flash or in NVRAM and synced.
//! 3. A slot loses its owner only after the event that moved the owner has its number.
//! 4. Bytes booked in the ledger equal bytes programmed.

use crate::blocks::{Blocks, State};
use crate::checkpoint::Checkpoint;
use crate::format::log_slot::SMALL_MAX;
use crate::format::oob::{OOB_ENTRY_BYTES, Oob, SlotKind};
use crate::format::place::{At, Place};
use crate::format::root::LifeCounters;
use crate::frontier::{Frontier, OpenPage};
use crate::gc::Collector;
use crate::journal_watch::JournalWatch;
use crate::log::{Log, Packed};
use crate::map::{Map, Owner};
use crate::nodes::Nodes;
use crate::options::{Identity, Options};
use crate::policy::Policy;
use std::collections::VecDeque;
use std::sync::Arc;
use vellum_base::{
    Avoided, BlockAddr, Cause, Env, Error, Flash, FlashError, Geometry, IoClass, Kind, Ledger, Nanos,
    PageAddr, Result, SECTOR_BYTES, SlotAddr, Source,
};
use vellum_codes::{Digest, lines};

/// Free blocks of a die that only garbage collection may open.
const RESERVED_FREE_BLOCKS: usize = 1;

/// What can be known of a sector before the lock is taken.
pub(crate) struct Incoming<'a> {
    pub data: &'a [u8],
    pub is_zero: bool,
    pub crc: u32,
    pub digest: Option<Digest>,
    /// Bitmap of non-zero lines, if few enough to pack.
    pub small: Option<u64>,
}

impl Incoming<'_> {
    fn tag(&self) -> u16 {
        tag_of(self.crc)
    }
}

/// 16 bits of a content's checksum, never 0.
pub(crate) fn tag_of(crc: u32) -> u16 {
    (crc as u16).max(1)
}

/// Which owners of a moved slot its new out-of-band entry already names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// The first of the ring.
    FirstOwner,
    /// None: all need a log record.
    Nowhere,
}

/// See the module.
pub(crate) struct Ftl {
    pub flash: Arc<dyn Flash>,
    pub env: Arc<dyn Env>,
    pub geometry: Geometry,
    pub ledger: Arc<Ledger>,
    pub identity: Identity,
    pub options: Options,
    pub map: Map,
    pub blocks: Blocks,
    pub log: Log,
    pub nodes: Nodes,
    pub policy: Policy,
    pub life: LifeCounters,
    /// Host data, log slots and nodes.
    pub frontiers: Vec<Frontier>,
    pub page: OpenPage,
    pub collectors: Vec<Collector>,
    pub checkpoint: Checkpoint,
    /// Number of the last event.
    pub seq: u64,
    pub durable_seq: u64,
    pub nvram_generation: u64,
    /// When everything programmed before the last NVRAM image is finished.
    pub nvram_ready_at: Nanos,
    /// When everything programmed so far is finished.
    pub last_done: Nanos,
    /// When what the current request read is there.
    pub wait_until: Nanos,
    in_flight: VecDeque<Nanos>,
    next_die: u32,
    making_room: bool,
    /// A program failed and its slots moved since the open log slot was last sealed.
    moved_from_bad: bool,
    pub poisoned: Option<String>,
    pub pack: bool,
    pub watch: JournalWatch,
}

impl Ftl {
    /// A translation layer over `flash` with nothing mapped.
    pub(crate) fn new(flash: Arc<dyn Flash>, env: Arc<dyn Env>, identity: Identity, options: Options) -> Ftl {
        let geometry = *flash.geometry();
        let dies = geometry.dies() as usize;
        Ftl {
            ledger: Arc::new(Ledger::default()),
            map: Map::new(identity.sectors, geometry.slots()),
            blocks: Blocks::new(geometry),
            log: Log::new(0, 0, Log::numbers_max(geometry.slots())),
            nodes: Nodes::new(identity.sectors),
            policy: Policy::new(identity.dedup, options.verify_cache_sectors),
            life: LifeCounters::default(),
            frontiers: vec![Frontier::default(); dies],
            page: OpenPage::new(&geometry),
            collectors: (0..dies).map(|_| Collector::default()).collect(),
            checkpoint: Checkpoint::new(&options, identity.sectors),
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
        if !incoming.is_zero {
            self.prepare_page()?;
        }
        self.map.prefetch_owner(sector);
        if self.options.elide && self.elided(sector, incoming)? {
            return Ok(());
        }
        if let Some(digest) = incoming.digest
            && let Some(place) = self.find_copy(sector, digest, incoming.data)?
        {
            self.ledger.avoided(self.policy.reason(), SECTOR_BYTES as u64);
            if place != self.map.place(sector) {
                self.remap(sector, place, incoming.crc)?;
            }
            self.policy.stored(sector, digest, place, incoming.data);
            return Ok(());
        }
        let place = match incoming.small {
            Some(lines) if self.pack => self.write_packed(sector, incoming.data, lines)?,
            _ => self.write_slot(sector, incoming)?,
        };
        if let Some(digest) = incoming.digest {
            self.policy.stored(sector, digest, place, incoming.data);
        }
        Ok(())
    }

    /// True if the sector needs no program because it is zero, or already holds these bytes.
    fn elided(&mut self, sector: u32, incoming: &Incoming<'_>) -> Result<bool> {
        if incoming.is_zero {
            self.ledger.avoided(Avoided::Zero, SECTOR_BYTES as u64);
            self.set_run(sector, 1, Place::ZERO)?;
            return Ok(true);
        }
        let At::Slot(slot) = self.map.place(sector).at() else { return Ok(false) };
        if self.map.tag(sector) != incoming.tag() || !self.holds(Place::slot(slot), incoming.data)? {
            return Ok(false);
        }
        self.ledger.avoided(Avoided::SameContent, SECTOR_BYTES as u64);
        Ok(true)
    }

    /// A place whose bytes are `data`, which `sector` may share.
    fn find_copy(&mut self, sector: u32, digest: Digest, data: &[u8]) -> Result<Option<Place>> {
        let trusted = self.policy.trusts_fingerprint() || self.options.unverified;
        let candidates = self.policy.candidates(sector, digest, &self.map);
        for place in candidates.as_slice().iter().copied().filter(|p| p.holds_bytes()) {
            let Some(member) = self.first_owner(place) else { continue };
            if !self.map.is_full(member) && (trusted || self.holds(place, data)?) {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// True if the bytes at `place` are `data`. An unreadable copy is no copy.
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

    fn first_owner(&self, place: Place) -> Option<u32> {
        match place.at() {
            At::Slot(slot) => match self.map.owner(slot) {
                Owner::Sector(first) => Some(first),
                _ => None,
            },
            At::Packed { log, entry } => self.log.packed(log, entry)?.owner,
            At::Hole | At::Zero => None,
        }
    }

    /// Lets `sector` share `place`, which has owners.
    fn remap(&mut self, sector: u32, place: Place, crc: u32) -> Result<()> {
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

    fn write_slot(&mut self, sector: u32, incoming: &Incoming<'_>) -> Result<Place> {
        let slot = self.store(SlotKind::Data, sector, incoming.data, incoming.crc, Cause::HostData)?;
        self.detach(sector);
        self.map.place_alone(sector, Place::slot(slot));
        self.adopt(slot, Owner::Sector(sector), incoming.tag());
        self.nodes.mark_sector(sector);
        Ok(Place::slot(slot))
    }

    fn write_packed(&mut self, sector: u32, data: &[u8], lines: u64) -> Result<Place> {
        let mut packed = Vec::with_capacity(SMALL_MAX);
        lines::pack(data, &mut packed);
        debug_assert_eq!(packed.len(), lines::packed_len(lines));
        self.seq += 1;
        let writer = self.log.writer(self.seq, Some(packed.len()))?;
        let (entry, offset, length) = writer.push_small(self.seq, sector, &packed);
        let log = writer.log();
        let place = Place::packed(log, entry);
        self.detach(sector);
        self.map.place_alone(sector, place);
        let info = self.log.info_mut(log);
        info.packed.push(Packed { offset, length, owner: Some(sector) });
        info.live += 1;
        info.last_seq = self.seq;
        self.nodes.mark_sector(sector);
        self.ledger.avoided(Avoided::Packed, (SECTOR_BYTES - packed.len()) as u64);
        Ok(place)
    }

    /// Makes `count` sectors from `first` holes or zeros. Returns how many held bytes.
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
            let writer = self.log.writer(self.seq, None)?;
            writer.push_run(self.seq, first, place, count);
            let log = writer.log();
            self.log.info_mut(log).last_seq = self.seq;
        }
        Ok(held)
    }

    /// Records in the log that `sector` is now at `place`, under the current number. `crc` is that of the bytes
    /// there: should their program be lost in a power cut that the record survives, replay will notice.
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

    /// Takes `sector` from where it is; a place that loses its last sector is let go.
    fn detach(&mut self, sector: u32) {
        self.policy.overwritten(sector);
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

    /// Lets go of a log slot that nothing needs.
    pub(crate) fn release_log_slot(&mut self, log: u32) {
        if let Some(slot) = self.log.release_if_unneeded(log, self.seq) {
            self.disown(slot);
            self.nodes.mark_log(log);
        }
    }

    /// The slot belongs to nobody now.
    pub(crate) fn disown(&mut self, slot: SlotAddr) {
        self.map.set_owner(slot, Owner::Nobody);
        self.blocks.invalidate(self.geometry.block_of_slot(slot), self.seq);
    }

    /// The slot, just stored, belongs to `owner`, and its content has this tag.
    pub(crate) fn adopt(&mut self, slot: SlotAddr, owner: Owner, tag: u16) {
        if let Owner::Sector(sector) = owner {
            self.map.set_tag(sector, tag);
        }
        self.give(slot, owner);
    }

    fn give(&mut self, slot: SlotAddr, owner: Owner) {
        self.map.set_owner(slot, owner);
        self.blocks.validate(self.geometry.block_of_slot(slot));
    }

    /// Makes sure that a page is open, so that the next `store` begins with nothing but its own number.
    pub(crate) fn begin_page(&mut self) -> Result<()> {
        if self.page.at.is_none() {
            let page = self.open_page()?;
            // Making room may have begun a page of its own; then `page` stays next in line.
            self.page.at.get_or_insert(page);
        }
        Ok(())
    }

    /// Makes sure that a page is open. This may collect, and so move slots, store log slots and complete a
    /// checkpoint: what is to be stored is looked at afterwards.
    pub(crate) fn prepare_page(&mut self) -> Result<()> {
        if self.page.at.is_none() {
            let page = self.open_page()?;
            // Making room may have begun a page of its own; then `page` stays next in line.
            self.page.at.get_or_insert(page);
        }
        Ok(())
    }

    /// Stores 4 KiB in the next slot under the next number. The caller gives it an owner.
    pub(crate) fn store(
        &mut self,
        kind: SlotKind,
        id: u32,
        data: &[u8],
        crc: u32,
        cause: Cause,
    ) -> Result<SlotAddr> {
        self.prepare_page()?;
        self.seq += 1;
        self.page.oobs.push(Oob { seq: self.seq, id, data_crc: crc, kind, cause });
        let index = self.page.oobs.len() as u32 - 1;
        if index + 1 < self.geometry.slots_per_page() {
            self.page.data.extend_from_slice(data);
            let page = self.page.at.unwrap_or_default();
            return Ok(self.geometry.slot_of(page, index));
        }
        let page = self.program_page(Some(data))?;
        Ok(self.geometry.slot_of(page, index))
    }

    /// Programs the open page, with `last` as its last slot or padded. Returns where it went.
    fn program_page(&mut self, last: Option<&[u8]>) -> Result<PageAddr> {
        let mut oob = [0; crate::SLOTS_PER_PAGE_MAX * OOB_ENTRY_BYTES];
        let oob = &mut oob[..self.page.oobs.len() * OOB_ENTRY_BYTES];
        for (entry, to) in self.page.oobs.iter().zip(oob.chunks_exact_mut(OOB_ENTRY_BYTES)) {
            entry.encode(to);
        }
        loop {
            let page = self.page.at.ok_or_else(|| Error::corrupt("no page is open"))?;
            let pad = self.geometry.page_bytes as usize - self.page.data.len() - last.map_or(0, <[u8]>::len);
            let parts =
                [Source::Bytes(&self.page.data), Source::Bytes(last.unwrap_or(&[])), Source::Pad(pad as u32)];
            match self.flash.program(IoClass::Foreground, page, &parts, oob) {
                Ok(done) => {
                    self.programmed(done.at);
                    let die = self.geometry.die_of(page.block) as usize;
                    self.frontiers[die].advance(1);
                    for entry in &self.page.oobs {
                        self.ledger.programmed(entry.cause, SECTOR_BYTES as u64);
                    }
                    if pad > 0 {
                        self.ledger.programmed(Cause::Padding, pad as u64);
                    }
                    self.page.clear();
                    return Ok(page);
                }
                Err(FlashError::ProgramFailed(_)) => self.leave_bad_page(page)?,
                Err(e) => return Err(self.poison(e.into())),
            }
        }
    }

    /// The open page could not be programmed: its block is retired, its slots move to another page.
    fn leave_bad_page(&mut self, bad: PageAddr) -> Result<()> {
        self.ledger.programmed(Cause::Failed, self.geometry.page_bytes.into());
        let die = self.geometry.die_of(bad.block) as usize;
        self.frontiers[die].abandon();
        self.retire(bad.block);
        self.moved_from_bad = true;
        self.checkpoint.disturbed = true;
        // Nothing may be stored while the page is between two places: no collection now.
        let collecting = self.set_making_room(true);
        let page = self.open_page();
        self.set_making_room(collecting);
        let page = page?;
        self.page.at = Some(page);
        for index in 0..(self.page.data.len() / SECTOR_BYTES) as u32 {
            let (from, to) = (self.geometry.slot_of(bad, index), self.geometry.slot_of(page, index));
            self.relocate(from, to, self.page.oobs[index as usize].data_crc, Recorded::Nowhere)?;
        }
        Ok(())
    }

    /// A block went bad: whatever is valid in it will be moved out.
    pub(crate) fn retire(&mut self, block: BlockAddr) {
        self.blocks.retire(block);
        if self.blocks.state(block) == State::Retiring {
            let die = self.geometry.die_of(block) as usize;
            self.collectors[die].retiring.push_back(block);
        }
    }

    /// What was in slot `from`, with checksum `crc`, is in slot `to`: its owners follow, each move an event of its
    /// own.
    pub(crate) fn relocate(
        &mut self,
        from: SlotAddr,
        to: SlotAddr,
        crc: u32,
        recorded: Recorded,
    ) -> Result<()> {
        let owner = self.map.owner(from);
        match owner {
            Owner::Nobody => return Ok(()),
            Owner::Sector(first) => {
                self.policy.moved(Place::slot(from), Place::slot(to));
                self.map.move_ring(first, Place::slot(to));
                self.nodes.mark_sector(first);
                if self.map.is_shared(first) || recorded == Recorded::Nowhere {
                    let skip = usize::from(recorded == Recorded::FirstOwner);
                    let others: Vec<u32> = self.map.ring(first).skip(skip).collect();
                    for other in others {
                        self.seq += 1;
                        self.record_map(other, Place::slot(to), crc)?;
                        self.nodes.mark_sector(other);
                    }
                }
            }
            Owner::Log(log) => {
                self.log.info_mut(log).slot = Some(to);
                self.nodes.mark_log(log);
            }
            Owner::Node(node) => self.nodes.moved(node, to),
            Owner::Directory(directory) => {
                self.nodes.directory_written(directory, to);
            }
        }
        self.give(to, owner);
        self.disown(from);
        Ok(())
    }

    /// Chooses the page that the next slots are gathered for.
    fn open_page(&mut self) -> Result<PageAddr> {
        for _attempt in 0..2 {
            for step in 0..self.geometry.dies() {
                let die = (self.next_die + step) % self.geometry.dies();
                self.collect_ahead(die)?;
                if let Some(page) = self.page_on(die) {
                    self.next_die = (die + 1) % self.geometry.dies();
                    return Ok(page);
                }
            }
            if !self.make_room()? {
                break;
            }
        }
        Err(Error::new(
            Kind::NoSpace,
            "no free flash is left and none can be collected: too many erase blocks went bad. Copy the data off; \
             the disk can still be read and trimmed",
        ))
    }

    fn page_on(&mut self, die: u32) -> Option<PageAddr> {
        let reserved = if self.making_room { 0 } else { RESERVED_FREE_BLOCKS };
        let frontier = &mut self.frontiers[die as usize];
        if frontier.close_if_full(&self.geometry, &mut self.blocks, self.seq) {
            if self.blocks.free_count(die) <= reserved {
                return None;
            }
            frontier.begin(self.blocks.open(die)?);
        }
        frontier.next(&self.geometry)
    }

    /// Runs `collect_all` unless it is running already (collection itself stores log slots).
    fn make_room(&mut self) -> Result<bool> {
        if self.making_room {
            return Ok(false);
        }
        self.set_making_room(true);
        let made = self.collect_all();
        self.set_making_room(false);
        made
    }

    pub(crate) fn is_making_room(&self) -> bool {
        self.making_room
    }
    pub(crate) fn set_making_room(&mut self, on: bool) -> bool {
        std::mem::replace(&mut self.making_room, on)
    }

    /// Stores sealed log slots, and carries a running checkpoint on. Called when no store is under way.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.store_sealed()?;
        self.advance_checkpoint()
    }

    pub(crate) fn store_sealed(&mut self) -> Result<()> {
        while self.log.next_sealed().is_some() {
            self.prepare_page()?;
            let Some((log, bytes)) = self.log.next_sealed() else { break };
            let mut slot = bytes.to_vec();
            slot.resize(SECTOR_BYTES, 0);
            let crc = vellum_codes::crc32c(&slot);
            let slot = self.store(SlotKind::Log, log, &slot, crc, Cause::MapLog)?;
            self.log.stored(slot);
            self.adopt(slot, Owner::Log(log), 0);
            self.nodes.mark_log(log);
        }
        Ok(())
    }

    /// Gathers everything volatile: into NVRAM where there is some, by programming half-empty pages elsewhere.
    /// After a `sync` of the flash, everything up to the returned number is durable. (What collection records
    /// while the log is being stored comes later, and is not.)
    pub(crate) fn persist(&mut self) -> Result<u64> {
        self.store_sealed()?;
        if self.nvram_fits() {
            self.write_nvram()?;
            return Ok(self.seq);
        }
        let seq = self.seq;
        loop {
            self.moved_from_bad = false;
            self.log.seal();
            self.store_sealed()?;
            self.program_open_page()?;
            // What a failed page held is found only by the records of the move: they belong to this flush.
            if !self.moved_from_bad {
                return Ok(seq);
            }
        }
    }

    /// Programs the open page, padded, if one is begun.
    pub(crate) fn program_open_page(&mut self) -> Result<()> {
        if self.page.at.is_some() && !self.page.oobs.is_empty() {
            self.program_page(None)?;
        }
        Ok(())
    }

    /// Makes everything durable while holding the lock, for garbage collection.
    pub(crate) fn persist_and_sync(&mut self) -> Result<()> {
        let seq = self.persist()?;
        self.flash.sync().map_err(|e| self.poison(e.into()))?;
        self.durable_seq = self.durable_seq.max(seq);
        Ok(())
    }

    /// Reads the bytes at a place.
    pub(crate) fn read_place(&mut self, place: Place, class: IoClass, out: &mut [u8]) -> Result<()> {
        match place.at() {
            At::Hole | At::Zero => out.fill(0),
            At::Slot(slot) => self.read_slot(slot, class, out)?,
            At::Packed { log, entry } => self.read_packed(log, entry, class, out)?,
        }
        Ok(())
    }

    fn read_packed(&mut self, log: u32, entry: u32, class: IoClass, out: &mut [u8]) -> Result<()> {
        let gone = || {
            Error::corrupt(format!("a packed sector names entry {entry} of log slot {log}: no such entry"))
        };
        let packed = *self.log.packed(log, entry).ok_or_else(gone)?;
        let unpack = |bytes: &[u8], out: &mut [u8]| {
            lines::unpack(bytes, out)
                .map_err(|e| Error::corrupt(format!("log slot {log}, entry {entry}: {e}")))
        };
        if let Some(bytes) = self.log.in_memory(log, &packed) {
            return unpack(bytes, out);
        }
        let slot = self.log.info(log).and_then(|i| i.slot).ok_or_else(gone)?;
        let mut whole = [0; SECTOR_BYTES];
        self.read_slot(slot, class, &mut whole)?;
        let (from, to) = (packed.offset as usize, packed.offset as usize + packed.length as usize);
        unpack(whole.get(from..to).ok_or_else(gone)?, out)
    }

    /// Reads a slot and checks its checksum.
    pub(crate) fn read_slot(&mut self, slot: SlotAddr, class: IoClass, out: &mut [u8]) -> Result<()> {
        let (page, index) = self.geometry.page_of_slot(slot);
        if let Some(bytes) = self.page.slot(page, index) {
            out.copy_from_slice(bytes);
            return Ok(());
        }
        let done = read_checked(&*self.flash, class, page, index, out)?;
        self.wait_until = self.wait_until.max(done);
        Ok(())
    }

    /// Programs in flight, for [`Ftl::admit`].
    pub(crate) fn programmed(&mut self, done: Nanos) {
        self.last_done = self.last_done.max(done);
        if done > Nanos::ZERO {
            self.in_flight.push_back(done);
        }
    }

    /// When a writer may go on: at once while the write buffer has room.
    pub(crate) fn admit(&mut self, now: Nanos) -> Nanos {
        let room = (self.options.write_buffer_pages_per_die * self.geometry.dies()) as usize;
        while self.in_flight.front().is_some_and(|done| *done <= now) {
            self.in_flight.pop_front();
        }
        match self.in_flight.len().checked_sub(room) {
            Some(excess) if excess > 0 => self.in_flight[excess - 1],
            _ => Nanos::ZERO,
        }
    }

    /// After a failed durability call nothing more is written.
    pub(crate) fn poison(&mut self, cause: Error) -> Error {
        if cause.kind() != Kind::PowerLost {
            self.poisoned.get_or_insert_with(|| cause.to_string());
        } else {
            self.poisoned.get_or_insert_with(|| "the power is off".into());
        }
        cause
    }
}

/// Reads a slot from flash and compares it with the checksum in its out-of-band entry.
pub(crate) fn read_checked(
    flash: &dyn Flash,
    class: IoClass,
    page: PageAddr,
    index: u32,
    out: &mut [u8],
) -> Result<Nanos> {
    let mut oob = [0; crate::OOB_BYTES_MAX];
    let oob = &mut oob[..flash.geometry().oob_bytes as usize];
    let done = flash.read(class, page, index * SECTOR_BYTES as u32, out, oob)?;
    let entry = Oob::decode(&oob[index as usize * OOB_ENTRY_BYTES..]);
    match entry {
        Some(entry) if entry.data_crc == vellum_codes::crc32c(out) => Ok(done.at),
        _ => Err(Error::corrupt(format!("slot {index} of {page} does not match its checksum"))),
    }
}
