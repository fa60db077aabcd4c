//! The array as a block device.

use crate::access::bytes_of;
use crate::assemble::Options;
use crate::below::Below;
use crate::core::{Core, Roster};
use crate::layout::{Piece, Shape};
use crate::superblock::{Id, LogPlace, State};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Lba, Result, SECTOR_BYTES};

/// RAID-5 or RAID-6 over block devices. Made by [`crate::create`], found by [`crate::assemble`].
pub struct Array {
    core: Arc<Core>,
    lanes: usize,
    replayed: u64,
    /// Rows for which it is not known which writes were in flight when the power was lost.
    doubted: BTreeSet<u64>,
}

/// State of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Random, chosen when the member was added.
    pub id: Id,
    /// Which of its data are valid.
    pub state: State,
    /// Why it was taken out of the array since assembly, if it was.
    pub reason: Option<String>,
}

/// State and counters of an array, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The array's id.
    pub array: Id,
    /// Level and size.
    pub shape: Shape,
    /// Sectors that a device needs to be a member.
    pub member_sectors: u64,
    /// Where the records of the log go.
    pub log: LogPlace,
    /// Sectors of the log device, if the log is not on the members.
    pub log_device_sectors: Option<u64>,
    /// The event number of the newest superblocks: how often they were written.
    pub event: u64,
    /// All members, by role.
    pub members: Vec<MemberStatus>,
    /// Why the array takes no more writes, if it has ended.
    pub ended: Option<String>,
    /// Rows whose parity update was deferred.
    pub stale_rows: u64,
    /// Rows for which, at assembly, it was not known which writes were in flight when the power was lost, as the log
    /// could not be read.
    pub doubted_rows: u64,
    /// Records of the log that the assembly replayed.
    pub replayed_records: u64,
    /// Records written since assembly.
    pub log_records: u64,
    /// Sectors of those records, summed over all members.
    pub log_sectors: u64,
    /// How often records were retired, which takes a flush of all members each time.
    pub log_retirements: u64,
    /// Sectors that could not be read and were recovered and written back.
    pub healed_sectors: u64,
    /// Sectors that were computed from the other members.
    pub recovered_sectors: u64,
}

impl Status {
    /// True if members are lost.
    pub fn is_degraded(&self) -> bool {
        self.members.iter().any(|member| member.state != State::Active)
    }
}

impl Array {
    pub(crate) fn new(core: Core, options: &Options, replayed: u64, doubted: BTreeSet<u64>) -> Array {
        Array { core: Arc::new(core), lanes: options.lanes, replayed, doubted }
    }

    /// Ends the doubt about rows: no cache holds, or will hold, anything of them.
    pub(crate) fn settle_doubts(&self) -> Result<()> {
        self.core.log.settle_doubts(&self.core)
    }

    /// How many members do not have all their data.
    pub fn lost_members(&self) -> usize {
        self.core.roster().lost()
    }

    /// What requests are checked against. `trims` is not filled in, as it takes asking all members.
    pub(crate) fn bounds(&self) -> DeviceInfo {
        DeviceInfo { sectors: self.core.shape.sectors(), read_only: false, trims: false }
    }

    /// The array as a cache must know it.
    pub(crate) fn below(&self) -> Below<'_> {
        let (core, roster) = (&self.core, self.core.roster());
        Below {
            array: core.array,
            shape: core.shape,
            log: core.log_place,
            bond: roster.bond,
            members: roster.states(),
            stale: &core.stale,
            doubted: &self.doubted,
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Concurrent calls per member.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes
    }

    /// The members' states, and what happened since assembly.
    pub fn status(&self) -> Status {
        let (core, roster) = (&self.core, self.core.roster());
        let members = roster.table.iter().map(|entry| MemberStatus {
            id: entry.id,
            state: entry.state,
            reason: core.reason(&entry.id),
        });
        Status {
            array: core.array,
            shape: core.shape,
            member_sectors: core.plot.member_sectors,
            log: core.log_place,
            log_device_sectors: core.log.device_sectors(),
            event: roster.event,
            members: members.collect(),
            ended: core.ended(),
            stale_rows: core.stale.count(),
            doubted_rows: self.doubted.len() as u64,
            replayed_records: self.replayed,
            log_records: core.counters.log_records.load(Relaxed),
            log_sectors: core.counters.log_sectors.load(Relaxed),
            log_retirements: core.counters.log_retirements.load(Relaxed),
            healed_sectors: core.counters.healed_sectors.load(Relaxed),
            recovered_sectors: core.counters.recovered_sectors.load(Relaxed),
        }
    }

    /// Takes a member out of the array, as if it had failed.
    ///
    /// # Errors
    /// [`vellum_base::Kind::Invalid`] if the array cannot do without the member; nothing is changed then.
    pub fn fail(&self, role: usize) -> Result<()> {
        self.check_can_do_without(role)?;
        if self.core.roster().table[role].state != State::Missing {
            // Finds members that failed unnoticed first: superblocks that lose both at once would end the array.
            self.core.write_event()?;
        }
        self.core.change_roster(|roster| {
            self.core.check_spare(roster, role)?;
            roster.lose(role);
            Ok(())
        })
    }

    /// Fails for a member for which [`Array::fail`] would.
    pub(crate) fn check_can_do_without(&self, role: usize) -> Result<()> {
        self.core.check_role(role)?;
        self.core.check_spare(&self.core.roster(), role)
    }

    /// Makes everything durable, empties the log and marks the superblocks clean.
    pub fn close(self) -> Result<()> {
        let bond = self.core.roster().bond;
        self.close_bound(bond)
    }

    /// The same, and records that the cache with this `bond` is in step with the array; 0: none is.
    pub(crate) fn close_bound(self, bond: u64) -> Result<()> {
        self.core.flush_members()?;
        self.core.log.retire_all(&self.core)?;
        self.core.stale.write_all(&self.core)?;
        self.core.clear_intents()?;
        self.core.write_last_event(bond)
    }

    /// Writes sectors, stretch by stretch; zeros if there are no bytes.
    fn write_stretches(&self, lba: Lba, sectors: u64, mut bytes: Option<&[u8]>, fua: bool) -> Result<()> {
        let rows = self.core.rows_together(bytes.is_none());
        self.core.shape.stretches(lba, sectors, rows).try_for_each(|(lba, sectors)| {
            let bytes = bytes.as_mut().and_then(|bytes| bytes.split_off(..sectors as usize * SECTOR_BYTES));
            self.core.write_stretch(lba, sectors, bytes, fua)
        })
    }

    /// Reads a piece that its member lacks or failed to read.
    fn read_piece(&self, piece: &Piece, out: &mut [u8]) -> Result<()> {
        let _lock = self.core.lock_row(piece.row);
        let offsets = piece.offset..piece.offset + piece.sectors;
        out.copy_from_slice(&self.core.read_surely(piece.row, piece.column, offsets)?);
        Ok(())
    }

    /// Allocation as the member reports it; data if the member lacks the row or does not report it.
    fn piece_allocation(&self, roster: &Roster, piece: &Piece) -> (Allocation, u64) {
        let (role, sector) = self.core.place(piece.row, piece.column, piece.offset);
        let sectors = u64::from(piece.sectors);
        let member = roster.with_row(role, piece.row);
        let asked = member.and_then(|member| member.device.allocation(Lba(sector), sectors).ok());
        asked.unwrap_or((Allocation::Data, sectors))
    }
}

impl BlockDevice for Array {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { trims: self.core.roster().trims(), ..self.bounds() }
    }

    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        let sectors = self.bounds().check_buffer(lba, buf.len())?;
        let core = &self.core;
        let roster = core.roster();
        let pieces: Vec<Piece> = core.shape.pieces(lba, sectors).collect();
        let has = |piece: &Piece| {
            roster.with_row(core.shape.member_of(piece.row, piece.column), piece.row).is_some()
        };
        let accesses = pieces
            .iter()
            .filter(|piece| has(piece))
            .map(|piece| core.read_of(piece.row, piece.column, piece.offset..piece.offset + piece.sectors));
        let mut results = core.perform(&roster, accesses.collect())?.into_iter();
        let mut rest = buf;
        for piece in &pieces {
            let (out, behind) = rest.split_at_mut(bytes_of(piece.sectors));
            rest = behind;
            match if has(piece) { results.next() } else { None } {
                Some(Ok(bytes)) => out.copy_from_slice(&bytes),
                Some(Err(_)) | None => self.read_piece(piece, out)?,
            }
        }
        Ok(())
    }

    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        let sectors = self.bounds().check_buffer(lba, data.len())?;
        self.write_stretches(lba, sectors, Some(data), fua)
    }

    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.write_zeroes(lba, sectors, false)
    }

    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.bounds().check_range(lba, sectors)?;
        self.write_stretches(lba, sectors, None, fua)
    }

    fn flush(&self) -> Result<()> {
        self.core.flush()
    }

    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.bounds().check_range(lba, sectors)?;
        let roster = self.core.roster();
        let mut pieces = self.core.shape.pieces(lba, sectors);
        let Some(first) = pieces.next() else { return Ok((Allocation::Data, 1)) };
        let (kind, mut alike) = self.piece_allocation(&roster, &first);
        let mut is_whole = alike == u64::from(first.sectors);
        while is_whole && let Some(piece) = pieces.next() {
            let (next, count) = self.piece_allocation(&roster, &piece);
            if next != kind {
                break;
            }
            alike += count;
            is_whole = count == u64::from(piece.sectors);
        }
        Ok((kind, alike))
    }
}
