//! `dump`: all metadata of a disk as text. Opens the disk on a shadow, so that a crashed disk can be dumped and nothing
//! is written.

use super::lines::{DUMP_VERSION, HeldKind, Line, LineWriter, NodeKind, Places, hex};
use super::shadow::Shadow;
use crate::blocks::State;
use crate::format::oob::{OOB_ENTRY_BYTES, Oob};
use crate::format::place::{At, PACKED_ENTRIES_MAX, Place};
use crate::ftl::Ftl;
use crate::map::Owner;
use crate::options::{DedupMode, Options};
use crate::recover::recover;
use crate::roots::{FoundRoot, find_roots};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use vellum_base::{
    Avoided, BlockAddr, Cause, Env, Error, Flash, LedgerSnapshot, Result, SECTOR_BYTES, SlotAddr,
};

/// Sectors between two progress reports.
const PROGRESS_SECTORS: u32 = 1 << 16;

/// Contents of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DumpReport {
    /// Lines written.
    pub lines: u64,
    /// Sectors that hold bytes.
    pub mapped_sectors: u64,
    /// Slots that were not on flash, and are included in the dump.
    pub held_slots: u64,
}

/// Writes all metadata of the disk on `flash` as text (docs/formats/disk-dump.md). Nothing is written to the flash,
/// even if the disk was not closed cleanly. `progress` gets the number of sectors done, and of all sectors.
pub fn dump(
    flash: Arc<dyn Flash>,
    env: Arc<dyn Env>,
    out: &mut dyn Write,
    mut progress: impl FnMut(u64, u64),
) -> Result<DumpReport> {
    let shadow = Arc::new(Shadow::new(flash)?);
    let newest = find_roots(&*shadow)?.into_iter().max_by_key(|r| r.seq);
    let mut ftl = recover(shadow.clone(), env, Options::default())?;
    let newest = newest.ok_or_else(|| Error::corrupt("the disk has no root"))?;
    let ledger = ftl.ledger.snapshot();
    gather(&mut ftl)?;
    let mut writer = LineWriter::new(out);
    let mut report = DumpReport::default();
    write_identity(&ftl, &newest, &ledger, &mut writer)?;
    write_tree(&ftl, &mut writer)?;
    write_blocks(&ftl, &mut writer)?;
    write_logs(&ftl, &mut writer)?;
    report.held_slots = write_held(&ftl, &shadow, &mut writer)?;
    report.mapped_sectors = write_map(&ftl, &mut writer, &mut progress)?;
    report.lines = writer.finish()?;
    Ok(report)
}

/// Stores what is only in NVRAM to the shadow, without garbage collection.
fn gather(ftl: &mut Ftl) -> Result<()> {
    ftl.set_making_room(true);
    ftl.log.seal();
    ftl.store_sealed()?;
    ftl.program_open_page()
}

fn write_identity(
    ftl: &Ftl,
    newest: &FoundRoot,
    ledger: &LedgerSnapshot,
    writer: &mut LineWriter<'_>,
) -> Result<()> {
    let (id, life) = (&ftl.identity, &newest.root.life);
    writer.write(&Line::Disk {
        version: DUMP_VERSION,
        uuid: hex(&id.uuid),
        sectors: id.sectors,
        dedup: dedup_text(id.dedup),
        keep_copies: id.keep_copies,
        seed: id.seed,
        spare_blocks: id.spare_blocks,
        tbw_bytes: id.tbw_bytes,
        seq: ftl.seq,
        checkpoint_seq: newest.root.checkpoint_seq,
        geometry: ftl.geometry,
    })?;
    writer.write(&Line::Life {
        host_commands: life.host_commands,
        opened: life.opened,
        unsafe_shutdowns: life.unsafe_shutdowns,
        powered_ns: life.powered_ns,
    })?;
    let present = |pairs: Vec<(&'static str, u64)>| -> BTreeMap<String, u64> {
        pairs.into_iter().filter(|(_, bytes)| *bytes > 0).map(|(name, bytes)| (name.into(), bytes)).collect()
    };
    writer.write(&Line::Ledger {
        host_read_bytes: ledger.host_read_bytes,
        host_written_bytes: ledger.host_written_bytes,
        programmed: present(Cause::ALL.iter().map(|c| (c.name(), ledger.programmed_by(*c))).collect()),
        avoided: present(Avoided::ALL.iter().map(|r| (r.name(), ledger.avoided_by(*r))).collect()),
    })?;
    let (block, page) = (newest.at.block.0, newest.at.page);
    writer.write(&Line::Root { block, page, seq: newest.seq, clean: newest.root.clean })
}

/// The mode with its hash, as parsed by [`DedupMode::by_name`].
pub(super) fn dedup_text(mode: DedupMode) -> String {
    match mode {
        DedupMode::Strong(hash) | DedupMode::WojPaper(hash) => format!("{}:{}", mode.name(), hash.name()),
        DedupMode::None | DedupMode::Journal | DedupMode::Ecc | DedupMode::EccPaper => mode.name().into(),
    }
}

fn write_tree(ftl: &Ftl, writer: &mut LineWriter<'_>) -> Result<()> {
    for directory in 0..ftl.nodes.directories().len() as u32 {
        if let Some(slot) = ftl.nodes.directory(directory) {
            writer.write(&Line::Directory { directory, slot: slot.0 })?;
        }
    }
    for node in 0..ftl.nodes.count() {
        if let Some(slot) = ftl.nodes.slot(node) {
            let kind = if node < ftl.nodes.map_nodes() { NodeKind::Map } else { NodeKind::Log };
            writer.write(&Line::Node { node, kind, slot: slot.0 })?;
        }
    }
    Ok(())
}

fn write_blocks(ftl: &Ftl, writer: &mut LineWriter<'_>) -> Result<()> {
    for block in (0..ftl.geometry.blocks()).map(BlockAddr) {
        let report = ftl.flash.report(block);
        let state = match ftl.blocks.state(block) {
            State::Free if report.erase_count == 0 => continue,
            State::Free => "free",
            State::Open => "open",
            State::Full => "full",
            State::Aside => "aside",
            State::Retiring => "retiring",
            State::Dead => "dead",
            State::Bad => "bad",
            State::Root => "root",
        };
        writer.write(&Line::Block {
            block: block.0,
            state: state.into(),
            erase_count: report.erase_count,
            pages_written: report.pages_written,
            valid_slots: ftl.blocks.valid(block),
        })?;
    }
    Ok(())
}

fn write_logs(ftl: &Ftl, writer: &mut LineWriter<'_>) -> Result<()> {
    for log in 0..ftl.log.numbers() {
        let Some(info) = ftl.log.info(log).filter(|info| info.live > 0) else { continue };
        let Some(slot) = info.slot else {
            return Err(Error::corrupt(format!("log slot {log} is needed and is nowhere")));
        };
        let used = (0u32..).zip(&info.packed).filter(|(_, packed)| packed.owner.is_some());
        let entries = used.map(|(entry, packed)| (entry, packed.length)).collect();
        writer.write(&Line::Log { log, slot: slot.0, entries })?;
    }
    Ok(())
}

/// Writes the slots in use that exist only in the shadow.
fn write_held(ftl: &Ftl, shadow: &Shadow, writer: &mut LineWriter<'_>) -> Result<u64> {
    let mut held = Vec::new();
    shadow.for_each_page(|page, content| {
        let slots = content.data.chunks_exact(SECTOR_BYTES).zip(content.oob.chunks_exact(OOB_ENTRY_BYTES));
        for (index, (data, oob)) in (0u32..).zip(slots) {
            let slot = ftl.geometry.slot_of(page, index);
            let kind = match ftl.map.owner(slot) {
                Owner::Sector(_) => HeldKind::Data,
                Owner::Log(_) => HeldKind::Log,
                _ => continue,
            };
            let Some(entry) = Oob::decode(oob, slot) else { continue };
            let (slot, id, data_crc) = (slot.0, entry.id, entry.data_crc);
            held.push(Line::Held { slot, kind, id, data_crc, data: hex(data) });
        }
    });
    held.iter().try_for_each(|line| writer.write(line))?;
    Ok(held.len() as u64)
}

/// Writes the places of all sectors as runs; returns how many sectors hold bytes.
fn write_map(ftl: &Ftl, writer: &mut LineWriter<'_>, progress: &mut impl FnMut(u64, u64)) -> Result<u64> {
    let sectors = ftl.map.sectors();
    let mut mapped = 0;
    let mut first = 0u32;
    while u64::from(first) < sectors {
        let place = ftl.map.place(first);
        let mut count = 1;
        while u64::from(first + count) < sectors
            && following(place, count) == Some(ftl.map.place(first + count))
        {
            count += 1;
        }
        mapped += u64::from(count) * u64::from(place.holds_bytes());
        let place = match place.at() {
            At::Hole => None,
            At::Zero => Some(Places::Zero),
            At::Slot(SlotAddr(slot)) => Some(Places::Slot(slot)),
            At::Packed { log, entry } => Some(Places::Packed { log, entry }),
        };
        if let Some(place) = place {
            writer.write(&Line::Map { sector: first.into(), count: count.into(), place })?;
        }
        if first / PROGRESS_SECTORS != (first + count) / PROGRESS_SECTORS {
            progress(u64::from(first + count), sectors);
        }
        first += count;
    }
    progress(sectors, sectors);
    Ok(mapped)
}

/// The place `count` sectors later in a run that begins at `place`; none beyond the end of what contains it.
pub(super) fn following(place: Place, count: u32) -> Option<Place> {
    match place.at() {
        At::Hole | At::Zero => Some(place),
        At::Slot(slot) => {
            slot.0.checked_add(count).filter(|s| *s < 1 << 31).map(|s| Place::slot(SlotAddr(s)))
        }
        At::Packed { log, entry } => {
            let entry = entry.checked_add(count).filter(|e| (*e as usize) < PACKED_ENTRIES_MAX)?;
            Some(Place::packed(log, entry as usize))
        }
    }
}
