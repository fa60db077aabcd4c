//! Checkpoints: changed nodes are written a few at a time between requests, then a root makes them valid.
//!
//! ```text
//!   idle ──interval reached, or hurry()──▶ writing nodes ──all written──▶ directories, persist, root ──▶ idle
//! ```
//!
//! Nodes are written with their current contents, so they may reflect events later than the checkpoint's seq. That is
//! harmless: replay is absolute and in order (docs/formats/disk.md, Recovery). The root is programmed only when
//! everything it lists has completed on the flash, so a root that can be read can be trusted. Old nodes and log slots
//! that the root makes unneeded are released after it is programmed, and erased only after it has completed.

use crate::blocks::State;
use crate::format::oob::{OOB_ENTRY_BYTES, Oob, SlotKind};
use crate::format::root::{DIRECTORIES_MAX, Root};
use crate::format::{FANOUT, NO_SLOT, encode_node};
use crate::ftl::Ftl;
use crate::map::Owner;
use crate::options::Options;
use vellum_base::{
    BlockAddr, Cause, Error, FlashError, IoClass, Kind, LedgerSnapshot, PageAddr, Result, SECTOR_BYTES,
    SlotAddr, Source,
};

/// The log may take one in this many spare slots before a checkpoint is due.
const SPARE_PER_LOG_SLOT: u64 = 16;
/// Number of checkpoints tried at a close, if collection keeps changing nodes.
const CLOSING_ATTEMPTS: u32 = 3;
/// Nodes written after each request while a checkpoint runs.
const NODES_PER_STEP: usize = 4;

/// State of checkpointing; see the module.
pub(crate) struct Checkpoint {
    interval: u64,
    /// Maximum number of log slots that wait for a checkpoint to be released; more make one due.
    log_slots_max: usize,
    running: Option<Running>,
    last_seq: u64,
    hurried: bool,
    /// Nodes that the next root makes unneeded.
    obsolete: Vec<SlotAddr>,
    /// The root block and its next page.
    pub root_at: Option<PageAddr>,
    /// Seq of the newest root; 0 for none.
    pub root_seq: u64,
    /// The ledger in the newest root.
    pub root_ledger: LedgerSnapshot,
    /// The number of openings in the newest root.
    pub root_opened: u64,
    /// Number of pages that failed to program; their contents have moved.
    failed_pages: u64,
    /// How many of them the newest root's nodes and directories reflect. Nodes written since may list the old places.
    failed_pages_settled: u64,
}

struct Running {
    seq: u64,
    nodes: Vec<u32>,
}

impl Checkpoint {
    pub(crate) fn new(options: &Options, sectors: u64, slots: u64) -> Checkpoint {
        let interval = match options.checkpoint_events {
            0 => (sectors / 4).clamp(1 << 16, 1 << 21),
            events => events,
        };
        Checkpoint {
            interval,
            log_slots_max: ((slots.saturating_sub(sectors)) / SPARE_PER_LOG_SLOT).max(8) as usize,
            running: None,
            last_seq: 0,
            hurried: false,
            obsolete: Vec::new(),
            root_at: None,
            root_seq: 0,
            root_ledger: LedgerSnapshot::default(),
            root_opened: 0,
            failed_pages: 0,
            failed_pages_settled: 0,
        }
    }

    /// Requests a checkpoint soon: erase blocks wait for it.
    pub(crate) fn hurry(&mut self) {
        self.hurried = true;
    }

    /// Records that a page failed to program; its contents are about to move.
    pub(crate) fn page_failed(&mut self) {
        self.failed_pages += 1;
    }

    /// True if nodes or directories may list places in failed pages: no root may refer to them.
    fn is_disturbed(&self) -> bool {
        self.failed_pages != self.failed_pages_settled
    }

    /// Resumes with a last checkpoint that covers everything up to `seq`.
    pub(crate) fn resume(&mut self, seq: u64) {
        self.last_seq = seq;
    }
}

impl Ftl {
    /// Begins a checkpoint if one is due, and advances a running one by a step.
    pub(crate) fn advance_checkpoint(&mut self) -> Result<()> {
        let due = self.seq - self.checkpoint.last_seq >= self.checkpoint.interval
            || self.log.uncovered() >= self.checkpoint.log_slots_max
            || self.checkpoint.hurried;
        if self.checkpoint.running.is_none() && due {
            self.begin_checkpoint();
        }
        match self.write_nodes(NODES_PER_STEP)? {
            Some(0) => self.finish_checkpoint(false),
            _ => Ok(()),
        }
    }

    /// Runs a whole checkpoint now. `clean`: it is the last write before the disk is closed.
    pub(crate) fn complete_checkpoint(&mut self, clean: bool) -> Result<()> {
        self.store_sealed()?;
        self.begin_checkpoint();
        while self.write_nodes(usize::MAX)?.is_some_and(|left| left > 0) {}
        self.finish_checkpoint(clean)
    }

    /// Runs checkpoints until one covers everything, so that the next opening depends on nothing else. If the disk is
    /// too full for that to end, or has no room for it, only a root records that the close was clean.
    pub(crate) fn closing_checkpoint(&mut self) -> Result<()> {
        for _ in 0..CLOSING_ATTEMPTS {
            match self.complete_checkpoint(true) {
                Ok(()) if self.checkpoint.root_seq == self.log.checkpoint_seq + 1 => return Ok(()),
                Ok(()) => {}
                Err(e) if e.kind() == Kind::NoSpace && self.poisoned.is_none() => {
                    return self.close_without_checkpoint();
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Writes only a root. The nodes and directories written so far are listed by the previous root, and may be in the
    /// open page. Without a new root the next opening finds everything, but counts an unsafe shutdown.
    fn close_without_checkpoint(&mut self) -> Result<()> {
        match self.program_open_page() {
            Err(e) if e.kind() == Kind::NoSpace && self.poisoned.is_none() => return Ok(()),
            programmed => programmed?,
        }
        self.finish_programs()?;
        match self.checkpoint.is_disturbed() {
            true => Ok(()),
            false => self.write_root(self.log.checkpoint_seq, true),
        }
    }

    /// Makes everything that a root lists durable before the root is written.
    fn finish_programs(&mut self) -> Result<()> {
        self.env.sleep_until(self.last_done);
        self.flash.sync().map_err(|e| self.poison(e.into()))
    }

    fn begin_checkpoint(&mut self) {
        self.checkpoint.hurried = false;
        self.checkpoint.last_seq = self.seq;
        self.checkpoint.running = Some(Running { seq: self.seq, nodes: self.nodes.changed() });
    }

    /// Writes up to `count` nodes of the running checkpoint; returns how many remain.
    fn write_nodes(&mut self, count: usize) -> Result<Option<usize>> {
        for _ in 0..count {
            let next = |running: &Option<Running>| running.as_ref().and_then(|r| r.nodes.last().copied());
            let Some(node) = next(&self.checkpoint.running) else { break };
            self.write_node(node)?;
            // Making room may have completed this checkpoint.
            if next(&self.checkpoint.running) == Some(node) {
                self.checkpoint.running.as_mut().and_then(|r| r.nodes.pop());
            }
        }
        Ok(self.checkpoint.running.as_ref().map(|r| r.nodes.len()))
    }

    fn write_node(&mut self, node: u32) -> Result<()> {
        // Collection that opens the page comes first: a node reflects every event with a lower number than its own
        // (repair relies on it).
        self.prepare_page()?;
        self.nodes.begin_writing(node);
        let mut bytes = [0; SECTOR_BYTES];
        let kind = if node < self.nodes.map_nodes() {
            let first = node * FANOUT as u32;
            let end = (u64::from(first) + FANOUT as u64).min(self.map.sectors()) as u32;
            encode_node((first..end).map(|s| self.map.place(s).0), &mut bytes);
            SlotKind::MapNode
        } else {
            let first = (node - self.nodes.map_nodes()) * FANOUT as u32;
            let slot_of = |log| self.log.info(log).and_then(|i| i.slot).map_or(NO_SLOT, |s| s.0);
            encode_node((first..first + FANOUT as u32).map(slot_of), &mut bytes);
            SlotKind::LogNode
        };
        let crc = vellum_codes::crc32c(&bytes);
        let stored = self.store(kind, node, &bytes, crc, Cause::Checkpoint);
        let slot = stored.inspect_err(|_| self.nodes.mark(node))?;
        self.adopt(slot, Owner::Node(node), 0);
        let old = self.nodes.written(node, slot);
        self.checkpoint.obsolete.extend(old);
        Ok(())
    }

    fn write_directories(&mut self) -> Result<()> {
        for directory in self.nodes.changed_directories() {
            self.prepare_page()?;
            let mut bytes = [0; SECTOR_BYTES];
            self.nodes.begin_writing_directory(directory);
            encode_node(self.nodes.listed_in(directory).iter().copied(), &mut bytes);
            let crc = vellum_codes::crc32c(&bytes);
            let stored = self.store(SlotKind::Directory, directory, &bytes, crc, Cause::Checkpoint);
            let slot = stored.inspect_err(|_| self.nodes.mark_directory(directory))?;
            self.adopt(slot, Owner::Directory(directory), 0);
            let old = self.nodes.directory_written(directory, slot);
            self.checkpoint.obsolete.extend(old);
        }
        Ok(())
    }

    fn finish_checkpoint(&mut self, clean: bool) -> Result<()> {
        if self.root_needs_block() && self.blocks.free_total() <= 1 {
            self.make_room()?; // and perhaps completes this checkpoint
        }
        let Some(running) = self.checkpoint.running.take() else { return Ok(()) };
        let failed_pages = loop {
            let failed_pages = self.checkpoint.failed_pages;
            if self.checkpoint.is_disturbed() {
                for node in self.nodes.changed() {
                    self.write_node(node)?;
                }
            }
            self.write_directories()?;
            self.persist_and_sync()?;
            self.program_open_page()?;
            if failed_pages == self.checkpoint.failed_pages && self.nodes.changed_directories().is_empty() {
                break failed_pages;
            }
        };
        self.finish_programs()?;
        let seq = match self.nodes.changed().is_empty() {
            true => self.seq,
            // Making room may have completed a later checkpoint.
            false => running.seq.max(self.log.checkpoint_seq),
        };
        self.write_root(seq, clean)?;
        self.checkpoint.failed_pages_settled = failed_pages;
        for slot in std::mem::take(&mut self.checkpoint.obsolete) {
            self.disown(slot);
        }
        for log in self.log.covered(seq) {
            self.release_log_slot(log);
        }
        Ok(())
    }

    /// Writes a root that records this opening, once, if no NVRAM preserves the counters over a crash. Called after a
    /// flush.
    pub(crate) fn record_opening(&mut self) -> Result<()> {
        let is_known =
            self.checkpoint.root_opened == self.life.opened || self.seq == self.checkpoint.root_seq;
        if self.nvram_fits() || is_known {
            return Ok(());
        }
        self.persist_and_sync()?;
        self.env.sleep_until(self.last_done);
        if self.checkpoint.is_disturbed() {
            return Ok(());
        }
        match self.write_root(self.log.checkpoint_seq, false) {
            // A disk without room continues without it.
            Err(e) if e.kind() == Kind::NoSpace && self.poisoned.is_none() => Ok(()),
            written => written,
        }
    }

    /// Writes a root for the checkpoint up to `checkpoint_seq`, which is on flash already, with the current counters.
    pub(crate) fn write_root(&mut self, checkpoint_seq: u64, clean: bool) -> Result<()> {
        if self.nodes.directories().len() > DIRECTORIES_MAX {
            return Err(Error::new(Kind::Unsupported, "the disk has more sectors than a root can list"));
        }
        self.seq += 1;
        // The root counts itself.
        let mut ledger = self.ledger.snapshot();
        ledger.programmed[Cause::Checkpoint as usize] += SECTOR_BYTES as u64;
        ledger.programmed[Cause::Padding as usize] +=
            u64::from(self.geometry.page_bytes) - SECTOR_BYTES as u64;
        let root = Root {
            identity: self.identity,
            checkpoint_seq,
            durable_seq: self.durable_seq,
            log_numbers: self.log.numbers(),
            life: self.life,
            clean,
            ledger,
            directories: self.nodes.directories().to_vec(),
        };
        let used_up = self.program_root(&root.encode())?;
        self.checkpoint.root_seq = self.seq;
        self.checkpoint.root_ledger = root.ledger;
        self.checkpoint.root_opened = root.life.opened;
        self.flash.sync().map_err(|e| self.poison(e.into()))?;
        if let Some(old) = used_up {
            self.erase(old)?;
        }
        Ok(())
    }

    /// Programs a root; returns the root block that it replaces if that is full.
    fn program_root(&mut self, bytes: &[u8]) -> Result<Option<BlockAddr>> {
        let data_crc = vellum_codes::crc32c(bytes);
        let entry = Oob { seq: self.seq, id: 0, data_crc, kind: SlotKind::Root, cause: Cause::Checkpoint };
        let parts = [Source::Bytes(bytes), Source::Pad(self.geometry.page_bytes - SECTOR_BYTES as u32)];
        let mut used_up = None;
        loop {
            let (at, full) = self.root_page()?;
            used_up = used_up.or(full);
            let mut oob = [0; OOB_ENTRY_BYTES];
            entry.encode(self.geometry.slot_of(at, 0), &mut oob);
            match self.flash.program(IoClass::Metadata, at, &parts, &oob) {
                Ok(done) => {
                    self.programmed(done.at);
                    self.ledger.programmed(Cause::Checkpoint, SECTOR_BYTES as u64);
                    self.ledger.programmed(
                        Cause::Padding,
                        u64::from(self.geometry.page_bytes) - SECTOR_BYTES as u64,
                    );
                    self.checkpoint.root_at = Some(at.block.page(at.page + 1));
                    return Ok(used_up);
                }
                Err(FlashError::ProgramFailed(_)) => {
                    self.ledger.programmed(Cause::Failed, self.geometry.page_bytes.into());
                    self.blocks.retire(at.block);
                    self.checkpoint.root_at = None;
                }
                Err(e) => return Err(self.poison(e.into())),
            }
        }
    }

    pub(crate) fn root_needs_block(&self) -> bool {
        self.checkpoint.root_at.is_none_or(|at| at.page >= self.geometry.pages_per_block)
    }

    /// The page of the next root, and the root block that it replaces.
    fn root_page(&mut self) -> Result<(PageAddr, Option<BlockAddr>)> {
        match self.checkpoint.root_at {
            Some(at) if at.page < self.geometry.pages_per_block => Ok((at, None)),
            full => {
                let emptiest =
                    (0..self.geometry.dies()).max_by_key(|die| self.blocks.free_count(*die)).unwrap_or(0);
                let block = self
                    .blocks
                    .open(emptiest)
                    .ok_or_else(|| Error::new(Kind::NoSpace, "no erase block is left for a checkpoint"))?;
                self.blocks.set_root(block);
                debug_assert_eq!(self.blocks.state(block), State::Root);
                Ok((block.page(0), full.map(|at| at.block)))
            }
        }
    }
}
