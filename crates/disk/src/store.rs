//! Storing data: pages are opened on one die after another, filled slot by slot, and programmed; they are abandoned if
//! their block turns out bad.
//!
//! Invariants:
//! 1. Slots are gathered for one page at a time; a page is programmed when its last slot is stored, or padded.
//! 2. A slot gets its owner only from the code that stored it; until its page is programmed its bytes are read from
//!    memory.
//! 3. Bytes are recorded in the ledger when their program has succeeded, or as `Failed`.

use crate::blocks::State;
use crate::format::oob::{OOB_ENTRY_BYTES, Oob, SlotKind};
use crate::format::place::Place;
use crate::frontier::Frontier;
use crate::ftl::Ftl;
use crate::map::Owner;
use crate::room::{ROOM_BLOCKS, reserved_blocks};
use vellum_base::{
    BlockAddr, Cause, Error, FlashError, FlashOp, IoClass, Kind, Nanos, PageAddr, Result, SECTOR_BYTES,
    SlotAddr, Source,
};

/// The owners of a moved slot that its new out-of-band entry already names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// The first of the ring.
    FirstOwner,
    /// None: all need a log record.
    Nowhere,
}

impl Ftl {
    /// Makes sure that a page is open. This may collect, and so move slots, store log slots and complete a checkpoint:
    /// so the caller determines what to store afterwards.
    pub(crate) fn prepare_page(&mut self) -> Result<()> {
        if self.page.at.is_none() {
            let page = self.open_page()?;
            // Making room may have begun a page of its own; then `page` remains the next.
            self.page.at.get_or_insert(page);
        }
        Ok(())
    }

    /// Stores 4 KiB in the next slot with the next number. The caller sets its owner.
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
        match self.program_page(Some(data)) {
            Ok(page) => Ok(self.geometry.slot_of(page, index)),
            Err(e) => {
                self.page.oobs.truncate(index as usize);
                if index == 0 {
                    self.page.clear();
                }
                Err(e)
            }
        }
    }

    /// Programs the open page, with `last` as its last slot or padded. Returns its address.
    fn program_page(&mut self, last: Option<&[u8]>) -> Result<PageAddr> {
        let mut oob = [0; crate::SLOTS_PER_PAGE_MAX * OOB_ENTRY_BYTES];
        let oob = &mut oob[..self.page.oobs.len() * OOB_ENTRY_BYTES];
        loop {
            let page = self.page.at.ok_or_else(|| Error::corrupt("no page is open"))?;
            if self.blocks.state(page.block) != State::Open {
                // Its block went bad, and there was no room for another page.
                self.leave_bad_page(page)?;
                continue;
            }
            let seeds = self.seeds(page, last);
            for ((index, entry), to) in (0..).zip(&self.page.oobs).zip(oob.chunks_exact_mut(OOB_ENTRY_BYTES))
            {
                entry.encode(self.geometry.slot_of(page, index), to);
            }
            let seeds = &seeds[..self.page.oobs.len()];
            let pad = self.geometry.page_bytes as usize - self.page.data.len() - last.map_or(0, <[u8]>::len);
            let parts =
                [Source::Bytes(&self.page.data), Source::Bytes(last.unwrap_or(&[])), Source::Pad(pad as u32)];
            let mut program = [FlashOp::Program { page, parts: &parts, oob, seeds }];
            match self.flash.submit(IoClass::Foreground, &mut program).map_err(|e| e.error) {
                Ok(done) => {
                    self.programmed(done.at);
                    self.frontier_at(page).advance(1);
                    self.count_plain(seeds);
                    for entry in &self.page.oobs {
                        self.ledger.programmed(entry.cause, SECTOR_BYTES as u64);
                    }
                    if pad > 0 {
                        self.ledger.programmed(Cause::Padding, pad as u64);
                    }
                    self.page.clear();
                    return Ok(page);
                }
                Err(FlashError::ProgramFailed(_)) => {
                    self.condemn(page);
                    self.leave_bad_page(page)?;
                }
                Err(e) => return Err(self.poison(e.into())),
            }
        }
    }

    /// Retires the block of the open page, which could not be programmed.
    fn condemn(&mut self, bad: PageAddr) {
        self.ledger.programmed(Cause::Failed, self.geometry.page_bytes.into());
        self.frontier_at(bad).abandon();
        self.retire(bad.block);
        self.moved_from_bad = true;
        self.checkpoint.page_failed();
    }

    /// Moves the slots of the open page, whose block is bad, to another page. If there is none, they stay in memory,
    /// where they can be read.
    fn leave_bad_page(&mut self, bad: PageAddr) -> Result<()> {
        // Nothing may be stored while the page is between two addresses: no collection now.
        let collecting = self.set_making_room(true);
        let page = self.open_page();
        self.set_making_room(collecting);
        let page = page?;
        self.page.at = Some(page);
        for index in 0..(self.page.data.len() / SECTOR_BYTES) as u32 {
            let (from, to) = (self.geometry.slot_of(bad, index), self.geometry.slot_of(page, index));
            self.relocate(from, to, self.page.oobs[index as usize].data_crc, Recorded::Nowhere)?;
        }
        // The slot being stored comes after the moves: one of them may be of the previous version of its sector.
        let staged = self.page.data.len() / SECTOR_BYTES;
        if let Some(entry) = self.page.oobs.get_mut(staged).filter(|e| e.kind == SlotKind::Data) {
            self.seq += 1;
            entry.seq = self.seq;
        }
        Ok(())
    }

    /// Retires a block that went bad: its valid slots will be moved out.
    pub(crate) fn retire(&mut self, block: BlockAddr) {
        self.blocks.retire(block);
        if self.blocks.state(block) == State::Retiring {
            let die = self.geometry.die_of(block) as usize;
            self.collectors[die].retiring.push_back(block);
        }
    }

    /// Moves the owners of slot `from` to slot `to`, which has its content, with checksum `crc`. Each move is an event
    /// of its own.
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

    /// Chooses the next page to fill.
    fn open_page(&mut self) -> Result<PageAddr> {
        if self.is_making_room() {
            let dies = 0..self.geometry.dies();
            let left = dies.into_iter().find_map(|die| self.frontiers[die as usize].next(&self.geometry));
            return left.map_or_else(|| self.room_page(), |page| Ok(Some(page)))?.ok_or_else(no_space);
        }
        let mut collects_ahead = true;
        loop {
            for step in 0..self.geometry.dies() {
                let die = (self.next_die + step) % self.geometry.dies();
                if collects_ahead {
                    self.collect_ahead(die)?;
                }
                if let Some(page) = self.page_on(die) {
                    self.next_die = (die + 1) % self.geometry.dies();
                    return Ok(page);
                }
            }
            // Pages gained now are for the host, not to be spent on collecting ahead.
            collects_ahead = false;
            if !self.make_room()? {
                // Stores during this may have left a page begun.
                return self.page.at.or_else(|| self.page_beyond_room()).ok_or_else(no_space);
            }
        }
    }

    /// Nothing can be gained: the host may use what the collectors do not need either.
    fn page_beyond_room(&mut self) -> Option<PageAddr> {
        if self.blocks.free_total() <= ROOM_BLOCKS {
            return None;
        }
        let die = (0..self.geometry.dies()).max_by_key(|die| self.blocks.free_count(*die))?;
        self.frontiers[die as usize].begin(self.blocks.open(die)?);
        self.frontiers[die as usize].next(&self.geometry)
    }

    fn page_on(&mut self, die: u32) -> Option<PageAddr> {
        let d = die as usize;
        if self.frontiers[d].close_if_full(&self.geometry, &mut self.blocks, self.seq) {
            if self.blocks.free_count(die) <= reserved_blocks(&self.geometry) {
                return None;
            }
            self.frontiers[d].begin(self.blocks.open(die)?);
        }
        self.frontiers[d].next(&self.geometry)
    }

    /// The frontier with this next page: the host's, or while room is made, a collector's.
    fn frontier_at(&mut self, page: PageAddr) -> &mut Frontier {
        let die = self.geometry.die_of(page.block) as usize;
        match self.frontiers[die].next(&self.geometry) == Some(page) {
            true => &mut self.frontiers[die],
            false => &mut self.collectors[die].frontier,
        }
    }

    /// Stores sealed log slots, and advances a running checkpoint. Called when no store is in progress.
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

    /// Programs the open page, padded, if it has any slots.
    pub(crate) fn program_open_page(&mut self) -> Result<()> {
        if self.page.at.is_some() && !self.page.oobs.is_empty() {
            self.program_page(None)?;
        }
        Ok(())
    }

    /// Records a program in flight, for [`Ftl::admit`].
    pub(crate) fn programmed(&mut self, done: Nanos) {
        self.last_done = self.last_done.max(done);
        if done > Nanos::ZERO {
            self.in_flight.push_back(done);
        }
    }

    /// When a writer may continue: at once while the write buffer has room.
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
}

fn no_space() -> Error {
    Error::new(
        Kind::NoSpace,
        "no free flash is left and none can be collected. Trim what is not needed; if erase blocks went bad (see stat), \
         copy the data off",
    )
}
