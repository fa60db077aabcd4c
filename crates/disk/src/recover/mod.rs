//! Opening a disk: loads the checkpoint, replays the events after it, then computes everything else.
//!
//! Steps and their reasons are in docs/formats/disk.md, Recovery. Recovery writes nothing, except what an NVRAM image
//! saved of a torn page, and what the cut undid. Until that is complete, a second power cut finds the same images.

mod link;
mod replay;
mod rescue;
mod scan;
mod undone;

use crate::blocks::State;
use crate::format::nvram::NvramImage;
use crate::format::oob::{OOB_ENTRY_BYTES, SlotKind};
use crate::format::place::Place;
use crate::format::{FANOUT, NO_SLOT, decode_node};
use crate::ftl::Ftl;
use crate::log::Log;
use crate::options::Options;
use crate::persist::read_nvram;
use crate::read::read_named;
use crate::roots::{FoundRoot, find_roots};
use scan::Scan;
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::hash::FixedMap;
use vellum_base::{
    BlockAddr, BlockState, Cause, Env, Error, Flash, Geometry, Ledger, LedgerSnapshot, PageAddr, Result,
    SECTOR_BYTES, SlotAddr,
};

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
    // Never an older root: what it lists may have been erased since.
    Recovery::load(flash, env, options, &newest)
        .and_then(|r| r.finish(&newest))
        .map_err(|e| e.context("the disk cannot be opened as it is (try `vellum disk repair`)"))
}

/// With smaller erase blocks collection gains too little: the last page of one may be padding.
const PAGES_PER_BLOCK_MIN: u32 = 3;

/// Refuses devices whose erase blocks are too small, or whose pages have no room for our out-of-band entries.
pub(crate) fn check_geometry(geometry: &Geometry) -> Result<()> {
    geometry.validate()?;
    if geometry.pages_per_block < PAGES_PER_BLOCK_MIN {
        return Err(Error::invalid(format!(
            "this flash has {} pages an erase block; a disk needs {PAGES_PER_BLOCK_MIN}",
            geometry.pages_per_block
        )));
    }
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

struct Recovery {
    ftl: Ftl,
    /// NVRAM images, older first.
    images: Vec<NvramImage>,
    /// Everything up to here was durable, according to roots and images.
    durable_seq: u64,
    /// Everything programmed before this event had completed on the flash.
    finished_seq: u64,
    ledger_seq: u64,
    ledger: LedgerSnapshot,
    log_slots: Vec<(u32, SlotAddr)>,
    /// Sectors with a record that did not take effect, and no later event.
    undone: BTreeSet<u32>,
    /// Pages that are unreadable, and not just torn.
    suspects: BTreeSet<PageAddr>,
    /// Valid slots beyond the checkpoint, with their number and checksum.
    found: FixedMap<SlotAddr, (u64, u32)>,
    /// Log slots examined: the base of their records' numbers, and how many sectors they pack.
    found_logs: FixedMap<u32, (u64, u32)>,
}

impl Recovery {
    /// Loads the checkpoint of `found`: nodes into the map.
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
        let (ledger, life, ledger_seq) = match image {
            Some(i) if i.durable_seq >= found.seq => (i.ledger, i.life, i.durable_seq),
            _ => (root.ledger, root.life, found.seq),
        };
        let durable_seq = image.map_or(0, |i| i.durable_seq).max(root.durable_seq);
        // The older image is overwritten only once everything programmed before the newer one has completed.
        let older = if images.len() > 1 { images[0].durable_seq } else { 0 };
        let mut ftl = Ftl::new(flash, env, root.identity, options);
        ftl.log = Log::new(root.log_numbers, root.checkpoint_seq, numbers_max);
        ftl.life = life;
        ftl.checkpoint.resume(root.checkpoint_seq);
        ftl.checkpoint.root_seq = found.seq;
        ftl.checkpoint.root_ledger = root.ledger;
        ftl.checkpoint.root_opened = root.life.opened;
        let mut recovery = Recovery {
            ftl,
            images,
            durable_seq,
            finished_seq: older.max(found.seq),
            ledger_seq,
            ledger,
            log_slots: Vec::new(),
            undone: BTreeSet::new(),
            suspects: BTreeSet::new(),
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
        let entry = read_named(&*self.ftl.flash, SlotAddr(slot), &mut bytes)?;
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
        let damaged = self.load_packed()?;
        self.link(&damaged)?;
        self.refuse_rot()?;
        let resumed = self.resumable();
        self.close_blocks(found, resumed);
        self.settle_ledger(&scan, found);
        self.ftl.seq = self.ftl.seq.max(scan.last_seq).max(found.seq).max(self.durable_seq);
        self.ftl.log.finish_loading();
        self.rescue_staged(resumed)?;
        self.ftl.flash.sync()?;
        Ok(self.ftl)
    }

    /// Closes blocks that were written; the newest root's block continues to take roots.
    fn close_blocks(&mut self, found: &FoundRoot, resumed: Option<PageAddr>) {
        let written: Vec<BlockAddr> = self.ftl.blocks.in_state(State::Open).collect();
        for block in written {
            let report = self.ftl.flash.report(block);
            if resumed == Some(block.page(report.pages_written)) {
                continue;
            } else if block == found.at.block && report.state == BlockState::Good {
                self.ftl.blocks.set_root(block);
                self.ftl.checkpoint.root_at = Some(block.page(report.pages_written));
            } else if report.state == BlockState::Bad {
                self.ftl.retire(block);
            } else {
                // Seq 0: blocks that are dead now were already dead according to the flash.
                self.ftl.blocks.load_closed(block, 0);
            }
        }
    }

    /// Updates the ledger to match the device again.
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
        // Programs recorded in the ledger but not begun at the power cut.
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
}
