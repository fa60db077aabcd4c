//! Who of the members counts: the roster, how it changes, and what superblocks say of it.
//!
//! 1. It is replaced, never changed; an operation holds the one it began with.
//! 2. A new one is on the members that count before anybody sees it, so that nothing is acknowledged that depends on a
//!    member's absence and that a later assembly would not know.

use super::{Access, Core, What};
use crate::lane::Lanes;
use crate::superblock::{Entry, Id, State, Superblock};
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::{BlockDevice, Env, Error, Kind, Result};

/// A device and the lanes that call it.
pub(crate) struct Member {
    pub device: Arc<dyn BlockDevice>,
    pub lanes: Lanes,
}

impl Member {
    pub fn new(device: Arc<dyn BlockDevice>, env: &Arc<dyn Env>, lanes: usize) -> Arc<Member> {
        Arc::new(Member { device, lanes: Lanes::start(env, "array-member", lanes) })
    }
}

/// Who counts, since which event.
#[derive(Clone)]
pub(crate) struct Roster {
    pub event: u64,
    pub table: Vec<Entry>,
    pub members: Vec<Option<Arc<Member>>>,
    /// Which log device is the array's, if there is one.
    pub log_epoch: u64,
    /// Which cache has what the array has; 0: none.
    pub bond: u64,
}

impl Roster {
    /// The member, if it has the row.
    pub fn with_row(&self, role: usize, row: u64) -> Option<&Arc<Member>> {
        self.members[role].as_ref().filter(|_| self.table[role].state.has_row(row))
    }

    /// What the members are good for. Who is not there is missing.
    pub fn states(&self) -> Vec<State> {
        let states = self.table.iter().zip(&self.members);
        states.map(|(entry, member)| member.as_ref().map_or(State::Missing, |_| entry.state)).collect()
    }

    /// Members that are written superblocks, bitmaps and log heads.
    pub fn present(&self) -> impl Iterator<Item = usize> {
        (0..self.table.len())
            .filter(|role| self.table[*role].state != State::Missing && self.members[*role].is_some())
    }

    /// Whether all who are there trim. Rows that become zeros need no parity computed, and a record that says no more.
    pub fn trims(&self) -> bool {
        self.present().filter_map(|role| self.members[role].as_ref()).all(|member| member.device.info().trims)
    }

    /// The member counts no more.
    pub fn lose(&mut self, role: usize) {
        self.table[role].state = State::Missing;
    }

    /// Members that do not have all their data.
    pub fn lost(&self) -> usize {
        self.table.iter().filter(|entry| entry.state != State::Active).count()
    }
}

/// Members that failed, and why.
type Failed = BTreeMap<usize, String>;

fn failed(roles: &[usize], results: Vec<Result<Vec<u8>>>) -> impl Iterator<Item = (usize, String)> {
    roles.iter().zip(results).filter_map(|(role, result)| Some((*role, result.err()?.to_string())))
}

impl Core {
    /// Who counts now.
    pub fn roster(&self) -> Arc<Roster> {
        self.roster.lock().clone()
    }

    /// Says which cache has what the array has.
    pub fn bind(&self, bond: u64) -> Result<()> {
        self.change_roster(|roster| {
            roster.bond = bond;
            Ok(())
        })
    }

    /// Takes a member of `seen` out, durably, unless another has taken its place. An error if that is one too many.
    /// Its id says who it is: while it is copied there are two ways to it, and a call may come back by the other.
    pub fn fail(&self, seen: &Roster, role: usize, why: &str) -> Result<()> {
        self.change_roster(|roster| {
            self.take_out(roster, seen, role, why);
            Ok(())
        })?;
        // Who is missing since the array ended is so on no superblock: what it did not take is nowhere.
        self.check_writable()
    }

    /// The same, unless the array cannot do without the member: says whether it is out. Who takes no superblock is out
    /// before: one that misses both would end the array.
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

    /// Refuses a member that the array cannot do without.
    pub fn check_spare(&self, roster: &Roster, role: usize) -> Result<()> {
        let counts = roster.table[role].state == State::Active;
        match counts && roster.lost() >= self.shape.level.parities() {
            true => Err(Error::invalid(format!(
                "the array cannot do without member {role}: rebuild what is lost first"
            ))),
            false => Ok(()),
        }
    }

    /// Why a member was taken out since the assembly; not why one was that had its role before.
    pub fn reason(&self, member: &Id) -> Option<String> {
        self.reasons.lock().get(member).cloned()
    }

    /// Changes who counts: writes the new table to all who count, then publishes it. Members that fail meanwhile are
    /// taken out of it. Nothing is written if nothing changed.
    pub fn change_roster(&self, change: impl FnOnce(&mut Roster) -> Result<()>) -> Result<()> {
        self.change_roster_or(change, Roster::lose)
    }

    /// The same, where not everybody who fails meanwhile is lost by it.
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

    /// Changes the roster where superblocks need not hear of it.
    pub fn publish(&self, change: impl FnOnce(&mut Roster) -> Result<()>) -> Result<()> {
        let _one_at_a_time = self.change.lock();
        let mut next = (*self.roster()).clone();
        change(&mut next)?;
        *self.roster.lock() = Arc::new(next);
        Ok(())
    }

    /// One more row of a member that is rebuilt counts. Superblocks hear of it with the next event.
    pub fn count_row(&self, role: usize, row: u64) {
        let _one_at_a_time = self.change.lock();
        let mut next = (*self.roster()).clone();
        if next.table[role].state == (State::Rebuilding { rows: row }) {
            next.table[role].state = State::Rebuilding { rows: row + 1 };
            *self.roster.lock() = Arc::new(next);
        }
    }

    /// The next event on all members that are there.
    pub fn write_event(&self) -> Result<()> {
        self.write_next(false, None)
    }

    /// The event that is the newest, to all members again, as it was found: who is not there may have it, too. Who
    /// cannot be written is out with the next one. If the array cannot do without, there is none: it is an error, or a
    /// member that is needed would be two behind.
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

    /// The event of a close.
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

    /// An error for people, of those too who failed just now.
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

    /// Flushes all, if one is rebuilt: superblocks say how many of its rows count, and parity among them was made from
    /// data that were written without a record. Returns whose flush failed.
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

    /// Writes both superblocks of every member, one after the other; returns whose could not be written.
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

    /// What a member's superblock says.
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
