//! `inspect`: the layout of the format on a flash, and its contents, without opening the disk.

use super::dump::dedup_text;
use super::evidence::nvram_images;
use super::lines::hex;
use crate::capacity::sectors_max;
use crate::format::log_slot::SMALL_MAX;
use crate::format::nvram::area_bytes;
use crate::format::oob::{OOB_ENTRY_BYTES, Oob, SlotKind};
use crate::format::place::{LOG_NUMBERS_MAX, PACKED_ENTRIES_MAX};
use crate::format::root::{DIRECTORIES_MAX, Root};
use crate::format::{FANOUT, NO_SLOT, decode_node};
use crate::map::{Map, OWNERS_MAX};
use crate::read::read_checked;
use crate::recover::check_geometry;
use crate::roots::{FoundRoot, find_roots};
use serde::Serialize;
use vellum_base::{
    BlockAddr, BlockState, Error, Flash, Geometry, IoClass, PageAddr, Result, SECTOR_BYTES, SlotAddr,
};

/// Layout, limits, and contents. Everything but `roots`, `tree` and `nvram` follows from the geometry.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    /// Geometry of the flash.
    pub geometry: Geometry,
    /// Erase blocks.
    pub blocks: u64,
    /// Erase blocks that are bad.
    pub bad_blocks: u64,
    /// Erase blocks with a page written.
    pub written_blocks: u64,
    /// Sector-sized slots.
    pub slots: u64,
    /// Slots in a page.
    pub slots_per_page: u32,
    /// Slots in an erase block.
    pub slots_per_block: u32,
    /// Bytes in an erase block.
    pub block_bytes: u64,
    /// Bytes of the flash.
    pub flash_bytes: u64,
    /// Out-of-band bytes of a page used by a disk.
    pub oob_bytes_used: u32,
    /// Maximum number of sectors of a new disk on this flash.
    pub sectors_max: u64,
    /// Memory needed to open such a disk, in bytes.
    pub memory_bytes_at_most: u64,
    /// Memory needed to open the existing disk, in bytes.
    pub memory_bytes: Option<u64>,
    /// Constants of the format.
    pub limits: LimitsInfo,
    /// Roots, newest first.
    pub roots: Vec<FoundRootInfo>,
    /// Nodes of the newest root.
    pub tree: Option<TreeInfo>,
    /// NVRAM of the device.
    pub nvram: Option<NvramInfo>,
}

/// Constants of the format.
#[derive(Clone, Debug, Serialize)]
pub struct LimitsInfo {
    /// Bytes in a sector, a slot and a node.
    pub sector_bytes: u64,
    /// Bytes of an out-of-band entry.
    pub oob_entry_bytes: u64,
    /// Places in a map node, slots in a log node, nodes in a directory.
    pub fanout: u64,
    /// Maximum number of directories in a root.
    pub directories_max: u64,
    /// Number of log numbers.
    pub log_numbers_max: u64,
    /// Maximum number of packed sectors in a log slot.
    pub packed_entries_max: u64,
    /// Maximum size of a packed sector in bytes.
    pub packed_bytes_max: u64,
    /// Maximum number of sectors at one place.
    pub owners_max: u64,
    /// Bytes of NVRAM needed so that a flush programs nothing.
    pub nvram_bytes_needed: u64,
}

/// A root.
#[derive(Clone, Debug, Serialize)]
pub struct FoundRootInfo {
    /// Erase block it is in.
    pub block: u32,
    /// Page of that block.
    pub page: u32,
    /// Its number.
    pub seq: u64,
    /// Identity of the disk, as 32 hexadecimal digits.
    pub uuid: String,
    /// Logical size.
    pub sectors: u64,
    /// How duplicates are detected.
    pub dedup: String,
    /// Everything up to here is in the nodes.
    pub checkpoint_seq: u64,
    /// Everything up to here had been flushed when it was written.
    pub durable_seq: u64,
    /// Log numbers in use.
    pub log_numbers: u32,
    /// Directories it lists.
    pub directories: u64,
    /// Written by a clean close.
    pub clean: bool,
    /// Times opened.
    pub opened: u64,
}

/// The nodes below a root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TreeInfo {
    /// Directories on flash.
    pub directories: u64,
    /// Map nodes on flash.
    pub map_nodes: u64,
    /// Maximum number of map nodes of the disk.
    pub map_nodes_max: u64,
    /// Log nodes on flash.
    pub log_nodes: u64,
    /// Log slots that the log nodes list.
    pub log_slots: u64,
    /// Bytes of all these nodes.
    pub node_bytes: u64,
    /// Nodes and directories that cannot be read: the disk cannot be opened.
    pub unreadable: u64,
}

/// NVRAM.
#[derive(Clone, Debug, Serialize)]
pub struct NvramInfo {
    /// Size.
    pub bytes: u64,
    /// Size of one of the two areas.
    pub area_bytes: u64,
    /// Large enough to be used.
    pub is_used: bool,
    /// Generations of the valid images, newest first.
    pub generations: Vec<u64>,
    /// Staged slots in the newest image.
    pub staged_slots: u64,
    /// Bytes of the log slot in the newest image.
    pub log_bytes: u64,
    /// Everything up to here is on flash or in the newest image.
    pub durable_seq: u64,
}

/// One page.
#[derive(Clone, Debug, Serialize)]
pub struct PageInspection {
    /// Its erase block.
    pub block: u32,
    /// Its number in the block.
    pub page: u32,
    /// Whether the block is usable.
    pub block_is_good: bool,
    /// Erase count of the block.
    pub erase_count: u32,
    /// Pages of the block that are written.
    pub pages_written: u32,
    /// Whether the out-of-band bytes cannot be read.
    pub unreadable: bool,
    /// Its slots.
    pub slots: Vec<SlotInspection>,
}

/// One slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlotInspection {
    /// Its address.
    pub slot: u32,
    /// Its contents: `data`, `log`, `map_node`, `log_node`, `directory`, `root`, `padding`, or `nothing` if its entry
    /// is invalid.
    pub kind: &'static str,
    /// By kind: sector, log number, node number.
    pub id: u32,
    /// Its number.
    pub seq: u64,
    /// Why it was programmed.
    pub cause: &'static str,
    /// Checksum of its bytes, according to its entry.
    pub data_crc: u32,
    /// Whether the bytes match that checksum.
    pub checks_out: bool,
}

/// Inspects the flash. Reads roots, directories, log nodes and NVRAM; writes nothing.
pub fn inspect(flash: &dyn Flash) -> Result<Inspection> {
    let g = *flash.geometry();
    check_geometry(&g)?;
    let reports: Vec<_> = (0..g.blocks()).map(|b| flash.report(BlockAddr(b))).collect();
    let bad_blocks = reports.iter().filter(|r| r.state == BlockState::Bad).count() as u64;
    let mut roots = find_roots(flash)?;
    roots.sort_by_key(|r| std::cmp::Reverse(r.seq));
    let newest = roots.first().map(|r| &r.root);
    let tree = newest.map(|root| read_tree(flash, root));
    let most = sectors_max(&g, bad_blocks as u32);
    let memory_of = |root: &Root| memory_bytes(&g, root.identity.sectors, root.log_numbers.into());
    Ok(Inspection {
        geometry: g,
        blocks: g.blocks().into(),
        bad_blocks,
        written_blocks: reports.iter().filter(|r| r.pages_written > 0).count() as u64,
        slots: g.slots(),
        slots_per_page: g.slots_per_page(),
        slots_per_block: g.slots_per_block(),
        block_bytes: g.block_bytes(),
        flash_bytes: g.capacity_bytes(),
        oob_bytes_used: g.slots_per_page() * OOB_ENTRY_BYTES as u32,
        sectors_max: most,
        memory_bytes_at_most: memory_bytes(&g, most, 0),
        memory_bytes: newest.map(memory_of),
        limits: limits(&g),
        nvram: nvram(flash, newest)?,
        tree,
        roots: roots.iter().map(describe).collect(),
    })
}

/// Memory of map, owners, tags, erase blocks and log slots.
fn memory_bytes(g: &Geometry, sectors: u64, log_numbers: u64) -> u64 {
    let blocks = u64::from(g.blocks()) * crate::blocks::BLOCK_MEMORY_BYTES;
    Map::memory_bytes_of(sectors.min(g.slots()), g.slots())
        + blocks
        + log_numbers * crate::log::LOG_MEMORY_BYTES
}

fn limits(g: &Geometry) -> LimitsInfo {
    LimitsInfo {
        sector_bytes: SECTOR_BYTES as u64,
        oob_entry_bytes: OOB_ENTRY_BYTES as u64,
        fanout: FANOUT as u64,
        directories_max: DIRECTORIES_MAX as u64,
        log_numbers_max: LOG_NUMBERS_MAX.into(),
        packed_entries_max: PACKED_ENTRIES_MAX as u64,
        packed_bytes_max: SMALL_MAX as u64,
        owners_max: OWNERS_MAX as u64,
        nvram_bytes_needed: 2 * area_bytes(g.slots_per_page()) as u64,
    }
}

fn describe(found: &FoundRoot) -> FoundRootInfo {
    let root = &found.root;
    FoundRootInfo {
        block: found.at.block.0,
        page: found.at.page,
        seq: found.seq,
        uuid: hex(&root.identity.uuid),
        sectors: root.identity.sectors,
        dedup: dedup_text(root.identity.dedup),
        checkpoint_seq: root.checkpoint_seq,
        durable_seq: root.durable_seq,
        log_numbers: root.log_numbers,
        directories: root.directories.iter().filter(|s| **s != NO_SLOT).count() as u64,
        clean: root.clean,
        opened: root.life.opened,
    }
}

fn read_tree(flash: &dyn Flash, root: &Root) -> TreeInfo {
    let map_nodes_max = root.identity.sectors.div_ceil(FANOUT as u64);
    let mut tree = TreeInfo { map_nodes_max, ..TreeInfo::default() };
    let mut listed = [0; FANOUT];
    for (directory, slot) in (0u64..).zip(&root.directories).filter(|(_, slot)| **slot != NO_SLOT) {
        tree.directories += 1;
        if !read_node(flash, *slot, SlotKind::Directory, &mut listed) {
            tree.unreadable += 1;
            continue;
        }
        for (i, slot) in (0u64..).zip(listed).filter(|(_, slot)| *slot != NO_SLOT) {
            let mut places = [0; FANOUT];
            let is_map = directory * FANOUT as u64 + i < map_nodes_max;
            let kind = if is_map { SlotKind::MapNode } else { SlotKind::LogNode };
            let readable = read_node(flash, slot, kind, &mut places);
            tree.unreadable += u64::from(!readable);
            tree.map_nodes += u64::from(is_map);
            if !is_map {
                tree.log_nodes += 1;
                tree.log_slots += places.iter().filter(|s| readable && **s != NO_SLOT).count() as u64;
            }
        }
    }
    tree.node_bytes = (tree.directories + tree.map_nodes + tree.log_nodes) * SECTOR_BYTES as u64;
    tree
}

fn read_node(flash: &dyn Flash, slot: u32, kind: SlotKind, out: &mut [u32; FANOUT]) -> bool {
    let geometry = flash.geometry();
    if u64::from(slot) >= geometry.slots() {
        return false;
    }
    let (page, index) = geometry.page_of_slot(SlotAddr(slot));
    let (entries, _) = page_entries(flash, page);
    let mut bytes = [0; SECTOR_BYTES];
    decode_node(&bytes, out);
    let named = matches!(entries.get(index as usize), Some(Some(entry)) if entry.kind == kind);
    if !named || read_checked(flash, IoClass::Metadata, page, index, &mut bytes).is_err() {
        return false;
    }
    decode_node(&bytes, out);
    true
}

fn nvram(flash: &dyn Flash, newest: Option<&Root>) -> Result<Option<NvramInfo>> {
    let Some(nvram) = flash.nvram() else { return Ok(None) };
    let area_bytes = area_bytes(flash.geometry().slots_per_page());
    let images = nvram_images(flash, newest.map(|r| r.identity.uuid))?;
    let first = images.first();
    Ok(Some(NvramInfo {
        bytes: nvram.bytes() as u64,
        area_bytes: area_bytes as u64,
        is_used: nvram.bytes() >= 2 * area_bytes,
        generations: images.iter().map(|i| i.generation).collect(),
        staged_slots: first.map_or(0, |i| i.staged.len() as u64),
        log_bytes: first.map_or(0, |i| i.log.len() as u64),
        durable_seq: first.map_or(0, |i| i.durable_seq),
    }))
}

/// Decodes the out-of-band entries of one page and checks its slots.
pub fn inspect_page(flash: &dyn Flash, page: PageAddr) -> Result<PageInspection> {
    let geometry = *flash.geometry();
    check_geometry(&geometry)?;
    if page.block.0 >= geometry.blocks() || page.page >= geometry.pages_per_block {
        return Err(Error::invalid(format!(
            "there is no {page}: this flash has {} erase blocks of {} pages",
            geometry.blocks(),
            geometry.pages_per_block
        )));
    }
    let report = flash.report(page.block);
    let (entries, readable) = page_entries(flash, page);
    let describe = |(index, entry): (u32, Option<Oob>)| {
        let slot = geometry.slot_of(page, index).0;
        let Some(entry) = entry else {
            return SlotInspection {
                slot,
                kind: "nothing",
                id: 0,
                seq: 0,
                cause: "",
                data_crc: 0,
                checks_out: false,
            };
        };
        let mut bytes = [0; SECTOR_BYTES];
        let checks_out = read_checked(flash, IoClass::Metadata, page, index, &mut bytes).is_ok();
        let Oob { id, seq, data_crc, .. } = entry;
        SlotInspection {
            slot,
            kind: kind_name(entry.kind),
            id,
            seq,
            cause: entry.cause.name(),
            data_crc,
            checks_out,
        }
    };
    Ok(PageInspection {
        block: page.block.0,
        page: page.page,
        block_is_good: report.state == BlockState::Good,
        erase_count: report.erase_count,
        pages_written: report.pages_written,
        unreadable: !readable,
        slots: (0u32..).zip(entries).map(describe).collect(),
    })
}

/// Entries of a page's slots, and whether they could be read.
fn page_entries(flash: &dyn Flash, page: PageAddr) -> (Vec<Option<Oob>>, bool) {
    let geometry = flash.geometry();
    let mut oob = vec![0; geometry.oob_bytes as usize];
    let readable = flash.read(IoClass::Metadata, page, 0, &mut [], &mut oob).is_ok();
    let slots = oob.chunks_exact(OOB_ENTRY_BYTES).take(geometry.slots_per_page() as usize);
    let decode = |(index, entry)| Oob::decode(entry, geometry.slot_of(page, index)).filter(|_| readable);
    ((0..).zip(slots).map(decode).collect(), readable)
}

fn kind_name(kind: SlotKind) -> &'static str {
    match kind {
        SlotKind::Data => "data",
        SlotKind::Log => "log",
        SlotKind::MapNode => "map_node",
        SlotKind::LogNode => "log_node",
        SlotKind::Directory => "directory",
        SlotKind::Root => "root",
        SlotKind::Padding => "padding",
    }
}
