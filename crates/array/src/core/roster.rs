//! The roster: which members count, how that changes, and how superblocks record it.
//!
//! 1. A roster is replaced, never modified; an operation uses the one that it began with.
//! 2. A new roster is in the superblocks of all counting members before it is published. So nothing is acknowledged
//!    that depends on the absence of a member without a later assembly knowing of that absence.

use super::{Access, Core, What};
use crate::lane::Lanes;
use crate::superblock::{Entry, Id, State, Superblock};
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::{BlockDevice, Env, Error, Kind, Result};

/// A device and the lanes that make its calls.
pub(crate) struct Member {
    pub device: Arc<dyn BlockDevice>,
    pub lanes: Lanes,
}

impl Member {
    pub fn new(device: Arc<dyn BlockDevice>, env: &Arc<dyn Env>, lanes: usize) -> Arc<Member> {
        Arc::new(Member { device, lanes: Lanes::start(env, "array-member", lanes) })
    }
}

/// Which members count, as of an event.
#[derive(Clone)]
pub(crate) struct Roster {
    pub event: u64,
    pub table: Vec<Entry>,
    pub members: Vec<Option<Arc<Member>>>,
    /// The epoch of the array's log device, if there is one.
    pub log_epoch: u64,
    /// The cache that is in step with the array; 0: none.
    pub bond: u64,
}

impl Roster {
    /// The member, if it has valid data for the row.
    pub fn with_row(&self, role: usize, row: u64) -> Option<&Arc<Member>> {
        self.members[role].as_ref().filter(|_| self.table[role].state.has_row(row))
    }

    /// States of all members; absent ones are `Missing`.
    pub fn states(&self) -> Vec<State> {
        let states = self.table.iter().zip(&self.members);
        states.map(|(entry, member)| member.as_ref().map_or(State::Missing, |_| entry.state)).collect()
    }

    /// Members that superblocks, bitmaps and log heads are written to.
    pub fn present(&self) -> impl Iterator<Item = usize> {
        (0..self.table.len())
            .filter(|role| self.table[*role].state != State::Missing && self.members[*role].is_some())
    }

    /// True if all present members trim. Then parity of zeroed rows is not computed, and their record is only a header.
    pub fn trims(&self) -> bool {
        self.present().filter_map(|role| self.members[role].as_ref()).all(|member| member.device.info().trims)
    }

    /// Marks the member as missing.
    pub fn lose(&mut self, role: usize) {
        self.table[role].state = State::Missing;
    }

    /// How many members do not have all their data.
    pub fn lost(&self) -> usize {
        self.table.iter().filter(|entry| entry.state != State::Active).count()
    }
}

/// Members whose call failed, and why.
type Failed = BTreeMap<usize, String>;

fn failed(roles: &[usize], results: Vec<Result<Vec<u8>>>) -> impl Iterator<Item = (usize, String)> {
    roles.iter().zip(results).filter_map(|(role, result)| Some((*role, result.err()?.to_string())))
}

impl Core {
    /// The current roster.
    pub fn roster(&self) -> Arc<Roster> {
        self.roster.lock().clone()
    }

    /// Records which cache is in step with the array; 0: none.
    pub fn bind(&self, bond: u64) -> Result<()> {
        self.change_roster(|roster| {
            roster.bond = bond;
            Ok(())
        })
    }

    /// Takes out a member as it was in `seen`, durably, unless another has taken its place. Fails if that is one more
    /// than parity covers. Members are compared by id, not by device: during a replacement a member is reached in two
    /// ways, and a call may return after the switch.
    pub fn fail(&self, seen: &Roster, role: usize, why: &str) -> Result<()> {
        self.change_roster(|roster| {
            self.take_out(roster, seen, role, why);
            Ok(())
        })?;
        // Once the array has ended, no superblock records the loss: writes that the member missed must not be
        // acknowledged.
        self.check_writable()
    }

    /// The same, unless the array cannot do without the member; returns whether it is out. An event first takes out
    /// members that accept no superblock: discovering both at once would end the array.
    pub fn fail_if_spare(&self, seen: &Roster, role: usize, why: &str) -> Result<bool> {
        let now = self.roster();
        self.check_writable()?;
        if now.table[role].id != seen.table[role].id || now.table[role].state == State::Missing {
            return Ok(true);
        }
        if self.check_spare(&now, role).is_err() {
            return Ok(false);
        }
        self.write_event()?;
        let mut is_spare = false;
        self.change_roster(|roster| {
            is_spare = self.check_spare(roster, role).is_ok();
            if is_spare {
                self.take_out(roster, seen, role, why);
            }
            Ok(())
        })?;
        Ok(is_spare)
    }

    fn take_out(&self, roster: &mut Roster, seen: &Roster, role: usize, why: &str) {
        let is_same = seen.table[role].id == roster.table[role].id && roster.members[role].is_some();
        if is_same && roster.table[role].state != State::Missing {
            roster.lose(role);
            self.reasons.lock().insert(roster.table[role].id, why.to_string());
        }
    }

    /// Fails if the array cannot do without the member.
    pub fn check_spare(&self, roster: &Roster, role: usize) -> Result<()> {
        let counts = roster.table[role].state == State::Active;
        match counts && roster.lost() >= self.shape.level.parities() {
            true => Err(Error::invalid(format!(
                "the array cannot do without member {role}: rebuild what is lost first"
            ))),
            false => Ok(()),
        }
    }

    /// Why a member was taken out since assembly. Former members of the same role have other ids.
    pub fn reason(&self, member: &Id) -> Option<String> {
        self.reasons.lock().get(member).cloned()
    }

    /// Changes the roster: writes the new table to all counting members, then publishes it. Members that fail in that
    /// are taken out as well. Nothing is written if nothing changes.
    pub fn change_roster(&self, change: impl FnOnce(&mut Roster) -> Result<()>) -> Result<()> {
        self.change_roster_or(change, Roster::lose)
    }

    /// The same, with `take_out` to decide what becomes of a member that fails.
    pub fn change_roster_or(
        &self,
        change: impl FnOnce(&mut Roster) -> Result<()>,
        take_out: impl FnMut(&mut Roster, usize),
    ) -> Result<()> {
        let _one_at_a_time = self.change.lock();
        let before = self.roster();
        let mut next = (*before).clone();
        change(&mut next)?;
        let of = |roster: &Roster| (roster.event, roster.log_epoch, roster.bond);
        if (of(&next), &next.table) == (of(&before), &before.table)
            && next.members.iter().map(Option::is_some).eq(before.members.iter().map(Option::is_some))
        {
            return Ok(());
        }
        self.write_superblocks(&mut next, false, take_out)?;
        *self.roster.lock() = Arc::new(next);
        self.bell.ring();
        Ok(())
    }

    /// Changes the roster in memory only, where superblocks need not record it.
    pub fn publish(&self, change: impl FnOnce(&mut Roster) -> Result<()>) -> Result<()> {
        let _one_at_a_time = self.change.lock();
        let mut next = (*self.roster()).clone();
        change(&mut next)?;
        *self.roster.lock() = Arc::new(next);
        Ok(())
    }

    /// Counts one more rebuilt row of a member. The superblocks record it with the next event.
    pub fn count_row(&self, role: usize, row: u64) {
        let _one_at_a_time = self.change.lock();
        let mut next = (*self.roster()).clone();
        if next.table[role].state == (State::Rebuilding { rows: row }) {
            next.table[role].state = State::Rebuilding { rows: row + 1 };
            *self.roster.lock() = Arc::new(next);
        }
    }

    /// Writes the next event to all present members.
    pub fn write_event(&self) -> Result<()> {
        self.write_next(false, None)
    }

    /// Writes the newest event to all members again, exactly as it was found, since absent members may have it. Members
    /// that cannot be written are missing from the next event on. Fails if the array cannot do without them: with a
    /// next event, a needed member would be two behind.
    pub fn repeat_event(&self, table: Vec<Entry>, clean: bool) -> Result<()> {
        let _one_at_a_time = self.change.lock();
        let mut next = (*self.roster()).clone();
        let failed = self.failing(&Roster { table, ..next.clone() }, clean)?;
        failed.keys().for_each(|role| next.lose(*role));
        match next.lost() > self.shape.level.parities() {
            true => Err(Error::new(Kind::Io, self.too_many_lost(&next, &failed))),
            false => Ok(()),
        }
    }

    /// Writes the event that closes the array.
    pub fn write_last_event(&self, bond: u64) -> Result<()> {
        self.write_next(true, Some(bond))
    }

    fn write_next(&self, clean: bool, bond: Option<u64>) -> Result<()> {
        let _one_at_a_time = self.change.lock();
        let mut next = (*self.roster()).clone();
        next.bond = bond.unwrap_or(next.bond);
        self.write_superblocks(&mut next, clean, Roster::lose)?;
        *self.roster.lock() = Arc::new(next);
        self.bell.ring();
        Ok(())
    }

    fn write_superblocks(
        &self,
        next: &mut Roster,
        clean: bool,
        mut take_out: impl FnMut(&mut Roster, usize),
    ) -> Result<()> {
        self.check_writable()?;
        let mut failed = Failed::new();
        loop {
            if next.lost() > self.shape.level.parities() {
                let error = self.end(Kind::Io, &self.too_many_lost(next, &failed));
                *self.roster.lock() = Arc::new(next.clone());
                return Err(error);
            }
            failed = self.flush_rebuilt(next)?;
            if failed.is_empty() {
                next.event += 1; // No sooner: one that nobody was written leaves all of them behind.
                failed = self.failing(next, clean)?;
            }
            if failed.is_empty() {
                return Ok(());
            }
            for (role, why) in &failed {
                take_out(next, *role);
                if next.table[*role].state == State::Missing {
                    self.reasons.lock().insert(next.table[*role].id, why.clone());
                }
            }
        }
    }

    /// The error text, including members that failed just now.
    fn too_many_lost(&self, roster: &Roster, failed: &Failed) -> String {
        let is_lost = |role: &usize| roster.table[*role].state != State::Active;
        let lost = (0..self.shape.members).filter(is_lost).map(|role| match failed.get(&role) {
            Some(why) => format!("{role} (takes no write: {why})"),
            None => {
                let why = self.reason(&roster.table[role].id);
                why.map_or(role.to_string(), |why| format!("{role} ({why})"))
            }
        });
        let (lost, level) = (lost.collect::<Vec<_>>().join(", "), self.shape.level);
        format!(
            "members {lost} are lost, and RAID-{} makes up for {}: copy those that can be read to healthy devices, with \
             ddrescue, say, and open the array with the copies",
            level.number(),
            level.parities()
        )
    }

    /// Flushes all members if one is being rebuilt: superblocks record how many of its rows count, and these were
    /// computed from data that may have been written without a log record. Returns the members whose flush failed.
    fn flush_rebuilt(&self, next: &Roster) -> Result<Failed> {
        let is_rebuilding = |role: &usize| matches!(next.table[*role].state, State::Rebuilding { .. });
        if !next.present().any(|role| is_rebuilding(&role)) {
            return Ok(Failed::new());
        }
        let roles: Vec<usize> = next.present().collect();
        let flushes = roles.iter().map(|role| Access { role: *role, sector: 0, what: What::Flush });
        let results = self.perform(next, flushes.collect())?;
        Ok(failed(&roles, results).collect())
    }

    /// Writes both superblocks of every member, the first ones before the copies; returns the members that failed.
    fn failing(&self, next: &Roster, clean: bool) -> Result<Failed> {
        let roles: Vec<usize> = next.present().collect();
        let mut all = Failed::new();
        for sector in [0, self.plot.member_sectors - 1] {
            let accesses = roles.iter().map(|role| {
                let superblock = self.superblock(next, *role, clean).encode();
                Access { role: *role, sector, what: What::Write(superblock, true) }
            });
            let results = self.perform(next, accesses.collect())?;
            all.extend(failed(&roles, results));
        }
        Ok(all)
    }

    /// The superblock of a member.
    pub fn superblock(&self, roster: &Roster, role: usize, clean: bool) -> Superblock {
        Superblock {
            array: self.array,
            event: roster.event,
            shape: self.shape,
            log: self.log_place,
            clean,
            role,
            plot: self.plot,
            log_epoch: roster.log_epoch,
            bond: roster.bond,
            table: roster.table.clone(),
        }
    }
}
