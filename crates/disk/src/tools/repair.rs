//! `repair`: rebuilds the disk from whatever is left, without a checkpoint that can be trusted. The disk's identity
//! comes from a root, or from the caller, or is deduced; the map is rebuilt by [`super::rebuild`].
//!
//! Lost sectors read as errors until they are rewritten: never as old bytes or zeros.

use super::dump::dedup_text;
use super::evidence::{Evidence, nvram_images};
use super::lines::hex;
use super::picture::Held;
use super::rebuild::Rebuild;
use crate::Format;
use crate::capacity::sectors_max;
use crate::format::FANOUT;
use crate::format::nvram::NvramImage;
use crate::format::oob::{Oob, SlotKind};
use crate::format::root::Root;
use crate::options::{DedupMode, Identity};
use crate::recover::check_geometry;
use crate::roots::find_roots;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::{BlockAddr, Env, Error, Flash, Kind, Result, SlotAddr};

/// Maximum number of ranges and remarks listed; further ones are only counted.
const LISTED_MAX: usize = 1000;

/// Options of a repair.
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    /// Write the new checkpoint. Otherwise nothing is written, and the report describes what would be.
    pub write: bool,
    /// Identity of the disk, if no root is left (or to override that of a root).
    pub identity: Option<Format>,
}

/// Where the size and the mode of the disk came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IdentitySource {
    /// A root.
    Root,
    /// The caller.
    Given,
    /// The highest sector found, and defaults. The disk may be smaller than it was.
    #[default]
    Deduced,
}

/// Sectors, as ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SectorList {
    /// Their number.
    pub count: u64,
    /// First sector and number of sectors, ascending; the first 1000 ranges.
    pub ranges: Vec<(u64, u64)>,
}

impl SectorList {
    pub(super) fn push(&mut self, sector: u64) {
        self.count += 1;
        let listed = self.ranges.len();
        match self.ranges.last_mut() {
            Some((first, count)) if *first + *count == sector => *count += 1,
            _ if listed < LISTED_MAX => self.ranges.push((sector, 1)),
            _ => {}
        }
    }
}

/// Findings of a repair, and whether it was written.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RepairReport {
    /// True if the new checkpoint was written.
    pub written: bool,
    /// Identity, as 32 hexadecimal digits.
    pub uuid: String,
    /// Logical size.
    pub sectors: u64,
    /// How duplicates are detected.
    pub dedup: String,
    /// Where size and mode came from.
    pub identity_from: IdentitySource,
    /// Number of valid roots.
    pub roots_found: u64,
    /// Number of pages examined.
    pub pages_scanned: u64,
    /// Pages without even readable out-of-band entries: they may have contained anything.
    pub unreadable_pages: u64,
    /// Slots torn by a power cut: they never took effect.
    pub torn_slots: u64,
    /// Map nodes that the reconstruction started from.
    pub map_nodes_used: u64,
    /// Map nodes whose newest version is unreadable or gone: the reconstruction started from an older one, or none.
    pub map_nodes_old: Vec<u32>,
    /// Log slots whose records were used.
    pub log_slots_used: u64,
    /// Log slots that cannot be read: trims, remaps and packed sectors may be missing.
    pub log_slots_unreadable: u64,
    /// True if unreadable pages or log slots may have contained later versions of unknown sectors: all sectors that are
    /// not proven to be current are among the stale.
    pub newer_may_be_gone: bool,
    /// Sectors with bytes found and valid.
    pub recovered_sectors: u64,
    /// Sectors whose newest version was found but is invalid: reads fail.
    pub damaged_sectors: SectorList,
    /// Sectors whose bytes no longer exist anywhere: reads fail.
    pub lost_sectors: SectorList,
    /// Sectors among the recovered, holes and zeros that may have had a later version.
    pub stale_sectors: SectorList,
    /// Contradictory evidence, in words; the first 1000.
    pub conflicts: Vec<String>,
}

impl RepairReport {
    /// True if nothing is lost, damaged or doubtful.
    pub fn is_whole(&self) -> bool {
        self.damaged_sectors.count == 0
            && self.lost_sectors.count == 0
            && self.stale_sectors.count == 0
            && self.log_slots_unreadable == 0
            && self.unreadable_pages == 0
            && self.conflicts.is_empty()
    }

    pub(super) fn conflict(&mut self, what: String) {
        if self.conflicts.len() < LISTED_MAX {
            self.conflicts.push(what);
        }
    }
}

/// Rebuilds the map of the disk on `flash` from every slot on it, and, if requested, writes it as a new checkpoint.
///
/// `progress` gets the number of steps done, and of all steps (erase blocks and sectors). Without a root the secret of
/// the content hash is newly drawn, and the ledger starts from that of NVRAM or the device itself.
pub fn repair(
    flash: Arc<dyn Flash>,
    env: Arc<dyn Env>,
    options: &RepairOptions,
    mut progress: impl FnMut(u64, u64),
) -> Result<RepairReport> {
    check_geometry(flash.geometry())?;
    let mut report = RepairReport::default();
    let roots = find_roots(&*flash)?;
    report.roots_found = roots.len() as u64;
    let found = roots.into_iter().max_by_key(|r| r.seq);
    let root = found.as_ref().map(|r| &r.root);
    let images = nvram_images(&*flash, root.map(|r| r.identity.uuid))?;
    let durable_seq = images.first().map_or(0, |i| i.durable_seq).max(root.map_or(0, |r| r.durable_seq));
    let mut evidence = Evidence::collect(&*flash, durable_seq, &mut progress)?;
    (report.pages_scanned, report.unreadable_pages) = (evidence.pages_written, evidence.unreadable_pages);
    report.torn_slots = evidence.torn.len() as u64;
    if report.pages_scanned == 0 {
        return Err(Error::corrupt("there is nothing on this flash to repair a disk from"));
    }
    let mut held = BTreeMap::new();
    images.iter().for_each(|image| hold_staged(&*flash, image, &mut evidence, &mut held));
    let identity = identify(&*flash, &*env, options, root, images.first(), &evidence, &mut report)?;
    let rebuild = Rebuild::new(&*flash, identity, evidence, held, report);
    let (picture, mut report) = rebuild.run(found.as_ref(), &images, &mut progress);
    let room = picture.rehearse(&flash, &env)?;
    if options.write {
        picture.install(room, flash, env)?;
        report.written = true;
    }
    Ok(report)
}

/// Adds slots of an NVRAM image's open page that are not on flash to the evidence.
fn hold_staged(
    flash: &dyn Flash,
    image: &NvramImage,
    evidence: &mut Evidence,
    held: &mut BTreeMap<SlotAddr, Held>,
) {
    evidence.newest_seq = evidence.newest_seq.max(image.durable_seq);
    let geometry = flash.geometry();
    let Some((block, page)) =
        image.open.filter(|(block, page)| *block < geometry.blocks() && *page < geometry.pages_per_block)
    else {
        return;
    };
    let slots = image.staged.iter().take(geometry.slots_per_page() as usize);
    for (index, (entry, data)) in (0u32..).zip(slots) {
        let slot = geometry.slot_of(BlockAddr(block).page(page), index);
        // A higher number means that the page was erased and reused since.
        if evidence.seq_of(slot) < entry.seq {
            evidence.set(slot, entry);
            let Oob { kind, id, data_crc, .. } = *entry;
            held.insert(slot, Held { kind, id, data_crc, data: data.clone() });
        }
    }
}

fn identify(
    flash: &dyn Flash,
    env: &dyn Env,
    options: &RepairOptions,
    root: Option<&Root>,
    image: Option<&NvramImage>,
    evidence: &Evidence,
    report: &mut RepairReport,
) -> Result<Identity> {
    let geometry = flash.geometry();
    let words = [env.random(), env.random()].map(u64::to_le_bytes);
    let drawn: [u8; 16] = std::array::from_fn(|i| words[i / 8][i % 8]);
    let uuid = root.map(|r| r.identity.uuid).or(image.map(|i| i.uuid)).unwrap_or(drawn);
    let seed = root.map_or_else(|| env.random(), |r| r.identity.seed);
    let (sectors, dedup, keep_copies, tbw_bytes) = match (&options.identity, root) {
        (Some(given), _) => {
            report.identity_from = IdentitySource::Given;
            (given.sectors, given.dedup, given.keep_copies, given.tbw_bytes)
        }
        (None, Some(root)) => {
            report.identity_from = IdentitySource::Root;
            let id = &root.identity;
            (id.sectors, id.dedup, id.keep_copies, id.tbw_bytes)
        }
        (None, None) => (deduced_sectors(flash, evidence), DedupMode::default(), false, 0),
    };
    if sectors == 0 || sectors > geometry.slots() {
        return Err(Error::new(
            Kind::Invalid,
            format!("a disk on this flash cannot have {sectors} sectors: say how many it had"),
        ));
    }
    let given_uuid = options.identity.as_ref().map(|f| f.uuid).filter(|u| *u != [0; 16]);
    let data_blocks = sectors.div_ceil(u64::from(geometry.slots_per_block())) as u32;
    let spare_blocks =
        root.map_or(geometry.blocks().saturating_sub(data_blocks), |r| r.identity.spare_blocks);
    let uuid = given_uuid.unwrap_or(uuid);
    (report.uuid, report.sectors, report.dedup) = (hex(&uuid), sectors, dedup_text(dedup));
    Ok(Identity { uuid, sectors, seed, dedup, keep_copies, spare_blocks, tbw_bytes })
}

/// Deduces the size: the first log node follows the last map node; without one, the highest sector found is the last.
/// Nodes cover 1,024 sectors: if the largest possible disk fits, that size is assumed.
fn deduced_sectors(flash: &dyn Flash, evidence: &Evidence) -> u64 {
    let log_node = evidence.all_of(SlotKind::LogNode).map(|(_, _, id)| u64::from(id) * FANOUT as u64).min();
    let data = evidence.all_of(SlotKind::Data).map(|(_, _, id)| u64::from(id) + 1).max().unwrap_or(0);
    let node = evidence.all_of(SlotKind::MapNode).map(|(_, _, id)| (u64::from(id) + 1) * FANOUT as u64).max();
    let by_nodes = log_node.or(node).unwrap_or(0);
    let largest = sectors_max(flash.geometry(), 0);
    let exact =
        if by_nodes.saturating_sub(FANOUT as u64) < largest { by_nodes.min(largest) } else { by_nodes };
    exact.max(data).min(flash.geometry().slots())
}
