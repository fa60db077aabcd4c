//! What the parts of an array share: its members and who of them counts, calls on them, locks on rows, and how it
//! ends.
//!
//! 1. A *roster* says who counts. It is replaced, never changed; an operation holds the one it began with.
//! 2. A new roster is on the members that count before anybody sees it, so that nothing is acknowledged that depends
//!    on a member's absence and that a later assembly would not know.
//! 3. Locks are taken in the order: row, change of the roster. Nobody waits for a row with the roster's lock.
//! 4. An array that was closed with its cache says so (`bond`). Before anything changes without that cache it says so
//!    no more: what the cache holds would be old.
//! 5. An array that has ended takes no writes. It ends when the power goes, or when more members are lost than parity
//!    makes up for; then superblocks are not written any more, so that members can be brought back as they were.

use crate::bell::Bell;
use crate::bitmap::Bitmap;
use crate::intent::Intents;
use crate::lane::{Call, Lanes, together};
use crate::layout::Shape;
use crate::log::Log;
use crate::plan::Columns;
use crate::superblock::{Entry, Id, LogPlace, Plot, State, Superblock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use vellum_base::sync::{Mutex, MutexGuard};
use vellum_base::{BlockDevice, Env, Error, Kind, Lba, Result, SECTOR_BYTES};

const ROW_LOCKS: usize = 256;

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
        let has = match self.table[role].state {
            State::Active => true,
            State::Missing => false,
            State::Rebuilding { rows } => row < rows,
        };
        self.members[role].as_ref().filter(|_| has)
    }

    /// Members that are written superblocks, bitmaps and log heads.
    pub fn present(&self) -> impl Iterator<Item = usize> {
        (0..self.table.len())
            .filter(|role| self.table[*role].state != State::Missing && self.members[*role].is_some())
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

/// A call on a member.
pub(crate) struct Access {
    pub role: usize,
    /// The first sector, of the member.
    pub sector: u64,
    pub what: What,
}

/// What to do there.
pub(crate) enum What {
    /// Read so many bytes.
    Read(usize),
    /// Write these.
    Write(Vec<u8>, bool),
    /// Zero so many sectors.
    Zero(u64, bool),
    /// Flush the member.
    Flush,
}

/// Does a call; what was read, or nothing.
pub(crate) fn call(device: &dyn BlockDevice, sector: u64, what: What) -> Result<Vec<u8>> {
    let at = Lba(sector);
    match what {
        What::Read(bytes) => {
            let mut out = vec![0; bytes];
            device.read(at, &mut out).map(|()| out)
        }
        What::Write(bytes, fua) => device.write(at, &bytes, fua).map(|()| Vec::new()),
        What::Zero(sectors, fua) => device.write_zeroes(at, sectors, fua).map(|()| Vec::new()),
        What::Flush => device.flush().map(|()| Vec::new()),
    }
}

/// Counters for people.
#[derive(Default)]
pub(crate) struct Counters {
    pub healed_sectors: AtomicU64,
    pub recovered_sectors: AtomicU64,
    pub log_records: AtomicU64,
    pub log_sectors: AtomicU64,
    pub log_retirements: AtomicU64,
}

/// See the module.
pub(crate) struct Core {
    pub env: Arc<dyn Env>,
    pub array: Id,
    pub shape: Shape,
    pub plot: Plot,
    pub log_place: LogPlace,
    pub log: Log,
    pub stale: Bitmap,
    pub stale_rows_max: AtomicU64,
    pub intent: Bitmap,
    pub intents: Intents,
    pub counters: Counters,
    /// Rung when other members count.
    pub bell: Arc<Bell>,
    /// Changes go through the cache that the array is bound to.
    pub has_cache: AtomicBool,
    roster: Mutex<Arc<Roster>>,
    change: Mutex<()>,
    ended: Mutex<Option<(Kind, String)>>,
    /// Why members were taken out.
    reasons: Mutex<BTreeMap<usize, String>>,
    rows: Vec<Mutex<()>>,
}

/// What a core is made from.
pub(crate) struct Parts {
    pub superblock: Superblock,
    pub members: Vec<Option<Arc<Member>>>,
    pub log: Log,
    pub stale: Bitmap,
    pub intent: Bitmap,
}

impl Core {
    pub fn new(env: Arc<dyn Env>, parts: Parts) -> Core {
        let Parts { superblock, members, log, stale, intent } = parts;
        let Superblock { event, table, log_epoch, bond, .. } = superblock;
        let roster = Roster { event, table, members, log_epoch, bond };
        Core {
            env,
            array: superblock.array,
            shape: superblock.shape,
            plot: superblock.plot,
            log_place: superblock.log,
            log,
            stale,
            stale_rows_max: AtomicU64::new(u64::MAX),
            intent,
            intents: Intents::default(),
            counters: Counters::default(),
            bell: Arc::default(),
            has_cache: AtomicBool::new(false),
            roster: Mutex::new(Arc::new(roster)),
            change: Mutex::new(()),
            ended: Mutex::new(None),
            reasons: Mutex::default(),
            rows: (0..ROW_LOCKS).map(|_| Mutex::new(())).collect(),
        }
    }

    /// Who counts now.
    pub fn roster(&self) -> Arc<Roster> {
        self.roster.lock().clone()
    }

    /// Keeps others from the row.
    pub fn lock_row(&self, row: u64) -> MutexGuard<'_, ()> {
        self.rows[(row % ROW_LOCKS as u64) as usize].lock()
    }

    /// Keeps others from all rows. Nobody holds one and waits for another.
    pub fn lock_all_rows(&self) -> Vec<MutexGuard<'_, ()>> {
        self.rows.iter().map(Mutex::lock).collect()
    }

    /// Where a column's sectors are: the member, and the first sector there.
    pub fn place(&self, row: u64, column: usize, offset: u32) -> (usize, u64) {
        let sector = self.plot.data_start + self.shape.member_sector(row) + u64::from(offset);
        (self.shape.member_of(row, column), sector)
    }

    /// Columns of the row whose members do not have it.
    pub fn lost_columns(&self, roster: &Roster, row: u64) -> Columns {
        let lost = (0..self.shape.members).filter(|role| roster.with_row(*role, row).is_none());
        lost.map(|role| self.shape.column_of(row, role)).collect()
    }

    /// Does all calls at once. A lost power ends the array, everything else is the caller's to judge.
    pub fn perform(&self, roster: &Roster, accesses: Vec<Access>) -> Result<Vec<Result<Vec<u8>>>> {
        let calls = accesses.into_iter().map(|Access { role, sector, what }| {
            let member = roster.members[role].as_ref().expect("a member that counts is there");
            let device = member.device.clone();
            Call { lanes: &member.lanes, run: Box::new(move || call(&*device, sector, what)) }
        });
        let results = together(calls.collect());
        match results.iter().any(is_power_lost) {
            false => Ok(results),
            true => Err(self.end(Kind::PowerLost, "the power is off")),
        }
    }

    /// Calls that change something: members that fail are out. The first error that is the array's own is returned.
    pub fn change_all(&self, roster: &Roster, accesses: Vec<Access>) -> Result<()> {
        let roles: Vec<usize> = accesses.iter().map(|access| access.role).collect();
        let results = self.perform(roster, accesses)?;
        for (role, result) in roles.into_iter().zip(results) {
            if let Err(error) = result {
                self.fail(roster, role, &error.to_string())?;
            }
        }
        Ok(())
    }

    /// Flushes all members that are there.
    pub fn flush_members(&self) -> Result<()> {
        let moment = self.stale.moment();
        let roster = self.roster();
        let flushes = roster.present().map(|role| Access { role, sector: 0, what: What::Flush });
        self.change_all(&roster, flushes.collect())?;
        self.stale.flushed(moment);
        Ok(())
    }

    /// Tells the members of rows that are whole again, if there is anything to tell. Nothing else must be going on, or
    /// there is more to tell.
    pub fn settle_marks(&self) -> Result<()> {
        if !self.stale.is_behind() {
            return Ok(());
        }
        self.check_writable()?;
        self.flush_members()?;
        self.stale.catch_up(self)
    }

    /// Refuses a role that there is not.
    pub fn check_role(&self, role: usize) -> Result<()> {
        if role < self.shape.members {
            return Ok(());
        }
        Err(Error::invalid(format!("there is no member {role}: the last is {}", self.shape.members - 1)))
    }

    /// Ends the array; returns the error that says so. The first reason stays.
    pub fn end(&self, kind: Kind, why: &str) -> Error {
        let mut ended = self.ended.lock();
        let (kind, why) = ended.get_or_insert_with(|| (kind, why.to_string()));
        Error::new(*kind, why.clone())
    }

    /// Refuses if the array has ended.
    pub fn check_writable(&self) -> Result<()> {
        match &*self.ended.lock() {
            None => Ok(()),
            Some((kind, why)) => Err(Error::new(*kind, format!("the array takes no writes: {why}"))),
        }
    }

    /// Before a change of what the array holds, or of what its parity lacks.
    pub fn begin_change(&self) -> Result<()> {
        self.check_writable()?;
        if self.roster().bond != 0 && !self.has_cache.load(Relaxed) {
            self.bind(0)?;
        }
        Ok(())
    }

    /// Says which cache has what the array has.
    pub fn bind(&self, bond: u64) -> Result<()> {
        self.change_roster(|roster| {
            roster.bond = bond;
            Ok(())
        })
    }

    /// Why it has ended, if it has.
    pub fn ended(&self) -> Option<String> {
        self.ended.lock().as_ref().map(|(_, why)| why.clone())
    }

    /// Takes a member of `seen` out, durably, unless another has taken its place. An error if that is one too many.
    /// Its id says who it is: while it is copied there are two ways to it, and a call may come back by the other.
    pub fn fail(&self, seen: &Roster, role: usize, why: &str) -> Result<()> {
        self.change_roster(|roster| {
            let is_same = seen.table[role].id == roster.table[role].id && roster.members[role].is_some();
            if is_same && roster.table[role].state != State::Missing {
                roster.table[role].state = State::Missing;
                self.reasons.lock().insert(role, why.to_string());
            }
            Ok(())
        })
    }

    /// Why a member was taken out since the assembly.
    pub fn reason(&self, role: usize) -> Option<String> {
        self.reasons.lock().get(&role).cloned()
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

    /// The event that is the newest, to all members again.
    pub fn repeat_event(&self, clean: bool) -> Result<()> {
        let _one_at_a_time = self.change.lock();
        // Who cannot be written is out with the next one.
        self.failing(&self.roster(), clean).map(drop)
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
        Ok(())
    }

    fn write_superblocks(
        &self,
        next: &mut Roster,
        clean: bool,
        mut take_out: impl FnMut(&mut Roster, usize),
    ) -> Result<()> {
        loop {
            if next.lost() > self.shape.level.parities() {
                let why = format!(
                    "{} members are lost, RAID-{} makes up for {}",
                    next.lost(),
                    self.shape.level.number(),
                    self.shape.level.parities()
                );
                let error = self.end(Kind::Io, &why);
                *self.roster.lock() = Arc::new(next.clone());
                return Err(error);
            }
            next.event += 1;
            let mut failed = self.flush_rebuilt(next)?;
            if failed.is_empty() {
                failed = self.failing(next, clean)?;
            }
            if failed.is_empty() {
                return Ok(());
            }
            failed.into_iter().for_each(|role| take_out(next, role));
        }
    }

    /// Flushes members that are rebuilt: superblocks say how many of their rows count. Returns whose flush failed.
    fn flush_rebuilt(&self, next: &Roster) -> Result<BTreeSet<usize>> {
        let is_rebuilding = |role: &usize| matches!(next.table[*role].state, State::Rebuilding { .. });
        let roles: Vec<usize> = next.present().filter(is_rebuilding).collect();
        let flushes = roles.iter().map(|role| Access { role: *role, sector: 0, what: What::Flush });
        let results = self.perform(next, flushes.collect())?;
        Ok(roles
            .into_iter()
            .zip(results)
            .filter(|(_, result)| result.is_err())
            .map(|(role, _)| role)
            .collect())
    }

    /// Writes both superblocks of every member, one after the other; returns whose could not be written.
    fn failing(&self, next: &Roster, clean: bool) -> Result<BTreeSet<usize>> {
        let roles: Vec<usize> = next.present().collect();
        let mut failed = BTreeSet::new();
        for sector in [0, self.plot.member_sectors - 1] {
            let accesses = roles.iter().map(|role| {
                let superblock = self.superblock(next, *role, clean).encode();
                Access { role: *role, sector, what: What::Write(superblock, true) }
            });
            let results = self.perform(next, accesses.collect())?;
            failed.extend(
                roles.iter().zip(results).filter(|(_, result)| result.is_err()).map(|(role, _)| *role),
            );
        }
        Ok(failed)
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

fn is_power_lost(result: &Result<Vec<u8>>) -> bool {
    matches!(result, Err(error) if error.kind() == Kind::PowerLost)
}

/// Bytes of so many sectors.
pub(crate) fn bytes_of(sectors: u32) -> usize {
    sectors as usize * SECTOR_BYTES
}
