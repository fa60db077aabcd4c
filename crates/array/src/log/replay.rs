//! After a crash: what complete records say is written in place again.

use super::HEADS;
use super::record::{Content, Extent, Head, Record};
use crate::access::{Access, What, bytes_of};
use crate::assemble::Device;
use crate::core::Core;
use crate::layout::Shape;
use crate::superblock::{Id, LogPlace, State, Superblock};
use std::collections::{BTreeMap, BTreeSet};
use vellum_base::{BlockDevice, Kind, Lba, Result, SECTOR_BYTES};

/// After so many sectors that cannot be read the rest of a ring is not read, either.
const UNREAD_MAX: usize = 16;

/// A ring as it was found.
pub(crate) struct Found {
    pub head: Head,
    pub records: Vec<Record<'static>>,
}

/// All rings that count.
#[derive(Default)]
pub(crate) struct Rings {
    /// By role; a log device counts as role 0.
    pub found: BTreeMap<usize, Found>,
    /// Whose cannot be read whole, and sectors that cannot. There may have been records.
    pub unread: BTreeMap<usize, Vec<u64>>,
}

/// What was replayed.
#[derive(Default)]
pub(crate) struct Replayed {
    pub records: u64,
    /// The greatest generation of a head.
    pub generation: u64,
}

/// Writes what complete records say, the newest first, and of each sector the newest only. Flushes the members.
pub(crate) fn replay(core: &Core, rings: Rings) -> Result<Replayed> {
    let generation = rings.found.values().map(|ring| ring.head.generation).max().unwrap_or(0);
    let records = complete(core, rings);
    let replayed = Replayed { records: records.len() as u64, generation };
    for extents in newest(records.into_iter().map(|record| in_bounds(core, record)).collect()) {
        write_in_place(core, extents)?;
    }
    core.flush_members()?;
    Ok(replayed)
}

/// The rings of the members that count.
pub(crate) fn read_rings<'a>(
    newest: &Superblock,
    members: impl Iterator<Item = (usize, &'a Device)>,
) -> Result<Rings> {
    let mut rings = Rings::default();
    if newest.log != LogPlace::Members {
        return Ok(rings);
    }
    for (role, device) in members {
        let (stored, unread) = read_as_far(newest, &**device)?;
        let (heads, ring) = stored.split_at(HEADS as usize * SECTOR_BYTES);
        // A member that has just come, in another's place perhaps, has no heads yet, and no records.
        let is_new = unread.is_empty() && heads.iter().all(|byte| *byte == 0);
        let heads = heads.chunks(SECTOR_BYTES).filter_map(|sector| Head::decode(sector, &newest.array));
        let head = heads.max_by_key(|head| head.generation);
        if !is_new && (head.is_none() || !unread.is_empty()) {
            rings.unread.insert(role, unread);
        }
        if let Some(head) = head {
            rings.found.insert(role, Found { records: records_of(&newest.array, &head, ring), head });
        }
    }
    Ok(rings)
}

/// A member's heads and ring, zeros for sectors that cannot be read, and which those are.
fn read_as_far(newest: &Superblock, device: &dyn BlockDevice) -> Result<(Vec<u8>, Vec<u64>)> {
    let start = newest.plot.log_heads(&newest.shape);
    let sectors = HEADS + u64::from(newest.plot.log_sectors);
    let mut stored = vec![0; sectors as usize * SECTOR_BYTES];
    let mut unread = Vec::new();
    if device.read(Lba(start), &mut stored).is_ok() {
        return Ok((stored, unread));
    }
    for (sector, out) in (start..).zip(stored.chunks_mut(SECTOR_BYTES)) {
        // A device that answers nothing is not asked for every sector.
        if unread.len() == UNREAD_MAX {
            out.fill(0);
            continue;
        }
        match device.read(Lba(sector), out) {
            Ok(()) => {}
            Err(error) if error.kind() == Kind::PowerLost => return Err(error),
            Err(_) => {
                out.fill(0);
                unread.push(sector);
            }
        }
    }
    Ok((stored, unread))
}

/// Where members' rings could not be read nobody knows what was written to the rows whose parity they have: these count
/// as stale, whatever a cache knows of them.
pub(crate) fn rows_in_doubt(
    shape: &Shape,
    members: &[State],
    unread: &BTreeMap<usize, Vec<u64>>,
) -> BTreeSet<u64> {
    let is_unread = |role: usize, row: u64| members[role].has_row(row) && unread.contains_key(&role);
    let is_in_doubt = |row: &u64| shape.parity_members(*row).any(|role| is_unread(role, *row));
    let rows = if unread.is_empty() { 0 } else { shape.rows };
    (0..rows).filter(is_in_doubt).collect()
}

/// Writes sectors that could not be read: drives put them elsewhere.
pub(crate) fn rewrite(core: &Core, unread: BTreeMap<usize, Vec<u64>>) -> Result<()> {
    let roster = core.roster();
    let zeros = unread.into_iter().filter(|(role, _)| roster.members[*role].is_some());
    let zeros = zeros.flat_map(|(role, sectors)| {
        sectors.into_iter().map(move |sector| Access { role, sector, what: What::Zero(1, true) })
    });
    core.change_all(&roster, zeros.collect())
}

/// The records of a ring, as they lie there.
pub(super) fn records_of(array: &Id, head: &Head, ring: &[u8]) -> Vec<Record<'static>> {
    let (mut records, mut at) = (Vec::new(), 0);
    while at < ring.len() {
        match Record::decode(&ring[at..], array, head.epoch) {
            Some((record, sectors)) => {
                records.push(record);
                at += sectors * SECTOR_BYTES;
            }
            None => at += SECTOR_BYTES,
        }
    }
    records
}

/// Records that are not retired and that all participants have, in the order of their sequence. A participant that does
/// not have the row any more, or yet, need not have it, nor one whose ring cannot be read.
fn complete(core: &Core, rings: Rings) -> Vec<Record<'static>> {
    let roster = core.roster();
    let Rings { found, unread } = rings;
    let oldest_of = |epoch: u64| {
        let of_epoch = found.values().filter(|ring| ring.head.epoch == epoch);
        of_epoch.map(|ring| ring.head.oldest).max().unwrap_or(0)
    };
    let oldest: BTreeMap<u64, u64> =
        found.values().map(|ring| (ring.head.epoch, oldest_of(ring.head.epoch))).collect();
    let mut copies: BTreeMap<(u64, u64), (Record<'static>, u64)> = BTreeMap::new();
    for (role, ring) in found {
        for record in ring.records {
            let key = (record.epoch, record.sequence);
            copies.entry(key).or_insert((record, 0)).1 |= 1 << role;
        }
    }
    let is_complete = |record: &Record<'_>, have: u64| {
        let Some(row) = row_of(core, record) else { return false };
        (0..core.shape.members)
            .filter(|role| record.participants >> role & 1 == 1 && roster.with_row(*role, row).is_some())
            .all(|role| have >> role & 1 == 1 || unread.contains_key(&role))
    };
    let complete = copies
        .into_values()
        .filter(|(record, have)| record.sequence >= oldest[&record.epoch] && is_complete(record, *have));
    complete.map(|(record, _)| record).collect()
}

/// The row that a record is of; `None` if it is of none.
fn row_of(core: &Core, record: &Record<'_>) -> Option<u64> {
    let sector = record.extents.first()?.sector.checked_sub(core.plot.data_start)?;
    Some(sector / u64::from(core.shape.chunk_sectors))
}

/// The sectors of each record that no later one has: what is in place is never replaced by something older, for the
/// power may go in between, and the member with the later record.
fn newest(records: Vec<Record<'_>>) -> Vec<Vec<Extent>> {
    let mut later: BTreeSet<(usize, u64)> = BTreeSet::new();
    let of_record = |record: Record<'_>| {
        let extents: Vec<Extent> = record.extents.iter().flat_map(|extent| without(extent, &later)).collect();
        let sectors = |extent: &Extent| {
            let (role, first) = (extent.role, extent.sector);
            (first..first + u64::from(extent.content.sectors())).map(move |sector| (role, sector))
        };
        later.extend(record.extents.iter().flat_map(sectors));
        extents
    };
    records.into_iter().rev().map(of_record).collect()
}

/// Runs of an extent's sectors that are not among these.
fn without(extent: &Extent, but: &BTreeSet<(usize, u64)>) -> Vec<Extent> {
    let count = extent.content.sectors();
    let kept: Vec<u32> =
        (0..count).filter(|i| !but.contains(&(extent.role, extent.sector + u64::from(*i)))).collect();
    let run = |run: &[u32]| {
        let (first, sectors) = (run[0], run.len() as u32);
        let content = match &extent.content {
            Content::Zeros(_) => Content::Zeros(sectors),
            Content::Bytes(bytes) => {
                Content::Bytes(bytes[bytes_of(first)..bytes_of(first + sectors)].to_vec())
            }
        };
        Extent { role: extent.role, sector: extent.sector + u64::from(first), content }
    };
    kept.chunk_by(|a, b| a + 1 == *b).map(run).collect()
}

/// Writes extents to the members that count.
fn write_in_place(core: &Core, extents: Vec<Extent>) -> Result<()> {
    let roster = core.roster();
    let writes = extents.into_iter().map(|extent| {
        let what = match extent.content {
            Content::Bytes(bytes) => What::Write(bytes, false),
            Content::Zeros(sectors) => What::Zero(sectors.into(), false),
        };
        Access { role: extent.role, sector: extent.sector, what }
    });
    core.change_all(&roster, writes.collect())
}

/// Leaves out what is not in the data area of a member that counts.
fn in_bounds<'a>(core: &Core, mut record: Record<'a>) -> Record<'a> {
    let roster = core.roster();
    let end = core.plot.data_start + core.shape.member_sector(core.shape.rows);
    record.extents.to_mut().retain(|extent| {
        let (role, sector, sectors) = (extent.role, extent.sector, extent.content.sectors());
        let counts = roster.present().any(|present| present == role);
        counts && sector >= core.plot.data_start && sector.saturating_add(sectors.into()) <= end
    });
    record
}
