//! Replaces a member's device by another while it serves requests, without any loss of redundancy.
//!
//! 1. While rows are copied the old device counts and is read; writes to rows go to both devices.
//! 2. A row is copied under its lock, so that no write comes between its reading and its writing.
//! 3. The new device takes over at one point in time: all rows are locked, no log record is live, both devices are
//!    flushed, and then superblocks name the new device, its own first. After an earlier crash the old device is the
//!    member, after a later one the new device.
//! 4. A new device that fails affects nothing else; what cannot be read from the old one is computed from the others.
//!    If it fails while superblocks are switched, the old device is put back and gets the event that it missed, or is
//!    lost; the other members get an event no older than the new device's, which none of them knows. No event number is
//!    skipped, as that would leave a member that takes no superblock two behind.

use crate::array::Array;
use crate::assemble::{Device, random_id};
use crate::core::{Core, Member, Roster};
use crate::mark::{Mark, examine_mark};
use crate::owner::check_unused;
use crate::rebuild::Progress;
use crate::superblock::State;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Error, Kind, Lba, Result};

/// How often a row that keeps getting stale is cleaned before its copy fails.
const CLEANED_MAX: usize = 100;

/// The old device, and rows on the new one as well.
struct Twin {
    old: Device,
    new: Device,
    /// Sectors of rows. All others are separate on each device.
    rows: std::ops::Range<u64>,
    /// Why the new device is no longer used, if it failed.
    failed: Mutex<Option<Error>>,
}

impl Array {
    /// Copies a member to another device under load, then drops the old one. `go_on` gets the progress; by returning
    /// false it stops the copy, and nothing has changed. Returns true if the device was replaced.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if the member is not active or the device is too small, [`Kind::Busy`] if it belongs to an
    /// array and `force` is not set, [`Kind::Io`] if the device or the member fails during the copy.
    pub fn replace(
        &self,
        role: usize,
        device: Device,
        force: bool,
        go_on: impl FnMut(Progress) -> bool,
    ) -> Result<bool> {
        let mark = self.prepare(role, &device, force)?;
        self.replace_marked(&mark, device, go_on, |_| Ok(()))
    }

    /// Checks that the member can be replaced, without changing anything.
    ///
    /// # Errors
    /// As for [`Array::replace`], except those about the device.
    pub fn check_replaceable(&self, role: usize) -> Result<()> {
        self.core().check_writable()?;
        self.core().counted(role).map(drop)
    }

    /// Blanks a device and marks it as the future replacement of the member.
    ///
    /// # Errors
    /// As for [`Array::replace`].
    pub fn prepare(&self, role: usize, device: &Device, force: bool) -> Result<Mark> {
        self.check_replaceable(role)?;
        let core = self.core();
        core.check_size(device)?;
        check_unused(device, "the device", force)?;
        let mark = Mark { array: core.array, role, id: random_id(&*core.env) };
        core.blank(device)
            .and_then(|()| device.write(Lba(0), &mark.encode(), true))
            .map_err(|error| error.context(format!("prepare the device for member {role}")))?;
        Ok(mark)
    }

    /// Copies to a device that was prepared and still has its mark. `clean` is called for a stale row with an
    /// unreadable sector: it updates the row's parity, if its caller knows the deltas.
    pub(crate) fn replace_marked(
        &self,
        mark: &Mark,
        device: Device,
        go_on: impl FnMut(Progress) -> bool,
        clean: impl Fn(u64) -> Result<()>,
    ) -> Result<bool> {
        let (core, role) = (self.core(), mark.role);
        if mark.array != core.array || examine_mark(&device)? != *mark {
            return Err(Error::invalid("the device is not marked for a member of this array"));
        }
        core.check_writable()?;
        core.check_size(&device)?;
        let old = core.counted(role)?;
        let end = core.plot.data_start + core.shape.member_sector(core.shape.rows);
        let twin = Arc::new(Twin {
            old: old.device.clone(),
            new: device.clone(),
            rows: core.plot.data_start..end,
            failed: Mutex::default(),
        });
        let pair = Member::new(twin.clone(), &core.env, self.lanes());
        core.exchange(role, &old, &pair)?;
        let done = core.copy_member(role, &pair, &twin, go_on, clean).and_then(|is_copied| {
            let member = || Member::new(device, &core.env, self.lanes());
            if is_copied { core.take_over(role, &pair, &twin, member()).map(|()| true) } else { Ok(false) }
        });
        if !matches!(done, Ok(true)) {
            // If yet another member has taken the place, it keeps it.
            let _ = core.exchange(role, &pair, &old);
        }
        done
    }
}

impl Core {
    /// A member that has all its data.
    fn counted(&self, role: usize) -> Result<Arc<Member>> {
        self.check_role(role)?;
        let roster = self.roster();
        match (&roster.members[role], roster.table[role].state) {
            (Some(member), State::Active) => Ok(member.clone()),
            _ => Err(Error::invalid(format!("member {role} is lost: add the device instead"))),
        }
    }

    /// Switches the device through which a member is reached.
    fn exchange(&self, role: usize, from: &Arc<Member>, to: &Arc<Member>) -> Result<()> {
        self.publish(|roster| match &roster.members[role] {
            Some(member) if Arc::ptr_eq(member, from) => {
                roster.members[role] = Some(to.clone());
                Ok(())
            }
            _ => Err(Error::new(Kind::Io, format!("member {role} went while it was copied"))),
        })
    }

    /// Copies all rows; false if stopped.
    fn copy_member(
        &self,
        role: usize,
        pair: &Arc<Member>,
        twin: &Twin,
        mut go_on: impl FnMut(Progress) -> bool,
        clean: impl Fn(u64) -> Result<()>,
    ) -> Result<bool> {
        for row in 0..self.shape.rows {
            let mut tries = 0;
            loop {
                if !go_on(Progress { rows: row, of: self.shape.rows }) {
                    return Ok(false);
                }
                match self.copy_row(row, role, pair, twin) {
                    Ok(()) => break,
                    // The row may be stale again after cleaning, as requests go on.
                    Err(_)
                        if tries < CLEANED_MAX
                            && self.stale.has(row)
                            && self.check_twin(role, pair, twin).is_ok() =>
                    {
                        clean(row)?;
                    }
                    Err(error) => return Err(error),
                }
                tries += 1;
            }
        }
        Ok(true)
    }

    fn copy_row(&self, row: u64, role: usize, pair: &Arc<Member>, twin: &Twin) -> Result<()> {
        self.check_writable()?;
        let _lock = self.lock_row(row);
        self.check_twin(role, pair, twin)?;
        let column = self.shape.column_of(row, role);
        let bytes = self.read_surely(row, column, 0..self.shape.chunk_sectors)?;
        twin.beside(|new| {
            new.write(Lba(self.plot.data_start + self.shape.member_sector(row)), &bytes, false)
        });
        Ok(())
    }

    /// Fails unless both devices are still in use.
    fn check_twin(&self, role: usize, pair: &Arc<Member>, twin: &Twin) -> Result<()> {
        let roster = self.roster();
        let counts = roster.table[role].state == State::Active;
        if !counts || !roster.members[role].as_ref().is_some_and(|member| Arc::ptr_eq(member, pair)) {
            let why = format!("member {role} went while it was copied: add the device instead");
            return Err(Error::new(Kind::Io, why));
        }
        twin.check()
    }

    /// Switches to the new device.
    fn take_over(&self, role: usize, pair: &Arc<Member>, twin: &Twin, member: Arc<Member>) -> Result<()> {
        let _all = self.lock_all_rows();
        self.log.retire_all(self)?;
        self.flush_members()?;
        self.check_twin(role, pair, twin)?;
        self.swap(role, pair, twin, member)?;
        self.log.refresh_heads(self)?;
        self.stale.write_all(self)
    }

    /// Writes superblocks that name the new device; the old one again if the new one fails.
    fn swap(&self, role: usize, pair: &Arc<Member>, twin: &Twin, member: Arc<Member>) -> Result<()> {
        let old = self.roster().table[role];
        let is_old = |roster: &Roster| roster.table[role].id == old.id;
        let put_back = |roster: &mut Roster| {
            roster.members[role] = Some(pair.clone());
            roster.table[role] = old;
        };
        self.change_roster_or(
            |roster| {
                self.check_writable()?;
                roster.members[role] = Some(member.clone());
                roster.table[role].id = random_id(&*self.env);
                let next = Roster { event: roster.event + 1, ..roster.clone() };
                twin.beside(|new| self.name(&next, role, new));
                if twin.check().is_err() {
                    put_back(roster);
                }
                Ok(())
            },
            |roster, failed| {
                if failed != role || is_old(roster) {
                    return roster.lose(failed);
                }
                twin.failed
                    .lock()
                    .get_or_insert_with(|| Error::new(Kind::Io, "its superblocks cannot be written"));
                put_back(roster);
                // The old device missed this event; missing the next one, too, would leave it two behind.
                if self.name(roster, role, &twin.old).is_err() {
                    roster.lose(role);
                }
            },
        )?;
        if is_old(&self.roster()) {
            // The new device may have the next event, alone.
            self.write_event()?;
            // Its superblocks are outdated. Without them it can be used again unforced.
            let _ = self.blank(&twin.new);
        }
        twin.check()
    }

    /// Writes the superblocks of one device, according to the roster. The new device gets them before the others:
    /// superblocks that name it must not exist without its own.
    fn name(&self, roster: &Roster, role: usize, device: &Device) -> Result<()> {
        let stored = self.superblock(roster, role, false).encode();
        [0, self.plot.member_sectors - 1]
            .into_iter()
            .try_for_each(|sector| device.write(Lba(sector), &stored, true))
    }
}

impl Twin {
    /// Does something with the new device, unless it has failed; an error only marks it as failed.
    fn beside(&self, work: impl FnOnce(&Device) -> Result<()>) {
        if self.failed.lock().is_some() {
            return;
        }
        if let Err(error) = work(&self.new) {
            self.failed.lock().get_or_insert(error);
        }
    }

    /// Fails if the new device has failed.
    fn check(&self) -> Result<()> {
        match &*self.failed.lock() {
            Some(why) => Err(why.repeated().context("the new device failed")),
            None => Ok(()),
        }
    }

    /// The same for changes of sectors; those outside of rows are ignored.
    fn beside_rows(&self, lba: Lba, work: impl FnOnce(&Device) -> Result<()>) {
        if self.rows.contains(&lba.0) {
            self.beside(work);
        }
    }
}

impl BlockDevice for Twin {
    fn info(&self) -> DeviceInfo {
        let old = self.old.info();
        DeviceInfo { trims: old.trims && self.new.info().trims, ..old }
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
