//! Replay after a crash: complete records are written in place again.

use super::HEADS;
use super::record::{Content, Extent, Head, Record};
use crate::access::{Access, What, bytes_of, call, readable};
use crate::assemble::Device;
use crate::core::Core;
use crate::layout::Shape;
use crate::superblock::{Id, LogPlace, State, Superblock};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use vellum_base::{BlockDevice, Result, SECTOR_BYTES};

/// After this many unreadable sectors the rest of a ring is not read.
const UNREAD_MAX: usize = 16;

/// The log as it was found. Every head is written to all counting members before anything depends on it, so the newest
/// readable one is valid for all rings.
#[derive(Default)]
pub(crate) struct Found {
    /// `None` if no record was ever written, or if no head is readable; then all rings are `unread`.
    pub head: Option<Head>,
    /// Records of rings that were read entirely, by role; a log device counts as role 0. None is taken from other
    /// rings: an unreadable record may be newer than a readable one of the same sectors.
    pub records: BTreeMap<usize, Vec<Record<'static>>>,
    /// Roles whose ring cannot be read entirely, with the unreadable sectors. There may have been records in these.
    pub unread: BTreeMap<usize, Vec<u64>>,
}

impl Found {
    /// A bit for each role whose ring may have held unreadable records. In an array that was closed that is none,
    /// except those found by an earlier opening of which a cache has not learned yet.
    pub fn doubted_roles(&self, was_closed: bool) -> u64 {
        let unread = self.unread.keys().fold(0, |roles, role| roles | 1 << role);
        let known = self.head.map_or(0, |head| head.unread);
        if was_closed { unread & known } else { unread }
    }

    /// Rows whose last writes are unknown: the rings of all members with their parity are in doubt, and a single ring
    /// that is not would have all records of the row. They count as stale, whatever a cache knows of them.
    pub fn rows_in_doubt(&self, was_closed: bool, shape: &Shape, members: &[State]) -> BTreeSet<u64> {
        let doubted = self.doubted_roles(was_closed);
        let is_in_doubt = |row: &u64| {
            let mut parity =
                shape.parity_members(*row).filter(|role| members[*role].has_row(*row)).peekable();
            parity.peek().is_some() && parity.all(|role| doubted >> role & 1 == 1)
        };
        (0..if doubted == 0 { 0 } else { shape.rows }).filter(is_in_doubt).collect()
    }
}

/// Writes the content of complete records in place, newest records first, and only the newest version of each sector.
/// Then flushes the members. Returns the number of records.
pub(crate) fn replay(core: &Core, found: &Found) -> Result<u64> {
    let Some(head) = found.head else { return Ok(0) };
    let records = complete(core, &head, found);
    let count = records.len() as u64;
    for extents in newest(records.into_iter().map(|record| in_bounds(core, record)).collect()) {
        write_in_place(core, extents)?;
    }
    core.flush_members()?;
    Ok(count)
}

/// Reads the log from the members that count.
pub(crate) fn read_rings<'a>(
    newest: &Superblock,
    members: impl Iterator<Item = (usize, &'a Device)>,
) -> Result<Found> {
    let mut found = Found::default();
    if newest.log != LogPlace::Members {
        return Ok(found);
    }
    let stored = members.map(|(role, device)| Ok((role, Stored::read(newest, &**device)?)));
    let stored: BTreeMap<usize, Stored> = stored.collect::<Result<_>>()?;
    let heads = stored.values().flat_map(|stored| stored.heads(&newest.array));
    found.head = heads.max_by_key(|head| head.generation);
    // Before the first head there are no records, and a newly added member has blank heads.
    let is_lost = found.head.is_none() && !stored.values().all(Stored::is_blank);
    let disbelieved = found.head.map_or(0, |head| head.unread);
    for (role, stored) in stored {
        match (stored.ring, found.head) {
            (Ok(_), Some(_)) if disbelieved >> role & 1 == 1 => drop(found.unread.insert(role, Vec::new())),
            (Ok(ring), Some(head)) => {
                drop(found.records.insert(role, records_of(&newest.array, &head, &ring)));
            }
            (Ok(_), None) if !is_lost => {}
            (Ok(_), None) => drop(found.unread.insert(role, Vec::new())),
            (Err(unread), _) => drop(found.unread.insert(role, unread)),
        }
    }
    Ok(found)
}

/// Heads and ring of a member, as read.
struct Stored {
    /// `None` for one that cannot be read.
    heads: Vec<Option<Vec<u8>>>,
    /// Or the sectors that cannot be read.
    ring: std::result::Result<Vec<u8>, Vec<u64>>,
}

impl Stored {
    fn read(newest: &Superblock, device: &dyn BlockDevice) -> Result<Stored> {
        let start = newest.plot.log_heads(&newest.shape);
        let read = |sector| readable(call(device, sector, What::Read(SECTOR_BYTES)));
        let heads = (start..start + HEADS).map(read).collect::<Result<_>>()?;
        let (first, sectors) = (start + HEADS, newest.plot.log_sectors);
        let ring = match readable(call(device, first, What::Read(bytes_of(sectors))))? {
            Some(ring) => Ok(ring),
            None => read_one_by_one(device, first..first + u64::from(sectors))?,
        };
        Ok(Stored { heads, ring })
    }

    fn heads(&self, array: &Id) -> impl Iterator<Item = Head> {
        self.heads.iter().flatten().filter_map(|sector| Head::decode(sector, array))
    }

    fn is_blank(&self) -> bool {
        let is_blank = |sector: &Vec<u8>| sector.iter().all(|byte| *byte == 0);
        self.heads.iter().all(|head| head.as_ref().is_some_and(is_blank))
    }
}

/// Reads a ring that cannot be read in one call; returns the unreadable sectors if there are any. Gives up early on a
/// device that fails every read.
fn read_one_by_one(
    device: &dyn BlockDevice,
    sectors: Range<u64>,
) -> Result<std::result::Result<Vec<u8>, Vec<u64>>> {
    let (mut ring, mut unread) = (Vec::new(), Vec::new());
    for sector in sectors {
        match readable(call(device, sector, What::Read(SECTOR_BYTES)))? {
            Some(stored) => ring.extend(stored),
            None => unread.push(sector),
        }
        if unread.len() == UNREAD_MAX {
            break;
        }
    }
    Ok(if unread.is_empty() { Ok(ring) } else { Err(unread) })
}

/// Writes ring sectors that could not be read, so that drives remap them. Call it only when earlier records are no
/// longer valid.
pub(crate) fn rewrite(core: &Core, unread: BTreeMap<usize, Vec<u64>>) -> Result<()> {
    let roster = core.roster();
    let counts: BTreeSet<usize> = roster.present().collect();
    let zeros = unread.into_iter().filter(|(role, _)| counts.contains(role));
    let zeros = zeros.flat_map(|(role, sectors)| {
        sectors.into_iter().map(move |sector| Access { role, sector, what: What::Zero(1, true) })
    });
    core.change_all(&roster, zeros.collect())
}

/// The records of a ring, in the order of their position.
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

/// Records that are not retired and that all participants have, in sequence order. Participants that do not have the
/// row any more, or not yet, are exempt, and so are those whose ring is unreadable.
fn complete(core: &Core, head: &Head, found: &Found) -> Vec<Record<'static>> {
    let roster = core.roster();
    let mut copies: BTreeMap<u64, (&Record<'static>, u64)> = BTreeMap::new();
    for (role, records) in &found.records {
        for record in records.iter().filter(|record| record.sequence >= head.oldest) {
            copies.entry(record.sequence).or_insert((record, 0)).1 |= 1 << role;
        }
    }
    let is_complete = |record: &Record<'_>, have: u64| {
        let Some(row) = row_of(core, record) else { return false };
        (0..core.shape.members)
            .filter(|role| record.participants >> role & 1 == 1 && roster.with_row(*role, row).is_some())
            .all(|role| have >> role & 1 == 1 || found.unread.contains_key(&role))
    };
    let complete = copies.into_values().filter(|(record, have)| is_complete(record, *have));
    complete.map(|(record, _)| record.clone()).collect()
}

/// The row of a record; `None` if it has none.
fn row_of(core: &Core, record: &Record<'_>) -> Option<u64> {
    let sector = record.extents.first()?.sector.checked_sub(core.plot.data_start)?;
    Some(sector / u64::from(core.shape.chunk_sectors))
}

/// Reduces each record to those sectors that no later record has, newest record first. Content in place must never be
/// replaced by an older version: the power may be lost in between, and the member with the later record with it.
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

/// The parts of an extent whose sectors are not in `but`.
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

/// Writes extents to the members that count. A member that takes no write is taken out, or named in the error if it
/// cannot be spared: other members may have the rest of the record.
fn write_in_place(core: &Core, extents: Vec<Extent>) -> Result<()> {
    let roster = core.roster();
    let places: Vec<(usize, Range<u64>)> = extents.iter().map(Extent::place).collect();
    let writes = extents.into_iter().map(|extent| extent.write(false)).collect();
    let results = places.into_iter().zip(core.perform(&roster, writes)?);
    for ((role, sectors), result) in results {
        if let Err(error) = result {
            core.fail_or_refuse(&roster, role, sectors, &error)?;
        }
    }
    Ok(())
}

/// Removes extents outside the data area of a counting member.
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
