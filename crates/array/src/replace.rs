//! A member's device replaced by another while it still serves: redundancy is never less than before.
//!
//! 1. While rows are copied, the old device counts and is read; what is written to its rows is written to both.
//! 2. A row is copied under its lock, so that no write comes between its reading and its writing.
//! 3. The new device counts from one moment on: all rows are locked, nothing of the log is live, both devices are
//!    flushed, and then superblocks name the new one, its own first. A crash before finds the old member, one after
//!    that the new.
//! 4. A new device that fails costs nothing but itself; what the old one lacks is computed from the others.

use crate::array::Array;
use crate::assemble::{Device, check_unused, random_id};
use crate::core::{Core, Member, Roster};
use crate::rebuild::Progress;
use crate::superblock::State;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Error, Kind, Lba, Result};

/// The old device, and rows of the new one beside it.
struct Twin {
    old: Device,
    new: Device,
    /// Sectors of rows: others are each device's own.
    rows: std::ops::Range<u64>,
    /// Why the new one is left alone, if it is.
    failed: Mutex<Option<(Kind, String)>>,
}

impl Array {
    /// Copies a member to another device under load, then lets go of its own. `go_on` hears of the progress; false
    /// ends it, and nothing has changed then. True if it is done.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if the member does not count or the device is too small, [`Kind::Busy`] if that holds an array
    /// and `force` is not given, [`Kind::Io`] if it fails, or the member does, while it is copied.
    pub fn replace(
        &self,
        role: usize,
        device: Device,
        force: bool,
        go_on: impl FnMut(Progress) -> bool,
    ) -> Result<bool> {
        let core = self.core();
        core.check_role(role)?;
        core.check_writable()?;
        core.check_size(&device)?;
        check_unused(&device, role, force)?;
        core.blank(&device)
            .map_err(|error| error.context(format!("prepare the device for member {role}")))?;
        let roster = core.roster();
        let old = match (&roster.members[role], roster.table[role].state) {
            (Some(member), State::Active) => member.clone(),
            _ => return Err(Error::invalid(format!("member {role} is lost: add the device instead"))),
        };
        let end = core.plot.data_start + core.shape.member_sector(core.shape.rows);
        let twin = Arc::new(Twin {
            old: old.device.clone(),
            new: device.clone(),
            rows: core.plot.data_start..end,
            failed: Mutex::default(),
        });
        let pair = Member::new(twin.clone(), &core.env, self.lanes());
        core.exchange(role, &old, &pair)?;
        let done = core.copy_member(role, &pair, &twin, go_on).and_then(|is_copied| {
            let member = || Member::new(device, &core.env, self.lanes());
            if is_copied { core.take_over(role, &pair, &twin, member()).map(|()| true) } else { Ok(false) }
        });
        if !matches!(done, Ok(true)) {
            // Whoever has come in its place since keeps it.
            let _ = core.exchange(role, &pair, &old);
        }
        done
    }
}

impl Core {
    /// Another way to the same member.
    fn exchange(&self, role: usize, from: &Arc<Member>, to: &Arc<Member>) -> Result<()> {
        self.publish(|roster| match &roster.members[role] {
            Some(member) if Arc::ptr_eq(member, from) => {
                roster.members[role] = Some(to.clone());
                Ok(())
            }
            _ => Err(Error::new(Kind::Io, format!("member {role} went while it was copied"))),
        })
    }

    /// Copies all rows; false if it was ended.
    fn copy_member(
        &self,
        role: usize,
        pair: &Arc<Member>,
        twin: &Twin,
        mut go_on: impl FnMut(Progress) -> bool,
    ) -> Result<bool> {
        for row in 0..self.shape.rows {
            if !go_on(Progress { rows: row, of: self.shape.rows }) {
                return Ok(false);
            }
            self.check_writable()?;
            let _lock = self.lock_row(row);
            self.check_twin(role, pair, twin)?;
            let column = self.shape.column_of(row, role);
            let bytes = self.read_surely(row, column, 0..self.shape.chunk_sectors)?;
            twin.beside(|new| {
                new.write(Lba(self.plot.data_start + self.shape.member_sector(row)), &bytes, false)
            });
        }
        Ok(true)
    }

    /// Both devices are what they are to be.
    fn check_twin(&self, role: usize, pair: &Arc<Member>, twin: &Twin) -> Result<()> {
        let roster = self.roster();
        let counts = roster.table[role].state == State::Active;
        if !counts || !roster.members[role].as_ref().is_some_and(|member| Arc::ptr_eq(member, pair)) {
            let why = format!("member {role} went while it was copied: add the device instead");
            return Err(Error::new(Kind::Io, why));
        }
        match &*twin.failed.lock() {
            Some((kind, why)) => Err(Error::new(*kind, format!("the new device failed: {why}"))),
            None => Ok(()),
        }
    }

    /// The new device counts.
    fn take_over(&self, role: usize, pair: &Arc<Member>, twin: &Twin, member: Arc<Member>) -> Result<()> {
        let _all = self.lock_all_rows();
        self.log.retire_all(self)?;
        self.flush_members()?;
        self.check_twin(role, pair, twin)?;
        self.change_roster(|roster| {
            roster.members[role] = Some(member.clone());
            roster.table[role].id = random_id(&*self.env);
            self.name_first(roster, role, &member)
        })?;
        self.log.refresh_heads(self)?;
        self.stale.write_all(self)
    }
}

impl Core {
    /// The new device's superblocks come before the others': one that names it must not be there without it.
    fn name_first(&self, roster: &Roster, role: usize, member: &Member) -> Result<()> {
        let next = Roster { event: roster.event + 1, ..roster.clone() };
        let stored = self.superblock(&next, role, false).encode();
        [0, self.plot.member_sectors - 1]
            .into_iter()
            .try_for_each(|sector| member.device.write(Lba(sector), &stored, true))
    }
}

impl Twin {
    /// Does something with the new device, unless it has failed; its failure is its own.
    fn beside(&self, work: impl FnOnce(&Device) -> Result<()>) {
        if self.failed.lock().is_some() {
            return;
        }
        if let Err(error) = work(&self.new) {
            self.failed.lock().get_or_insert((error.kind(), error.to_string()));
        }
    }

    /// The same for what changes sectors of rows.
    fn beside_rows(&self, lba: Lba, work: impl FnOnce(&Device) -> Result<()>) {
        if self.rows.contains(&lba.0) {
            self.beside(work);
        }
    }
}

impl BlockDevice for Twin {
    fn info(&self) -> DeviceInfo {
        self.old.info()
    }
    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        self.old.read(lba, buf)
    }
    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        self.beside_rows(lba, |new| new.write(lba, data, fua));
        self.old.write(lba, data, fua)
    }
    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.beside_rows(lba, |new| new.trim(lba, sectors));
        self.old.trim(lba, sectors)
    }
    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.beside_rows(lba, |new| new.write_zeroes(lba, sectors, fua));
        self.old.write_zeroes(lba, sectors, fua)
    }
    fn flush(&self) -> Result<()> {
        self.beside(|new| new.flush());
        self.old.flush()
    }
    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.old.allocation(lba, sectors)
    }
}
