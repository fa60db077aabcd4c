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
    /// Rows of which nobody knows what was under way when the power went.
    doubted: BTreeSet<u64>,
}

/// What a member is good for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Drawn when the member was taken in.
    pub id: Id,
    /// What it is good for.
    pub state: State,
    /// Why it was taken out since the assembly.
    pub reason: Option<String>,
}

/// An array for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The array's id.
    pub array: Id,
    /// Level and size.
    pub shape: Shape,
    /// Sectors that a device needs to be a member.
    pub member_sectors: u64,
    /// Where records go.
    pub log: LogPlace,
    /// Sectors of the device that they go to, if that is none of the members.
    pub log_device_sectors: Option<u64>,
    /// How many superblocks were written.
    pub event: u64,
    /// All members, by role.
    pub members: Vec<MemberStatus>,
    /// Why it takes no writes, if so.
    pub ended: Option<String>,
    /// Rows whose parity was put off.
    pub stale_rows: u64,
    /// Rows of which nobody knew, when it was assembled, what was under way when the power went: the log could not be
    /// read.
    pub doubted_rows: u64,
    /// Records that the assembly wrote in place again.
    pub replayed_records: u64,
    /// Records written since.
    pub log_records: u64,
    /// Sectors of them, on all members.
    pub log_sectors: u64,
    /// How often records were retired, each time with a flush of all members.
    pub log_retirements: u64,
    /// Sectors that could not be read and were written back.
    pub healed_sectors: u64,
    /// Sectors that were computed from other members.
    pub recovered_sectors: u64,
}

impl Status {
    /// Whether members are lost.
    pub fn is_degraded(&self) -> bool {
        self.members.iter().any(|member| member.state != State::Active)
    }
}

impl Array {
    pub(crate) fn new(core: Core, options: &Options, replayed: u64, doubted: BTreeSet<u64>) -> Array {
        Array { core: Arc::new(core), lanes: options.lanes, replayed, doubted }
    }

    /// No cache has, or will have, anything of rows in doubt.
    pub(crate) fn settle_doubts(&self) -> Result<()> {
        self.core.log.settle_doubts(&self.core)
    }

    /// Members that do not have all their data.
    pub fn lost_members(&self) -> usize {
        self.core.roster().lost()
    }

    /// As far as requests are checked; whether it trims is asked of all members.
    pub(crate) fn bounds(&self) -> DeviceInfo {
        DeviceInfo { sectors: self.core.shape.sectors(), read_only: false, trims: false }
    }

    /// As a cache must know it.
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

    /// Calls under way on one member.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes
    }

    /// Who counts, and what happened since the assembly.
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

    /// Takes a member out, as if it had failed.
    ///
    /// # Errors
    /// [`vellum_base::Kind::Invalid`] if the array cannot do without it: nothing is changed then.
    pub fn fail(&self, role: usize) -> Result<()> {
        self.check_can_do_without(role)?;
        if self.core.roster().table[role].state != State::Missing {
            // Who died unnoticed is out before: superblocks that miss both would end the array.
            self.core.write_event()?;
        }
        self.core.change_roster(|roster| {
            self.core.check_spare(roster, role)?;
            roster.lose(role);
            Ok(())
        })
    }

    /// Refuses a member that [`Array::fail`] would refuse.
    pub(crate) fn check_can_do_without(&self, role: usize) -> Result<()> {
        self.core.check_role(role)?;
        self.core.check_spare(&self.core.roster(), role)
    }

    /// Everything durable, the log empty, superblocks clean.
    pub fn close(self) -> Result<()> {
        let bond = self.core.roster().bond;
        self.close_bound(bond)
    }

    /// The same; the cache that has this bond has what the array has.
    pub(crate) fn close_bound(self, bond: u64) -> Result<()> {
        self.core.flush_members()?;
        self.core.log.retire_all(&self.core)?;
        self.core.stale.write_all(&self.core)?;
        self.core.clear_intents()?;
        self.core.write_last_event(bond)
    }

    /// Writes sectors, or zeros if there are no bytes, stretch by stretch.
    fn write_stretches(&self, lba: Lba, sectors: u64, mut bytes: Option<&[u8]>, fua: bool) -> Result<()> {
        let rows = self.core.rows_together(bytes.is_none());
        self.core.shape.stretches(lba, sectors, rows).try_for_each(|(lba, sectors)| {
            let bytes = bytes.as_mut().and_then(|bytes| bytes.split_off(..sectors as usize * SECTOR_BYTES));
            self.core.write_stretch(lba, sectors, bytes, fua)
        })
    }

    /// A piece that its member does not have, or could not be read.
    fn read_piece(&self, piece: &Piece, out: &mut [u8]) -> Result<()> {
        let _lock = self.core.lock_row(piece.row);
        let offsets = piece.offset..piece.offset + piece.sectors;
        out.copy_from_slice(&self.core.read_surely(piece.row, piece.column, offsets)?);
        Ok(())
    }

    /// As its member has it; what a member lacks, or does not tell, is data.
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
