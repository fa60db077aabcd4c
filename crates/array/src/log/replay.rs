//! After a crash: what complete records say is written in place again.

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

/// After so many sectors that cannot be read the rest of a ring is not looked at.
const UNREAD_MAX: usize = 16;

/// The log as it was found: every head is written to all who have one before anything depends on it, so the newest
/// that can be read says of all rings which records count.
#[derive(Default)]
pub(crate) struct Found {
    /// None: there was no record yet, or no head can be read, and all rings are `unread`.
    pub head: Option<Head>,
    /// Records of rings that were read whole, by role; a log device counts as role 0. From the others none is taken:
    /// a newer one of the same sectors may be what cannot be read.
    pub records: BTreeMap<usize, Vec<Record<'static>>>,
    /// Whose ring cannot be read whole, and sectors that cannot. There may have been records.
    pub unread: BTreeMap<usize, Vec<u64>>,
}

impl Found {
    /// A bit for each role in whose ring there may have been records that cannot be read: not in an array that was
    /// closed, unless an opening before has found so and a cache has not heard of it.
    pub fn doubted_roles(&self, was_closed: bool) -> u64 {
        let unread = self.unread.keys().fold(0, |roles, role| roles | 1 << role);
        let known = self.head.map_or(0, |head| head.unread);
        if was_closed { unread & known } else { unread }
    }

    /// Rows of which nobody knows what was written to them: the rings of all members that have their parity are in
    /// doubt. One that is not has all records of the row. They count as stale, whatever a cache knows of them.
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

/// Writes what complete records say, the newest first, and of each sector the newest only. Flushes the members. How
/// many there were.
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

/// The log on the members that count.
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
    // Before the first head there is no record, and a member that has just come has neither.
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

/// Heads and ring of a member.
struct Stored {
    /// None: it cannot be read.
    heads: Vec<Option<Vec<u8>>>,
    /// Or which sectors of it cannot be read.
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

/// A ring that cannot be read at once; else the sectors that cannot. A device that answers nothing is not asked for
/// every one.
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

/// Writes sectors of rings that could not be read: drives put them elsewhere. Only when no record of before counts any
/// more.
pub(crate) fn rewrite(core: &Core, unread: BTreeMap<usize, Vec<u64>>) -> Result<()> {
    let roster = core.roster();
    let counts: BTreeSet<usize> = roster.present().collect();
    let zeros = unread.into_iter().filter(|(role, _)| counts.contains(role));
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

/// Writes extents to the members that count. One that takes no write is refused by name, if it cannot be spared: what
/// others have of the record may count on it.
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
