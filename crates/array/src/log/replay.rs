//! After a crash: what complete records say is written in place again.

use super::HEADS;
use super::record::{Content, Extent, Head, Record};
use crate::access::{Access, What, bytes_of, call};
use crate::core::Core;
use crate::superblock::LogPlace;
use std::collections::{BTreeMap, BTreeSet};
use vellum_base::{BlockDevice, Result, SECTOR_BYTES};

/// A ring as it was found.
pub(crate) struct Found {
    pub head: Head,
    pub records: Vec<Record>,
}

/// What was replayed.
#[derive(Default)]
pub(crate) struct Replayed {
    pub records: u64,
    /// The greatest generation of a head.
    pub generation: u64,
}

/// Writes what complete records say, of each sector the newest. Flushes the members. Rings are by role; a log device
/// counts as role 0.
pub(crate) fn replay(core: &Core, rings: BTreeMap<usize, Found>) -> Result<Replayed> {
    let generation = rings.values().map(|ring| ring.head.generation).max().unwrap_or(0);
    let records = complete(core, rings);
    let replayed = Replayed { records: records.len() as u64, generation };
    for extents in newest(records.into_iter().map(|record| in_bounds(core, record)).collect()) {
        write_in_place(core, extents)?;
    }
    core.flush_members()?;
    Ok(replayed)
}

/// The rings of the members that count. Those that cannot be read have no records.
pub(crate) fn read_members(core: &Core) -> BTreeMap<usize, Found> {
    if core.log_place != LogPlace::Members {
        return BTreeMap::new();
    }
    let roster = core.roster();
    let ring = |role: usize| Some((role, read_ring(core, &*roster.members[role].as_ref()?.device)?));
    roster.present().filter_map(ring).collect()
}

fn read_ring(core: &Core, device: &dyn BlockDevice) -> Option<Found> {
    let start = core.plot.log_heads(&core.shape);
    let heads = call(device, start, What::Read(HEADS as usize * SECTOR_BYTES)).ok()?;
    let heads = heads.chunks(SECTOR_BYTES).filter_map(|sector| Head::decode(sector, &core.array));
    let head = heads.max_by_key(|head| head.generation)?;
    let bytes = core.plot.log_sectors as usize * SECTOR_BYTES;
    let ring = call(device, start + HEADS, What::Read(bytes)).ok()?;
    Some(Found { records: records_of(core, &head, &ring), head })
}

/// The records of a ring, as they lie there.
pub(super) fn records_of(core: &Core, head: &Head, ring: &[u8]) -> Vec<Record> {
    let (mut records, mut at) = (Vec::new(), 0);
    while at < ring.len() {
        match Record::decode(&ring[at..], &core.array, head.epoch) {
            Some((record, sectors)) => {
                records.push(record);
                at += sectors * SECTOR_BYTES;
            }
            None => at += SECTOR_BYTES,
        }
    }
    records
}

/// Records that are not retired and that all participants have that count, in the order of their sequence.
fn complete(core: &Core, rings: BTreeMap<usize, Found>) -> Vec<Record> {
    let roster = core.roster();
    let counts = |role: usize| roster.present().any(|present| present == role);
    let oldest_of = |epoch: u64| {
        let of_epoch = rings.values().filter(|ring| ring.head.epoch == epoch);
        of_epoch.map(|ring| ring.head.oldest).max().unwrap_or(0)
    };
    let oldest: BTreeMap<u64, u64> =
        rings.values().map(|ring| (ring.head.epoch, oldest_of(ring.head.epoch))).collect();
    let mut found: BTreeMap<(u64, u64), (Record, u64)> = BTreeMap::new();
    for (role, ring) in rings {
        for record in ring.records {
            let key = (record.epoch, record.sequence);
            found.entry(key).or_insert((record, 0)).1 |= 1 << role;
        }
    }
    let is_complete = |record: &Record, have: u64| {
        (0..core.shape.members)
            .filter(|role| record.participants >> role & 1 == 1 && counts(*role))
            .all(|role| have >> role & 1 == 1)
    };
    let complete = found
        .into_values()
        .filter(|(record, have)| record.sequence >= oldest[&record.epoch] && is_complete(record, *have));
    complete.map(|(record, _)| record).collect()
}

/// The sectors of each record that no later one has: what is in place is never replaced by something older, for the
/// power may go in between, and the member with the later record.
fn newest(records: Vec<Record>) -> Vec<Vec<Extent>> {
    let mut later: BTreeSet<(usize, u64)> = BTreeSet::new();
    let of_record = |record: Record| {
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
fn in_bounds(core: &Core, mut record: Record) -> Record {
    let roster = core.roster();
    let end = core.plot.data_start + core.shape.member_sector(core.shape.rows);
    record.extents.retain(|extent| {
        let (role, sector, sectors) = (extent.role, extent.sector, extent.content.sectors());
        let counts = roster.present().any(|present| present == role);
        counts && sector >= core.plot.data_start && sector.saturating_add(sectors.into()) <= end
    });
    record
}
